"""TensorBoard events in the run directory."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from baldwin.trackers.tracker import TrackedRun, TrackerEntry, register_tracker
from baldwin.types import Metrics


class TensorBoardTracker:
    """TensorBoard events, written at once: a writer with a thread of its own would meet a full disk where nobody can catch it."""

    def __init__(self, run: TrackedRun) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder = run.folder / "tensorboard"
        folder.mkdir(exist_ok=True)
        self.destination = str(folder)
        self._file = open(folder / f"events.out.tfevents.{time.time_ns()}", "wb", buffering=0)  # noqa: SIM115 - closed by close()
        self._records, self._event, self._summary = RecordWriter(self._file), Event, Summary
        self._add(file_version="brain.Event:2")
        if run.env_steps:  # tells TensorBoard to forget what an earlier file has behind this step
            self._add(step=run.env_steps + 1, session_log=SessionLog(status=SessionLog.START))

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Nothing: the config lies beside the events."""

    def write(self, metrics: Metrics, step: int) -> None:
        """Add scalars at an environment step."""
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in metrics.items() if name != "generation"]
        self._add(step=step, summary=self._summary(value=values))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _add(self, **content: Any) -> None:
        self._records.write(self._event(wall_time=time.time(), **content).SerializeToString())


register_tracker(TrackerEntry("tensorboard", lambda options, run: TensorBoardTracker(run), local=True))
