"""Pong for two players, thousands of games stepped at once in NumPy.

The arena is 160 x 160. Bats of 5 x 15 stand 16 from the sides and move by 4 a frame; a ball of 4 x 4 starts in the middle with
vx = +-4 and |vy| from U(1.2, 4). A bat sends it back and adds 0.7 of its own move to vy; walls reflect it. A point ends a round, as do
1,000 frames; a game has 20 rounds. What bats add would let vy grow without bound, so that |vy| is kept to 8.

A player sees ten numbers, 0 to 1 in the arena: its bat, the other one, and (x, y) of the ball in the last four frames, the newest first, mirrored for
the right-hand player so that both see themselves on the left. Actions: 0 up, 1 stop, 2 down.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SIZE = 160.0
BAT_WIDTH, BAT_HEIGHT, BAT_SPEED, BAT_MARGIN = 5.0, 15.0, 4.0, 16.0
BALL = 4.0
SPEED_X, MIN_SPEED_Y, MAX_START_SPEED_Y, MAX_SPEED_Y = 4.0, 1.2, 4.0, 8.0
BAT_PUSH = 0.7
ROUNDS, ROUND_FRAMES, FRAMES_SEEN = 20, 1000, 4
LEFT, RIGHT = 0, 1
UP, STOP, DOWN = 0, 1, 2
N_OBS, N_ACTIONS = 2 + 2 * FRAMES_SEEN, 3
FRONT = np.array([BAT_MARGIN + BAT_WIDTH, SIZE - BAT_MARGIN - BAT_WIDTH])  # x of the sides of the bats that face each other

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class PongGames:
    """N games side by side. A game is a pure function of its seed and both players' actions."""

    def __init__(self, count: int) -> None:
        self.seed = np.zeros(count, np.uint64)
        self.score = np.zeros((count, 2), np.int64)
        self.round = np.zeros(count, np.int64)
        self.frame = np.zeros(count, np.int64)  # of the round
        self.bat = np.zeros((count, 2))  # upper edges
        self.ball = np.zeros((count, 2))  # upper left corner
        self.velocity = np.zeros((count, 2))
        self.trail = np.zeros((count, FRAMES_SEEN, 2))  # where the ball was, the newest first
        self.moves = np.zeros((count, 2), np.int64)  # frames in which a bat moved
        self.frames = np.zeros(count, np.int64)  # of the game
        self.decisions = np.zeros((count, 2), np.int64)  # of players, as `count_decisions` was told
        self.stops = np.zeros((count, 2), np.int64)  # those among them to stop

    def begin(self, ids: Any, seeds: NDArray[Any]) -> None:
        """Start new games with these seeds: no points, bats in the middle, the first serve."""
        self.seed[ids] = seeds
        for array in (self.score, self.round, self.moves, self.frames, self.decisions, self.stops):
            array[ids] = 0
        self.bat[ids] = (SIZE - BAT_HEIGHT) / 2
        self._serve(ids)

    @property
    def over(self) -> NDArray[np.bool_]:
        """Games whose rounds are played."""
        return self.round >= ROUNDS

    def step(self, actions: NDArray[Any], ids: Any = slice(None)) -> Floats:
        """One frame of these games with the actions [k, 2] of left and right; their rewards [k, 2]."""
        move = (np.asarray(actions) - STOP) * BAT_SPEED
        bat = self.bat[ids]
        moved = np.clip(bat + move, 0, SIZE - BAT_HEIGHT)
        before, velocity = self.ball[ids], self.velocity[ids]
        ball = before + velocity
        y = ball[:, 1]
        bounced = (y < 0) | (y > SIZE - BALL)
        if bounced.any():
            ball[:, 1] = np.where(y < 0, -y, np.where(y > SIZE - BALL, 2 * (SIZE - BALL) - y, y))
            velocity[:, 1] = np.where(bounced, -velocity[:, 1], velocity[:, 1])
        for side in (LEFT, RIGHT):
            self._bounce(side, before, ball, velocity, moved[:, side], moved[:, side] - bat[:, side])
        out_left, out_right = ball[:, 0] + BALL < 0, ball[:, 0] > SIZE
        reward = np.stack([out_right * 1.0 - out_left, out_left * 1.0 - out_right], 1)
        self.moves[ids] += moved != bat
        self.bat[ids], self.ball[ids], self.velocity[ids] = moved, ball, velocity
        self.trail[ids] = np.concatenate([ball[:, None], self.trail[ids][:, :-1]], 1)
        self.score[ids] += reward > 0
        self.frame[ids] += 1
        self.frames[ids] += 1
        done = out_left | out_right | (self.frame[ids] >= ROUND_FRAMES)
        if done.any():
            finished = np.arange(len(self.seed))[ids][done]
            self.round[finished] += 1
            self._serve(finished)
        return reward

    def count_decisions(self, sides: Any, actions: Any, ids: Any = slice(None)) -> None:
        """Count what the players of these sides decided, for `result`: a decision may hold for several frames, or take effect later."""
        self.decisions[ids, sides] += 1
        self.stops[ids, sides] += np.asarray(actions) == STOP

    def observe(self, side: int, ids: Any = slice(None)) -> NDArray[np.float32]:
        """What the players of that side see [k, 10]."""
        bat, trail = self.bat[ids] / (SIZE - BAT_HEIGHT), self.trail[ids]
        seen = np.empty((len(bat), N_OBS))
        seen[:, 0], seen[:, 1] = bat[:, side], bat[:, 1 - side]
        seen[:, 2:] = (trail / (SIZE - BALL)).reshape(len(bat), -1)
        if side == RIGHT:
            seen[:, 2::2] = 1 - seen[:, 2::2]
        return seen.astype(np.float32)

    def track(self, side: int, ids: Any = slice(None)) -> Ints:
        """Actions [k] of the scripted player, which follows the ball and never stops."""
        above = self.ball[ids][:, 1] + BALL / 2 < self.bat[ids][:, side] + BAT_HEIGHT / 2
        return np.where(above, UP, DOWN)

    def _serve(self, ids: Any) -> None:
        draws = uniforms(self.seed[ids], self.round[ids], 3)
        vy = MIN_SPEED_Y + (MAX_START_SPEED_Y - MIN_SPEED_Y) * draws[:, 0]
        self.ball[ids] = (SIZE - BALL) / 2
        self.velocity[ids] = np.stack([np.where(draws[:, 1] < 0.5, -SPEED_X, SPEED_X), np.where(draws[:, 2] < 0.5, -vy, vy)], 1)
        self.trail[ids] = (SIZE - BALL) / 2
        self.frame[ids] = 0

    @staticmethod
    def _bounce(side: int, before: Floats, ball: Floats, velocity: Floats, bat: Floats, move: Floats) -> None:
        """Send the ball back where its front edge crosses that of the bat in this frame."""
        front = FRONT[side]
        edge, old_edge = (ball[:, 0], before[:, 0]) if side == LEFT else (ball[:, 0] + BALL, before[:, 0] + BALL)
        crosses = (old_edge >= front) & (edge < front) if side == LEFT else (old_edge <= front) & (edge > front)
        if not crosses.any():  # in most frames of a single game
            return
        hit = crosses & (ball[:, 1] + BALL > bat) & (ball[:, 1] < bat + BAT_HEIGHT)
        ball[:, 0] = np.where(hit, ball[:, 0] + 2 * (front - edge), ball[:, 0])
        velocity[:, 0] = np.where(hit, -velocity[:, 0], velocity[:, 0])
        velocity[:, 1] = np.where(hit, np.clip(velocity[:, 1] + BAT_PUSH * move, -MAX_SPEED_Y, MAX_SPEED_Y), velocity[:, 1])


