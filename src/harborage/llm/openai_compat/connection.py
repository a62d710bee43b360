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

from harborage.events import safe_excerpt
from harborage.llm.errors import ConnectionFailedError, LLMConfigError, MalformedAnswerError, ProviderTimeoutError
from harborage.llm.openai_compat.quirks import quirks_of
from harborage.llm.providers import PROVIDERS
from harborage.llm.transport import Timeouts, open_connections

if TYPE_CHECKING:
    import httpx2

    from harborage.llm.config import TransportPolicy

_PATH = "/chat/completions"


class Connection:
    """The connection to one server, opened with the first call."""

    def __init__(self, url: str, headers: Mapping[str, str], timeouts: Timeouts, transport: TransportPolicy) -> None:
        self._url = url
        self._headers = headers
        self._timeouts = timeouts
        self._connect_timeout_s = transport.connect_timeout_s
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


def endpoint(base_url: str, provider: str) -> str:
    """Return the address of the method below that of the service; a query stays behind it.

    Raises:
        LLMConfigError: the address is no HTTP address.
    """
    base, mark, query = base_url.strip().partition("?")
    base = base.rstrip("/")
    if not _is_http(base):
        what = f"{base_url!r} is none" if base_url else "it has none"
        raise LLMConfigError(
            f"{provider} needs an HTTP address, and {what}; set llm.base_url, such as http://127.0.0.1:8000/v1"
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


def request_headers(key: str, headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of every request; the configured `headers` win over ours."""
    sent = {"content-type": "application/json", "user-agent": "harborage"}
    if key:
        sent["authorization"] = f"Bearer {key}"
    sent.update((name.lower(), value) for name, value in headers.items())
    return sent


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
            return LLMConfigError(f"{provider}: {address} cannot be called ({reason}); check llm.base_url")
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
