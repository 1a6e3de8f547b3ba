"""What exploration bonuses and representation losses have in common: windows of experience, and networks of their own."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from baldwin.networks import NetworkConfig, Obs, StackedNetwork, make_network
from baldwin.observations import VECTOR, vector_spec
from baldwin.ops import seeds
from baldwin.ops.moments import Moments
from baldwin.types import State

STD_FLOOR = 1e-4  # of errors, as of scaled rewards
MAX_BONUS = 10.0  # standard deviations, as VecNormalize of Stable-Baselines3 clips rewards: the first errors may be almost equal


class WindowSteps(NamedTuple):
    """The real steps of a window, M in all."""

    features: Tensor  # [M, F]
    action: Tensor  # [M, A]
    reward: Tensor  # [M]
    next_features: Tensor  # [M, F]
    next_target_features: Tensor  # [M, F], no gradient


@dataclass(frozen=True)
class Window:
    """T steps of B episodes, none of which crosses the end of an episode. Padding may hold anything: it is never read."""

    obs: Obs  # [B, T + 1, ...], as networks take them
    features: Tensor  # [B, T + 1, F], of the encoder (and memory); requires a gradient where a loss is to train them
    target_features: Tensor  # [B, T + 1, F], of the slow encoder, no gradient
    action: Tensor  # [B, T, A], one-hot branches first, then continuous ones in [-1, 1]
    discrete: tuple[int, ...]  # sizes of the one-hot branches
    reward: Tensor  # [B, T]
    terminated: Tensor  # [B, T], bool
    valid: Tensor  # [B, T], bool: step t is real, so that observations t and t + 1 are

    def steps(self) -> WindowSteps:
        """The real steps, in the order of `valid`."""
        real = self.valid
        features, following, slow = self.features[:, :-1][real], self.features[:, 1:][real], self.target_features[:, 1:][real]
        return WindowSteps(features, self.action[real], self.reward[real], following, slow)

    def real_obs(self) -> Tensor:
        """Which observations are real, [B, T + 1]: those before and after real steps."""
        never = self.valid.new_zeros(len(self.valid), 1)
        return torch.cat((self.valid, never), 1) | torch.cat((never, self.valid), 1)

    def detach(self) -> Window:
        """These steps cut off from the graph: losses do not reach the encoder."""
        return replace(self, features=self.features.detach())


class Bonus(ABC):
    """An exploration bonus: an error of its own networks, which is large where little is known.

    The error is divided by the standard deviation of all errors that `update` has seen, so the bonus falls as the networks learn. `bonus`
    is a pure function of the state, which only `update` changes.
    """

    bonus_error: ClassVar[str]  # which of the errors is the bonus

    def __init__(self, strength: float, networks: dict[str, StackedNetwork]) -> None:
        self._strength, self._networks = strength, networks
        self._moments = Moments.empty(1)

    @abstractmethod
    def errors(self, steps: WindowSteps) -> dict[str, Tensor]:
        """Errors [M] by name; the networks minimise the means of all of them."""

    @torch.no_grad()
    def bonus(self, window: Window) -> Tensor:
        """Bonuses [B, T], to be added to the rewards of learning; zero where a step is not real."""
        error = self.errors(window.detach().steps())[self.bonus_error]
        found = torch.zeros(window.valid.shape, device=error.device)
        found[window.valid] = self._strength * (error / float(self._moments.std(STD_FLOOR)[0])).clamp(max=MAX_BONUS)
        return found

    def update(self, window: Window) -> dict[str, Tensor]:
        """One Adam step of the networks, never of the encoder, and newer statistics; the losses, or nothing where no step is real."""
        steps = window.detach().steps()
        if not len(steps.reward):
            return {}
        errors = self.errors(steps)
        self._moments = self._moments.merge(Moments.of(errors[self.bonus_error].detach()[:, None].cpu().numpy()))
        losses = {f"{name}_loss": error.mean() for name, error in errors.items()}
        minimize(torch.stack(list(losses.values())).sum(), self._networks.values())
        return {name: loss.detach() for name, loss in losses.items()}

    def networks(self) -> dict[str, StackedNetwork]:
        """The networks that are trained."""
        return self._networks

    def state_dict(self) -> State:
        """Networks with their optimisers, and the statistics of errors."""
        return {"moments": self._moments.pack(), "networks": save_networks(self._networks)}

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        self._moments = Moments.unpack(state["moments"])
        load_networks(self._networks, state["networks"])


def make_mlp(
    name: str, n_inputs: int, n_outputs: int, hidden: Sequence[int], lr: float, seed: int, device: torch.device, **settings: Any
) -> StackedNetwork:
    """A perceptron with its optimiser; its parameters depend on the seed and on its name."""
    config = NetworkConfig(hidden=list(hidden), **({"activation": "relu", "init": "torch"} | settings))
    network = make_network(config, vector_spec(n_inputs), n_outputs)
    return StackedNetwork(network, network.init(seeds.mix(seed, zlib.crc32(name.encode())))[None], lr, device)


def apply(network: StackedNetwork, *inputs: Tensor, target: bool = False) -> Tensor:
    """Outputs [M, out] for inputs [M, ...] side by side, or those of the slow copy."""
    forward = network.target_forward if target else network
    return forward({VECTOR: torch.cat(inputs, -1)})[0].float()


def minimize(loss: Tensor, networks: Iterable[StackedNetwork]) -> None:
    """One Adam step of each network down the gradient of a loss of all of them."""
    together = list(networks)
    for network in together:
        network.params.grad = None
    loss.backward()  # type: ignore[no-untyped-call]
    for network in together:
        network.descend()


def save_networks(networks: Mapping[str, StackedNetwork]) -> State:
    """The states of networks by name."""
    return {name: network.state_dict() for name, network in networks.items()}


def load_networks(networks: Mapping[str, StackedNetwork], state: State) -> None:
    """Restore parameters, targets and optimisers from what `save_networks` returned."""
    for name, network in networks.items():
        network.load_state_dict(state[name])


def section_by_kind(data: Any) -> Any:
    """For validators: `curiosity: icm` is short for `curiosity: {kind: icm}`; null and false are none.

    Raises:
        ValueError: settings without a kind, which would have no effect.
    """
    if data is None or data is False:
        return {}
    if isinstance(data, Mapping) and data and "kind" not in data:
        raise ValueError(f"expected a kind besides {', '.join(map(str, data))}, as in {{kind: ..., {next(iter(data))}: ...}}")
    return {"kind": data} if isinstance(data, str) else data
