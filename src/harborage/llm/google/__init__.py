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
from harborage.llm.client import Usage, reported_usage, sum_of_counts
from harborage.llm.driver import Driver, http_client, http_timeout, import_sdk
from harborage.llm.errors import LLMError, MalformedAnswerError
from harborage.llm.google.request import Call, build_call
from harborage.llm.providers import resolve_key
from harborage.llm.transport import Timed

if TYPE_CHECKING:
    import httpx2

    from harborage.llm.client import CompleteRequest
    from harborage.llm.config import ConfigSnapshot, Deps
    from harborage.llm.streaming import AnswerBuilder


__all__ = ["GoogleDriver", "make"]

_VERSION = re.compile(r"v\d+(?:alpha|beta)?\d*")
_KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY")


class GoogleDriver(Driver):
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
            """Set the limits of the connections, which the library would replace by none."""
            request.extensions["timeout"] = dict(limits)

        async def keep(response: httpx2.Response) -> None:
            """Keep the response to close it; the library closes one only when memory is cleaned up."""
            if (task := asyncio.current_task()) is not None:
                self._responses[task] = response

        connections.event_hooks = {"request": [limit], "response": [keep]}

    async def _call(self, request: CompleteRequest, model: str, answer: AnswerBuilder) -> None:
        length = self._max_tokens(request, model)
        call = build_call(request, model, provider=self._provider, max_tokens=length)
        reader = ResponseReader(answer, provider=self._provider, model=model)
        config = self._config(call)
        if request.stream:
            await self._stream(call, config, reader, model)
        else:
            reader.read_chunk(await self._whole(call, config, model))

    def _config(self, call: Call) -> Any:
        """Return the options of a call; those that the library does not know go into the body unchanged."""
        types = self._genai.types
        known = types.GenerateContentConfig.model_fields
        config = {**call.config, **{name: value for name, value in call.extra.items() if name in known}}
        unknown = {name: value for name, value in call.extra.items() if name not in known}
        if unknown:
            config.setdefault("http_options", {"extra_body": unknown})
        return types.GenerateContentConfig(**config)

    async def _whole(self, call: Call, config: Any, model: str) -> Any:
        response = self._client.aio.models.generate_content(model=model, contents=call.contents, config=config)
        try:
            return await self._timeouts.wait_first(response, model)
        except json.JSONDecodeError as error:
            raise self._malformed_error(error.doc.encode(), model) from None

    async def _stream(self, call: Call, config: Any, reader: ResponseReader, model: str) -> None:
        stream = self._client.aio.models.generate_content_stream(model=model, contents=call.contents, config=config)
        try:
            async with aclosing(await stream) as chunks:
                # The library sends the request with the first read of a chunk.
                first = await self._timeouts.wait_first(anext(chunks, None), model)
                if first is None:
                    return
                reader.read_chunk(first)
                async for chunk in Timed(chunks, self._timeouts, model):
                    reader.read_chunk(chunk)
        finally:
            task = asyncio.current_task()
            if task is not None and (response := self._responses.pop(task, None)) is not None:
                await response.aclose()

    async def _close(self) -> None:
        await self._client.aio.aclose()
        await self._connections.aclose()
        self._client.close()

    def _translate_error(self, error: Exception, model: str) -> Exception | None:
        if isinstance(error, LLMError):
            return None
        errors: Any = self._genai.errors
        if isinstance(error, errors.APIError):
            headers: Mapping[str, str] = getattr(error.response, "headers", None) or {}
            body = codec.encode({"error": _inner(error.details)}, "the refusal")
            return self._refusal(error.code or 500, body, headers, model)
        if isinstance(error, errors.UnknownApiResponseError):
            return self._malformed_error(str(error).encode(), model)
        return super()._translate_error(error, model)


