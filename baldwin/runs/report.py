"""What ran and how it went: one run shown, several compared."""

from __future__ import annotations

import contextlib
import json
import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from baldwin.errors import RunDirectoryError, UserError
from baldwin.ops.shaping import Vector
from baldwin.ops.statistics import bootstrap_interval, iqm
from baldwin.runs.checkpoint import newest_checkpoint
from baldwin.runs.directory import RunDirectory
from baldwin.runs.members import describe_members
from baldwin.runs.metrics import read_metrics

log = logging.getLogger("baldwin")
POINTS = 100
AXES = {"env_steps": "environment steps", "learning_steps": "learning steps", "wall_seconds": "wall-clock seconds"}


def describe_run(path: Path) -> dict[str, Any]:
    """What a run is, and how far it is by its newest good checkpoint."""
    directory = RunDirectory.find(path)
    config = directory.read_config()
    checkpoint, complaints = newest_checkpoint(directory.checkpoints, directory.id)
    info = checkpoint.info if checkpoint else {}
    lines, damaged_lines = read_metrics(directory)
    scores = [{k: line[k] for k in ("generation", "env_steps", "wall_seconds", "score")} for line in lines if "score" in line]
    machine: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError, AttributeError):
        machine = json.loads(directory.versions.read_text())
        machine.pop("run", None)
    return {
        "directory": str(path),
        "run": directory.id,
        "name": config.run.name or config.env.id,
        "env": config.env.id,
        "algorithm": config.algorithm.name,
        "seed": config.run.seed,
        "generations": info.get("generation", 0),
        "env_steps": info.get("env_steps", 0),
        "learning_steps": info.get("learning_steps", info.get("env_steps", 0)),
        "eval_env_steps": info.get("eval_env_steps", 0),
        "gradient_steps": info.get("gradient_steps", 0),
        "wall_seconds": info.get("wall_seconds", 0.0),
        "cpu_seconds": info.get("cpu_seconds", 0.0),
        "score": info.get("score"),
        "params_sha256": info.get("params_sha256"),
        "last_scores": scores[-5:],
        "failures": info.get("failures", []),
        "damaged": complaints + damaged_lines,
        "machine": machine,
        **(describe_members(checkpoint.state) if checkpoint and config.population else {}),
        **{name: line[name] for line in lines[-4:] for name in ("hypervolume", "coverage", "qd_score") if name in line},
    }


@dataclass(frozen=True, slots=True)
class Curve:
    """The scores of one run."""

    name: str
    seed: int
    env_steps: Vector
    learning_steps: Vector
    wall_seconds: Vector
    score: Vector

    def x(self, axis: str) -> Vector:
        """Positions of the scores on an axis: steps or seconds."""
        return {"env_steps": self.env_steps, "learning_steps": self.learning_steps, "wall_seconds": self.wall_seconds}[axis]

    def at(self, axis: str, grid: Vector) -> Vector:
        """The score that held at each point of the grid: the last one seen, never a later one."""
        place = np.searchsorted(self.x(axis), grid, side="right") - 1
        return self.score[np.maximum(place, 0)]


def read_curve(path: Path) -> Curve:
    """The scores of a run.

    Raises:
        RunDirectoryError: it has none yet.
    """
    directory = RunDirectory.find(path)
    config = directory.read_config()
    found, warnings = read_metrics(directory)
    for warning in warnings:
        log.warning("%s", warning)
    lines = [line for line in found if isinstance(line.get("score"), int | float)]
    if not lines:
        raise RunDirectoryError(f"{path} has no scores yet")
    columns = (np.array([line[k] for line in lines], np.float64) for k in (*AXES, "score"))
    return Curve(config.run.name or config.env.id, config.run.seed, *columns)


@dataclass(frozen=True, slots=True)
class Group:
    """Runs of one name over seeds."""

    name: str
    curves: list[Curve]

    def final(self) -> Vector:
        """The last score of each."""
        return np.array([c.score[-1] for c in self.curves])

    def row(self) -> dict[str, Any]:
        """A line of the table: final scores, not the best moment."""
        final = self.final()
        low, high = bootstrap_interval(final)
        return {
            "name": self.name,
            "seeds": len(self.curves),
            "iqm": float(iqm(final)),
            "ci": [low, high],
            "median": float(np.median(final)),
            "min": float(final.min()),
            "max": float(final.max()),
            "env_steps": float(np.mean([c.env_steps[-1] for c in self.curves])),
            "learning_steps": float(np.mean([c.learning_steps[-1] for c in self.curves])),
            "wall_seconds": float(np.mean([c.wall_seconds[-1] for c in self.curves])),
        }

    def band(self, axis: str) -> tuple[Vector, Vector, Vector, Vector]:
        """Grid, IQM, and its bootstrap interval, as far as every seed got."""
        end = min(c.x(axis)[-1] for c in self.curves)
        grid = np.linspace(0, end, POINTS)
        scores = np.stack([c.at(axis, grid) for c in self.curves])  # [seeds, points]
        intervals = np.array([bootstrap_interval(column, resamples=500) for column in scores.T])
        return grid, iqm(scores.T), intervals[:, 0], intervals[:, 1]


