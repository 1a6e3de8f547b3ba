"""What evolution with gradients has done elsewhere: critics that study, individuals that grow up.

Both are pure functions of what they carry. The replay they draw from travels by name where files can be seen, and by
value where not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from baldwin.errors import Diverged
from baldwin.learners import Learner, Recipe
from baldwin.ops.moments import Moments
from baldwin.replay import ReplayView
from baldwin.rollout import Collect
from baldwin.types import Arrays, Outcome, State, Worker

METRIC = "metric/"  # how an outcome's arrays name the numbers that are only reported


@dataclass(frozen=True, slots=True)
class Study:
    """Critic steps, in turn with each of these fixed target policies."""

    ticket: int
    recipe: Recipe
    critic: Arrays
    policies: NDArray[np.float32]  # [n, D]
    steps: int  # with each of them
    view: ReplayView
    obs_moments: NDArray[np.float64]

    @property
    def kind(self) -> str:
        """The critic's."""
        return "critic"

    @property
    def tickets(self) -> tuple[int, ...]:
        """The one it answers for."""
        return (self.ticket,)

    def run(self, worker: Worker | None = None) -> list[Outcome]:
        """The critics afterwards, as what could be computed again."""
        learner = judging(self.recipe, self.ticket, self.critic, self.obs_moments)
        source = self.view.source(self.recipe.seed, self.ticket)
        found = [learner.critic_steps(source, self.steps, policy) for policy in self.policies]
        must_be_finite(learner.critic.vectors(), "the critics")
        seen = {METRIC + name: np.array(np.mean([m[name] for m in found])) for name in found[0] if not name.startswith("actor")}
        return [Outcome(self.ticket, 0.0, arrays=seen, derived=flat(learner.critic_state()), critic_steps=self.steps * len(self.policies))]


@dataclass(frozen=True, slots=True)
class Grow:
    """One life: so many actor steps up the frozen critics, then an episode. Without steps it is played as it was born."""

    recipe: Recipe
    episode: Collect
    steps: int = 0
    critic: Arrays | None = None
    view: ReplayView | None = None

    @property
    def kind(self) -> str:
        """How it came to be what is played."""
        return "random" if self.episode.explore == "random" else "rl" if self.steps else "es"

    @property
    def tickets(self) -> tuple[int, ...]:
        """The one it answers for."""
        return self.episode.tickets

    def run(self, worker: Worker) -> list[Outcome]:
        """The episode; with the parameters it was played with, if they changed."""
        if not self.steps or self.view is None:
            return self.episode.run(worker)
        ticket = self.episode.ticket
        learner = judging(self.recipe, ticket, self.critic or {}, self.episode.obs_moments)
        learner.set_actor(self.episode.params)
        seen = learner.actor_steps(self.view.source(self.recipe.seed, ticket), self.steps)
        params = must_be_finite(learner.actor_vectors()[0], "the individual")
        (played,) = replace(self.episode, params=params).run(worker)
        arrays = {**played.arrays, "params": params, METRIC + "actor_loss": np.array(seen["actor_loss"])}
        return [replace(played, arrays=arrays, actor_steps=self.steps)]


def must_be_finite(parameters: NDArray[np.float32], whose: str) -> NDArray[np.float32]:
    """Losses are looked at before each step; this is after the last one.

    Raises:
        Diverged: some are not numbers.
    """
    if not np.isfinite(parameters).all():
        raise Diverged(f"{whose} came out of the gradient steps with parameters that are not numbers. Lower the learning rates")
    return parameters


def judging(recipe: Recipe, ticket: int, critic: Arrays, obs_moments: NDArray[np.float64]) -> Learner:
    """A learner that judges as these critics do, with random numbers of its own."""
    learner = recipe.learner(ticket)
    learner.load_critic_state(nested(critic))
    learner.normalize(Moments.unpack(obs_moments))
    return learner


def flat(state: State, path: str = "") -> dict[str, NDArray[np.generic]]:
    """Nested arrays and numbers as arrays with names like a/b."""
    found: dict[str, NDArray[np.generic]] = {}
    for name, value in state.items():
        found |= flat(value, f"{path}{name}/") if isinstance(value, dict) else {path + name: np.asarray(value)}
    return found


def nested(arrays: Arrays) -> State:
    """The inverse of `flat`."""
    found: State = {}
    for path, value in arrays.items():
        *parts, name = path.split("/")
        place = found
        for part in parts:
            place = place.setdefault(part, {})
        place[name] = value
    return found
