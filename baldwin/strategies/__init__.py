"""Propose parameters: ask/tell over vectors, and the algorithm that plays them as episodes."""

from baldwin.strategies.aes import (
    ACEM,
    AES,
    ACEMConfig,
    ACEMUpdateConfig,
    AESConfig,
    AESUpdateConfig,
    OnePlusOne,
    OnePlusOneConfig,
    OnePlusOneUpdateConfig,
)
from baldwin.strategies.cem import CEM, CEMConfig, CEMUpdateConfig
from baldwin.strategies.evolution import EvolutionAlgorithm, EvolutionConfig, Strategy, register_strategy
from baldwin.strategies.gaussian import Gaussian
from baldwin.strategies.generational import GenerationalStrategy
from baldwin.strategies.nsga2 import NSGA2, NSGA2Config
from baldwin.strategies.openai_es import ESConfig, OpenAIES
from baldwin.strategies.sep_cma import SepCMA, SepCMAConfig
from baldwin.strategies.steady_state import SteadyState, SteadyStateConfig, register_steady_state

__all__ = [
    "ACEM",
    "AES",
    "CEM",
    "NSGA2",
    "ACEMConfig",
    "ACEMUpdateConfig",
    "AESConfig",
    "AESUpdateConfig",
    "CEMConfig",
    "CEMUpdateConfig",
    "ESConfig",
    "EvolutionAlgorithm",
    "EvolutionConfig",
    "Gaussian",
    "GenerationalStrategy",
    "NSGA2Config",
    "OnePlusOne",
    "OnePlusOneConfig",
    "OnePlusOneUpdateConfig",
    "OpenAIES",
    "SepCMA",
    "SepCMAConfig",
    "SteadyState",
    "SteadyStateConfig",
    "Strategy",
    "register_steady_state",
    "register_strategy",
]
