"""`text.echo`: the text that went in; the smallest tool that shows that calls arrive."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from harborage.identity import require_triple
from harborage.tools.builtin.names import TEXT_ECHO
from harborage.tools.enums import SideEffect
from harborage.tools.function import tool
from harborage.tools.model import CallContext, ToolDescriptor

__all__ = ["Echo", "text_echo"]


class Echo(TypedDict):
    """What was said, and the tag that came with it."""

    echoed: str
    tag: NotRequired[str]


def text_echo() -> ToolDescriptor:
    """The tool that returns its text."""

    async def echo(text: str, call: CallContext, tag: str = "") -> Echo:
        """Return the given text unchanged.

        Args:
            text: what to return
            tag: a label to return with it
        """
        require_triple(call.who, TEXT_ECHO)
        return Echo(echoed=text, tag=tag) if tag else Echo(echoed=text)

    return tool(echo, name=TEXT_ECHO, side_effects=SideEffect.PURE, tags=("builtin",), source="builtin")
