"""How much code a reader follows: the files and functions of the package that one call runs, by tracing it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import baldwin
from baldwin.config import load_config
from baldwin.executors import make_executor
from baldwin.hybrids import AsynchronousHybrid
from baldwin.learners import TD3, TD3UpdateConfig
from baldwin.networks import PolicyConfig
from baldwin.observations import vector_spec
from baldwin.runs.build import Parts, build
from baldwin.runs.loop import loop
from benchmarks.learners import filled
from benchmarks.tools import table

PACKAGE = Path(baldwin.__file__).parent
BELOW = ("rollout", "envs", "networks", "executors")  # what a strategy or a hybrid stands on


def functions_run(call: Callable[[], object], skip: Sequence[str] = ()) -> dict[str, dict[CodeType, int]]:
    """For each file of the package: the functions that ran, without their nested ones, and the lines of each; `skip`: packages left out."""
    codes: set[CodeType] = set()

    def trace(frame: FrameType, event: str, _: Any) -> None:
        codes.add(frame.f_code)

    sys.setprofile(trace)
    try:
        call()
    finally:
        sys.setprofile(None)
    found: dict[str, dict[CodeType, int]] = {}
    for code in codes:
        path = Path(code.co_filename)
        if path.is_relative_to(PACKAGE) and path.relative_to(PACKAGE).parts[0] not in skip and not _is_nested(code, codes):
            lines = [line for _, _, line in code.co_lines() if line]
            found.setdefault(str(path.relative_to(PACKAGE)), {})[code] = max(lines) - code.co_firstlineno + 1
    return found


def _is_nested(code: CodeType, codes: set[CodeType]) -> bool:
    return any(code in other.co_consts for other in codes)


def td3_updates(count: int = 2) -> Callable[[], object]:
    """Updates of TD3 with its own settings, one of them with the actor's; the batches are there."""
    learner = TD3(PolicyConfig(hidden=[256, 256]), TD3UpdateConfig(), obs=vector_spec(17), n_actions=6, seed=1)
    batches = list(learner._sample_batches(filled(50_000), count, 1))
    return lambda: [learner.update(batch) for batch in batches]


def rounds(name: str, env: str, *options: str, until: Callable[[Parts], bool]) -> Callable[[], object]:
    """Ask and tell of a whole algorithm until it has come so far; jobs run in this process."""
    config = load_config(algorithm=name, env=env, overrides=["executor.name=inline", "policy.hidden=[8]", *options])
    parts = build(config)
    executor = make_executor(config.executor, parts.worker_spec)

    def run() -> None:
        for _ in loop(parts.algorithm, executor):
            if until(parts):
                return

    return run


def cases() -> dict[str, dict[str, dict[CodeType, int]]]:
    """What is read for each of these."""

    def individuals(parts: Parts) -> bool:
        assert isinstance(parts.algorithm, AsynchronousHybrid)
        return parts.algorithm.version >= 2

    es = rounds("es", "CartPole-v1", "algorithm.population=8", "algorithm.block=4", until=lambda parts: parts.algorithm.version >= 1)
    small = ["algorithm.start_steps=100", "algorithm.critic_steps_per_job=20", "env.max_episode_steps=20", "algorithm.steps_per_epoch=50"]
    hybrid = rounds("aes-rl", "Pendulum-v1", *small, until=individuals)
    return {
        "one TD3 update, replay not counted": functions_run(td3_updates()),
        "one ES generation, without rollout, environments, networks and executor": functions_run(es, BELOW),
        "AES-RL individuals, without rollout, environments, networks and executor": functions_run(hybrid, BELOW),
    }


def main() -> None:
    """Trace all cases and print their table."""
    rows = []
    for name, files in cases().items():
        rows.append([name, str(len(files)), str(sum(sum(lines.values()) for lines in files.values())), ", ".join(sorted(files))])
    table("Files and lines of functions that one call runs", ["what", "files", "lines", "which"], rows)


if __name__ == "__main__":
    main()
