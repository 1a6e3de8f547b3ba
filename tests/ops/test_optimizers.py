import numpy as np
import pytest
import torch

from baldwin.ops.optimizers import Knobs, adam, clipup, norm, sgd

GRADS = [np.array([1.0, -2.0]), np.array([0.5, 0.0]), np.array([-3.0, 4.0])]


def test_plain_sgd() -> None:
    step, memory = sgd(np.array([1.0, -2.0]), {}, 0.1, Knobs(momentum=0.0))
    assert step.tolist() == pytest.approx([0.1, -0.2])
    assert memory == {}


def test_momentum_by_hand() -> None:
    # v: [1, -2] -> [1.4, -1.8] -> [-1.74, 2.38]
    memory: dict[str, object] = {}
    for grad in GRADS:
        step, memory = sgd(grad, memory, 1.0, Knobs(momentum=0.9))
    assert step.tolist() == pytest.approx([0.9 * 1.4 - 3, 0.9 * -1.8 + 4])


def test_adam_is_torch_adam() -> None:
    theta = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([theta], lr=0.1, betas=(0.9, 0.999), eps=1e-8)
    ours, memory = np.zeros(2), {}
    for grad in GRADS:
        theta.grad = torch.from_numpy(-grad)
        optimizer.step()
        step, memory = adam(grad, memory, 0.1, Knobs())
        ours += step
    assert ours == pytest.approx(theta.detach().numpy(), rel=1e-12)


def test_first_adam_step_is_the_sign() -> None:
    step, _ = adam(np.array([1e-3, -50.0]), {}, 0.01, Knobs())
    assert step.tolist() == pytest.approx([0.01, -0.01], rel=1e-4)


def test_clipup_by_hand() -> None:
    # |g| = 5: v1 = 0.1 * [0.6, 0.8]; the second adds 0.9 v1 and has length 0.19, below 0.2; the third is cut to 0.2
    knobs, grad = Knobs(momentum=0.9, max_speed=0.2), np.array([3.0, 4.0])
    step, memory = clipup(grad, {}, 0.1, knobs)
    assert step.tolist() == pytest.approx([0.06, 0.08])
    step, memory = clipup(grad, memory, 0.1, knobs)
    assert step.tolist() == pytest.approx([0.6 * 0.19, 0.8 * 0.19])
    step, _ = clipup(grad, memory, 0.1, knobs)
    assert norm(step) == pytest.approx(0.2)


def test_clipup_limits_speed_to_twice_lr_by_default() -> None:
    memory: dict[str, object] = {}
    for _ in range(50):
        step, memory = clipup(np.array([1.0, 1.0]), memory, 0.1, Knobs())
    assert norm(step) == pytest.approx(0.2)


def test_clipup_of_no_gradient_is_finite() -> None:
    step, _ = clipup(np.zeros(2), {}, 0.1, Knobs())
    assert step.tolist() == [0, 0]
