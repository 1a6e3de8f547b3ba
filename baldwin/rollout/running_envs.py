"""Environments side by side in the middle of their episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from baldwin.envs import Ids, LiveEnv, OpponentEnv, StepResult, TurnEnv, VectorEnv
from baldwin.errors import EnvironmentFailure
from baldwin.networks import (
    ActionMap,
    ObservationBuffer,
)
from baldwin.observations import ACTION_MASK, VECTOR, Observation, ObservationSpec, take
from baldwin.opponents import UNREPORTED, reported_win
from baldwin.rollout.collect_job import (
    LATENCIES,
    REPLACED,
    CollectJob,
)
from baldwin.rollout.episodes import NOT_FINITE, NOTHING_LEGAL, find_bad

NO_EPISODE = -1
GIVE_UP = 5  # steps of an environment, or beginnings, that fail in a row without a sound step in the segment, until that fails for all
LOST = "a match of a live world was lost with the worker that played it"


class RunningEnvs:
    """Environments side by side, where each is in its episode, and what the policy sees of it.

    An episode that fails ends there: its last step earned nothing, and shows what the one before showed. Its match has the same fate.
    """

    def __init__(self, envs: VectorEnv, obs_spec: ObservationSpec, act: ActionMap, live: bool = False) -> None:
        """`live`: they have a clock of their own, so that nobody can bring them to where others were."""
        self.envs, self._act, self._live = envs, act, live
        self._match_size = getattr(envs, "match_size", 1)
        self.ids = np.arange(envs.width, dtype=np.int32)
        self.episode = np.full(envs.width, NO_EPISODE, np.int64)
        self.elapsed = np.zeros(envs.width, np.int64)
        self.failures: dict[int, str] = {}  # environment -> why its episode failed with the last step, or did not begin
        self.seen = ObservationBuffer(obs_spec, envs.width)
        self.newest: Observation = obs_spec.empty(envs.width)  # without earlier frames
        if VECTOR in self.newest:
            self.newest[VECTOR] = self.newest[VECTOR].astype(np.float32)

    def latencies(self) -> dict[str, NDArray[Any]]:
        """Of live worlds since the last call: seconds from turns to their actions, and how many turns were replaced before their answer."""
        if not self._live:
            return {}
        seconds, replaced = cast("LiveEnv", self.envs).pop_latencies()
        return {LATENCIES: np.array(seconds, np.float32), REPLACED: np.array(replaced)}

    @property
    def deciding(self) -> NDArray[np.bool_] | None:
        """Whose next action counts [L], where players take turns; None: everybody's."""
        return cast("TurnEnv", self.envs).deciding.copy() if hasattr(self.envs, "deciding") else None

    def fast_forward(self, job: CollectJob, act: ActionMap) -> int:
        """Bring the environments to where the job continues; the number of steps that had to be simulated again."""
        lengths = np.array([len(p.actions) for p in job.positions])
        numbers = [p.episode for p in job.positions]
        if job.steps is not None and self.episode.tolist() == numbers and self.elapsed.tolist() == lengths.tolist():
            return 0
        if self._live and lengths.any():
            raise EnvironmentFailure(LOST)
        own_seeds, episodes = job.seeds()
        self.failures = {}
        self.envs.open(own_seeds, episodes)
        self.begin(self.ids, episodes, job, [position.opponent for position in job.positions] if job.opponents else None)
        self._raise_if(bool((self.episode != episodes)[lengths > 0].any()))
        for t in range(int(lengths.max(initial=0))):
            ids = self.ids[lengths > t]
            self.step(job.to_environment(act, np.stack([job.positions[n].actions[t] for n in ids.tolist()])), ids)
            self._raise_if(bool(self.failures))
        return int(lengths.sum())

    def _raise_if(self, failed: bool) -> None:
        if failed:
            raise EnvironmentFailure(next(iter(self.failures.values())))

    def wins(self, over: NDArray[np.int32]) -> NDArray[np.float32]:
        """What the world tells of who won in these environments [L], whose episodes are over; UNREPORTED for the others, and for failed ones."""
        tell: Callable[[int], Mapping[str, Any]] = getattr(self.envs, "result", lambda index: {})
        found = np.full(len(self.ids), UNREPORTED, np.float32)
        for n in over.tolist():
            if n not in self.failures:
                try:
                    found[n] = reported_win(tell(n))
                except EnvironmentFailure as error:
                    self.failures[n] = str(error)
        return found

    def begin(self, ids: Ids, episodes: NDArray[np.int64], job: CollectJob, opponents: Sequence[int] | None = None) -> None:
        """Reset these environments to the start of their next episodes, which have these numbers. Where one does not begin, the next one does.

        `opponents`: members of the pool that they are played against; default: those of whom the job chooses.

        Raises:
            EnvironmentFailure: several in a row did not begin; or one of a live world, or one that is needed whole.
        """
        for _ in range(1 if self._live or job.steps is None else GIVE_UP):
            if chosen := opponents or job.choose_opponents(ids, episodes):
                cast("OpponentEnv", self.envs).opponents[ids] = chosen
            self.episode[ids] = episodes
            self.elapsed[ids] = 0
            obs = self.envs.reset(ids)
            bad = self._find_failures(obs, ids, np.zeros(len(ids), np.bool_))
            if bad is None:
                return self._show(obs, ids, self.seen.begin)
            self._show(take(obs, ~bad), ids[~bad], self.seen.begin)
            ids, episodes, opponents = ids[bad], episodes[bad] + 1, None
        raise EnvironmentFailure(self.failures[int(ids[0])])

    def step(self, actions: NDArray[Any], ids: Ids) -> StepResult:
        """Step these environments with what they take for actions. `failures` tells whose episodes failed."""
        self.failures = {}
        result = self.envs.step(actions, ids)
        bad = self._find_failures(result.obs, ids, result.terminated | result.truncated, result.reward)
        if bad is not None:
            result = self._without(result, ids, bad)
        self._show(result.obs, ids, self.seen.advance)
        self.elapsed[ids] += 1
        return result

    def _find_failures(
        self, obs: Observation, ids: Ids, over: NDArray[np.bool_], reward: NDArray[Any] | None = None
    ) -> NDArray[np.bool_] | None:
        """Which of these environments [k] failed, or returned what is not finite or not legal; None if none did. `failures` tells why."""
        bad = find_bad(obs)
        if reward is not None and not np.isfinite(reward).all():
            bad = ~np.isfinite(reward) | (False if bad is None else bad)
        found = {} if bad is None else dict.fromkeys(ids[bad].tolist(), NOT_FINITE)
        if ACTION_MASK in obs:
            stuck = ~self._act.has_legal(torch.from_numpy(np.ascontiguousarray(obs[ACTION_MASK]))).numpy() & ~over
            found |= dict.fromkeys(ids[stuck].tolist(), NOTHING_LEGAL)
        if self.envs.failures:
            found |= {n: self.envs.failures.pop(n) for n in ids.tolist() if n in self.envs.failures}
        if not found:
            return None
        size = self._match_size
        whole = {lane: why for n, why in found.items() for lane in range(n - n % size, n - n % size + size)}
        self.failures |= whole
        return np.isin(ids, list(whole))

    def _without(self, result: StepResult, ids: Ids, bad: NDArray[np.bool_]) -> StepResult:
        """A step of which nothing came in these environments [k] but the end of the episode."""
        obs = {key: np.array(array) for key, array in result.obs.items()}
        for key, array in obs.items():
            array[bad] = self.newest[key][ids[bad]]
        reward, terminated, truncated = (np.array(array) for array in (result.reward, result.terminated, result.truncated))
        reward[bad], terminated[bad], truncated[bad] = 0.0, False, True
        components = None if result.components is None else np.where(bad[:, None], np.float32(0), result.components)
        elapsed = None if result.elapsed is None else np.where(bad, np.int32(1), result.elapsed)
        return StepResult(obs, reward, terminated, truncated, components, elapsed)

    def _show(self, obs: Observation, ids: Ids, take_in: Callable[[Any, Observation], None]) -> None:
        rows = slice(None) if len(ids) == len(self.ids) else ids
        for key, array in self.newest.items():
            array[rows] = obs[key]
        take_in(rows, obs)
