"""The policy of any generation: from a checkpoint where there is one, else from the journal alone."""

from __future__ import annotations

from pathlib import Path

from baldwin.config import RunConfig
from baldwin.errors import RunDirectoryError
from baldwin.networks import GreedyPolicy
from baldwin.runs.build import build, on_cpu, probe_env
from baldwin.runs.checkpoint import list_checkpoints, newest_checkpoint, read_checkpoint
from baldwin.runs.directory import RunDirectory
from baldwin.runs.groups import group_at_play
from baldwin.runs.journal import apply_record, read_journal
from baldwin.runs.members import member_config, member_policy
from baldwin.runs.opponents import kept_policies
from baldwin.types import Arrays


def rebuild(directory: RunDirectory, generation: int, trust: bool = False) -> Arrays:
    """The policy of a generation from the journal alone: no checkpoint is read and no step is played.

    Raises:
        RunDirectoryError: the run did not get that far, is not trusted, or its journal leaves out what was learned from.
    """
    config = on_cpu(trusted_config(directory, trust))
    kept = kept_policies(config.opponents, directory.opponents) if config.opponents else None
    states = directory.members if config.population else None  # a population's policies are in its members' states
    algorithm = build(config, states, policy_only=True, opponents=kept).algorithm
    if not algorithm.replayable:
        saved = ", ".join(str(int(path.name)) for path in list_checkpoints(directory.checkpoints)) or "none"
        raise RunDirectoryError(
            f"{directory.path}: the journal of this run leaves out its images, so that only generations with a checkpoint are there: {saved}"
        )
    records = read_journal(directory.journal, run_id=directory.id)
    while algorithm.version < generation:
        record = next(records, None)
        if record is None:
            raise RunDirectoryError(f"{directory.path} has generations 0 to {algorithm.version}; got {generation}")
        apply_record(algorithm, record)
    return algorithm.policy_state()


def trusted_config(directory: RunDirectory, trust: bool) -> RunConfig:
    """The config of a run whose classes may be imported.

    Raises:
        RunDirectoryError: it is not this user's, and names some.
    """
    config = directory.read_config()
    directory.require_trust(config, trust)
    return config


def policy_arrays(directory: RunDirectory, generation: int | None, trust: bool = False) -> tuple[Arrays, int]:
    """The policy of a generation, or the newest saved one, and its generation.

    Raises:
        RunDirectoryError: there is nothing to load.
    """
    if generation is None:
        checkpoint, complaints = newest_checkpoint(directory.checkpoints, directory.id)
        if checkpoint is None:
            raise RunDirectoryError(
                f"{directory.path} has no good checkpoint. {' '.join(complaints)} Go on with it: baldwin resume {directory.path}"
            )
        return checkpoint.policy, checkpoint.generation
    for path in list_checkpoints(directory.checkpoints):
        if int(path.name) == generation:
            return read_checkpoint(path, directory.id).policy, generation
    return rebuild(directory, generation, trust), generation


def load_policy(path: str | Path, generation: int | None = None, trust: bool = False, member: str | None = None) -> GreedyPolicy:
    """A trained policy from its run directory, normaliser inside: `load_policy(DIR).act(obs)`.

    `member` of a population: best, a number, or the name of a group of players.
    `trust`: import the classes that its config names also if this user did not write it.

    Raises:
        RunDirectoryError: there is none, it is damaged, or it is not trusted.
    """
    directory = RunDirectory.find(Path(path))
    config = member_config(directory, trusted_config(directory, trust), member, generation)
    config, _ = group_at_play(directory, config, member)
    arrays, _ = member_policy(directory, member) if member else policy_arrays(directory, generation, trust)
    return greedy_policy(config, arrays)


def greedy_policy(config: RunConfig, arrays: Arrays) -> GreedyPolicy:
    """The policy object of saved arrays."""
    env_spec = probe_env(config)
    return GreedyPolicy(config.policy, env_spec.obs, env_spec.action_space, arrays)
