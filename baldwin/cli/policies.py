"""baldwin evaluate, render and replay: what shows a trained policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from baldwin.cli.console import err, out
from baldwin.cli.options import Json, RunDir, Trust


def evaluate(
    directory: RunDir,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to play.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Of the episodes' seeds; training never sees them.")] = 0,
    checkpoint: Annotated[int | None, typer.Option(metavar="K", min=0, help="The generation; default: the newest checkpoint.")] = None,
    member: Annotated[
        str | None,
        typer.Option(
            metavar="best|K|NAME|front", help="Of a population: the best member, that of this number or group, or all of the front."
        ),
    ] = None,
    all_players: Annotated[bool, typer.Option("--all-players", help="The policy plays all players of a match.")] = False,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Play the greedy policy on held-out seeds: mean, std, IQM, 95 % confidence interval."""
    from baldwin.runs.evaluation import evaluate_run

    if member == "front":
        from baldwin.runs.members import front

        rows = {number: evaluate_run(directory, episodes, seed, None, trust, str(number)) for number in front(directory)}
        if as_json:
            print(json.dumps([{"member": number, **row.as_dict()} for number, row in rows.items()]))
        else:
            for number, row in rows.items():
                out.print(f"member {number}: mean {row.mean:.2f}  std {row.std:.2f}", highlight=False, markup=False)
        return
    found = evaluate_run(directory, episodes, seed, checkpoint, trust, member, all_players)
    if as_json:
        print(json.dumps(found.as_dict()))
        return
    out.print(
        f"generation {found.generation}, {found.episodes} episodes\nmean {found.mean:.2f}  std {found.std:.2f}  IQM {found.iqm:.2f}  "
        f"95 % CI [{found.ci[0]:.2f}, {found.ci[1]:.2f}]  min {found.min:.2f}  max {found.max:.2f}  length {found.length:.1f}",
        highlight=False,
        markup=False,
    )


def render(
    directory: RunDir,
    video: Annotated[Path | None, typer.Option(help="An .mp4 or .gif file; default: in the run directory.")] = None,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to film.")] = 1,
    generation: Annotated[
        int | None, typer.Option(metavar="K", min=0, help="Any generation, from the journal; default: the newest checkpoint.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the episodes.")] = 0,
    member: Annotated[
        str | None,
        typer.Option(
            metavar="best|K|NAME|front",
            help="Of a population: the best member, that of this number or group, or one video for each end of the front.",
        ),
    ] = None,
    trust: Trust = False,
) -> None:
    """Film the greedy policy; needs no screen."""
    from baldwin.runs.video import render_front, render_run

    if member == "front":
        with err.status("loading the policies") as status:
            films = render_front(directory, video, episodes, seed, trust, status.update)
        for number, objectives, path, returns in films:
            shown = ", ".join(f"{r:.1f}" for r in returns)
            out.print(f"{', '.join(objectives)}: member {number}  video: {path}  returns: {shown}", markup=False, highlight=False)
        return
    with err.status("loading the policy") as status:
        path, returns = render_run(directory, video, episodes, generation, seed, trust, status.update, member)
    out.print(f"video: {path}  returns: {', '.join(f'{r:.1f}' for r in returns)}", markup=False, highlight=False)


def replay(
    directory: RunDir,
    generation: Annotated[int, typer.Option(metavar="K", min=0, help="The generation to rebuild.")],
    trust: Trust = False,
) -> None:
    """Rebuild the parameters of a generation from the reward journal alone and print their hash."""
    from baldwin.runs.checkpoint import policy_hash
    from baldwin.runs.directory import RunDirectory
    from baldwin.runs.history import rebuild

    print(policy_hash(rebuild(RunDirectory.find(directory), generation, trust)))
