"""What a person sees while a run goes: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from itertools import zip_longest
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from baldwin.config import RunConfig
from baldwin.runs.run import Run
from baldwin.types import Metrics

LINE_SECONDS = 10.0
SIGNALS = {
    "center_percentile": "percentile of the center",
    "center_rank": "rank of the center",
    "split_half_cosine": "split-half cosine",
    "tie_fraction": "ties",
    "update_ratio": "update ratio",
    "truncated_fraction": "truncated",
    "step_size": "step of the mean",
    "staleness": "staleness",
    "variance_mean": "variance, mean",
    "rl_fraction": "individuals that learn",
    "critic_steps_per_learning_step": "critic updates per learning step",
    "q_mean": "Q, mean",
    "q_bias": "Q minus return",
    "critic_loss": "critic loss",
    "entropy": "entropy",
    "alpha": "temperature",
    "update_to_data": "updates per step",
    "buffer_fill": "replay filled",
    "straggler_fraction": "workers idle",
}


class Progress(AbstractContextManager["Progress"], Protocol):
    """Something that shows metrics as they come."""

    def __call__(self, run: Run, line: Metrics) -> None:
        """A generation or an evaluation is done."""


def make_progress(config: RunConfig, console: Console, quiet: bool) -> Progress:
    """The display that fits where the output goes."""
    if quiet:
        return QuietProgress()
    return LiveProgress(config, console) if console.is_terminal else PlainProgress(config, console)


def fraction_done(config: RunConfig, line: Metrics) -> float:
    """How far the nearest budget is used up, in [0, 1]."""
    budgets = [
        (config.stop.env_steps, line.get("env_steps", 0)),
        (config.stop.learning_steps, line.get("learning_steps", 0)),
        (config.stop.generations, line.get("generation", 0)),
        (config.stop.wall_seconds, line.get("wall_seconds", 0)),
    ]
    return min(1.0, max((used / budget for budget, used in budgets if budget), default=0.0))


def eta(config: RunConfig, line: Metrics, begun: tuple[float, float], seconds: float) -> str:
    """Time to the end of the budget, estimated from the speed of this process so far."""
    done = fraction_done(config, line)
    gained = done - begun[0]
    if gained <= 0 or seconds <= 0:
        return "-"
    left = int((1 - done) * seconds / gained)
    return f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d}"


class QuietProgress:
    """Progress for --quiet: prints nothing."""

    def __call__(self, run: Run, line: Metrics) -> None:
        """Ignore a line of metrics."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None


class PlainProgress(QuietProgress):
    """A line an evaluation, and now and then one in between."""

    def __init__(self, config: RunConfig, console: Console) -> None:
        self._config, self._console = config, console
        self._last = 0.0
        self._warned: list[str] = []
        self._begun: tuple[float, float] | None = None

    def __call__(self, run: Run, line: Metrics) -> None:
        """Print a line of metrics."""
        now = time.monotonic()
        if self._begun is None:
            self._begun = (fraction_done(self._config, line), now)
        if run.warnings != self._warned:
            self._warned = run.warnings
            for text in run.warnings:
                self._print(f"warning: {text}")
        if "score" in line:
            self._print(
                f"generation {line['generation']:>5}  env steps {line['env_steps']:>11,}  score {line['score']:10.2f}  ({line['wall_seconds']:.0f} s)"
            )
        elif now - self._last >= LINE_SECONDS:
            self._print(
                f"generation {line['generation']:>5}  env steps {line['env_steps']:>11,}  return {line['return_mean']:9.2f}  "
                f"{line['env_steps_per_second']:,.0f} steps/s  left {eta(self._config, line, self._begun, now - self._begun[1])}"
            )
        else:
            return
        self._last = now

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class LiveProgress(QuietProgress):
    """A table that is redrawn in place."""

    def __init__(self, config: RunConfig, console: Console) -> None:
        self._config = config
        self._live = Live(Text("starting workers ..."), console=console, refresh_per_second=8)
        self._begun: tuple[float, float] | None = None
        self._best = -float("inf")

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.__exit__(kind, error, trace)

    def __call__(self, run: Run, line: Metrics) -> None:
        """Redraw with a new line of metrics."""
        now = time.monotonic()
        if self._begun is None:
            self._begun = (fraction_done(self._config, line), now)
        self._best = max(self._best, line.get("score", self._best))
        self._live.update(self._draw(run, now))

    def _draw(self, run: Run, now: float) -> Group:
        last, begun = run.last, self._begun or (0.0, now)
        config = self._config
        table = Table(
            title=f"{config.run.name or config.env.id}  {run.directory.path}", title_justify="left", show_header=False, expand=False
        )
        table.add_column(style="bold")
        table.add_column(justify="right")
        table.add_column(style="dim")
        table.add_column(justify="right")
        score = f"{run.score:,.1f}" if run.score is not None else "-"
        left = [
            ("score (greedy, held-out)", score),
            ("best score", f"{self._best:,.1f}" if self._best > -float("inf") else "-"),
            ("return in training", f"{last.get('return_mean', 0.0):,.1f} ± {last.get('return_std', 0.0):,.1f}"),
            ("generation", f"{last.get('generation', 0):,}"),
            ("env steps", f"{last.get('env_steps', 0):,}"),
            ("env steps/s", f"{last.get('env_steps_per_second', 0.0):,.0f}"),
            ("time, left", f"{last.get('wall_seconds', 0.0):,.0f} s, {eta(config, last, begun, now - begun[1])}"),
        ]
        right = [(name, f"{last[key]:.3g}") for key, name in SIGNALS.items() if key in last]
        for (a, b), (c, d) in zip_longest(left, right, fillvalue=("", "")):
            table.add_row(a, b, c, d)
        parts: list[Table | ProgressBar | Text] = [table, ProgressBar(total=1.0, completed=fraction_done(config, last), width=60)]
        parts += [Text(f"warning: {text}", style="yellow") for text in run.warnings]
        return Group(*parts)
