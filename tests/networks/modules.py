"""Modules as users write them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Patches(nn.Module):
    """An encoder."""

    def __init__(self, shape: tuple[int, ...], n_outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(shape[0], 4, 8, 8)
        self.out = nn.Linear(4 * (shape[1] // 8) * (shape[2] // 8), n_outputs)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.out(torch.relu(self.conv(x)).flatten(1)))


class Average(nn.Module):
    """A memory: a moving average."""

    def __init__(self, n_inputs: int, n_outputs: int) -> None:
        super().__init__()
        self.state_size = n_outputs
        self.inner = nn.Linear(n_inputs, n_outputs)

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = 0.9 * state + 0.1 * self.inner(x)
        return torch.tanh(state), state


class Forgets(nn.Linear):
    """No memory, though it is used as one."""


class Remembers(Average):
    """A memory, used as an encoder."""

    def __init__(self, shape: tuple[int, ...], n_outputs: int) -> None:
        super().__init__(shape[0], n_outputs)


class WholePolicy(nn.Module):
    """Everything, with a memory."""

    def __init__(self, shapes: dict[str, tuple[int, ...]], n_outputs: int, units: int = 6) -> None:
        super().__init__()
        self.state_size = units
        self.eye = Patches(shapes["lidar"], units)
        self.body = nn.Linear(shapes["joints"][0] + shapes["level"][0], units)
        self.cell = nn.GRUCell(2 * units, units)
        self.out = nn.Linear(units, n_outputs)

    def forward(self, obs: dict[str, Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
        seen = torch.cat([self.eye(obs["lidar"]), self.body(torch.cat([obs["joints"], obs["level"]], -1))], -1)
        state = self.cell(seen, state)
        return self.out(state), state
