"""Gradient learners: steps/s against Stable-Baselines3, an update against its bare products, stacked actors, a resume with a full replay."""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from baldwin.config import load_config
from baldwin.learners import SAC, TD3, Learner, SACUpdateConfig, TD3UpdateConfig, replay_columns
from baldwin.learners.buffers import window_columns
from baldwin.learners.sac import SACConfig
from baldwin.learners.window_learner import WindowLearner
from baldwin.networks import PolicyConfig
from baldwin.networks.batched_mlp import MIN_ONEDNN, product
from baldwin.observations import vector_spec
from baldwin.ops.threads import cores, threads
from baldwin.replay import PREVIOUS_INDEX, Column, ReplayBuffer
from baldwin.runs.resume import resume
from baldwin.runs.run import Run, start, train
from benchmarks.tools import HERE, peer_python, spread, table

ENV, OBS, ACTIONS = "HalfCheetah-v5", 17, 6
SB3 = ["stable-baselines3==2.9.2", "torch==2.13.0", "gymnasium[mujoco]==1.4.0", "mujoco==3.14.0"]
UPDATES = 50


def filled(rows: int, folder: Path | None = None, kept: Mapping[str, Column] | None = None) -> ReplayBuffer:
    """A replay of noise, as large as HalfCheetah's; `kept`: columns besides, in which case there are episodes of 1,000 steps."""
    rng = np.random.default_rng(0)
    columns = replay_columns(vector_spec(OBS), np.empty((0, ACTIONS), np.float32)) | dict(kept or {})
    if folder:
        folder.mkdir(exist_ok=True)
    replay = ReplayBuffer(columns, rows, seed=0, folder=folder)
    never = np.zeros(1000 if kept else 50_000, np.bool_)
    others = {name: np.zeros((len(never), *c.shape), c.dtype) for name, c in (kept or {}).items() if name != PREVIOUS_INDEX}
    for _ in range(0, rows, len(never)):
        obs = rng.standard_normal((len(never) + 1, OBS), dtype=np.float32)
        action = rng.uniform(-1, 1, (len(never), ACTIONS)).astype(np.float32)
        reward = rng.standard_normal(len(never), dtype=np.float32)
        rows = {"action": action, "reward": reward, "terminated": never, "truncated": never}
        replay.add(rows | others | {"obs/vector": obs[:-1], "next_obs/vector": obs[1:]})
    return replay


def learner(kind: str, hidden: list[int], **rule: Any) -> Learner:
    policy = {"hidden": hidden, "activation": "relu", "init": "torch", "normalize_obs": False}
    sizes = {"obs": vector_spec(OBS), "n_actions": ACTIONS, "seed": 1}
    critic = {"critic": {"hidden": hidden}}
    if kind == "td3":
        return TD3(PolicyConfig(**policy), TD3UpdateConfig(**critic, **rule), **sizes)
    return SAC(PolicyConfig(**policy, head="gaussian"), SACUpdateConfig(**critic, **rule), **sizes)


def milliseconds(work: Callable[[], object], each: int = 1, repeats: int = 7) -> list[float]:
    work()
    found = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        found.append((time.perf_counter() - begun) / each * 1e3)
    return found


def ours(kind: str, steps: int, threads: int | str, clock: Callable[[], float]) -> float:
    """Steps/s of a whole run with one update a step, from the first learning round on; checkpoints are in it. As the peer's, it is not evaluated."""
    marks: list[tuple[float, int]] = []

    def watch(run: Run, line: dict[str, float]) -> None:
        if line.get("update_to_data") == 1.0:
            marks.append((clock(), int(line["env_steps"])))

    options = ["algorithm.start_steps=1000", f"stop.env_steps={steps}", "executor.name=inline", "run.evaluate_every=1000000"]
    options += [f"algorithm.threads={threads}"]
    with tempfile.TemporaryDirectory() as folder:
        train(start(load_config(f"halfcheetah-{kind}", [], options), Path(folder) / "run"), [watch])
    return (marks[-1][1] - marks[0][1]) / (marks[-1][0] - marks[0][0])


