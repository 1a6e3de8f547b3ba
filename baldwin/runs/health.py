"""Warnings about the metrics of a run, each with the config key to change."""

from __future__ import annotations

from collections import deque
from statistics import fmean

from baldwin.algorithm import ALGORITHMS
from baldwin.config import RunConfig
from baldwin.envs.vector_env import LIVE
from baldwin.types import Metrics

WINDOW = 20  # generations a signal must last
REPEAT_AFTER = 100  # generations before the same advice is given again


class Health:
    """Watches the metrics of each generation."""

    def __init__(self, config: RunConfig) -> None:
        self._is_strategy = ALGORITHMS.find(config.algorithm.name).family == "strategy"
        cap = getattr(config.algorithm, "cap", None)
        self._capped = cap is not None and cap.rule != "none"
        self._history: deque[Metrics] = deque(maxlen=WINDOW)
        self._said: dict[str, int] = {}

    def check_config(self, config: RunConfig) -> list[str]:
        """Advice that the config alone gives cause for."""
        return [*self._check_blocks(config), *self._check_live(config)]

    def _check_live(self, config: RunConfig) -> list[str]:
        """In a live world, somebody has to play while another worker learns."""
        algorithm, workers = config.algorithm, config.executor.count
        learns_meanwhile = algorithm.name == "impala" or bool(getattr(algorithm, "actor_lag", 0))
        streams = getattr(algorithm, "streams", 0)
        if not config.env.id.startswith(LIVE) or not learns_meanwhile or streams < workers:
            return []
        return [
            f"every one of {workers} workers plays in the live world, so that the matches of one stand still during each update: raise "
            f"executor.workers above {streams}, or algorithm.block, which is what one of them plays"
        ]

    def _check_blocks(self, config: RunConfig) -> list[str]:
        population, block = (getattr(config.algorithm, key, None) for key in ("population", "block"))
        if population is None or block is None:
            return []
        blocks, workers = -(-population // block), config.executor.count
        if config.executor.name == "inline" or blocks >= workers:
            return []
        return [
            f"a generation has {blocks} blocks, so that only {blocks} of {workers} workers have work: lower algorithm.block or executor.workers"
        ]

    def check_metrics(self, metrics: Metrics) -> list[str]:
        """Advice that this generation gives cause for."""
        self._history.append(metrics)
        generation = int(metrics["generation"])
        out = []
        if metrics.get("failed_pairs"):
            out.append(("failed", f"{metrics['failed_pairs']:.0f} pairs failed and were left out: see 'failures' in baldwin show"))
        elif metrics.get("failed"):
            out.append(("failed", f"{metrics['failed']:.0f} jobs failed and were left out: see 'failures' in baldwin show"))
        if len(self._history) == WINDOW:
            out += self._persistent_signals()
        fresh = [(key, text) for key, text in out if generation - self._said.get(key, -REPEAT_AFTER) >= REPEAT_AFTER]
        self._said |= {key: generation for key, _ in fresh}
        return [text for _, text in fresh]

    def _mean(self, name: str) -> float | None:
        values = [m[name] for m in self._history if name in m]
        return fmean(values) if len(values) == WINDOW else None

    def _persistent_signals(self) -> list[tuple[str, str]]:
        def over(name: str, limit: float) -> bool:
            value = self._mean(name)
            return value is not None and value > limit

        def under(name: str, limit: float) -> bool:
            value = self._mean(name)
            return value is not None and value < limit

        spread = over("return_std", 0.0)
        rules = [
            (
                "best",
                spread and over("center_percentile", 0.95),
                "the center beats nearly all perturbed ones: lower algorithm.sigma",
            ),
            (
                "ties",
                over("tie_fraction", 0.5),
                "most returns are tied, so that few pairs say anything: raise algorithm.sigma or algorithm.episodes",
            ),
            ("fast", over("update_ratio", 0.2), "each update changes the parameters by over 20 %: lower algorithm.lr"),
            (
                "slow",
                under("update_ratio", 1e-5),
                "updates hardly change the parameters: raise algorithm.lr or lower algorithm.weight_decay",
            ),
            (
                "noise",
                spread and self._no_signal(),
                "two halves of the population disagree on the direction and returns do not rise: raise algorithm.population or algorithm.episodes",
            ),
            (
                "cap",
                self._capped and over("truncated_fraction", 0.8),
                "most episodes hit the cap: raise algorithm.cap.start or set algorithm.cap.rule=none",
            ),
            (
                "idle",
                self._is_strategy and over("straggler_fraction", 0.3),
                "workers idle over 30 % of the time at the end of generations: lower algorithm.block or raise algorithm.population",
            ),
        ]
        return [(key, text) for key, holds, text in rules if holds]

    def _no_signal(self) -> bool:
        returns = [m["return_mean"] for m in self._history if "return_mean" in m]
        half = len(returns) // 2
        agreement = self._mean("split_half_cosine")
        return agreement is not None and agreement < 0 and fmean(returns[half:]) <= fmean(returns[:half])
