"""Who did what when: a run's jobs on its workers, from the journal."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from baldwin.errors import RunDirectoryError, UserError, describe_exception
from baldwin.runs.directory import RunDirectory
from baldwin.runs.journal import read_journal
from baldwin.runs.report import save_figure

COLORS = {
    "critic": "#c44e52",
    "rl": "#dd8452",
    "es": "#4c72b0",
    "random": "#b0b0b0",
    "mean": "#8172b3",
    "train": "#4c72b0",
    "collect": "#4c72b0",
    "gradient": "#dd8452",
    "learn": "#c44e52",
    "member": "#dd8452",
    "evaluate": "#55a868",
}
MEANING = {
    "critic": "critic steps",
    "rl": "individual: actor steps, then an episode",
    "es": "individual: an episode",
    "random": "random episode",
    "mean": "the mean, as the baseline",
    "train": "episodes",
    "collect": "episodes",
    "gradient": "a segment and its gradient",
    "learn": "an update",
    "member": "a member: a round of training, then its episodes",
    "evaluate": "evaluation",
}


class Span(NamedTuple):
    """One job on one worker, from start to finish."""

    kind: str
    worker: int
    started: float
    finished: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """The jobs of a run, or of a part of it."""

    spans: list[Span]
    workers: tuple[int, ...]
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """Seconds from the first start to the last finish."""
        return self.end - self.begin

    def busy(self) -> dict[int, dict[str, float]]:
        """Worker -> kind -> seconds."""
        found: dict[int, dict[str, float]] = {worker: defaultdict(float) for worker in self.workers}
        for span in self.spans:
            found[span.worker][span.kind] += span.finished - span.started
        return {worker: dict(kinds) for worker, kinds in found.items()}

    def idle(self) -> dict[int, float]:
        """Worker -> the share of the time in which it had nothing to do."""
        return {worker: max(0.0, 1 - sum(kinds.values()) / self.seconds) for worker, kinds in self.busy().items()}

    def cut(self, start: float, seconds: float | None) -> Timeline:
        """The part of the timeline within these seconds; jobs are cut at its ends."""
        end = min(self.end, start + seconds) if seconds is not None else self.end
        inside = [
            span._replace(started=max(span.started, start), finished=min(span.finished, end))
            for span in self.spans
            if span.finished > start and span.started < end
        ]
        if not inside:
            raise UserError(f"no job from {start:g} s on; the run's jobs took {self.seconds:.1f} s in all")
        return Timeline(inside, self.workers, start, end)

    def row(self) -> dict[str, Any]:
        """Busy and idle seconds of every worker, for JSON."""
        idle = self.idle()
        return {
            "seconds": self.seconds,
            "idle": sum(idle.values()) / len(idle),
            "workers": {str(worker): {"idle": idle[worker], "busy": kinds} for worker, kinds in self.busy().items()},
        }


def read_timeline(path: Path) -> Timeline:
    """All jobs of a run. Clocks begin anew with each process that worked on it: the next one follows where the last one ended.

    Raises:
        UserError: the journal does not say when jobs ran.
    """
    directory = RunDirectory.find(path)
    processes: list[list[Span]] = [[]]
    for record in read_journal(directory.journal, outcomes=False, run_id=directory.id):
        if record.meta["kind"] == "reissue":
            processes.append([])
        processes[-1] += _spans(record.meta.get("spans", []), directory)
    spans: list[Span] = []
    for own in processes:
        shift = max((s.finished for s in spans), default=0.0) - min((s.started for s in own), default=0.0)
        spans += [s._replace(started=s.started + shift, finished=s.finished + shift) for s in own]
    if not spans:
        raise UserError(f"the journal of {path} does not say when jobs ran: no job came back yet, or an older version of baldwin made it")
    return Timeline(spans, tuple(sorted({s.worker for s in spans})), 0.0, max(s.finished for s in spans))


def _spans(written: Any, directory: RunDirectory) -> list[Span]:
    try:
        return [Span(str(kind), int(worker), float(started), float(finished)) for kind, worker, started, finished in written]
    except (TypeError, ValueError) as error:
        raise RunDirectoryError(f"{directory.journal} has a record that is none ({describe_exception(error)})") from error


def plot_timeline(timeline: Timeline, out: Path, title: str) -> None:
    """A row a worker, a bar a job: what is white was waiting."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    busy, idle = timeline.busy(), timeline.idle()
    figure = Figure(figsize=(12, 1.8 + min(0.45 * len(busy), 12)), layout="constrained")
    axes = figure.subplots()
    for row, worker in enumerate(busy):
        for kind in busy[worker]:
            bars = [(s.started, s.finished - s.started) for s in timeline.spans if (s.worker, s.kind) == (worker, kind)]
            color = COLORS.get(kind, "#808080")
            edges = ["white" if width > timeline.seconds / 200 else color for _, width in bars]  # a narrow one would be all edge
            axes.broken_barh(bars, (row - 0.4, 0.8), facecolor=color, edgecolor=edges, linewidth=0.4)
    axes.set_yticks(range(len(busy)), [f"worker {worker}\n{idle[worker]:.0%} idle" for worker in busy], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(timeline.begin, timeline.end)
    axes.set_xlabel("seconds, by the executor's clock")
    axes.set_title(title)
    kinds = [kind for kind in COLORS if any(kind in own for own in busy.values())]
    handles = [Patch(color=COLORS[kind], label=MEANING[kind]) for kind in kinds]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(5, len(handles)), fontsize=8)
    save_figure(figure, out)
