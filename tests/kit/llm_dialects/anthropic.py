"""Anthropic's Messages API. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from harborage.testing.conformance.llm_bench import Answer, Failure, ReceivedRequest, Refusal
from tests.kit.llm_dialects import Frame

_REFUSALS: Mapping[Failure, tuple[int, str, str]] = {
    Failure.RATE_LIMITED: (429, "rate_limit_error", "Number of request tokens has exceeded your rate limit"),
    Failure.SERVER_ERROR: (500, "api_error", "Internal server error"),
    Failure.OVERLOADED: (529, "overloaded_error", "Overloaded"),
    Failure.BAD_KEY: (401, "authentication_error", "invalid x-api-key"),
    Failure.UNKNOWN_MODEL: (404, "not_found_error", "model: claude-nobody"),
    Failure.CONTEXT_OVERFLOW: (400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
    Failure.NO_CREDIT: (400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API"),
    Failure.BAD_SCHEMA: (400, "invalid_request_error", "output_config.format.schema: the schema is not supported"),
    Failure.BAD_REQUEST: (400, "invalid_request_error", "metadata: Extra inputs are not permitted"),
}


class MessagesDialect:
    """`POST …/v1/messages`. A tool that the caller forces is called with the answer's own text as its input."""

    name = "anthropic"
    base_path = ""

    def is_mine(self, asked: ReceivedRequest) -> bool:
        return asked.path.partition("?")[0].endswith("/v1/messages")

    def is_streamed(self, asked: ReceivedRequest) -> bool:
        return asked.body.get("stream") is True

    def whole(self, answer: Answer, asked: ReceivedRequest) -> Mapping[str, Any]:
        blocks = [{**begun, **_rest(begun, text)} for begun, _, text in _blocks(answer, asked)]
        return {**_envelope(asked), "content": blocks, "stop_reason": _reason(answer, asked), "usage": _usage(answer)}

    def frames(self, answer: Answer, asked: ReceivedRequest) -> Sequence[Frame]:
        usage = {**_usage(answer), "output_tokens": 1}
        begun = {**_envelope(asked), "content": [], "stop_reason": None, "usage": usage}
        frames = [_event("message_start", message=begun)]
        for at, (block, delta, text) in enumerate(_blocks(answer, asked)):
            frames.append(_event("content_block_start", index=at, content_block=block))
            frames.append(_event("ping"))
            frames += [
                _event("content_block_delta", True, index=at, delta=_delta(delta, piece))
                for piece in answer.pieces(text)
            ]
            if block["type"] == "thinking":
                signed = {"type": "signature_delta", "signature": "c2lnbmVk"}
                frames.append(_event("content_block_delta", index=at, delta=signed))
            frames.append(_event("content_block_stop", index=at))
        ended = {"stop_reason": _reason(answer, asked), "stop_sequence": None}
        frames.append(_event("message_delta", delta=ended, usage={"output_tokens": answer.completion_tokens}))
        frames.append(_event("message_stop"))
        return frames

    def refusal(self, refusal: Refusal, asked: ReceivedRequest) -> tuple[int, Mapping[str, Any]]:
        status, kind, message = _REFUSALS[refusal.failure]
        return status, {"type": "error", "error": {"type": kind, "message": f"{message} {refusal.says}".strip()}}

    def failure(self, asked: ReceivedRequest) -> bytes:
        return _event("error", error={"type": "overloaded_error", "message": "Overloaded"}).data

    def garbage(self, asked: ReceivedRequest) -> bytes:
        return b'event: content_block_delta\ndata: {"type": "content_block_delta", "delta": {"text": "half\n\n'


_Block = tuple[dict[str, Any], str, str]
"""How a block begins, the field that its deltas carry, and its whole text."""


def _event(kind: str, speaks: bool = False, **fields: Any) -> Frame:
    data = msgspec.json.encode({"type": kind, **fields})
    return Frame(b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n", speaks)


def _envelope(asked: ReceivedRequest) -> dict[str, Any]:
    model = asked.body.get("model", "")
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "stop_sequence": None}


def _usage(answer: Answer) -> dict[str, Any]:
    return {
        "input_tokens": answer.prompt_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": answer.completion_tokens,
        "output_tokens_details": {"thinking_tokens": answer.reasoning_tokens},
    }


def _forced(asked: ReceivedRequest) -> str:
    """The tool that the caller forces; empty when the model may choose."""
    choice = asked.body.get("tool_choice") or {}
    return choice["name"] if choice.get("type") == "tool" else ""


def _reason(answer: Answer, asked: ReceivedRequest) -> str:
    if answer.is_cut_short:
        return "max_tokens"
    return "tool_use" if answer.calls or _forced(asked) else "end_turn"


def _blocks(answer: Answer, asked: ReceivedRequest) -> list[_Block]:
    blocks: list[_Block] = []
    if answer.reasoning:
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, "thinking", answer.reasoning))
    if forced := _forced(asked):
        blocks.append((_use("toolu_forced", forced), "partial_json", answer.content))
    elif answer.content or not answer.calls:
        blocks.append(({"type": "text", "text": ""}, "text", answer.content))
    return [*blocks, *((_use(call.id, call.name), "partial_json", call.args.decode()) for call in answer.calls)]


def _use(id: str, name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": {}}


def _delta(field: str, piece: str) -> dict[str, Any]:
    kinds = {"text": "text_delta", "thinking": "thinking_delta", "partial_json": "input_json_delta"}
    return {"type": kinds[field], field: piece}


def _rest(begun: Mapping[str, Any], text: str) -> dict[str, Any]:
    """What a whole block has that one which begins has not."""
    if begun["type"] == "tool_use":
        return {"input": msgspec.json.decode(text)}
    return {begun["type"]: text}