def theirs(kind: str, seconds: float, threads: int, what: str) -> float:
    python = peer_python("sb3", SB3)
    command = [str(python), str(HERE / "sb3_peer.py"), kind, ENV, "--seconds", str(seconds), "--threads", str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1])[what])


def products(kind: str, hidden: list[int], batch: int, seen: int = OBS) -> Callable[[], None]:
    """The matrix products of one update, forward and backward, and nothing else; `seen`: numbers of an observation."""
    actor, critic = (seen, *hidden, ACTIONS * (2 if kind == "sac" else 1)), (seen + ACTIONS, *hidden, 1)
    # networks that go forward, of these with gradients of parameters, with gradients of inputs beyond the first layer
    plans = [(actor, 1, 0, 0), (critic, 2, 0, 0), (critic, 2, 2, 0)]
    plans += [(actor, 1, 1, 0), (critic, 2, 0, 2)] if kind == "sac" else []
    jobs: list[tuple[torch.Tensor, torch.Tensor]] = []

    def add(count: int, rows: int, inner: int, columns: int) -> None:
        if count:
            jobs.append((torch.randn(count, rows, inner), torch.randn(count, inner, columns)))

    def plan(sizes: tuple[int, ...], forward: int, parameters: int, inputs: int) -> None:
        for layer, (fan_in, fan_out) in enumerate(pairwise(sizes)):
            add(forward, batch, fan_in, fan_out)
            add(parameters, fan_out, batch, fan_in)
            add(max(inputs, parameters if layer else 0), batch, fan_out, fan_in)

    for entry in plans:
        plan(*entry)
    half = len(jobs)
    if kind == "td3":  # the actor's part, every second time
        plan(actor, 1, 1, 0)
        plan(critic, 1, 0, 1)
    calls = [0]

    def run() -> None:
        calls[0] += 1
        for a, b in jobs if calls[0] % 2 else jobs[:half]:
            if a[0].numel() * b.shape[2] >= MIN_ONEDNN:
                for own_a, own_b in zip(a, b, strict=True):
                    product(own_a, own_b)
            else:
                torch.bmm(a, b)

    return run


def speed(repeats: int, seconds: float) -> None:
    """By the clock on all cores, and by CPU time on one thread, which hardly depends on who else uses the machine."""
    steps = 1000 + 1000 * max(3, round(seconds / 5))
    ways = {
        "all cores": ("auto", 0, time.perf_counter, "steps_per_second"),
        "one thread, CPU": (1, 1, time.process_time, "steps_per_cpu_second"),
    }
    rows = []
    for kind in ("td3", "sac"):
        for name, (own_threads, peer_threads, clock, what) in ways.items():
            pairs = [(ours(kind, steps, own_threads, clock), theirs(kind, seconds, peer_threads, what)) for _ in range(repeats)]
            mine, other = zip(*pairs, strict=True)
            rows.append([kind.upper(), name, spread(mine), spread(other), spread([a / b for a, b in pairs], 2)])
    table(f"{ENV}, one update a step, 256-256, batch 256", ["learner", "per second of", "baldwin steps/s", "SB3 steps/s", "ratio"], rows)


def updates() -> None:
    rows = []
    replay = filled(100_000)
    for kind in ("td3", "sac"):
        for count in sorted({1, cores()}):
            made = learner(kind, [256, 256], threads=count)
            took = milliseconds(lambda made=made: made.train(replay, UPDATES), UPDATES)
            with threads(count):
                bare = products(kind, [256, 256], 256)
                alone = milliseconds(lambda bare=bare: [bare() for _ in range(UPDATES)], UPDATES)
            share = statistics.median(alone) / statistics.median(took)
            rows.append([kind.upper(), str(count), spread(took, 2), spread(alone, 2), f"{share:.2f}"])
    table("One update, 256-256, batch 256", ["learner", "threads", "ms", "bare products ms", "share that is products"], rows)


