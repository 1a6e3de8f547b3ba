"""The loss that A2C, PPO and IMPALA share: of the policy, of the values, and an entropy bonus.

loss = policy_loss(log pi(a|s)) + value_coef value_loss(V(s)) - entropy_coef mean H(pi(.|s))

Autograd differentiates it for any networks and actions. Most of the time of a small minibatch would be its bookkeeping, so that the
commonest case has its gradient in closed form: policy and values are two perceptrons of one shape, and the action is one Gaussian with
a spread of its own or one choice.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baldwin.networks import NumpyMLP
from baldwin.ops.policy_loss import LossAndGradient

Array = NDArray[np.float32]
PolicyLoss = Callable[[Array], LossAndGradient]
"""Log-probabilities [B] of the actions -> the loss, and its gradient [B]."""
REPORTED = ("policy_loss", "value_loss", "entropy")
LOG_2PI = math.log(2 * math.pi)


class LossParts(NamedTuple):
    """The parts of a minibatch's loss, and log-probabilities before its step."""

    policy_loss: float
    value_loss: float
    entropy: float
    log_prob: Array  # [B], before the step


class Weights(NamedTuple):
    """Coefficients of the parts of the loss."""

    value: float
    entropy: float


def combined_loss(
    policy_loss: PolicyLoss, log_prob: Tensor, value_loss: Tensor, entropy: Tensor, weights: Weights
) -> tuple[Tensor, LossParts]:
    """The loss of any networks and actions, for autograd."""
    before = log_prob.detach().numpy()
    policy, gradient = policy_loss(before)
    total = _KnownGradient.apply(log_prob, policy, torch.from_numpy(gradient))  # type: ignore[no-untyped-call]
    total = total + weights.value * value_loss - weights.entropy * entropy
    return total, LossParts(policy, float(value_loss.detach()), float(entropy.detach()), before)


class _KnownGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, value: float, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return torch.tensor(value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.saved_tensors[0] * grad, None, None


class Pair(NamedTuple):
    """Policy and values as two perceptrons of one shape. The arrays share the memory of the learner's parameters."""

    mlp: NumpyMLP
    values: NumpyMLP  # the second of them
    n_params: int  # of both
    log_std: Array  # [A] of a Gaussian; [0]: the action is one choice
    n_outputs: int  # of the policy; what else its network gives is padding
    width: int  # of the largest layer


def pair_gradient(
    policy_loss: PolicyLoss, pair: Pair, obs: Array, action: Array, target: Array, weights: Weights
) -> tuple[Array, LossParts]:
    """The gradient [D] of the loss, whose values have squared errors. `obs` [B, V], `action` [B, columns], `target` [B, C]."""
    out, inputs = pair.mlp.forward(obs)
    batch, n_values = target.shape
    gradient = np.empty(pair.n_params + len(pair.log_std), np.float32)
    to_out = np.zeros_like(out)
    error = out[1, :, :n_values] - target
    np.multiply(error, np.float32(2 * weights.value / batch), out=to_out[1, :, :n_values])
    to_policy, to_log_std = to_out[0, :, : pair.n_outputs], gradient[pair.n_params :]
    policy_out = out[0, :, : pair.n_outputs]
    if len(pair.log_std):
        policy, log_prob, entropy = _gaussian(policy_loss, policy_out, pair.log_std, action, to_policy, to_log_std)
        to_log_std -= np.float32(weights.entropy)  # d H / d log_std = 1
    else:
        policy, log_prob, entropy = _choice(policy_loss, policy_out, action, to_policy, weights.entropy)
    pair.mlp.backward(inputs, to_out, gradient[: pair.n_params].reshape(2, -1))
    error = error.ravel()
    return gradient, LossParts(policy, float(error @ error) / batch, entropy, log_prob)


def _gaussian(
    policy_loss: PolicyLoss, mean: Array, log_std: Array, action: Array, to_mean: Array, to_log_std: Array
) -> tuple[float, Array, float]:
    """Loss, log-probabilities and entropy; d log N / d mean = z / std and d log N / d log_std = z^2 - 1, with z = (a - mean) / std."""
    precision = np.exp(-log_std)
    z = (action - mean) * precision
    squared = z * z
    spread, size = float(log_std.sum()), len(log_std)
    log_prob = squared.sum(1)
    log_prob *= np.float32(-0.5)
    log_prob -= np.float32(spread + 0.5 * LOG_2PI * size)
    loss, gradient = policy_loss(log_prob)
    squared -= 1
    np.matmul(gradient, squared, out=to_log_std)
    z *= precision
    np.multiply(z, gradient[:, None], out=to_mean)
    return loss, log_prob, spread + (0.5 + 0.5 * LOG_2PI) * size


def _choice(policy_loss: PolicyLoss, logits: Array, action: Array, to_logits: Array, entropy_coef: float) -> tuple[float, Array, float]:
    """Loss, log-probabilities and entropy; d log p_a / d logit_j = [j = a] - p_j and d H / d logit_j = - p_j (log p_j + H)."""
    columns = np.ascontiguousarray(logits.T)  # [actions, B]: sums over the choices are fast along the batch
    columns -= columns.max(0)
    probs = np.exp(columns)
    total = probs.sum(0)
    probs /= total
    log_probs = np.subtract(columns, np.log(total), out=columns)
    rows, chosen = np.arange(len(logits)), action[:, 0].astype(np.int64)
    log_prob = log_probs[chosen, rows]
    loss, gradient = policy_loss(log_prob)
    entropy = -(probs * log_probs).sum(0)
    slope = probs * -gradient
    slope[chosen, rows] += gradient
    if entropy_coef:
        slope += probs * (log_probs + entropy) * np.float32(entropy_coef / len(logits))
    to_logits[:] = slope.T
    return loss, log_prob, float(entropy.mean())
