"""The greedy policy on held-out seeds, after training."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from baldwin.errors import EnvironmentFailure, UserError
from baldwin.executors import InlineExecutor
from baldwin.networks import reference_of
from baldwin.ops.statistics import bootstrap_interval, iqm
from baldwin.rollout import WorkerSpec
from baldwin.runs.build import evaluation_jobs, probe_env
from baldwin.runs.checkpoint import policy_hash
from baldwin.runs.directory import RunDirectory
from baldwin.runs.groups import group_at_play
from baldwin.runs.history import policy_arrays, trusted_config
from baldwin.runs.members import member_config, member_policy
from baldwin.types import CENTER, Shared

FRESH = 1  # seeds that training never evaluates on


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Returns of one policy on held-out seeds, and statistics of them."""

    generation: int
    params_sha256: str
    episodes: int
    seed: int
    mean: float
    std: float
    iqm: float
    ci: tuple[float, float]  # 95 % bootstrap interval of the IQM over episodes
    min: float
    max: float
    length: float
    env_steps: int
    returns: list[float]

    def as_dict(self) -> dict[str, object]:
        """All fields, for JSON."""
        return asdict(self)


def evaluate_run(
    path: Path,
    episodes: int = 100,
    seed: int = 0,
    generation: int | None = None,
    trust: bool = False,
    member: str | None = None,
    all_players: bool = False,
) -> Evaluation:
    """Play the saved policy greedily; `member` of a population: best, a number, or the name of a group of players.

    `all_players`: it plays all players of a match.

    Raises:
        EnvironmentFailure: an episode failed.
        RunDirectoryError: there is no policy, or the run is not trusted.
    """
    directory = RunDirectory.find(path)
    config = trusted_config(directory, trust)
    config = member_config(directory, config, member, generation)
    config, others = group_at_play(directory, config, member)
    if others and generation is not None:
        raise UserError("--checkpoint: of groups of players, only the newest policies play each other. Leave it out")
    policy, generation = member_policy(directory, member) if member else policy_arrays(directory, generation, trust)
    if all_players:
        env = config.env.with_values({("players",): "all", ("self_play",): False})
        config, others = config.model_copy(update={"env": env}), ()
    env_spec = probe_env(config)
    executor = InlineExecutor(WorkerSpec(config.env, env_spec, config.policy, reference_of(policy), others), config.executor)
    executor.share(Shared(CENTER, 0, policy, 0))
    outcomes = []
    for job in evaluation_jobs(0, env_spec, len(policy["params"]), episodes, seed, FRESH):
        executor.submit(job)
        outcomes += executor.wait()[0].outcomes
    executor.close()
    broken = [o.reason for o in outcomes if o.failed]
    if broken:
        raise EnvironmentFailure(f"{len(broken)} of {episodes} episodes failed; the first: {broken[0]}")
    scores = np.array([o.scalar for o in outcomes])
    return Evaluation(
        generation=generation,
        params_sha256=policy_hash(policy),
        episodes=episodes,
        seed=seed,
        mean=float(scores.mean()),
        std=float(scores.std()),
        iqm=float(iqm(scores)),
        ci=bootstrap_interval(scores),
        min=float(scores.min()),
        max=float(scores.max()),
        length=float(np.mean([o.env_steps for o in outcomes])),
        env_steps=sum(o.env_steps for o in outcomes),
        returns=scores.tolist(),
    )
