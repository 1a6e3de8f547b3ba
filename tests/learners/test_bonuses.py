"""Exploration bonuses: what they pay for, that they never touch rewards or encoder, and that they continue exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from baldwin.learners.auxiliary import Bonus, Window, apply
from baldwin.learners.curiosity import ICM, CuriosityConfig, ForwardCuriosity, InverseCuriosity, make_curiosity
from baldwin.learners.rnd import RND, RNDConfig, make_rnd
from baldwin.types import flatten_tree, unflatten_tree
from tests.learners.windows import CPU, assert_same_state, random_window, seeded, shorter, window, with_padding

FEATURES, ACTIONS = 5, 2
SMALL: dict[str, Any] = {"hidden": [16], "lr": 3e-3}


def curiosity(kind: str, n_features: int = FEATURES, n_actions: int = ACTIONS, discrete: tuple[int, ...] = (), **settings: Any) -> Bonus:
    config = CuriosityConfig(kind=kind, **(SMALL | {"feature_size": 4} | settings))
    found = make_curiosity(config, n_features, n_actions, discrete, 7, CPU)
    assert found is not None
    return found


def rnd(n_features: int = FEATURES, n_actions: int = ACTIONS, **settings: Any) -> RND:
    found = make_rnd(RNDConfig(**({"kind": "reward"} | SMALL | settings)), n_features, n_actions, (), 7, CPU)
    assert found is not None
    return found


BONUSES: dict[str, Callable[..., Bonus]] = {
    "icm": lambda **settings: curiosity("icm", **settings),
    "forward": lambda **settings: curiosity("forward", **settings),
    "inverse": lambda **settings: curiosity("inverse", **settings),
    "rnd": lambda **settings: rnd(**settings),
    "rnd-state": lambda **settings: rnd(input="state", **settings),
}


@pytest.mark.parametrize("kind", BONUSES)
def test_a_bonus_is_the_error_over_its_running_deviation(kind: str) -> None:
    part, first, second = BONUSES[kind](strength=0.5), random_window(1), random_window(2)
    for given in (first, second):
        part.update(given)
    assert part._moments.count == 48
    error = part.errors(first.steps())[part.bonus_error].detach().view(6, 4)
    std = float(np.sqrt(part._moments.m2 / part._moments.count)[0])
    torch.testing.assert_close(part.bonus(first), 0.5 * (error / std).clamp(max=10.0))


def test_the_deviation_is_that_of_all_errors_so_far() -> None:
    part, errors = curiosity("forward"), []
    for seed in range(3):
        errors.append(part.errors(random_window(seed).steps())[part.bonus_error].detach().numpy())
        part.update(random_window(seed))
    assert part._moments.std(0.0)[0] == pytest.approx(np.concatenate(errors).std(), rel=1e-6)


def test_errors_without_any_spread_do_not_explode() -> None:
    part = curiosity("forward", strength=2.0)
    same = window(torch.ones(4, 2, FEATURES), torch.ones(4, 1, ACTIONS))
    part.update(same)
    assert part.bonus(same).flatten().tolist() == [20.0] * 4


@pytest.mark.parametrize("kind", BONUSES)
def test_a_bonus_is_a_new_tensor_and_a_pure_function(kind: str) -> None:
    part, given = BONUSES[kind](), random_window(1)
    part.update(given)
    reward, before = given.reward.clone(), part.state_dict()
    found = part.bonus(given)
    assert not found.requires_grad
    assert torch.equal(found, part.bonus(given))
    assert torch.equal(given.reward, reward)
    assert found.data_ptr() != given.reward.data_ptr()
    assert_same_state(part.state_dict(), before)


@pytest.mark.parametrize("kind", BONUSES)
def test_padding_is_not_read(kind: str) -> None:
    whole = random_window(1)
    padded, short = BONUSES[kind](), BONUSES[kind]()
    for _ in range(2):
        one, other = padded.update(with_padding(whole)), short.update(shorter(whole))
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert_same_state(padded.state_dict(), short.state_dict())
    found = padded.bonus(with_padding(whole))
    assert torch.equal(found[:, :-1], short.bonus(shorter(whole)))
    assert (found[:, -1] == 0).all()


@pytest.mark.parametrize("kind", BONUSES)
def test_a_window_without_steps_changes_nothing(kind: str) -> None:
    part, given = BONUSES[kind](), random_window(1, valid=torch.zeros(6, 4, dtype=torch.bool))
    before = part.state_dict()
    assert part.update(given) == {}
    assert_same_state(part.state_dict(), before)
    assert torch.equal(part.bonus(given), torch.zeros(6, 4))


@pytest.mark.parametrize("kind", BONUSES)
def test_the_encoder_is_never_trained(kind: str) -> None:
    features = torch.randn(6, 5, FEATURES, generator=seeded(), requires_grad=True)
    part, given = BONUSES[kind](), random_window(1)
    own = window(features, given.action)
    report = part.update(own)
    assert features.grad is None
    assert all(not loss.requires_grad for loss in report.values())
    assert all(network.params.grad is not None for network in part.networks().values())


@pytest.mark.parametrize("kind", BONUSES)
def test_a_saved_part_goes_on_exactly(kind: str) -> None:
    part, given = BONUSES[kind](), random_window(1)
    part.update(given)
    copy = BONUSES[kind]()
    copy.update(random_window(9))
    copy.load_state_dict(unflatten_tree(flatten_tree(part.state_dict())))  # as checkpoints keep it
    for seed in range(2, 4):
        part.update(random_window(seed))
        copy.update(random_window(seed))
    assert_same_state(part.state_dict(), copy.state_dict())
    assert torch.equal(part.bonus(given), copy.bonus(given))


@pytest.mark.parametrize("kind", BONUSES)
def test_the_seed_decides_and_nothing_else(kind: str) -> None:
    before = torch.random.get_rng_state()
    one, other = BONUSES[kind](), BONUSES[kind]()
    assert_same_state(one.state_dict(), other.state_dict())
    assert torch.equal(before, torch.random.get_rng_state())


def test_every_network_has_weights_of_its_own() -> None:
    config = CuriosityConfig(kind="icm", hidden=[8], feature_size=4)
    one, other = (ICM(config, 8, 0, (), seed, CPU).networks() for seed in (1, 2))
    assert not np.array_equal(one["icm_features"].vectors(), other["icm_features"].vectors())
    assert len({network.vectors()[0, 0] for network in one.values()}) == 3


def set_networks(part: Bonus, **rows: list[float]) -> None:
    for name, row in rows.items():
        part.networks()[name].reset(np.array([row], np.float32))


def test_both_errors_of_icm_by_hand() -> None:
    """phi = 2 s, so 2 and 4. A number: g = phi' - phi = 2 for 0.5, 1.5^2 / 2; f = phi + 3 a = 3.5 for 4, 0.5^2 / 2."""
    part = curiosity("icm", 1, 1, hidden=[], feature_size=1)
    set_networks(part, icm_features=[2.0, 0.0], icm_inverse=[-1.0, 1.0, 0.0], icm_forward=[1.0, 3.0, 0.0])
    given = window(torch.tensor([[[1.0], [2.0]]]), torch.tensor([[[0.5]]]))
    errors = part.errors(given.steps())
    assert (errors["icm_inverse"].item(), errors["icm_forward"].item()) == (1.125, 0.125)
    assert part.bonus_error == "icm_forward"


