"""What all hybrids share: one critic, one replay that every individual fills, and open work that can be asked for again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baldwin.errors import Diverged, EnvironmentFailure, TicketError
from baldwin.hybrids.config import HybridConfig
from baldwin.hybrids.jobs import METRIC, Grow, Study, flat
from baldwin.learners import Recipe
from baldwin.ops import seeds
from baldwin.ops.moments import Moments
from baldwin.replay import Replay
from baldwin.rollout import Collect, Evaluate, Plan, Where, transitions
from baldwin.types import CENTER, Arrays, Individual, Job, Metrics, Outcome, State, Trial

PATIENCE = 10  # jobs of a kind that may fail one after the other
OVERWRITTEN = "what it drew from was overwritten meanwhile: raise algorithm.surplus"


@dataclass(frozen=True, slots=True)
class Task:
    """Work that is out: enough to ask for it again, exactly."""

    kind: str  # critic, rl, es, random, mean
    place: int  # which individual it is about, or, in a generation, where in the stage it stands
    version: int  # of the distribution, when it was asked
    params: NDArray[np.float32]  # [D], or policies [n, D] for the critic
    obs_moments: NDArray[np.float64]
    steps: int = 0  # of gradient
    rows: tuple[int, int] = (0, 0)  # of the replay: the oldest, and one past the newest
    critic: Arrays | None = None
    episodes: int = 1  # of the mean

    @property
    def draws(self) -> bool:
        """Whether it reads the replay."""
        return self.rows[1] > 0


@dataclass(frozen=True, slots=True)
class Body:
    """What a hybrid is made of besides its strategy."""

    recipe: Recipe  # of its learner
    replay: Replay
    max_episode_steps: int | None
    normalize: bool
    no_action: NDArray[Any]  # [0, ...]: the actions of an episode that has not begun


class Hybrid(ABC):
    """An algorithm for the loop, made of a strategy, a learner and a replay."""

    def __init__(self, config: HybridConfig, body: Body) -> None:
        self.config, self._recipe, self.replay, self._seed = config, body.recipe, body.replay, body.recipe.seed
        self._limit, self._normalize, self._no_action = body.max_episode_steps, body.normalize, body.no_action
        self.critic: Arrays = flat(body.recipe.learner().critic_state())
        self.moments = Moments.empty(body.recipe.obs_size)
        self.version = 0
        self.learning_steps = self.judged_steps = self.critic_steps = self.actor_steps = 0
        self._tickets = 0
        self._failures: dict[str, int] = {}  # kind -> how many in a row
        self._failed = 0  # since the last line of metrics
        self.policy_only = False  # a replay of the journal that is only for the policy need not teach the critic again
        self._open: dict[int, Task] = {}
        self._reissue: list[int] = []
        self._published = -1
        self._news: list[Individual] = []
        self._round: list[Individual] = []  # since the last line of metrics
        self._seen: list[tuple[str, float, float]] = []  # metric, weight, value

    @property
    @abstractmethod
    def center(self) -> NDArray[np.float32]:
        """The mean, as it is played."""

    @property
    def simulator_steps(self) -> int:
        """Every step that training took."""
        return self.learning_steps + self.judged_steps

    @property
    def env_steps(self) -> int:
        """All of them: what only judged was played too."""
        return self.simulator_steps

    @property
    def gradient_steps(self) -> int:
        """Of critics and actors."""
        return self.critic_steps + self.actor_steps

    @property
    def warming_up(self) -> bool:
        """Whether actions are still random."""
        return self.learning_steps < self.config.start_steps

    @property
    def _warmup_moves(self) -> bool:
        return self.config.is_on(self.config.warmup_moves, faithful=True)

    def publish(self) -> list[tuple[str, int, Arrays]]:
        """The greedy policy, once a version, for evaluations; jobs carry all that they need."""
        if self._published == self.version:
            return []
        self._published = self.version
        return [(CENTER, self.version, self.policy_state())]

    def policy_state(self) -> Arrays:
        """Greedy parameters and observation moments as they were when this version began: a version has one policy."""
        return self._policy

    def individuals(self) -> list[Individual]:
        """Those that were judged since the last call."""
        news, self._news = self._news, []
        return news

    def ask(self, n: int) -> list[Job]:
        """Up to n jobs: lost ones first."""
        jobs: list[Job] = []
        while len(jobs) < n:
            ticket = self._reissue.pop(0) if self._reissue else self._next()
            if ticket is None:
                break
            jobs.append(self._job(ticket))
        return jobs

    def tell(self, outcomes: Sequence[Outcome]) -> Metrics | None:
        """Take results in any order, each ticket once."""
        tickets = [o.ticket for o in outcomes]
        if len(set(tickets)) < len(tickets) or any(t not in self._open for t in tickets):
            raise TicketError(f"expected open tickets, each once; got {tickets}. Tell a result only once.")
        found: Metrics | None = None
        for outcome in outcomes:
            task = self._open[outcome.ticket]
            if task.draws and task.rows[0] < self.replay.total - self.replay.length:
                outcome = Outcome(outcome.ticket, float("nan"), reason=OVERWRITTEN)
            elif task.kind == "critic" and not (outcome.failed or outcome.derived or self.policy_only):
                (outcome,) = self._study(outcome.ticket).run()  # it comes from a journal, which leaves out what can be computed again
            del self._open[outcome.ticket]
            self._note(outcome)
            found = self._take(task, outcome) or found
        return found

    def reissue(self) -> None:
        """Ask for everything open again."""
        self._reissue = sorted(self._open)

    def state_dict(self) -> State:
        """All that changes, open work included."""
        needed = min([t.rows[0] for t in self._open.values() if t.draws], default=self.replay.total)
        return {
            "critic": dict(self.critic),
            "replay": self.replay.state_dict() | {"first": needed},
            "obs_moments": self.moments.pack(),
            "counts": [
                self.version,
                self.learning_steps,
                self.judged_steps,
                self.critic_steps,
                self.actor_steps,
                self._tickets,
                self._failed,
            ],
            "failures": self._failures,
            "policy": dict(self._policy),
            "open": {str(ticket): write_task(task) for ticket, task in self._open.items()},
            "reissue": self._reissue,
            "round": self._round,
            "seen": [list(s) for s in self._seen],
        }

    def load_state_dict(self, state: State) -> None:
        """Be the algorithm that wrote `state`."""
        self.critic, self.moments = dict(state["critic"]), Moments.unpack(state["obs_moments"])
        self.replay.load_state_dict(state["replay"])
        self.version, self.learning_steps, self.judged_steps, self.critic_steps, self.actor_steps, *rest = state["counts"]
        self._tickets, self._failed = rest
        self._failures, self._policy = dict(state["failures"]), dict(state["policy"])
        self._open = {int(ticket): read_task(task) for ticket, task in state["open"].items()}
        self._reissue, self._round = [int(t) for t in state["reissue"]], [dict(r) for r in state["round"]]
        self._seen = [(str(name), float(weight), float(value)) for name, weight, value in state["seen"]]
        self._published = -1

    def _now(self) -> dict[str, NDArray[Any]]:
        return {"params": self.center, "obs_moments": self.moments.pack()}

    @abstractmethod
    def _next(self) -> int | None:
        """The ticket of the next work, opened; None to wait."""

    @abstractmethod
    def _take(self, task: Task, outcome: Outcome) -> Metrics | None:
        """A result; metrics when it completed a version."""

    def _give(self, kind: str, place: int, version: int, params: NDArray[np.float32], steps: int = 0, episodes: int = 1) -> int:
        """Open a ticket. Work with gradient steps sees the critics and the replay as they are now."""
        ticket, self._tickets = self._tickets, self._tickets + 1
        task = Task(kind, place, version, params, self.moments.pack(), episodes=episodes)
        if steps:
            view = self.replay.view()
            task = replace(task, steps=steps, rows=(view.first, view.total), critic=self.critic)
        self._open[ticket] = task
        return ticket

    def _job(self, ticket: int) -> Job:
        task = self._open[ticket]
        if task.kind == "critic":
            return self._study(ticket)
        if task.kind == "mean":
            seed = seeds.seeds(1, self._seed, seeds.Stream.TRAIN, ticket)
            plan = Plan("mean", task.version, seed, 0, task.episodes, self._limit, lenient=True, moments=task.obs_moments)
            return Evaluate((Trial(ticket, task.version, task.params),), plan)
        episode = Collect(
            ticket=ticket,
            seed=self._seed,
            params=task.params,
            obs_moments=task.obs_moments,
            lanes=(Where(0, ticket, self._no_action),),
            steps=None,
            explore="random" if task.kind == "random" else "greedy",
            limit=self._limit,
        )
        return Grow(self._recipe, episode, task.steps, task.critic, self.replay.view(*task.rows) if task.draws else None)

    def _study(self, ticket: int) -> Study:
        task = self._open[ticket]
        view = self.replay.view(*task.rows)
        return Study(ticket, self._recipe, task.critic or self.critic, np.atleast_2d(task.params), task.steps, view, task.obs_moments)

    def _bear(self, task: Task, outcome: Outcome) -> None:
        """Give up where nothing of a kind works. Called in an order that does not depend on who was faster, where there is one."""
        kind = "learning" if task.kind == "rl" else "critic" if task.kind == "critic" else "playing"
        self._failures[kind] = self._failures.get(kind, 0) + 1 if outcome.failed else 0
        if self._failures[kind] >= PATIENCE:
            text = f"{PATIENCE} jobs ({kind}) failed one after the other; the last reason: {outcome.reason}"
            raise EnvironmentFailure(text) if kind == "playing" else Diverged(text)

    def _note(self, outcome: Outcome) -> None:
        """Count."""
        self._failed += outcome.failed
        self.critic_steps += outcome.critic_steps
        self.actor_steps += outcome.actor_steps
        weight = float(outcome.critic_steps or outcome.actor_steps)
        self._seen += [(n.removeprefix(METRIC), weight, float(a)) for n, a in outcome.arrays.items() if n.startswith(METRIC)]

    def _remember(self, outcome: Outcome) -> tuple[int, int]:
        """An episode, into the replay; the rows it got there."""
        (rows,) = transitions(outcome.arrays)
        last = self.replay.add(rows)
        self.learning_steps += outcome.env_steps
        if self._normalize:
            self.moments = self.moments.merge(Moments.of(rows["obs"]))
        return last + 1 - len(rows["reward"]), last + 1

    def _judged(self, record: Individual) -> None:
        """Speak of an individual."""
        self._news.append(record)
        self._round.append(record)

    def _turn(self, found: Metrics) -> Metrics:
        """A line of metrics: the individuals and the losses since the last one; a new round begins."""
        self.version += 1
        self._policy = self._now()
        metrics: Metrics = dict(found)
        for name in ("return", "length", "pull", "staleness", "distance", "baseline"):
            values = np.array([r[name] for r in self._round if name in r], np.float64)
            if len(values):
                metrics["episode_length" if name == "length" else name + "_mean" if name == "return" else name] = float(values.mean())
        returns = np.array([r["return"] for r in self._round], np.float64)
        metrics |= {"return_std": float(returns.std()), "return_min": float(returns.min()), "return_max": float(returns.max())}
        for kind in ("es", "rl"):
            own = [float(r["return"]) for r in self._round if r["kind"] == kind]
            metrics |= {f"{kind}_return": float(np.mean(own))} if own else {}
        for name in {s[0] for s in self._seen}:
            weights, values = np.array([s[1:] for s in self._seen if s[0] == name]).T
            metrics[name] = float((weights * values).sum() / weights.sum())
        metrics |= {
            "individuals": float(len(self._round)),
            "failed": float(self._failed),
            "rl_fraction": float(np.mean([r["kind"] == "rl" for r in self._round])),
            "simulator_steps": float(self.simulator_steps),
            "critic_steps": float(self.critic_steps),
            "actor_steps": float(self.actor_steps),
            "critic_steps_per_learning_step": self.critic_steps / max(1, self.learning_steps),
            "buffer_fill": len(self.replay) / self.replay.capacity,
        }
        self._round, self._seen, self._failed = [], [], 0
        return dict(sorted(metrics.items()))


def write_task(task: Task) -> State:
    """For a checkpoint."""
    return {
        "numbers": [task.kind, task.place, task.version, task.steps, *task.rows, task.episodes],
        "params": task.params,
        "obs_moments": task.obs_moments,
        "critic": dict(task.critic or {}),
    }


def read_task(state: State) -> Task:
    """The inverse of `write_task`."""
    kind, place, version, steps, first, total, episodes = state["numbers"]
    return Task(kind, place, version, state["params"], state["obs_moments"], steps, (first, total), state["critic"] or None, episodes)
