"""OpenAI's Responses API. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from harborage.testing.conformance.llm_bench import Answer, Failure, ReceivedRequest, Refusal
from tests.kit.llm_dialects import Frame

if TYPE_CHECKING:
    from harborage.llm import ToolCallStructured

_REFUSALS: Mapping[Failure, tuple[int, str, str | None]] = {
    Failure.RATE_LIMITED: (429, "Rate limit reached", "rate_limit_exceeded"),
    Failure.SERVER_ERROR: (500, "The server had an error while processing your request", "server_error"),
    Failure.OVERLOADED: (503, "The engine is currently overloaded", "server_is_overloaded"),
    Failure.BAD_KEY: (401, "Incorrect API key provided", "invalid_api_key"),
    Failure.UNKNOWN_MODEL: (404, "The requested model does not exist", "model_not_found"),
    Failure.CONTEXT_OVERFLOW: (400, "Your input exceeds the context window of this model", "context_length_exceeded"),
    Failure.NO_CREDIT: (429, "You exceeded your current quota", "insufficient_quota"),
    Failure.BAD_SCHEMA: (400, "Invalid schema for response_format 'answer'", "invalid_json_schema"),
    Failure.BAD_REQUEST: (400, "Unknown parameter", "unknown_parameter"),
}


class ResponsesDialect:
    """`POST …/responses`."""

    name = "responses"
    base_path = "/v1"

    def is_mine(self, asked: ReceivedRequest) -> bool:
        return asked.path.partition("?")[0].endswith("/responses")

    def is_streamed(self, asked: ReceivedRequest) -> bool:
        return asked.body.get("stream") is True

    def whole(self, answer: Answer, asked: ReceivedRequest) -> Mapping[str, Any]:
        return _response(answer, asked, _items(answer), "incomplete" if answer.is_cut_short else "completed")

    def frames(self, answer: Answer, asked: ReceivedRequest) -> Sequence[Frame]:
        items = _items(answer)
        begun = _response(answer, asked, [], "in_progress")
        frames = [_event("response.created", response=begun), _event("response.in_progress", response=begun)]
        for at, item in enumerate(items):
            frames += _item_frames(item, at, answer)
        whole = self.whole(answer, asked)
        frames.append(_event(f"response.{whole['status']}", response=whole))
        return frames

    def refusal(self, refusal: Refusal, asked: ReceivedRequest) -> tuple[int, Mapping[str, Any]]:
        status, message, code = _REFUSALS[refusal.failure]
        kind = "insufficient_quota" if refusal.failure is Failure.NO_CREDIT else "invalid_request_error"
        text = f"{message} {refusal.says}".strip()
        return status, {"error": {"message": text, "type": kind, "param": None, "code": code}}

    def failure(self, asked: ReceivedRequest) -> bytes:
        error = {"code": "server_error", "message": "The model failed to generate a response"}
        response = {**_response(Answer(), asked, [], "failed"), "error": error}
        return _event("response.failed", response=response).data

    def garbage(self, asked: ReceivedRequest) -> bytes:
        return b'event: response.output_text.delta\ndata: {"type": "response.output_text.delta", "delta": "half\n\n'


def _event(kind: str, *, speaks: bool = False, **fields: Any) -> Frame:
    data = msgspec.json.encode({"type": kind, **fields})
    return Frame(b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n", speaks)


def _response(answer: Answer, asked: ReceivedRequest, items: list[dict[str, Any]], status: str) -> dict[str, Any]:
    is_whole = status in ("completed", "incomplete")
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1767225600,
        "model": asked.body.get("model", ""),
        "status": status,
        "output": items,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "usage": _usage(answer) if is_whole else None,
    }


def _usage(answer: Answer) -> dict[str, Any]:
    return {
        "input_tokens": answer.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": answer.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": answer.reasoning_tokens},
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
    }


def _items(answer: Answer) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if answer.reasoning:
        items.append({"type": "reasoning", "id": "rs_1", "summary": [_part("summary_text", answer.reasoning)]})
    if answer.content or not answer.calls:
        content = [{**_part("output_text", answer.content), "annotations": []}]
        items.append({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content})
    return [*items, *(_call(call) for call in answer.calls)]


def _part(kind: str, text: str) -> dict[str, Any]:
    return {"type": kind, "text": text}


def _call(call: ToolCallStructured) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": f"fc_{call.id}",
        "call_id": call.id,
        "name": call.name,
        "arguments": call.args.decode(),
        "status": "completed",
    }


def _item_frames(item: dict[str, Any], at: int, answer: Answer) -> list[Frame]:
    """One thing that the model put out: announced, in pieces, and whole again."""
    place = {"output_index": at, "item_id": item["id"]}
    match item["type"]:
        case "reasoning":
            begun, pieces, whole = {**item, "summary": []}, answer.pieces(answer.reasoning), answer.reasoning
            kind, field, place = "response.reasoning_summary_text", "text", {**place, "summary_index": 0}
        case "message":
            begun, pieces, whole = {**item, "content": []}, answer.pieces(answer.content), answer.content
            kind, field, place = "response.output_text", "text", {**place, "content_index": 0}
        case _:
            whole = item["arguments"]
            begun, pieces = {**item, "arguments": ""}, answer.pieces(whole)
            kind, field = "response.function_call_arguments", "arguments"
    ended: dict[str, Any] = {field: whole, **place}
    return [
        _event("response.output_item.added", output_index=at, item={**begun, "status": "in_progress"}),
        *(_event(f"{kind}.delta", speaks=True, delta=piece, **place) for piece in pieces),
        _event(f"{kind}.done", **ended),
        _event("response.output_item.done", output_index=at, item=item),
    ]
