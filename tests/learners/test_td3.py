from __future__ import annotations

import torch

from baldwin.learners.td3 import smooth_target_action


def test_smoothing_cuts_the_noise_and_then_the_action() -> None:
    action = torch.tensor([[0.0, 0.9, -0.9, 0.5]])
    noise = torch.tensor([[1.0, 10.0, -10.0, -10.0]])
    torch.testing.assert_close(smooth_target_action(action, noise, 0.2, 0.5), torch.tensor([[0.2, 1.0, -1.0, 0.0]]))
