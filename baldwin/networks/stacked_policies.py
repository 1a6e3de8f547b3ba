"""The individuals of a block that are alive now, as rows of one matrix."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from baldwin.networks.network import Forward, Network
from baldwin.ops.noise import Noise
from baldwin.types import Perturbation, Trial


class StackedPolicies:
    """`width` networks at work, out of the members of a block, each with its memory: rows are replaced on refill and compacted on drop."""

    def __init__(self, bind: Callable[[Tensor], Forward], members: Tensor, width: int, state_size: int = 0) -> None:
        self._bind, self._members = bind, members
        self._rows = members[:width].clone()
        self._forward: Forward | None = None
        self._state = torch.zeros(len(self._rows), 1, state_size)

    @property
    def width(self) -> int:
        """Observations per call: one for each row of the stack."""
        return len(self._rows)

    def __call__(self, inputs: Mapping[str, Tensor], deciding: Tensor | None = None) -> Tensor:
        """Outputs [width, out] for one observation each, [width, ...]; memories move on by a step: all, or those of `deciding` [width]."""
        if self._forward is None:
            self._forward = self._bind(self._rows)
        out, after = self._forward({key: x.unsqueeze(1) for key, x in inputs.items()}, self._state)
        self._state = after if deciding is None else torch.where(deciding[:, None, None], after, self._state)
        return out.squeeze(1)

    def load(self, position: int, member: int) -> None:
        """Let this member take that row."""
        self._rows[position] = self._members[member]
        self._forward = None

    def reset(self, position: int) -> None:
        """Forget: an episode begins in this row."""
        self._state[position] = 0.0

    def keep(self, positions: Tensor) -> None:
        """Go on with these rows only."""
        self._rows, self._state = self._rows[positions], self._state[positions]
        self._forward = None


def stack_trials(policy: Network, trials: Sequence[Trial], center: Tensor, width: int) -> StackedPolicies:
    """Rebuild the trials' parameters and stack them."""
    bind = partial(policy.bind, fixed=True)
    recipes = [t.params for t in trials if isinstance(t.params, Perturbation)]
    if len(recipes) < len(trials):
        members = torch.from_numpy(np.stack([np.asarray(t.params, np.float32) for t in trials]))
        return StackedPolicies(bind, members, width, policy.state_size)
    noise = recipes[0].noise
    rows = torch.from_numpy(np.stack(_draws(recipes)))
    scale = torch.tensor([r.scale for r in recipes], dtype=torch.float32).unsqueeze(1)
    if noise.rank:
        factors = _scaled_factors(noise, rows, scale)
        return StackedPolicies(lambda r: policy.bind_low_rank(center, noise, r), factors, width, policy.state_size)
    return StackedPolicies(bind, torch.addcmul(center, rows, scale), width, policy.state_size)


def _draws(recipes: list[Perturbation]) -> list[np.ndarray[tuple[int], np.dtype[np.float32]]]:
    """Raw normals of each; the two of a pair are neighbours and share one draw, and the center needs none."""
    out: list[np.ndarray[tuple[int], np.dtype[np.float32]]] = []
    last: tuple[int, int] | None = None
    for r in recipes:
        if r.scale == 0.0:
            out.append(np.zeros(r.noise.size, np.float32))
            last = None
            continue
        at = (r.generation, r.pair)
        out.append(out[-1] if at == last else r.noise.draw(*at))
        last = at
    return out


def _scaled_factors(noise: Noise, rows: Tensor, scale: Tensor) -> Tensor:
    """Put sign, sigma and 1/sqrt(r) into one factor of each product, and sign and sigma into the full-rank parts."""
    rows = rows.clone()
    for shape, _, normals in noise.slices():
        part = rows[:, normals]
        if noise.low_rank(shape):
            part[:, : shape[0] * noise.rank] *= scale / math.sqrt(noise.rank)
        else:
            part *= scale
    return rows
