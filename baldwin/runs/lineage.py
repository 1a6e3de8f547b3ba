"""Who came from whom: lineage.jsonl of a population's run, the line of its winner, pictures, and the winner's schedule as a config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import yaml

from baldwin.config import dump_config
from baldwin.errors import UserError
from baldwin.ops import pareto
from baldwin.runs.directory import RunDirectory
from baldwin.runs.members import population_state
from baldwin.runs.metrics import read_lines
from baldwin.runs.report import save_figure

Record = dict[str, Any]


def read_lineage(path: Path) -> list[Record]:
    """The rounds of training of a population, in the order in which they ended.

    Raises:
        UserError: it is no population, or no round has ended.
    """
    directory = RunDirectory.find(path)
    lines, _ = read_lines(directory.lineage)
    run_id = directory.id
    found = [{k: v for k, v in line.items() if k != "run"} for line in lines if line.get("run") == run_id]
    if not found:
        raise UserError(f"{path} has no lineage: it is not the run of a population (baldwin evolve), or no member has finished a round")
    return found


def best_state(path: Path) -> str:
    """The state of the best member at the newest checkpoint; "" if there is none."""
    state, _ = population_state(RunDirectory.find(path))
    return next((m["state_sha256"] for m in state["members"] if m["id"] == state["best"]), "")


def winning_line(records: list[Record], best: str) -> list[Record]:
    """The rounds that led to this state, oldest first."""
    by_state = {record["state_sha256"]: record for record in records if record["state_sha256"]}
    if best not in by_state:
        return []
    line = [by_state[best]]
    while line[-1]["parent_sha256"] in by_state and line[-1]["parent_sha256"] != line[-1]["state_sha256"]:
        line.append(by_state[line[-1]["parent_sha256"]])
    return line[::-1]


def write_schedule(path: Path, out: Path) -> None:
    """The hyper-parameters of the winning line as a config that one policy is trained with: baldwin train -c FILE."""
    directory = RunDirectory.find(path)
    config = directory.read_config()
    tree = yaml.safe_load(dump_config(config))
    line = winning_line(read_lineage(path), best_state(path))
    if not line or not config.population or not config.population.steps:
        raise UserError(f"{path} has no line of training to write down")
    name = f"{config.run.name or 'run'}-schedule"
    tree["population"] = {
        "name": "schedule",
        "steps": config.population.steps // getattr(config.population, "rungs", 1),
        "episodes": config.population.episodes,
        "rounds": [record["hyperparameters"] for record in line],
    }
    tree["run"]["name"] = name
    tree["stop"] = {"generations": len(line)}
    try:
        out.write_text(
            f"# The schedule that {config.run.name or path.name} found, seed {config.run.seed}\n" + yaml.safe_dump(tree, sort_keys=False)
        )
    except OSError as error:
        raise UserError(f"cannot write the schedule {out}: {error.strerror}") from error


def plot_lineage(path: Path, out: Path) -> None:
    """The genealogy (score over steps, a line from parent to child), hyper-parameters along the winning line, and the front where there is one."""
    from matplotlib.figure import Figure

    records = read_lineage(path)
    config = RunDirectory.find(path).read_config()
    objectives = config.population.objectives if config.population else {}
    names = sorted({key for record in records for key, value in record["hyperparameters"].items() if isinstance(value, int | float)})
    panels = 1 + len(names) + (len(objectives) == 2)
    figure = Figure(figsize=(5.2 * min(panels, 3), 4 * -(-panels // 3)), layout="constrained")
    axes = list(np.atleast_1d(figure.subplots(-(-panels // 3), min(panels, 3))).ravel())
    line = winning_line(records, best_state(path))
    _draw_genealogy(axes[0], records, line)
    for axis, name in zip(axes[1:], names, strict=False):
        for record in records:
            axis.plot(record["env_steps"], record["hyperparameters"][name], ".", color="0.8")
        axis.plot([r["env_steps"] for r in line], [r["hyperparameters"][name] for r in line], marker="o", color="C3")
        axis.set_title(name)
        axis.set_xlabel("environment steps of the line")
        if config.population and "log" in config.population.search.get(name, {}):
            axis.set_yscale("log")
    if len(objectives) == 2:
        _draw_front(axes[1 + len(names)], records, objectives)
    for axis in axes[panels:]:
        axis.set_visible(False)
    save_figure(figure, out)


def _draw_genealogy(axis: Any, records: list[Record], line: list[Record]) -> None:
    by_state = {record["state_sha256"]: record for record in records}
    for record in records:
        if record["score"] is None:
            continue
        parent = by_state.get(record["parent_sha256"])
        if parent is not None and parent["score"] is not None:
            own = record in line and parent in line
            copied = record["operator"] != "continue"
            axis.plot(
                [parent["env_steps"], record["env_steps"]],
                [parent["score"], record["score"]],
                color="C3" if own else "C0" if copied else "0.75",
                linewidth=2 if own else 1,
            )
        axis.plot(record["env_steps"], record["score"], ".", color="0.4")
    axis.set_xlabel("environment steps of the line")
    axis.set_ylabel("score on the seeds of selection")
    axis.set_title("genealogy: red the winner's line, blue copies and children")


def _draw_front(axis: Any, records: list[Record], objectives: dict[str, dict[str, float]]) -> None:
    """Every member that was evaluated, darker the later, and the front at four moments."""
    known = [record for record in records if record["results"]]
    values = np.array([[sum(w * r["results"].get(p, 0.0) for p, w in weights.items()) for weights in objectives.values()] for r in known])
    axis.scatter(*values.T, c=np.arange(len(values)), cmap="Greys", s=8)
    for share in (0.25, 0.5, 0.75, 1.0):
        upto = values[: max(1, int(share * len(values)))]
        front = upto[pareto.pareto_front(upto)]
        axis.plot(*front[np.argsort(front[:, 0])].T, marker="o", alpha=share, color="C3", label=f"{share:.0%} of rounds")
    first, second = objectives
    axis.set_xlabel(first)
    axis.set_ylabel(second)
    axis.set_title("front")
    axis.legend()