def test_both_errors_of_icm_for_choices_by_hand() -> None:
    """Logits phi and phi', 2 and 4: -log p of the first is log(1 + e^2); f = phi + 1 of the choice = 3 for 4."""
    part = curiosity("icm", 1, 2, (2,), hidden=[], feature_size=1)
    set_networks(part, icm_features=[2.0, 0.0], icm_inverse=[1.0, 0.0, 0.0, 1.0, 0.0, 0.0], icm_forward=[1.0, 1.0, 5.0, 0.0])
    errors = part.errors(window(torch.tensor([[[1.0], [2.0]]]), torch.tensor([[[1.0, 0.0]]]), (2,)).steps())
    assert errors["icm_inverse"].item() == pytest.approx(np.log1p(np.exp(2.0)))
    assert errors["icm_forward"].item() == 0.5


def test_icm_features_follow_the_inverse_model_alone() -> None:
    part = curiosity("icm")
    assert isinstance(part, ICM)
    errors = part.errors(random_window(1).steps())
    (features,) = torch.autograd.grad(errors["icm_inverse"].mean(), part._features.params, allow_unused=True, retain_graph=True)
    (nothing,) = torch.autograd.grad(errors["icm_forward"].mean(), part._features.params, allow_unused=True)
    assert features.abs().sum() > 0
    assert nothing is None


