"""A pydantic-ai agent, run by Harborage: every turn and every call is a step that can be held, steered and carried on.

    pip install 'harborage[pydantic-ai]'
    harborage run examples/adapters/pydantic_ai_agent.py "Do we have enough screws?"

The agent is plain pydantic-ai. Its model here is a function, so that the example runs without a key and offline; put
the name of a real one in its place. `order` asks for approval, as its own framework would have it.
"""

from __future__ import annotations

from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from harborage.app import Agent
from harborage.planner.adapters import adapt_pydantic_ai
from harborage.tools import SideEffect, ToolOptions


class Shelf(BaseModel):
    """The answer, checked by the framework before it counts."""

    item: str
    on_shelf: int
    ordered: int


def offline(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Count, order what is missing, report: what a real model would decide from the same history."""
    answers = [
        part.model_response_str()
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
    match answers:
        case []:
            return ModelResponse(parts=[ToolCallPart("count", {"item": "screws"})])
        case [_]:
            return ModelResponse(parts=[ToolCallPart("order", {"item": "screws", "number": 60})])
        case [counted, ordered, *_]:
            found = {"item": "screws", "on_shelf": int(counted), "ordered": 60 if ordered.startswith("ordered") else 0}
            return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, found)])


keeper = PydanticAgent(
    FunctionModel(offline),  # or "openai:gpt-…", "anthropic:…"
    deps_type=dict[str, int],
    output_type=Shelf,
    instructions="You look after a workshop's shelf. Keep a hundred of everything.",
)


@keeper.tool
def count(ctx: RunContext[dict[str, int]], item: str) -> int:
    """How many of an item are on the shelf."""
    return ctx.deps.get(item, 0)


@keeper.tool_plain(requires_approval=True)
def order(item: str, number: int) -> str:
    """Order more of an item."""
    return f"ordered {number} {item}"


adapted = adapt_pydantic_ai(
    keeper,
    deps={"screws": 40},
    tool_options={
        "count": ToolOptions(effects=SideEffect.READ),
        "order": ToolOptions(effects=SideEffect.EXTERNAL),
    },
)

agent = Agent(
    name="shelf-keeper",
    description="A pydantic-ai agent that counts, and asks before it orders",
    planner=adapted.planner,
    tools=adapted.tools,
    approvals=adapted.approvals,
)
