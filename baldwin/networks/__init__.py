"""From observations to actions: flat vectors in, many individuals at once, no copies of modules."""

from baldwin.networks import mlp, module  # noqa: F401 - they register themselves
from baldwin.networks.actions import ActionMap
from baldwin.networks.config import NetworkConfig, PolicyConfig
from baldwin.networks.greedy import GreedyPolicy, Normalizer
from baldwin.networks.network import NETWORKS, Forward, Network, make_network
from baldwin.networks.stacked import Adam, StackedNetwork
from baldwin.networks.stacked_policies import StackedPolicies, stack_trials

__all__ = [
    "NETWORKS",
    "ActionMap",
    "Adam",
    "Forward",
    "GreedyPolicy",
    "Network",
    "NetworkConfig",
    "Normalizer",
    "PolicyConfig",
    "StackedNetwork",
    "StackedPolicies",
    "make_network",
    "stack_trials",
]