def recurrent() -> None:
    """SAC with a GRU: 32 windows of 8 burn-in and 16 trained steps, against the products of GRU, actor and critics alone."""
    size, windows, burn_in, sequence, hidden = 128, 32, 8, 16, 256
    config = SACConfig(batch_size=windows, burn_in=burn_in, sequence=sequence, threads=1)
    policy = PolicyConfig(
        hidden=[hidden, hidden], activation="relu", init="torch", normalize_obs=False, head="gaussian", memory={"kind": "gru", "size": size}
    )
    made = WindowLearner(policy, config, obs=vector_spec(OBS), n_actions=ACTIONS, discrete=False, seed=1)
    replay = filled(100_000, kept=window_columns(made.state_size, log_prob=False))
    took = milliseconds(lambda: made.train(replay, 10), 10)
    steps, batch = burn_in + sequence + 1, windows * sequence
    gates = [(torch.randn(windows, OBS), torch.randn(OBS, 3 * size)), (torch.randn(windows, size), torch.randn(size, 3 * size))]

    def memory() -> None:
        for step in range(steps):  # by the network and its slow copy; backwards, both factors have a gradient, but not of observations
            for a, b in gates:
                a @ b
                a @ b
            if step >= burn_in:
                for a, _ in gates:
                    a.T @ torch.empty(windows, 3 * size)
                torch.empty(windows, 3 * size) @ gates[1][1].T

    behind = products("sac", [hidden, hidden], batch, size)
    with threads(1):
        bare = milliseconds(lambda: (memory(), behind()))
    share = f"{statistics.median(bare) / statistics.median(took):.2f}"
    table(
        f"One update of SAC with a GRU of {size}, {windows} windows of {burn_in} + {sequence} steps, one thread",
        ["ms", "bare products ms", "share that is products"],
        [[spread(took, 2), spread(bare, 2), share]],
    )


def stacked() -> None:
    """Five individuals of CEM-RL, 400-300, batch 256, actor steps only."""
    replay, rows = filled(100_000), []
    single = learner("td3", [400, 300], threads=1)
    base = [5 * t for t in milliseconds(lambda: single.train_actor(replay, UPDATES), UPDATES)]
    rows.append(["five single steps, float32", spread(base, 2), "1.00"])
    for precision in ("float32", "bfloat16"):
        made = learner("td3", [400, 300], threads=1, precision=precision)
        made.set_actor(np.repeat(made.actor_vectors(), 5, 0))
        took = milliseconds(lambda made=made: made.train_actor(replay, UPDATES), UPDATES)
        rows.append([f"five stacked, {precision}", spread(took, 2), f"{statistics.median(base) / statistics.median(took):.2f}"])
    table("Actor steps of five individuals, 400-300, batch 256, one thread", ["what", "ms for all five", "faster by"], rows)


def going_on() -> None:
    """Fill a real run's replay to 1 M, stop it, resume it."""
    base = [
        "algorithm.rollout_length=1000",
        "algorithm.batch_size=16",
        "run.evaluate_every=1000",
        "run.checkpoint_every=30",
        "executor.name=inline",
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        options = [*base, "algorithm.start_steps=1_000_000", "stop.env_steps=1_000_000"]
        run = start(load_config("halfcheetah-td3", [], options), path)
        train(run)
        begun = time.perf_counter()
        again, _ = resume(path)
        took = time.perf_counter() - begun
        assert len(again.algorithm.replay) == 1_000_000  # type: ignore[attr-defined]
        begun = time.perf_counter()
        again.checkpoint(force=True)
        saving = time.perf_counter() - begun
        again.close()
        size = sum(f.stat().st_size for f in (path / "replay").iterdir()) / 1e6
    table("A run with a full replay of 1 M transitions", ["what", "value"], [
        ["resume, seconds", f"{took:.2f}"], ["checkpoint, seconds", f"{saving:.2f}"], ["replay files, MB", f"{size:.0f}"],
    ])  # fmt: skip


def main(repeats: int, seconds: float) -> None:
    updates()
    recurrent()
    stacked()
    going_on()
    speed(repeats, seconds)
