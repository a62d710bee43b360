"""This package's neutral messages as the input items of openai-agents. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from harborage.llm import ChatMessage, ImagePart, Role
from harborage.planner.adapters.conversation import has_media, plain_text, stub_text

__all__ = ["as_input"]


def as_input(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """The input items of a conversation: each call is an item of its own, before its answer."""
    return [item for message in messages for item in _items(message)]


def _items(message: ChatMessage) -> Iterator[dict[str, Any]]:
    match message.role:
        case Role.ASSISTANT:
            said = plain_text(message)
            if said:
                yield {"role": "assistant", "content": said}
            for call in message.tool_calls:
                args = call.args.decode("utf-8", "replace")
                yield {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": args}
        case Role.TOOL:
            output = plain_text(message)
            yield {"type": "function_call_output", "call_id": message.tool_call_id or "", "output": output}
        case _:
            yield {"role": "user", "content": _user_content(message)}


def _user_content(message: ChatMessage) -> Any:
    if not has_media(message):
        return plain_text(message)
    return [_user_part(part) for part in message.content.parts or ()]


def _user_part(part: Any) -> dict[str, Any]:
    match part:
        case ImagePart(data_url=data_url, url=url) if data_url or url:
            return {"type": "input_image", "image_url": data_url or url, "detail": part.detail or "auto"}
        case _:
            return {"type": "input_text", "text": stub_text(part)}
