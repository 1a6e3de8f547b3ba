import numpy as np
import pytest
import torch

from baldwin.ops.optimizers import OptimizerConfig, adam, clipup, norm, sgd

GRADS = [np.array([1.0, -2.0]), np.array([0.5, 0.0]), np.array([-3.0, 4.0])]


def test_plain_sgd() -> None:
    step, state = sgd(np.array([1.0, -2.0]), {}, 0.1, OptimizerConfig(momentum=0.0))
    assert step.tolist() == pytest.approx([0.1, -0.2])
    assert state == {}


def test_momentum_by_hand() -> None:
    # v: [1, -2] -> [1.4, -1.8] -> [-1.74, 2.38]
    state: dict[str, object] = {}
    for grad in GRADS:
        step, state = sgd(grad, state, 1.0, OptimizerConfig(momentum=0.9))
    assert step.tolist() == pytest.approx([0.9 * 1.4 - 3, 0.9 * -1.8 + 4])


def test_adam_is_torch_adam() -> None:
    theta = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([theta], lr=0.1, betas=(0.9, 0.999), eps=1e-8)
    ours, state = np.zeros(2), {}
    for grad in GRADS:
        theta.grad = torch.from_numpy(-grad)
        optimizer.step()
        step, state = adam(grad, state, 0.1, OptimizerConfig())
        ours += step
    assert ours == pytest.approx(theta.detach().numpy(), rel=1e-12)


def test_first_adam_step_is_the_sign() -> None:
    step, _ = adam(np.array([1e-3, -50.0]), {}, 0.01, OptimizerConfig())
    assert step.tolist() == pytest.approx([0.01, -0.01], rel=1e-4)


def test_clipup_by_hand() -> None:
    # |g| = 5: v1 = 0.1 * [0.6, 0.8]; the second adds 0.9 v1 and has length 0.19, below 0.2; the third is cut to 0.2
    config, grad = OptimizerConfig(momentum=0.9, max_speed=0.2), np.array([3.0, 4.0])
    step, state = clipup(grad, {}, 0.1, config)
    assert step.tolist() == pytest.approx([0.06, 0.08])
    step, state = clipup(grad, state, 0.1, config)
    assert step.tolist() == pytest.approx([0.6 * 0.19, 0.8 * 0.19])
    step, _ = clipup(grad, state, 0.1, config)
    assert norm(step) == pytest.approx(0.2)


def test_clipup_limits_speed_to_twice_lr_by_default() -> None:
    state: dict[str, object] = {}
    for _ in range(50):
        step, state = clipup(np.array([1.0, 1.0]), state, 0.1, OptimizerConfig())
    assert norm(step) == pytest.approx(0.2)


def test_clipup_of_no_gradient_is_finite() -> None:
    step, _ = clipup(np.zeros(2), {}, 0.1, OptimizerConfig())
    assert step.tolist() == [0, 0]
