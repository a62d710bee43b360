"""A conversation in the words of Chat Completions. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from harborage import codec
from harborage.llm.client import ChatMessage, Role, ToolCallStructured
from harborage.llm.content import AudioPart, Content, FilePart, ImagePart, Part, TextPart
from harborage.llm.errors import InvalidContentError
from harborage.llm.media import audio_format, decode_inline

if TYPE_CHECKING:
    from harborage.llm.openai_compat.habits import Habits

__all__ = ["encoded_messages", "wire_message"]

_WIRE = "llm.openai_compat"


def encoded_messages(messages: Sequence[ChatMessage], habits: Habits, provider: str) -> list[msgspec.Raw]:
    """A conversation as the server reads it, each message in JSON, which is kept beside the message.

    A run sends its whole history with every step. What holds an attachment is made anew each time instead: kept, it
    would take the memory twice.

    Raises:
        InvalidContentError: as for `wire_message`.
        UnserializableError: a text cannot be spelled in UTF-8; the path names the message.
    """
    name = f"{_WIRE}.{provider}"
    encoded = []
    for index, message in enumerate(messages):
        wire: msgspec.Raw | None = vars(message).get(name)
        if wire is None:
            said = wire_message(message, habits, provider)
            wire = msgspec.Raw(codec.encode(said, f"request.messages[{index}]"))
            if not any(part.data_url for part in message.content.parts or () if not isinstance(part, TextPart)):
                vars(message)[name] = wire
        encoded.append(wire)
    return encoded


def wire_message(message: ChatMessage, habits: Habits, provider: str) -> dict[str, Any]:
    """One message as the server reads it.

    A tool's answer that names no call becomes a user's message; an assistant's empty text beside tool calls is null.

    Raises:
        InvalidContentError: an attachment is broken, too large, or in a form that the server does not take.
    """
    content = _content(message.content, message.role, habits, provider)
    match message.role:
        case Role.TOOL if message.tool_call_id:
            return {"role": "tool", "tool_call_id": _id(message.tool_call_id, habits), "content": content}
        case Role.TOOL:
            return {"role": "user", "content": content}
        case Role.ASSISTANT if message.tool_calls:
            calls = [_call(call, habits) for call in message.tool_calls]
            return {**_named("assistant", message), "content": content or None, "tool_calls": calls}
        case _:
            return {**_named(message.role.value, message), "content": content}


def _named(role: str, message: ChatMessage) -> dict[str, Any]:
    return {"role": role, "name": message.name} if message.name else {"role": role}


def _call(call: ToolCallStructured, habits: Habits) -> dict[str, Any]:
    arguments = call.args.decode("utf-8", "replace") or "{}"
    return {"id": _id(call.id, habits), "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _id(call_id: str, habits: Habits) -> str:
    """The call's id; where the server does not take it, as another provider made it, a short one that stands for it."""
    if re.fullmatch(habits.call_id, call_id):
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:9]


def _content(content: Content, role: Role, habits: Habits, provider: str) -> str | list[dict[str, Any]]:
    """Text as text; parts as blocks, but those of others than the user as one text where they are nothing else.

    Many servers read blocks in a user's message only.
    """
    if content.parts is None:
        return content.text or ""
    blocks = [_block(part, habits, provider) for part in content.parts]
    if role is not Role.USER and all(block["type"] == "text" for block in blocks):
        return "\n".join(block["text"] for block in blocks)
    return blocks


def _block(part: Part, habits: Habits, provider: str) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if part.artifact is not None:
        return {"type": "text", "text": part.artifact.text()}
    match part:
        case ImagePart():
            return _image(part, habits, provider)
        case AudioPart():
            return _audio(part, habits, provider)
        case FilePart():
            return _file(part, habits, provider)
        case _:
            assert_never(part)


def _image(part: ImagePart, habits: Habits, provider: str) -> dict[str, Any]:
    url = part.url
    if part.data_url:
        url = decode_inline(part, limit_bytes=habits.attachment_bytes, provider=provider).data_url
    image = {"url": url, "detail": part.detail} if part.detail else {"url": url}
    return {"type": "image_url", "image_url": image}


def _audio(part: AudioPart, habits: Habits, provider: str) -> dict[str, Any]:
    if not part.data_url:
        _check_url(habits, provider, "audio")
        return {"type": "audio_url", "audio_url": {"url": part.url}}
    media = decode_inline(part, limit_bytes=habits.attachment_bytes, provider=provider)
    return {"type": "input_audio", "input_audio": {"data": media.base64, "format": audio_format(media.mime)}}


def _file(part: FilePart, habits: Habits, provider: str) -> dict[str, Any]:
    if not part.data_url:
        _check_url(habits, provider, "a file")
        return {"type": "file", "file": {"filename": part.filename or "file", "file_data": part.url}}
    media = decode_inline(part, limit_bytes=habits.attachment_bytes, provider=provider)
    filename = part.filename or f"file.{media.mime.rpartition('/')[2]}"
    return {"type": "file", "file": {"filename": filename, "file_data": media.data_url}}


def _check_url(habits: Habits, provider: str, what: str) -> None:
    if not habits.takes_media_urls:
        raise InvalidContentError(f"{provider} does not fetch {what} from an address; give it inline, as a data URL")
