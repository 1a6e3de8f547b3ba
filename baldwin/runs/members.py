"""The members of a population's run, as its newest checkpoint has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from baldwin.errors import UserError, nearest
from baldwin.populations.states import StateFiles
from baldwin.runs.checkpoint import newest_checkpoint
from baldwin.runs.directory import RunDirectory
from baldwin.types import Arrays, State

BEST = "best"


def member_policy(directory: RunDirectory, which: str) -> tuple[Arrays, int]:
    """The greedy policy of a member, `best`, a number or the name of a group, and the generation of the checkpoint.

    Raises:
        UserError: there is no such member.
        RunDirectoryError: its state is missing or damaged.
    """
    state, generation = population_state(directory)
    return read_policy(directory, find_member(state, which)), generation


def find_member(state: State, which: str) -> State:
    """The member of a population's state by its number, or the name of its group; or the best.

    Raises:
        UserError: there is no such member.
    """
    trained = [m for m in state["members"] if m["state_sha256"]]
    names = {m["id"]: state["names"][m["id"]] if "names" in state else str(m["id"]) for m in trained}
    wanted = str(state["best"]) if which == BEST else which
    found = next((m for m in trained if wanted in (names[m["id"]], str(m["id"]))), None)
    if found is None:
        kind = "number or name of a group" if "names" in state else "number of a member"
        there = ", ".join(names.values()) or "none"
        raise UserError(
            f"--member: expected {BEST} or the {kind} that was trained ({there}); got {which!r}.{nearest(which, names.values())}"
        )
    return dict(found)


def read_policy(directory: RunDirectory, member: State) -> Arrays:
    """The greedy policy of a trained member.

    Raises:
        RunDirectoryError: its state is missing or damaged.
    """
    policy: Arrays = StateFiles(directory.members).load(member["state_sha256"])["policy"]
    return policy


def front(path: Path) -> list[int]:
    """Numbers of the members that nobody dominates; where there is one objective, of the best."""
    state, _ = population_state(RunDirectory.find(path))
    return [int(n) for n in state.get("front") or [state["best"]] if int(n) >= 0]


def population_state(directory: RunDirectory) -> tuple[State, int]:
    """The state of the population at its newest good checkpoint, and its generation.

    Raises:
        UserError: it is no population, or has no checkpoint yet.
    """
    checkpoint, _ = newest_checkpoint(directory.checkpoints, directory.id)
    if checkpoint is None or "members" not in checkpoint.state:
        raise UserError(f"{directory.path} is not the run of a population (baldwin evolve), or has no checkpoint yet")
    return checkpoint.state, checkpoint.generation


def describe_members(state: State) -> dict[str, Any]:
    """What `baldwin show` tells of a population."""
    shown = ("id", "score", "rounds", "line_steps", "hyperparameters", "results", "state_sha256")
    members = [{key: None if m[key] != m[key] else m[key] for key in shown} for m in state["members"]]
    for member, name in zip(members, state.get("names", ()), strict=False):
        member["group"] = name
    return {"members": members, "best": None if state["best"] < 0 else state["best"]}
