"""Resume: a run's newest good checkpoint, and then what its journal says happened since."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from baldwin.config import RunConfig, load_config
from baldwin.errors import ReplayError, RunDirectoryError, describe_exception
from baldwin.runs.build import build
from baldwin.runs.checkpoint import newest_checkpoint, translate_disk_errors
from baldwin.runs.directory import RunDirectory
from baldwin.runs.journal import START as JOURNAL_START
from baldwin.runs.journal import journal_size, read_journal
from baldwin.runs.run import Run, identity


def resume(path: Path, overrides: Sequence[str] = (), trust: bool = False) -> tuple[Run, list[str]]:
    """A run where it stopped: its newest good checkpoint, then the journal's tail; and warnings about what was not as expected.

    `trust`: import what the config names also if this user did not write it.

    Raises:
        RunDirectoryError: no such run, another process works on it, it is not trusted, or a file is of another run.
    """
    directory = RunDirectory.find(path)
    config = _resumed_config(directory, overrides)
    directory.require_trust(config, trust, ("env", "policy", "algorithm", "executor"))
    directory.lock()
    try:
        with translate_disk_errors("the run"):
            return _restored(directory, config)
    except BaseException:
        directory.unlock()
        raise


def _resumed_config(directory: RunDirectory, overrides: Sequence[str]) -> RunConfig:
    """The run's config with these changes, none of which may make another run of it."""
    old = directory.read_config()
    config = load_config(None, (), overrides, base=old.model_dump(mode="json"))
    changed = _changed(identity(old), identity(config))
    if changed:
        raise RunDirectoryError(
            f"resume goes on with the same run: {', '.join(changed)} cannot change. Start a new one: baldwin train -c {directory.config} -m ..."
        )
    return config


def _restored(directory: RunDirectory, config: RunConfig) -> tuple[Run, list[str]]:
    """The run of a locked directory, at the end of its journal."""
    run = Run(directory, config, build(config, directory.replay))
    checkpoint, warnings = newest_checkpoint(directory.checkpoints, run.id)
    journal_at = metrics_at = individuals_at = 0
    if not directory.is_own():
        warnings.append(f"{directory.config} was not written by you on this machine, or was edited")
    if checkpoint:
        changed = _changed(checkpoint.info["config"], identity(config))
        if changed:
            raise RunDirectoryError(
                f"{directory.config} differs from what the run was made with: {', '.join(changed)}. Put the old values back"
            )
        try:
            run.restore(checkpoint.info, checkpoint.state)
            journal_at, metrics_at, individuals_at = (int(checkpoint.info[k]) for k in ("journal", "metrics", "individuals"))
        except ReplayError as error:
            warnings.append(f"{error}; the whole journal is done again instead")
            shutil.rmtree(directory.replay, ignore_errors=True)
            run = Run(directory, config, build(config, directory.replay))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RuntimeError) as error:
            raise RunDirectoryError(f"checkpoint {checkpoint.path} does not fit its config ({describe_exception(error)})") from error
    size = journal_size(directory.journal)
    if size < journal_at:
        warnings.append(
            f"{directory.journal} is shorter than its checkpoint says: generations before {run.algorithm.version} cannot be replayed"
        )
        journal_at = size
    records = list(read_journal(directory.journal, journal_at, run_id=run.id)) if size else []
    end = records[-1].end if records else journal_at
    if size > max(end, JOURNAL_START):
        warnings.append(f"{directory.journal} is torn or damaged at byte {end}: the last {size - end} bytes are left out and played again")
    run.open(end or None, metrics_at, individuals_at)
    for record in records:
        run.replay(record)
    run.algorithm.reissue()
    run.journal.append({"kind": "reissue"})
    if config != directory.read_config():
        directory.write_config(config, run.id)
    return run, warnings + directory.changed_versions()


def _changed(old: Any, new: Any, path: str = "") -> list[str]:
    """Where two trees differ, among the keys that both have: a newer version may know more."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [found for key in old if key in new for found in _changed(old[key], new[key], f"{path}.{key}".lstrip("."))]
    return [] if old == new else [path]
