"""Anthropic's Messages API, through the official library. Install with the `anthropic` extra.

An answer is a stream of events about blocks, or one message made of the same blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from harborage import codec
from harborage.llm.anthropic.request import ANSWER_TOOL, build_body
from harborage.llm.client import Usage, reported_usage, sum_of_counts
from harborage.llm.driver import ErrorOf, StainlessDriver, http_client, http_timeout, import_sdk
from harborage.llm.providers import resolve_key

if TYPE_CHECKING:
    from harborage.llm.client import CompleteRequest
    from harborage.llm.config import ConfigSnapshot, Deps
    from harborage.llm.streaming import AnswerBuilder


__all__ = ["AnthropicDriver", "make"]

_KEY = "ANTHROPIC_API_KEY"


class AnthropicDriver(StainlessDriver):
    """One connection pool to the Messages API."""

    async def _call(self, request: CompleteRequest, model: str, answer: AnswerBuilder) -> None:
        length = self._max_tokens(request, model)
        body = build_body(request, model, provider=self._provider, max_tokens=length)
        reader = ResponseReader(answer, self._stream_error, self._malformed_error, model=model)
        async with self._post("/v1/messages", body, model) as response:
            if request.stream:
                await self._read_events(response, model, reader.read_event)
            else:
                reader.read_message(await self._read_body(response, model))


def make(cfg: ConfigSnapshot, deps: Deps) -> AnthropicDriver:
    """Return a driver for the Messages API.

    Raises:
        MissingExtraError: the `anthropic` extra is not installed.
        MissingAPIKeyError: there is no key.
    """
    anthropic = import_sdk("anthropic", extra="anthropic", what="the Anthropic driver")
    key = resolve_key(cfg, _KEY)
    client = anthropic.AsyncAnthropic(
        api_key=key,
        # The library adds the version itself.
        base_url=cfg.base_url.rstrip("/").removesuffix("/v1") or None,
        max_retries=0,
        timeout=http_timeout(cfg),
        default_headers=dict(cfg.headers),
        http_client=http_client(cfg),
    )
    return AnthropicDriver(cfg, deps, sdk=anthropic, client=client, provider="anthropic", key=(_KEY, key))


# ── Response ────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Block(msgspec.Struct):
    """One block of the answer, whole or as it begins."""

    type: str = ""
    id: str = ""
    name: str = ""
    text: str = ""
    thinking: str = ""
    input: Any = None


class _Delta(msgspec.Struct):
    """An addition to a block, or to the facts of the whole message."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Message(msgspec.Struct):
    """The whole answer, or its beginning."""

    type: str = ""
    content: list[_Block] = []
    stop_reason: str | None = None
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class _Event(msgspec.Struct):
    """One event of a stream; each kind has its own few of these fields."""

    type: str = ""
    index: int = 0
    message: _Message | str | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


_event = msgspec.json.Decoder(_Event)
_message = msgspec.json.Decoder(_Message)

_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


