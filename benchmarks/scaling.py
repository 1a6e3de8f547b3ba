"""Scale on paper: one generation on 1 to 1,440 workers, by the virtual executor with costs that are measured here first."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from baldwin.config import load_config
from baldwin.executors import ExecutorConfig, RayExecutor, VirtualExecutor
from baldwin.ops.noise import Noise, split_half_gradient
from baldwin.rollout import RolloutSpec
from baldwin.runs.build import build
from baldwin.runs.journal import read_journal
from baldwin.runs.run import start, train
from baldwin.types import CENTER, Fingerprint, Outcome, Perturbation, Shared, Trial
from benchmarks.tools import table

POPULATION, BLOCK, DIM = 11_520, 8, 5_702
WORKERS = (1, 2, 4, 9, 18, 36, 72, 144, 288, 576, 720, 1440)
PAPER = {18: 657.0, 1440: 10.0}  # minutes to solve a humanoid, arXiv 1703.03864
PICTURE = Path(__file__).parent.parent / "docs" / "img" / "scaling.png"


@dataclass(frozen=True)
class Costs:
    """Seconds, as measured on this machine."""

    step: float  # of the simulator, for each environment
    vector: float  # of a step of all environments, besides
    episode: float  # of beginning one: noise, reset
    jitter: float  # sigma of the log-normal spread of a job's time
    latency: float  # of a job through Ray
    driver: float  # of the driver's own time for each job
    update: float  # of one generation, all pairs


class NullWorker:
    """A worker for jobs that do nothing."""

    def receive(self, shared: Shared) -> None: ...

    def evaluate(self, trials: object, spec: object) -> list[Outcome]:
        return []

    def fingerprint(self, held: object) -> Fingerprint:
        return {}

    def close(self) -> None: ...


@dataclass(frozen=True)
class Cost:
    """A job that takes so many microseconds of simulated time."""

    ticket: int
    microseconds: int
    stream: None = None

    @property
    def tickets(self) -> tuple[int, ...]:
        return (self.ticket,)

    def run(self, worker: object) -> list[Outcome]:
        return [Outcome(self.ticket, 0.0, env_steps=self.microseconds)]


def rollout_costs(name: str) -> tuple[float, float, float, float]:
    """What a job's time is made of, by least squares over jobs of several widths and lengths; and its spread around that."""
    parts = build(load_config(None, [], [f"env.id={name}"]))
    worker = parts.worker_spec()
    worker.receive(Shared(CENTER, 0, parts.algorithm.policy_state(), 0))
    noise = Noise((0, 1), ((parts.dim,),))
    made, times = [], []
    for generation in range(8):
        for width in (2, 8, 32):
            trials = [Trial(n, 0, Perturbation(noise, generation, n // 2, 0.05)) for n in range(width)]
            spec = RolloutSpec(
                "train", 0, np.arange(width, dtype=np.int64), generation, max_steps=(20, 60, 200)[generation % 3], collect_moments=True
            )
            worker.evaluate(trials, spec)  # the first at this width makes the environments
            begun = time.perf_counter()
            steps = [o.env_steps for o in worker.evaluate(trials, spec)]
            times.append(time.perf_counter() - begun)
            made.append((sum(steps), max(steps), width))
    worker.close()
    costs = np.linalg.lstsq(np.array(made, float), np.array(times))[0].clip(0)
    step, vector, episode = (float(c) for c in costs)
    return step, vector, episode, float(np.std(np.log(np.array(times) / (np.array(made) @ costs))))


def ray_costs() -> tuple[float, float]:
    """(latency of one job, the driver's own time for one of many)."""
    executor = RayExecutor(NullWorker, ExecutorConfig(name="ray", workers=2))
    try:
        for _ in range(20):
            executor.submit(Cost(0, 0))
            executor.wait()
        begun = time.perf_counter()
        for n in range(200):
            executor.submit(Cost(n, 0))
            executor.wait()
        latency = (time.perf_counter() - begun) / 200
        cpu, waiting = time.thread_time(), 0  # Ray's own threads run beside
        for n in range(600):
            executor.submit(Cost(n, 0))
            waiting += 1
            if waiting == 50:
                while waiting:
                    waiting -= len(executor.wait())
        return latency, (time.thread_time() - cpu) / 600
    finally:
        executor.close()


def update_cost() -> float:
    begun, pairs = time.perf_counter(), 500
    split_half_gradient(Noise((0, 1), ((DIM,),)), 0, np.ones(pairs))
    return (time.perf_counter() - begun) / pairs * POPULATION / 2


def lengths(name: str) -> NDArray[np.int64]:
    """Episode lengths of a real population in the middle of learning, drawn again to fill ours: [jobs, BLOCK]."""
    if name == "HalfCheetah-v5":
        return np.full((POPULATION // BLOCK, BLOCK), 1000)
    with tempfile.TemporaryDirectory() as folder:
        run = start(load_config("hopper", [], ["stop.generations=40", "run.evaluate_every=1000"]), Path(folder) / "run")
        train(run)
        told = [r for r in read_journal(run.directory.journal, 0) if r.meta["kind"] == "tell"]
    seen = np.array([o.env_steps for r in told[-20:] for o in r.outcomes])
    return np.random.default_rng(0).choice(seen, (POPULATION // BLOCK, BLOCK))


def simulate(played: NDArray[np.int64], workers: int, refill: bool, costs: Costs) -> float:
    """Seconds of one generation. Without refill each worker gets its share at once; with it, block by block as it gets idle."""
    blocks = 1e6 * (costs.vector * played.max(1) + costs.step * played.sum(1) + costs.episode * BLOCK)
    blocks *= np.random.default_rng(1).lognormal(0, costs.jitter, len(blocks))
    jobs = blocks if refill else np.array([part.sum() for part in np.array_split(blocks, workers)])
    config = ExecutorConfig(name="virtual", workers=workers, step_seconds=1e-6, latency=costs.latency, jitter=0.0)
    executor = VirtualExecutor(NullWorker, config)
    waiting = [Cost(n, int(cost)) for n, cost in enumerate(jobs)]
    while waiting or executor.slots < workers:
        while waiting and executor.slots:
            executor.submit(waiting.pop())
        executor.wait()
    return max(executor.now, len(jobs) * costs.driver) + costs.update


def main() -> None:
    import matplotlib.pyplot as plt

    latency, driver = ray_costs()
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    for axis, name in zip(axes, ("HalfCheetah-v5", "Hopper-v5"), strict=True):
        costs = Costs(*rollout_costs(name), latency, driver, update_cost())
        played = lengths(name)
        times = {refill: [simulate(played, w, refill, costs) for w in WORKERS] for refill in (True, False)}
        head = ["workers", "refill: seconds", "speed-up", "efficiency", "no refill: seconds", "speed-up", "18 workers = 1"]
        rows = []
        for place, workers in enumerate(WORKERS):
            fast, slow = times[True][place], times[False][place]
            up, down = times[True][0] / fast, times[False][0] / slow
            paper = times[True][WORKERS.index(18)] / fast
            rows.append(
                [f"{workers:,}", f"{fast:,.2f}", f"{up:,.1f}", f"{up / workers:.2f}", f"{slow:,.2f}", f"{down:,.1f}", f"{paper:.1f}"]
            )
        spread = f"episodes of {played.min()} to {played.max()} steps, mean {played.mean():.0f}"
        table(f"{name}: {POPULATION:,} individuals, {spread}", head, rows)
        print(", ".join(f"{k} {v * 1e6:,.0f} us" for k, v in vars(costs).items() if k != "jitter") + f", jitter {costs.jitter:.3f}\n")
        axis.plot(WORKERS, WORKERS, "k:", label="ideal")
        for refill, label in ((True, "refill"), (False, "no refill")):
            axis.plot(WORKERS, np.array(times[refill][0]) / times[refill], "o-", label=label)
        reached = times[True][0] / times[True][WORKERS.index(18)]
        axis.plot(list(PAPER), [reached, reached * PAPER[18] / PAPER[1440]], "s--", label="the paper's 65.7 x, from 18 workers")
        axis.set(xscale="log", yscale="log", xlabel="workers", ylabel="speed-up over one worker", title=name)
        axis.legend()
    figure.savefig(PICTURE, dpi=110)
    print(f"picture: {PICTURE}")


if __name__ == "__main__":
    main()
