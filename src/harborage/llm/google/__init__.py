"""Google's Gemini API, through the official library. Install with the `google` extra."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from contextlib import aclosing
from types import ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from harborage import codec
from harborage.llm.errors import LLMError
from harborage.llm.google.reading import Reading
from harborage.llm.google.request import Call, call_of
from harborage.llm.keys import resolve_key
from harborage.llm.sdk.driver import SDKDriver, http_client, http_timeout, import_sdk
from harborage.llm.sdk.waits import Paced
from harborage.llm.streaming import AnswerBuilder

if TYPE_CHECKING:
    import httpx2

    from harborage.llm.client import CompleteRequest, CompleteResponse
    from harborage.llm.config import ConfigSnapshot, Deps

__all__ = ["GoogleDriver", "make"]

_VERSION = re.compile(r"v\d+(?:alpha|beta)?\d*")
_KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY")


class GoogleDriver(SDKDriver):
    """One connection pool to the Gemini API."""

    def __init__(
        self,
        cfg: ConfigSnapshot,
        deps: Deps,
        *,
        genai: ModuleType,
        client: Any,
        connections: httpx2.AsyncClient,
        key: str,
    ) -> None:
        super().__init__(cfg, deps, provider="google", variable=_KEYS[0], key=key)
        self._genai = genai
        self._client = client
        self._connections = connections
        self._responses: WeakKeyDictionary[asyncio.Task[Any], httpx2.Response] = WeakKeyDictionary()
        limits = http_timeout(cfg).as_dict()

        async def limit(request: httpx2.Request) -> None:
            """The library puts no limits in the place of those of the connections."""
            request.extensions["timeout"] = dict(limits)

        async def keep(response: httpx2.Response) -> None:
            """The library lets go of a response only when memory is cleaned up."""
            if (task := asyncio.current_task()) is not None:
                self._responses[task] = response

        connections.event_hooks = {"request": [limit], "response": [keep]}

    async def _call(self, request: CompleteRequest, model: str) -> CompleteResponse:
        length = self._length_of(request, model)
        call = call_of(request, model, provider=self._provider, max_tokens=length)
        with AnswerBuilder(request, provider=self._provider, model=model) as answer:
            reading = Reading(answer, provider=self._provider, model=model)
            config = self._config(call)
            if request.stream:
                await self._streamed(call, config, reading, model)
            else:
                reading.chunk(await self._whole(call, config, model))
            return answer.answer()

    def _config(self, call: Call) -> Any:
        """The options of a call; what the library does not know of them goes into the body as it is."""
        types = self._genai.types
        known = types.GenerateContentConfig.model_fields
        config = {**call.config, **{name: value for name, value in call.extra.items() if name in known}}
        unknown = {name: value for name, value in call.extra.items() if name not in known}
        if unknown:
            config.setdefault("http_options", {"extra_body": unknown})
        return types.GenerateContentConfig(**config)

    async def _whole(self, call: Call, config: Any, model: str) -> Any:
        asked = self._client.aio.models.generate_content(model=model, contents=call.contents, config=config)
        try:
            return await self._waits.first(asked, model)
        except json.JSONDecodeError as error:
            raise self._malformed(error.doc.encode(), model) from None

    async def _streamed(self, call: Call, config: Any, reading: Reading, model: str) -> None:
        asked = self._client.aio.models.generate_content_stream(model=model, contents=call.contents, config=config)
        try:
            async with aclosing(await asked) as chunks:
                # The library sends the request when it is first asked for a chunk.
                first = await self._waits.first(anext(chunks, None), model)
                if first is None:
                    return
                reading.chunk(first)
                async for chunk in Paced(chunks, self._waits, model):
                    reading.chunk(chunk)
        finally:
            task = asyncio.current_task()
            if task is not None and (response := self._responses.pop(task, None)) is not None:
                await response.aclose()

    async def _close(self) -> None:
        await self._client.aio.aclose()
        await self._connections.aclose()
        self._client.close()

    def _translated(self, error: Exception, model: str) -> Exception | None:
        if isinstance(error, LLMError):
            return None
        errors: Any = self._genai.errors
        if isinstance(error, errors.APIError):
            headers: Mapping[str, str] = getattr(error.response, "headers", None) or {}
            body = codec.encode({"error": _inner(error.details)}, "the refusal")
            return self._refused(error.code or 500, body, headers, model)
        if isinstance(error, errors.UnknownApiResponseError):
            return self._malformed(str(error).encode(), model)
        return super()._translated(error, model)


def make(cfg: ConfigSnapshot, deps: Deps) -> GoogleDriver:
    """A driver for the Gemini API.

    Raises:
        MissingExtraError: the `google` extra is not installed.
        MissingAPIKeyError: there is no key.
    """
    genai = import_sdk("google.genai", extra="google", what="the Google driver")
    key = resolve_key(cfg, _KEYS)
    connections = http_client(cfg)
    options: dict[str, Any] = {
        "headers": dict(cfg.headers),
        "httpx_async_client": connections,
        "httpx_client": _unused(),
        **_address(cfg.base_url),
    }
    client = genai.Client(api_key=key, vertexai=False, http_options=genai.types.HttpOptions(**options))
    return GoogleDriver(cfg, deps, genai=genai, client=client, connections=connections, key=key)


def _address(base_url: str) -> dict[str, str]:
    """The address and the version of the API, which the library wants apart; either may be left to it."""
    address = base_url.rstrip("/")
    rest, _, last = address.rpartition("/")
    if _VERSION.fullmatch(last):
        return {"base_url": rest, "api_version": last}
    return {"base_url": address} if address else {}


def _unused() -> httpx2.Client:
    """What the library wants for calls that block; it reads no certificates, and every call through it fails."""
    import httpx2

    def refuse(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("calls that block are not made here", request=request)

    return httpx2.Client(transport=httpx2.MockTransport(refuse))


def _inner(details: Any) -> Any:
    """What an error body says, without the frame that only some of them come in."""
    return details.get("error", details) if isinstance(details, dict) else {"message": str(details)}
