"""Worlds: several copies of one environment, stepped side by side, whichever simulator serves them."""

from baldwin.envs.lanes import EnvConfig, Lanes, Steps, World
from baldwin.envs.serve import choose_backend, list_envs, make_filmed, make_lanes, probe

__all__ = ["EnvConfig", "Lanes", "Steps", "World", "choose_backend", "list_envs", "make_filmed", "make_lanes", "probe"]
