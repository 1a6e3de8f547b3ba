"""Training episodes whose transitions are stored: whole ones, or segments that continue from one job to the next.

An environment in the middle of an episode cannot be saved. But an episode is a pure function of its seed and its
actions, so a job says which episode each environment is in and which actions it has taken: a worker whose environments
are there continues them, any other one takes those actions again first. That makes a segment a pure function of its job.

An episode that fails ends with a step of which nothing came: no reward, truncated, and the observation is the one before. The next episode of that
environment begins, and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baldwin.envs import Ids, LiveEnv, OpponentEnv, StepResult, TurnEnv, VectorEnv
from baldwin.errors import EnvironmentFailure
from baldwin.networks import (
    ActionDistribution,
    ActionMap,
    Forward,
    Inputs,
    ObservationBuffer,
    Sampler,
    make_sampler,
    to_environment,
)
from baldwin.observations import ACTION_MASK, VECTOR, Observation, ObservationSpec, take
from baldwin.opponents import SCRIPT, UNTOLD, WIN, Mixture, told_win
from baldwin.ops import seeds
from baldwin.rollout.episodes import NOT_FINITE, NOTHING_LEGAL, find_bad
from baldwin.rollout.exploration import Amount, Exploration, log_probs, policy_actions, random_actions
from baldwin.rollout.novelty import Novelty
from baldwin.types import Arrays, Outcome, Worker

OBS, NEXT_OBS, FINAL_OBS, START_OBS = "obs/", "next_obs/", "final_obs/", "start_obs/"
MEMORY, START_MEMORY, MEMORIES, DECIDED = "memory", "start_memory", "memories", "decided"
"""Names, or prefixes of names, of a segment's arrays."""
INITIAL_ERROR = "initial_error"  # [L, T], where a job asks for errors
FAILED, UNBEGUN, CUT = "failed", "unbegun", "cut"
"""Names of a segment's arrays where episodes failed: those that failed with a step [L, T]; how many did not begin before a step, or after the
last one [L, T + 1]; [] if the segment ends there for all of its environments."""
LATENCIES, REPLACED = "latencies", "replaced_turns"
"""Names of a segment's arrays in live worlds: seconds [n] from turns to their actions, and turns [] that took the place of unanswered ones."""
NOT_BEGUN = "an episode did not begin"
NO_EPISODE = -1
UNKNOWN_STEPS = 128  # for which there is space at first in an episode that is collected whole
GIVE_UP = 5  # steps of an environment, or beginnings, that fail in a row without a sound step in the segment, until that fails for all
LOST = "a match of a live world was lost with the worker that played it"
ACTOR = "actor"
"""The key under which the parameters that act are shared, where they are too large to travel with every job."""


@dataclass(frozen=True, slots=True)
class EpisodePosition:
    """Where an environment is: in which of its episodes, after which actions (as the learner knows them), and what the policy remembers."""

    env: int
    episode: int
    actions: NDArray[Any]  # [n, A] in [-1, 1], [n] indices, or [n, columns] as a distribution stores them
    memory: NDArray[np.float32] = field(
        default_factory=lambda: np.zeros(0, np.float32)
    )  # [S]; it depends on policies that are gone, so that nobody could compute it again
    opponent: int = SCRIPT  # the number of the member of the pool that it is played against


class Lookahead(NamedTuple):
    """How far TD errors look ahead."""

    n_step: int
    gamma: float


