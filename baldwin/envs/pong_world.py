"""Pong as a world of two players, who decide in every frame or each at a pace of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from baldwin.envs.asynchronous import Match, Player, Seat, SimpleMatch, World, find_players
from baldwin.envs.pong import LEFT, N_ACTIONS, N_OBS, RIGHT, STOP, PongGames, draw, result, uniforms

SIDES = ("left", "right")
PACE_STREAM = 0x5DEECE66D  # tells the numbers that make pace from those that serve
NEVER = np.iinfo(np.int64).max


class PongWorld(World):
    """One game. A player decides every k frames, k drawn from `frames` each time, and its decision takes effect `delay` frames later.

    Without `redraw`, k is drawn once for each player and game.
    """

    def __init__(self, frames: tuple[int, int] = (1, 1), delay: int = 0, redraw: bool = True) -> None:
        self.players = [Player(name, spaces.Box(-0.1, 1.1, (N_OBS,), np.float32), spaces.Discrete(N_ACTIONS)) for name in SIDES]
        self.games = PongGames(1)
        self._pace = frames, delay, redraw

    def reset(self, seed: int, players: Sequence[str]) -> Match:
        """Begin a game; the scripted player, which decides in every frame, plays the sides that nobody asked for."""
        asked = [player.name for player in find_players(self, players)]
        self.games.begin(slice(None), np.array([seed], np.uint64))
        seats = {SIDES.index(name): Seat(name) for name in asked}
        return SimpleMatch(list(seats.values()), [self._tick(seats)])

    def render(self) -> NDArray[np.uint8]:
        """A picture of the game."""
        return draw(self.games, 0)

    async def _tick(self, seats: dict[int, Seat]) -> None:
        games, seed = self.games, int(self.games.seed[0])
        paces = {side: OnePace(seed, side, *self._pace) for side in seats}
        for side, seat in seats.items():
            seat.show(games.observe(side)[0])
        frame, over, actions = 0, False, np.empty((1, 2), np.int64)
        while not over:
            for side in (LEFT, RIGHT):
                if side not in seats:
                    actions[:, side] = games.track(side)
                    continue
                if paces[side].due == frame:
                    action = int(await seats[side].action())
                    games.count_decisions(side, action)
                    paces[side].decide(action)
                actions[:, side] = paces[side].action(frame)
            reward = games.step(actions)[0]
            frame, over = frame + 1, bool(games.over[0])
            for side, seat in seats.items():
                seat.add(reward[side])
                if over:
                    seat.finish(**result(games, 0, side))
                if over or paces[side].due == frame:
                    seat.show(games.observe(side)[0], terminated=over)


class OnePace:
    """`Pace` of one player in one game, in plain numbers: arrays of one element cost more than the game itself."""

    def __init__(self, seed: int, side: int, frames: tuple[int, int], delay: int, redraw: bool) -> None:
        self._low, self._high = frames
        self._delay, self._redraw = delay, redraw
        self._stream = np.array([(2 * seed + side) % 2**64 ^ PACE_STREAM], np.uint64)
        self._decisions = 0
        self._now, self._next, self._starts = STOP, STOP, NEVER
        self.due = 0  # the frame of the next decision

    def decide(self, action: int) -> None:
        """Take the decision that is due; the next one is due k frames later."""
        if self._starts < NEVER:
            self._now = self._next  # what has not begun yet begins now
        self._next, self._starts = action, self.due + self._delay
        k = self._low
        if self._high > self._low:
            k += int(uniforms(self._stream, np.array([self._decisions]), 1)[0, 0] * (self._high - self._low + 1))
        self._decisions += self._redraw  # the same number gives the same k
        self.due += k

    def action(self, frame: int) -> int:
        """What the player does in that frame."""
        if self._starts <= frame:
            self._now, self._starts = self._next, NEVER
        return self._now


class Pace:
    """When players decide, one in each of N games side by side, and when what they decided takes effect."""

    def __init__(self, count: int, frames: tuple[int, int], delay: int, redraw: bool) -> None:
        self._frames, self._delay, self._redraw = frames, delay, redraw
        self._stream = np.zeros(count, np.uint64)
        self.due = np.zeros(count, np.int64)  # the frame of the next decision
        self._decisions = np.zeros(count, np.int64)
        self._now = np.zeros(count, np.int64)
        self._next = np.zeros(count, np.int64)  # takes effect at `_starts`
        self._starts = np.zeros(count, np.int64)

    def begin(self, ids: Any, seeds: NDArray[np.uint64], sides: NDArray[np.int64]) -> None:
        """Begin new games with these seeds, in which the players have these sides."""
        self._stream[ids] = (seeds * np.uint64(2) + sides.astype(np.uint64)) ^ np.uint64(PACE_STREAM)
        self.due[ids] = self._decisions[ids] = 0
        self._now[ids], self._starts[ids] = STOP, NEVER

    def decide(self, ids: Any, action: Any) -> None:
        """Take the decisions that are due in these games; the next ones are due k frames later."""
        frame, (low, high) = self.due[ids], self._frames
        self._now[ids] = np.where(self._starts[ids] < NEVER, self._next[ids], self._now[ids])  # what has not begun yet begins now
        self._next[ids], self._starts[ids] = action, frame + self._delay
        draws = uniforms(self._stream[ids], self._decisions[ids], 1)[:, 0]
        self._decisions[ids] += self._redraw  # the same number gives the same k
        self.due[ids] = frame + low + (draws * (high - low + 1)).astype(np.int64)

    def actions(self, ids: Any, frame: NDArray[np.int64]) -> NDArray[np.int64]:
        """What the players of these games do in that frame."""
        begins = self._starts[ids] <= frame
        self._now[ids] = np.where(begins, self._next[ids], self._now[ids])
        self._starts[ids] = np.where(begins, NEVER, self._starts[ids])
        return np.asarray(self._now[ids])