def test_forward_error_by_plain_torch() -> None:
    part, steps = curiosity("forward"), random_window(1).steps()
    assert isinstance(part, ForwardCuriosity)
    w1, b1, w2, b2 = torch.split(part.networks()["curiosity_forward"].params.detach()[0], [16 * 7, 16, 5 * 16, 5])
    hidden = torch.relu(torch.cat((steps.features, steps.action), 1) @ w1.view(16, 7).T + b1)
    predicted = hidden @ w2.view(5, 16).T + b2
    torch.testing.assert_close(part.errors(steps)[part.bonus_error].detach(), ((predicted - steps.next_features) ** 2).sum(1) / 2)


def test_inverse_error_of_discrete_actions_falls_to_zero() -> None:
    """Each action moves the state to a place of its own, so the inverse model learns to name it."""
    chosen = torch.randint(3, (64, 1), generator=seeded())
    features = torch.stack((torch.zeros(64, 2), torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])[chosen[:, 0]]), 1)
    part = curiosity("inverse", 2, 3, (3,))
    assert isinstance(part, InverseCuriosity)
    given = window(features, torch.eye(3)[chosen], (3,))
    losses = [part.update(given)["curiosity_inverse_loss"].item() for _ in range(400)]
    assert losses[0] == pytest.approx(np.log(3), abs=0.3)
    assert losses[-1] < 0.05


def moved(generator: torch.Generator, noise: float) -> Window:
    """A position that the action moves, and beside it a number that nothing explains."""
    start, action = torch.rand(128, 1, 1, generator=generator) * 2 - 1, torch.rand(128, 1, 1, generator=generator) * 2 - 1
    position = torch.cat((start, start + action), 1)
    return window(torch.cat((position, noise * torch.randn(128, 2, 1, generator=generator)), -1), action)


def unexplained(part: Bonus, error: str, space: Callable[[Tensor], Tensor]) -> float:
    """Share of the variance of the predicted features that the error is left with, after training."""
    generator = seeded(1)
    for _ in range(400):
        part.update(moved(generator, 1.0))
    steps = moved(seeded(2), 1.0).steps()
    return (2 * part.errors(steps)[error].mean() / space(steps.next_features).var(0).sum()).item()


def test_icm_ignores_noise_that_actions_do_not_influence_and_forward_does_not() -> None:
    """The noise has 3/5 of the variance of the forward variant's features: 1 of 1 + 2/3."""
    settings = {"hidden": [32], "feature_size": 2, "lr": 5e-3}
    icm, forward = curiosity("icm", 2, 1, **settings), curiosity("forward", 2, 1, **settings)
    assert unexplained(icm, "icm_forward", lambda x: apply(icm.networks()["icm_features"], x)) < 0.05
    assert unexplained(forward, "curiosity_forward", lambda x: x) > 0.5


def test_rnd_pays_less_for_what_was_seen() -> None:
    part, known, new = rnd(), random_window(1), random_window(2)
    part.update(known)
    first = part.errors(known.steps())["rnd"].mean().item()
    for _ in range(500):
        part.update(known)
    assert part.errors(known.steps())["rnd"].mean().item() < 0.02 * first
    assert part.bonus(known).mean() < 0.1 * part.bonus(new).mean()


def test_the_random_network_never_changes_and_is_saved() -> None:
    part = rnd()
    target = part.networks()["rnd"].target.clone()
    assert not torch.equal(target, part.networks()["rnd"].params.detach())
    for seed in range(5):
        part.update(random_window(seed))
    assert torch.equal(part.networks()["rnd"].target, target)
    other = make_rnd(RNDConfig(kind="reward", **SMALL), FEATURES, ACTIONS, (), 8, CPU)
    assert other is not None
    assert not torch.equal(other.networks()["rnd"].target, target)
    other.load_state_dict(part.state_dict())
    assert torch.equal(other.networks()["rnd"].target, target)


