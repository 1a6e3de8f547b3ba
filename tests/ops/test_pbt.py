"""Ranges of hyper-parameters, and PBT's rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from baldwin.errors import ConfigError
from baldwin.ops.pbt import explore, resample, truncation, welch
from baldwin.ops.ranges import Choice, Int, Log, Range, Uniform

RANGES: dict[str, Range] = {
    "lr": Log(1e-5, 1e-1),
    "clip": Uniform(0.1, 0.4),
    "batch": Int(1, 64),
    "activation": Choice(("tanh", "relu", "elu")),
    "layers": Choice((1, 2, 4, 8), ordered=True),
    "hidden": Choice(([64, 64], [256], [1])),
}


@pytest.mark.parametrize("name", RANGES)
def test_samples_and_perturbed_values_are_in_their_range(name: str) -> None:
    rng, choices = np.random.default_rng(0), RANGES[name]
    value = choices.sample(rng)
    for _ in range(300):
        assert choices.contains(value)
        value = choices.perturb(value, rng)
        assert choices.contains(choices.sample(rng))


def test_logarithms_are_uniform() -> None:
    rng = np.random.default_rng(0)
    drawn = np.log10([Log(1e-5, 1e-1).sample(rng) for _ in range(5000)])
    assert np.histogram(drawn, bins=4, range=(-5, -1))[0] / 5000 == pytest.approx(0.25, abs=0.03)
    whole = Counter(Int(3, 6).sample(rng) for _ in range(4000))
    assert sorted(whole) == [3, 4, 5, 6]
    assert min(whole.values()) > 900


def perturbed(choices: Range, value: float | str, factors: tuple[float, ...] = (0.8, 1.2)) -> set[object]:
    rng = np.random.default_rng(0)
    return {choices.perturb(value, rng, factors) for _ in range(60)}  # type: ignore[arg-type]


def test_perturbation_by_hand() -> None:
    assert perturbed(Uniform(0, 10), 5.0) == {4.0, 6.0}
    assert perturbed(Uniform(0, 5.5), 5.0) == {4.0, 5.5}
    assert perturbed(Uniform(-1, 1), 0.0) == {0.0}  # zero stays zero
    assert perturbed(Log(1e-4, 1), 1e-4, (0.5, 2.0)) == {1e-4, 2e-4}
    assert perturbed(Int(1, 100), 10) == {8, 12}
    assert perturbed(Int(1, 100), 2) == {1, 3}  # 1.6 and 2.4 are both 2 when rounded
    assert perturbed(Int(2, 100), 2) == {2, 3}
    assert perturbed(Int(1, 9), 5, (1.0,)) == {5}
    assert perturbed(Choice(("a", "b", "c")), "a") == {"b", "c"}
    assert perturbed(Choice((1, 2, 4, 8), ordered=True), 2) == {1, 4}
    assert perturbed(Choice((1, 2, 4, 8), ordered=True), 8) == {4}
    assert perturbed(Choice(("only",)), "only") == {"only"}


def test_what_is_contained() -> None:
    assert Uniform(0, 1).contains(0)
    assert not Uniform(0, 1).contains(1.1)
    assert not Uniform(0, 1).contains(float("nan"))
    assert not Uniform(0, 1).contains(True)
    assert not Int(0, 5).contains(2.0)
    assert not Int(0, 5).contains(None)
    assert Choice((None, "a")).contains(None)
    assert not Choice((1, 2)).contains(True)
    assert Choice(([64, 64], [256])).contains([256])
    assert not Choice(([64, 64], [1])).contains([64])
    assert not Choice(([64, 64], [1])).contains([True])
    assert [Choice(([1], 1, True)).index(value) for value in (True, [1], 1)] == [2, 0, 1]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Uniform(1, 0), "smaller one first"),
        (lambda: Uniform(0, np.inf), "finite"),
        (lambda: Log(0, 1), "above zero"),
        (lambda: Int(0, 1.5), "whole numbers"),  # type: ignore[arg-type]
        (lambda: Choice(()), "at least one"),
        (lambda: Choice(("a", "b", "a")), "listed twice"),
        (lambda: Choice(([64, 64], [256], [64, 64])), "listed twice"),
        (lambda: Uniform([1], [2]), "two finite numbers"),  # type: ignore[arg-type]
        (lambda: Choice(("a", "b")).perturb("c", np.random.default_rng()), "expected one of .*'c'"),
        (lambda: explore({"lr": 5.0}, {"lr": Log(1e-5, 1)}, np.random.default_rng()), "'lr' within Log.* got 5.0"),
        (lambda: explore({}, {"lr": Log(1e-5, 1)}, np.random.default_rng()), "'lr' within Log.* got None"),
        (lambda: truncation([1, 2, 3], 0, np.random.default_rng(), share=0.6), "at most 0.5"),
        (lambda: truncation([1, 2, 3], 3, np.random.default_rng()), "between 0 and 2; got 3"),
        (lambda: welch([[1, 2], [3]], 0, np.random.default_rng()), "at least two finite"),
    ],
)
def test_refusals(call: Callable[[], object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        call()


def copied(rule: Callable[[int, np.random.Generator], int | None], members: int) -> list[set[int | None]]:
    """Whom each member may copy, over many draws."""
    rng = np.random.default_rng(0)
    return [{rule(member, rng) for _ in range(100)} for member in range(members)]


def test_the_worst_fifth_copies_the_best_fifth() -> None:
    found = copied(lambda member, rng: truncation(np.arange(10.0), member, rng), 10)
    assert found == [{8, 9}, {8, 9}] + [{None}] * 8


def test_six_of_thirty_copy_six() -> None:
    found = copied(lambda member, rng: truncation(np.arange(30.0), member, rng), 30)
    assert [who for who, whom in enumerate(found) if whom != {None}] == list(range(6))
    assert found[0] == set(range(24, 30))


def test_nobody_copies_an_equal_or_itself() -> None:
    assert copied(lambda member, rng: truncation(np.ones(10), member, rng), 10) == [{None}] * 10
    assert truncation([1.0], 0, np.random.default_rng(0)) is None
    assert copied(lambda member, rng: truncation([1.0, 2.0, 3.0], member, rng), 3) == [{2}, {None}, {None}]


def test_a_diverged_member_copies() -> None:
    assert copied(lambda member, rng: truncation([5.0, np.nan, 7.0, 6.0], member, rng), 4) == [{None}, {2}, {None}, {None}]


CLEAR, EQUAL, WORSE = [9.0, 10, 11], [8.5, 10, 11.5], [1.0, 2, 3]


def test_who_is_significantly_worse_copies() -> None:
    found = copied(lambda member, rng: welch([CLEAR, EQUAL, WORSE], member, rng), 3)
    assert found == [{None}, {None}, {0, 1}]
    assert copied(lambda member, rng: welch([CLEAR, [np.nan, 1]], member, rng), 2) == [{None}, {0}]
    assert welch([CLEAR], 0, np.random.default_rng(0)) is None


def test_exploration_by_hand() -> None:
    values = {"lr": 1e-3, "batch": 10, "name": "mine"}
    ranges: dict[str, Range] = {"lr": Log(1e-5, 1), "batch": Int(1, 64)}
    seen = [explore(values, ranges, np.random.default_rng(seed)) for seed in range(50)]
    assert {found["lr"] for found in seen} == {1e-3 * 0.8, 1e-3 * 1.2}
    assert {found["batch"] for found in seen} == {8, 12}
    assert {found["name"] for found in seen} == {"mine"}
    assert values == {"lr": 1e-3, "batch": 10, "name": "mine"}


def test_resampling() -> None:
    values = {"lr": 1e-3}
    rng = np.random.default_rng(0)
    ranges: dict[str, Range] = {"lr": Log(1e-5, 1)}
    drawn = [explore(values, ranges, rng, resample_probability=0.25)["lr"] not in (1e-3 * 0.8, 1e-3 * 1.2) for _ in range(2000)]
    assert np.mean(drawn) == pytest.approx(0.25, abs=0.03)
    first = resample(RANGES, np.random.default_rng(1))
    assert list(first) == list(RANGES)
    assert all(RANGES[name].contains(value) for name, value in first.items())
    backwards = dict(reversed(RANGES.items()))
    assert resample(backwards, np.random.default_rng(1)) == first  # the order of the mapping does not matter
