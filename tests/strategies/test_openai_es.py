from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from baldwin.errors import EnvironmentFailure, TicketError
from baldwin.strategies import ESConfig, OpenAIES
from baldwin.strategies.openai_es import gradient_factor
from baldwin.types import Outcome, Perturbation, Trial

Fitness = Callable[[np.ndarray], float]


def es(dim: int = 6, **kwargs: Any) -> OpenAIES:
    config = ESConfig(**({"population": 8, "weight_decay": 0.0, "evaluate_center": False, "optimizer": "sgd", "momentum": 0.0} | kwargs))
    return OpenAIES(np.zeros(dim, np.float32), config, seed=5)


def noise_of(trial: Trial) -> np.ndarray:
    assert isinstance(trial.params, Perturbation)
    return trial.params.noise.draw(trial.params.generation, trial.params.pair).astype(np.float64)


def generation(strategy: OpenAIES, fitness: Fitness) -> tuple[np.ndarray, np.ndarray]:
    """Play one generation; the signed noise [n, D] and the returns [n]."""
    center = strategy.center.astype(np.float64)
    trials = strategy.ask(10**6)
    signed = np.stack([np.sign(t.params.scale) * noise_of(t) for t in trials])  # type: ignore[union-attr]
    returns = np.array([fitness(center + t.params.scale * noise_of(t)) for t in trials])  # type: ignore[union-attr]
    strategy.tell([Outcome(t.id, f) for t, f in zip(trials, returns, strict=True)])
    return signed, returns


def ranks(returns: np.ndarray) -> np.ndarray:
    return returns.argsort().argsort() / (len(returns) - 1) - 0.5  # no ties here


def bowl(x: np.ndarray) -> float:
    return -float(np.square(x - np.arange(len(x))).sum())


def test_pairs_are_interleaved_and_antithetic() -> None:
    trials = es().ask(8)
    scales = [t.params.scale for t in trials]  # type: ignore[union-attr]
    assert scales == [0.02, -0.02] * 4
    assert [t.params.pair for t in trials] == [0, 0, 1, 1, 2, 2, 3, 3]  # type: ignore[union-attr]


def test_one_step_is_the_rule_of_the_paper() -> None:
    strategy = es(lr=0.1, sigma=0.5)
    signed, returns = generation(strategy, bowl)
    expected = 0.1 / (8 * 0.5) * ranks(returns) @ signed
    assert strategy.center == pytest.approx(expected, rel=1e-5)


def test_es_torch_learning_rates_give_the_step_of_es_torch() -> None:
    # its rule: theta + lr / (n std) sum u (theta + std eps) - lr wd theta, whose u sum to zero
    strategy = es(lr=0.04, sigma=0.025, lr_convention="es-torch", weight_decay=0.0025)
    strategy.center = np.linspace(-1, 1, 6).astype(np.float32)
    theta = strategy.center.astype(np.float64)
    signed, returns = generation(strategy, bowl)
    expected = theta + 0.04 / (8 * 0.025) * ranks(returns) @ (theta + 0.025 * signed) - 0.04 * 0.0025 * theta
    assert strategy.center == pytest.approx(expected, abs=1e-6)


def test_es_torch_rate_is_a_fortieth_in_the_papers_convention() -> None:
    # es-torch: lr 0.04 at sigma 0.025 there is lr 0.001 here
    steps = []
    for kwargs in ({"lr": 0.04, "lr_convention": "es-torch"}, {"lr": 0.001}):
        strategy = es(sigma=0.025, **kwargs)
        generation(strategy, bowl)
        steps.append(strategy.center)
    assert steps[0] == pytest.approx(steps[1], rel=1e-5)


def test_pytorch_es_learning_rates_give_the_step_of_pytorch_es() -> None:
    # its SGD: theta + lr / (n sigma) sum sign u eps, with u = w / sum(w) + 1/n over log2 ranks
    strategy = es(lr=0.1, sigma=0.05, lr_convention="pytorch-es")
    signed, returns = generation(strategy, bowl)
    place = (-returns).argsort().argsort()
    w = np.maximum(0, np.log2(8 / 2 + 1) - np.log2(place + 1))
    expected = 0.1 / (8 * 0.05) * (w / w.sum() + 1 / 8) @ signed
    assert strategy.center == pytest.approx(expected, rel=1e-5)


def test_pytorch_es_adam_sees_its_own_gradient() -> None:
    # its Adam gets n sigma sum u eps: (n sigma)^2 times the rule
    assert gradient_factor(ESConfig(lr_convention="pytorch-es", optimizer="adam"), 40, 0.05) == pytest.approx(4.0)
    assert gradient_factor(ESConfig(lr_convention="pytorch-es", optimizer="sgd"), 40, 0.05) == 1.0


def test_estimate_of_a_linear_function_is_its_gradient() -> None:
    slope = np.array([1.0, -2.0, 0.5])
    strategy = es(dim=3, population=20_000, sigma=0.1, lr=1.0, shaping="raw")
    generation(strategy, lambda x: float(slope @ x))
    assert strategy.center == pytest.approx(slope, abs=4 * np.linalg.norm(slope) / np.sqrt(10_000))


def test_estimate_of_a_quadratic_is_its_gradient_at_the_centre() -> None:
    # odd moments cancel within a pair: grad of -(x - k)^2 at 0 is 2 k
    strategy = es(dim=3, population=20_000, sigma=0.1, lr=1.0, shaping="raw")
    generation(strategy, bowl)
    assert strategy.center == pytest.approx([0, 2, 4], abs=4 * np.sqrt(20) / np.sqrt(10_000))


