"""Pictures of a lineage, of rounds that are made up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from baldwin.runs.lineage import Record, lineage_figure


def record(number: int, member: int, parents: list[int], parent: int | None, score: float, **more: Any) -> Record:
    """The round of that number; `parent`: the number of the round whose state it began from."""
    operator = "child" if parents else "start"
    names = {"state_sha256": f"s{number}", "parent_sha256": "" if parent is None else f"s{parent}"}
    made = {"round": number, "member": member, "parents": parents, "operator": operator, "score": score, "env_steps": 0, "results": {}}
    return {**made, **names, "hyperparameters": {}, **more}


def drawn(axis: Axes, style: str) -> list[tuple[tuple[float, float], ...]]:
    """The lines of that style between two points, in the order of drawing."""
    found = [line.get_xydata() for line in axis.get_lines() if line.get_linestyle() == style and line.get_marker() == "None"]
    return [tuple((float(x), float(y)) for x, y in np.asarray(points)) for points in found]


CHILDREN = [
    record(0, 0, [], None, 1.0),
    record(1, 1, [], None, 2.0),
    record(2, 2, [1, 0], 1, 3.0),
    record(3, 3, [2, 2], 2, 2.5),  # both parents are one
    record(4, 4, [2, 9], 2, 4.0),  # one that is not known, as its round failed
]


def test_without_steps_the_genealogy_is_over_rounds_and_the_second_parent_is_dashed() -> None:
    axis = lineage_figure(CHILDREN, "s4", {}).axes[0]
    assert axis.get_xlabel() == "round"
    assert drawn(axis, "-") == [((1, 2), (2, 3)), ((2, 3), (3, 2.5)), ((2, 3), (4, 4))]
    assert drawn(axis, "--") == [((0, 1), (2, 3))]
    solid = [line.get_color() for line in axis.get_lines() if line.get_linestyle() == "-"]
    assert solid == ["C3", "C0", "C3"]  # the winner's line, and another child


def test_drawn_weights_come_from_what_the_elites_had_before_that_round() -> None:
    """Members 0 and 1 are elites of the first round. The second round of member 0 is told first, and is no parent of member 1's."""
    first = [record(n, n, [], None, float(n), env_steps=100) for n in range(2)]
    second = [record(2 + n, n, [0, 1], n, 5.0 + n, env_steps=200, operator="drawn") for n in range(2)]
    axis = lineage_figure(first + second, "s3", {}).axes[0]
    assert axis.get_xlabel() == "environment steps of the line"
    assert drawn(axis, "-") == [((100, 0), (200, 5)), ((100, 1), (200, 6))]
    assert drawn(axis, "--") == [((100, 1), (200, 5)), ((100, 0), (200, 6))]


def test_words_switches_and_lists_are_categories_and_numbers_are_not() -> None:
    values = [{"hidden": [64, 64], "lr": 0.1, "on": True, "what": "a"}, {"hidden": [256], "lr": 0.001, "on": False, "what": None}]
    records = [CHILDREN[n] | {"hyperparameters": values[n]} for n in range(2)]
    axes = {axis.get_title(): axis for axis in lineage_figure(records, "s0", {}, {"lr"}).axes[1:]}
    shown = {name: [label.get_text() for label in axis.get_yticklabels()] for name, axis in axes.items() if name and name != "lr"}
    assert shown == {"hidden": ["[256]", "[64, 64]"], "on": ["False", "True"], "what": ["None", "a"]}
    assert np.asarray(axes["hidden"].get_lines()[0].get_ydata()).tolist() == [1, 0]
    assert axes["lr"].get_yscale() == "log"
    assert np.asarray(axes["lr"].get_lines()[0].get_ydata()).tolist() == [0.1, 0.001]


@pytest.mark.parametrize("names", ["ab", "abc"])
def test_every_pair_of_objectives_has_a_front(names: str) -> None:
    """Of three objectives, a front of two of them is no line."""
    points = [[0.0, 3.0, 0.0], [1.0, 1.0, 1.0], [3.0, 0.0, 2.0], [0.5, 0.5, 0.0], [0.2, 0.2, 9.0]]
    records = [CHILDREN[n] | {"results": dict(zip("abc", point, strict=True))} for n, point in enumerate(points)]
    fronts = lineage_figure(records, "s4", {name: {name: 1.0} for name in names}).axes[1:]
    pairs = [(axis.get_xlabel(), axis.get_ylabel()) for axis in fronts if axis.get_visible()]
    assert pairs == ([("a", "b")] if names == "ab" else [("a", "b"), ("a", "c"), ("b", "c")])
    last = fronts[0].get_lines()[-1]
    expected = [0, 1, 2] if names == "ab" else [0, 4, 1, 2]  # the last is the best in c
    assert np.asarray(last.get_xydata()).tolist() == [points[n][:2] for n in expected]
    assert last.get_linestyle() == ("-" if names == "ab" else "None")
