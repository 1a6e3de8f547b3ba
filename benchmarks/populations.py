"""PBT against Ray Tune's PBT with RLlib's PPO, what a copy and a member cost, and simulated workers, asynchronous against synchronous."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from baldwin.config import RunConfig, load_config
from baldwin.executors import make_executor
from baldwin.populations.member import TrainMember
from baldwin.populations.states import StateFiles
from baldwin.runs.build import build
from baldwin.runs.lineage import read_lineage
from baldwin.runs.loop import loop, publish
from baldwin.runs.run import start, train
from benchmarks.on_policy import RLLIB
from benchmarks.tools import HERE, peer_python, table

PPO = [
    "algorithm.name=ppo",
    "policy.hidden=[64,64]",
    "policy.normalize_obs=false",
    "algorithm.normalize_reward=false",
    "algorithm.n_envs=8",
    "algorithm.block=8",
    "algorithm.rollout_length=256",
    "algorithm.batch_size=256",
    "algorithm.epochs=10",
    "algorithm.gamma=0.98",
    "algorithm.steps_per_epoch=2048",
    "algorithm.lr={log: [1e-5, 1e-2]}",
    "population.name=pbt",
    "population.steps=2048",
    "population.episodes=16",
    "population.fraction=0.25",
    "run.evaluate_every=1000000",
    "run.checkpoint_every=1",
    "run.episodes=16",
]


ENVS = ("CartPole-v1", "baldwin:VectorPong-v0")


def config_of(env: str, members: int, rounds: int, *more: str) -> RunConfig:
    return load_config(None, [], [*PPO, f"env.id={env}", f"population.members={members}", f"stop.generations={rounds}", *more])


def ours(env: str, members: int, rounds: int) -> float:
    """Seconds of a whole `baldwin evolve`, from the start of its workers to the last checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        run = start(config_of(env, members, rounds), Path(folder) / "run")
        train(run)
        return time.perf_counter() - begun


def tune(env: str, members: int, rounds: int) -> float:
    """Seconds of Ray Tune's search. Its workers import vector Pong from this repository."""
    command = [str(peer_python("rllib", RLLIB)), str(HERE / "tune_peer.py"), env, "--members", str(members), "--rounds", str(rounds)]
    path = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | {"PYTHONPATH": path})
    found = json.loads(done.stdout.splitlines()[-1])
    if found["errors"]:
        raise RuntimeError(f"{found['errors']} of {members} trials failed; Ray Tune has said why above")
    return float(found["seconds"]) * members * rounds / found["rounds"]


def peers(members: int, rounds: int) -> None:
    """The same members, rounds of 2,048 steps, network and minibatches on the same cores. Tune compares by training episodes, we by evaluations besides."""
    head = ["environment", "baldwin, s", "Ray Tune + RLlib, s", "ratio", "baldwin, steps/s"]
    for env in ENVS:  # a table each, since the next one may take an hour
        mine, theirs = ours(env, members, rounds), tune(env, members, rounds)
        row = [env, f"{mine:.1f}", f"{theirs:.1f}", f"{theirs / mine:.1f}", f"{members * rounds * 2048 / mine:,.0f}"]
        table(f"PBT + PPO, {members} members x {rounds} x 2,048 steps, 64-64 networks", head, [row])


SHORT = [
    "algorithm.rollout_length=1",
    "algorithm.batch_size=8",
    "algorithm.epochs=1",
    "algorithm.steps_per_epoch=8",
    "env.max_episode_steps=200",
    "population.steps=8",
    "population.episodes=1",
    "population.fraction=0.5",
    "executor.name=process",
    "executor.workers=1",
]
"""A round of eight steps, one update and one episode of about twenty: what is left is what a copy costs."""


def copy_times(rounds: int = 60) -> list[float]:
    """Seconds from asking a population of four, which decides whom to copy, to the outcome of the copy's round in a worker process."""
    times = []
    with tempfile.TemporaryDirectory() as folder:
        config = config_of("CartPole-v1", 4, rounds, *SHORT)
        parts = build(config, Path(folder))
        executor = make_executor(config.executor, parts.worker_spec)
        try:
            for _ in range(4 * rounds):
                publish(parts.algorithm, executor)
                begun = time.perf_counter()
                (job,) = parts.algorithm.ask(1)
                executor.submit(job)
                (result,) = executor.wait()
                if getattr(job, "copied", False):
                    times.append(time.perf_counter() - begun)
                parts.algorithm.tell(result.outcomes)
        finally:
            executor.close()
    return times


