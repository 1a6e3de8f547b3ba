"""Backend of the two Pong worlds: one learning player against the script, all copies stepped at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from baldwin.envs.asynchronous import find_players
from baldwin.envs.gymnasium import describe_space
from baldwin.envs.match_env import ANY
from baldwin.envs.pong import LEFT, N_ACTIONS, N_OBS, RIGHT, PongGames, result
from baldwin.envs.pong_world import SIDES, Pace, PongWorld
from baldwin.envs.self_play import SelfPlayEnvs
from baldwin.envs.vector_env import BACKENDS, OWN, Backend, EnvConfig, EnvSpec, Ids, OpponentPolicies, OtherPlayers, StepResult
from baldwin.errors import EnvironmentFailure
from baldwin.observations import VECTOR, Observation
from baldwin.opponents import SCRIPT
from baldwin.ops.seeds import mix

VECTOR_PONG, TWO_RATE_PONG = "VectorPong-v0", "TwoRatePong-v0"
PACES: dict[str, dict[str, Any]] = {VECTOR_PONG: {}, TWO_RATE_PONG: {"frames": (1, 6), "delay": 1}}


for _id, _pace in PACES.items():
    gym.register(_id, entry_point="baldwin.envs.match_env:make_player", kwargs={"make_world": PongWorld, **_pace})


class PongVectorEnv:
    """Games side by side; the side that learns is drawn for each game, as in `MatchEnv`."""

    def __init__(self, config: EnvConfig, env_spec: EnvSpec, width: int) -> None:
        self.width = width
        self.failures: dict[int, str] = {}
        player, pace = _options(config)
        self._sides = np.array([LEFT, RIGHT] if player == ANY else [SIDES.index(player)])
        self._games = PongGames(width)
        self._pace, self._other_pace = (Pace(width, **pace) for _ in range(2))
        self._side = np.zeros(width, np.int64)
        self.opponents = np.zeros(width, np.int64)
        self.opponent_rows = width
        self.policies: OpponentPolicies | None = None
        self._seeds = np.zeros(width, np.int64)
        self._episode = np.zeros(width, np.int64)

    def open(self, seeds: NDArray[np.int64], first_episode: int | NDArray[np.int64]) -> None:
        self._seeds[:] = seeds
        self._episode[:] = first_episode

    def reset(self, ids: Ids) -> Observation:
        seeds = np.array([mix(int(self._seeds[n]), int(self._episode[n])) for n in ids.tolist()], np.uint64)
        self._episode[ids] += 1
        self._side[ids] = self._sides[[mix(seed, 1) % len(self._sides) for seed in seeds.tolist()]]
        self._games.begin(ids, seeds)
        self._pace.begin(ids, seeds, self._side[ids])
        self._other_pace.begin(ids, seeds, 1 - self._side[ids])
        if self.policies:
            self.policies.begin(ids.astype(np.intp), np.array([mix(seed, 2) for seed in seeds.tolist()], np.int64))
        return self._observe(ids)

    def step(self, actions: NDArray[Any], ids: Ids) -> StepResult:
        games = self._games
        self._pace.decide(ids, actions)
        games.count_decisions(self._side[ids], actions, ids)
        reward, frames = np.zeros(self.width), games.frames.copy()
        playing = ids
        while len(playing):
            side, chosen = self._side[playing], np.empty((len(playing), 2), np.int64)
            rows = np.arange(len(playing))
            chosen[rows, side] = self._pace.actions(playing, games.frames[playing])
            chosen[rows, 1 - side] = self._other(playing, side)
            reward[playing] += games.step(chosen, playing)[rows, side]
            playing = playing[~games.over[playing] & (self._pace.due[playing] != games.frames[playing])]
        elapsed = (games.frames - frames)[ids].astype(np.int32)
        return StepResult(self._observe(ids), reward[ids], games.over[ids], np.zeros(len(ids), np.bool_), elapsed=elapsed)

    def result(self, index: int) -> dict[str, Any]:
        return result(self._games, index, int(self._side[index]))

    def close(self) -> None:
        pass

    def _other(self, ids: Ids, side: NDArray[np.int64]) -> NDArray[np.int64]:
        """What the other player does in this frame."""
        script = np.where(side == LEFT, self._games.track(RIGHT, ids), self._games.track(LEFT, ids))
        if self.policies is None or not self.opponents[ids].any():
            return script
        frame = self._games.frames[ids]
        deciding = ids[(self._other_pace.due[ids] == frame) & (self.opponents[ids] != SCRIPT)]
        if len(deciding):
            seen = {VECTOR: self._see(1 - self._side)[VECTOR][deciding]}
            self._other_pace.decide(deciding, self.policies.act(self.opponents[deciding], seen, deciding.astype(np.intp)))
        return np.where(self.opponents[ids] == SCRIPT, script, self._other_pace.actions(ids, frame))

    def _observe(self, ids: Ids) -> Observation:
        return {VECTOR: self._see(self._side)[VECTOR][ids]}

    def _see(self, side: NDArray[np.int64]) -> Observation:
        """What the players of these sides see [width, ...]."""
        return {VECTOR: np.where((side == LEFT)[:, None], self._games.observe(LEFT), self._games.observe(RIGHT))}


class PongSelfPlay:
    """Games side by side, both players of each: copies 2 n and 2 n + 1 are the left and the right one of game n."""

    def __init__(self, config: EnvConfig, env_spec: EnvSpec, width: int) -> None:
        self.width = width
        self.failures: dict[int, str] = {}
        self._games = PongGames(width // 2)
        self._seeds = np.zeros(width // 2, np.int64)
        self._episode = np.zeros(width // 2, np.int64)

    def open(self, seeds: NDArray[np.int64], first_episode: int | NDArray[np.int64]) -> None:
        self._seeds[:] = seeds[::2]
        self._episode[:] = np.broadcast_to(first_episode, self.width)[::2]

    def reset(self, ids: Ids) -> Observation:
        games = ids[::2] // 2
        seeds = [mix(int(self._seeds[n]), int(self._episode[n])) for n in games.tolist()]
        self._episode[games] += 1
        self._games.begin(games, np.array(seeds, np.uint64))
        return self._observe(games)

    def step(self, actions: NDArray[Any], ids: Ids) -> StepResult:
        games = ids[::2] // 2
        both = actions.reshape(-1, 2)
        for side in (LEFT, RIGHT):
            self._games.count_decisions(side, both[:, side], games)
        reward = self._games.step(both, games).ravel()
        over = self._games.over[games].repeat(2)
        return StepResult(self._observe(games), reward, over, np.zeros_like(over), elapsed=np.ones(len(ids), np.int32))

    def result(self, index: int) -> dict[str, Any]:
        return result(self._games, index // 2, index % 2)

    def close(self) -> None:
        pass

    def _observe(self, games: NDArray[Any]) -> Observation:
        return {VECTOR: np.stack([self._games.observe(side, games) for side in (LEFT, RIGHT)], 1).reshape(-1, N_OBS)}


def make_self_play(config: EnvConfig, env_spec: EnvSpec, width: int, others: Sequence[OtherPlayers] = ()) -> PongSelfPlay | SelfPlayEnvs:
    """The players that the policy plays as copies: in NumPy, where these are both and decide in every frame."""
    _, pace = _options(config)
    both = config.self_play or config.players in ("all", list(SIDES))
    if both and (pace["frames"], pace["delay"]) == ((1, 1), 0):
        return PongSelfPlay(config, env_spec, width)
    weights = np.zeros(0, np.float32)
    return SelfPlayEnvs(partial(PongWorld, **pace), config.players, env_spec, width, weights, others, config.match_deadline)


def _options(config: EnvConfig) -> tuple[str, dict[str, Any]]:
    """The player that learns, and the pace.

    Raises:
        EnvironmentFailure: a keyword argument is wrong.
    """
    kwargs = dict(config.one_player)
    player = kwargs.pop("player", ANY)
    pace: dict[str, Any] = {"frames": (1, 1), "delay": 0, "redraw": True} | PACES[config.id.removeprefix(OWN)] | kwargs
    low, high = pace["frames"] if isinstance(pace["frames"], list | tuple) and len(pace["frames"]) == 2 else (0, 0)
    right_types = all(type(number) is int for number in (low, high, pace["delay"])) and type(pace["redraw"]) is bool
    if (
        player not in (ANY, *SIDES)
        or set(pace) != {"frames", "delay", "redraw"}
        or not right_types
        or not 1 <= low <= high
        or pace["delay"] < 0
    ):
        raise EnvironmentFailure(
            f"environment {config.id!r}: expected env.kwargs of player (any, left, right), frames ([fewest, most], at least 1), "
            f"delay (at least 0) and redraw (true or false); got {config.one_player}"
        )
    return player, pace | {"frames": (int(low), int(high))}


def describe(config: EnvConfig) -> EnvSpec:
    """The same spaces for every player; every step says how many frames it took."""
    _options(config)
    played = len(SIDES if config.players == "all" else find_players(PongWorld(), config.players))
    space, action_space = spaces.Box(-0.1, 1.1, (N_OBS,), np.float32), spaces.Discrete(N_ACTIONS)
    return EnvSpec(
        describe_space(space, action_space, config),
        action_space,
        config.max_episode_steps,
        "pong",
        has_elapsed=True,
        players=len(SIDES),
        policy_players=max(1, played),
    )


def serves(config: EnvConfig) -> bool:
    """Both ids, with or without their namespace."""
    return config.id.removeprefix(OWN) in PACES


BACKENDS.add(
    "pong", Backend(describe, PongVectorEnv, priority=3, serves=serves, make_with_opponents=PongVectorEnv, make_self_play=make_self_play)
)