def test_all_tied_returns_move_nothing() -> None:
    strategy = es()
    generation(strategy, lambda x: 7.0)
    assert (strategy.center == 0).all()


def test_weight_decay_is_decoupled_and_applied_once() -> None:
    strategy = es(lr=0.5, weight_decay=0.1)
    strategy.center = np.full(6, 2.0, np.float32)
    generation(strategy, lambda x: 7.0)
    assert strategy.center == pytest.approx(np.full(6, 2.0 * (1 - 0.5 * 0.1)))


def test_a_failed_individual_costs_its_pair_and_nothing_else() -> None:
    strategy = es(lr=0.1)
    trials = strategy.ask(100)
    returns = {t.id: bowl(t.params.scale * noise_of(t)) for t in trials}  # type: ignore[union-attr]
    outcomes = [Outcome(t.id, float("nan") if t.id == 3 else returns[t.id], reason="fell over" if t.id == 3 else "") for t in trials]
    metrics = strategy.tell(outcomes)
    assert metrics is not None
    assert metrics["failed_pairs"] == 1
    kept = [t for t in trials if t.id not in (2, 3)]
    u = ranks(np.array([returns[t.id] for t in kept]))
    signed = np.stack([np.sign(t.params.scale) * noise_of(t) for t in kept])  # type: ignore[union-attr]
    assert strategy.center == pytest.approx(0.1 / (6 * 0.02) * u @ signed, rel=1e-5)


def test_when_all_fail_the_first_reason_is_told() -> None:
    strategy = es()
    with pytest.raises(EnvironmentFailure, match=r"every pair of generation 0 failed.*fell over"):
        strategy.tell([Outcome(t.id, float("nan"), reason="fell over") for t in strategy.ask(100)])


def test_infinite_returns_count_as_failed() -> None:
    strategy = es()
    trials = strategy.ask(100)
    metrics = strategy.tell([Outcome(t.id, float("inf") if t.id == 0 else float(t.id)) for t in trials])
    assert metrics is not None
    assert metrics["failed_pairs"] == 1


def test_the_centre_is_ranked_but_moves_nothing() -> None:
    silent, probing = es(lr=0.1), es(lr=0.1, evaluate_center=True)
    generation(silent, bowl)
    trials = probing.ask(4) + probing.ask(4)
    assert len(trials) == 9
    assert trials[-1].params.scale == 0  # type: ignore[union-attr]
    metrics = probing.tell([Outcome(t.id, bowl(t.params.scale * noise_of(t))) for t in trials])  # type: ignore[union-attr]
    assert (probing.center == silent.center).all()
    assert metrics is not None
    assert 1 <= metrics["center_rank"] <= 9
    assert 0 <= metrics["center_percentile"] <= 1


def test_sigma_of_the_samples_is_sigma_of_the_update() -> None:
    schedule = {"kind": "linear", "start": 0.5, "end": 0.1, "generations": 4}
    strategy = es(sigma=schedule, lr=0.1)
    generation(strategy, bowl)
    before = strategy.center.astype(np.float64)
    assert strategy.sigma == pytest.approx(0.4)
    signed, returns = generation(strategy, bowl)
    assert strategy.center - before == pytest.approx(0.1 / (8 * 0.4) * ranks(returns) @ signed, rel=1e-4)


def test_low_rank_update_is_the_rule_with_expanded_noise() -> None:
    config = ESConfig(population=8, weight_decay=0, evaluate_center=False, optimizer="sgd", momentum=0, lr=0.1, rank=2)
    strategy = OpenAIES(np.zeros(16, np.float32), config, seed=5, shapes=((4, 3), (4,)))
    trials = strategy.ask(8)
    rows = np.stack([t.params.noise.expand(noise_of(t)[None].astype(np.float32))[0] * np.sign(t.params.scale) for t in trials])  # type: ignore[union-attr]
    returns = np.array([bowl(0.02 * r) for r in rows])
    strategy.tell([Outcome(t.id, f) for t, f in zip(trials, returns, strict=True)])
    assert strategy.center == pytest.approx(0.1 / (8 * 0.02) * ranks(returns) @ rows, rel=1e-4)


def test_tickets_of_a_closed_generation_are_refused() -> None:
    strategy = es()
    generation(strategy, bowl)
    with pytest.raises(TicketError, match="generation is closed"):
        strategy.tell([Outcome(0, 1.0)])


def test_split_half_cosine_tells_signal_from_noise() -> None:
    signal, silence = es(dim=2, population=400), es(dim=200, population=400)
    rng = np.random.default_rng(0)
    good = signal.tell([Outcome(t.id, bowl(t.params.scale * noise_of(t))) for t in signal.ask(400)])  # type: ignore[union-attr]
    bad = silence.tell([Outcome(t.id, float(rng.normal())) for t in silence.ask(400)])
    assert good is not None
    assert bad is not None
    assert good["split_half_cosine"] > 0.9
    assert abs(bad["split_half_cosine"]) < 0.3


@pytest.mark.parametrize("population", [1, 7, 0])
def test_populations_that_cannot_be_are_refused(population: int) -> None:
    with pytest.raises(ValueError, match="population"):
        ESConfig(population=population)
