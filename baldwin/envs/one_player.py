"""A Gymnasium environment as a world of one player."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from baldwin.envs.asynchronous import Match, Player, Seat, SimpleMatch, World, find_players
from baldwin.observations import ACTION_MASK

PLAYER = "player"


class GymnasiumWorld(World):
    """One player. `rewards`: names of the components of a vector reward, as mo-gymnasium's environments give it."""

    def __init__(self, env: gym.Env[Any, Any], rewards: Sequence[str] = ("reward",)) -> None:
        self.env = env
        self.players = [Player(PLAYER, env.observation_space, env.action_space, tuple(rewards))]

    def reset(self, seed: int, players: Sequence[str]) -> Match:
        """Begin an episode. Without the player there is nobody to act, and nothing happens."""
        seats = [Seat(player.name, len(player.rewards)) for player in find_players(self, players)]
        observation, info = self.env.reset(seed=seed)
        return SimpleMatch(seats, [self._tick(seat, observation, info) for seat in seats])

    def close(self) -> None:
        """Close the Gymnasium environment, which no match may use any more."""
        self.env.close()

    def render(self) -> NDArray[np.uint8] | None:
        """The picture that the environment draws, RGB [height, width, 3]."""
        drawn: Any = self.env.render()
        return drawn if isinstance(drawn, np.ndarray) else None

    async def _tick(self, seat: Seat, observation: Any, info: dict[str, Any]) -> None:
        over, total = False, np.zeros(len(self.players[0].rewards))
        seat.show(observation, info.get(ACTION_MASK), info=info)
        while not over:
            observation, reward, terminated, truncated, info = self.env.step(await seat.action())
            total = total + np.asarray(reward, np.float64)
            over = bool(terminated or truncated)
            seat.add(reward, info.get("elapsed", 1))
            if over:
                seat.finish(score=float(total.sum()), objectives=dict(zip(self.players[0].rewards, total.tolist(), strict=True)))
            seat.show(observation, info.get(ACTION_MASK), terminated=bool(terminated), truncated=bool(truncated), info=info)
