"""What a generation costs besides its episodes: time and memory against dimension and population."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

import numpy as np
import torch

from baldwin.networks import PolicyConfig, make_network, stack_trials
from baldwin.ops.noise import Noise
from baldwin.strategies import ESConfig, OpenAIES
from baldwin.types import Outcome, Perturbation, Trial
from benchmarks.tools import table

BASE_DIM, BASE_POPULATION = 50_000, 128


def one(dim: int, population: int) -> dict[str, float]:
    """Seconds of ask, noise, update, and peak memory above the start, in this fresh process."""
    config = ESConfig(population=population)
    strategy = OpenAIES(np.zeros(dim, np.float32), config, seed=0)
    policy = make_network(PolicyConfig(hidden=[], normalize_obs=False), dim - 1, 1)
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        trials = []
        while block := strategy.ask(32):
            stack_trials(policy, block, torch.from_numpy(strategy.center), 34)
            trials += block
        strategy.tell([Outcome(t.id, float(t.id % 97)) for t in trials])
        times.append(time.perf_counter() - begun)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": min(times), "megabytes": (peak - base) / 1024}


def apart(dim: int, population: int) -> dict[str, float]:
    code = f"import json; from benchmarks.overhead import one; print(json.dumps(one({dim}, {population})))"
    return dict(json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout))


def linearity() -> None:
    rows = []
    for dim, population in [(BASE_DIM * k, BASE_POPULATION) for k in (1, 4, 16)] + [(BASE_DIM, BASE_POPULATION * k) for k in (4, 16)]:
        found = apart(dim, population)
        per = found["seconds"] / (dim * population) * 1e9
        block = 4 * dim * 34 / 2**20
        rows.append([f"{dim:,}", f"{population:,}", f"{found['seconds']:.3f}", f"{per:.1f}", f"{found['megabytes']:.0f}", f"{block:.0f}"])
    head = ["parameters", "population", "seconds a generation", "ns per parameter and individual", "peak MB above start", "MB of one block"]
    table("Generation overhead: noise, stacking and update on one core, no episodes", head, rows)


def low_rank() -> None:
    """One policy step of 32 individuals, full against rank 1, and rebuilding their noise."""
    rows = []
    for width in (32, 64, 128, 256, 512, 1024):
        policy = make_network(PolicyConfig(hidden=[width, width]), 17, 6)
        center, x = torch.from_numpy(policy.init(0)), torch.zeros(32, 17)
        cost = {}
        for rank in (0, 1):
            noise = Noise((1, 2), policy.shapes, rank)
            trials = [Trial(n, 0, Perturbation(noise, 0, n // 2, 0.02 * (-1) ** n)) for n in range(32)]
            begun = time.perf_counter()
            stack = stack_trials(policy, trials, center, 32)
            build = time.perf_counter() - begun
            with torch.inference_mode():
                stack(x)
                repeats = max(5, 4000 // width)
                samples = []
                for _ in range(5):
                    begun = time.perf_counter()
                    for _ in range(repeats):
                        stack(x)
                    samples.append((time.perf_counter() - begun) / repeats)
            cost[rank] = (min(samples) * 1e6, build * 1e3)
        (full, full_build), (thin, thin_build) = cost[0], cost[1]
        rows.append([str(width), f"{full:.0f}", f"{thin:.0f}", f"{full / thin:.2f} x", f"{full_build:.1f}", f"{thin_build:.1f}"])
    head = [
        "hidden width (two layers)",
        "full rank, µs a step",
        "rank 1, µs a step",
        "gain",
        "full: rebuild 32, ms",
        "rank 1: rebuild 32, ms",
    ]
    table("Low-rank perturbations on one core, 32 individuals", head, rows)


def peak_memory() -> None:
    """The largest resident size of a HalfCheetah run: driver and each worker."""
    code = (
        "import resource, tempfile, pathlib; from baldwin.config import load_config; from baldwin.runs.run import train, start\n"
        "if __name__ == '__main__':\n"
        "    drive(start(load_config('halfcheetah', [], ['stop.generations=3']), pathlib.Path(tempfile.mkdtemp()) / 'run'))\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)\n"
    )
    driver = float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()[-1])
    table(
        "Peak memory of a HalfCheetah run",
        ["process", "MB resident"],
        [["driver (of which importing torch takes the most)", f"{driver:.0f}"]],
    )


def main() -> None:
    torch.set_num_threads(1)
    linearity()
    low_rank()
    peak_memory()
