"""Matches whose players all share the policy that learns: every player is an environment of its own, and those of a match are stepped together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baldwin.envs.asynchronous import Step, World
from baldwin.envs.matches import Matches, Turn, close_worlds, step_result
from baldwin.envs.vector_env import EnvSpec, Ids, StepResult
from baldwin.errors import EnvironmentFailure, describe_exception
from baldwin.observations import ACTION_MASK, Observation
from baldwin.ops.seeds import mix


class SelfPlayEnvs:
    """Copy n is player n mod P of match n div P.

    A step takes a match to where somebody has to decide again. Whoever has not to, waits: its action counts for nothing, and what comes of
    its last decision is in the step in which it comes. A match ends for all its players at once, when it is over for the last of them.
    """

    def __init__(self, make_world: Callable[[], World], env_spec: EnvSpec, width: int, weights: NDArray[np.float32]) -> None:
        """`width`: a multiple of the number of players; `weights` of the components of the reward."""
        self.width = width
        self.failures: dict[int, str] = {}
        self.deciding = np.ones(width, np.bool_)
        self._worlds = [make_world() for _ in range(width // env_spec.players)]
        self._names = [player.name for player in self._worlds[0].players]
        self._spec, self._weights = env_spec, weights
        self._matches = Matches()
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
            try:
                self._matches.begin(match, self._worlds[match], mix(int(self._seeds[lanes[0]]), int(self._episode[lanes[0]])), self._names)
            except EnvironmentFailure as error:
                self.failures[lanes[0]] = str(error)
            self._episode[lanes] += 1
            for lane in lanes:
                self._last.pop(lane, None)
        self._go_on({}, ids)
        return self._observe(ids)

    def step(self, actions: NDArray[Any], ids: Ids) -> StepResult:
        self._whole_matches(ids)
        turns = [self._turn(lane) for lane in ids.tolist()]
        chosen = {turn: action for turn, action, lane in zip(turns, actions, ids.tolist(), strict=True) if self.deciding[lane]}
        found = self._go_on(chosen, ids)
        waiting = Step(np.zeros(max(1, len(self._spec.rewards))), elapsed=0)
        steps = []
        for lane, turn in zip(ids.tolist(), turns, strict=True):
            over = self._last[lane] if all(other in self._last for other in self._lanes(turn.match)) else waiting
            steps.append(found.get(turn, waiting)._replace(terminated=over.terminated, truncated=over.truncated))
        return step_result(steps, self._observe(ids), self._spec, self._weights)

    def close(self) -> None:
        close_worlds(self._matches, self._worlds)

    def _go_on(self, actions: dict[Turn, Any], ids: Ids) -> dict[Turn, Step]:
        """Take the actions, and go on until somebody has to decide in each of these matches."""
        found = self._matches.act(actions, [self._turn(lane) for lane in ids.tolist()])
        for match, reason in self._matches.failures.items():
            self.failures.setdefault(self._lanes(match)[0], reason)
        deciding = set(self._matches.waiting)
        for lane in ids.tolist():
            turn = self._turn(lane)
            self.deciding[lane] = turn in deciding
            if turn in found and found[turn].over:
                self._last[lane] = found[turn]
        return found

    def _observe(self, ids: Ids) -> Observation:
        obs = {key: np.zeros_like(array) for key, array in self._spec.obs.empty(len(ids)).items()}  # who has had no turn sees nothing
        for row, lane in enumerate(ids.tolist()):
            turn = self._turn(lane)
            if turn.match in self._matches.failures or lane in self.failures:
                continue
            if not self.deciding[lane] and lane not in self._last and self._spec.obs.frames > 1:
                self.failures[lane] = TURNS_AND_FRAMES
            controller = self._matches.controller(turn)
            mask = {} if controller.legal is None else {ACTION_MASK: controller.legal}
            try:
                if controller.observation is not None:
                    self._spec.obs.write(obs, row, controller.observation, mask)
            except (ValueError, TypeError, KeyError) as error:
                self.failures[lane] = f"player {turn.player!r}: {describe_exception(error)}"
            if ACTION_MASK in obs and not self.deciding[lane]:
                obs[ACTION_MASK][row] = True  # whatever it chooses, nobody looks at it
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


TURNS_AND_FRAMES = "env.self_play: players that take turns see one frame at a time: set env.frame_stack=1"
