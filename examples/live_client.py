"""A live world that connects to a worker: it offers matches, one more whenever one has begun. `live_client.mjs` is the same in JavaScript.

baldwin train --algo ppo --env live:listen://127.0.0.1:8765 -m executor.workers=1 algorithm.actor_lag=1 &
python -m examples.live_client ws://127.0.0.1:8765
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from baldwin.envs.asynchronous import Player
from baldwin.envs.live_server import Frame, LiveServer

BALLS, FALL, MOVE, REACH = 10, 0.02, 0.03, 0.1  # of a match; by which ball and catcher move in a frame; how far the catcher reaches


class Catch:
    """Balls fall, and a catcher at the bottom moves left (0), not at all (1) or right (2): +1 for a ball that is caught, -1 for others."""

    def __init__(self) -> None:
        self.players = [Player("catcher", spaces.Box(0.0, 1.0, (3,), np.float32), spaces.Discrete(3))]

    def begin(self, seed: int) -> None:
        """The first ball."""
        self._rng = np.random.default_rng(seed)
        self._balls, self._caught, self._catcher, self._x, self._y = 0, 0, 0.5, self._rng.random(), 1.0

    def frame(self, actions: Mapping[str, Any]) -> Frame:
        """Whoever has not decided does not move."""
        action = actions.get("catcher")
        self._catcher = min(1.0, max(0.0, self._catcher + MOVE * (0 if action is None else action - 1)))
        self._y -= FALL
        if self._y > 0:
            return Frame({}, False)
        caught = abs(self._x - self._catcher) < REACH
        self._balls, self._caught = self._balls + 1, self._caught + caught
        self._x, self._y = self._rng.random(), 1.0
        return Frame({"catcher": 1.0 if caught else -1.0}, self._balls == BALLS)

    def observe(self, player: str) -> Any:
        """Where the catcher and the ball are."""
        return self._catcher, self._x, max(0.0, self._y)

    def result(self, player: str) -> dict[str, Any]:
        """The share of balls that were caught."""
        return {"score": self._caught / BALLS}


if __name__ == "__main__":
    asyncio.run(LiveServer(Catch, *map(float, sys.argv[2:])).offer(sys.argv[1]))
