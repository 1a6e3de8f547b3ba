"""A game of players that see and do different things, and need each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gymnasium import spaces

from baldwin.envs.asynchronous import Match, Player, Seat, SimpleMatch, World, find_players
from baldwin.ops import seeds


class Signals(World):
    """Two callers see a light on the left or on the right and call which, for a point each if they are right. A listener, who sees nothing
    but the calls of the round before, names the light of that round for a point. The script calls and names at random: then, the listener
    can only guess."""

    def __init__(self, rounds: int = 8) -> None:
        light = spaces.Box(-1, 1, (2,), np.float32)
        self.players = [Player(name, light, spaces.Discrete(2)) for name in ("caller_0", "caller_1")]
        self.players.append(Player("listener", spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(3)))
        self._rounds = rounds

    def reset(self, seed: int, players: Sequence[str]) -> Match:
        seats = {player.name: Seat(player.name) for player in find_players(self, players)}
        return SimpleMatch(list(seats.values()), [self._tick(seats, seeds.generator(seed, 1))])

    async def _tick(self, seats: dict[str, Seat], rng: np.random.Generator) -> None:
        before, light, calls = -1, int(rng.integers(2)), [0, 0]
        for seat in seats.values():
            seat.show(self._see(seat.player, light, calls))
        for played in range(1, self._rounds + 1):
            said = {}
            for player in self.players:
                random = int(rng.integers(2))  # drawn for everybody, so that a match is the same for any who asked
                said[player.name] = int(await seats[player.name].action()) if player.name in seats else random
            points = {name: float(word == (before if name == "listener" else light)) for name, word in said.items()}
            calls = [2 * said[name] - 1 for name in ("caller_0", "caller_1")]
            before, light = light, int(rng.integers(2))
            for seat in seats.values():
                seat.add(points[seat.player])
                seat.show(self._see(seat.player, light, calls), terminated=played == self._rounds)

    def _see(self, player: str, light: int, calls: list[int]) -> np.ndarray:
        seen = [*calls, 1] if player == "listener" else [2 * light - 1, 1]
        return np.array(seen, np.float32)
