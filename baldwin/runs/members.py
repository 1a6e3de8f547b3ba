"""The members of a population's run, as its newest checkpoint has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from baldwin.config import RunConfig
from baldwin.errors import UserError
from baldwin.populations.member import changed_sections, where_played
from baldwin.populations.states import StateFiles
from baldwin.rollout import weigh_objectives
from baldwin.runs.checkpoint import newest_checkpoint
from baldwin.runs.directory import RunDirectory
from baldwin.types import Arrays, State

BEST = "best"


def member_policy(directory: RunDirectory, which: str) -> tuple[Arrays, int]:
    """The greedy policy of a member, `best` or a number, and the generation of the checkpoint.

    Raises:
        UserError: there is no such member.
        RunDirectoryError: its state is missing or damaged.
    """
    state, generation = population_state(directory)
    found, files = _find(state, which), StateFiles(directory.members)
    if "table" in state and not files.has(found["state_sha256"]):
        raise UserError(
            f"--member: the state of member {found['id']} was not kept: a sweep keeps those of its best trial (member {state['best']}), and all "
            "with -m population.keep_states=true"
        )
    return files.load(found["state_sha256"])["policy"], generation


def member_config(directory: RunDirectory, config: RunConfig, which: str | None, generation: int | None = None) -> RunConfig:
    """The run's config with the environment and the network of a member, `best` (None) or a number, where a sweep has searched those.

    Of an earlier generation it is not known which member was the best.
    """
    if not config.population or not where_played(config.population.search) or generation is not None:
        return config
    state, _ = population_state(directory)
    if which in (None, BEST) and state["best"] < 0:
        return config
    values = _find(state, which or BEST)["hyperparameters"]
    return config.model_copy(update=changed_sections(config, {key: values[key] for key in where_played(values)}))


def _find(state: State, which: str) -> State:
    trained = [m for m in state["members"] if m["state_sha256"]]
    wanted = str(state["best"]) if which == BEST else which
    found: State | None = next((m for m in trained if str(m["id"]) == wanted), None)
    if found is None:
        names = ", ".join(str(m["id"]) for m in trained) or "none"
        raise UserError(f"--member: expected {BEST} or the number of a member that was trained ({names}); got {which!r}")
    return found


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
    return {"members": members, "best": None if state["best"] < 0 else state["best"]}
