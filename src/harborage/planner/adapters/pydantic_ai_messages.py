"""This package's neutral messages as pydantic-ai's. Pure; the framework is imported when it is called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harborage.llm import ChatMessage, ImagePart, Role
from harborage.planner.adapters.conversation import has_media, plain_text, stub_text
from harborage.planner.adapters.model import framework

__all__ = ["as_history"]


def as_history(messages: Sequence[ChatMessage]) -> list[Any]:
    """One message of the framework for each of ours; the framework joins those that belong together."""
    kinds = framework("pydantic_ai.messages", "pydantic-ai", "the pydantic-ai adapter")
    return [_as_message(message, kinds) for message in messages]


def _as_message(message: ChatMessage, kinds: Any) -> Any:
    match message.role:
        case Role.ASSISTANT:
            return _response(message, kinds)
        case Role.TOOL:
            part = kinds.ToolReturnPart(
                message.name or "", plain_text(message), tool_call_id=message.tool_call_id or ""
            )
            return kinds.ModelRequest(parts=[part])
        case _:
            return kinds.ModelRequest(parts=[kinds.UserPromptPart(_user_content(message, kinds))])


def _response(message: ChatMessage, kinds: Any) -> Any:
    said = plain_text(message)
    parts: list[Any] = [kinds.TextPart(said)] if said else []
    parts += [
        kinds.ToolCallPart(call.name, call.args.decode("utf-8", "replace"), tool_call_id=call.id)
        for call in message.tool_calls
    ]
    return kinds.ModelResponse(parts=parts)


def _user_content(message: ChatMessage, kinds: Any) -> Any:
    if not has_media(message):
        return plain_text(message)
    return [_user_part(part, kinds) for part in message.content.parts or ()]


def _user_part(part: Any, kinds: Any) -> Any:
    match part:
        case ImagePart(data_url=data_url) if data_url:
            return kinds.BinaryContent.from_data_uri(data_url)
        case ImagePart(url=url) if url:
            return kinds.ImageUrl(url)
        case _:
            return stub_text(part)