class ResponseReader:
    """Reads one answer into its builder, streamed (`read_event`) or whole (`read_message`)."""

    __slots__ = ("_answer", "_begun", "_kinds", "_malformed", "_model", "_stream_error", "_thinking", "_usage")

    def __init__(self, answer: AnswerBuilder, stream_error: ErrorOf, malformed: ErrorOf, *, model: str) -> None:
        self._answer = answer
        self._stream_error = stream_error
        self._malformed = malformed
        self._model = model
        self._kinds: dict[int, str] = {}  # what each block is; a call of the answer tool is an "answer"
        self._begun: dict[int, str] = {}  # the input that calls began with; what follows replaces it
        self._thinking: dict[int, list[str]] = {}
        self._usage: dict[str, Any] = {}

    def read_event(self, data: bytes) -> bool:
        """Read one event of a stream; return whether the answer is whole.

        Raises:
            ProviderError: the provider reports a failure, or sends an event that cannot be read.
        """
        try:
            event = _event.decode(data)
        except (msgspec.DecodeError, UnicodeError):
            raise self._malformed(data, self._model) from None
        match event:
            case _Event(type="message_start", message=_Message(usage=usage)):
                self._count(usage)
            case _Event(type="content_block_start", content_block=_Block() as block):
                self._begin(event.index, block)
            case _Event(type="content_block_delta", delta=_Delta() as delta):
                self._add(event.index, delta)
            case _Event(type="content_block_stop"):
                self._finish_block(event.index)
            case _Event(type="message_delta"):
                self._count(event.usage)
                self._stop(event.delta.stop_reason if event.delta else None)
            case _Event(type="error") | _Event(type="", error=dict()):
                raise self._stream_error(data, self._model)
            case _:
                pass  # a ping, or a kind of event that is newer than this file
        return event.type == "message_stop"

    def read_message(self, data: bytes) -> None:
        """Read an answer that came whole.

        Raises:
            ProviderError: as for `read_event`.
        """
        try:
            message = _message.decode(data)
        except (msgspec.DecodeError, UnicodeError):
            raise self._malformed(data, self._model) from None
        if message.error is not None:
            raise self._stream_error(data, self._model)
        for index, block in enumerate(message.content):
            self._begin(index, block)
            self._finish_block(index)
        self._count(message.usage)
        self._stop(message.stop_reason)

    def _begin(self, index: int, block: _Block) -> None:
        kind = "answer" if block.type == "tool_use" and block.name == ANSWER_TOOL else block.type
        self._kinds[index] = kind
        match kind:
            case "text":
                self._answer.content(block.text)
            case "thinking":
                self._thinking[index] = [block.thinking]
                self._answer.reasoning(block.thinking)
            case "tool_use" | "answer":
                self._begun[index] = codec.encode(block.input).decode() if block.input else ""
                if kind == "tool_use":
                    self._answer.tool_call(index, id=block.id, name=block.name)
            case _:
                pass  # hidden thinking, and what the provider's own tools do

    def _add(self, index: int, delta: _Delta) -> None:
        match delta.type:
            case "text_delta":
                self._answer.content(delta.text)
            case "thinking_delta":
                self._thinking.setdefault(index, []).append(delta.thinking)
                self._answer.reasoning(delta.thinking)
            case "input_json_delta" if delta.partial_json:
                self._begun[index] = ""
                self._input(index, delta.partial_json)
            case _:
                pass  # signatures and citations

    def _input(self, index: int, text: str) -> None:
        if self._kinds.get(index) == "answer":
            self._answer.content(text)
        elif self._kinds.get(index) == "tool_use":
            self._answer.tool_call(index, args=text)

    def _finish_block(self, index: int) -> None:
        if thinking := self._thinking.pop(index, None):
            self._answer.reasoning_detail("".join(thinking))
        if whole := self._begun.pop(index, ""):
            self._input(index, whole)

    def _count(self, usage: dict[str, Any] | None) -> None:
        """Complete the earlier report with a later one: the counts are of the whole answer."""
        if not usage:
            return
        self._usage.update({name: value for name, value in usage.items() if value is not None})
        self._answer.usage(_usage(self._usage))

    def _stop(self, reason: str | None) -> None:
        if reason == "tool_use" and "tool_use" not in self._kinds.values():
            self._answer.finish("stop")  # only the answer was called
        elif reason:
            self._answer.finish(_REASONS.get(reason, reason))


def _usage(report: dict[str, Any]) -> Usage:
    """Return the usage; the provider counts tokens read from and written to its cache beside the rest of the prompt."""
    cached = (report.get("cache_read_input_tokens"), report.get("cache_creation_input_tokens"))
    extras = {
        name: value
        for name, value in report.items()
        if value and name not in ("input_tokens", "output_tokens", "output_tokens_details")
    }
    return reported_usage(
        prompt=sum_of_counts(report.get("input_tokens"), *cached),
        completion=report.get("output_tokens"),
        reasoning=(report.get("output_tokens_details") or {}).get("thinking_tokens"),
        extras=extras,
    )
