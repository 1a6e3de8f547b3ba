"""Opponents of a run: policies of other runs that are there at the start, and the table of who beat whom."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from baldwin.errors import ConfigError, RunDirectoryError, describe_exception
from baldwin.networks import ActionMap, PolicyConfig
from baldwin.opponents import OWN_SCRIPT, OpponentPool, OpponentsConfig, is_script, script_name
from baldwin.ops.league import elo_ratings, nash
from baldwin.populations.league import LeaguePlayer, league_matrix
from baldwin.rollout.scripts import load_script
from baldwin.runs.checkpoint import UNREADABLE, newest_checkpoint
from baldwin.runs.directory import CONFIG, RunDirectory
from baldwin.runs.report import save_figure
from baldwin.types import Arrays

Policies = Sequence[tuple[str, Arrays]]
"""Names and arrays of the policies that are in the pool at the start."""


def keep_policies(policies: Policies, path: Path) -> None:
    """Copy them into the run directory: the runs that they come from may go on, or away."""
    path.write_bytes(save({f"{n}/{key}": np.asarray(array) for n, (_, policy) in enumerate(policies) for key, array in policy.items()}))


def kept_policies(config: OpponentsConfig, path: Path) -> Policies:
    """What `keep_policies` wrote.

    Raises:
        RunDirectoryError: it is not there, or damaged.
    """
    try:
        arrays = load(path.read_bytes())
        names = [name for name in config.pool if not is_script(name)]
        return [(name, {key: arrays[f"{n}/{key}"] for key in ("params", "obs_moments")}) for n, name in enumerate(names)]
    except UNREADABLE as error:
        raise RunDirectoryError(
            f"cannot read the opponents of this run in {path}: {describe_exception(error)}. Put the file back"
        ) from error


def expand_folders(config: OpponentsConfig) -> OpponentsConfig:
    """A copy of the section in which each folder of runs in `pool` is replaced by the runs in it, sorted by name."""
    pool: list[str] = []
    for name in config.pool:
        inside = [str(path.parent) for path in sorted(Path(name).glob(f"*/{CONFIG}"))] if not is_script(name) else []
        pool += inside if inside and not (Path(name) / CONFIG).exists() else [name]
    return config if pool == config.pool else OpponentsConfig.model_validate(config.model_dump() | {"pool": pool})


def load_policies(config: OpponentsConfig, policy: PolicyConfig, act: ActionMap, n_params: int) -> Policies:
    """The policies of the runs that the config names. `act`: what scripts must return.

    Raises:
        ConfigError: one is not there, or its network is another one; or there is no such script.
    """
    found = []
    for name in config.pool:
        if is_script(name):
            if name != OWN_SCRIPT:
                load_script(script_name(name), act)
            continue
        if policy.has_virtual_batch_norm:
            raise ConfigError(
                f"opponents.pool: {name} cannot be a member, since virtual batch normalisation has another fixed batch in every run. "
                "Leave it out: snapshots of this run join all the same"
            )
        try:
            directory = RunDirectory.find(Path(name))
            checkpoint, complaints = newest_checkpoint(directory.checkpoints, directory.id)
        except RunDirectoryError as error:
            raise ConfigError(f"opponents.pool: expected script, script:NAME or run directories; {error}") from error
        if checkpoint is None:
            raise ConfigError(f"opponents.pool: {name} has no good checkpoint. {' '.join(complaints)}")
        own, other = policy.model_dump(mode="json"), directory.read_config().policy.model_dump(mode="json")
        differ = [key for key in own if own[key] != other.get(key)]
        if differ:
            raise ConfigError(
                f"opponents.pool: the policy of {name} has another {', '.join(f'policy.{key}' for key in differ)}: "
                "members have the network of the run that plays them"
            )
        if len(checkpoint.policy["params"]) != n_params:
            raise ConfigError(
                f"opponents.pool: the policy of {name} has {len(checkpoint.policy['params'])} parameters, this run's {n_params}: "
                "members have the network of the run that plays them"
            )
        found.append((name, checkpoint.policy))
    return found


def league_table(path: Path) -> dict[str, Any]:
    """Players, win rates, games, Elo ratings and the equilibrium mixture, from the newest checkpoint of a run with opponents.

    Raises:
        RunDirectoryError: there is no such run, or it has no opponents.
    """
    directory = RunDirectory.find(path)
    checkpoint, complaints = newest_checkpoint(directory.checkpoints, directory.id)
    if checkpoint and "players" in checkpoint.state:
        return _league_of_members(checkpoint.state["players"])
    state = checkpoint.state.get("opponents") if checkpoint else None
    if not state:
        raise RunDirectoryError(f"{path} has no opponents: train with the section opponents:. {' '.join(complaints)}".rstrip())
    pool = OpponentPool(OpponentsConfig())
    pool.load_state_dict(state["pool"])
    return _described(*pool.table())


def _league_of_members(players: list[dict[str, Any]]) -> dict[str, Any]:
    """Players, win rates, games, Elo ratings and the equilibrium mixture of a population with roles."""
    return _described(*league_matrix([LeaguePlayer(**player) for player in players]))


def _described(players: list[str], win_rate: NDArray[np.float64], games: NDArray[np.float64]) -> dict[str, Any]:
    return {
        "players": players,
        "win_rate": np.round(win_rate, 4).tolist(),
        "games": games.astype(int).tolist(),
        "elo": np.round(elo_ratings(win_rate, games), 1).tolist(),
        "nash": np.round(nash(win_rate), 4).tolist(),
    }


def plot_league(table: dict[str, Any], path: Path) -> None:
    """A picture of who beats whom: rows against columns."""
    from matplotlib.figure import Figure

    names, rates, games = table["players"], np.array(table["win_rate"]), np.array(table["games"])
    size = 2.5 + 0.5 * len(names)
    figure = Figure(figsize=(size + 1.5, size), layout="constrained")
    axes = figure.add_subplot()
    shown = np.where(games > 0, rates, np.nan)
    image = axes.imshow(shown, vmin=0, vmax=1, cmap="RdYlGn")
    axes.set_xticks(range(len(names)), names, rotation=60, ha="right")
    axes.set_yticks(range(len(names)), [f"{name}  {elo:+.0f}" for name, elo in zip(names, table["elo"], strict=True)])
    for row in range(len(names)):
        for column in range(len(names)):
            if games[row, column]:
                axes.text(column, row, f"{rates[row, column]:.2f}", ha="center", va="center", fontsize=7)
    figure.colorbar(image, label="share of games that the row won")
    axes.set_title("who beats whom, and Elo")
    save_figure(figure, path)
