"""Matches of which the policy plays all players, or some: each of these is an environment of its own, and those of a match step together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from baldwin.envs.asynchronous import Step, World
from baldwin.envs.matches import MAX_DECISIONS, Matches, Turn, close_worlds, no_turn, pop_latencies, step_result
from baldwin.envs.vector_env import DEADLINE, EnvSpec, Ids, OtherPlayers, StepResult
from baldwin.errors import EnvironmentFailure, describe_exception
from baldwin.observations import ACTION_MASK, Observation, ObservationSpec, take
from baldwin.ops.seeds import mix


class SelfPlayEnvs:
    """Copy n is player n mod P of match n div P, P being the players of a match that the policy plays.

    A step takes a match to where one of these has to decide again; meanwhile frozen policies decide for their players, and the world's
    script for the rest. Whoever has not to decide, waits: its action counts for nothing, and what comes of its last decision is in the step
    in which it comes. A match ends for all copies at once, when it is over for the last of them.
    """

    def __init__(
        self,
        make_world: Callable[[], World],
        players: Literal["all"] | Sequence[str],
        env_spec: EnvSpec,
        width: int,
        weights: NDArray[np.float32],
        others: Sequence[OtherPlayers] = (),
        deadline: float = DEADLINE,
    ) -> None:
        """`players` that the policy plays, or none for all; `width`: a multiple of their number; `weights` of the reward's components."""
        self.width = width
        self.failures: dict[int, str] = {}  # the first copy of a match -> why that failed
        self.deciding = np.ones(width, np.bool_)
        first = make_world()
        self._names = [player.name for player in first.players] if players == "all" or not players else list(players)
        self.match_size = len(self._names)
        self._worlds = [first, *(make_world() for _ in range(width // len(self._names) - 1))]
        self._others = others
        self._asked = [*self._names, *(name for other in others for name in other.names)]
        self._spec, self._weights = env_spec, weights
        self._matches = Matches(deadline)
        self._seeds = np.zeros(width, np.int64)
        self._episode = np.zeros(width, np.int64)
        self._last: dict[int, Step] = {}  # of players for whom the match is over

    def open(self, seeds: NDArray[np.int64], first_episode: int | NDArray[np.int64]) -> None:
        self._seeds[:] = seeds
        self._episode[:] = first_episode
        self.failures.clear()

    def reset(self, ids: Ids) -> Observation:
        for match in self._whole_matches(ids):
            lanes = self._lanes(match)
            seed = mix(int(self._seeds[lanes[0]]), int(self._episode[lanes[0]]))
            for other in self._others:
                rows = np.arange(len(other.names))
                other.policies.begin(rows + match * len(other.names), seed + rows)
            try:
                self._matches.begin(match, self._worlds[match], seed, self._asked)
            except EnvironmentFailure as error:
                self._fail(match, str(error))
            self._episode[lanes] += 1
            for lane in lanes:
                self._last.pop(lane, None)
        self._go_on({}, ids)
        return self._observe(ids)

    def step(self, actions: NDArray[Any], ids: Ids) -> StepResult:
        self._whole_matches(ids)
        turns = [self._turn(lane) for lane in ids.tolist()]
        chosen = {turn: action for turn, action, lane in zip(turns, actions, ids.tolist(), strict=True) if self.deciding[lane]}
        chosen = {turn: action for turn, action in chosen.items() if not self._failed(turn.match)}
        found = self._go_on(chosen, ids)
        waiting = Step(np.zeros(max(1, len(self._spec.rewards))), elapsed=0)
        steps = []
        for lane, turn in zip(ids.tolist(), turns, strict=True):
            over = self._last[lane] if self._over(turn.match) else waiting
            steps.append(found.get(turn, waiting)._replace(terminated=over.terminated, truncated=over.truncated))
        return step_result(steps, self._observe(ids), self._spec, self._weights)

    def result(self, index: int) -> Mapping[str, Any]:
        turn = self._turn(index)
        return {} if self._failed(turn.match) else self._matches.result(turn)

    def pop_latencies(self) -> tuple[list[float], int]:
        """Of live worlds, since the last call."""
        return pop_latencies(self._worlds)

    def close(self) -> None:
        close_worlds(self._matches, self._worlds)

    def _go_on(self, actions: dict[Turn, Any], ids: Ids) -> dict[Turn, Step]:
        """Take the actions, and go on until a copy has to decide in each of these matches."""
        lanes = {self._turn(lane): lane for lane in ids.tolist()}
        found: dict[Turn, Step] = {}
        for _ in range(MAX_DECISIONS):
            missing = [turn for turn in lanes if turn not in found and not self._failed(turn.match)]
            if not missing:
                break
            found |= {turn: step for turn, step in self._matches.act(actions, missing).items() if turn in lanes}
            for match in {turn.match for turn in lanes} & set(self._matches.failures):
                self._fail(match, self._matches.failures[match])
            self._last |= {lanes[turn]: step for turn, step in found.items() if step.over}
            waiting = {turn.match for turn in self._matches.waiting if turn in lanes}
            stuck = {turn.match for turn in missing if not self._over(turn.match)} - waiting
            actions = self._answers([turn for turn in self._matches.waiting if turn.match in stuck])
            if not actions:
                break
        else:
            for turn in missing:
                self._fail(turn.match, no_turn(turn.player))
        deciding = set(self._matches.waiting)
        for turn, lane in lanes.items():
            self.deciding[lane] = turn in deciding
        return found

    def _answers(self, turns: Sequence[Turn]) -> dict[Turn, Any]:
        """What the frozen policies decide for these players."""
        found: dict[Turn, Any] = {}
        for other in self._others:
            own = [turn for turn in turns if turn.player in other.names]
            obs = other.obs.empty(len(own))
            written = [row for row, turn in enumerate(own) if self._write(other.obs, obs, row, turn)]  # the others' matches have failed
            if written:
                answered = [own[row] for row in written]
                rows = np.array([turn.match * len(other.names) + other.names.index(turn.player) for turn in answered], np.intp)
                actions = other.policies.act(np.zeros(len(answered), np.int64), take(obs, np.array(written, np.intp)), rows)
                found |= dict(zip(answered, actions, strict=True))
        return found

    def _observe(self, ids: Ids) -> Observation:
        obs = {key: np.zeros_like(array) for key, array in self._spec.obs.empty(len(ids)).items()}  # who has had no turn sees nothing
        for row, lane in enumerate(ids.tolist()):
            turn = self._turn(lane)
            if self._failed(turn.match):
                continue
            if not self.deciding[lane] and lane not in self._last and self._spec.obs.frames > 1:
                self._fail(turn.match, TURNS_AND_FRAMES)
            if self._matches.controller(turn).observation is not None:
                self._write(self._spec.obs, obs, row, turn)
            if ACTION_MASK in obs and not self.deciding[lane]:
                obs[ACTION_MASK][row] = True  # whatever it chooses, nobody looks at it
        return obs

    def _write(self, spec: ObservationSpec, obs: Observation, row: int, turn: Turn) -> bool:
        """What a player sees; false, and a failure of its match, if that is not what its space says."""
        controller = self._matches.controller(turn)
        try:
            mask = {} if controller.legal is None else {ACTION_MASK: controller.legal}
            spec.write(obs, row, controller.observation, mask)
        except Exception as error:
            self._fail(turn.match, f"player {turn.player!r}: {describe_exception(error)}")
        return not self._failed(turn.match)

    def _fail(self, match: int, reason: str) -> None:
        self.failures.setdefault(self._lanes(match)[0], reason)

    def _failed(self, match: int) -> bool:
        return match in self._matches.failures or self._lanes(match)[0] in self.failures

    def _over(self, match: int) -> bool:
        """Whether the match is over for all copies."""
        return all(lane in self._last for lane in self._lanes(match))

    def _whole_matches(self, ids: Ids) -> list[int]:
        """The matches of these copies, each with all of its players."""
        matches = sorted({lane // len(self._names) for lane in ids.tolist()})
        if len(ids) != len(matches) * len(self._names):
            raise EnvironmentFailure("env.self_play, env.players: the players of a match are stepped together")
        return matches

    def _lanes(self, match: int) -> range:
        return range(match * len(self._names), (match + 1) * len(self._names))

    def _turn(self, lane: int) -> Turn:
        return Turn(lane // len(self._names), self._names[lane % len(self._names)])


TURNS_AND_FRAMES = "env.self_play, env.players: players that take turns see one frame at a time: set env.frame_stack=1"
