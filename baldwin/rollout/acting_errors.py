"""TD errors of a segment by the Q-network that acted in it, so that its transitions arrive with priorities (Ape-X, arXiv 1803.00933)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baldwin.networks import Forward, mask_logits
from baldwin.observations import ACTION_MASK
from baldwin.ops.traces import n_step_targets
from baldwin.rollout.collect_job import NEXT_OBS, OBS, Lookahead
from baldwin.rollout.segments import transitions
from baldwin.types import Arrays


class _Steps(NamedTuple):
    q: Tensor  # [1, T] of the actions
    value: Tensor  # [1, T + 1] of the best actions; that after each step is one further
    reward: Tensor  # [1, T]
    discount: Tensor  # [1, T], 0 after a termination
    going: Tensor  # [1, T], whether the step follows the one before in its episode


@torch.inference_mode()
def acting_errors(forward: Forward, arrays: Arrays, ahead: Lookahead) -> NDArray[np.float32]:
    """|Q(s, a) - y| [L, T] of a segment, as `collect` returns it; y is the n-step target by the same network, for online and target.

    `forward`: the Q-network that acted. Steps look ahead as far as their episode and the segment go.
    """
    found = []
    for rows in transitions(arrays):
        steps = _evaluate(forward, rows, ahead.gamma)
        y = n_step_targets(steps.reward, steps.discount, steps.value, steps.going, ahead.n_step)
        found.append((y - steps.q).abs()[0].numpy())
    return np.stack(found)


def _evaluate(forward: Forward, rows: Arrays, gamma: float) -> _Steps:
    (q, _), (following, mask) = (_q_values(forward, rows, prefix) for prefix in (OBS, NEXT_OBS))
    best = (following if mask is None else mask_logits(following, mask)).max(-1).values
    ended = torch.from_numpy(rows["terminated"] | rows["truncated"])
    frames = torch.from_numpy(np.asarray(rows.get("elapsed", np.ones(len(q))), np.float32))
    discount = gamma**frames * torch.from_numpy(~rows["terminated"]).float()
    value = torch.cat((torch.zeros(1), best))
    going = torch.cat((torch.ones(1, dtype=torch.bool), ~ended[:-1]))
    chosen = q.gather(-1, torch.from_numpy(rows["action"])[:, None]).squeeze(-1)
    return _Steps(*(x[None] for x in (chosen, value, torch.from_numpy(rows["reward"]), discount, going)))


def _q_values(forward: Forward, rows: Arrays, prefix: str) -> tuple[Tensor, Tensor | None]:
    """Q-values [T, A] of what is seen before or after the steps, and the mask of legal actions, if there is one."""
    obs = {name.removeprefix(prefix): torch.from_numpy(array) for name, array in rows.items() if name.startswith(prefix)}
    return forward(obs, torch.empty(len(rows["reward"]), 0))[0], obs.get(ACTION_MASK)
