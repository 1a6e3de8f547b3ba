"""What a sweep found: its table, and pictures of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from baldwin.errors import UserError
from baldwin.ops.statistics import explained_share
from baldwin.runs.directory import RunDirectory
from baldwin.runs.members import population_state
from baldwin.runs.report import save_figure

Row = dict[str, Any]


def sweep_table(path: Path) -> list[Row]:
    """The trials that are finished, best first; scores that are not finite are null.

    Raises:
        UserError: it is no sweep, or no trial has finished.
    """
    state, _ = population_state(RunDirectory.find(path))
    if "table" not in state:
        raise UserError(f"{path} is not the run of a sweep (baldwin sweep)")
    return [
        row | {"median": _finite(row["median"]), "scores": [_finite(score) for score in row["scores"]], "env_steps": int(row["env_steps"])}
        for row in state["table"]
    ]


def importances(rows: list[Row]) -> dict[str, float]:
    """For each hyper-parameter the share of the variance of the trials' ranks that it explains by itself."""
    known = [row for row in rows if row["median"] is not None]
    if len(known) < 2:
        return {}
    ranks = np.argsort(np.argsort([row["median"] for row in known], kind="stable")).astype(np.float64)
    return {name: explained_share([row["hyperparameters"][name] for row in known], ranks) for name in known[0]["hyperparameters"]}


def plot_sweep(path: Path, out: Path) -> None:
    """Parallel coordinates, coloured by score, and the importance of each hyper-parameter."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    config = RunDirectory.find(path).read_config()
    rows = [row for row in sweep_table(path) if row["median"] is not None]
    if not rows:
        raise UserError(f"{path} has no trial with a score yet")
    names = list(rows[0]["hyperparameters"])
    search = config.population.search if config.population else {}
    columns = [*(_coordinates([row["hyperparameters"][n] for row in rows], "log" in search.get(n, {})) for n in names)]
    columns.append(_coordinates([row["median"] for row in rows], False))
    figure = Figure(figsize=(4 + 2.2 * len(columns), 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[2, 1])
    for n, line in reversed(list(enumerate(np.array([place for place, _ in columns]).T))):
        left.plot(range(len(columns)), line, color=colormaps["viridis"](1 - n / max(1, len(rows) - 1)), alpha=0.8)
    for n, (_, ticks) in enumerate(columns):
        for place, text in ticks:
            left.text(n, place, text, fontsize=8)
    left.set_xticks(range(len(columns)), [*names, "median score"], rotation=15, fontsize=8)
    left.set_yticks([])
    shares = importances(rows)
    right.barh(list(shares), list(shares.values()))
    right.set_xlim(0, 1)
    right.set_title("share of the variance of ranks that it explains", fontsize=9)
    save_figure(figure, out)


def _coordinates(values: list[Any], log: bool) -> tuple[list[float], list[tuple[float, str]]]:
    """Places between 0 and 1, and the labels of the ends, or of each choice."""
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        scaled = [math.log(v) if log else float(v) for v in values]
        low, high = min(scaled), max(scaled)
        width = high - low or 1.0
        return [(v - low) / width for v in scaled], [(0.0, f"{min(values):.3g}"), (1.0, f"{max(values):.3g}")]
    names = sorted({str(v) for v in values})
    places = {name: n / max(1, len(names) - 1) for n, name in enumerate(names)}
    return [places[str(v)] for v in values], [(place, name) for name, place in places.items()]


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
