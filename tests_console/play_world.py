"""Agents to talk to: one writes its answer word by word, one works for long, one says what should never run.

`harborage dev tests_console/play_world.py` serves them.
"""

from __future__ import annotations

import asyncio
from typing import Final

from harborage import Agent
from harborage.llm import CompleteRequest, CompleteResponse
from harborage.testing.llm import ScriptedLLM, says
from tests_console.run_world import hostile, shop, slow

PACE_S: Final = 0.06
ANSWER: Final = (
    "Two things run out: **tea** on Wednesday and **salt** on Thursday.\n\n"
    "- 20 tea at €11.40: €228.00\n- 8 salt at €2.10: €16.80\n\nCarrier not included. Shall I order?"
)


class TypingLLM(ScriptedLLM):
    """Says the same to whatever is asked, a word at a time."""

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        if request.stream and request.on_reasoning:
            request.on_reasoning("What is short, and what does it cost?", False)
        if request.stream and request.on_content:
            for word in ANSWER.split(" "):
                request.on_content(f"{word} ", False)
                await asyncio.sleep(PACE_S)
        return CompleteResponse(ANSWER, reasoning="What is short, and what does it cost?")


typist = Agent("typist", instructions="Answer at length.", model=TypingLLM([says("unused")]))

agents = [typist, shop, slow, hostile]
