"""Who came from whom: lineage.jsonl of a population's run, the line of its winner, pictures, and the winner's schedule as a config."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from baldwin.config import dump_config
from baldwin.errors import UserError
from baldwin.ops import pareto
from baldwin.runs.directory import RunDirectory
from baldwin.runs.members import population_state
from baldwin.runs.metrics import read_lines
from baldwin.runs.report import save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    population = RunDirectory.find(path).read_config().population
    objectives = population.objectives if population else {}
    logarithmic = {key for key, found in population.search.items() if "log" in found} if population else set()
    save_figure(lineage_figure(read_lineage(path), best_state(path), objectives, logarithmic), out)


def lineage_figure(
    records: list[Record], best: str, objectives: Mapping[str, Mapping[str, float]], logarithmic: Collection[str] = ()
) -> Figure:
    """That picture of these rounds; `best`: the winner's state, `logarithmic`: hyper-parameters that are drawn so."""
    from matplotlib.figure import Figure

    line = winning_line(records, best)
    x = "env_steps" if any(record["env_steps"] for record in records) else "round"
    names = sorted({key for record in records for key in record["hyperparameters"]})
    pairs = list(combinations(objectives, 2))
    panels = 1 + len(names) + len(pairs)
    figure = Figure(figsize=(5.2 * min(panels, 3), 4 * -(-panels // 3)), layout="constrained")
    axes = list(np.atleast_1d(figure.subplots(-(-panels // 3), min(panels, 3))).ravel())
    _draw_genealogy(axes[0], records, line, x)
    for axis, name in zip(axes[1:], names, strict=False):
        _draw_hyperparameter(axis, records, line, name, x)
        if name in logarithmic:
            axis.set_yscale("log")
    for axis in axes[: 1 + len(names)]:
        axis.set_xlabel("environment steps of the line" if x == "env_steps" else "round")
    for axis, pair in zip(axes[1 + len(names) :], pairs, strict=False):
        _draw_front(axis, records, objectives, pair)
    for axis in axes[panels:]:
        axis.set_visible(False)
    return figure


def _draw_genealogy(axis: Any, records: list[Record], line: list[Record], x: str) -> None:
    by_state = {record["state_sha256"]: record for record in records}
    rounds: dict[int, list[Record]] = {}  # of each member, so far
    for record in records:
        if record["score"] is not None:
            parent = by_state.get(record["parent_sha256"])
            further = [rounds[n] for n in record["parents"] if n in rounds and (parent is None or parent["member"] != n)]
            for earlier in further:  # a member that goes on may have trained since it was a parent
                other = next((r for r in reversed(earlier) if r[x] < record[x]), earlier[-1])
                axis.plot([other[x], record[x]], [other["score"], record["score"]], color="C0", linewidth=0.7, linestyle="--")
            if parent is not None and parent["score"] is not None:
                own = record in line and parent in line
                color = "C3" if own else "0.75" if record["operator"] == "continue" else "C0"
                axis.plot([parent[x], record[x]], [parent["score"], record["score"]], color=color, linewidth=2 if own else 1)
            axis.plot(record[x], record["score"], ".", color="0.4")
            rounds.setdefault(record["member"], []).append(record)
    axis.set_ylabel("score on the seeds of selection")
    axis.set_title("genealogy: red the winner's line, blue copies and children,\ndashed their further parents", fontsize=9)


def _draw_hyperparameter(axis: Any, records: list[Record], line: list[Record], name: str, x: str) -> None:
    """Numbers as they are; if there are others, such as words, each value is a category."""
    known = [record for record in records if name in record["hyperparameters"]]
    values = [record["hyperparameters"][name] for record in known]
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        categories = sorted(set(map(str, values)))
        values = [categories.index(str(v)) for v in values]
        axis.set_yticks(range(len(categories)), categories)
    axis.plot([record[x] for record in known], values, ".", color="0.8")
    winner = [(record[x], value) for record, value in zip(known, values, strict=True) if record in line]
    axis.plot([place for place, _ in winner], [value for _, value in winner], marker="o", color="C3")
    axis.set_title(name)


def _draw_front(axis: Any, records: list[Record], objectives: Mapping[str, Mapping[str, float]], pair: tuple[str, str]) -> None:
    """Two objectives of every member that was evaluated, darker the later, and the front at four moments: a line if there are no others."""
    known = [record for record in records if record["results"]]
    values = np.array([[sum(w * r["results"].get(p, 0.0) for p, w in weights.items()) for weights in objectives.values()] for r in known])
    columns = [list(objectives).index(name) for name in pair]
    axis.scatter(*values[:, columns].T, c=np.arange(len(values)), cmap="Greys", s=8)
    for share in (0.25, 0.5, 0.75, 1.0):
        upto = values[: max(1, int(share * len(values)))]
        front = upto[pareto.pareto_front(upto)][:, columns]
        style = "-" if len(objectives) == 2 else ""
        axis.plot(*front[np.argsort(front[:, 0])].T, marker="o", linestyle=style, alpha=share, color="C3", label=f"{share:.0%} of rounds")
    axis.set_xlabel(pair[0])
    axis.set_ylabel(pair[1])
    axis.set_title("front")
    axis.legend()
