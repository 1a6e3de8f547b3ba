"""Evolution and gradient together: what individuals learn steers what the population evolves."""

from baldwin.hybrids.asynchronous import ACEMRLConfig, AESRLConfig, Asynchronous, AsynchronousConfig, OnePlusOneRLConfig
from baldwin.hybrids.generations import CEMRLConfig, Generations, GenerationsConfig, PCEMRLConfig
from baldwin.hybrids.hybrid import Hybrid, HybridConfig, SACHalf, TD3Half

__all__ = [
    "ACEMRLConfig",
    "AESRLConfig",
    "Asynchronous",
    "AsynchronousConfig",
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
