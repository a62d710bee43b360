"""A bench of openai-agents agents, whose model is a script in this process; the framework's tracing is off."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
from agents import Agent, Model, ModelResponse, Usage, function_tool, set_tracing_disabled
from agents.testing import assistant_message, function_call
from openai.types.responses import Response, ResponseCompletedEvent, ResponseTextDeltaEvent

from harborage.llm import ChatMessage, CompleteResponse, Content, Role, ToolCallStructured
from harborage.planner.adapters import Adapted, adapt_openai_agents
from harborage.testing.conformance.adapters import NeutralRequest, ScriptedModel


class BrainModel(Model):
    """A model of the framework that asks the brain, streamed or not."""

    def __init__(self, brain: ScriptedModel) -> None:
        self.brain = brain
        self.settings: list[Any] = []
        self.schemas: list[Any] = []

    async def get_response(
        self,
        system_instructions: Any,
        input: Any,
        model_settings: Any,
        tools: Any,
        output_schema: Any,
        *rest: Any,
        **_: Any,
    ) -> ModelResponse:
        answer = await self._ask(system_instructions, input, model_settings, tools, output_schema)
        return ModelResponse(output=items_of(answer), usage=Usage(input_tokens=7, output_tokens=3), response_id=None)

    async def stream_response(
        self,
        system_instructions: Any,
        input: Any,
        model_settings: Any,
        tools: Any,
        output_schema: Any,
        *rest: Any,
        **_: Any,
    ) -> AsyncIterator[Any]:
        answer = await self._ask(system_instructions, input, model_settings, tools, output_schema)
        for start in range(0, len(answer.content), 4):
            yield ResponseTextDeltaEvent(
                type="response.output_text.delta",
                delta=answer.content[start : start + 4],
                item_id="m",
                output_index=0,
                content_index=0,
                sequence_number=start,
                logprobs=[],
            )
        whole = Response(
            id="r",
            created_at=0,
            model="brain",
            object="response",
            output=items_of(answer),
            parallel_tool_calls=True,
            tool_choice="auto",
            tools=[],
        )
        yield ResponseCompletedEvent(type="response.completed", response=whole, sequence_number=99)

    async def _ask(self, system: Any, input: Any, settings: Any, tools: Any, schema: Any) -> CompleteResponse:
        self.settings.append(settings)
        self.schemas.append(schema)
        return await self.brain.answer(
            NeutralRequest(list(neutral(input)), [tool.name for tool in tools], system or "")
        )


def items_of(answer: CompleteResponse) -> list[Any]:
    """An answer in the framework's items."""
    items: list[Any] = [assistant_message(answer.content)] if answer.content else []
    return [*items, *(function_call(call.name, call.args.decode(), call_id=call.id) for call in answer.tool_calls)]


def neutral(input: Any) -> Iterator[ChatMessage]:
    """The framework's input in neutral words: text and calls that follow each other are one message."""
    if isinstance(input, str):
        yield ChatMessage(Role.USER, Content(text=input))
        return
    said, calls = "", []
    for item in [*input, {}]:
        if item.get("type") == "function_call":
            args = item["arguments"].encode()
            calls.append(ToolCallStructured(item["call_id"], item["name"], args, len(calls)))
            continue
        if said or calls:
            yield ChatMessage(Role.ASSISTANT, Content(text=said), tool_calls=calls)
            said, calls = "", []
        if item.get("type") == "function_call_output":
            yield ChatMessage(Role.TOOL, Content(text=item["output"]), tool_call_id=item["call_id"])
        elif item.get("role") == "assistant":
            said = item["content"]
        elif item:
            yield ChatMessage(Role.USER, Content(text=str(item["content"])))


class Bench:
    """Builds plain agents of the framework."""

    def adapt(self, brain: ScriptedModel, functions: Sequence[Any], tool_options: Any = None) -> Adapted:
        """An agent with these functions as function tools."""
        tools = [function_tool(function) for function in functions]
        agent = Agent(name="bench", model=BrainModel(brain), instructions="be brief", tools=tools)
        return adapt_openai_agents(agent, tool_options=tool_options)

    async def aclose(self) -> None:
        """Nothing to release."""


async def open_bench() -> Bench:
    """A fresh bench."""
    return Bench()


@pytest.fixture(name="open_bench")
def open_bench_fixture() -> Any:
    """How the suite opens a bench."""
    return open_bench


@pytest.fixture(name="brain_model")
def brain_model_fixture() -> Any:
    """The framework's model over a brain."""
    return BrainModel


@pytest.fixture(autouse=True, scope="session")
def no_tracing() -> None:
    """Nothing leaves the machine."""
    set_tracing_disabled(True)
