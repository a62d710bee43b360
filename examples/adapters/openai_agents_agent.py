"""Two openai-agents agents, run by Harborage: every turn, every call and the handoff between them is a step.

    pip install 'harborage[openai-agents]'
    harborage run examples/adapters/openai_agents_agent.py "Do we have enough screws?"

The agents are plain openai-agents. Their model here is a script, so that the example runs without a key and offline;
name a real one in its place. `order` asks for approval when it is large, as its own framework would have it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from agents import Agent as OpenAIAgent
from agents import ModelResponse, RunContextWrapper, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call

from harborage.app import Agent
from harborage.planner.adapters import adapt_openai_agents
from harborage.tools import SideEffect, ToolOptions

set_tracing_disabled(True)  # the framework sends traces to its maker unless it is told not to


class Offline(ScriptedModel):
    """Counts, hands over to the buyer, orders, reports: what a real model would decide from the same history."""

    async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **more: Any) -> ModelResponse:
        self.enqueue([next_item(input)])
        return await super().get_response(system_instructions, input, *rest, **more)

    def stream_response(self, system_instructions: Any, input: Any, *rest: Any, **more: Any) -> AsyncIterator[Any]:
        self.enqueue([next_item(input)])
        return super().stream_response(system_instructions, input, *rest, **more)


def next_item(history: list[dict[str, Any]]) -> Any:
    """The model's next item after this history."""
    answers = [item["output"] for item in history if item.get("type") == "function_call_output"]
    match answers:
        case []:
            return function_call("count", {"item": "screws"}, call_id="count-1")
        case [_]:
            return function_call("transfer_to_buyer", {}, call_id="buyer-1")
        case [_, _]:
            return function_call("order", {"item": "screws", "number": 60}, call_id="order-1")
        case [counted, _, ordered, *_]:
            return assistant_message(f"There were {counted} screws. The buyer says: {ordered}.")


@function_tool
def count(ctx: RunContextWrapper[dict[str, int]], item: str) -> int:
    """How many of an item are on the shelf."""
    return ctx.context.get(item, 0)


async def is_large(ctx: RunContextWrapper[Any], args: dict[str, Any], call_id: str) -> bool:
    """Whether an order needs a person's word."""
    return int(args.get("number", 0)) > 50


@function_tool(needs_approval=is_large)
def order(item: str, number: int) -> str:
    """Order more of an item."""
    return f"ordered {number} {item}"


model = Offline()  # or leave `model` out of the agents and set OPENAI_API_KEY
buyer = OpenAIAgent(name="buyer", model=model, instructions="You order what is missing.", tools=[order])
keeper = OpenAIAgent(
    name="keeper",
    model=model,
    instructions="You look after a workshop's shelf. Keep a hundred of everything; the buyer orders.",
    tools=[count],
    handoffs=[buyer],
)

adapted = adapt_openai_agents(
    keeper,
    context={"screws": 40},
    tool_options={
        "count": ToolOptions(effects=SideEffect.READ),
        "order": ToolOptions(effects=SideEffect.EXTERNAL),
    },
)

agent = Agent(
    name="shelf-keeper",
    description="Two openai-agents agents: one counts, the other asks before it orders much",
    planner=adapted.planner,
    tools=adapted.tools,
    approvals=adapted.approvals,
)
