"""What the server asks about MCP connections: the port that a connection to them fills, and the one without any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from harborage.protocol.wire.mcp import (
    BindingView,
    Discovered,
    LatencyBucket,
    Probed,
    PromptView,
    Reconnect,
    ResourceView,
    ServerView,
    SignInBegun,
    ToolPolicyView,
)

if TYPE_CHECKING:
    from harborage.identity import Identity


class ServerDetails(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a connected server."""

    view: ServerView
    display_modes: tuple[str, ...] = ()
    content_shapes: tuple[str, ...] = ()
    policy: ToolPolicyView = ToolPolicyView()
    resources: tuple[ResourceView, ...] = ()
    prompts: tuple[PromptView, ...] = ()
    bindings: tuple[BindingView, ...] = ()
    latencies: tuple[LatencyBucket, ...] = ()
    reconnects: tuple[Reconnect, ...] = ()
    transport_error_rate: float = 0.0


class McpServer(Protocol):
    """One connected server."""

    async def details(self) -> ServerDetails:
        """Return all that is known of it."""
        ...

    async def discover(self) -> Discovered:
        """Ask it again what it offers."""
        ...

    async def probe(self) -> Probed:
        """Ask it whether it answers; an error is an answer, too."""
        ...

    async def trust_raw_html(self, trusted: bool) -> None:
        """Let what it sends as HTML be shown as it is, or not."""
        ...

    async def sign_in(self, principal_id: str) -> SignInBegun:
        """Return the address at which a principal signs in anew."""
        ...

    async def sign_out(self, principal_id: str) -> bool:
        """Forget the sign-in of a principal; False where there was none."""
        ...


class McpServers(Protocol):
    """The MCP servers that a principal may see."""

    async def list(self, who: Identity) -> Sequence[ServerView]:
        """Return all of them, in any order."""
        ...

    async def find(self, who: Identity, name: str) -> McpServer | None:
        """Return the one of this name."""
        ...


class NoMcpServers:
    """A server without MCP connections."""

    async def list(self, who: Identity) -> Sequence[ServerView]:
        """Return none."""
        return ()

    async def find(self, who: Identity, name: str) -> McpServer | None:
        """Return None."""
        return None
