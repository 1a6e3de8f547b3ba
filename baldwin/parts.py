"""From the sections of a config to an algorithm and the recipe of its workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from baldwin.algorithm import ALGORITHMS, AlgorithmConfig, BuildContext
from baldwin.envs import EnvConfig, EnvSpec
from baldwin.errors import ConfigError
from baldwin.networks import ActionMap, PolicyConfig
from baldwin.opponents import OpponentsConfig
from baldwin.rollout import FrozenPlayers, WorkerSpec, reference_batch
from baldwin.types import Algorithm, Arrays


@dataclass(frozen=True, slots=True)
class Sections:
    """What is trained, by which algorithm, in which environment."""

    env: EnvConfig
    env_spec: EnvSpec
    policy: PolicyConfig
    algorithm: AlgorithmConfig
    opponents: OpponentsConfig | None = None
    others: tuple[FrozenPlayers, ...] = ()  # who plays players that the policy does not

    def check_players(self) -> None:
        """Refuse algorithms that cannot play several players of a match, and jobs that would tear a match apart.

        Raises:
            ConfigError: with what to do.
        """
        key, count = ("env.self_play", self.env_spec.players) if self.env.self_play else ("env.players", self.env_spec.policy_players)
        if count == 1:
            return
        name, family = self.algorithm.name, ALGORITHMS.find(self.algorithm.name).family
        if self.env.self_play and family != "learner":
            raise ConfigError(f"env.self_play is for learners: {name} evaluates every individual by itself. Set env.players=all instead")
        if family == "hybrid" or getattr(self.algorithm, "segment_length", 1) is None:
            raise ConfigError(f"{key} needs segments: {name} collects whole episodes one by one. Let it play one player, or use a learner")
        if "player" in self.env.kwargs:
            raise ConfigError("env.self_play: all players learn; leave player out of env.kwargs")
        for field in ("n_envs", "block") if family == "learner" else ():
            value = getattr(self.algorithm, field, count)
            if value % count:
                raise ConfigError(f"{key}: algorithm.{field}={value} must be a multiple of the {count} players of a match")

    def build(
        self,
        seed: int,
        *,
        generations_kept: int = 1,
        folder: Path | None = None,
        shared_files: bool = True,
        policy_only: bool = False,
        opponent_policies: Sequence[tuple[str, Arrays]] = (),
    ) -> tuple[Algorithm, WorkerSpec]:
        """The algorithm, and how to make its workers. The arguments are those of `BuildContext`.

        Raises:
            ConfigError: the algorithm cannot work in this environment.
        """
        reference = reference_batch(self.env, self.env_spec, seed) if self.policy.has_virtual_batch_norm else {}
        context = BuildContext(
            env=self.env_spec,
            policy=self.policy,
            actions=ActionMap(self.env_spec.action_space, self.policy.squash, self.policy.head),
            seed=seed,
            generations_kept=generations_kept,
            folder=folder,
            shared_files=shared_files,
            policy_only=policy_only,
            reference=reference,
            opponents=self.opponents,
            opponent_policies=opponent_policies,
            reward_weights={name: self.env.reward_weights.get(name, 1.0) for name in self.env_spec.rewards or ("reward",)},
        )
        algorithm = ALGORITHMS.find(self.algorithm.name).build(self.algorithm, context)
        return algorithm, WorkerSpec(self.env, self.env_spec, self.policy, reference, self.others)
