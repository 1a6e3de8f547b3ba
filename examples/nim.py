"""A game of one's own for two players: 15 matches on a table, each takes one to three in turn, and whoever takes the last one wins.

baldwin train --algo ppo --env examples.nim:Nim -m stop.env_steps=100_000

From here to a league: docs/multiplayer.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from baldwin.envs.asynchronous import Match, Player, Seat, SimpleMatch, World, find_players

PILE, MOST = 15, 3


class Nim(World):
    """A player sees the pile, one number of a vector for each match; the script takes a random number."""

    def __init__(self) -> None:
        self.players = [Player(name, spaces.Box(0, 1, (PILE,), np.float32), spaces.Discrete(MOST)) for name in ("first", "second")]

    def reset(self, seed: int, players: Sequence[str]) -> Match:
        """Begin a game."""
        seats = {player.name: Seat(player.name) for player in find_players(self, players)}
        return SimpleMatch(list(seats.values()), [self._tick(seats, np.random.default_rng(seed))])

    async def _tick(self, seats: dict[str, Seat], rng: np.random.Generator) -> None:
        pile, turn = PILE, 0
        while pile:
            name = self.players[turn % 2].name
            legal = np.arange(1, MOST + 1) <= pile
            if name in seats:
                seats[name].show(see(pile), legal)
                taken = 1 + int(await seats[name].action())
            else:
                taken = int(rng.integers(1, 1 + legal.sum()))
            pile -= taken
            turn += 1
            for seat in seats.values():
                seat.add(0.0)  # a turn has passed
        for name, seat in seats.items():
            won = name == self.players[(turn - 1) % 2].name
            seat.add(1.0 if won else -1.0, 0)
            seat.finish(score=1.0 if won else -1.0, win=float(won))
            seat.show(see(0), np.ones(MOST, np.bool_), terminated=True)


def see(pile: int) -> NDArray[np.float32]:
    """One for every match that is left."""
    return (np.arange(PILE) < pile).astype(np.float32)


def best_move(observation: NDArray[np.float32], legal: Any) -> int:
    """Leave a multiple of four, if that can be done, else take one: an opponent for a pool, as script:examples.nim:best_move."""
    return max(0, int(observation.sum()) % (MOST + 1) - 1)
