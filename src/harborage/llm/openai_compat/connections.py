"""The way to one server: its address, its headers, and connections that are given back whatever happens.

Knows HTTP and nothing of what is said over it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import msgspec

from harborage.llm.errors import InvalidConfigError
from harborage.llm.sdk.waits import Paced, Waits

if TYPE_CHECKING:
    import httpx2

__all__ = ["Connections", "Server"]

_PATH = "/chat/completions"
_LONGEST_DRAIN_S = 0.1
_HERE = ("localhost", "127.0.0.1", "::1")
_KEPT_ALIVE = 64
_KEPT_ALIVE_S = 60.0


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """Whom the driver talks to: the address of the service, and the key and the variable that it came from."""

    provider: str
    base_url: str
    key: str = ""
    key_variable: str = ""
    headers: Mapping[str, str] = {}

    def __repr__(self) -> str:
        """Without the key."""
        return f"Server(provider={self.provider!r}, base_url={self.base_url!r})"


class Connections:
    """Connections to one server, opened when they are needed: as many as there are calls, some of them kept for later.

    Raises:
        InvalidConfigError: the address is no HTTP address.
    """

    def __init__(self, server: Server, waits: Waits, *, connect_timeout_s: float) -> None:
        self._url = _endpoint(server)
        self._headers = _headers(server)
        self._waits = waits
        self._connect_timeout_s = connect_timeout_s
        # Connections belong to the loop that opened them.
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx2.AsyncClient] = WeakKeyDictionary()

    @asynccontextmanager
    async def posted(self, body: bytes, model: str) -> AsyncIterator[httpx2.Response]:
        """The response to `body`, its own body unread; leaving the block closes the connection or gives it back.

        Raises:
            ProviderTimeoutError: the server did not begin to answer in time.
            httpx2.HTTPError: it was not reached.
        """
        client = self._client()
        sending = client.build_request("POST", self._url, content=body, headers=self._headers)
        response = await self._waits.first(client.send(sending, stream=True), model)
        try:
            yield response
        finally:
            await response.aclose()

    async def pieces(self, source: AsyncIterator[bytes], model: str) -> AsyncGenerator[bytes, None]:
        """A body's pieces: the first may take as long as an answer may take to begin, each other as long as a pause.

        Raises:
            ProviderTimeoutError: a piece did not come in time.
        """
        yield await self._waits.first(anext(source, b""), model)
        async for piece in Paced(source, self._waits, model):
            yield piece

    async def drain(self, source: AsyncIterator[bytes]) -> None:
        """Read what is left of a body, which lets the connection be used again; one that goes on is given up."""
        import httpx2

        with suppress(httpx2.HTTPError, httpx2.StreamError), self._waits.scope(_LONGEST_DRAIN_S):
            async for _ in source:
                pass

    async def close(self) -> None:
        """Give back every connection of this loop. Closing twice does nothing."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    def _client(self) -> httpx2.AsyncClient:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = self._opened()
        return client

    def _opened(self) -> httpx2.AsyncClient:
        import httpx2

        # Reading the system's certificates takes longer than a whole call to a server that needs none of them.
        verify = not self._url.startswith("http://")
        # A proxy that the environment names cannot reach a server on this machine.
        is_here = urlsplit(self._url).hostname in _HERE
        return httpx2.AsyncClient(
            timeout=httpx2.Timeout(None, connect=self._connect_timeout_s),
            limits=httpx2.Limits(
                max_connections=None, max_keepalive_connections=_KEPT_ALIVE, keepalive_expiry=_KEPT_ALIVE_S
            ),
            verify=verify,
            trust_env=not is_here,
        )


def _endpoint(server: Server) -> str:
    """The address of the method below that of the service; a query stays behind it."""
    base, mark, query = server.base_url.strip().partition("?")
    base = base.rstrip("/")
    if not _is_http(base):
        what = f"{server.base_url!r} is none" if server.base_url else "it has none"
        raise InvalidConfigError(
            f"{server.provider or 'the server'} needs an HTTP address, and {what}; "
            "set llm.base_url, such as http://127.0.0.1:8000/v1"
        )
    return f"{base if base.endswith(_PATH) else base + _PATH}{mark}{query}"


def _is_http(address: str) -> bool:
    """Whether an address can be called; what cannot be would fail in the middle of a call, in odd ways."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return False
    is_named = bool(parts.hostname) and not any(char.isspace() for char in address)
    return parts.scheme in ("http", "https") and is_named and port != 0


def _headers(server: Server) -> dict[str, str]:
    headers = {"content-type": "application/json", "user-agent": "harborage"}
    if server.key:
        headers["authorization"] = f"Bearer {server.key}"
    headers.update((name.lower(), value) for name, value in server.headers.items())
    return headers
