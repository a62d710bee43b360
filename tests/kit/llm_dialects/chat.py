"""OpenAI's Chat Completions, as the servers that copy it speak it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import msgspec

from harborage.testing.conformance.llm_bench import Answer, Failure, ReceivedRequest, Refusal
from tests.kit.llm_dialects import Frame

if TYPE_CHECKING:
    from harborage.llm import ToolCallStructured

_REFUSALS: Mapping[Failure, tuple[int, str, str | None]] = {
    Failure.RATE_LIMITED: (429, "Rate limit reached", "rate_limit_exceeded"),
    Failure.SERVER_ERROR: (500, "The server had an error while processing your request", None),
    Failure.OVERLOADED: (503, "The engine is currently overloaded", None),
    Failure.BAD_KEY: (401, "Incorrect API key provided", "invalid_api_key"),
    Failure.UNKNOWN_MODEL: (404, "The model does not exist or you do not have access to it", "model_not_found"),
    Failure.CONTEXT_OVERFLOW: (400, "This model's maximum context length is 8192 tokens", "context_length_exceeded"),
    Failure.NO_CREDIT: (429, "You exceeded your current quota", "insufficient_quota"),
    Failure.BAD_SCHEMA: (400, "Invalid schema for response_format 'answer'", None),
    Failure.BAD_REQUEST: (400, "Unrecognized request argument", None),
}


class ChatDialect:
    """`POST …/chat/completions`. Thinking is sent as `reasoning_field`, which servers name differently."""

    name = "chat"
    base_path = "/v1"

    def __init__(self, *, reasoning_field: str = "reasoning_content") -> None:
        self._reasoning_field = reasoning_field

    def is_mine(self, asked: ReceivedRequest) -> bool:
        return asked.path.partition("?")[0].endswith("/chat/completions")

    def is_streamed(self, asked: ReceivedRequest) -> bool:
        return asked.body.get("stream") is True

    def whole(self, answer: Answer, asked: ReceivedRequest) -> Mapping[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.content or None}
        if answer.reasoning:
            message[self._reasoning_field] = answer.reasoning
        if answer.calls:
            message["tool_calls"] = [_call(call) for call in answer.calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(answer)}
        return {**_envelope("chat.completion", asked), "choices": [choice], "usage": _usage(answer)}

    def frames(self, answer: Answer, asked: ReceivedRequest) -> Sequence[Frame]:
        frames = [self._delta(asked, {"role": "assistant", "content": ""})]
        frames += [self._delta(asked, {self._reasoning_field: text}, True) for text in answer.pieces(answer.reasoning)]
        frames += [self._delta(asked, {"content": text}, True) for text in answer.pieces(answer.content)]
        frames += [self._delta(asked, {"tool_calls": [piece]}, speaks) for piece, speaks in _call_pieces(answer)]
        frames.append(self._delta(asked, {}, finish=_finish(answer)))
        if (asked.body.get("stream_options") or {}).get("include_usage"):
            frames.append(Frame(_event({**_envelope(_CHUNK, asked), "choices": [], "usage": _usage(answer)})))
        frames.append(Frame(b"data: [DONE]\n\n"))
        return frames

    def refusal(self, refusal: Refusal, asked: ReceivedRequest) -> tuple[int, Mapping[str, Any]]:
        status, message, code = _REFUSALS[refusal.failure]
        kind = "insufficient_quota" if refusal.failure is Failure.NO_CREDIT else "invalid_request_error"
        text = f"{message} {refusal.says}".strip()
        return status, {"error": {"message": text, "type": kind, "param": None, "code": code}}

    def failure(self, asked: ReceivedRequest) -> bytes:
        return _event({"error": {"message": "The upstream server failed", "code": 502}})

    def garbage(self, asked: ReceivedRequest) -> bytes:
        return b'data: {"choices": [{"delta": {"content": "half\n\n'

    def _delta(
        self, asked: ReceivedRequest, delta: Mapping[str, Any], speaks: bool = False, finish: str | None = None
    ) -> Frame:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return Frame(_event({**_envelope(_CHUNK, asked), "choices": [choice], "usage": None}), speaks)


_CHUNK = "chat.completion.chunk"


def _event(value: Mapping[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def _envelope(kind: str, asked: ReceivedRequest) -> dict[str, Any]:
    model = asked.body.get("model", "")
    return {"id": "chatcmpl-1", "object": kind, "created": 1767225600, "model": model, "system_fingerprint": "fp_1"}


def _usage(answer: Answer) -> dict[str, Any]:
    usage: dict[str, Any] = {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
        "completion_tokens_details": {"reasoning_tokens": answer.reasoning_tokens},
    }
    return {**usage, "cost": answer.cost} if answer.cost else usage


def _finish(answer: Answer) -> str:
    if answer.is_cut_short:
        return "length"
    return "tool_calls" if answer.calls else "stop"


def _call(call: ToolCallStructured) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.args.decode()}}


def _call_pieces(answer: Answer) -> Iterator[tuple[dict[str, Any], bool]]:
    """The calls, each begun with its id and name; then their arguments in pieces, in turn."""
    for at, call in enumerate(answer.calls):
        yield {**_call(msgspec.structs.replace(call, args=b"")), "index": at}, False
    for row in zip_longest(*(answer.pieces(call.args.decode()) for call in answer.calls)):
        for at, text in enumerate(row):
            if text is not None:
                yield {"index": at, "function": {"arguments": text}}, True
