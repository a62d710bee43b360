"""How many tokens a request is about, by one rule for all models: a quarter of its bytes. Pure.

Estimates only: they guard a window, they are never billed. Nothing here is a tokenizer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harborage import codec
from harborage.llm.chain.data_urls import utf8_size
from harborage.llm.content import TextPart
from harborage.llm.memo import kept_with

if TYPE_CHECKING:
    from harborage.llm.client import ChatMessage, CompleteRequest, ToolDeclaration

__all__ = ["message_tokens", "tokens_beside_messages"]

_A_MESSAGE: Final = 4
_A_MEDIUM: Final = 256


def message_tokens(message: ChatMessage) -> int:
    """The estimate for one well-formed message."""
    content = message.content
    total = _A_MESSAGE + sum((len(call.name) + len(call.args)) // 4 + 1 for call in message.tool_calls)
    if content.text is not None:
        total += _text_tokens(content.text)
    for part in content.parts or ():
        total += _text_tokens(part.text) if isinstance(part, TextPart) else _A_MEDIUM
    return total + _text_tokens(message.name) if message.name else total


def tokens_beside_messages(request: CompleteRequest) -> int:
    """The estimate for everything else that is sent with a request: stops, schema, extra fields, declared tools.

    Raises:
        UnserializableError: a tool's schema, or `extra`, has no JSON form; the path names the tool.
    """
    total = sum(map(_text_tokens, request.stops))
    if request.response_format is not None and request.response_format.json_schema:
        total += len(request.response_format.json_schema) // 4 + 1
    if request.extra:
        total += len(codec.encode(request.extra, "extra")) // 4 + 1
    return total + sum([kept_with(tool, "llm.tokens", _tool_tokens) for tool in request.tools])


def _tool_tokens(tool: ToolDeclaration) -> int:
    size = utf8_size(tool.name) + utf8_size(tool.description) + len(codec.encode(tool.schema, f"tool {tool.name}"))
    return size // 4 + 1


def _text_tokens(text: str) -> int:
    return utf8_size(text) // 4 + 1
