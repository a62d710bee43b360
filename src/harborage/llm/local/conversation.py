"""A conversation with native tool calls as a plain one, which any chat template understands. Pure.

A model of this size has a small window and less patience: what stands in a system prompt for large models is left out,
long results are shortened, and everything else stays in its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from harborage.llm.client import ChatMessage, Role, ToolCallStructured
from harborage.llm.content import Content, TextPart
from harborage.llm.local.decisions import written_answer, written_call

__all__ = ["clipped", "compacted", "is_repeat", "notes", "plain"]

# Sections of a system prompt that say how native calls work, which here the examples and the schema say.
_DROPPED: Final = (
    "identity",
    "tool_discovery",
    "heavy_results",
    "tool_usage",
    "reasoning",
    "tone",
    "error_handling",
    "available_tools",
)
_SECTION: Final = re.compile(rf"<({'|'.join(_DROPPED)})>\n.*?\n</\1>\s*", re.DOTALL)
_TAG: Final = re.compile(r"^</?[a-z_]+>\s*$", re.MULTILINE)
_GOAL: Final = "Goal:\n"
_CUT: Final = " […] "


def compacted(system: str, most: int) -> str:
    """What of a system prompt is worth its room: all but the sections about native calls, at most `most` characters."""
    kept = _TAG.sub("", _SECTION.sub("", system))
    return clipped(re.sub(r"\n{2,}", "\n", kept).strip(), most)


def clipped(text: str, most: int) -> str:
    """`text`, its middle left out where it is longer than `most` characters."""
    if len(text) <= most:
        return text
    kept = max(0, most - len(_CUT))
    tail = kept // 3
    return text[: kept - tail] + _CUT + text[len(text) - tail :] if kept else text[:most]


def notes(messages: Iterable[ChatMessage], most: int) -> str:
    """What the system messages say, compacted."""
    said = (compacted(_text(message), most) for message in messages if message.role is Role.SYSTEM)
    return clipped("\n".join(text for text in said if text), most)


def plain(messages: Sequence[ChatMessage], *, answer: str, longest_result: int) -> list[ChatMessage]:
    """The conversation without its system messages, calls written out as the model is to write them.

    Each call stands before its own result, also where several were made at once. `answer` is the name under which
    earlier answers are written; when empty they stay as they are.
    """
    found = list(_plain(messages, answer, longest_result))
    return [_without_label(message) if message.role is Role.USER else message for message in found]


def _plain(messages: Sequence[ChatMessage], answer: str, longest: int) -> Iterator[ChatMessage]:
    waiting: dict[str, ToolCallStructured] = {}
    for message in messages:
        match message.role:
            case Role.SYSTEM:
                continue
            case Role.ASSISTANT if message.tool_calls:
                waiting = {call.id: call for call in message.tool_calls}
            case Role.ASSISTANT:
                text = _text(message)
                yield _said(Role.ASSISTANT, written_answer(answer, text) if answer else text)
            case Role.TOOL:
                call = waiting.pop(message.tool_call_id or "", None)
                if call is not None:
                    yield _said(Role.ASSISTANT, written_call(call.name, call.args))
                yield _said(Role.USER, f"Result: {clipped(_text(message), longest)}")
            case _:
                yield message


def is_repeat(messages: Sequence[ChatMessage], name: str, args: bytes) -> bool:
    """Whether this very call was made since the user last spoke, and has its result."""
    wanted = written_call(name, args)
    answered = {message.tool_call_id for message in messages if message.role is Role.TOOL}
    for message in reversed(messages):
        if message.role is Role.USER:
            return False
        if any(call.id in answered and written_call(call.name, call.args) == wanted for call in message.tool_calls):
            return True
    return False


def _without_label(message: ChatMessage) -> ChatMessage:
    text = message.content.text
    return message if text is None or not text.startswith(_GOAL) else _said(Role.USER, text.removeprefix(_GOAL))


def _said(role: Role, text: str) -> ChatMessage:
    return ChatMessage(role, Content(text=text))


def _text(message: ChatMessage) -> str:
    content = message.content
    if content.parts is None:
        return content.text or ""
    texts = (part.text if isinstance(part, TextPart) else part.artifact.text() if part.artifact else "" for part in
             content.parts)  # fmt: skip
    return "\n".join(text for text in texts if text)