def compare_runs(paths: Sequence[Path]) -> list[Group]:
    """Runs grouped by name; runs of one name that differ in env, policy or algorithm are kept apart."""
    if not paths:
        raise UserError("compare takes one or more run directories")
    groups: dict[tuple[str, str], list[Curve]] = defaultdict(list)
    for path in dict.fromkeys(p.resolve() for p in paths):
        config = RunDirectory.find(path).read_config()
        curve = read_curve(path)
        groups[curve.name, config.model_dump_json(include={"env", "policy", "algorithm", "population"})].append(curve)
    names = [name for name, _ in groups]
    labels = [name if names.count(name) == 1 else f"{name} #{names[: n + 1].count(name)}" for n, name in enumerate(names)]
    return [Group(label, curves) for label, curves in zip(labels, groups.values(), strict=True)]


def plot_groups(groups: Sequence[Group], out: Path) -> None:
    """Score against environment steps, learning steps where they are others, and wall-clock; IQM with bootstrap intervals."""
    from matplotlib.figure import Figure

    apart = any(not np.array_equal(c.env_steps, c.learning_steps) for group in groups for c in group.curves)
    shown = [axis for axis in AXES if apart or axis != "learning_steps"]
    figure = Figure(figsize=(5.5 * len(shown), 4.2), layout="constrained")
    for axes, axis in zip(figure.subplots(1, len(shown), sharey=True), shown, strict=True):
        for group in groups:
            grid, middle, low, high = group.band(axis)
            axes.plot(grid, middle, label=f"{group.name} ({len(group.curves)} seed{'s' * (len(group.curves) > 1)})")
            axes.fill_between(grid, low, high, alpha=0.2)
        axes.set_xlabel(AXES[axis])
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("greedy score, IQM over seeds")
    figure.axes[0].legend()
    save_figure(figure, out)


def plot_run(directory: RunDirectory) -> Path | None:
    """The curve of one run: greedy score and the population's returns over environment steps."""
    from matplotlib.figure import Figure

    lines, _ = read_metrics(directory)
    scores = [(line["env_steps"], line["score"]) for line in lines if isinstance(line.get("score"), int | float)]
    shown = ("env_steps", "return_min", "return_mean", "return_max")
    returns = np.array([[line[k] for k in shown] for line in lines if all(isinstance(line.get(k), int | float) for k in shown)])
    if not scores:
        return None
    config = directory.read_config()
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    if len(returns):
        axes.fill_between(returns[:, 0], returns[:, 1], returns[:, 3], alpha=0.15, label="population, worst to best")
        axes.plot(returns[:, 0], returns[:, 2], alpha=0.6, linewidth=1, label="population, mean")
    axes.plot(*zip(*scores, strict=True), marker=".", label="greedy policy, held-out seeds")
    axes.set_xlabel(AXES["env_steps"])
    axes.set_ylabel("return")
    axes.set_title(f"{config.run.name or config.env.id}, seed {config.run.seed}")
    axes.grid(alpha=0.3)
    axes.legend()
    save_figure(figure, directory.curve)
    return directory.curve


def check_plot(out: Path | None) -> None:
    """Refuse a plot whose folder does not exist: it may be a typing error, and what is drawn may take hours to compute.

    Raises:
        UserError: with the folder.
    """
    if out is not None and not out.parent.is_dir():
        raise UserError(f"cannot write the plot {out}: there is no folder {out.parent}. Make it first, or correct the name")


def save_figure(figure: Any, out: Path) -> None:
    """Write a plot, or say why not."""
    check_plot(out)
    try:
        temporary = out.with_name(f".writing-{out.name}")
        figure.savefig(temporary, dpi=120, format=out.suffix.lstrip(".") or "png")
        temporary.replace(out)  # whole or not at all, and never through a link
    except (OSError, ValueError) as error:
        raise UserError(f"cannot write the plot {out}: {error}") from error
