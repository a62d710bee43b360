"""Where a client keeps what it worked out of a message or a tool: beside it, so that it goes when that goes.

The same objects come back at every step of a run, and they are frozen: what was found in one stays true. A client holds
nothing of any run this way. Only values are kept that can be worked out again at any time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from harborage.llm.client import ChatMessage, ToolDeclaration

__all__ = ["kept_with"]

One = TypeVar("One", bound=ChatMessage | ToolDeclaration)
T = TypeVar("T")


def kept_with(one: One, name: str, make: Callable[[One], T]) -> T:
    """What `make(one)` gave the first time; nothing is kept of a failure."""
    beside = vars(one)
    found: T | None = beside.get(name)
    if found is None:
        found = beside[name] = make(one)
    return found
