"""Networks that see and remember: many at once against a loop of modules, whole runs against the bare simulator, the image replay."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from baldwin.config import load_config
from baldwin.envs import EnvConfig, check_env
from baldwin.learners import replay_columns
from baldwin.networks import PolicyConfig, StackedPolicies, make_network, stack_trials
from baldwin.ops.noise import Noise
from baldwin.ops.threads import cores, one_thread, threads
from baldwin.replay import ReplayBuffer
from baldwin.runs.build import build
from baldwin.types import CENTER, Perturbation, Shared, Trial
from benchmarks.tools import spread, table

LANES = 16
GAME = EnvConfig(id="ALE/Pong-v5", atari={"size": 42, "stack": 1})  # type: ignore[arg-type]


class ConvNetLSTM(nn.Module):
    """The network of pytorch-es as anyone would write it."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.Sequential(*(m for n in range(4) for m in (nn.Conv2d(32 if n else 1, 32, 3, 2, 1), nn.SELU())))
        self.lstm, self.out = nn.LSTMCell(288, 256), nn.Linear(256, 6)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        h, c = self.lstm(self.convs(x.float() / 255).flatten(1), state)
        return self.out(h), (h, c)


def median_ms(work: Callable[[], object], repeats: int = 40) -> list[float]:
    found = []
    for n in range(repeats + 5):
        begun = time.perf_counter()
        work()
        if n >= 5:
            found.append((time.perf_counter() - begun) * 1e3)
    return found


def interleaved_ms(works: list[Callable[[], object]], repeats: int = 60) -> list[list[float]]:
    """CPU milliseconds of each, in turn, so that other work on the machine slows all of them; the first five rounds are left out."""
    found: list[list[float]] = [[] for _ in works]
    for n in range(repeats + 5):
        for work, own in zip(works, found, strict=True):
            work()  # so that each finds the caches as it leaves them
            begun = time.process_time()
            work()
            if n >= 5:
                own.append((time.process_time() - begun) * 1e3)
    return found


def stacked(rank: int) -> StackedPolicies:
    network = make_network(PolicyConfig(network="convnet-lstm"), check_env(GAME).obs, 6)
    noise = Noise((1, 2), network.shapes, rank)
    trials = [Trial(n, 0, Perturbation(noise, 0, n // 2, 0.05 * (1 - 2 * (n % 2)))) for n in range(LANES)]
    return stack_trials(network, trials, torch.from_numpy(network.init(0)), LANES)


@torch.inference_mode()
def forward_passes() -> None:
    x = torch.randint(0, 256, (LANES, 1, 42, 42), dtype=torch.uint8)
    modules = [ConvNetLSTM().eval() for _ in range(LANES)]
    states: list[Any] = [(torch.zeros(1, 256), torch.zeros(1, 256)) for _ in modules]

    def loop() -> None:
        for n, module in enumerate(modules):
            _, states[n] = module(x[n : n + 1], states[n])

    by_rank = [stacked(rank) for rank in (0, 1)]
    with one_thread():
        alone, *others = interleaved_ms([loop, *(lambda many=many: many({"obs": x}) for many in by_rank)])
    rows = [["a loop of torch modules", spread(alone, 2), "1.00"]]
    for label, took in zip(("stacked, full rank", "stacked, rank 1"), others, strict=True):
        rows.append([label, spread(took, 2), f"{statistics.median(alone) / statistics.median(took):.2f}"])
    table(f"One step of {LANES} ConvNet-LSTMs (588,710 parameters each), one thread", ["what", "CPU ms", "times the loop"], rows)


def bare_simulator(seconds: float) -> float:
    """Steps/s of ALE alone: four frames an action, nothing looked at."""
    import ale_py
    import gymnasium as gym

    gym.register_envs(ale_py)
    ale = gym.make("ALE/Pong-v5").unwrapped.ale  # type: ignore[attr-defined]
    actions, rng, steps = ale.getMinimalActionSet(), np.random.default_rng(0), 0
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        button = actions[int(rng.integers(len(actions)))]
        for _ in range(4):
            ale.act(button)
        steps += 1
        if ale.game_over():
            ale.reset_game()
    return steps / (time.perf_counter() - begun)


def whole_blocks(name: str, *options: str) -> float:
    """Steps/s of a worker that plays one block of the preset, network and all; games are loaded before."""
    config = load_config(
        name, [], [f"algorithm.block={LANES}", f"algorithm.population={LANES}", "algorithm.evaluate_center=false", *options]
    )
    config = config.model_copy(update={"env": config.env.model_copy(update={"max_episode_steps": 300})})
    parts = build(config)
    worker = parts.worker_spec()
    worker.receive(Shared(CENTER, 0, parts.algorithm.policy_state(), 0))
    (job,) = parts.algorithm.ask(1)
    job.run(worker)
    begun = time.perf_counter()
    steps = sum(o.env_steps for o in job.run(worker))
    return steps / (time.perf_counter() - begun)


def games(seconds: float) -> None:
    raw = bare_simulator(seconds)
    rows = [["bare ALE, 4 frames an action", f"{raw:,.0f}", "1.00"]]
    for label, name, options in (
        ("pong-es, full rank", "pong-es", ("algorithm.rank=0",)),
        ("pong-es, rank 1", "pong-es", ()),
        ("pong-ram-es, MLP", "pong-ram-es", ()),
    ):
        speed = whole_blocks(name, *options)
        rows.append([label, f"{speed:,.0f}", f"{speed / raw:.2f}"])
    table("Pong, steps/s of one worker", ["what", "steps/s", "share of the simulator"], rows)


def image_replay(rows_written: int = 60_000) -> None:
    """Disk of a replay of 84 x 84 x 4, and a draw of 256 against a forward pass of the Nature network."""
    spec = check_env(EnvConfig(id="ALE/Pong-v5")).obs
    never = np.zeros(1000, np.bool_)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        replay = ReplayBuffer(replay_columns(spec, np.empty(0, np.int64)), 1_000_000, seed=0, folder=Path(folder))
        last = -1
        for _ in range(0, rows_written, 1000):
            frames = rng.integers(0, 256, (1001, 1, 84, 84), np.uint8)
            rows = {
                "obs/obs": frames[:-1],
                "next_obs/obs": frames[1:],
                "action": np.zeros(1000, np.int64),
                "reward": np.zeros(1000, np.float32),
            }
            last = replay.add(rows | {"terminated": never, "truncated": never}, after=last)
        used = sum(f.stat().st_blocks * 512 for f in Path(folder).iterdir())
        draws = median_ms(lambda: replay.sample(1, 256), 15)
    network = make_network(PolicyConfig(network="nature"), spec, 6)
    forward = network.bind(torch.from_numpy(network.init(0))[None])
    x = torch.randint(0, 256, (1, 256, 4, 84, 84), dtype=torch.uint8)
    with torch.inference_mode(), threads(cores()):
        passes = median_ms(lambda: forward({"obs": x}, torch.empty(0)), 15)
    table("Replay of 84 x 84 x 4", ["what", "value"], [
        ["bytes of a transition on the disk", f"{used / rows_written:,.0f}"],
        ["a million, GB", f"{used / rows_written / 1e3:.2f}"],
        ["a draw of 256, ms", spread(draws, 1)],
        ["a forward pass of 256 (Nature), ms", spread(passes, 1)],
        ["draw / pass", f"{statistics.median(draws) / statistics.median(passes):.2f}"],
    ])  # fmt: skip


def main(seconds: float) -> None:
    forward_passes()
    games(seconds)
    image_replay()


if __name__ == "__main__":
    main(5.0)
