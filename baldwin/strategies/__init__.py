"""Propose parameters: pure ask/tell over vectors, and the search that plays them."""

from baldwin.strategies.openai_es import ESConfig, OpenAIES
from baldwin.strategies.search import Search, SearchConfig, Strategy

__all__ = ["ESConfig", "OpenAIES", "Search", "SearchConfig", "Strategy"]
