"""Evolution with gradients: does asynchrony pay? On the cores that are here, and on simulated workers with costs measured here."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from baldwin.config import RunConfig, load_config
from baldwin.executors import ExecutorConfig, make_executor
from baldwin.hybrids import HybridAlgorithm
from baldwin.ops.threads import cores
from baldwin.runs.build import build
from baldwin.runs.loop import Told, loop
from baldwin.runs.run import Run, start, train
from baldwin.runs.timeline import read_timeline
from benchmarks.learners import filled, learner, milliseconds
from benchmarks.tools import spread, table

ACTORS = (1, 2, 5, 20, 100)
VARIANTS: dict[str, list[str]] = {
    "CEM-RL": ["algorithm.name=cem-rl"],
    "P-CEM-RL, critic first": ["algorithm.name=p-cem-rl"],
    "P-CEM-RL, critic beside": ["algorithm.name=p-cem-rl", "algorithm.critic=parallel"],
    "AES-RL": ["algorithm.name=aes-rl"],
    "AES-RL, no back-pressure": ["algorithm.name=aes-rl", "algorithm.back_pressure=false"],
}
CEM = ["algorithm.strategy.divide_variance_by_k=true", "algorithm.strategy.noise_tau=0.9"]


def costs() -> dict[str, float]:
    """Seconds of an environment step, a critic step and an actor step: HalfCheetah, 400-300, batch 256, one thread."""
    made, replay, steps = learner("td3", [400, 300], threads=1), filled(50_000), 20
    policy = made.actor_vectors()[0]
    critic = milliseconds(lambda: made.train_critic(replay, steps, policy), steps)
    actor = milliseconds(lambda: made.train_actor(replay, steps), steps)
    config = load_config("halfcheetah-aes-rl", [], ["algorithm.start_steps=0", "algorithm.inheritance=darwinian", "executor.name=inline"])
    parts = build(config)
    executor, begun = make_executor(config.executor, parts.worker_spec), 0.0
    for event in loop(parts.algorithm, executor):
        begun = begun or time.perf_counter()
        if isinstance(event, Told) and parts.algorithm.version >= 3:
            break
    step = (time.perf_counter() - begun) / parts.algorithm.env_steps
    return {"step_seconds": step, "critic_seconds": statistics.median(critic) / 1e3, "actor_seconds": statistics.median(actor) / 1e3}


def stacked() -> None:
    """Actor steps a second, one individual and five at once."""
    rows, replay = [], filled(50_000)
    for count in (1, 5):
        made = learner("td3", [400, 300], threads=1)
        made.set_actor(np.repeat(made.actor_vectors(), count, 0))
        took = milliseconds(lambda made=made: made.train_actor(replay, 10), 10)
        rows.append([str(count), spread([1e3 * count / t for t in took])])
    table("actor steps/s, 400-300, batch 256, one thread", ["individuals stacked", "actor steps/s"], rows)


def measured(config: RunConfig, steps: int) -> tuple[float, float, float]:
    """Of a whole run: learning steps/s in the second half, idle share of worker time after the warm-up, critic steps a learning step.

    In the first half asynchronous critics pay for the steps of the warm-up.
    """
    marks: list[tuple[float, int]] = []

    def watch(run: Run, line: dict[str, float]) -> None:
        if "score" not in line and run.algorithm.learning_steps - config.algorithm.start_steps >= steps / 2:  # type: ignore[union-attr]
            marks.append((time.perf_counter(), run.algorithm.learning_steps))

    with tempfile.TemporaryDirectory() as folder:
        run = start(config, Path(folder) / "run")
        train(run, [watch])
        whole, algorithm = read_timeline(Path(folder) / "run"), run.algorithm
        assert isinstance(algorithm, HybridAlgorithm)
        begun, over = (
            min(s.started for s in whole.spans if s.kind == "critic"),
            max(s.finished for s in whole.spans if s.kind != "evaluate"),
        )
        learning = whole.cut(begun, over - begun)
        speed = (marks[-1][1] - marks[0][1]) / (marks[-1][0] - marks[0][0])
        return speed, learning.row()["idle"], algorithm.critic_steps / algorithm.learning_steps


def real(name: str, steps: int, episode: int, executor: str, workers: int) -> RunConfig:
    """A preset with shorter episodes and everything that depends on them: rates stay what they are."""
    own = [
        f"env.max_episode_steps={episode}",
        f"algorithm.start_steps={10 * episode}",
        f"stop.learning_steps={10 * episode + steps}",
        "algorithm.learner.batch_size=256",
        f"executor.name={executor}",
        f"executor.workers={workers}",
        "run.evaluate_every=1000",
        "run.checkpoint_every=10",
    ]
    if "aes" in VARIANTS[name][0]:
        own += [f"algorithm.critic_steps_per_job={episode}", f"algorithm.steps_per_epoch={episode}", "algorithm.strategy.scale=2000"]
    else:
        own += CEM
    return load_config(None, [], ["env.id=HalfCheetah-v5", *VARIANTS[name], *own])


def on_these_cores(steps: int, episode: int, repeats: int) -> None:
    rows = []
    count = cores()
    for name in VARIANTS:
        place = ("inline", 1) if name == "CEM-RL" else ("process", count)
        found = [measured(real(name, steps, episode, *place), steps) for _ in range(repeats)]
        speed, idle, ratio = zip(*found, strict=True)
        rows.append([name, str(place[1]), spread(speed, 1), f"{statistics.median(idle):.0%}", f"{statistics.median(ratio):.2f}"])
    head = ["algorithm", "workers", "learning steps/s", "worker time idle", "critic steps a learning step"]
    table(
        f"HalfCheetah-v5, episodes of {episode} steps, 400-300, batch 256, {steps} learning steps after the warm-up, speed of their second half",
        head,
        rows,
    )


def executors(steps: int, episode: int, repeats: int) -> None:
    """One worker each: what an executor costs."""
    rows: list[list[str]] = []
    inline = 0.0
    for name in ("inline", "process", "ray"):
        found = [measured(real("AES-RL", steps, episode, name, 1), steps)[0] for _ in range(repeats)]
        inline = inline or statistics.median(found)
        rows.append([name, spread(found, 1), f"{statistics.median(found) / inline:.3f}"])
    table("AES-RL on one worker", ["executor", "learning steps/s", "of inline"], rows)


def simulated(name: str, actors: int, varies: bool, cost: dict[str, float], steps: int, length: int = 50) -> tuple[float, float, float]:
    """Learning steps per simulated second and idle share in the second half, critic steps a learning step.

    Tiny networks stand in for the large ones; many workers need more steps until they are in step.
    """
    budget = 10 * length + (steps if actors <= 20 else 4 * steps)
    own = ["env.id=benchmarks.worlds:Clockwork", f"env.kwargs.length={length}", f"env.kwargs.varies={str(varies).lower()}"]
    own += [
        "policy.hidden=[2]",
        "algorithm.learner.critic.hidden=[2]",
        "algorithm.learner.batch_size=2",
        f"algorithm.start_steps={10 * length}",
    ]
    own += VARIANTS[name] + ([f"algorithm.critic_steps_per_job={length}", f"algorithm.steps_per_epoch={length}"] if "AES" in name else CEM)
    parts = build(load_config(None, [], [*own, "run.checkpoint_every=1"]))
    algorithm: Any = parts.algorithm
    workers = 1 if name == "CEM-RL" else actors + 1
    executor: Any = make_executor(ExecutorConfig(name="virtual", workers=workers, latency=2e-3, **cost), parts.worker_spec)
    begun: tuple[float, int] | None = None
    busy = 0.0
    for event in loop(algorithm, executor):
        if begun is None and algorithm.learning_steps >= budget / 2:
            begun = (executor.now, algorithm.learning_steps)
        if begun is not None and isinstance(event, Told):
            busy += event.result.finished - max(event.result.started, begun[0])
        if algorithm.learning_steps >= budget:
            break
    assert begun is not None
    seconds = executor.now - begun[0]
    idle = max(0.0, 1 - busy / (seconds * workers))
    return (algorithm.learning_steps - begun[1]) / seconds, idle, algorithm.critic_steps / algorithm.learning_steps


def on_simulated_workers(plot: Path | None, steps: int) -> None:
    cost = costs()
    print("\nmeasured here: " + ", ".join(f"{name.removesuffix('_seconds')} {1e3 * value:.3f} ms" for name, value in cost.items()))
    found: dict[bool, dict[str, list[tuple[float, float, float]]]] = {False: {}, True: {}}
    for varies in (False, True):
        for name in VARIANTS:
            counts = ACTORS[:1] if name == "CEM-RL" else ACTORS
            found[varies][name] = [simulated(name, actors, varies, cost, steps) for actors in counts]
        rows = [
            [name, *(f"{speed:,.0f} ({idle:.0%}, {ratio:.2f})" for speed, idle, ratio in cells), *([""] * (len(ACTORS) - len(cells)))]
            for name, cells in found[varies].items()
        ]
        title = "episodes of varying length" if varies else "episodes of one length"
        head = ["algorithm", *(f"1 critic + {n}" for n in ACTORS)]
        table(f"simulated, {title}: learning steps/s (idle share, critic steps a learning step)", head, rows)
    if plot:
        draw(found, plot)


def draw(found: dict[bool, dict[str, list[tuple[float, float, float]]]], out: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.4), layout="constrained")
    for axes, varies in zip(figure.subplots(1, 2, sharey=True), (False, True), strict=True):
        for name, cells in found[varies].items():
            speeds = [cell[0] for cell in cells]
            if len(cells) == 1:
                axes.axhline(speeds[0], color="gray", linestyle=":", label=f"{name} (one worker)")
            else:
                axes.plot(ACTORS, speeds, marker="o", label=name, linestyle="--" if "no back" in name else "-")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(ACTORS, [str(n) for n in ACTORS])
        axes.set_xlabel("actor workers, beside one critic")
        axes.set_title("episodes of varying length" if varies else "episodes of one length")
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("learning steps per simulated second")
    figure.axes[0].legend(fontsize=8)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=120)


def main(repeats: int = 1, steps: int = 2000, episode: int = 100, plot: Path | None = None) -> None:
    """All of it."""
    stacked()
    on_these_cores(steps, episode, repeats)
    executors(steps // 3, episode, repeats)
    on_simulated_workers(plot, 10_000)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", choices=["cores", "executors", "simulated", "stacked"])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--steps", type=int, default=2000, help="learning steps after the warm-up")
    parser.add_argument("--episode", type=int, default=100, help="steps of an episode of HalfCheetah")
    parser.add_argument("--plot", type=Path, help="simulated: also draw it")
    args = parser.parse_args()
    if args.part == "cores":
        on_these_cores(args.steps, args.episode, args.repeats)
    elif args.part == "executors":
        executors(args.steps, args.episode, args.repeats)
    elif args.part == "simulated":
        on_simulated_workers(args.plot, args.steps)
    elif args.part == "stacked":
        stacked()
    else:
        main(args.repeats, args.steps, args.episode, args.plot)
