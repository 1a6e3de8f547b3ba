"""Propose parameters: pure ask/tell over vectors, and the search that plays them."""

from baldwin.strategies.aes import ACEM, AES, ACEMConfig, ACEMRule, AESConfig, AESRule, OnePlusOne, OnePlusOneConfig, OnePlusOneRule
from baldwin.strategies.cem import CEM, CEMConfig, CEMRule
from baldwin.strategies.gaussian import Gaussian
from baldwin.strategies.openai_es import ESConfig, OpenAIES
from baldwin.strategies.search import Search, SearchConfig, Strategy
from baldwin.strategies.sep_cma import SepCMA, SepCMAConfig
from baldwin.strategies.steady import Steady

__all__ = [
    "ACEM",
    "AES",
    "CEM",
    "ACEMConfig",
    "ACEMRule",
    "AESConfig",
    "AESRule",
    "CEMConfig",
    "CEMRule",
    "ESConfig",
    "Gaussian",
    "OnePlusOne",
    "OnePlusOneConfig",
    "OnePlusOneRule",
    "OpenAIES",
    "Search",
    "SearchConfig",
    "SepCMA",
    "SepCMAConfig",
    "Steady",
    "Strategy",
]
