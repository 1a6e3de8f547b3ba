"""One run: it observes the loop, writes everything down, and can be resumed where it stopped."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from baldwin.algorithm import FailureLimits
from baldwin.config import RunConfig
from baldwin.envs import choose_backend
from baldwin.errors import Diverged, EnvironmentFailure
from baldwin.executors import make_executor
from baldwin.ops.statistics import iqm
from baldwin.populations.groups import Groups
from baldwin.populations.member import where_played
from baldwin.populations.population import Population
from baldwin.populations.sweep import SweepConfig
from baldwin.processes import leave_script_in_worker
from baldwin.rollout import OwnWorkerJob
from baldwin.runs.build import Parts, build, evaluation_jobs, with_groups
from baldwin.runs.checkpoint import (
    list_checkpoints,
    policy_hash,
    translate_disk_errors,
    write_checkpoint,
)
from baldwin.runs.clocks import Clock, IdleMeter, StragglerMeter
from baldwin.runs.directory import RunDirectory
from baldwin.runs.groups import evaluate_group, group_scores
from baldwin.runs.health import Health
from baldwin.runs.interrupt import InterruptibleExecutor, Signals
from baldwin.runs.journal import Journal, Record, apply_record
from baldwin.runs.loop import Asked, Evaluated, Event, Told, evaluate, loop, publish
from baldwin.runs.metrics import JsonLines
from baldwin.runs.opponents import expand_folders, keep_policies
from baldwin.runs.trackers import Trackers
from baldwin.trackers import check_trackers
from baldwin.types import Algorithm, Executor, Job, Metrics, Outcome

Callback = Callable[["Run", Metrics], None]
HELD_OUT = 0  # the path of the seeds that training evaluates on


class Run:
    """The state of a run between two events."""

    def __init__(self, directory: RunDirectory, config: RunConfig, parts: Parts) -> None:
        self.directory, self.config, self.parts = directory, config, parts
        self.id = directory.id
        self.algorithm = parts.algorithm
        self.clock = Clock()
        self.score: float | None = None
        self.last: Metrics = {}
        self._health = Health(config)
        self.warnings = self._health.check_config(config)
        self.stopped_by = ""
        self._evaluated = -1  # the last version that was
        self._eval_steps = 0
        self._spans, self._idle = StragglerMeter(), IdleMeter()
        self._checkpointed = -1
        self._failures: list[str] = []
        self._speed_mark = (0.0, 0, 0)

    def open(self, journal_at: int | None = None, metrics_at: int = 0, individuals_at: int = 0) -> None:
        """Open the files of the run for writing, at these offsets."""
        self.journal = Journal(self.directory.journal, journal_at, self.id)
        self.metrics = JsonLines(self.directory.metrics, self.id, metrics_at)
        self.individuals = JsonLines(self.directory.records_of(self.config), self.id, individuals_at)
        self.trackers = Trackers(self.directory, self.config, self.algorithm.env_steps)
        self._last_good_offset = self.journal.offset
        self._speed_mark = (self.clock.wall, self.algorithm.env_steps, self.algorithm.gradient_steps)

    def forget_failed_update(self) -> None:
        """Drop the results of a generation that failed as a whole, so that a resumed run plays it again."""
        self.journal.rewind(self._last_good_offset)

    @property
    def evaluated(self) -> bool:
        """Whether the score is that of the current parameters."""
        return self._evaluated == self.algorithm.version

    def due(self, algorithm: Algorithm) -> Sequence[Job]:
        """The evaluation of this version, if it is time for one."""
        return () if self.evaluated or algorithm.version % self.config.run.evaluate_every else self.evaluation_jobs()

    def evaluation_jobs(self) -> Sequence[Job]:
        """The greedy policy on the run's held-out seeds: that of a sweep's best member in its own environment, those of all groups of players."""
        version, episodes, seed = self.algorithm.version, self.config.run.episodes, self.config.run.seed
        if isinstance(self.algorithm, Groups):
            return [evaluate_group(*self.algorithm.policy_at_play(name), episodes, seed, HELD_OUT) for name in self.algorithm.names]
        own = self.algorithm.best_worker() if isinstance(self.algorithm, Population) else None
        if own is None:
            return evaluation_jobs(version, self.parts.env_spec, self.parts.dim, episodes, seed, HELD_OUT)
        policy = self.algorithm.policy_state()
        jobs = evaluation_jobs(version, own.env_spec, len(policy["params"]), episodes, seed, HELD_OUT)
        return [OwnWorkerJob(job, own, policy) for job in jobs]

    def on_event(self, event: Event, executor: Executor) -> Iterator[Metrics]:
        """Write an event to the journal and the metrics; yields the new lines of metrics."""
        if isinstance(event, Asked):
            self.journal.append({"kind": "ask", "n": event.n})
            return
        results = event.results if isinstance(event, Evaluated) else [event.result]
        self.clock.cpu_workers += sum(r.cpu_seconds for r in results)
        complete = isinstance(event, Evaluated) or event.metrics is not None
        now: dict[str, Any] = {"wall": self.clock.wall, "cpu": self.clock.cpu} if complete else {}  # reading the clocks takes time, too
        spans = [[r.job.kind, r.worker, round(r.started, 4), round(r.finished, 4)] for r in results]
        outcomes = [o for r in results for o in r.outcomes]
        self._note_failures(outcomes)
        for result in results:
            self._idle.add(result)
        if isinstance(event, Evaluated):
            self.journal.append({"kind": "evaluate", "version": event.version, "spans": spans, **now}, outcomes)
            yield self._write(self._evaluation(event.version, outcomes), now)
            return
        self._spans.add(event.result)
        lost = self._spans.lost(executor.workers)
        news = executor.report() | self._idle.pop() if event.metrics is not None else {}
        self.journal.append({"kind": "tell", "lost": lost, "news": news, "spans": spans, **now}, outcomes)
        self._write_individuals()
        if event.metrics is not None:
            self._last_good_offset = self.journal.offset
            self._spans = StragglerMeter()
            yield self._write(self._training(event.metrics | news, lost, now["wall"]), now)

    def replay(self, record: Record) -> None:
        """Repeat what a record of the journal describes, without playing a step."""
        meta = record.meta
        metrics = apply_record(self.algorithm, record)
        self._write_individuals()
        self._note_failures(record.outcomes)
        if "wall" not in meta:
            return
        self.clock.restart(meta["wall"], meta["cpu"])
        now = {"wall": meta["wall"], "cpu": meta["cpu"]}
        if meta["kind"] == "evaluate":
            self._write(self._evaluation(meta["version"], record.outcomes), now)
        elif metrics is not None:
            self._write(self._training(metrics | meta.get("news", {}), meta["lost"], now["wall"]), now)

    def should_stop(self) -> str:
        """Why to stop now, or "". Checked between updates, so that it does not depend on which worker was faster."""
        stop = self.config.stop
        if stop.wall_seconds is not None and self.clock.wall >= stop.wall_seconds:
            return f"stop.wall_seconds={stop.wall_seconds:g}"
        if stop.score is not None and self.score is not None and self.evaluated and self.score >= stop.score:
            return f"stop.score={stop.score:g}"
        if stop.env_steps is not None and self.algorithm.env_steps >= stop.env_steps:
            return f"stop.env_steps={stop.env_steps}"
        if stop.learning_steps is not None and self.algorithm.learning_steps >= stop.learning_steps:
            return f"stop.learning_steps={stop.learning_steps}"
        if stop.generations is not None and self.algorithm.version >= stop.generations:
            return f"stop.generations={stop.generations}"
        return ""

    def checkpoint(self, force: bool = False) -> Path | None:
        """Save, if it is time or if forced; returns where."""
        version = self.algorithm.version
        if not force and (version == self._checkpointed or version % self.config.run.checkpoint_every):
            return None
        self.journal.sync()
        self.metrics.sync()
        self.individuals.sync()
        self._last_good_offset = self.journal.offset
        info = {
            "run": self.id,
            "config": identity(self.config),
            "journal": self.journal.offset,
            "metrics": self.metrics.offset,
            "individuals": self.individuals.offset,
            "env_steps": self.algorithm.env_steps,
            "learning_steps": self.algorithm.learning_steps,
            "gradient_steps": self.algorithm.gradient_steps,
            "replayed_steps": self.algorithm.replayed_steps,
            "eval_env_steps": self._eval_steps,
            "wall_seconds": self.clock.wall,
            "cpu_seconds": self.clock.cpu,
            "evaluated": self._evaluated,
            "score": self.score,
            "failures": self._failures,
        }
        policy = self.algorithm.policy_state()
        written = write_checkpoint(self.directory.checkpoints, version, info, self.algorithm.state_dict(), policy, self.config.run.keep)
        self._checkpointed = version
        return written

    def restore(self, info: dict[str, Any], state: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        self.algorithm.load_state_dict(state)
        self.clock.restart(info["wall_seconds"], info["cpu_seconds"])
        self._eval_steps, self._evaluated = int(info["eval_env_steps"]), int(info["evaluated"])
        self.score = None if info["score"] is None else float(info["score"])
        self._failures = list(info["failures"])
        self._checkpointed = self.algorithm.version

    def close(self) -> None:
        """Close the files and release the lock."""
        self.journal.close()
        self.metrics.close()
        self.individuals.close()
        self.trackers.close()
        self.directory.unlock()

    def params_sha256(self) -> str:
        """Hash of the greedy policy."""
        return policy_hash(self.algorithm.policy_state())

    def _write_individuals(self) -> None:
        for individual in self.algorithm.individuals():
            record = {"learning_steps": self.algorithm.learning_steps, **individual}
            self.individuals.write(record)
            if self.config.population:
                self.trackers.write_member(record)

    def _note_failures(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            if outcome.reason and outcome.reason not in self._failures and len(self._failures) < 10:
                self._failures.append(outcome.reason)

    def _training(self, metrics: Metrics, lost: float, wall: float) -> Metrics:
        now = (wall, self.algorithm.env_steps, self.algorithm.gradient_steps)
        seconds, steps, updates = (a - b for a, b in zip(now, self._speed_mark, strict=True))
        self._speed_mark = now
        speeds = {"env_steps_per_second": steps / seconds if seconds > 0 else 0.0}
        if now[2]:
            speeds["updates_per_second"] = updates / seconds if seconds > 0 else 0.0
        metrics = metrics | speeds | {"straggler_fraction": lost, "generation": float(self.algorithm.version)}
        self.warnings = self._health.check_metrics(metrics) or self.warnings
        return metrics

    def _evaluation(self, version: int, outcomes: list[Outcome]) -> Metrics:
        self._evaluated = version
        self._eval_steps += sum(o.env_steps for o in outcomes)
        groups: Metrics = {}
        if isinstance(self.algorithm, Groups):
            groups = group_scores(self.algorithm.names, outcomes)
            outcomes = outcomes[: len(outcomes) // len(self.algorithm.names)]  # the score is that of the first group
        scores = np.array([o.scalar for o in outcomes if not o.failed])
        if not len(scores):
            raise EnvironmentFailure(
                f"every episode of the evaluation of generation {version} failed; the first reason: {outcomes[0].reason}"
            )
        self.score = float(scores.mean())
        return {
            "generation": float(version),
            "score": self.score,
            "score_std": float(scores.std()),
            "score_iqm": float(iqm(scores)),
            "score_length": float(np.mean([o.env_steps for o in outcomes])),
            "score_failed": float(len(outcomes) - len(scores)),
            **groups,
        }

    def _write(self, metrics: Metrics, now: dict[str, float]) -> Metrics:
        head = {
            "generation": int(metrics["generation"]),
            "env_steps": self.algorithm.env_steps,
            "learning_steps": self.algorithm.learning_steps,
            "eval_env_steps": self._eval_steps,
            "gradient_steps": self.algorithm.gradient_steps,
            "replayed_steps": self.algorithm.replayed_steps,
            "wall_seconds": round(now["wall"], 3),
            "cpu_seconds": round(now["cpu"], 3),
        }
        line = head | {k: v for k, v in metrics.items() if k != "generation"}
        self.metrics.write(line)
        self.trackers.write(line)
        self.last |= line
        return line


def start(config: RunConfig, out: Path | str | None = None) -> Run:
    """A new run in a new directory."""
    leave_script_in_worker()
    check_trackers(config.run.trackers)
    config = resolved(with_groups(config))
    parts = build(config)  # what cannot work is said before there is a directory
    config = config.model_copy(update={"algorithm": config.algorithm.resolved_for(parts.env_spec)})
    directory = RunDirectory.create(config, None if out is None else Path(out))
    if config.opponents:
        keep_policies(parts.opponents, directory.opponents)
    run = Run(directory, config, build(config, directory.states_of(config), opponents=parts.opponents))
    run.open()
    run.journal.append({"kind": "config", "identity": identity(config)})
    return run


def resolved(config: RunConfig) -> RunConfig:
    """A copy of the config in which every `auto` is replaced by its value on this machine.

    `env.backend` stays `auto` if a population searches several environments.
    """
    several = config.population is not None and any(key.startswith("env.") for key in where_played(config.population.search))
    env = config.env if several else config.env.model_copy(update={"backend": choose_backend(config.env)})
    opponents = expand_folders(config.opponents) if config.opponents else None
    algorithm = config.algorithm.resolved().resolved_for_steps(steps_of_a_learner(config))
    return config.model_copy(update={"env": env, "algorithm": algorithm, "opponents": opponents})


def steps_of_a_learner(config: RunConfig) -> int | None:
    """Environment steps that the run, or a member of its population, will learn from, about; None: the config does not say."""
    total = min((steps for steps in (config.stop.env_steps, config.stop.learning_steps) if steps is not None), default=None)
    population = config.population
    if isinstance(population, SweepConfig):
        return population.steps
    if population is None or total is None:
        return total
    return total // population.members if population.members > 1 else None  # of groups and leagues, this is not their number


def identity(config: RunConfig) -> dict[str, Any]:
    """What makes a run this run and not another: resuming it cannot change any of it. When to give up may change."""
    more = {name for name in ("opponents", "population") if getattr(config, name)}
    sections = config.model_dump(mode="json", include={"env", "policy", "algorithm"} | more)
    algorithm = {key: value for key, value in sections["algorithm"].items() if key not in FailureLimits.model_fields}
    return {**sections, "algorithm": algorithm, "seed": config.run.seed}


def train(run: Run, watchers: Sequence[Callback] = (), signals: Signals | None = None) -> None:
    """Train until a stop rule holds or someone presses Ctrl-C; in both cases the state is saved.

    After an error nothing new is saved: the last checkpoint and the journal hold everything up to it. `signals`: those that
    a caller holds already.

    Raises:
        KeyboardInterrupt: after SIGINT or SIGTERM, when all is saved.
        Diverged: parameters or losses are not finite any more.
        EnvironmentFailure: the environment fails too often.
    """
    with nullcontext(signals) if signals else Signals.held() as held:
        executor: InterruptibleExecutor | None = None
        try:
            with translate_disk_errors("the run"):
                executor = _make_executor(run, held)
                run.trackers.start()
                _train_until_stopped(run, executor, watchers)
            run.checkpoint(force=True)
            with held.waiting():  # a signal that came after the last result is not lost
                pass
        except KeyboardInterrupt:
            run.checkpoint(force=True)
            raise
        except EnvironmentFailure:
            run.forget_failed_update()
            raise
        except Diverged as error:
            saved = list_checkpoints(run.directory.checkpoints)
            good = f"The last good checkpoint stays: {saved[-1]}" if saved else "There is no checkpoint yet"
            raise Diverged(f"{error}. {good}; begin again with baldwin train -c {run.directory.config} -m ...") from error
        finally:
            if executor:
                executor.close()
            run.close()


def _make_executor(run: Run, signals: Signals) -> InterruptibleExecutor:
    try:
        executor = make_executor(run.config.executor, run.parts.worker_spec)
    except SystemExit as error:  # while Ray starts, its own handler of SIGTERM is in place
        raise KeyboardInterrupt from error
    signals.listen()
    return InterruptibleExecutor(executor, signals)


def _train_until_stopped(run: Run, executor: Executor, watchers: Sequence[Callback]) -> None:
    def on_event(event: Event) -> bool:
        lines = list(run.on_event(event, executor))
        for line in lines:
            for watch in watchers:
                watch(run, line)
        return bool(lines)

    run.stopped_by = run.should_stop()
    if not run.stopped_by:
        for event in loop(run.algorithm, executor, run.due):
            if not on_event(event):
                continue
            if isinstance(event, Told):
                run.checkpoint()
            run.stopped_by = run.should_stop()
            if run.stopped_by:
                break
    if not run.evaluated:
        publish(run.algorithm, executor)
        on_event(evaluate(run.algorithm, executor, run.evaluation_jobs(), deque()))  # what else comes back is asked again on resume