@dataclass(frozen=True, slots=True)
class CollectJob:
    """Continue these environments for so many steps each, or a single one to the end of its episode."""

    ticket: int
    seed: int  # of the run
    params: NDArray[np.float32] | None  # that act; None: those shared as `ACTOR` in `actor_version`
    obs_moments: NDArray[np.float64]
    positions: tuple[EpisodePosition, ...]
    steps: int | None  # None: to the end of the episode
    explore: Exploration
    noise: Amount = (
        0.0  # standard deviation, in units of half the action range; of epsilon, the probability of a random action; or one for each
    )
    max_episode_steps: int | None = None
    stream: int | None = None
    actor_version: int = 0
    log_std: NDArray[np.float32] | None = None  # distribution: of continuous actions, where the network gives only means
    journal_images: bool = True  # false: images are derived arrays, which the journal leaves out
    opponents: Mixture | None = None  # of which episodes that begin in this job choose
    novelty: Novelty | None = None  # what chooses among several draws of the policy
    keep_memory: bool = False  # of the policy before every step
    keep_log_prob: bool = False  # of every action
    errors: Lookahead | None = None  # the network gives Q-values: their TD errors come with the steps

    @property
    def kind(self) -> str:
        """What `baldwin timeline` calls such a job."""
        return "collect"

    @property
    def tickets(self) -> tuple[int, ...]:
        """Its ticket: such a job has one outcome."""
        return (self.ticket,)

    def run(self, worker: Worker) -> list[Outcome]:
        """One outcome; its arrays are those of `collect`."""
        return [worker.collect(self)]

    def seeds(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Seeds of the environments, and the numbers of the episodes they are in. A whole episode has a seed of its own."""
        episodes = np.array([p.episode for p in self.positions], np.int64)
        if self.steps is None:
            return episode_seed(self.seed, self.positions[0].env, self.positions[0].episode), np.zeros(1, np.int64)
        return np.concatenate([env_seed(self.seed, p.env) for p in self.positions]), episodes

    def choose_opponents(self, ids: NDArray[np.int32], episodes: NDArray[np.int64]) -> list[int] | None:
        """Whom these environments of the job meet in their episodes of these numbers."""
        if self.opponents is None:
            return None
        return [self.opponents.choose(self.seed, self.positions[n].env, e) for n, e in zip(ids.tolist(), episodes.tolist(), strict=True)]

    def to_environment(self, act: ActionMap, actions: NDArray[Any]) -> NDArray[Any]:
        """What the environments take for actions as the learner knows them."""
        return to_environment(act, actions) if self.explore == "distribution" or act.in_rows else act.unscale_action(actions)


def env_seed(seed: int, env: int) -> NDArray[np.int64]:
    """The seed [1] of an environment that collects segments; its episodes are numbered."""
    return seeds.seeds(1, seed, seeds.Stream.COLLECT, env)


def episode_seed(seed: int, env: int, episode: int) -> NDArray[np.int64]:
    """The seed [1] of a whole episode that is collected."""
    return seeds.seeds(1, seed, seeds.Stream.COLLECT, env, episode)


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
        """What the world tells of who won in these environments [L], whose episodes are over; UNTOLD for the others, and for failed ones."""
        tell: Callable[[int], Mapping[str, Any]] = getattr(self.envs, "result", lambda index: {})
        found = np.full(len(self.ids), UNTOLD, np.float32)
        for n in over.tolist():
            if n not in self.failures:
                try:
                    found[n] = told_win(tell(n))
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


class Recorder:
    """The steps of a segment as they happen: arrays [L, T, ...] by name, written in place."""

    def __init__(self, running: RunningEnvs, steps: int | None, unbegun: NDArray[np.int64] | None = None) -> None:
        """`steps`: how many there will be; None: nobody knows. `unbegun`: as in `add_observation`."""
        self._running, self._steps = running, steps or UNKNOWN_STEPS
        self.count = 0  # steps so far
        self._seen = 0  # observations so far: one more, unless the next episode did not begin
        self._arrays: dict[str, NDArray[Any]] = {}
        self.deciding: NDArray[np.bool_] | None = None  # whose next action counts; None: everybody's
        self.outputs: list[Tensor] = []  # of the network, where log-probabilities are asked for
        self.masks: list[Tensor] = []
        self.memories: list[Tensor] = []  # before each step, where they are asked for
        self.log_probs: list[Tensor] = []  # the same
        self.final: list[list[Observation]] = [[] for _ in running.ids]
        self.reason = ""  # of the first failure
        self._failed: list[tuple[int, list[int]]] = []  # step, and whose episodes failed with it
        self._unbegun: list[tuple[int, NDArray[np.int64]]] = []  # observation, and how many episodes [L] did not begin before it
        self.add_observation(unbegun)

    def add(self, actions: NDArray[Any], step: StepResult, truncated: NDArray[np.bool_], over: NDArray[np.int32], games: bool) -> None:
        """One step of all environments; `truncated` by a time limit too; `over`: those whose episodes ended; `games`: against a pool."""
        self._put("action", self.count, actions)
        self._put("reward", self.count, step.reward, np.float32)
        self._put("terminated", self.count, step.terminated)
        self._put("truncated", self.count, truncated)
        if step.components is not None:
            self._put("rewards", self.count, step.components)
        if step.elapsed is not None:
            self._put("elapsed", self.count, step.elapsed)
        if games:
            self._put(WIN, self.count, self._running.wins(over))
        if self._running.failures:
            self._failed.append((self.count, list(self._running.failures)))
            self._note_reason()
        self.count += 1
        for n in over.tolist():
            self.final[n].append({key: array[n].copy() for key, array in self._running.seen.arrays.items()})

    def add_observation(self, unbegun: NDArray[np.int64] | None = None) -> None:
        """What is seen now: after an episode's end, the first observation of the next one. `unbegun`: how many did not begin before it [L]."""
        if unbegun is not None and unbegun.any():
            self._unbegun.append((self._seen, unbegun))
            self._note_reason()
        for key, array in self._running.newest.items():
            self._put(OBS + key, self._seen, array)
        self.deciding = self._running.deciding
        if self.deciding is not None:
            self._put(DECIDED, self._seen, self.deciding)
        self._seen += 1

    def _note_reason(self) -> None:
        self.reason = self.reason or next(iter(self._running.failures.values()), NOT_BEGUN)

    def cut(self) -> None:
        """End with the steps so far."""
        if self._seen == self.count:  # the next episode did not begin
            self.add_observation()

    @property
    def failed(self) -> NDArray[np.bool_]:
        """The steps with which an episode failed [L, T]."""
        found = np.zeros((len(self.final), self.count), np.bool_)
        for step, envs in self._failed:
            found[envs, step] = True
        return found

    def failures(self) -> dict[str, NDArray[Any]]:
        """Episodes that failed and that did not begin, if there were any."""
        if not self.reason:
            return {}
        unbegun = np.zeros((len(self.final), self._seen), np.int64)
        for at, counts in self._unbegun:
            unbegun[:, at] += counts
        return {FAILED: self.failed, UNBEGUN: unbegun}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The steps as arrays by name, as `collect` returns them."""
        found = {name: np.ascontiguousarray(a[:, : self.count + _is_seen(name)]) for name, a in self._arrays.items()}
        if DECIDED in found and found[DECIDED].all():
            del found[DECIDED]
        final_obs = [o for own in self.final for o in own]
        for key, array in self._running.seen.arrays.items():
            found[FINAL_OBS + key] = np.stack([o[key] for o in final_obs]) if final_obs else np.empty((0, *array.shape[1:]), array.dtype)
        return found

    def _put(self, name: str, step: int, values: NDArray[Any], dtype: Any = None) -> None:
        """The values [L, ...] of one step."""
        array = self._arrays.get(name)
        if array is None:
            shape = len(values), self._steps + _is_seen(name), *values.shape[1:]
            array = self._arrays[name] = np.empty(shape, dtype or values.dtype)
        elif step >= array.shape[1]:
            array = self._arrays[name] = np.concatenate((array, np.empty_like(array)), 1)
        array[:, step] = values

    def kept(self) -> dict[str, NDArray[Any]]:
        """What the job asked for of every step: memories [L, T, S], log_prob [L, T]."""
        found = {MEMORIES: self.memories[: self.count], "log_prob": self.log_probs[: self.count]}
        return {name: torch.stack(values, 1).numpy() for name, values in found.items() if values}

    def log_prob(self, act: ActionMap, log_std: Tensor | None) -> NDArray[np.float32]:
        """Log-probabilities [L, T] of the actions."""
        actions = torch.from_numpy(self._arrays["action"][:, : self.count])  # [L, T, columns]
        mask = torch.stack(self.masks[: self.count], 1).flatten(0, 1) if self.masks else None
        outputs = torch.stack(self.outputs[: self.count], 1).flatten(0, 1)
        found = ActionDistribution(act, outputs, mask, log_std)
        return np.asarray(found.log_prob(actions.flatten(0, 1)).view(actions.shape[:2]).numpy())


def _is_seen(name: str) -> bool:
    """Whether an array tells what is seen: before every step, and after the last one."""
    return name.startswith(OBS) or name == DECIDED


@torch.inference_mode()
def collect(
    running: RunningEnvs, forward: Forward, act: ActionMap, job: CollectJob, features: Forward | None = None
) -> tuple[Arrays, int, str]:
    """Step the environments of a job. `forward`: of one network, (observations [L, ...], memory [L, S]) -> (outputs, memory).

    `features`: the same for what is behind its encoders and memory, which a job with novelty needs.

    Returns, for each key of an observation, obs/KEY [L, T + 1, ...] (newest frames; after an episode's end, the first of the
    next one) and final_obs/KEY [ends, ...] (all frames), environment by environment; action, reward and flags [L, T]; rewards
    [L, T, C] and elapsed [L, T], where the environment gives them; win [L, T], who won where an episode ended, in games against a pool; memory [L, S] after the last step, if the policy has any;
    memories [L, T, S] before each step and log_prob [L, T], where the job keeps them.
    Of actions from a distribution also log_prob [L, T], start_memory [L, S], and start_obs/KEY [L, ...], the first observation
    with all frames, of images that are stacked. Where players take turns, decided [L, T + 1] says whose actions count. Where episodes failed,
    failed, unbegun and cut. Then the number of steps that were simulated again, and why the first episode failed, if one did.

    Raises:
        EnvironmentFailure: an environment failed in all of its steps, five at least, or all did; or one in an episode that is needed whole.
    """
    rng = seeds.generator(job.seed, seeds.Stream.EXPLORE, job.ticket)
    replayed = running.fast_forward(job, act)
    memory = torch.from_numpy(np.stack([position.memory for position in job.positions]))
    log_std = None if job.log_std is None else torch.from_numpy(job.log_std)
    sample = make_sampler(act, log_std)
    numbers = np.array([position.episode for position in job.positions])
    record = Recorder(running, job.steps, None if job.steps is None else running.episode - numbers)
    start: dict[str, NDArray[Any]] = {}
    if job.explore == "distribution":
        start = {START_OBS + key: array.copy() for key, array in running.seen.arrays.items() if array.shape != running.newest[key].shape}
        start |= {START_MEMORY: memory.numpy().copy()} if memory.shape[1] else {}
    limit = job.max_episode_steps or np.iinfo(np.int64).max
    cut = False
    while record.count != job.steps:
        try:
            before, deciding = memory, record.deciding
            if job.keep_memory:
                record.memories.append(memory)
            actions, memory = choose_actions(forward, act, job, running.seen.tensors, memory, rng, record, sample, features)
            if deciding is not None and memory.shape[1]:
                memory = torch.where(torch.from_numpy(deciding)[:, None], memory, before)  # who waits has seen nothing new
            step = running.step(job.to_environment(act, actions), running.ids)
            truncated = ~step.terminated & (step.truncated | (running.elapsed >= limit))
            over = running.ids[step.terminated | truncated]
            record.add(actions, step, truncated, over, games=job.opponents is not None)
            if len(over) and memory.shape[1]:
                memory = memory.clone()  # a module may give out its state as output, too
                memory[torch.from_numpy(over).long()] = 0.0
            if job.steps is None and record.reason:
                raise EnvironmentFailure(record.reason)
            unbegun = np.zeros(len(running.ids), np.int64)
            if job.steps is None and len(over):
                running.episode[:] = NO_EPISODE
            elif len(over):
                numbers = running.episode[over] + 1
                running.begin(over, numbers, job)
                unbegun[over] = running.episode[over] - numbers
            record.add_observation(unbegun)
        except EnvironmentFailure as error:
            if job.steps is None or not record.count:
                raise
            cut, record.reason = True, record.reason or str(error)
            record.cut()
            break
        if job.steps is None and len(over):
            break
    failed = record.failed
    if failed.all() or (record.count >= GIVE_UP and failed.all(1).any()):
        raise EnvironmentFailure(record.reason)
    arrays = record.arrays() | start | record.kept() | running.latencies() | record.failures() | ({CUT: np.array(True)} if cut else {})
    if job.explore == "distribution":
        arrays["log_prob"] = record.log_prob(act, log_std)
    return arrays | ({MEMORY: memory.numpy()} if memory.shape[1] else {}), replayed, record.reason


def is_lost(outcome: Outcome) -> bool:
    """Whether all open episodes of a job's environments are given up: its segment failed, or was cut short."""
    return outcome.failed or CUT in outcome.arrays


def transitions(arrays: Arrays) -> Iterator[dict[str, NDArray[Any]]]:
    """The steps of each environment as rows for a replay buffer: obs/KEY and next_obs/KEY (newest frames), action, reward, flags.

    Also the memory before each step and the log-probability of its action, where the job kept them, and its frames, where the environment says them.
    Of players that take turns, rows are steps of the game, whoever decides.
    """
    used = 0
    keys = [name.removeprefix(OBS) for name in arrays if name.startswith(OBS)]
    for n in range(len(arrays["reward"])):
        rows = {name: arrays[name][n] for name in ("action", "reward", "terminated", "truncated")}
        rows |= {own: arrays[name][n] for name, own in ((MEMORIES, MEMORY), ("log_prob", "log_prob")) if name in arrays}
        rows |= {"elapsed": arrays["elapsed"][n]} if "elapsed" in arrays else {}
        ended = rows["terminated"] | rows["truncated"]
        ends = slice(used, used + int(ended.sum()))
        used = ends.stop
        for key in keys:
            obs = arrays[OBS + key][n]
            next_obs = obs[1:].copy()
            next_obs[ended] = arrays[FINAL_OBS + key][ends][:, -obs.shape[1] :]
            rows |= {OBS + key: obs[:-1], NEXT_OBS + key: next_obs}
        yield rows


def final_observations(arrays: Arrays) -> Iterator[Observation]:
    """The last observation [1, ...] of every episode that ended, with all frames, in the order of `transitions`."""
    names = [name for name in arrays if name.startswith(FINAL_OBS)]
    for n in range(len(arrays[names[0]])):
        yield {name.removeprefix(FINAL_OBS): arrays[name][n : n + 1] for name in names}


def choose_actions(
    forward: Forward,
    act: ActionMap,
    job: CollectJob,
    obs: Inputs,
    memory: Tensor,
    rng: np.random.Generator,
    record: Recorder,
    sample: Sampler,
    features: Forward | None = None,
) -> tuple[NDArray[Any], Tensor]:
    """Actions as the learner knows them, and the memory after this step."""
    count, mask = memory.shape[0], obs.get(ACTION_MASK)
    if job.explore == "distribution":
        out, memory = forward(obs, memory)
        record.outputs.append(out)
        if mask is not None:
            record.masks.append(mask.clone())
        return sample(out, mask, rng), memory
    out, before = torch.empty(count, 0), memory
    if job.explore != "random" or memory.shape[1]:
        out, memory = forward(obs, memory)
    if job.novelty and features and job.explore != "random":
        score = job.novelty.score(features(obs, before)[0])
        actions, log_prob = job.novelty.choose(act, job.explore, job.noise, out, mask, rng, score, with_log_prob=job.keep_log_prob)
        if job.keep_log_prob:
            record.log_probs.append(log_prob)
        return actions, memory
    if job.explore == "random":
        actions = random_actions(act, count, mask, rng)
    else:
        actions = policy_actions(act, job.explore, job.noise, out, mask, rng)
    if job.keep_log_prob:
        record.log_probs.append(log_probs(act, job.explore, job.noise, out, mask, actions))
    return actions, memory
