"""The prediction model: losses against torch.distributions, what it learns, and what the encoder may not see."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from pydantic import BaseModel, ValidationError
from torch.distributions import Normal, kl_divergence

from baldwin.learners import SACConfig
from baldwin.learners.auxiliary import apply, minimize
from baldwin.learners.prediction import Prediction, PredictionConfig, PredictionSwitch
from baldwin.learners.window_learner import WindowLearner
from baldwin.observations import ObservationSpec, describe_observations, vector_spec
from baldwin.types import flatten_tree, unflatten_tree
from tests.learners.tools import policy
from tests.learners.windows import CPU, assert_same_state, random_window, seeded, shorter, window, with_padding

FEATURES, ACTIONS = 5, 2


def make(obs: ObservationSpec | None = None, seed: int = 7, unseen: tuple[str, ...] = (), **settings: Any) -> Prediction:
    config = PredictionConfig(**({"hidden": [16]} | settings))
    return Prediction(config, obs or vector_spec(FEATURES), FEATURES, ACTIONS, seed, CPU, unseen)


def box(*shape: int) -> spaces.Box:
    return spaces.Box(-np.inf, np.inf, shape, np.float32)


def sensors(**parts: gym.Space[Any]) -> ObservationSpec:
    return describe_observations(spaces.Dict(parts), "a test")


def test_losses_are_those_of_torch() -> None:
    part, given = make(weight=0.5), random_window(1, target_features=random_window(2).features)
    steps = given.steps()
    out = apply(part.networks()["prediction_transition"], steps.features, steps.action)
    predicted = Normal(out[:, :FEATURES], out[:, FEATURES:].exp().clamp(0.1, 1.0))
    target = given.target_features[:, 1:].flatten(0, 1)
    transition = -predicted.log_prob(target).mean() + 0.8 * kl_divergence(predicted, Normal(0.0, 1.0)).mean()
    reward = (apply(part.networks()["prediction_reward"], steps.features, steps.action)[:, 0] - given.reward.flatten()).square().mean()
    decoded = (
        (apply(part.networks()["prediction_decoder"], given.features.flatten(0, 1)) - given.obs["vector"].flatten(0, 1)).square().mean()
    )
    found = part.losses(given)
    torch.testing.assert_close(found["prediction_transition"], 0.5 * transition)
    torch.testing.assert_close(found["prediction_reward"], 0.5 * reward)
    torch.testing.assert_close(found["prediction_decoder"], 0.5 * decoded)
    torch.testing.assert_close(part.loss(given), 0.5 * (transition + reward + decoded))


@pytest.mark.parametrize("extra", [True, False])
def test_the_transition_is_told_what_the_policy_does_not_see(extra: bool) -> None:
    """The next features are a hidden wind alone: the transition knows it only if the wind feeds it. Padding is not read."""
    spec = sensors(seen=box(FEATURES), wind=box(FEATURES))
    generator = seeded()
    wind, features = torch.randn(64, 2, FEATURES, generator=generator), torch.randn(64, 2, FEATURES, generator=generator)
    features[:, 1] = wind[:, 0]
    vector = torch.empty(64, 2, 2 * FEATURES)
    vector[..., spec.vectors["seen"]], vector[..., spec.vectors["wind"]] = features, wind
    given = window(features, torch.zeros(64, 1, ACTIONS), obs={"vector": vector})
    part = make(spec, unseen=("wind",), extra=extra, lr=1e-2, transition_kl=0.0, hidden=[32])
    for _ in range(300):
        minimize(part.losses(given)["prediction_transition"], [part.networks()["prediction_transition"]])
    assert (part.losses(given)["prediction_transition"] < -0.2) == extra  # -1.38 with the smallest deviation, 0.1, and no error


def test_a_learner_hides_a_sensor_from_its_encoder_and_not_from_its_transition() -> None:
    spec = sensors(seen=box(3), wind=box(2))
    chosen = {"encoders": {"seen": {"kind": "mlp", "hidden": [4]}, "wind": {"kind": "none"}}, "head": "gaussian"}
    own = WindowLearner(policy(**chosen), SACConfig(prediction=True), obs=spec, n_actions=2, discrete=False, seed=1)
    inputs = own.networks()["prediction_transition"].shapes[0][1]
    assert inputs == 4 + 2 + 2


def test_it_learns_features_rewards_and_observations() -> None:
    """The next state is the state plus the action, rewards are the first action, and features are the observation twice as large."""
    generator = seeded()
    obs = torch.randn(64, 2, FEATURES, generator=generator)
    action = torch.rand(64, 1, ACTIONS, generator=generator) * 2 - 1
    obs[:, 1] = obs[:, 0]
    obs[:, 1, :ACTIONS] += action[:, 0]
    given = window(2 * obs, action, obs={"vector": obs}, reward=action[..., 0])
    part = make(lr=1e-2, transition_kl=0.0)
    first = {name: loss.item() for name, loss in part.losses(given).items()}
    for _ in range(400):
        minimize(part.loss(given), part.networks().values())
    last = {name: loss.item() for name, loss in part.losses(given).items()}
    assert last["prediction_reward"] < 0.05 * first["prediction_reward"]
    assert last["prediction_decoder"] < 0.05 * first["prediction_decoder"]
    assert last["prediction_transition"] < -0.5  # -1.38 with the smallest deviation, 0.1, and no error


def test_the_encoder_is_trained_by_every_loss_and_the_slow_one_by_none() -> None:
    given, target = random_window(1), random_window(2).features.requires_grad_()
    for name in make().networks():
        features = random_window(1).features.requires_grad_()
        own = window(features, given.action, reward=given.reward, target_features=target)
        make().losses(own)[name].backward()  # type: ignore[no-untyped-call]
        assert features.grad is not None
        assert features.grad.abs().sum() > 0
    assert target.grad is None


def test_padding_is_not_read() -> None:
    whole, part = random_window(1), make()
    padded, short = part.losses(with_padding(whole)), part.losses(shorter(whole))
    assert all(torch.equal(padded[name], short[name]) for name in short)
    none = part.losses(random_window(1, valid=torch.zeros(6, 4, dtype=torch.bool)))
    assert all(loss.item() == 0 for loss in none.values())


def test_small_images_are_decoded_scaled_and_flat() -> None:
    spec = sensors(arm=box(3), camera=spaces.Box(0, 255, (1, 5, 5), np.uint8))
    pixels = torch.randint(256, (6, 5, 1, 5, 5), generator=seeded(), dtype=torch.uint8)
    given = random_window(1, obs={"vector": torch.randn(6, 5, 3, generator=seeded()), "camera": pixels})
    part = make(spec, images=True)
    target = torch.cat((given.obs["vector"].flatten(0, 1), pixels.flatten(0, 1).flatten(1) / 255), 1)
    decoded = apply(part.networks()["prediction_decoder"], given.features.flatten(0, 1))
    assert decoded.shape == (30, 28)
    torch.testing.assert_close(part.losses(given)["prediction_decoder"], (decoded - target).square().mean())
    assert make(spec).networks()["prediction_decoder"].vectors().size < part.networks()["prediction_decoder"].vectors().size


def test_images_alone_have_no_decoder_unless_asked_for() -> None:
    spec = sensors(camera=spaces.Box(0, 255, (1, 5, 5), np.uint8))
    assert list(make(spec).networks()) == ["prediction_transition", "prediction_reward"]
    assert "prediction_decoder" in make(spec, images=True).networks()


def test_a_saved_model_goes_on_exactly() -> None:
    part, copy = make(), make(seed=8)
    minimize(part.loss(random_window(1)), part.networks().values())
    copy.load_state_dict(unflatten_tree(flatten_tree(part.state_dict())))
    for model in (part, copy):
        minimize(model.loss(random_window(2)), model.networks().values())
    assert_same_state(part.state_dict(), copy.state_dict())


class Section(BaseModel):
    prediction: PredictionSwitch = None


def test_on_off_or_settings() -> None:
    assert Section.model_validate({"prediction": True}).prediction == PredictionConfig()
    assert Section.model_validate({"prediction": False}).prediction is None
    found = Section.model_validate({"prediction": {"transition_kl": 0.1}})
    assert found.prediction == PredictionConfig(transition_kl=0.1)
    assert Section.model_validate(found.model_dump()) == found
    with pytest.raises(ValidationError, match="expected true, false, or settings"):
        Section.model_validate({"prediction": "icm"})
