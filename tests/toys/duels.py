"""A game for two with a best reply, which may need eyes or a memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from gymnasium import spaces

from baldwin.envs.asynchronous import Match, Player, Seat, SimpleMatch, World, find_players
from baldwin.ops import seeds


class Duel(World):
    """Both see a light on the left or on the right and say which, all at once. Who is right gets a point, which the other loses.

    `picture`: the light is a pixel. `hidden`: it is seen in every other round only, and stays where it was in the next one.
    `shared`: both get the points of both.
    """

    def __init__(self, rounds: int = 8, picture: bool = False, hidden: bool = False, shared: bool = False) -> None:
        space = spaces.Box(0, 255, (1, 8, 8), np.uint8) if picture else spaces.Box(-1, 1, (2,), np.float32)
        self.players = [Player(name, space, spaces.Discrete(2)) for name in ("red", "blue")]
        self._rounds, self._picture, self._hidden = rounds, picture, hidden
        self._others_count = 1 if shared else -1

    def reset(self, seed: int, players: Sequence[str]) -> Match:
        seats = {player.name: Seat(player.name) for player in find_players(self, players)}
        return SimpleMatch(list(seats.values()), [self._tick(seats, seeds.generator(seed, 1))])

    async def _tick(self, seats: dict[str, Seat], rng: np.random.Generator) -> None:
        light = int(rng.integers(2))
        for seat in seats.values():
            seat.show(self._see(light, 0))
        for played in range(1, self._rounds + 1):
            said = [int(await seats[p.name].action()) if p.name in seats else int(rng.integers(2)) for p in self.players]
            right = [float(word == light) for word in said]
            light = light if self._hidden and played % 2 else int(rng.integers(2))
            for own, player in enumerate(self.players):
                if player.name in seats:
                    seats[player.name].add(right[own] + self._others_count * right[1 - own])
                    seats[player.name].show(self._see(light, played), terminated=played == self._rounds)

    def _see(self, light: int, played: int) -> Any:
        shown = not (self._hidden and played % 2)
        if self._picture:
            picture = np.zeros((1, 8, 8), np.uint8)
            picture[0, 2:6, 5 * light : 5 * light + 3] = 255 * shown
            return picture
        return np.array([(2 * light - 1) * shown, shown], np.float32)


class ShakyDuel(Duel):
    """One of seven matches does not begin."""

    def reset(self, seed: int, players: Sequence[str]) -> Match:
        if seed % 7 == 0:
            raise RuntimeError("no light today")
        return super().reset(seed, players)


class TornDuel(ShakyDuel):
    """And one of three ends in its third round by an error."""

    async def _tick(self, seats: dict[str, Seat], rng: np.random.Generator) -> None:
        self._breaks = self._seed % 3 == 0
        await super()._tick(seats, rng)

    def reset(self, seed: int, players: Sequence[str]) -> Match:
        self._seed = seed
        return super().reset(seed, players)

    def _see(self, light: int, played: int) -> Any:
        if self._breaks and played == 3:
            raise RuntimeError("the light went out")
        return super()._see(light, played)


class TurnDuel(Duel):
    """The same, but blue speaks after red, and sees the light of its own moment; three frames pass with each word of red, one with blue's."""

    async def _tick(self, seats: dict[str, Seat], rng: np.random.Generator) -> None:
        for played in range(self._rounds):
            right = []
            for player, frames in zip(self.players, (3, 1), strict=True):
                light = int(rng.integers(2))
                if player.name in seats:
                    seats[player.name].show(self._see(light, 2 * played))
                    word = int(await seats[player.name].action())
                else:
                    word = int(rng.integers(2))
                right.append(float(word == light))
                for seat in seats.values():
                    seat.add(0.0, frames)
            for own, player in enumerate(self.players):
                if player.name in seats:
                    seats[player.name].add(right[own] + self._others_count * right[1 - own], 0)
        for seat in seats.values():
            seat.show(self._see(0, 1), terminated=True)


class AlwaysWon(Duel):
    """The same, but its result says that everybody has won, whatever the points."""

    def reset(self, seed: int, players: Sequence[str]) -> Match:
        match = super().reset(seed, players)
        for seat in match.controllers:
            cast("Seat", seat).finish(win=1.0)
        return match
