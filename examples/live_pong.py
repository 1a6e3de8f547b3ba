"""A live world: Pong at 60 frames a second in a process of its own, which never waits for its players.

python -m examples.live_pong 8765 &
baldwin train --algo ppo --env live:ws://127.0.0.1:8765 -m algorithm.actor_lag=1 algorithm.n_envs=16
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baldwin.envs.live_server import MAX_MATCHES, Frame, LiveServer
from baldwin.envs.pong import STOP, PongGames, result
from baldwin.envs.pong_world import SIDES, PongWorld


class LivePong:
    """All matches of a connection side by side. Whoever has not decided stops."""

    def __init__(self) -> None:
        self.players = PongWorld().players
        self._games = PongGames(MAX_MATCHES)
        self._rows: dict[int, int] = {}  # of matches that go on
        self._free = list(range(MAX_MATCHES))

    def begin(self, match: int, seed: int) -> None:
        """Give the match a free game, begun with this seed."""
        self._rows[match] = row = self._free.pop()
        self._games.begin([row], np.array([seed], np.uint64))

    def frames(self, actions: Mapping[int, Mapping[str, Any]]) -> dict[int, Frame]:
        """One frame; the script plays whom nobody asked for."""
        rows = self._rows_of(actions)
        chosen = np.stack([self._games.track(side, rows) for side in range(len(SIDES))], 1)
        for own, given in zip(chosen, actions.values(), strict=True):
            for name, action in given.items():
                own[SIDES.index(name)] = STOP if action is None else action
        self._games.count_decisions(np.arange(len(SIDES)), chosen, rows[:, None])
        rewards, over = self._games.step(chosen, rows).tolist(), self._games.over[rows].tolist()
        return {match: Frame(dict(zip(SIDES, rewards[n], strict=True)), over[n]) for n, match in enumerate(actions)}

    def observe(self, matches: Sequence[int], player: str) -> Any:
        """As in vector Pong."""
        return self._games.observe(SIDES.index(player), self._rows_of(matches))

    def result(self, match: int, player: str) -> dict[str, Any]:
        """As in vector Pong."""
        return result(self._games, self._rows[match], SIDES.index(player))

    def leave(self, match: int) -> None:
        """Its place is free."""
        self._free.append(self._rows.pop(match))

    def _rows_of(self, matches: Iterable[int]) -> NDArray[np.int64]:
        return np.array([self._rows[match] for match in matches])


async def main(port: int, rate: float = 60.0) -> None:
    """Serve until SIGTERM, then say what was counted."""
    server, over = LiveServer(LivePong, rate, port=port), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    gc.freeze()  # looking through all that was imported, for garbage, would take five ticks
    print(await server.start(), flush=True)
    began = time.process_time()
    await over.wait()
    print(json.dumps(server.report() | {"cpu_seconds": time.process_time() - began}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), *map(float, sys.argv[2:])))
