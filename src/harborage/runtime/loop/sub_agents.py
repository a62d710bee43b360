"""The agents that an agent may call like tools, as a run records them when it starts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec


class Way(StrEnum):
    """How an agent uses another: it waits for the answer, goes on meanwhile, or hands the conversation over."""

    CALL = "call"
    BACKGROUND = "background"
    HANDOFF = "handoff"


class SubAgent(msgspec.Struct, frozen=True, omit_defaults=True):
    """An agent that a run may call under the name `tool`, as the run records it when it starts."""

    tool: str
    agent: str
    way: Way = Way.CALL


def args_schema(way: Way) -> dict[str, Any]:
    """The schema of the arguments of a call."""
    text = {"type": "string"}
    if way is Way.HANDOFF:
        note = {**text, "description": "What the agent should know that the user did not say."}
        return {"type": "object", "properties": {"note": note}, "additionalProperties": False}
    goal = {**text, "description": "What it shall do, complete in itself: it sees nothing of this conversation."}
    return {"type": "object", "properties": {"goal": goal}, "required": ["goal"], "additionalProperties": False}


def by_tool(agents: tuple[SubAgent, ...]) -> Mapping[str, SubAgent]:
    """The agents that a run may call, by the name that a call has."""
    return {one.tool: one for one in agents}
