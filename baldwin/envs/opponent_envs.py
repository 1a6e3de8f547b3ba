"""Matches in which one player learns and members of a pool play the others, all of which are answered by one call per step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baldwin.envs.asynchronous import Step, World
from baldwin.envs.match_env import ANY
from baldwin.envs.matches import MAX_DECISIONS, Matches, Turn, close_worlds, no_turn, pop_latencies, step_result
from baldwin.envs.vector_env import DEADLINE, EnvSpec, Ids, OpponentPolicies, StepResult
from baldwin.errors import EnvironmentFailure, describe_exception
from baldwin.observations import ACTION_MASK, Observation, take
from baldwin.opponents import SCRIPT
from baldwin.ops.seeds import mix


class OpponentEnvs:
    """Copy n is one player of match n, drawn for each match; a member of the pool plays all the others, or the world's own script does."""

    def __init__(
        self,
        make_world: Callable[[], World],
        player: str,
        env_spec: EnvSpec,
        width: int,
        weights: NDArray[np.float32],
        deadline: float = DEADLINE,
    ) -> None:
        """`player`: who learns, or any; `weights` of the components of the reward."""
        self.width = width
        self.failures: dict[int, str] = {}
        self.opponents = np.zeros(width, np.int64)
        self.policies: OpponentPolicies | None = None
        self._make_world = make_world
        self._worlds = {0: make_world()}  # of those copies that have been used: a world may be a process
        self._names = [p.name for p in self._worlds[0].players]
        self.opponent_rows = width * (len(self._names) - 1)
        self._learning = self._names if player == ANY else [player]
        self._own = [Turn(n, self._learning[0]) for n in range(width)]
        self._spec, self._weights = env_spec, weights
        self._matches = Matches(deadline)
        self._seeds = np.zeros(width, np.int64)
        self._episode = np.zeros(width, np.int64)

    def open(self, seeds: NDArray[np.int64], first_episode: int | NDArray[np.int64]) -> None:
        self._seeds[:] = seeds
        self._episode[:] = first_episode
        self.failures.clear()

    def reset(self, ids: Ids) -> Observation:
        for n in ids.tolist():
            seed = mix(int(self._seeds[n]), int(self._episode[n]))
            self._episode[n] += 1
            own = self._learning[mix(seed, 1) % len(self._learning)]
            self._own[n] = Turn(n, own)
            others = self._others(n) if self.opponents[n] != SCRIPT else []
            if self.policies:
                rows = np.array([self._row(Turn(n, name)) for name in others], np.intp)
                self.policies.begin(rows, np.array([mix(seed, 2 + k) for k in range(len(others))], np.int64))
            try:
                self._matches.begin(n, self._world(n), seed, [own, *others])
            except EnvironmentFailure as error:
                self.failures[n] = str(error)
        self._go_on({}, ids)
        return self._observe(ids)

    def step(self, actions: NDArray[Any], ids: Ids) -> StepResult:
        playing = {self._own[n]: action for n, action in zip(ids.tolist(), actions, strict=True) if n not in self.failures}
        found = self._go_on(playing, ids)
        nothing = Step(np.zeros(max(1, len(self._spec.rewards))), terminated=True)
        return step_result([found.get(self._own[n], nothing) for n in ids.tolist()], self._observe(ids), self._spec, self._weights)

    def result(self, index: int) -> Mapping[str, Any]:
        return {} if index in self.failures else self._matches.result(self._own[index])

    def pop_latencies(self) -> tuple[list[float], int]:
        """Of live worlds, since the last call."""
        return pop_latencies(self._worlds.values())

    def close(self) -> None:
        close_worlds(self._matches, list(self._worlds.values()))

    def _world(self, n: int) -> World:
        if n not in self._worlds:
            try:
                self._worlds[n] = self._make_world()
            except EnvironmentFailure:
                raise
            except Exception as error:
                raise EnvironmentFailure(f"a world could not be made: {describe_exception(error)}") from error
        return self._worlds[n]

    def _go_on(self, actions: dict[Turn, Any], ids: Ids) -> dict[Turn, Step]:
        """Let the others decide until something came for every learning player."""
        found: dict[Turn, Step] = {}
        playing = set(ids.tolist())
        for _ in range(MAX_DECISIONS):
            missing = [self._own[n] for n in ids.tolist() if self._own[n] not in found and n not in self.failures]
            found |= self._matches.act(actions, missing)
            for match, reason in self._matches.failures.items():
                self.failures.setdefault(match, reason)
            others = [t for t in self._matches.waiting if t.match in playing and t != self._own[t.match] and t.match not in self.failures]
            if all(self._own[n] in found or n in self.failures for n in ids.tolist()):
                return found
            actions = self._answers(others) if others else {}
        for turn in missing:
            self.failures.setdefault(turn.match, no_turn(turn.player))
        return found

    def _answers(self, turns: list[Turn]) -> dict[Turn, Any]:
        """Actions of the members that play these."""
        if self.policies is None:
            raise EnvironmentFailure("nobody decides for the opponents")
        obs = self._spec.obs.empty(len(turns))
        written = [row for row, turn in enumerate(turns) if self._write(obs, row, turn)]  # the others' matches have failed
        answered = [turns[row] for row in written]
        if not answered:
            return {}
        members = np.array([self.opponents[turn.match] for turn in answered], np.int64)
        rows = np.array([self._row(turn) for turn in answered], np.intp)
        return dict(zip(answered, self.policies.act(members, take(obs, np.array(written, np.intp)), rows), strict=True))

    def _others(self, match: int) -> list[str]:
        return [name for name in self._names if name != self._own[match].player]

    def _row(self, turn: Turn) -> int:
        """Of an opponent among those of all matches."""
        return turn.match * (len(self._names) - 1) + self._others(turn.match).index(turn.player)

    def _observe(self, ids: Ids) -> Observation:
        obs = self._spec.obs.empty(len(ids))
        for row, n in enumerate(ids.tolist()):
            if n not in self.failures:
                self._write(obs, row, self._own[n])
        return obs

    def _write(self, obs: Observation, row: int, turn: Turn) -> bool:
        """What a player sees; false, and a failure of its match, if that is not what its space says."""
        controller = self._matches.controller(turn)
        try:
            mask = {} if controller.legal is None else {ACTION_MASK: controller.legal}
            self._spec.obs.write(obs, row, controller.observation, mask)
        except Exception as error:
            self.failures.setdefault(turn.match, f"player {turn.player!r}: {describe_exception(error)}")
        return turn.match not in self.failures
