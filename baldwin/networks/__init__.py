"""From observations to actions: networks as families of functions of flat parameter vectors, many individuals at once."""

from baldwin.networks import module, sensor_network  # noqa: F401 - they register themselves
from baldwin.networks.actions import ActionMap, mask_logits
from baldwin.networks.config import EncoderConfig, MemoryConfig, NetworkConfig, PolicyConfig
from baldwin.networks.distributions import (
    ActionDistribution,
    Categorical,
    Gaussian,
    Sampler,
    make_sampler,
    spread_size,
    to_environment,
)
from baldwin.networks.encoders import ENCODERS
from baldwin.networks.greedy import REFERENCE, GreedyPolicy, Normalizer, ObservationBuffer, reference_of
from baldwin.networks.memory import MEMORIES
from baldwin.networks.network import NETWORKS, Forward, Inputs, Network, make_network
from baldwin.networks.numpy_mlp import NumpyMLP
from baldwin.networks.optimizers import Adam, Optimizer, RMSProp
from baldwin.networks.representation import Representation
from baldwin.networks.sensor_network import Features, SensorNetwork, as_numpy
from baldwin.networks.stacked import Obs, StackedNetwork, detached, only
from baldwin.networks.stacked_policies import StackedPolicies, stack_trials

__all__ = [
    "ENCODERS",
    "MEMORIES",
    "NETWORKS",
    "REFERENCE",
    "ActionDistribution",
    "ActionMap",
    "Adam",
    "Categorical",
    "EncoderConfig",
    "Features",
    "Forward",
    "Gaussian",
    "GreedyPolicy",
    "Inputs",
    "MemoryConfig",
    "Network",
    "NetworkConfig",
    "Normalizer",
    "NumpyMLP",
    "Obs",
    "ObservationBuffer",
    "Optimizer",
    "PolicyConfig",
    "RMSProp",
    "Representation",
    "Sampler",
    "SensorNetwork",
    "StackedNetwork",
    "StackedPolicies",
    "as_numpy",
    "detached",
    "make_network",
    "make_sampler",
    "mask_logits",
    "only",
    "reference_of",
    "spread_size",
    "stack_trials",
    "to_environment",
]