def make(cfg: ConfigSnapshot, deps: Deps) -> GoogleDriver:
    """Return a driver for the Gemini API.

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
        "httpx_client": _refusing_client(),
        **_address(cfg.base_url),
    }
    client = genai.Client(api_key=key, vertexai=False, http_options=genai.types.HttpOptions(**options))
    return GoogleDriver(cfg, deps, genai=genai, client=client, connections=connections, key=key)


def _address(base_url: str) -> dict[str, str]:
    """Return the address and the version of the API, which the library takes apart; either may be missing."""
    address = base_url.rstrip("/")
    rest, _, last = address.rpartition("/")
    if _VERSION.fullmatch(last):
        return {"base_url": rest, "api_version": last}
    return {"base_url": address} if address else {}


def _refusing_client() -> httpx2.Client:
    """Return the blocking client that the library requires; it reads no certificates, and every call fails."""
    import httpx2

    def refuse(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("calls that block are not made here", request=request)

    return httpx2.Client(transport=httpx2.MockTransport(refuse))


def _inner(details: Any) -> Any:
    """Return the details of an error without the frame that only some error bodies have."""
    return details.get("error", details) if isinstance(details, dict) else {"message": str(details)}


# ── Response ────────────────────────────────────────────────────────────────────────────────────────────────────────

_FILTERED = frozenset(
    {"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "LANGUAGE", "MODEL_ARMOR"}
)
_BROKEN = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"})
_EXTRAS = ("cached_content_token_count", "tool_use_prompt_token_count")


class ResponseReader:
    """Reads one answer into its builder: one response, or a stream of responses that continue each other."""

    __slots__ = ("_answer", "_calls", "_model", "_provider")

    def __init__(self, answer: AnswerBuilder, *, provider: str, model: str) -> None:
        self._answer = answer
        self._provider = provider
        self._model = model
        self._calls = 0

    def read_chunk(self, chunk: Any) -> None:
        """Read one response of the library.

        Raises:
            MalformedAnswerError: the model wrote a call that the provider could not read.
        """
        if chunk.usage_metadata is not None:
            self._answer.usage(_usage(chunk.usage_metadata))
        for candidate in (chunk.candidates or ())[:1]:
            for part in (candidate.content.parts if candidate.content else None) or ():
                self._read_part(part)
            if candidate.finish_reason is not None:
                self._stop(str(candidate.finish_reason.value))
        blocked = chunk.prompt_feedback.block_reason if chunk.prompt_feedback is not None else None
        if blocked is not None:
            self._answer.finish("content_filter")

    def _read_part(self, part: Any) -> None:
        if part.function_call is not None:
            call = part.function_call
            args = codec.encode(call.args or {}, "the arguments").decode()
            self._answer.tool_call(self._calls, id=call.id or "", name=call.name or "", args=args)
            self._calls += 1
        elif part.text and part.thought:
            self._answer.reasoning(part.text)
        elif part.text:
            self._answer.content(part.text)

    def _stop(self, reason: str) -> None:
        if reason in _BROKEN:
            raise MalformedAnswerError(
                f"{self._provider}: the model wrote a call that cannot be read ({reason.lower()})",
                provider=self._provider,
                model=self._model,
            )
        if reason == "STOP":
            self._answer.finish("tool_calls" if self._calls else "stop")
        elif reason in ("MAX_TOKENS", "CONTINUATION"):
            self._answer.finish("length")
        elif reason != "FINISH_REASON_UNSPECIFIED":
            self._answer.finish("content_filter" if reason in _FILTERED else reason.lower())


def _usage(report: Any) -> Usage:
    """Return the usage; the provider counts thinking beside the answer, and here it is a part of it."""
    thinking = report.thoughts_token_count
    return reported_usage(
        prompt=sum_of_counts(report.prompt_token_count, report.tool_use_prompt_token_count),
        completion=sum_of_counts(report.candidates_token_count, thinking),
        reasoning=thinking,
        total=report.total_token_count,
        extras={name: count for name in _EXTRAS if (count := getattr(report, name, None))},
    )
