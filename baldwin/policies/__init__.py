"""From observations to actions: flat vectors in, many individuals at once, no copies of modules."""

from baldwin.policies.actions import ActionMap
from baldwin.policies.config import Policy, PolicyConfig, make_policy
from baldwin.policies.greedy import GreedyPolicy, Normalizer
from baldwin.policies.stack import Stack, stack_members

__all__ = ["ActionMap", "GreedyPolicy", "Normalizer", "Policy", "PolicyConfig", "Stack", "make_policy", "stack_members"]
