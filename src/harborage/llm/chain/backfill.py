"""Token counts and a price for answers of providers that report none. Pure, and rough by nature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from harborage import codec
from harborage.llm.client import (
    ChatMessage,
    CompleteRequest,
    CompleteResponse,
    Cost,
    ToolCallStructured,
    ToolDeclaration,
    Usage,
)
from harborage.llm.content import TextPart
from harborage.llm.memo import kept_with

if TYPE_CHECKING:
    from harborage.llm.profile import CostOverrides

__all__ = ["backfilled", "overridden_cost"]

_BYTES_A_TOKEN: Final = 4
_OTHER_PART_TOKENS: Final = 16
_MILLION: Final = 1_000_000


def backfilled(
    request: CompleteRequest, response: CompleteResponse, overrides: CostOverrides | None
) -> CompleteResponse:
    """`response` with estimated usage if it has none, priced with `overrides` if it has no price; else as it is."""
    usage = response.usage
    if usage.prompt_tokens or usage.completion_tokens or usage.total_tokens:
        return response
    prompt = sum([kept_with(one, "llm.rough_tokens", _message_tokens) for one in request.messages])
    prompt += sum([kept_with(one, "llm.rough_tokens", _tool_tokens) for one in request.tools])
    completion = _bytes_of(response.content, response.tool_calls) // _BYTES_A_TOKEN
    usage = msgspec.structs.replace(
        usage, prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion
    )
    cost = response.cost
    if not cost.total_cost and overrides is not None:
        cost = overridden_cost(usage, overrides)
    return msgspec.structs.replace(response, usage=usage, cost=cost)


def overridden_cost(usage: Usage, overrides: CostOverrides) -> Cost:
    """What `usage` costs at the operator's own prices."""
    prompt = usage.prompt_tokens * overrides.input_per_million / _MILLION
    completion = usage.completion_tokens * overrides.output_per_million / _MILLION
    return Cost(
        input_cost=prompt,
        output_cost=completion,
        total_cost=prompt + completion,
        currency=overrides.currency or "USD",
    )


def _message_tokens(message: ChatMessage) -> int:
    calls = sum(_text_tokens(call.name, call.args) for call in message.tool_calls)
    if message.content.parts is None:
        return calls + _text_tokens(message.content.text or "")
    return calls + sum(
        _text_tokens(part.text) if isinstance(part, TextPart) else _OTHER_PART_TOKENS for part in message.content.parts
    )


def _tool_tokens(tool: ToolDeclaration) -> int:
    return _text_tokens(tool.name + tool.description, codec.encode(tool.schema))


def _text_tokens(text: str, more: bytes = b"") -> int:
    return 1 + (_size(text) + len(more)) // _BYTES_A_TOKEN


def _bytes_of(content: str, calls: Sequence[ToolCallStructured]) -> int:
    return _size(content) + sum(_size(call.name) + len(call.args) for call in calls)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
