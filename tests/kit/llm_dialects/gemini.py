"""Google's Gemini API. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from harborage.testing.conformance.llm_bench import Answer, Failure, ReceivedRequest, Refusal
from tests.kit.llm_dialects import Frame

_REFUSALS: Mapping[Failure, tuple[int, str, str]] = {
    Failure.RATE_LIMITED: (429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."),
    Failure.SERVER_ERROR: (500, "INTERNAL", "An internal error has occurred."),
    Failure.OVERLOADED: (503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    Failure.BAD_KEY: (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
    Failure.UNKNOWN_MODEL: (404, "NOT_FOUND", "models/gemini-nobody is not found for API version v1"),
    Failure.CONTEXT_OVERFLOW: (
        400,
        "INVALID_ARGUMENT",
        "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576).",
    ),
    Failure.NO_CREDIT: (402, "FAILED_PRECONDITION", "Billing is not enabled for this project."),
    Failure.BAD_SCHEMA: (
        400,
        "INVALID_ARGUMENT",
        "generation_config.response_json_schema: the schema is not supported",
    ),
    Failure.BAD_REQUEST: (400, "INVALID_ARGUMENT", "Request contains an invalid argument."),
}


class GeminiDialect:
    """`POST …/models/<model>:generateContent` and `:streamGenerateContent`. Calls come whole, as they do there."""

    name = "gemini"
    base_path = ""

    def is_mine(self, asked: ReceivedRequest) -> bool:
        return asked.path.partition("?")[0].endswith(("enerateContent",))

    def is_streamed(self, asked: ReceivedRequest) -> bool:
        return asked.path.partition("?")[0].endswith(":streamGenerateContent")

    def whole(self, answer: Answer, asked: ReceivedRequest) -> Mapping[str, Any]:
        parts = [_text(answer.reasoning, thought=True)] if answer.reasoning else []
        parts += [_text(answer.content)] if answer.content or not answer.calls else []
        return _response(asked, parts + _calls(answer), finish=_finish(answer), usage=_usage(answer))

    def frames(self, answer: Answer, asked: ReceivedRequest) -> Sequence[Frame]:
        frames = [
            _event(_response(asked, [_text(piece, thought=True)]), True) for piece in answer.pieces(answer.reasoning)
        ]
        frames += [_event(_response(asked, [_text(piece)]), True) for piece in answer.pieces(answer.content)]
        frames += [_event(_response(asked, [call]), True) for call in _calls(answer)]
        frames.append(_event(_response(asked, [_text("")], finish=_finish(answer), usage=_usage(answer))))
        return frames

    def refusal(self, refusal: Refusal, asked: ReceivedRequest) -> tuple[int, Mapping[str, Any]]:
        status, kind, message = _REFUSALS[refusal.failure]
        return status, {"error": {"code": status, "message": f"{message} {refusal.says}".strip(), "status": kind}}

    def failure(self, asked: ReceivedRequest) -> bytes:
        error = {"code": 503, "message": "The service is currently unavailable.", "status": "UNAVAILABLE"}
        return b"data: " + msgspec.json.encode({"error": error}) + b"\r\n\r\n"

    def garbage(self, asked: ReceivedRequest) -> bytes:
        return b'data: {"candidates": [{"content": {"parts": [{"text": "half\r\n\r\n'


def _event(value: Mapping[str, Any], speaks: bool = False) -> Frame:
    return Frame(b"data: " + msgspec.json.encode(value) + b"\r\n\r\n", speaks)


def _response(
    asked: ReceivedRequest, parts: list[dict[str, Any]], finish: str = "", usage: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    model = asked.path.rpartition("/")[2].partition(":")[0]
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    response: dict[str, Any] = {"candidates": [candidate], "modelVersion": model, "responseId": "resp1"}
    return {**response, "usageMetadata": usage} if usage else response


def _usage(answer: Answer) -> dict[str, Any]:
    """The provider counts thinking beside the rest of the answer."""
    return {
        "promptTokenCount": answer.prompt_tokens,
        "candidatesTokenCount": answer.completion_tokens - answer.reasoning_tokens,
        "thoughtsTokenCount": answer.reasoning_tokens,
        "totalTokenCount": answer.prompt_tokens + answer.completion_tokens,
    }


def _finish(answer: Answer) -> str:
    return "MAX_TOKENS" if answer.is_cut_short else "STOP"


def _text(text: str, *, thought: bool = False) -> dict[str, Any]:
    return {"text": text, "thought": True} if thought else {"text": text}


def _calls(answer: Answer) -> list[dict[str, Any]]:
    return [
        {"functionCall": {"id": call.id, "name": call.name, "args": msgspec.json.decode(call.args)}}
        for call in answer.calls
    ]
