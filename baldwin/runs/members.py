"""The members of a population's run, as its newest checkpoint has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from baldwin.config import RunConfig
from baldwin.errors import UserError, nearest
from baldwin.parts import Sections
from baldwin.populations.groups import GroupsConfig, frozen_players, group_sections
from baldwin.populations.states import StateFiles
from baldwin.rollout import FrozenPlayers
from baldwin.runs.build import probe_env
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
    return _policy(directory, _find_member(state, which)), generation


def group_at_play(directory: RunDirectory, config: RunConfig, which: str | None) -> tuple[RunConfig, tuple[FrozenPlayers, ...]]:
    """The config of a run as one of its groups of players has it, and the others' policies at the newest checkpoint; unchanged without groups.

    `which`: a name or a number; default: the first group.

    Raises:
        UserError: there is no such group, or it has no checkpoint yet.
    """
    if not isinstance(config.population, GroupsConfig):
        return config, ()
    state, _ = population_state(directory)
    own = _find_member(state, which or BEST)
    run = Sections(config.env, probe_env(config), config.policy, config.algorithm)
    sections = [group_sections(run, config.population, name) for name in state["names"]]
    others = [m for m in state["members"] if m["state_sha256"] and m["id"] != own["id"]]
    group = sections[own["id"]]
    return (
        config.model_copy(update={"env": group.env, "policy": group.policy, "algorithm": group.algorithm}),
        tuple(frozen_players(sections[m["id"]], _policy(directory, m)) for m in others),
    )


def _find_member(state: State, which: str) -> State:
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


def _policy(directory: RunDirectory, member: State) -> Arrays:
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
