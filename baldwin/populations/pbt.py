"""Population-based training (Jaderberg et al. 2017, arXiv 1711.09846): members that fall behind copy better ones and change their hyper-parameters.

Hyper-parameters are part of the config that a member is built with, and never of the state that is copied: a copy learns with what was changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self

import numpy as np
from pydantic import Field, field_validator, model_validator

from baldwin.errors import ConfigError
from baldwin.ops import pb2, pbt
from baldwin.ops.ranges import Choice, from_unit, to_unit
from baldwin.ops.statistics import significantly_better
from baldwin.ops.threads import one_numpy_thread
from baldwin.populations.config import PopulationConfig, PopulationContext, PopulationEntry, register_population
from baldwin.populations.member import Hyperparameters, Member
from baldwin.populations.population import CONTINUE, COPY, START, Plan, Population
from baldwin.rollout import RETURN
from baldwin.types import State

CANDIDATES = 1000  # hyper-parameters drawn at random, of which pb2 takes the best
MAX_CHANGES = 200  # rounds that pb2 remembers: its time grows with their third power


class PBTConfig(PopulationConfig):
    """Population-based training: who falls behind copies a better member and perturbs its hyper-parameters."""

    name: Literal["pbt"] = "pbt"
    synchronous: bool = Field(False, description="All members finish a round before any is copied: the same bits for any number of workers")
    exploit: Literal["truncation", "t-test", "both"] = Field(
        "truncation",
        description="truncation: the worst share copies the best; t-test: whoever is significantly worse than a random other one copies it; "
        "both: truncation, and the t-test for whom it leaves alone (Lamarckian)",
    )
    fraction: float = Field(0.2, gt=0, le=0.5, description="Share of the members that copy, and of those that are copied")
    p_value: float = Field(0.05, gt=0, lt=1, description="Of Welch's t-test over the returns of the evaluation")
    explore: Literal["perturb", "pb2"] = Field(
        "perturb",
        description="What a copy does with hyper-parameters. perturb: multiply or draw anew; pb2: numbers by a Gaussian process over how much scores changed",
    )
    factors: list[float] = Field([0.8, 1.2], min_length=1, description="A copied hyper-parameter is multiplied with one of these")
    resample: float = Field(0.25, ge=0, le=1, description="Probability that it is drawn anew from its range instead")
    mating: Literal["uniform", "behaviour"] = Field(
        "uniform", description="Which of the best is copied: any, or the one whose behaviour is farthest from the others'"
    )
    behaviour: list[str] = Field(default_factory=list, description="Results of the environment that make up the behaviour")
    safe: bool = Field(
        False,
        description="A round whose result is significantly worse than the state that it began from, a copy's than the copied one, is taken back",
    )
    optimizer: Literal["copy", "fresh"] = Field("copy", description="What a copy does with the moments of gradients")
    normalizer: Literal["copy", "fresh"] = Field(
        "copy", description="And with the statistics that observations, and rewards, are normalised by"
    )

    @model_validator(mode="after")
    def _tests_need_returns(self) -> Self:
        if (self.exploit != "truncation" or self.safe) and (self.episodes < 2 or self.objectives):
            raise ValueError("exploit=t-test and both, and safe, compare returns: they need episodes of at least 2, and no objectives")
        return self

    @field_validator("factors")
    @classmethod
    def _factors_are_positive(cls, value: list[float]) -> list[float]:
        if min(value) <= 0:
            raise ValueError("expected factors above zero")
        return value


class PBT(Population):
    """Members 0 to N - 1; the state of each is that of its own last round, or of the one it has copied."""

    _config: PBTConfig

    def __init__(self, config: PBTConfig, context: PopulationContext) -> None:
        super().__init__(config, context)
        if config.optimizer == "fresh":
            self._check_members_can(lambda algorithm: algorithm.reset_optimizer(), "population.optimizer=fresh")
        own = context.sections
        if config.normalizer == "fresh" and not (own.policy.normalize_obs or getattr(own.algorithm, "normalize_reward", False)):
            raise ConfigError(
                "population.normalizer=fresh has no effect where nothing is normalised: set policy.normalize_obs, or leave it out"
            )
        draw = self.rng(0)
        self.members = [Member(n, self.member_seed(n), pbt.resample(self.ranges, draw)) for n in range(config.members)]
        self._ready = list(range(config.members))  # members that wait for a worker
        self._went_back: list[int] = []  # members whose last round was taken back
        self._numbers = {key: found for key, found in self.ranges.items() if not isinstance(found, Choice)}
        if config.explore == "pb2" and not self._numbers:
            raise ConfigError("population.explore=pb2 chooses numbers, and every range is a choice: leave it out, or search a number")
        self._changes = np.zeros((0, 2 + len(self._numbers)))  # of the last rounds: (round, change of the score, numbers in [0, 1])

    @property
    def waits_for_all(self) -> bool:
        """Whether all members finish a round before any is copied: in synchronous PBT."""
        return self._config.synchronous

    def _plan(self) -> Plan | None:
        """The member that waits longest; it is decided now whom it copies, so that nobody waits for a decision."""
        if not self._ready:
            return None
        member = self.members[self._ready.pop(0)]
        if not member.rounds:
            return Plan(member.id, member.seed, member.hyperparameters, START)
        went_back = member.id in self._went_back
        self._went_back = [n for n in self._went_back if n != member.id]
        new_seed = self.member_seed(self._config.members + self._planned)
        chosen = self._exploit(member.id)
        if chosen is None:
            return self._continue(member, new_seed if went_back else member.seed)
        other = self.members[chosen]
        return Plan(
            member.id,
            new_seed,
            self._explore(other),
            COPY,
            parents=[other.id],
            state_sha256=other.state_sha256,
            before=other.hyperparameters,
            rounds=other.rounds,
            line_steps=other.line_steps,
            score_before=other.score,
            parent=other.as_state() if self._config.safe else {},
            copied=True,
            fresh_optimizer=self._config.optimizer == "fresh",
            fresh_normalizer=self._config.normalizer == "fresh",
        )

    def _all_planned(self) -> bool:
        return not self._ready

    def _continue(self, member: Member, seed: int) -> Plan:
        """With another seed than its own after a round that was taken back: the same would only do the same again."""
        return Plan(
            member.id,
            seed,
            member.hyperparameters,
            CONTINUE if member.state_sha256 else START,
            parents=[member.id],
            state_sha256=member.state_sha256,
            before=member.hyperparameters,
            rounds=member.rounds,
            line_steps=member.line_steps,
            score_before=member.score,
            parent=member.as_state() if self._config.safe else {},
            leave_episodes=seed != member.seed,
        )

    def _explore(self, other: Member) -> Hyperparameters:
        """The hyper-parameters of a copy of this member."""
        rng = self.rng(1, self._planned)
        changed = pbt.explore(other.hyperparameters, self.ranges, rng, tuple(self._config.factors), self._config.resample)
        if self._config.explore == "perturb":
            return changed
        candidates = rng.random((CANDIDATES, len(self._numbers)))
        in_use = np.array([self._place(plan) for plan in self._plans.values()]).reshape(-1, 1 + len(self._numbers))
        t, y, x = self._changes[:, 0], self._changes[:, 1], self._changes[:, 2:]
        with one_numpy_thread():  # the same bits for any number of cores
            chosen = candidates[pb2.choose(x, t, y, in_use[:, 1:], in_use[:, 0], candidates, float(other.rounds))]
        return changed | {key: from_unit(found, place) for (key, found), place in zip(self._numbers.items(), chosen.tolist(), strict=True)}

    def _place(self, plan: Plan) -> list[float]:
        """The round of a plan, and its numbers in [0, 1]."""
        return [float(plan.rounds), *(to_unit(found, plan.hyperparameters[key]) for key, found in self._numbers.items())]  # type: ignore[arg-type]

    def _exploit(self, number: int) -> int | None:
        """Whom the member copies; None: it goes on with its own state."""
        config, rng = self._config, self.rng(2, self._planned)
        known = [m for m in self.members if m.rounds]
        at = next(n for n, m in enumerate(known) if m.id == number)
        fitness = np.array([m.score for m in known])
        chosen: int | None = None
        if config.exploit in ("truncation", "both") and len(known) > 1:
            chosen = pbt.truncation(fitness, at, rng, config.fraction)
            if chosen is not None and config.mating == "behaviour":
                chosen = self._most_different(known, fitness)
        if chosen is None and config.exploit in ("t-test", "both") and len(known) > 1:
            nothing = np.full(max(2, config.episodes), np.nan)
            chosen = pbt.welch([m.returns if np.isfinite(m.score) else nothing for m in known], at, rng, config.p_value)
        return None if chosen is None or not np.isfinite(known[chosen].score) else known[chosen].id

    def _most_different(self, known: Sequence[Member], fitness: np.ndarray[tuple[int], np.dtype[np.float64]]) -> int:
        """Of the best share, the member whose nearest neighbour in behaviour is farthest."""
        count = max(1, round(self._config.fraction * len(known)))
        best = np.argsort(-np.where(np.isnan(fitness), -np.inf, fitness), kind="stable")[:count]
        names = self._config.behaviour or [name for name in known[int(best[0])].results if name != RETURN]
        points = np.array([[m.results.get(name, 0.0) for name in names] for m in known])
        far = []
        for n in best.tolist():
            distance = np.linalg.norm(points - points[n], axis=1)
            distance[n] = np.inf
            far.append(float(distance.min()))
        return int(best[int(np.argmax(far))])

    def _on_round_finished(self, plan: Plan, child: Member) -> None:
        if self._config.explore == "pb2" and np.isfinite(child.score - plan.score_before):
            rounds, *places = self._place(plan)
            seen = [*self._changes, np.array([rounds, child.score - plan.score_before, *places])]
            self._changes = np.array(seen[-MAX_CHANGES:])
        if self._is_worse(plan, child):
            child = Member.from_state(plan.parent)
            self._went_back.append(plan.member)
        elif not child.state_sha256:  # it failed: it counts as the worst, so that it copies another
            child.state_sha256, child.line_steps = plan.state_sha256, plan.line_steps
        child.id = plan.member
        self.members[plan.member] = child
        self._ready.append(plan.member)

    def _is_worse(self, plan: Plan, child: Member) -> bool:
        """Whether the round made significantly worse what it began from, where such a round is taken back. One that failed is none."""
        if not plan.parent or not (np.isfinite(plan.parent["score"]) and np.isfinite(child.score)):
            return False
        return significantly_better(plan.parent["returns"], child.returns, self._config.p_value)

    def state_dict(self) -> State:
        """And the members that wait for a worker, those whose last round was taken back, and the changes that pb2 learns from."""
        return super().state_dict() | {"ready": self._ready, "went_back": self._went_back, "changes": self._changes}

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self._ready, self._went_back = ([int(n) for n in state[name]] for name in ("ready", "went_back"))
        self._changes = np.array(state.get("changes", self._changes))


register_population(PopulationEntry(PBTConfig, PBT, "arXiv 1711.09846; pb2: 2002.02518"))
