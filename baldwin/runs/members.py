"""The members of a population's run, as its newest checkpoint has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from baldwin.config import RunConfig
from baldwin.errors import UserError, nearest
from baldwin.populations.member import changed_sections, where_played
from baldwin.populations.states import StateFiles
from baldwin.rollout import weigh_objectives
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
    return read_policy(directory, find_member(state, which), state), generation


def member_config(directory: RunDirectory, config: RunConfig, which: str | None, generation: int | None = None) -> RunConfig:
    """The run's config with the environment and the network of a member, `best` (None) or a number, where a sweep has searched those.

    Of an earlier generation it is not known which member was the best.
    """
    if not config.population or not where_played(config.population.search) or generation is not None:
        return config
    state, _ = population_state(directory)
    if which in (None, BEST) and state["best"] < 0:
        return config
    values = find_member(state, which or BEST)["hyperparameters"]
    return config.model_copy(update=changed_sections(config, {key: values[key] for key in where_played(values)}))


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


def read_policy(directory: RunDirectory, member: State, state: State | None = None) -> Arrays:
    """The greedy policy of a trained member; `state`: of its population.

    Raises:
        UserError: a sweep has not kept its state.
        RunDirectoryError: its state is missing or damaged.
    """
    files = StateFiles(directory.members)
    if state is not None and "table" in state and not files.has(member["state_sha256"]):
        raise UserError(
            f"--member: the state of member {member['id']} was not kept: a sweep keeps those of its best trial (member {state['best']}), and all "
            "with -m population.keep_states=true"
        )
    policy: Arrays = files.load_part(member["state_sha256"], "policy")
    return policy


def front(path: Path) -> list[int]:
    """Numbers of the members that nobody dominates; where there is one objective, of the best."""
    state, _ = population_state(RunDirectory.find(path))
    return [int(n) for n in state.get("front") or [state["best"]] if int(n) >= 0]


def front_ends(path: Path) -> dict[int, list[str]]:
    """Members at the ends of the front, each with the objectives in which nobody is better; where there is one objective, the best.

    Raises:
        UserError: no member has finished a round.
    """
    directory = RunDirectory.find(path)
    state, _ = population_state(directory)
    population, numbers = directory.read_config().population, front(path)
    members = [m for m in state["members"] if int(m["id"]) in numbers]
    objectives = population.objectives if population else {}
    if not members:
        raise UserError(f"{path} has no front yet: no member has finished a round")
    if len(objectives) < 2:
        return {int(members[0]["id"]): [BEST]}
    fitness = np.array([weigh_objectives(m["results"], objectives, "population.objectives") for m in members])  # [N, M]
    ends: dict[int, list[str]] = {}
    for name, place in zip(objectives, fitness.argmax(0).tolist(), strict=True):
        ends.setdefault(int(members[place]["id"]), []).append(name)
    return ends


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
