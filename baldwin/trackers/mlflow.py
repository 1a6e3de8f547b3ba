"""MLflow: one MLflow run for each run of Baldwin, on a tracking server or in a database file."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from baldwin.config_base import ConfigModel
from baldwin.trackers.tracker import TrackedRun, TrackerEntry, register_tracker
from baldwin.types import Metrics

RUN_TAG = "baldwin.run"
MAX_PARAMS = 100  # MLflow's limit of a batch
MAX_VALUE = 500  # characters of a value that every version of MLflow takes


class MlflowConfig(ConfigModel):
    """Tracker mlflow: where the run appears."""

    uri: str | None = Field(
        None, description="A tracking server, or a file: sqlite:///PATH; null: $MLFLOW_TRACKING_URI, or mlflow.db in the working directory"
    )
    experiment: str = Field("baldwin", min_length=1, max_length=128, description="The MLflow experiment; made if there is none")

    def foreign_code(self) -> list[str]:
        """An address that was chosen by whoever wrote the config: metrics would go there."""
        return [f"uri={self.uri}"] if self.uri else []


class MlflowTracker:
    """The MLflow run has a tag with the id of Baldwin's run, by which a resumed run finds it again."""

    def __init__(self, config: MlflowConfig, run: TrackedRun) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        self._client, self._metric, self._param = MlflowClient(tracking_uri=config.uri), Metric, Param
        experiment = self._client.get_experiment_by_name(config.experiment)
        experiment_id = experiment.experiment_id if experiment else self._client.create_experiment(config.experiment)
        found = self._client.search_runs([experiment_id], f"tags.`{RUN_TAG}` = '{run.id}'", max_results=1)
        tags = {RUN_TAG: run.id, "baldwin.group": run.group}
        self._run_id: str = (found[0] if found else self._client.create_run(experiment_id, run_name=run.name, tags=tags)).info.run_id
        if found:
            self._client.update_run(self._run_id, status="RUNNING")
        self.destination = self._run_id

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Store the config as parameters. MLflow never changes one, so that those of a resumed run stay what they were."""
        known = self._client.get_run(self._run_id).data.params
        params = [self._param(key, str(value)[:MAX_VALUE]) for key, value in flatten(config).items() if key not in known]
        for start in range(0, len(params), MAX_PARAMS):
            self._client.log_batch(self._run_id, params=params[start : start + MAX_PARAMS])

    def write(self, metrics: Metrics, step: int) -> None:
        """Add metrics at an environment step."""
        now = int(1000 * time.time())
        self._client.log_batch(self._run_id, metrics=[self._metric(name, value, now, step) for name, value in metrics.items()])

    def close(self) -> None:
        """Mark the MLflow run as finished; a resumed one is marked as running again."""
        self._client.set_terminated(self._run_id)


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{a: {b: 1}} -> {a.b: 1}."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) and value else {f"{prefix}{key}": value}
    return flat


register_tracker(TrackerEntry("mlflow", MlflowTracker, MlflowConfig, module="mlflow", extra="mlflow"))
