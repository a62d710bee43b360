"""The MCP servers of the agents of a runtime, as `mcp.servers.*` shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.concurrency import CancelScope
from harborage.errors import HarborageError, error_text
from harborage.ids import new_id
from harborage.protocol.errors import Code, ProtocolError
from harborage.protocol.wire.common import NO_TIME
from harborage.protocol.wire.mcp import (
    Discovered,
    LatencyBucket,
    Probed,
    PromptArgument,
    PromptView,
    Reconnect,
    ResourceView,
    ServerState,
    ServerView,
    SignInBegun,
    ToolPolicyView,
)
from harborage.server.mcp_servers import McpServer, ServerDetails

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.runtime.effects.assembly import Assembly
    from harborage.tools.mcp.values import Listing

_LOOK_S: Final = 5.0
"""Seconds that a server has to connect when it is looked at before any run has used it."""

_SHAPES: Final = ("text", "image", "audio", "resource", "resource_link")


class OpenServer(Protocol):
    """What is asked of a source of tools that is an MCP server."""

    server: Any
    status: Any
    is_html_trusted: bool

    @property
    def listing(self) -> Listing | None:
        """What the server listed last."""
        ...

    async def discover(self) -> Listing:
        """Ask it again what it offers."""
        ...

    async def probe(self) -> float:
        """Ask it whether it answers; returns the seconds that it took."""
        ...


class SourceServers:
    """The MCP servers that the agents of a runtime name. `parts` returns the open parts of the runtime."""

    def __init__(self, parts: Callable[[], Assembly], clock: Timers = SYSTEM_CLOCK) -> None:
        self._parts = parts
        self._clock = clock

    async def list(self, who: Identity) -> Sequence[ServerView]:
        """Return all of them, as they are now."""
        return [_view(name, one) for name, one in self._open()]

    async def find(self, who: Identity, name: str) -> McpServer | None:
        """Return the one of this name."""
        found = (one for known, one in self._open() if known == name)
        one = next(found, None)
        return None if one is None else SourceServer(name, one, self._clock)

    def _open(self) -> Iterator[tuple[str, OpenServer]]:
        for source, opened in self._parts().tool_sources:
            if hasattr(opened, "discover") and hasattr(opened, "probe"):
                server: Any = opened
                yield source.name, server


class SourceServer:
    """One of them."""

    def __init__(self, name: str, opened: OpenServer, clock: Timers) -> None:
        self._name = name
        self._opened = opened
        self._clock = clock

    async def details(self) -> ServerDetails:
        """Return all that is known of it; one that no run has used yet is connected to first."""
        opened = self._opened
        if opened.listing is None:
            with CancelScope(self._clock, _LOOK_S):
                await self._looked_at()
        listing, status = opened.listing, opened.status
        policy = opened.server.policy
        return ServerDetails(
            view=_view(self._name, opened),
            content_shapes=_SHAPES,
            policy=ToolPolicyView(
                timeout_ms=int(30_000 if policy.timeout_ms is None else policy.timeout_ms),
                max_retries=policy.max_retries or 0,
                concurrency_cap=opened.server.connections,
            ),
            resources=() if listing is None else tuple(_resource(one) for one in listing.resources),
            prompts=() if listing is None else tuple(_prompt(one) for one in listing.prompts),
            latencies=tuple(LatencyBucket(start_ms=_ms(at), latency_ms=took) for at, took in status.handshakes),
            reconnects=tuple(Reconnect(occurred_at=at, reason=why) for at, why in status.reconnects),
            transport_error_rate=status.failure_rate,
        )

    async def _looked_at(self) -> str:
        """Why it cannot be connected to; its state says so, too."""
        try:
            await self._opened.discover()
        except HarborageError as error:
            return error_text(error)
        return ""

    async def discover(self) -> Discovered:
        """Ask it again what it offers.

        Raises:
            ProtocolError: `runtime_error`: it cannot be asked now.
        """
        try:
            listing = await self._opened.discover()
        except HarborageError as error:
            raise ProtocolError(Code.RUNTIME_ERROR, error_text(error)) from error
        return Discovered(
            discovery_id=new_id(),
            tool_count=len(listing.tools),
            resource_count=len(listing.resources),
            prompt_count=len(listing.prompts),
        )

    async def probe(self) -> Probed:
        """Ask it whether it answers; an error is an answer, too."""
        try:
            took_s = await self._opened.probe()
        except HarborageError as error:
            return Probed(ok=False, latency_ms=0, error=error_text(error))
        return Probed(ok=True, latency_ms=int(took_s * 1_000))

    async def trust_raw_html(self, trusted: bool) -> None:
        """Let what it sends as HTML be shown as it is, or not."""
        self._opened.is_html_trusted = trusted

    async def sign_in(self, principal_id: str) -> SignInBegun:
        """Refuse it: people do not sign in at this server.

        Raises:
            ProtocolError: always.
        """
        text = f"nobody signs in at the MCP server {self._name!r}: it has no OAuth; it takes the secret of its entry"
        raise ProtocolError(Code.INVALID_REQUEST, text)

    async def sign_out(self, principal_id: str) -> bool:
        """Return False: there is no sign-in."""
        return False


def _view(name: str, opened: OpenServer) -> ServerView:
    listing, status, server = opened.listing, opened.status, opened.server
    return ServerView(
        name=name,
        transport="stdio" if server.is_local else "sse" if server.transport == "sse" else "streamable_http",
        url_or_command=server.address,
        state=ServerState(str(status.state)),
        last_discovery_at=NO_TIME if listing is None else listing.at,
        tool_count=0 if listing is None else len(listing.tools),
        resource_count=0 if listing is None else len(listing.resources),
        prompt_count=0 if listing is None else len(listing.prompts),
        recent_latency_ms=status.latency_ms,
        error_rate_per_min=status.failures_per_minute,
        raw_html_trusted=opened.is_html_trusted,
    )


def _resource(one: Any) -> ResourceView:
    return ResourceView(uri=one.uri, mime_type=one.mime_type, size_bytes=one.size, name=one.name, title=one.title)


def _prompt(one: Any) -> PromptView:
    return PromptView(
        name=one.name,
        description=one.description,
        arguments=tuple(
            PromptArgument(name=each.name, required=each.required, description=each.description)
            for each in one.arguments
        ),
    )


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1_000)
