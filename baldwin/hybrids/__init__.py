"""Evolution and gradient together: what individuals learn steers what the population evolves."""

from baldwin.hybrids.asynchronous import ACEMRLConfig, AESRLConfig, Asynchronous, AsynchronousConfig, OnePlusOneRLConfig
from baldwin.hybrids.config import HALVES, HybridConfig, SACHalf, TD3Half
from baldwin.hybrids.generations import CEMRLConfig, Generations, GenerationsConfig, PCEMRLConfig
from baldwin.hybrids.hybrid import Body, Hybrid

__all__ = [
    "HALVES",
    "ACEMRLConfig",
    "AESRLConfig",
    "Asynchronous",
    "AsynchronousConfig",
    "Body",
    "CEMRLConfig",
    "Generations",
    "GenerationsConfig",
    "Hybrid",
    "HybridConfig",
    "OnePlusOneRLConfig",
    "PCEMRLConfig",
    "SACHalf",
    "TD3Half",
]
