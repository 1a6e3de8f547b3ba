"""A game with a cycle: whoever answers the last policy goes round in it for ever."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gymnasium import spaces

from baldwin.envs.asynchronous import Match, Player, Seat, SimpleMatch, World, find_players

SIGHT = np.ones(1, np.float32)


class RockPaperScissors(World):
    """Both choose once, at the same time; every choice beats one other and loses to the third. The script chooses at random."""

    def __init__(self) -> None:
        self.players = [Player(name, spaces.Box(0, 1, (1,), np.float32), spaces.Discrete(3)) for name in ("first", "second")]

    def reset(self, seed: int, players: Sequence[str]) -> Match:
        seats = {player.name: Seat(player.name) for player in find_players(self, players)}
        return SimpleMatch(list(seats.values()), [self._tick(seats, np.random.default_rng(seed))])

    async def _tick(self, seats: dict[str, Seat], rng: np.random.Generator) -> None:
        for seat in seats.values():
            seat.show(SIGHT)
        chosen = [int(await seats[p.name].action()) if p.name in seats else int(rng.integers(3)) for p in self.players]
        won = {0: 0.0, 1: 1.0, 2: -1.0}[(chosen[0] - chosen[1]) % 3]
        for name, seat in seats.items():
            reward = won if name == "first" else -won
            seat.add(reward)
            seat.finish(score=reward)
            seat.show(SIGHT, terminated=True)
