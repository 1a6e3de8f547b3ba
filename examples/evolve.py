"""The loop in your own hands: a strategy, an executor, and ten lines that join them."""

from baldwin.config import load_config
from baldwin.executors import ExecutorConfig, make_executor
from baldwin.runs.build import build
from baldwin.runs.loop import Told, loop


def main(generations: int = 20) -> float:
    parts = build(load_config("cartpole"))
    executor = make_executor(ExecutorConfig(name="inline"), parts.worker_spec)
    best = 0.0
    for event in loop(parts.algorithm, executor):
        if isinstance(event, Told) and event.metrics:
            best = max(best, event.metrics["center_return"])
            print(f"generation {parts.algorithm.version}: population {event.metrics['return_mean']:.1f}, best center {best:.1f}")
        if parts.algorithm.version == generations:
            break
    executor.close()
    return best


if __name__ == "__main__":
    main()
