"""The model behind every agent of the adapters' suite: it answers by a script, in a form that is no framework's own.

A framework's fake model turns its own request into a `NeutralRequest`, awaits `ScriptedModel.answer`, and turns the
answer back. The request alone decides which line is next, so runs do not disturb each other, and may change their
process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from harborage.llm import ChatMessage, CompleteResponse, Role
from harborage.llm.scripted import ScriptExhaustedError

ModelLine: TypeAlias = CompleteResponse | Exception


class NeutralRequest(msgspec.Struct, frozen=True):
    """One request: the conversation without system messages, the names of the tools, and the system text."""

    messages: Sequence[ChatMessage]
    tools: Sequence[str] = ()
    system: str = ""


class ScriptedModel:
    """Answers a conversation that holds `n` answers with line `n` of `script`; `{goal}` becomes the first user's text.

    With `is_slow` it never answers; `is_asked` is set by the first request, `cancelled_calls` counts cancellations.
    """

    def __init__(self, script: Sequence[ModelLine], *, is_slow: bool = False) -> None:
        self._script = tuple(script)
        self._is_slow = is_slow
        self.requests: list[NeutralRequest] = []
        self.is_asked = asyncio.Event()
        self.cancelled_calls = 0

    async def answer(self, request: NeutralRequest) -> CompleteResponse:
        """Return the next line for this conversation.

        Raises:
            ScriptExhaustedError: the script has no such line.
            Exception: the line itself.
        """
        self.requests.append(request)
        self.is_asked.set()
        if self._is_slow:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled_calls += 1
                raise
        await asyncio.sleep(0)
        at = sum(message.role is Role.ASSISTANT for message in request.messages)
        if at >= len(self._script):
            raise ScriptExhaustedError(f"the script has {len(self._script)} line(s); asked for line {at + 1}")
        line = self._script[at]
        if isinstance(line, Exception):
            raise line
        goal = next(iter(texts_of(request.messages, Role.USER)), "")
        return replace(line, content=line.content.replace("{goal}", goal))


def texts_of(messages: Sequence[ChatMessage], role: Role) -> list[str]:
    """Return the texts of one side of a conversation, in order."""
    return [message.content.text or "" for message in messages if message.role is role]
