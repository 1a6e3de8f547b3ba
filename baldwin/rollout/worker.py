"""A worker: lanes of one environment, one policy, and what was shared with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from baldwin.envs import EnvConfig, Lanes, World, make_lanes
from baldwin.errors import StaleShare
from baldwin.ops.moments import Moments
from baldwin.ops.threads import one_thread
from baldwin.policies import ActionMap, Normalizer, PolicyConfig, make_policy, stack_members
from baldwin.rollout.collect import Collect, Live, collect
from baldwin.rollout.echo import digest, first_sight, identity
from baldwin.rollout.play import Plan, play
from baldwin.types import CENTER, Arrays, Echo, Outcome, Trial


@dataclass(frozen=True, slots=True)
class WorkerRecipe:
    """All it takes to make a worker, anywhere."""

    env: EnvConfig
    world: World
    policy: PolicyConfig

    def __call__(self) -> RolloutWorker:
        """A new worker."""
        return RolloutWorker(self)


class RolloutWorker:
    """Plays what jobs ask for. One thread: the executor brings the cores, and one thread always rounds alike."""

    def __init__(self, recipe: WorkerRecipe) -> None:
        self._recipe = recipe
        self._act = ActionMap(recipe.world.action_space, recipe.policy.squash, recipe.policy.head)
        self._policy = make_policy(recipe.policy, recipe.world.obs_size, self._act.outputs)
        self._lanes: dict[str, Lanes] = {}
        self._live: dict[int, Live] = {}  # lane -> the environment that collects there
        self._version = -1
        self._center = torch.empty(0)
        self._identity: Echo = {}

    def receive(self, key: str, version: int, arrays: Arrays) -> None:
        """Keep the newest centre and observation statistics."""
        if key == CENTER:
            self._version = version
            self._center = torch.from_numpy(np.array(arrays["params"], np.float32))
            self._normalize = Normalizer(self._recipe.policy, Moments.unpack(np.array(arrays["obs_moments"])))

    def evaluate(self, trials: Sequence[Trial], plan: Plan) -> list[Outcome]:
        """One outcome a trial, in order; the block's observation moments travel with the first."""
        if plan.moments is None and plan.version != self._version:
            raise StaleShare(f"the job was made for centre {plan.version}; this worker holds {self._version}")
        normalize = self._normalize if plan.moments is None else Normalizer(self._recipe.policy, Moments.unpack(plan.moments))
        stack = stack_members(self._policy, trials, self._center, len(plan.seeds))
        lanes = self._lanes_for(plan)
        with one_thread():
            played = play(lanes, stack, len(trials), normalize, self._act, plan)
        return [
            Outcome(
                trial.id,
                mean_return(played.returns[row], plan.lenient),
                env_steps=int(played.lengths[row].sum()),
                truncated=float(played.truncated[row].mean()),
                reason=played.reasons.get(row, ""),
                arrays={"obs_moments": played.moments.pack()} if plan.collect and not row else {},
            )
            for row, trial in enumerate(trials)
        ]

    def collect(self, plan: Collect) -> Outcome:
        """Transitions; a failure ends the episodes of its lanes."""
        for where in plan.lanes:
            if where.lane not in self._live:
                self._live[where.lane] = Live(make_lanes(self._recipe.env, self._recipe.world, 1))
        normalize = Normalizer(self._recipe.policy, Moments.unpack(plan.obs_moments))
        forward = self._policy.bind_batches(torch.from_numpy(np.array(plan.params))[None])
        try:
            with one_thread():
                arrays = collect([self._live[w.lane] for w in plan.lanes], lambda obs: forward(normalize(obs)[None])[0], self._act, plan)
        except BaseException:
            for where in plan.lanes:
                self._live.pop(where.lane).lanes.close()
            raise
        return Outcome(plan.ticket, float(arrays["reward"].sum(dtype=np.float64)), env_steps=arrays["reward"].size, arrays=arrays)

    def echo(self) -> Echo:
        """Versions and arithmetic of this machine, and the shared values as they lie in memory now."""
        if not self._identity:
            self._identity = identity(self._policy, self._recipe.world.obs_size) | {
                "environment": first_sight(self._recipe.env, self._recipe.world)
            }
        held = [self._center, self._normalize.mean, self._normalize.std] if self._version >= 0 else []
        return self._identity | {"center": digest(*(t.numpy() for t in held))}

    def close(self) -> None:
        """Free the environments."""
        for lanes in (*self._lanes.values(), *(live.lanes for live in self._live.values())):
            lanes.close()

    def _lanes_for(self, plan: Plan) -> Lanes:
        lanes = self._lanes.get(plan.purpose)
        if lanes is None or lanes.width != len(plan.seeds):
            if lanes is not None:
                lanes.close()
            lanes = self._lanes[plan.purpose] = make_lanes(self._recipe.env, self._recipe.world, len(plan.seeds))
        return lanes


def mean_return(returns: NDArray[np.float64], lenient: bool) -> float:
    """NaN if an episode failed; leniently, if all did."""
    well = np.isfinite(returns) if lenient else np.ones(len(returns), np.bool_)
    return float(returns[well].mean()) if well.any() else float("nan")
