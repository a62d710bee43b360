"""The built-in tools: small ones for every agent, and those through which a model finds tools and reads artifacts.

Each is a factory of an ordinary `ToolDescriptor`. Which of them an agent gets is the configuration's choice, by name.
`declarative_action` needs the planners' parser and is made there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.tools.builtin.artifacts import ArtifactStoreRequiredError as ArtifactStoreRequiredError
    from harborage.tools.builtin.artifacts import artifact_fetch as artifact_fetch
    from harborage.tools.builtin.clock import clock_now as clock_now
    from harborage.tools.builtin.echo import text_echo as text_echo
    from harborage.tools.builtin.names import BUILT_IN_TOOL_NAMES as BUILT_IN_TOOL_NAMES
    from harborage.tools.builtin.search import tool_get as tool_get
    from harborage.tools.builtin.search import tool_search as tool_search
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.tools.builtin.artifacts": "ArtifactStoreRequiredError artifact_fetch",
            "harborage.tools.builtin.clock": "clock_now",
            "harborage.tools.builtin.echo": "text_echo",
            "harborage.tools.builtin.names": "BUILT_IN_TOOL_NAMES",
            "harborage.tools.builtin.search": "tool_get tool_search",
        },
    )