def uniforms(seeds: NDArray[np.uint64], counters: Ints, count: int) -> Floats:
    """Numbers in [0, 1) [k, count], a function of a seed and a counter each: splitmix64."""
    with np.errstate(over="ignore"):
        start = seeds * np.uint64(0x9E3779B97F4A7C15) + counters.astype(np.uint64) * np.uint64(0xD1342543DE82EF95)
        z = start[:, None] + (np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return np.asarray((z >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def result(games: PongGames, game: int, side: int) -> dict[str, Any]:
    """How a game ended for a side: the score in [0, 1], who won, and the behaviour.

    `lazy`: the share of decisions that are "stop"; `busy`: the share of frames in which the bat moved, which it does not at a wall.
    """
    own, other = games.score[game, side], games.score[game, 1 - side]
    lazy = float(games.stops[game, side] / max(1, games.decisions[game, side]))
    busy = float(games.moves[game, side] / max(1, games.frames[game]))
    return {
        "score": float((own - other + ROUNDS) / (2 * ROUNDS)),
        "win": float(np.sign(own - other) + 1) / 2,
        "points": (int(own), int(other)),
        "behaviour": {"lazy": lazy, "busy": busy},
    }


def draw(games: PongGames, game: int) -> NDArray[np.uint8]:
    """A picture [210, 160, 3] of one game: the arena below 34 rows for the score."""
    picture = np.zeros((210, 160, 3), np.uint8)
    picture[34:194] = (40, 60, 40)
    colors = ((213, 130, 74), (92, 186, 92))
    for side, left in ((LEFT, BAT_MARGIN), (RIGHT, SIZE - BAT_MARGIN - BAT_WIDTH)):
        _fill(picture, left, games.bat[game, side], BAT_WIDTH, BAT_HEIGHT, colors[side])
        for point in range(int(games.score[game, side])):
            column = 4 + 3 * point if side == LEFT else 154 - 3 * point
            picture[12:22, column : column + 2] = colors[side]
    x, y = games.ball[game]
    _fill(picture, x, y, BALL, BALL, (236, 236, 236))
    return picture


def _fill(picture: NDArray[np.uint8], x: float, y: float, width: float, height: float, color: tuple[int, int, int]) -> None:
    rows = slice(34 + round(max(0.0, y)), 34 + round(min(SIZE, y + height)))
    picture[rows, round(max(0.0, x)) : round(min(SIZE, max(0.0, x + width)))] = color
