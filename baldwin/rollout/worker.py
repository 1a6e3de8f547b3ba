"""A worker: copies of one environment, one policy network, and what was shared with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from baldwin.envs import EnvConfig, EnvSpec, OpponentEnv, OtherPlayers, VectorEnv, make_players_env, make_resumable_env, make_vector_env
from baldwin.errors import StaleShare
from baldwin.networks import ActionMap, Forward, Normalizer, PolicyConfig, make_network, stack_trials
from baldwin.observations import Observation
from baldwin.opponents import GAMES, OPPONENTS, WIN
from baldwin.ops.moments import Moments
from baldwin.ops.threads import one_numpy_thread, one_thread
from baldwin.rollout.acting_errors import acting_errors
from baldwin.rollout.collect_job import ACTOR, CUT, DECIDED, INITIAL_ERROR, CollectJob
from baldwin.rollout.episodes import RolloutSpec, play_episodes
from baldwin.rollout.fingerprint import arithmetic_fingerprint, digest, env_fingerprint
from baldwin.rollout.opponent_policies import FrozenPlayers, PoolPolicies, features_for_all, one_for_all
from baldwin.rollout.results import RESULT
from baldwin.rollout.running_envs import RunningEnvs
from baldwin.rollout.scripts import Script, script_of
from baldwin.rollout.segments import collect
from baldwin.types import CENTER, Arrays, Fingerprint, Outcome, Shared, Trial

ON_DEMAND_BYTES = 2**28  # of values on demand that a worker keeps, besides the newest


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """All that it takes to make a worker, in any process."""

    env: EnvConfig
    env_spec: EnvSpec
    policy: PolicyConfig
    reference: Observation = field(default_factory=dict)  # fixed observations, where the network needs some
    others: tuple[FrozenPlayers, ...] = ()  # who plays players that the policy does not; the world's script plays the rest

    def __call__(self) -> RolloutWorker:
        """A new worker, which makes its environments when a job needs them."""
        return RolloutWorker(self)


class RolloutWorker:
    """Plays what jobs ask for. On one thread: the executor brings the cores, and one thread always rounds alike."""

    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec
        self._act = ActionMap(spec.env_spec.action_space, spec.policy.squash, spec.policy.head)
        self._network = make_network(spec.policy, spec.env_spec.obs, self._act.outputs)
        if spec.reference:
            self._network.set_reference(spec.reference)
        self._vector_envs: dict[str, VectorEnv] = {}  # purpose -> environments for whole episodes
        self._running: dict[tuple[int, ...], RunningEnvs] = {}  # environment numbers -> those that collect segments
        self._members: dict[tuple[int, int], Forward] = {}
        self._scripts: dict[int, Script | None] = {}
        self._shared: dict[str, dict[int, Arrays]] = {}  # key -> version -> arrays
        self._on_demand: dict[str, Arrays] = {}  # key -> arrays, the least recently used first
        self._machine: Fingerprint = {}

    def receive(self, shared: Shared) -> None:
        """Keep a copy of a shared value; drop versions of its key before `oldest`. Of those on demand, the least recently used go."""
        if shared.on_demand:
            self._on_demand.pop(shared.key, None)
            if shared.version >= shared.oldest:
                self._on_demand[shared.key] = {name: np.array(array) for name, array in shared.arrays.items()}
            while len(self._on_demand) > 1 and sum(a.nbytes for v in self._on_demand.values() for a in v.values()) > ON_DEMAND_BYTES:
                del self._on_demand[next(iter(self._on_demand))]
            return
        versions = self._shared.setdefault(shared.key, {})
        versions[shared.version] = {name: np.array(array) for name, array in shared.arrays.items()}
        for version in [v for v in versions if v < shared.oldest]:
            del versions[version]
        if shared.key == OPPONENTS:
            self._members = {at: forward for at, forward in self._members.items() if at[0] >= shared.oldest}
            self._scripts = {}

    def shared(self, key: str, version: int) -> Arrays:
        """A shared value.

        Raises:
            StaleShare: this worker does not hold that version.
        """
        if key in self._on_demand:
            self._on_demand[key] = self._on_demand.pop(key)
            return self._on_demand[key]
        versions = self._shared.get(key, {})
        if version not in versions:
            raise StaleShare(f"the job was made for version {version} of {key!r}; this worker holds {sorted(versions)}")
        return versions[version]

    def held_on_demand(self) -> tuple[str, ...]:
        """Keys of the values on demand that this worker holds."""
        return tuple(self._on_demand)

    def evaluate(self, trials: Sequence[Trial], spec: RolloutSpec) -> list[Outcome]:
        """One outcome per trial, in order; the block's observation moments, and its games against a pool, travel with the first.

        Where the policy plays several players of a match, each is a row of the block: a trial has their mean return and all their steps.
        """
        players = self._spec.env_spec.policy_players
        spec = spec.for_players(players)
        center = torch.empty(0)
        moments = spec.obs_moments
        if moments is None:  # the trials are perturbations of a shared center
            shared = self.shared(CENTER, spec.version)
            center = torch.from_numpy(np.asarray(shared["params"], np.float32))
            moments = shared["obs_moments"]
        normalize = Normalizer(self._spec.policy, Moments.unpack(np.asarray(moments)))
        rows = [trial for trial in trials for _ in range(players)]
        stack = stack_trials(self._network, rows, center, len(spec.seeds))
        envs = self._vector_env_for(spec)
        with one_thread():
            played = play_episodes(
                envs, self._spec.env_spec.obs, stack, len(rows), normalize, self._act, spec, self._spec.env_spec.rewards, players
            )
        moved = {"obs_moments": played.moments.pack()} if spec.collect_moments else {}
        moved |= {GAMES: played.games()} if spec.opponents else {}
        return [
            Outcome(
                trial.id,
                mean_return(played.returns[n], spec.skip_failed_episodes),
                env_steps=int(played.lengths[n].sum()),
                truncated=float(played.truncated[n].mean()),
                reason=played.reasons.get(n, ""),
                arrays=({} if n else moved) | {RESULT + name: values[n] for name, values in played.results.items()},
            )
            for n, trial in enumerate(trials)
        ]

    def collect(self, job: CollectJob) -> Outcome:
        """Transitions in the outcome's arrays; `reason` says why the first episode failed, if one did."""
        normalize = Normalizer(self._spec.policy, Moments.unpack(job.obs_moments))
        params = self.shared(ACTOR, job.actor_version)["params"] if job.params is None else job.params
        forward = one_for_all(self._network, np.array(params), normalize, len(job.positions))
        features = features_for_all(self._network, np.array(params), normalize) if job.novelty else None
        key = tuple(position.env for position in job.positions)
        if key not in self._running:
            envs = (
                self._make_with_opponents(len(key))
                if job.opponents
                else make_resumable_env(self._spec.env, self._spec.env_spec, len(key), others=self._others(len(key)))
            )
            self._running[key] = RunningEnvs(envs, self._spec.env_spec.obs, self._act, self._spec.env_spec.live)
        try:
            with one_thread(), one_numpy_thread():
                arrays, replayed, reason = collect(self._running[key], forward, self._act, job, features)
        except BaseException:
            self._running.pop(key).envs.close()
            raise
        if CUT in arrays:
            self._running.pop(key).envs.close()
        if job.errors and DECIDED not in arrays:
            q_network = one_for_all(self._network, np.array(params), normalize, arrays["reward"].shape[1])
            with one_thread(), one_numpy_thread():
                arrays = {**arrays, INITIAL_ERROR: acting_errors(q_network, arrays, job.errors)}
        total = float(arrays["reward"].sum(dtype=np.float64))
        if job.opponents and job.steps is None:
            arrays = {**arrays, GAMES: np.array([[job.positions[0].opponent, total, arrays[WIN][0, -1]]])}
        images = () if job.journal_images else tuple("/" + sensor.key for sensor in self._spec.env_spec.obs.images)
        derived = {name: array for name, array in arrays.items() if images and name.endswith(images)}
        return Outcome(
            job.ticket,
            total,
            env_steps=int(arrays[DECIDED][:, :-1].sum()) if DECIDED in arrays else arrays["reward"].size,
            arrays={name: array for name, array in arrays.items() if name not in derived},
            derived=derived,
            replayed_steps=replayed,
            reason=reason,
        )

    def _others(self, width: int) -> list[OtherPlayers]:
        """Frozen players of the matches that so many copies are in."""
        return [frozen.at_play(width // self._spec.env_spec.policy_players) for frozen in self._spec.others]

    def _make_with_opponents(self, width: int) -> VectorEnv:
        """Environments whose opponents are members of the pool."""
        envs = make_resumable_env(self._spec.env, self._spec.env_spec, width, opponents=True)
        own = cast("OpponentEnv", envs)
        own.policies = PoolPolicies(
            self._member, self._spec.env_spec.obs, self._act, self._network.state_size, own.opponent_rows, self._script
        )
        return envs

    def _member(self, number: int, width: int) -> Forward:
        """The network of a member of the pool, for so many opponents side by side."""
        if (number, width) not in self._members:
            policy = self.shared(OPPONENTS, number)
            normalize = Normalizer(self._spec.policy, Moments.unpack(policy["obs_moments"]))
            self._members[number, width] = one_for_all(self._network, policy["params"], normalize, width)
        return self._members[number, width]

    def _script(self, number: int) -> Script | None:
        """What a member of the pool decides by, if it has no network."""
        if number not in self._scripts:
            self._scripts[number] = script_of(self.shared(OPPONENTS, number), self._act)
        return self._scripts[number]

    def fingerprint(self, held: Sequence[tuple[str, int]]) -> Fingerprint:
        """Versions and arithmetic of this machine, and hashes of the shared values as they lie in memory now."""
        if not self._machine:
            self._machine = arithmetic_fingerprint(self._network, self._spec.env_spec.obs) | {
                "environment": env_fingerprint(self._spec.env, self._spec.env_spec)
            }
        values = {(key, version): self._shared.get(key, {}).get(version, {}) for key, version in held}
        hashes = {f"{key}/{version}": digest(*(value[name] for name in sorted(value))) for (key, version), value in values.items()}
        return self._machine | hashes

    def close(self) -> None:
        """Close the environments."""
        for env in (*self._vector_envs.values(), *(running.envs for running in self._running.values())):
            env.close()

    def _vector_env_for(self, spec: RolloutSpec) -> VectorEnv:
        env = self._vector_envs.get(spec.purpose)
        if env is None or env.width != len(spec.seeds):
            if env is not None:
                env.close()
            config = self._spec.env.for_evaluation() if spec.purpose == "evaluate" else self._spec.env
            env = self._vector_envs[spec.purpose] = self._make_for_episodes(config, len(spec.seeds), spec.opponents is not None)
        return env

    def _make_for_episodes(self, config: EnvConfig, width: int, opponents: bool) -> VectorEnv:
        if opponents:
            return self._make_with_opponents(width)
        if config.players:
            return make_players_env(config, self._spec.env_spec, width, self._others(width))
        return make_vector_env(config, self._spec.env_spec, width)


def mean_return(returns: NDArray[np.float64], skip_failed: bool) -> float:
    """NaN if an episode failed; with `skip_failed`, only if all did."""
    counted = np.isfinite(returns) if skip_failed else np.ones(len(returns), np.bool_)
    return float(returns[counted].mean()) if counted.any() else float("nan")
