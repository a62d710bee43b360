"""This package's neutral messages as langchain's, and the text of theirs. The framework is imported late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from harborage import codec
from harborage.llm import ChatMessage, ImagePart, Role
from harborage.planner.adapters.conversation import has_media, plain_text, stub_text
from harborage.planner.adapters.model import framework

__all__ = ["as_messages", "is_ours", "text_of", "thought_of"]

_OURS: Final = "harborage-"


def as_messages(messages: Sequence[ChatMessage]) -> list[Any]:
    """One message of the framework for each of ours, under ids that tell them from what the graph adds."""
    kinds = framework("langchain_core.messages", "langgraph", "the langgraph adapter")
    return [_as_message(message, f"{_OURS}{index}", kinds) for index, message in enumerate(messages)]


def is_ours(message: Any) -> bool:
    """Whether this message stood in the history before the turn."""
    return (message.id or "").startswith(_OURS)


def text_of(message: Any) -> str:
    """The text in a message of the framework."""
    if isinstance(message.content, str):
        return message.content
    return "".join(block if isinstance(block, str) else block.get("text", "") for block in message.content)


def thought_of(message: Any) -> str:
    """The thinking in a message of the framework, however its provider writes it."""
    if isinstance(message.content, str):
        return str(message.additional_kwargs.get("reasoning_content") or "")
    blocks = (block for block in message.content if isinstance(block, dict))
    return "".join(str(block.get("reasoning") or block.get("thinking") or "") for block in blocks)


def _as_message(message: ChatMessage, id: str, kinds: Any) -> Any:
    match message.role:
        case Role.ASSISTANT:
            calls = [
                {"name": call.name, "args": _args(call.args), "id": call.id, "type": "tool_call"}
                for call in message.tool_calls
            ]
            return kinds.AIMessage(plain_text(message), tool_calls=calls, id=id)
        case Role.TOOL:
            return kinds.ToolMessage(
                plain_text(message), tool_call_id=message.tool_call_id or "", name=message.name, id=id
            )
        case _:
            return kinds.HumanMessage(_user_content(message), id=id)


def _args(args: bytes) -> dict[str, Any]:
    try:
        found = codec.decode(args)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {"invalid_arguments": args.decode("utf-8", "replace")}
    return found if isinstance(found, dict) else {"invalid_arguments": found}


def _user_content(message: ChatMessage) -> Any:
    if not has_media(message):
        return plain_text(message)
    return [_user_part(part) for part in message.content.parts or ()]


def _user_part(part: Any) -> dict[str, Any]:
    match part:
        case ImagePart(data_url=data_url) if data_url:
            head, _, data = data_url.partition(",")
            return {"type": "image", "base64": data, "mime_type": part.mime or head[5:].partition(";")[0]}
        case ImagePart(url=url) if url:
            return {"type": "image", "url": url}
        case _:
            return {"type": "text", "text": stub_text(part)}
