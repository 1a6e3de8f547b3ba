"""Propose parameters: pure ask/tell over vectors, and the search that plays them."""

from baldwin.strategies.aes import ACEM, AES, ACEMConfig, AESConfig, OnePlusOne, OnePlusOneConfig
from baldwin.strategies.cem import CEM, CEMConfig
from baldwin.strategies.openai_es import ESConfig, OpenAIES
from baldwin.strategies.search import Search, SearchConfig, Strategy

__all__ = [
    "ACEM",
    "AES",
    "CEM",
    "ACEMConfig",
    "AESConfig",
    "CEMConfig",
    "ESConfig",
    "OnePlusOne",
    "OnePlusOneConfig",
    "OpenAIES",
    "Search",
    "SearchConfig",
    "Strategy",
]
