"""A match as a Gymnasium environment: one player learns, the others are played by scripts or by functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from baldwin.envs.asynchronous import Step, World, check_alike, find_players
from baldwin.envs.matches import MAX_DECISIONS, Matches, Turn, no_turn
from baldwin.envs.vector_env import DEADLINE
from baldwin.errors import EnvironmentFailure
from baldwin.observations import ACTION_MASK
from baldwin.ops.seeds import mix

Choose = Callable[[Any, NDArray[np.bool_] | None], Any]
"""(observation, legal choices) -> action."""
ANY = "any"


class MatchEnv(gym.Env[Any, Any]):
    """One player of a world.

    `info` has `elapsed`, the frames of a step; where there are any, `action_mask` and the components of the reward by name; and at the end
    `result`.
    """

    def __init__(
        self,
        world: World,
        player: str = ANY,
        opponents: Mapping[str, Choose] | None = None,
        deadline: float = DEADLINE,
        render_mode: str | None = None,
    ) -> None:
        """`player`: a name, or any: one of those that nobody else plays, drawn for each match. `opponents`: who plays others, by name; the
        world's own scripts play the rest."""
        self.world, self._opponents = world, dict(opponents or {})
        find_players(world, [*self._opponents, *([] if player == ANY else [player])])
        if player == ANY:
            check_alike(world.players, "the player that learns")
        self._names = [p.name for p in world.players if p.name not in self._opponents] if player == ANY else [player]
        self._player = next(p for p in world.players if p.name == self._names[0])
        self.observation_space, self.action_space = self._player.observation_space, self._player.action_space
        self.render_mode = render_mode
        self.metadata = {"render_modes": ["rgb_array"]}
        self._matches = Matches(deadline)
        self._own: Turn | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin a match and go on to the player's first turn.

        Raises:
            EnvironmentFailure: the world or another player failed, or the match ended before.
        """
        super().reset(seed=seed)
        number = int(self.np_random.integers(2**31)) if seed is None else seed
        self._own = Turn(0, self._names[mix(number, 1) % len(self._names)])
        self._matches.begin(0, self.world, number, [self._own.player, *self._opponents])
        self._go_on({}, self._own)
        return self._observation(self._own), self._info(self._own)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Act, and go on until the player decides again.

        Raises:
            EnvironmentFailure: the world or another player failed, or nothing comes any more.
        """
        if self._own is None:
            raise EnvironmentFailure("step() before reset()")
        step = self._go_on({self._own: action}, self._own)
        info = self._info(self._own) | dict(step.info) | {"elapsed": step.elapsed}
        if len(self._player.rewards) > 1:
            info["reward"] = dict(zip(self._player.rewards, step.reward.tolist(), strict=True))
        if step.over:
            info["result"] = self._matches.result(self._own)
        return self._observation(self._own), float(step.reward.sum()), step.terminated, step.truncated, info

    def render(self) -> NDArray[np.uint8] | None:
        """A picture, where the world draws."""
        return self.world.render() if self.render_mode else None

    def close(self) -> None:
        """Give up the match and close the world."""
        self._matches.close()
        self.world.close()

    def _go_on(self, actions: Mapping[Turn, Any], own: Turn) -> Step:
        """Let the others decide until something came for the player."""
        for _ in range(MAX_DECISIONS):
            found = self._matches.act(actions, [own])
            if 0 in self._matches.failures:
                raise EnvironmentFailure(self._matches.failures[0])
            if own in found:
                return found[own]
            actions = {turn: self._choose(turn) for turn in self._matches.waiting if turn != own}
        raise EnvironmentFailure(no_turn(own.player))

    def _choose(self, turn: Turn) -> Any:
        controller = self._matches.controller(turn)
        return self._opponents[turn.player](controller.observation, controller.legal)

    def _observation(self, turn: Turn) -> Any:
        return self._matches.controller(turn).observation

    def _info(self, turn: Turn) -> dict[str, Any]:
        legal = self._matches.controller(turn).legal
        return {} if legal is None else {ACTION_MASK: legal}


def make_player(
    make_world: Callable[..., World],
    player: str = ANY,
    render_mode: str | None = None,
    opponents: Mapping[str, Choose] | None = None,
    **kwargs: Any,
) -> MatchEnv:
    """One player of a new world, which gets the rest of the keyword arguments."""
    return MatchEnv(make_world(**kwargs), player, opponents, render_mode=render_mode)
