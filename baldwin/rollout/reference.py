"""The fixed observations of virtual batch normalisation (Salimans et al. 2016, arXiv 1606.03498), seen under random actions."""

from __future__ import annotations

import numpy as np

from baldwin.envs import EnvConfig, EnvSpec, make_vector_env, random_action
from baldwin.errors import EnvironmentFailure
from baldwin.networks import ObservationBuffer
from baldwin.observations import Observation, stack_observations
from baldwin.ops import seeds

REFERENCE_SIZE = 128
STEPS_BETWEEN = 4  # neighbouring frames are nearly the same


def reference_batch(config: EnvConfig, env_spec: EnvSpec, seed: int, size: int = REFERENCE_SIZE) -> Observation:
    """Observations [size, ...] with all frames; a function of the environment and the seed.

    Raises:
        EnvironmentFailure: the environment failed.
    """
    env, first = make_vector_env(config, env_spec, 1), np.zeros(1, np.int32)
    seen, found = ObservationBuffer(env_spec.obs, 1), list[Observation]()
    env_spec.action_space.seed(seed)
    limit = env_spec.max_episode_steps or np.inf
    try:
        env.open(seeds.seeds(1, seed, seeds.Stream.REFERENCE), 0)
        steps, over, elapsed = 0, True, 0
        while len(found) < size:
            if over:
                seen.begin(slice(None), env.reset(first))
                elapsed = 0
            if steps % STEPS_BETWEEN == 0:
                found.append({key: array[0].copy() for key, array in seen.arrays.items()})
            obs, _, terminated, truncated, *_ = env.step(random_action(env_spec, seen.arrays), first)
            if env.failures:
                raise EnvironmentFailure(next(iter(env.failures.values())))
            seen.advance(slice(None), obs)
            steps, elapsed = steps + 1, elapsed + 1
            over = bool(terminated[0] or truncated[0] or elapsed >= limit)
    finally:
        env.close()
    return stack_observations(found)
