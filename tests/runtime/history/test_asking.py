"""The prompts of one step are those that the model was sent, whole, whatever the record keeps of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from harborage import codec
from harborage.identity import Identity
from harborage.llm import ChatMessage, CompleteRequest, CompleteResponse, Content, Role, ToolDeclaration
from harborage.planner import Finish, FinishReason
from harborage.runtime.durable.journal import Done, JournalCorruptError
from harborage.runtime.durable.model_records import (
    MISSING,
    Exchange,
    ExchangeRecorder,
    Prompt,
    RecordedAnswer,
    RecordedRequest,
    Settings,
    prompts_of,
)
from harborage.runtime.history.asking import asks_of
from harborage.runtime.history.builder import build_history
from harborage.runtime.history.reading import open_record
from harborage.runtime.host import Runtime
from harborage.runtime.loop.state import Planned
from harborage.testing.llm import calls_tools, says
from harborage.tools import tool

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
T0 = datetime(2026, 1, 1, tzinfo=UTC)


class Sent:
    """A model that keeps what it was sent."""

    def __init__(self) -> None:
        self.requests: list[CompleteRequest] = []

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        """Call a tool three times, then answer."""
        self.requests.append(request)
        number = len(self.requests)
        return says("done") if number == 4 else calls_tools(("look", {"at": number}))

    async def close(self) -> None: ...


@tool
async def look(at: int) -> int:
    """Look."""
    return at


async def test_every_prompt_is_what_was_sent() -> None:
    """In each step, with the number of messages that it has in common with the call before."""
    model = Sent()
    async with Runtime(model=model, tools=[look]) as runtime:
        run = await runtime.start("the goal", who=ME)
        await run.finished()
        opened = open_record(await run.history())
    for number, request in enumerate(model.requests, 1):
        (ask,) = asks_of(opened.entries, number, opened.run_id)
        assert ask.prompt.messages == tuple(request.messages)
        assert [one.name for one in ask.prompt.tools] == [one.name for one in request.tools]
        assert ask.has_new_tools is (number == 1)
        assert ask.unchanged == (0 if number == 1 else len(model.requests[number - 2].messages))
        assert ask.answer is not None


async def test_a_step_that_is_not_there_asked_nothing() -> None:
    """A step beyond the record, like one of a planner without a model, has no calls of a model."""
    async with Runtime(model=Sent(), tools=[look]) as runtime:
        run = await runtime.start("the goal", who=ME)
        await run.finished()
        opened = open_record(await run.history())
    assert asks_of(opened.entries, 5, opened.run_id) == []


TEXTS = some.lists(some.sampled_from("abcd"), max_size=6)
PROMPTS = some.lists(some.tuples(TEXTS, some.integers(0, 2), some.integers(0, 2)), min_size=1, max_size=8)


def prompt(texts: list[str], tools: int, temperature: int) -> Prompt:
    messages = tuple(ChatMessage(Role.USER, Content(text=text)) for text in texts)
    named = tuple(ToolDeclaration(name=f"tool-{tools}", description="", schema={}) for _ in range(tools))
    return Prompt(messages, named, Settings(temperature=temperature / 2))


@given(PROMPTS)
def test_any_sequence_of_prompts_is_read_back(wanted: list[tuple[list[str], int, int]]) -> None:
    """Whatever a prompt has in common with earlier ones, it is read as it was, as by reading all of them."""
    recorder, prompts = ExchangeRecorder(), [prompt(*one) for one in wanted]
    exchanges = [Exchange(recorder.encode_request(one), RecordedAnswer()) for one in prompts]
    entries = [plan(index, exchange) for index, exchange in enumerate(exchanges)]
    assert prompts_of(exchanges) == prompts
    assert [asks_of(entries, number, "run-1")[0].prompt for number in range(1, len(prompts) + 1)] == prompts


def plan(at: int, exchange: Exchange) -> Any:
    planned = Planned(decision=Finish(FinishReason.GOAL), heard=msgspec.Raw(codec.encode([exchange])))
    return Done(at=T0, position=str(2 * at + 1), name="plan", result=msgspec.Raw(codec.encode(planned)))


def test_a_message_that_the_record_lacks_is_said_to_be_missing() -> None:
    """An exchange that could not be recorded whole does not shift the messages of the others."""
    entries = [plan(0, Exchange(RecordedRequest(2, messages=(ChatMessage(Role.USER, Content(text="a")),))))]
    (ask,) = asks_of(entries, 1, "run-1")
    assert [one.content.text for one in ask.prompt.messages] == ["a", MISSING.content.text]


def test_an_exchange_that_goes_back_too_far_is_refused() -> None:
    """The error names the run and the entry."""
    entries = [plan(0, Exchange(RecordedRequest(1, follows=3, kept=((0, 1),))))]
    with pytest.raises(JournalCorruptError, match="run run-1, entry 0"):
        asks_of(entries, 1, "run-1")


async def test_a_history_counts_the_calls_that_are_shown() -> None:
    """What the history counts as asked is what a step shows."""
    async with Runtime(model=Sent(), tools=[look]) as runtime:
        run = await runtime.start("the goal", who=ME)
        await run.finished()
        record = await run.history()
    opened, history = open_record(record), build_history(record)
    shown = [len(asks_of(opened.entries, step.number, opened.run_id)) for step in history.steps]
    assert shown == [len(step.asked) for step in history.steps] == [1, 1, 1, 1]
