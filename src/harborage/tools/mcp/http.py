"""A server at an address: the client that its requests go through, and what became of the request of a call.

The official library forgets the status of an answer, and reads a JSON answer of any size. The request of a call is made
in a task that has the context of its caller, so that what is noted here is noted for that call.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from harborage.tools.mcp.values import ServerTransport

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

CONNECT_S: Final = 10.0
_WRITE_S: Final = 30.0


class Exchange:
    """What became of the request of a call: the status of its answer, or 0, and whether it was too large."""

    __slots__ = ("status", "too_large")

    def __init__(self) -> None:
        self.status = 0
        self.too_large = 0


EXCHANGE: Final[ContextVar[Exchange | None]] = ContextVar("mcp_exchange", default=None)
"""Where the request that is made now is noted."""


class TooLargeError(httpx2.StreamError):
    """An answer is larger than what is read of one."""

    def __init__(self, most: int) -> None:
        super().__init__(f"the answer has more than {most:,} bytes")


class _Bounded(httpx2.AsyncByteStream):
    """The bytes of a JSON answer, up to a limit."""

    def __init__(self, inner: Any, most: int) -> None:
        self._inner = inner
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > self._most:
                if (noted := EXCHANGE.get()) is not None:
                    noted.too_large = self._most
                raise TooLargeError(self._most)
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Noting(httpx2.AsyncBaseTransport):
    """Sends requests, and notes what came of that of a call."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, most: int) -> None:
        self._inner = inner
        self._most = most

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        if (noted := EXCHANGE.get()) is not None:
            noted.status = response.status_code
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            response.stream = _Bounded(response.stream, self._most)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


@asynccontextmanager
async def http_transport(
    url: str,
    kind: ServerTransport,
    headers: Mapping[str, str],
    *,
    most: int,
    base: httpx2.AsyncBaseTransport | None = None,
) -> AsyncIterator[tuple[Any, Any]]:
    """Connect to a server at an address, and give the streams of its messages.

    `most` are the bytes of one message; `base` is what sends the requests, by default a pool of connections. A redirect
    is followed on the same origin alone.
    """
    timeout = httpx2.Timeout(None, connect=CONNECT_S, write=_WRITE_S)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
    sending = httpx2.AsyncHTTPTransport(limits=limits) if base is None else base
    client = httpx2.AsyncClient(headers=dict(headers), timeout=timeout, transport=_Noting(sending, most))
    async with client, _streams(url, kind, client, headers, most) as streams:
        yield streams


def _streams(
    url: str, kind: ServerTransport, client: httpx2.AsyncClient, headers: Mapping[str, str], most: int
) -> AbstractAsyncContextManager[tuple[Any, Any]]:
    if kind is ServerTransport.SSE:

        def make(
            headers: dict[str, str] | None = None,
            timeout: httpx2.Timeout | None = None,
            auth: httpx2.Auth | None = None,
        ) -> httpx2.AsyncClient:
            return httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(None, connect=CONNECT_S), auth=auth)

        return sse_client(url, headers=dict(headers), httpx_client_factory=make)
    return streamable_http_client(url, http_client=client, max_sse_event_size=most)


def is_unopened(error: BaseException | None) -> bool:
    """Whether a connection ended because a request could not even be sent: the server was not reachable."""
    if isinstance(error, BaseExceptionGroup):
        return bool(error.exceptions) and all(map(is_unopened, error.exceptions))
    return isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
