"""A live world: Pong at 60 frames a second in a process of its own, which never waits for its players.

python -m examples.live_pong 8765 &
baldwin train --algo ppo --env live:ws://127.0.0.1:8765 -m algorithm.actor_lag=1 algorithm.n_envs=16
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from baldwin.envs.live_server import Frame, LiveServer
from baldwin.envs.pong import STOP, PongGames, result
from baldwin.envs.pong_world import SIDES, PongWorld


class LivePong:
    """Whoever has not decided goes on as before."""

    def __init__(self) -> None:
        self.players = PongWorld().players
        self._games = PongGames(1)

    def begin(self, seed: int) -> None:
        """A new game."""
        self._games.begin(slice(None), np.array([seed], np.uint64))

    def frame(self, actions: Mapping[str, Any]) -> Frame:
        """One frame; the script plays whom nobody asked for."""
        given = {side: STOP if action is None else action for side, action in actions.items()}
        reward = self._games.step(np.array([[given[s] if s in given else self._games.track(n)[0] for n, s in enumerate(SIDES)]]))[0]
        return Frame(dict(zip(SIDES, reward.tolist(), strict=True)), bool(self._games.over[0]))

    def observe(self, player: str) -> Any:
        """As in vector Pong."""
        return self._games.observe(SIDES.index(player))[0]

    def result(self, player: str) -> dict[str, Any]:
        """As in vector Pong."""
        return result(self._games, 0, SIDES.index(player))


async def main(port: int, rate: float = 60.0) -> None:
    """Serve until SIGTERM, then say what was counted."""
    server, over = LiveServer(LivePong, rate, port=port), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    print(await server.start(), flush=True)
    await over.wait()
    print(json.dumps(server.report()), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), *map(float, sys.argv[2:])))
