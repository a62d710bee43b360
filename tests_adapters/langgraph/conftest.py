"""A bench of langgraph agents, whose chat model is a script in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool

from harborage import codec
from harborage.llm import ChatMessage, CompleteResponse, Content, Role, ToolCallStructured
from harborage.planner.adapters import Adapted, adapt_langgraph
from harborage.testing.conformance.adapters import NeutralRequest, ScriptedModel


class BrainModel(BaseChatModel):
    """A chat model of the framework that asks the brain, streamed or not."""

    brain: Any
    names: tuple[str, ...] = ()

    @property
    def _llm_type(self) -> str:
        return "brain"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
        """The model with the names of its tools."""
        return self.model_copy(update={"names": tuple(getattr(one, "name", str(one)) for one in tools)})

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        raise NotImplementedError("this model is asked asynchronously")

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=as_message(await self._ask(messages)))])

    async def _astream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        answer = await self._ask(messages)
        for start in range(0, len(answer.content), 4):
            yield ChatGenerationChunk(message=AIMessageChunk(answer.content[start : start + 4]))
        pieces = [
            {"name": call.name, "args": call.args.decode(), "id": call.id, "index": call.index}
            for call in answer.tool_calls
        ]
        yield ChatGenerationChunk(message=AIMessageChunk("", tool_call_chunks=pieces, chunk_position="last"))

    async def _ask(self, messages: Sequence[BaseMessage]) -> CompleteResponse:
        system = "\n".join(str(one.content) for one in messages if one.type == "system")
        return await self.brain.answer(NeutralRequest(list(neutral(messages)), self.names, system))


def as_message(answer: CompleteResponse) -> AIMessage:
    """An answer as the framework's message."""
    calls = [{"name": call.name, "args": codec.decode(call.args), "id": call.id} for call in answer.tool_calls]
    return AIMessage(answer.content, tool_calls=calls)


def neutral(messages: Sequence[BaseMessage]) -> Iterator[ChatMessage]:
    """The framework's messages in neutral words."""
    for message in messages:
        match message:
            case AIMessage():
                calls = [
                    ToolCallStructured(call["id"] or "", call["name"], codec.encode(call["args"]), index)
                    for index, call in enumerate(message.tool_calls)
                ]
                yield ChatMessage(Role.ASSISTANT, Content(text=message.text), tool_calls=calls)
            case ToolMessage():
                yield ChatMessage(Role.TOOL, Content(text=message.text), tool_call_id=message.tool_call_id)
            case BaseMessage(type="human"):
                yield ChatMessage(Role.USER, Content(text=str(message.content)))
            case _:
                pass


class Bench:
    """Builds plain agents of the framework."""

    def adapt(self, brain: ScriptedModel, functions: Sequence[Any], tool_options: Any = None) -> Adapted:
        """An agent with these functions as tools."""
        graph = create_agent(BrainModel(brain=brain), [tool(one) for one in functions], system_prompt="be brief")
        return adapt_langgraph(graph, tool_options=tool_options)

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
    """The framework's chat model over a brain."""
    return BrainModel