def costs(members: int = 100) -> None:
    """What a copy costs, from the decision to its first outcome, and what a member costs besides its training."""
    times = copy_times()
    config = config_of("CartPole-v1", 2, 1, "executor.name=inline")
    sections = build(config).algorithm._context.sections  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder:
        files = StateFiles(Path(folder))
        (first,) = TrainMember(0, 0, sections, 1, 2048, 1, 1, files=files).run(None)  # type: ignore[arg-type]
        name = bytes(first.arrays["state_sha256"]).hex()
        size = len(files.read(name))
        run = start(config_of("CartPole-v1", members, 1, "executor.name=inline", "population.episodes=1"), Path(folder) / "run")
        begun = time.perf_counter()
        train(run)
        wall = time.perf_counter() - begun
        inside = sum(record["seconds"] for record in read_lineage(Path(folder) / "run"))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows = [
        [f"from the decision to copy to the copy's first outcome, ms: median of {len(times)}", f"{1e3 * statistics.median(times):.1f}"],
        ["the slowest tenth of them, ms", f"{1e3 * statistics.quantiles(times, n=10)[-1]:.1f}"],
        ["state of a member on disk, kB", f"{size / 1024:.0f}"],
        [f"time of {members} members besides their rounds, ms each", f"{1e3 * (wall - inside) / members:.1f}"],
        [f"peak memory of the process that has trained {members} members, MB", f"{memory:,.0f}"],
    ]
    table("What members cost, CartPole-v1, 64-64 networks", ["what", ""], rows)


MEMBER = [
    "algorithm.name=es",
    "env.id=benchmarks.worlds:Clockwork",
    "env.kwargs={length: 20}",
    "policy.hidden=[]",
    "algorithm.population=2",
    "algorithm.block=2",
    "algorithm.lr={log: [1e-3, 1e-1]}",
    "population.name=pbt",
    "population.steps=40",
    "population.episodes=1",
    "executor.name=virtual",
    "executor.latency=0",
]
"""One that costs next to nothing to compute: only how long its rounds take in simulated time matters."""
ROUND_STEPS, ROUND_SECONDS = 60, 60.0  # of three episodes; simulated, without jitter


def simulate(workers: int, members: int, rounds: int, synchronous: bool, jitter: float) -> float:
    """Rounds per simulated hour."""
    cost = [f"executor.step_seconds={ROUND_SECONDS / ROUND_STEPS}", f"executor.jitter={jitter}", f"executor.workers={workers}"]
    config = load_config(None, [], [*MEMBER, *cost, f"population.members={members}", f"population.synchronous={synchronous}"])
    with tempfile.TemporaryDirectory() as folder:
        parts = build(config, Path(folder))
        executor = make_executor(config.executor, parts.worker_spec)
        for _ in loop(parts.algorithm, executor):
            if parts.algorithm.version >= rounds:
                break
        return 3600 * rounds * members / executor.now  # type: ignore[attr-defined]


def scaling(workers: Sequence[int] = (1, 10, 100, 1000), rounds: int = 3, jitter: float = 0.5) -> None:
    """As many members as simulated workers, at least eight; a round takes a log-normal time around a minute."""
    rows = []
    for count in workers:
        members = max(8, count)
        waiting, going_on = (simulate(count, members, rounds, synchronous, jitter) for synchronous in (True, False))
        rows.append([f"{count:,}", f"{members:,}", f"{waiting:,.0f}", f"{going_on:,.0f}", f"{going_on / waiting:.2f}"])
    head = ["workers", "members", "synchronous, rounds/h", "asynchronous", "ratio"]
    table(f"Simulated workers, {rounds} rounds of a minute each (log-normal, sigma {jitter})", head, rows)


def main(full: bool = False, rounds: int | None = None) -> None:
    peers(8, rounds or (20 if full else 2))
    costs()
    scaling(rounds=10 if full else 3)


if __name__ == "__main__":
    main()
