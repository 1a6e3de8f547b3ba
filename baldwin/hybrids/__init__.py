"""Evolution and gradient together: what individuals learn steers what the population evolves."""

from baldwin.hybrids.asynchronous import (
    ACEMRLConfig,
    AESRLConfig,
    AsynchronousConfig,
    AsynchronousHybrid,
    OnePlusOneRLConfig,
    register_asynchronous,
)
from baldwin.hybrids.config import HybridConfig, HybridSACConfig, HybridTD3Config
from baldwin.hybrids.hybrid import HybridAlgorithm
from baldwin.hybrids.synchronous import CEMRLConfig, PCEMRLConfig, SynchronousHybrid, SynchronousHybridConfig

__all__ = [
    "ACEMRLConfig",
    "AESRLConfig",
    "AsynchronousConfig",
    "AsynchronousHybrid",
    "CEMRLConfig",
    "HybridAlgorithm",
    "HybridConfig",
    "HybridSACConfig",
    "HybridTD3Config",
    "OnePlusOneRLConfig",
    "PCEMRLConfig",
    "SynchronousHybrid",
    "SynchronousHybridConfig",
    "register_asynchronous",
]
