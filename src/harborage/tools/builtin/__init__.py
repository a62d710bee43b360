"""The built-in tools: small ones for every agent, and those through which a model finds tools and reads artifacts.

Each is a factory of an ordinary `ToolDescriptor`. Which of them an agent gets is the configuration's choice, by name.
`declarative_action` needs the planners' parser and is made there.
"""

from __future__ import annotations

from harborage.tools.builtin.artifacts import ArtifactStoreRequiredError, artifact_fetch
from harborage.tools.builtin.clock import clock_now
from harborage.tools.builtin.echo import text_echo
from harborage.tools.builtin.names import BUILT_IN_TOOL_NAMES
from harborage.tools.builtin.search import tool_get, tool_search

__all__ = [
    "BUILT_IN_TOOL_NAMES",
    "ArtifactStoreRequiredError",
    "artifact_fetch",
    "clock_now",
    "text_echo",
    "tool_get",
    "tool_search",
]
