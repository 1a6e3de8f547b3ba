"""Resume: a run's newest good checkpoint, and then what its journal says happened since."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from baldwin.config import RunConfig, load_config
from baldwin.errors import ReplayError, RunDirectoryError, describe_exception
from baldwin.processes import leave_script_in_worker
from baldwin.runs.build import build
from baldwin.runs.checkpoint import Checkpoint, newest_checkpoint, translate_disk_errors
from baldwin.runs.directory import RunDirectory
from baldwin.runs.journal import START, journal_size, read_journal
from baldwin.runs.opponents import kept_policies
from baldwin.runs.run import Run, identity
from baldwin.trackers import check_trackers

RUNS_CODE = (
    "env",
    "policy",
    "algorithm",
    "executor",
    "run",
    "opponents",
)  # sections that may name code which a resumed run would import, or where it would send metrics
MISFITS = (ValueError, KeyError, IndexError, TypeError, AttributeError, RuntimeError, OverflowError)
"""What restoring raises when a file is whole but does not fit: it was made by hand, or by another version."""
MISSING = object()


def resume(path: Path | str, overrides: Sequence[str] = (), trust: bool = False) -> tuple[Run, list[str]]:
    """A run where it stopped: its newest good checkpoint, then the journal's tail; and warnings about what was not as expected.

    `trust`: import what the config names also if this user did not write it.

    Raises:
        RunDirectoryError: no such run, another process works on it, it is not trusted, or a file is of another run.
    """
    leave_script_in_worker()
    path = Path(path)
    directory = RunDirectory.find(path)
    old = directory.read_config()
    directory.require_trust(old, trust, RUNS_CODE)
    config = load_config(None, (), overrides, base=old.model_dump(mode="json"))
    changed = _changed(identity(old), identity(config), strict=True)
    if changed:
        raise RunDirectoryError(
            f"resume goes on with the same run: {', '.join(changed)} cannot change. Start a new one: baldwin {'evolve' if old.population else 'train'} -c {directory.config} -m ..."
        )
    check_trackers(config.run.trackers)
    directory.lock()
    try:
        with translate_disk_errors("the run"):
            return _restored(directory, config)
    except BaseException:
        directory.unlock()
        raise


def _restored(directory: RunDirectory, config: RunConfig) -> tuple[Run, list[str]]:
    """The run of a locked directory, at the end of its journal."""
    checkpoint, warnings = newest_checkpoint(directory.checkpoints, directory.id)
    if not directory.is_own():
        warnings.append(f"{directory.config} was not written by you on this machine, or was edited")
    changed = _changed(_original_identity(directory, checkpoint), identity(config))
    if changed:  # before anything is built: files of the replay get the size that the config says
        raise RunDirectoryError(
            f"{directory.config} differs from what the run was made with: {', '.join(changed)}. Put the old values back"
        )
    kept = kept_policies(config.opponents, directory.opponents) if config.opponents else None
    run = Run(directory, config, build(config, directory.states_of(config), opponents=kept))
    journal_at = metrics_at = individuals_at = 0
    if checkpoint:
        try:
            run.restore(checkpoint.info, checkpoint.state)
            journal_at, metrics_at, individuals_at = (int(checkpoint.info[k]) for k in ("journal", "metrics", "individuals"))
        except ReplayError as error:
            warnings.append(f"{error}; the whole journal is done again instead")
            shutil.rmtree(directory.replay, ignore_errors=True)
            run = Run(directory, config, build(config, directory.states_of(config), opponents=kept))
        except MISFITS as error:
            raise RunDirectoryError(f"checkpoint {checkpoint.path} does not fit its config ({describe_exception(error)})") from error
    size = journal_size(directory.journal)
    if size < journal_at:
        warnings.append(
            f"{directory.journal} is shorter than its checkpoint says: generations before {run.algorithm.version} cannot be replayed"
        )
        journal_at = size
    records = list(read_journal(directory.journal, journal_at, run_id=run.id, on_damage=warnings.append)) if size else []
    if not run.algorithm.replayable:  # what came after the checkpoint is collected again
        records = [] if checkpoint else records[:1]
    readable = records[-1].end if records else max(journal_at, START)  # what is written behind a damaged record could not be read
    run.open(readable if size else None, metrics_at, individuals_at)
    if run.journal.offset == START:  # nothing of it is left
        run.journal.append({"kind": "config", "identity": identity(config)})
    warnings += run.metrics.warnings + run.individuals.warnings
    try:
        for record in records:
            run.replay(record)
    except MISFITS as error:
        raise RunDirectoryError(f"{directory.journal} has a record that does not fit its run ({describe_exception(error)})") from error
    run.algorithm.reissue()
    run.journal.append({"kind": "reissue"})
    if config != directory.read_config():
        directory.write_config(config, run.id, sign=directory.is_own())
    return run, warnings + directory.changed_versions()


def _original_identity(directory: RunDirectory, checkpoint: Checkpoint | None) -> dict[str, Any]:
    """What the run was made with: as its checkpoint says, or the first record of its journal."""
    if checkpoint:
        return dict(checkpoint.info["config"])
    if not journal_size(directory.journal):
        return {}
    first = next(read_journal(directory.journal, run_id=directory.id), None)
    return dict(first.meta["identity"]) if first and first.meta["kind"] == "config" else {}


def _changed(old: Any, new: Any, path: str = "", strict: bool = False) -> list[str]:
    """Where two trees differ. A field that only one has is no difference unless `strict` (a newer version may know more), an argument is."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return [] if old == new else [path]
    strict = strict or path.endswith("kwargs")
    keys = [key for key in {**old, **new} if strict or (key in old and key in new)]
    return [found for key in keys for found in _changed(old.get(key, MISSING), new.get(key, MISSING), f"{path}.{key}".lstrip("."), strict)]
