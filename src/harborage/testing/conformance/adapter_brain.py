"""The model behind every agent of the adapters' suite: it answers by a script and sees requests in neutral words.

A framework's fake model turns its own request into `ChatMessage`s, awaits `Brain.answer`, and turns the answer back.
Which line comes next is read off the request, so runs do not disturb each other and a run may change its process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from harborage.errors import HarborageError
from harborage.llm import ChatMessage, CompleteResponse, Role

__all__ = ["Brain", "BrainExhaustedError", "BrainLine", "Seen", "shown"]

BrainLine: TypeAlias = CompleteResponse | Exception


class BrainExhaustedError(HarborageError):
    """A model of the suite was asked more often than its script has lines."""


class Seen(msgspec.Struct, frozen=True):
    """One request as the model got it: the conversation without system messages, what it may call, how it was told."""

    messages: Sequence[ChatMessage]
    tools: Sequence[str] = ()
    system: str = ""


class Brain:
    """Answers a conversation that holds `n` answers with line `n` of `script`; `{goal}` becomes the first user's text.

    With `is_slow` it never answers: it tells that it was asked, and counts how often it was cut off.
    """

    def __init__(self, script: Sequence[BrainLine], *, is_slow: bool = False) -> None:
        self._script = tuple(script)
        self._is_slow = is_slow
        self.seen: list[Seen] = []
        self.is_asked = asyncio.Event()
        self.cut = 0

    async def answer(self, request: Seen) -> CompleteResponse:
        """The next line for this conversation.

        Raises:
            BrainExhaustedError: the script has no such line.
            Exception: the line itself.
        """
        self.seen.append(request)
        self.is_asked.set()
        if self._is_slow:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cut += 1
                raise
        await asyncio.sleep(0)
        at = sum(message.role is Role.ASSISTANT for message in request.messages)
        if at >= len(self._script):
            raise BrainExhaustedError(f"the script has {len(self._script)} line(s); asked for line {at + 1}")
        line = self._script[at]
        if isinstance(line, Exception):
            raise line
        goal = next(iter(shown(request.messages, Role.USER)), "")
        return replace(line, content=line.content.replace("{goal}", goal))


def shown(messages: Sequence[ChatMessage], role: Role) -> list[str]:
    """The texts of one side of a conversation, in order."""
    return [message.content.text or "" for message in messages if message.role is role]
