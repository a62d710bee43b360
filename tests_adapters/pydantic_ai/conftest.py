"""A bench of pydantic-ai agents, whose model is a function."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from harborage import codec
from harborage.llm import ChatMessage, CompleteResponse, Content, Role, ToolCallStructured
from harborage.planner.adapters import Adapted, adapt_pydantic_ai
from harborage.testing.conformance.adapters import NeutralRequest, ScriptedModel


def model_of(brain: ScriptedModel) -> FunctionModel:
    """A model of the framework that asks the brain, streamed or not."""

    async def whole(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        answer = await brain.answer(seen_by(messages, info))
        return ModelResponse(parts=parts_of(answer))

    async def streamed(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        answer = await brain.answer(seen_by(messages, info))
        for start in range(0, len(answer.content), 4):
            yield answer.content[start : start + 4]
        for index, call in enumerate(answer.tool_calls):
            yield {index: DeltaToolCall(call.name, call.args.decode(), tool_call_id=call.id)}

    return FunctionModel(whole, stream_function=streamed)


def parts_of(answer: CompleteResponse) -> list[Any]:
    """An answer in the framework's parts."""
    parts: list[Any] = [ThinkingPart(answer.reasoning)] if answer.reasoning else []
    parts += [TextPart(answer.content)] if answer.content else []
    return [*parts, *(ToolCallPart(call.name, call.args.decode(), tool_call_id=call.id) for call in answer.tool_calls)]


def seen_by(messages: Sequence[ModelMessage], info: AgentInfo) -> NeutralRequest:
    """The framework's request in neutral words."""
    system = [
        part.content for one in messages if isinstance(one, ModelRequest) for part in one.parts if is_system(part)
    ]
    said = [message for one in messages for message in neutral(one)]
    return NeutralRequest(
        said, [tool.name for tool in info.function_tools], "\n".join([*system, info.instructions or ""])
    )


def is_system(part: Any) -> bool:
    """Whether a part of a request is the system's."""
    return isinstance(part, SystemPromptPart)


def neutral(message: ModelMessage) -> Iterator[ChatMessage]:
    """A message of the framework in neutral words."""
    if isinstance(message, ModelResponse):
        calls = [
            ToolCallStructured(part.tool_call_id, part.tool_name, part.args_as_json_str().encode(), index)
            for index, part in enumerate(message.tool_calls)
        ]
        yield ChatMessage(Role.ASSISTANT, Content(text=message.text), tool_calls=calls)
        return
    for part in message.parts:
        match part:
            case UserPromptPart(content=str(text)):
                yield ChatMessage(Role.USER, Content(text=text))
            case UserPromptPart():
                yield ChatMessage(Role.USER, Content(text=codec.encode_text([str(one) for one in part.content])))
            case ToolReturnPart():
                text = part.model_response_str()
                yield ChatMessage(Role.TOOL, Content(text=text), name=part.tool_name, tool_call_id=part.tool_call_id)
            case _:
                pass


class Bench:
    """Builds plain agents of the framework."""

    def adapt(self, brain: ScriptedModel, functions: Sequence[Any], tool_options: Any = None) -> Adapted:
        """An agent with these functions as plain tools."""
        agent = Agent(model_of(brain), instructions="be brief")
        for function in functions:
            agent.tool_plain(function)
        return adapt_pydantic_ai(agent, tool_options=tool_options)

    async def aclose(self) -> None:
        """Nothing to release."""


async def open_bench() -> Bench:
    """A fresh bench."""
    return Bench()


@pytest.fixture(name="open_bench")
def open_bench_fixture() -> Any:
    """How the suite opens a bench."""
    return open_bench


@pytest.fixture(name="model_of")
def model_of_fixture() -> Any:
    """The framework's model over a brain."""
    return model_of
