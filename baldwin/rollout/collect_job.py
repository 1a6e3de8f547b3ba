"""The job of collecting a segment, and the names of the arrays that come of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from baldwin.networks import (
    ActionMap,
    to_environment,
)
from baldwin.opponents import SCRIPT, Mixture
from baldwin.ops import seeds
from baldwin.rollout.exploration import Amount, Exploration
from baldwin.rollout.novelty import Novelty
from baldwin.types import Outcome, Worker

OBS, NEXT_OBS, FINAL_OBS, START_OBS = "obs/", "next_obs/", "final_obs/", "start_obs/"
MEMORY, START_MEMORY, MEMORIES, DECIDED = "memory", "start_memory", "memories", "decided"
"""Names, or prefixes of names, of a segment's arrays."""
INITIAL_ERROR = "initial_error"  # [L, T], where a job asks for errors
FAILED, UNBEGUN, CUT = "failed", "unbegun", "cut"
"""Names of a segment's arrays where episodes failed: those that failed with a step [L, T]; how many did not begin before a step, or after the
last one [L, T + 1]; [] if the segment ends there for all of its environments."""
LATENCIES, REPLACED = "latencies", "replaced_turns"
"""Names of a segment's arrays in live worlds: seconds [n] from turns to their actions, and turns [] that took the place of unanswered ones."""
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
