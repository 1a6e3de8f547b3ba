"""What all algorithms over members share: jobs that train a member, states in files, lineage, metrics, the best member's policy."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from baldwin.algorithm import BaseAlgorithm
from baldwin.envs import check_env
from baldwin.errors import BaldwinError, ConfigError, EnvironmentFailure
from baldwin.networks import REFERENCE
from baldwin.opponents import OpponentsConfig
from baldwin.ops import seeds
from baldwin.ops.statistics import return_stats
from baldwin.parts import Sections
from baldwin.populations.config import PopulationConfig, PopulationContext
from baldwin.populations.member import (
    EVALUATION_STEPS,
    RETURNS,
    SECONDS,
    STATE,
    STATE_HASH,
    Hyperparameters,
    Member,
    TrainMember,
    where_played,
    with_hyperparameters,
)
from baldwin.populations.states import StateFiles, dropped_state, shared_state
from baldwin.rollout import WorkerSpec, mean_results, weigh_objectives
from baldwin.types import Arrays, Individual, Metrics, Outcome, Shared, State, outcome_from_state, outcome_state

START, CONTINUE, COPY = "start", "continue", "copy"


@dataclass(slots=True)
class Plan:
    """A round of training that was decided on."""

    member: int  # whose place the result takes, or its number
    seed: int
    hyperparameters: Hyperparameters
    operator: str = START
    parents: list[int] = field(default_factory=list)
    state_sha256: str = ""  # to begin from; "": from scratch
    before: Hyperparameters = field(default_factory=dict)  # of the parent that it continues
    rounds: int = 0  # of the line so far
    line_steps: int = 0  # environment steps of its training, likewise
    score_before: float = float("nan")  # of the state that it begins from
    parent: State = field(default_factory=dict)  # the member that it begins from, where the round may be taken back
    steps: int | None = None  # default: those of the config
    copied: bool = False  # the state is another member's
    leave_episodes: bool = False  # those that are open in the state stay behind
    fresh_optimizer: bool = False
    fresh_normalizer: bool = False
    params: NDArray[np.float32] | None = None
    weights: NDArray[np.float32] | None = None
    obs_moments: NDArray[np.float64] | None = None
    opponents: list[str] = field(default_factory=list)  # of a league: names of the players that it meets
    opponent_weights: list[float] = field(default_factory=list)
    inherit_training: bool = True
    ticket: int | None = None  # None: the next one


class Population(BaseAlgorithm):
    """A subclass plans rounds (`_plan`) and takes their results (`_on_round_finished`)."""

    scores_by_objective: ClassVar[bool] = True
    """Whether a member's score is its first objective, where the config has any."""
    counters = (*BaseAlgorithm.counters, "_planned", "_finished", "_gradient_steps", "_failed", "_copies")

    def __init__(self, config: PopulationConfig, context: PopulationContext) -> None:
        super().__init__()
        self._config, self._context = config, context
        self.files = StateFiles(context.files) if context.files else None
        self.ranges = config.ranges
        self.members: list[Member] = []
        self._plans: dict[int, Plan] = {}  # ticket -> what is being trained
        self._arrived: dict[int, Outcome] = {}  # results of a generation that is not complete, where one waits for all
        self._planned = 0
        self._finished = 0
        self._gradient_steps = 0
        self._failed = 0  # of this generation
        self._copies = 0
        self._lineage: list[Individual] = []
        self._used: dict[int, list[str]] = {}  # version -> states that were needed or made then
        self._new_states: list[str] = []  # of this generation
        self._shared_states: set[str] = set()  # that workers were told of
        self._fresh_policy: Arrays | None = None
        self._best_policy: tuple[str, Arrays] = ("", {})

    @property
    def gradient_steps(self) -> int:
        """Back-propagated updates of all members together."""
        return self._gradient_steps

    @property
    def waits_for_all(self) -> bool:
        """Whether results are taken together, when a generation is complete: the same bits for any number of workers."""
        return False

    @property
    def best(self) -> Member | None:
        """The member with the highest score, if one was evaluated."""
        known = [m for m in self.members if np.isfinite(m.score)]
        return max(known, key=lambda m: m.score) if known else None

    def policy_state(self) -> Arrays:
        """The best member's greedy policy; before the first result, that of a member that was not trained."""
        best = self.best
        if best is None or self.files is None:
            if self._fresh_policy is None:
                self._fresh_policy = self._context.sections.build(self._context.seed, policy_only=True)[0].policy_state()
            return self._fresh_policy
        if self._best_policy[0] != best.state_sha256:
            self._best_policy = (best.state_sha256, self.files.load_part(best.state_sha256, "policy"))
        return self._best_policy[1]

    def best_worker(self) -> WorkerSpec | None:
        """How to make a worker for the best member's policy, where it has an environment or a network of its own."""
        values = {key: self.best.hyperparameters[key] for key in where_played(self.ranges)} if self.best else {}
        if not values:
            return None
        sections = with_hyperparameters(self._context.sections, values)
        reference = {name.removeprefix(REFERENCE): array for name, array in self.policy_state().items() if name.startswith(REFERENCE)}
        return WorkerSpec(sections.env, check_env(sections.env), sections.policy, reference)

    def publish(self) -> list[Shared]:
        """The best member's policy once per version, and states of members for workers that cannot read the run's files.

        States that were last needed before the oldest checkpoint that the run may go back to are removed here, and not where a generation
        ends: a resumed run passes there again while it reads its journal, which names states of generations to come.
        """
        if self._published != self.version:
            self._remove_old_states()
        return super().publish() + self._publish_states()

    def _publish_states(self) -> list[Shared]:
        """Where workers cannot read the run's files: each state that a round may begin from, once, until none will."""
        if self.files is None or self._context.shared_files:
            return []
        wanted = self._startable() | {plan.state_sha256 for plan in self._plans.values()} - {""}
        new, old = sorted(wanted - self._shared_states), sorted(self._shared_states - wanted)
        self._shared_states = wanted
        return [shared_state(self.files.read(name)) for name in new] + [dropped_state(name) for name in old]

    def _startable(self) -> set[str]:
        """States that the next rounds may begin from."""
        return {m.state_sha256 for m in self.members if m.state_sha256}

    def _remove_old_states(self) -> None:
        oldest = self.version - self._context.generations_kept - 1
        past = {name for version, names in self._used.items() if version < oldest for name in names}
        self._used = {version: names for version, names in self._used.items() if version >= oldest}
        if self.files and past:
            self.files.remove(past - self._in_use() - {name for names in self._used.values() for name in names})

    def _in_use(self) -> set[str]:
        """States of members and children, and those that open rounds begin from."""
        known = {m.state_sha256 for m in self._known()} | {plan.state_sha256 for plan in self._plans.values()}
        return (known - {""}) | {bytes(o.arrays[STATE_HASH]).hex() for o in self._arrived.values() if STATE_HASH in o.arrays}

    def _known(self) -> list[Member]:
        """Everybody whose state may be asked for."""
        return self.members

    def individuals(self) -> list[Individual]:
        """The lineage since the last call."""
        found, self._lineage = self._lineage, []
        return found

    def member_seed(self, number: int) -> int:
        """The seed of the member, or child, of that number."""
        return seeds.mix(self._context.seed, seeds.Stream.MEMBER, number)

    def rng(self, *path: int) -> np.random.Generator:
        """Random numbers for a decision."""
        return seeds.generator(self._context.seed, seeds.Stream.POPULATION, *path)

    def objectives_of(self, member: Member) -> NDArray[np.float64]:
        """The member's objectives [M]: weighted sums of its results.

        Raises:
            EnvironmentFailure: the environment does not tell one of them.
        """
        return weigh_objectives(member.results, self._config.objectives, "population.objectives")

    def _check_members_can(self, use: Callable[[BaseAlgorithm], object], key: str) -> None:
        """Refuse a setting that asks for what the algorithm of the members cannot do, by trying it on one of them.

        Raises:
            ConfigError: with the key, and what the algorithm lacks.
        """
        try:
            algorithm = self._context.sections.build(self._context.seed)[0]
            if not isinstance(algorithm, BaseAlgorithm):
                raise BaldwinError(f"{self._context.sections.algorithm.name} is not built on BaseAlgorithm, which has what this needs")
            use(algorithm)
        except BaldwinError as error:
            raise ConfigError(f"{key}: {error}") from error

    def _next_job(self) -> int | None:
        plan = self._plan()
        if plan is None:
            return None
        ticket = self._planned if plan.ticket is None else plan.ticket
        self._planned += 1
        self._plans[ticket] = plan
        return self._open_tickets(ticket, [ticket])

    def _make_job(self, number: int) -> TrainMember:
        plan, context, config = self._plans[number], self._context, self._config
        base = self._sections_of(plan)
        try:
            sections = with_hyperparameters(base, plan.hyperparameters)
        except ValidationError as error:  # each value is allowed, which was checked; not so this combination of them
            raise ConfigError(f"population: {plan.hyperparameters} do not go together: {error.errors()[0]['msg']}") from error
        pool, policies = self._pool_of(plan)
        sections = replace(sections, opponents=pool)
        return TrainMember(
            ticket=number,
            member=plan.member,
            sections=sections,
            opponent_policies=tuple(policies),
            seed=plan.seed,
            steps=config.steps if plan.steps is None else plan.steps,
            evaluation_seed=context.seed,
            evaluation_env=sections.env.model_copy(update={"reward_weights": base.env.reward_weights}),
            episodes=config.episodes,
            parent_sha256=plan.state_sha256,
            leave_episodes=plan.copied or plan.leave_episodes,
            fresh_optimizer=plan.fresh_optimizer,
            fresh_normalizer=plan.fresh_normalizer,
            files=self.files if context.shared_files else None,
            params=plan.params,
            weights=plan.weights,
            obs_moments=plan.obs_moments,
            inherit_training=plan.inherit_training,
            own_env=any(key.startswith("env.") for key in where_played(plan.hyperparameters)),
        )

    def _sections_of(self, plan: Plan) -> Sections:
        """What the member is trained in, before its hyper-parameters: the same for all, unless a subclass says otherwise."""
        return self._context.sections

    def _pool_of(self, plan: Plan) -> tuple[OpponentsConfig | None, list[tuple[str, Arrays]]]:
        """Whom the member meets in a round, and their policies: nobody but the world's script, unless a subclass has frozen players."""
        return None, []

    def _on_outcomes(self, outcomes: Sequence[Outcome]) -> Metrics | None:
        for outcome in outcomes:
            if self.files and STATE in outcome.derived:
                self.files.write(outcome.derived[STATE].tobytes())
        if not self.waits_for_all:
            for outcome in outcomes:
                self._finish(outcome)
            return self._end_generation() if self._generation_complete() else None
        self._arrived |= {o.ticket: o for o in outcomes}
        if not self._all_planned() or any(map(self._is_due, self._open)):
            return None
        for ticket in sorted(filter(self._is_due, self._arrived)):
            self._finish(self._arrived.pop(ticket))
        return self._end_generation()

    def _all_planned(self) -> bool:
        """Whether every round of this generation was given out, where one waits for all."""
        return True

    def _is_due(self, ticket: int) -> bool:
        """Whether the round of this ticket belongs to this generation, where one waits for all; if not, to the next."""
        return True

    def _generation_complete(self) -> bool:
        return self._finished % self._config.members == 0

    def _finish(self, outcome: Outcome) -> None:
        """Take the result of a round."""
        plan = self._plans.pop(outcome.ticket)
        self._count_failure(outcome, self._config, EnvironmentFailure, "training a member")
        self._finished += 1
        self._failed += outcome.failed
        self._copies += plan.copied
        self.learning_steps += outcome.env_steps
        self.eval_steps += int(outcome.arrays.get(EVALUATION_STEPS, 0))
        self._gradient_steps += outcome.critic_steps
        child = self._child(plan, outcome)
        self._new_states.append(child.state_sha256)
        self._lineage.append(self._record(plan, child, outcome))
        self._on_round_finished(plan, child)

    def _child(self, plan: Plan, outcome: Outcome) -> Member:
        child = Member(plan.member, plan.seed, plan.hyperparameters, rounds=plan.rounds + 1)
        if outcome.failed:
            return child
        arrays = outcome.arrays
        child.state_sha256 = np.asarray(arrays[STATE_HASH], np.uint8).tobytes().hex()
        child.score, child.returns = outcome.scalar, np.asarray(arrays[RETURNS], np.float64)
        child.results = mean_results(outcome)
        if self.scores_by_objective and self._config.objectives:
            child.score = float(self.objectives_of(child)[0])
        child.line_steps = plan.line_steps + outcome.env_steps
        return child

    def _record(self, plan: Plan, child: Member, outcome: Outcome) -> Individual:
        """A line of lineage.jsonl."""
        return {
            "round": outcome.ticket,
            "member": plan.member,
            "parents": plan.parents,
            "operator": plan.operator,
            "hyperparameters": plan.hyperparameters,
            "before": plan.before,
            "score": None if outcome.failed else child.score,
            "results": child.results,
            "env_steps": child.line_steps,
            "seconds": round(float(outcome.arrays[SECONDS]), 3) if SECONDS in outcome.arrays else None,
            "state_sha256": child.state_sha256,
            "parent_sha256": plan.state_sha256,
            **({"reason": outcome.reason} if outcome.reason else {}),
        }

    def _end_generation(self) -> Metrics:
        self._select()
        self.version += 1
        self._used[self.version] = sorted(self._in_use() | set(self._new_states) - {""})
        self._new_states = []
        scores = np.array([m.score for m in self.members if np.isfinite(m.score)])
        metrics = {"failed_members": float(self._failed), "copies": float(self._copies), "members": float(len(self.members))}
        self._failed = self._copies = 0
        if len(scores):
            metrics |= return_stats(scores) | {"best": float(scores.max())}
        return metrics | self._more_metrics()

    @abstractmethod
    def _plan(self) -> Plan | None:
        """The next round of training; None to wait for results."""

    @abstractmethod
    def _on_round_finished(self, plan: Plan, child: Member) -> None:
        """Take the result of a round; a failed one has no state and a score that is NaN."""

    def _select(self) -> None:
        """What happens at the end of a generation."""

    def _more_metrics(self) -> Metrics:
        return {}

    def state_dict(self) -> State:
        """Members, plans of open rounds, results that wait, and the states in use."""
        return super().state_dict() | {
            "members": [m.as_state() for m in self.members],
            "plans": {str(ticket): plan_state(plan) for ticket, plan in self._plans.items()},
            "arrived": [outcome_state(o) | {"derived": {}} for o in self._arrived.values()],
            "best": self.best.id if self.best else -1,
            "new_states": list(self._new_states),
            "used": {str(version): names for version, names in self._used.items()},
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a `state_dict`."""
        super().load_state_dict(state)
        self.members = [Member.from_state(m) for m in state["members"]]
        self._plans = {int(ticket): Plan(**plan) for ticket, plan in state["plans"].items()}
        self._arrived = {int(o["ticket"]): outcome_from_state(o) for o in state["arrived"]}
        self._used = {int(version): list(names) for version, names in state["used"].items()}
        self._new_states = list(state["new_states"])
        self._shared_states = set()
        self._lineage = []


def plan_state(plan: Plan) -> State:
    """A plan as a checkpoint holds it: without arrays that are not there."""
    return {name: value for name, value in asdict(plan).items() if value is not None}
