"""How many tokens a request is about, by one rule for all models: a quarter of its bytes.

Estimates only: they guard a window, they are never billed. Nothing here is a tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from harborage import codec
from harborage.llm.chain.data_urls import utf8_size
from harborage.llm.client import CompleteRequest, ToolDeclaration
from harborage.llm.content import Part, TextPart

__all__ = ["ToolTokens", "estimate_tokens", "most_tokens"]

_A_MESSAGE: Final = 4
_A_TEXT_MESSAGE: Final = _A_MESSAGE + 1
_A_MEDIUM: Final = 256
_KEPT: Final = 1024


class ToolTokens:
    """What tool declarations come to, each measured once: a run declares the same ones with every call."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        # The declaration is kept with its size: while it is here, its id is nobody else's.
        self._known: dict[int, tuple[ToolDeclaration, int]] = {}

    def of(self, tools: Sequence[ToolDeclaration]) -> int:
        """The tokens of all of them.

        Raises:
            UnserializableError: a schema has no JSON form; the path names the tool.
        """
        return sum(map(self._one, tools))

    def _one(self, tool: ToolDeclaration) -> int:
        known = self._known.get(id(tool))
        if known is not None:
            return known[1]
        if len(self._known) >= _KEPT:
            self._known.clear()
        size = utf8_size(tool.name) + utf8_size(tool.description) + len(codec.encode(tool.schema, f"tool {tool.name}"))
        tokens = size // 4 + 1
        self._known[id(tool)] = (tool, tokens)
        return tokens


def estimate_tokens(request: CompleteRequest, tools: ToolTokens) -> int:
    """The estimate for the whole request.

    Raises:
        UnserializableError: a tool's schema, or `extra`, has no JSON form.
    """
    return _tokens(request, tools, utf8_size)


def most_tokens(request: CompleteRequest, tools: ToolTokens) -> int:
    """At least as many as `estimate_tokens`, without encoding a single text."""
    return _tokens(request, tools, _most_bytes)


def _most_bytes(text: str) -> int:
    return len(text) * 4


def _tokens(request: CompleteRequest, tools: ToolTokens, wide: Callable[[str], int]) -> int:
    """The sum over everything that is sent; `wide` measures the texts that are not ASCII."""
    total = 0
    for message in request.messages:
        text = message.content.text
        if text is not None:
            total += (len(text) if text.isascii() else wide(text)) // 4 + _A_TEXT_MESSAGE
        else:
            total += _A_MESSAGE + _of_parts(message.content.parts or (), wide)
        if message.name:
            total += wide(message.name) // 4 + 1
        if message.tool_calls:
            for call in message.tool_calls:
                total += (len(call.name) + len(call.args)) // 4 + 1
    total += sum(utf8_size(stop) // 4 + 1 for stop in request.stops)
    if request.response_format is not None and request.response_format.json_schema:
        total += len(request.response_format.json_schema) // 4 + 1
    if request.extra:
        total += len(codec.encode(request.extra, "extra")) // 4 + 1
    return total + tools.of(request.tools) if request.tools else total


def _of_parts(parts: Sequence[Part], wide: Callable[[str], int]) -> int:
    return sum(wide(part.text) // 4 + 1 if isinstance(part, TextPart) else _A_MEDIUM for part in parts)
