"""A conversation with native tool calls as a plain one, which any chat template understands. Pure.

A model of this size has a small window and less patience: what stands in a system prompt for large models is left out,
long results are shortened, and everything else stays in its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from harborage import codec
from harborage.llm.client import ChatMessage, Role, ToolCallStructured
from harborage.llm.content import Content, TextPart
from harborage.llm.local.decisions import written_answer, written_call

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
_FAILED: Final = ("error:", '{"error":')
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


def is_answerable(messages: Sequence[ChatMessage]) -> bool:
    """Whether the last thing said is a tool's result, and not of a call that failed."""
    return bool(messages) and messages[-1].role is Role.TOOL and not _text(messages[-1]).startswith(_FAILED)


def found(messages: Sequence[ChatMessage], most: int) -> tuple[str, str]:
    """The user's last words, and what tools have said since, made readable, in at most `most` characters."""
    results: list[str] = []
    for message in reversed(messages):
        if message.role is Role.USER:
            return _text(message).removeprefix(_GOAL), clipped("\n\n".join(reversed(results)), most)
        if message.role is Role.TOOL:
            results.append(readable(_text(message)))
    return "", clipped("\n\n".join(reversed(results)), most)


def readable(text: str) -> str:
    """JSON as lines of words; what is no JSON object or list stays as it is."""
    try:
        value = codec.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
    return "\n".join(_lines(value, 0)) if isinstance(value, dict | list) and value else text


def _lines(value: Any, depth: int) -> Iterator[str]:
    indent = "  " * depth
    members = value.items() if isinstance(value, dict) else (("-", inner) for inner in value)
    for name, inner in members:
        label = name if name == "-" else f"{name.replace('_', ' ')}:"
        if not isinstance(inner, dict | list) or not inner:
            yield f"{indent}{label} {inner if isinstance(inner, str) else codec.encode_text(inner)}"
        elif name == "-" and isinstance(inner, dict):
            yield f"{indent}- {', '.join(line.strip() for line in _lines(inner, 0))}"
        else:
            yield f"{indent}{label}"
            yield from _lines(inner, depth + 1)


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
