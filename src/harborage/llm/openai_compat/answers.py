"""The answers of Chat Completions, as they come over the wire: whole, or in pieces. Values and pure readers only.

Every field may be missing or null: no two servers send the same ones. What no field is declared for is skipped
unread, which is most of each piece.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from harborage.llm.client import Cost, Usage, reported_usage

__all__ = ["Choice", "Chunk", "Detail", "Function", "Message", "ToolPiece", "decode_chunk", "wire_cost", "wire_usage"]


class Function(msgspec.Struct, gc=False):
    """A call's name and arguments; some servers send the arguments as an object."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class ToolPiece(msgspec.Struct):
    """A tool call, or a piece of one."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None


class Detail(msgspec.Struct):
    """A block of thinking, or a piece of one; an encrypted one has neither text nor summary."""

    type: str = ""
    text: str | None = None
    summary: str | None = None
    index: int | None = None


class Block(msgspec.Struct):
    """One block of a content that comes in blocks; a thinking block holds blocks of its own."""

    type: str = ""
    text: str | None = None
    thinking: str | list[Any] | None = None


class Message(msgspec.Struct):
    """A message of the model, or a piece of it."""

    content: str | list[Block] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[Detail] | None = None
    tool_calls: list[ToolPiece] | None = None
    refusal: str | None = None


class Choice(msgspec.Struct):
    """One of the answers; we ask for one."""

    delta: Message | None = None
    message: Message | None = None
    finish_reason: str | None = None
    index: int = 0


class Chunk(msgspec.Struct):
    """A whole answer, or a piece of a streamed one, or an error in the place of either."""

    choices: list[Choice] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None
    object: str | None = None

    @property
    def is_error(self) -> bool:
        """Whether the server says that it failed."""
        return bool(self.error) or self.object == "error"


decode_chunk = msgspec.json.Decoder(Chunk).decode

_COUNTED = frozenset({"prompt_tokens", "completion_tokens", "total_tokens", "cost"})


def wire_usage(usage: Mapping[str, Any]) -> Usage:
    """The tokens of a usage report; whatever else it counts is kept as it is."""
    details = usage.get("completion_tokens_details")
    thought = details.get("reasoning_tokens") if isinstance(details, Mapping) else None
    return reported_usage(
        prompt=usage.get("prompt_tokens"),
        completion=usage.get("completion_tokens"),
        reasoning=thought or usage.get("reasoning_tokens"),
        total=usage.get("total_tokens"),
        extras={name: value for name, value in usage.items() if name not in _COUNTED and value is not None},
    )


def wire_cost(usage: Mapping[str, Any]) -> Cost:
    """The price that the provider itself names, in US dollars; zero when it names none."""
    cost = usage.get("cost")
    if isinstance(cost, Mapping):
        cost = cost.get("total_cost")
    if isinstance(cost, bool) or not isinstance(cost, (int, float)) or not 0 < cost < float("inf"):
        return Cost()
    return Cost(total_cost=float(cost), currency="USD")
