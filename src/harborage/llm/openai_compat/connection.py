"""The connection to one server: its address, its headers, and what a failed connection means.

Knows HTTP and nothing of what is sent over it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import msgspec

from harborage.events import safe_excerpt
from harborage.llm.errors import ConnectionFailedError, InvalidConfigError, MalformedAnswerError, ProviderTimeoutError
from harborage.llm.openai_compat.quirks import quirks_of
from harborage.llm.providers import PROVIDERS
from harborage.llm.transport import Timeouts, open_connections

if TYPE_CHECKING:
    import httpx2

_PATH = "/chat/completions"


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """The server of a driver: the address of the service, and the key and the variable that it came from."""

    provider: str
    base_url: str
    key: str = ""
    key_variable: str = ""
    headers: Mapping[str, str] = {}

    def __repr__(self) -> str:
        """Without the key."""
        return f"Server(provider={self.provider!r}, base_url={self.base_url!r})"


class Connection:
    """The connection to one server, opened with the first call.

    Raises:
        InvalidConfigError: the address is no HTTP address.
    """

    def __init__(self, server: Server, timeouts: Timeouts, *, connect_timeout_s: float) -> None:
        self._url = _endpoint(server)
        self._headers = _headers(server)
        self._timeouts = timeouts
        self._connect_timeout_s = connect_timeout_s
        # Connection belong to the loop that opened them.
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx2.AsyncClient] = WeakKeyDictionary()

    @asynccontextmanager
    async def post(self, body: bytes, model: str) -> AsyncIterator[httpx2.Response]:
        """Give the response to `body`, its own body unread; leaving the block closes the connection or gives it back.

        Raises:
            ProviderTimeoutError: the server did not begin to answer in time.
            httpx2.HTTPError: it was not reached.
        """
        client = self._client()
        request = client.build_request("POST", self._url, content=body, headers=self._headers)
        response = await self._timeouts.wait_first(client.send(request, stream=True), model)
        try:
            yield response
        finally:
            await response.aclose()

    async def close(self) -> None:
        """Close every connection of this loop. Closing twice does nothing."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    def _client(self) -> httpx2.AsyncClient:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = open_connections(self._url, connect_timeout_s=self._connect_timeout_s)
        return client


def _endpoint(server: Server) -> str:
    """Return the address of the method below that of the service; a query stays behind it."""
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
    """Return whether an address can be called; any other would fail in the middle of a call, in odd ways."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return False
    has_host = bool(parts.hostname) and not any(char.isspace() for char in address)
    return parts.scheme in ("http", "https") and has_host and port != 0


def _headers(server: Server) -> dict[str, str]:
    headers = {"content-type": "application/json", "user-agent": "harborage"}
    if server.key:
        headers["authorization"] = f"Bearer {server.key}"
    headers.update((name.lower(), value) for name, value in server.headers.items())
    return headers


def connection_error(error: Exception, *, provider: str, model: str, address: str) -> Exception:
    """Return the error of the LLM edge for what the transport raised in a call of `address`; it names the fix."""
    import httpx2

    reason = _reason(error)
    match error:
        case httpx2.ConnectTimeout():
            text = f"{provider}: no connection to {address} in time; {_advice(provider, address)}"
            return ConnectionFailedError(text, provider=provider, model=model)
        case httpx2.ConnectError():
            text = f"{provider}: no connection to {address} ({reason}); {_advice(provider, address)}"
            return ConnectionFailedError(text, provider=provider, model=model)
        case httpx2.TimeoutException():
            text = f"{provider}: {address} was too slow ({reason})"
            return ProviderTimeoutError(text, provider=provider, model=model)
        case httpx2.DecodingError():
            text = f"{provider}: the answer is compressed in a way that cannot be read ({reason})"
            return MalformedAnswerError(text, provider=provider, model=model)
        case httpx2.InvalidURL() | httpx2.UnsupportedProtocol() | httpx2.LocalProtocolError():
            return InvalidConfigError(f"{provider}: {address} cannot be called ({reason}); check llm.base_url")
        case _:
            text = f"{provider}: the connection to {address} broke ({reason})"
            return ConnectionFailedError(text, provider=provider, model=model)


def _advice(provider: str, address: str) -> str:
    start_command = quirks_of(provider).start_hint
    if start_command:
        return f"is `{start_command}` running at {address}?"
    known = PROVIDERS.get(provider)
    variable = f" ({known.base_url_variable})" if known is not None and known.base_url_variable else ""
    return f"check llm.base_url{variable}, and the network"


def _reason(error: Exception) -> str:
    """Return the transport's message, or the name of its error where the message is empty."""
    text = " ".join(str(error).split())
    return safe_excerpt(text, 200) if text else type(error).__name__
