"""Windows of experience as the learners' parts take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from baldwin.learners.auxiliary import Window

CPU = torch.device("cpu")


def seeded(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def window(features: Tensor, action: Tensor, discrete: tuple[int, ...] = (), **others: Any) -> Window:
    """Steps that are all real, unless `others` says more. Observations are the features."""
    steps = action.shape[:2]
    settings: dict[str, Any] = {
        "obs": {"vector": features.detach()},
        "target_features": features.detach(),
        "reward": torch.zeros(steps),
        "terminated": torch.zeros(steps, dtype=torch.bool),
        "valid": torch.ones(steps, dtype=torch.bool),
    }
    return Window(features=features, action=action, discrete=discrete, **(settings | others))


def random_window(seed: int = 0, size: int = 6, length: int = 4, n_features: int = 5, n_actions: int = 2, **others: Any) -> Window:
    generator = seeded(seed)
    features = torch.randn(size, length + 1, n_features, generator=generator)
    action = torch.rand(size, length, n_actions, generator=generator) * 2 - 1
    reward = torch.randn(size, length, generator=generator)
    return window(features, action, **({"reward": reward} | others))


def with_padding(whole: Window, fill: float = torch.nan) -> Window:
    """The same without the last step of every row, whose numbers are replaced."""
    valid = whole.valid.clone()
    valid[:, -1] = False
    features, target = whole.features.detach().clone(), whole.target_features.clone()
    action, reward, vector = whole.action.clone(), whole.reward.clone(), whole.obs["vector"].clone()
    for x in (features, target, action, reward, vector):
        x[:, -1] = fill
    return window(features, action, whole.discrete, target_features=target, reward=reward, valid=valid, obs={"vector": vector})


def shorter(whole: Window) -> Window:
    """The same without the last step."""
    return window(
        whole.features[:, :-1],
        whole.action[:, :-1],
        whole.discrete,
        target_features=whole.target_features[:, :-1],
        reward=whole.reward[:, :-1],
        obs={"vector": whole.obs["vector"][:, :-1]},
    )


def assert_same_state(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        if isinstance(value, Mapping):
            assert_same_state(value, other[name])
        else:
            np.testing.assert_array_equal(value, other[name])
