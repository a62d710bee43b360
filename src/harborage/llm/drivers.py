"""Which drivers of models a configuration can name. Naming one imports nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harborage.drivers import DriverTable

if TYPE_CHECKING:
    from harborage.llm.config import DriverFactory

__all__ = ["LLM_DRIVERS", "UNMETERED"]

LLM_DRIVERS: Final[DriverTable[DriverFactory]] = DriverTable(
    "llm",
    {
        "any": "harborage.llm.pydantic_ai:make",
        "anthropic": "harborage.llm.anthropic:make",
        "cassette": "harborage.llm.cassette:make",
        "google": "harborage.llm.google:make",
        "local": "harborage.llm.local:make",
        "mock": "harborage.llm.mock:make",
        "openai": "harborage.llm.openai_responses:make",
        "openai_compat": "harborage.llm.openai_compat:make",
        "scripted": "harborage.llm.scripted:make",
    },
)

UNMETERED: Final = frozenset({"mock", "scripted"})
"""Drivers that make answers up: what they cost is not recorded."""
