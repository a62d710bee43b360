"""The connection to one server: its address, its headers, what it does differently, and what a failed one means.

Knows HTTP and nothing of what is sent over it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import msgspec

from harborage.events import safe_excerpt
from harborage.llm.client import ReasoningEffort
from harborage.llm.errors import ConnectionFailedError, LLMConfigError, MalformedAnswerError, ProviderTimeoutError
from harborage.llm.providers import PROVIDERS
from harborage.llm.transport import Timeouts, open_connections

if TYPE_CHECKING:
    import httpx2

    from harborage.llm.config import TransportPolicy

_MEGABYTE = 1024 * 1024


class Thinking(StrEnum):
    """The field in which a server takes how long the model may think."""

    EFFORT = "effort"  # reasoning_effort: low | medium | high | none
    OPENROUTER = "openrouter"  # reasoning: {effort} or {enabled: false}
    TEMPLATE = "template"  # reasoning_effort, and a switch of the chat template to turn it off
    SWITCH = "switch"  # thinking: {type: enabled | disabled}


class Quirks(msgspec.Struct, frozen=True, kw_only=True):
    """The quirks of one server. `start_hint` is the command that starts it, `body` the fields of every request.

    `attachment_bytes` is the decoded size of the largest attachment it takes inline, `call_id` the pattern of the ids
    of tool calls that it takes.
    """

    thinking: Thinking = Thinking.EFFORT
    streams_usage_on_request: bool = True
    attachment_bytes: int = 20 * _MEGABYTE
    takes_media_urls: bool = False
    start_hint: str = ""
    call_id: str = r".{1,64}"
    body: Mapping[str, Any] = {}


_NONE = Quirks()
QUIRKS: Mapping[str, Quirks] = {
    "deepseek": Quirks(thinking=Thinking.SWITCH),
    "groq": Quirks(attachment_bytes=3 * _MEGABYTE),
    "llamacpp": Quirks(thinking=Thinking.TEMPLATE, start_hint="llama-server"),
    "lmstudio": Quirks(start_hint="lms server start"),
    "local": Quirks(thinking=Thinking.TEMPLATE),
    "mistral": Quirks(streams_usage_on_request=False, call_id=r"[a-zA-Z0-9]{9}"),
    "ollama": Quirks(start_hint="ollama serve"),
    "openai": Quirks(call_id=r".{1,40}"),
    "openrouter": Quirks(thinking=Thinking.OPENROUTER, takes_media_urls=True, body={"usage": {"include": True}}),
    "vllm": Quirks(thinking=Thinking.TEMPLATE, takes_media_urls=True, start_hint="vllm serve"),
}
_REASONING_MODEL = re.compile(r"(?:openai/)?(?:o\d|gpt-[5-9])(?!.*-chat)")


def quirks_of(provider: str) -> Quirks:
    """Return the quirks of a provider; one that is not in the table has none."""
    return QUIRKS.get(provider, _NONE)


def is_openai_reasoning(provider: str, model: str) -> bool:
    """Return whether OpenAI itself serves this model as one that thinks; such refuse a temperature and `max_tokens`."""
    return provider == "openai" and _REASONING_MODEL.match(model) is not None


def thinking_fields(thinking: Thinking, effort: ReasoningEffort) -> dict[str, Any]:
    """Return the fields that ask for this much thinking, or for none; empty when the effort is unset."""
    if effort is ReasoningEffort.UNSET:
        return {}
    is_off = effort is ReasoningEffort.OFF
    match thinking:
        case Thinking.OPENROUTER:
            return {"reasoning": {"enabled": False} if is_off else {"effort": effort.value}}
        case Thinking.TEMPLATE:
            return (
                {"chat_template_kwargs": {"enable_thinking": False}} if is_off else {"reasoning_effort": effort.value}
            )
        case Thinking.SWITCH:
            return {"thinking": {"type": "disabled" if is_off else "enabled"}}
        case Thinking.EFFORT:
            return {"reasoning_effort": "none" if is_off else effort.value}


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
