"""Many members at once: each an algorithm of the registry with hyper-parameters of its own, trained, compared, copied and changed."""

from baldwin.populations import evolver, genetic, groups, league, map_elites, pbt, schedule, sweep  # noqa: F401 - they register themselves
from baldwin.populations.config import POPULATIONS, PopulationConfig, PopulationContext, is_range, middle, parse_range

__all__ = ["POPULATIONS", "PopulationConfig", "PopulationContext", "is_range", "middle", "parse_range"]
