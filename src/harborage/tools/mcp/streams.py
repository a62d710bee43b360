"""What lies between a server and the official library: messages are looked at before the library judges them.

The library refuses a whole page for one tool with a bad schema, starts a task for each notification, and forgets what a
connection ended of. Here such a tool is taken out of its page and named, progress and news go straight to where they
are wanted, and the end of the connection is reported.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, TypeGuard

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage

from harborage.tools.mcp.errors import cleaned

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

OnProgress = Callable[[float, float | None, str], None]
"""Called with how much is done, of how much, and a text."""

_PROGRESS = "notifications/progress"
_NEWS = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
    }
)
_UPDATED = "notifications/resources/updated"
_LOGGED = "notifications/message"


class Watch:
    """What is wanted of the messages of one connection.

    `progress` are those who want the progress of a call, by its token. `on_changed` is called when a list of the server
    has changed, `on_updated` with the address of a resource that has, `on_dropped` with the name of a tool that no
    client can call and why, `on_end` when no message will come any more.
    """

    def __init__(
        self,
        *,
        on_changed: Callable[[], None],
        on_updated: Callable[[str], None],
        on_dropped: Callable[[str, str], None],
    ) -> None:
        self.progress: dict[str, OnProgress] = {}
        self._on_changed = on_changed
        self._on_updated = on_updated
        self._on_dropped = on_dropped
        self.on_end: Callable[[str], None] = _ignored

    def look(self, item: Any) -> Any:
        """Return an item as the library gets it; None for one that goes no further."""
        if not isinstance(item, SessionMessage):
            return item
        message = item.message
        if isinstance(message, types.JSONRPCResponse):
            if isinstance(message.result.get("tools"), list):
                message.result["tools"] = [one for one in message.result["tools"] if self._is_usable(one)]
            return item
        if not isinstance(message, types.JSONRPCNotification):
            return item
        if message.method == _PROGRESS:
            self._progressed(message.params or {})
            return None
        if message.method in _NEWS:
            self._on_changed()
            return None
        if message.method == _UPDATED:
            uri = (message.params or {}).get("uri")
            if isinstance(uri, str):
                self._on_updated(uri)
            return None
        return None if message.method == _LOGGED else item

    def _is_usable(self, listed: Any) -> bool:
        """Whether the library takes a tool; one that it does not take would cost the whole page."""
        name = listed.get("name") if isinstance(listed, dict) else None
        if not isinstance(name, str):
            self._on_dropped("", "it has no name")
            return False
        try:
            types.Tool.model_validate(listed, by_name=False)
        except ValueError:
            self._on_dropped(name, "its description is not one of a tool")
            return False
        if listed["inputSchema"].get("type") != "object":
            self._on_dropped(name, 'its schema of arguments lacks "type": "object"')
            return False
        return True

    def _progressed(self, params: dict[str, Any]) -> None:
        report = self.progress.get(str(params.get("progressToken")))
        done, total, text = params.get("progress"), params.get("total"), params.get("message")
        if report is None or not _is_number(done):
            return
        report(done, total if _is_number(total) else None, text if isinstance(text, str) else "")


def _ignored(why: str) -> None:
    """Nobody wants to know."""


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


class _Watched:
    """A stream of messages that are looked at first."""

    def __init__(self, inner: Any, watch: Watch) -> None:
        self._inner = inner
        self._watch = watch

    @property
    def last_context(self) -> Any:
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Any:
        while True:
            try:
                item = await self._inner.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError):
                self._watch.on_end("the server ended the connection")
                raise
            found = self._watch.look(item)
            if found is not None:
                return found

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._inner.__aexit__(kind, error, trace)


@asynccontextmanager
async def watched(
    transport: AbstractAsyncContextManager[tuple[Any, Any]], watch: Watch
) -> AsyncIterator[tuple[Any, Any]]:
    """Give the streams of a transport, whose messages are looked at before the library gets them."""
    async with transport as (read, write):
        yield _Watched(read, watch), write


def dropped_text(server: str, tool: str, why: str) -> str:
    """Return the warning about a tool that no client can call."""
    return f"MCP server {server!r}: the tool {cleaned(tool, 80)!r} is left out: {why}"