def test_rnd_inputs_are_scaled_by_hand() -> None:
    """Mean 2 and deviation 2 of the inputs 0 and 4; far away is five deviations."""
    part = rnd(1, 1)
    part.update(window(torch.tensor([[[0.0], [4.0], [7.0]]]), torch.tensor([[[0.0], [4.0]]])))
    assert part._inputs.mean.tolist() == [2.0, 2.0]
    assert part._std.tolist() == [2.0, 2.0]
    network = part.networks()["rnd"]
    for raw, scaled in ((4.0, 1.0), (2.0, 0.0), (100.0, 5.0)):
        x = torch.full((1, 2), scaled)
        expected = (apply(network, x) - apply(network, x, target=True)).square().sum().item()
        assert part.score(torch.tensor([[raw]]), torch.tensor([[raw]])).item() == pytest.approx(expected)


def test_rnd_scores_actions_by_what_was_done() -> None:
    """Always +1 was done in this state: -1 has the larger score."""
    part = rnd(2, 1, kind="action")
    features = torch.randn(32, 2, 2, generator=seeded())
    for _ in range(300):
        part.update(window(features, torch.ones(32, 1, 1) + 0.1 * torch.randn(32, 1, 1, generator=seeded(1))))
    state = features[:1, 0].expand(2, -1)
    score = part.score(state, torch.tensor([[1.0], [-1.0]]))
    assert score.shape == (2,)
    assert score[1] > 5 * score[0]


def test_rnd_of_states_is_of_the_state_that_a_step_leads_to() -> None:
    part, given = rnd(input="state"), random_window(1)
    other_action = window(given.features, -given.action)
    assert torch.equal(part.bonus(given), part.bonus(other_action))
    torch.testing.assert_close(part.errors(given.steps())["rnd"].detach(), part.score(given.features[:, 1:].flatten(0, 1), given.action))


@pytest.mark.parametrize(
    ("value", "kind", "strength"),
    [("icm", "icm", 1.0), (None, "none", 1.0), (False, "none", 1.0), ({"kind": "forward", "strength": 0.5}, "forward", 0.5)],
)
def test_a_word_or_settings(value: Any, kind: str, strength: float) -> None:
    config = CuriosityConfig.model_validate(value)
    assert (config.kind, config.strength) == (kind, strength)
    assert CuriosityConfig.model_validate(config.model_dump()) == config


def test_none_is_nothing() -> None:
    assert make_curiosity(CuriosityConfig(), 3, 1, (), 1, CPU) is None
    assert make_rnd(RNDConfig.model_validate("none"), 3, 1, (), 1, CPU) is None


@pytest.mark.parametrize(
    ("model", "value", "message"),
    [
        (CuriosityConfig, "icn", "'none', 'icm', 'forward' or 'inverse'"),
        (CuriosityConfig, {"strength": 2.0}, "expected a kind besides strength"),
        (CuriosityConfig, {"kind": "icm", "strength": -1}, "greater than 0"),
        (RNDConfig, {"kind": "action", "input": "state"}, "Use input: state-action"),
    ],
)
def test_what_cannot_be_is_refused(model: type[CuriosityConfig] | type[RNDConfig], value: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        model.model_validate(value)


def test_bonus_on_the_shape_of_rewards() -> None:
    part, given = curiosity("icm"), random_window(1, size=3, length=2)
    found: Tensor = part.bonus(given)
    assert found.shape == given.reward.shape
    assert found.dtype == torch.float32


@pytest.mark.parametrize("kind", BONUSES)
def test_half_precision_of_products_leaves_bonuses_in_single_precision(kind: str) -> None:
    part, given = BONUSES[kind](), random_window(1)
    with torch.autocast("cpu", torch.bfloat16):
        losses = part.update(given)
        found = part.bonus(given)
    assert all(torch.isfinite(loss) for loss in losses.values())
    assert found.dtype == torch.float32
    assert torch.isfinite(found).all()
