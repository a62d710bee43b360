"""A langchain agent on langgraph, run by Harborage: every turn and every call is a step.

    pip install 'harborage[langgraph]'
    harborage run examples/adapters/langgraph_agent.py "Do we have enough screws?"

The agent is a plain `create_agent`. Its chat model here is a script, so that the example runs without a key and
offline; give a real one in its place. Its tools do not ask for approval by themselves, so the runtime does.
"""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain.tools import ToolRuntime
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool

from harborage.app import Agent
from harborage.planner.adapters import adapt_langgraph
from harborage.runtime.approval import AlwaysDeny
from harborage.tools import SideEffect, ToolOptions


class Offline(BaseChatModel):
    """Counts, orders what is missing, reports: what a real model would decide from the same history."""

    @property
    def _llm_type(self) -> str:
        return "offline"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        """A script needs no declarations."""
        return self

    def _generate(self, messages: list[BaseMessage], *rest: Any, **more: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=next_message(messages))])


def next_message(history: list[BaseMessage]) -> AIMessage:
    """The model's next message after this history."""
    answers = [message.text for message in history if message.type == "tool"]
    match answers:
        case []:
            return calling("count", {"item": "screws"})
        case [_]:
            return calling("order", {"item": "screws", "number": 60})
        case [counted, ordered, *_]:
            return AIMessage(f"There were {counted} screws. The shop says: {ordered}.")


def calling(name: str, args: dict[str, Any]) -> AIMessage:
    """A message that calls one tool."""
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"{name}-1"}])


@tool
def count(item: str, runtime: ToolRuntime[dict[str, int], Any]) -> int:
    """How many of an item are on the shelf."""
    return runtime.context.get(item, 0)


@tool
def order(item: str, number: int) -> str:
    """Order more of an item."""
    return f"ordered {number} {item}"


graph = create_agent(
    Offline(),  # or "openai:gpt-…", "anthropic:…"
    [count, order],
    system_prompt="You look after a workshop's shelf. Keep a hundred of everything.",
    context_schema=dict,
)

adapted = adapt_langgraph(
    graph,
    context={"screws": 40},
    tool_options={
        "count": ToolOptions(effects=SideEffect.READ),
        "order": ToolOptions(effects=SideEffect.EXTERNAL),
    },
)

agent = Agent(
    name="shelf-keeper",
    description="A langgraph agent that counts, and is held before it orders",
    planner=adapted.planner,
    tools=adapted.tools,
    approvals={"order": AlwaysDeny("orders cost money")},
)
