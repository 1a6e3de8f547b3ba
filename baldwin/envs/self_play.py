"""Matches whose players all share the policy that learns: every player is an environment of its own, and those of a match are stepped together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baldwin.envs.asynchronous import Step, World
from baldwin.envs.matches import Matches, Turn, close_worlds, step_result
from baldwin.envs.vector_env import EnvSpec, Ids, StepResult
from baldwin.errors import EnvironmentFailure
from baldwin.observations import ACTION_MASK, Observation
from baldwin.ops.seeds import mix


class SelfPlayEnvs:
    """Copy n is player n mod P of match n div P. For worlds in which all players decide at the same time, to the end."""

    def __init__(self, make_world: Callable[[], World], env_spec: EnvSpec, width: int, weights: NDArray[np.float32]) -> None:
        """`width`: a multiple of the number of players; `weights` of the components of the reward."""
        self.width = width
        self.failures: dict[int, str] = {}
        self._worlds = [make_world() for _ in range(width // env_spec.players)]
        self._names = [player.name for player in self._worlds[0].players]
        self._spec, self._weights = env_spec, weights
        self._matches = Matches()
        self._seeds = np.zeros(width, np.int64)
        self._episode = np.zeros(width, np.int64)

    def open(self, seeds: NDArray[np.int64], first_episode: int | NDArray[np.int64]) -> None:
        self._seeds[:] = seeds
        self._episode[:] = first_episode
        self.failures.clear()

    def reset(self, ids: Ids) -> Observation:
        for match in self._whole_matches(ids):
            lanes = self._lanes(match)
            try:
                self._matches.begin(match, self._worlds[match], mix(int(self._seeds[lanes[0]]), int(self._episode[lanes[0]])), self._names)
            except EnvironmentFailure as error:
                self.failures[lanes[0]] = str(error)
            self._episode[lanes] += 1
        self._go_on({}, ids)
        return self._observe(ids)

    def step(self, actions: NDArray[Any], ids: Ids) -> StepResult:
        self._whole_matches(ids)
        turns = [self._turn(lane) for lane in ids.tolist()]
        found = self._go_on(dict(zip(turns, actions, strict=True)), ids)
        nothing = Step(np.zeros(max(1, len(self._spec.rewards))), terminated=True)
        steps = [found.get(turn, nothing) for turn in turns]
        self._refuse_early_leavers(dict(zip(ids.tolist(), steps, strict=True)))
        return step_result(steps, self._observe(ids), self._spec, self._weights)

    def close(self) -> None:
        close_worlds(self._matches, self._worlds)

    def _go_on(self, actions: dict[Turn, Any], ids: Ids) -> dict[Turn, Step]:
        found = self._matches.act(actions, [self._turn(lane) for lane in ids.tolist()])
        for match, reason in self._matches.failures.items():
            self.failures.setdefault(self._lanes(match)[0], reason)
        for lane in ids.tolist():
            if self._turn(lane) not in found and lane // len(self._names) not in self._matches.failures:
                self.failures.setdefault(lane, "env.self_play: the players of a match do not decide at the same time. " + ALTERNATIVE)
        return found

    def _refuse_early_leavers(self, steps: dict[int, Step]) -> None:
        for lane, step in steps.items():
            if step.over != steps[self._lanes(lane // len(self._names))[0]].over:
                self.failures.setdefault(lane, "env.self_play: a match ended for one player before the others. " + ALTERNATIVE)

    def _observe(self, ids: Ids) -> Observation:
        obs = self._spec.obs.empty(len(ids))
        for row, lane in enumerate(ids.tolist()):
            turn = self._turn(lane)
            if turn.match in self._matches.failures or lane in self.failures:
                continue
            controller = self._matches.controller(turn)
            mask = {} if controller.legal is None else {ACTION_MASK: controller.legal}
            self._spec.obs.write(obs, row, controller.observation, mask)
        return obs

    def _whole_matches(self, ids: Ids) -> list[int]:
        """The matches of these copies, each with all of its players."""
        matches = sorted({lane // len(self._names) for lane in ids.tolist()})
        if len(ids) != len(matches) * len(self._names):
            raise EnvironmentFailure("env.self_play: the players of a match are stepped together")
        return matches

    def _lanes(self, match: int) -> list[int]:
        return list(range(match * len(self._names), (match + 1) * len(self._names)))

    def _turn(self, lane: int) -> Turn:
        return Turn(lane // len(self._names), self._names[lane % len(self._names)])


ALTERNATIVE = "Leave it out: one player then learns against the world's script"
