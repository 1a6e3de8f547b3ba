"""What a tracker is, and the table of those that a config can name."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from baldwin.config_base import ConfigModel
from baldwin.errors import missing_extra
from baldwin.registry import Registry
from baldwin.types import Metrics


class Tracker(Protocol):
    """Where the metrics of one run go, besides its metrics.jsonl."""

    @property
    def destination(self) -> str:
        """What it writes to. If a resumed run names another one, that gets the run's metrics from the first line on."""

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Store the run's config; called once by every process that trains the run, before the first `write`."""

    def write(self, metrics: Metrics, step: int) -> None:
        """Store metrics at this environment step."""

    def close(self) -> None:
        """Write what is still buffered, and end the tracker's run."""


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """What a tracker needs to know of the run."""

    id: str
    folder: Path
    name: str
    group: str  # runs that differ only by their seed have the same
    env_steps: int = 0  # where a resumed run goes on
    writes: int = 0  # how many the tracker has stored already


@dataclass(frozen=True, slots=True)
class TrackerEntry:
    """One kind of tracker. `build` gets the section `run.NAME` of the config as an `options` model, or None if that is None."""

    name: str
    build: Callable[[Any, TrackedRun], Tracker]
    options: type[ConfigModel] | None = None
    local: bool = False  # it only writes small files, at once: no process of its own, and a full disk stops the run
    module: str = ""  # a library that must be there
    extra: str = ""  # and the extra that installs it

    def check_installed(self) -> None:
        """Check that its library is there, without importing it.

        Raises:
            MissingExtra: it is not; with the command that installs it.
        """
        if self.module and importlib.util.find_spec(self.module) is None:
            raise missing_extra(self.extra, f"tracker {self.name!r}")


TRACKERS: Registry[TrackerEntry] = Registry("tracker")


def register_tracker(entry: TrackerEntry) -> TrackerEntry:
    """Add a kind of tracker to the registry."""
    return TRACKERS.add(entry.name, entry)


def check_trackers(names: Sequence[str]) -> None:
    """Check that every library these trackers need is installed.

    Raises:
        MissingExtra: one is not.
    """
    for name in names:
        TRACKERS.find(name).check_installed()


def run_metrics(line: Mapping[str, Any]) -> tuple[Metrics, int]:
    """The numbers of a line of metrics.jsonl, and the environment step they belong to."""
    return {name: float(value) for name, value in line.items() if is_number(value) and name != "env_steps"}, int(line["env_steps"])


def member_metrics(record: Mapping[str, Any]) -> tuple[Metrics, int]:
    """The score and the numeric hyper-parameters of a round of a member, as `member/K/...`, at the environment steps of all members."""
    values = {"score": record["score"], "env_steps": record["env_steps"], **record["hyperparameters"]}
    prefix = f"member/{record['member']}"
    return {f"{prefix}/{name}": float(value) for name, value in values.items() if is_number(value)}, int(record["learning_steps"])


def is_number(value: Any) -> bool:
    """Whether a value of a line can be drawn as a curve; text and null cannot."""
    return isinstance(value, int | float)
