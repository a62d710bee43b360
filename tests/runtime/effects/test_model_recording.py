"""The model calls of a planner are recorded by step and by run; recording never fails a run."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from harborage import codec
from harborage.identity import Identity, bound
from harborage.llm import ChatMessage, CompleteRequest, Content, RateLimitedError, Role
from harborage.runtime.durable.model_records import Exchange, ExchangeRecorder, prompts_of
from harborage.runtime.effects.model_recording import NO_EXCHANGES, ModelRecorder, StepExchanges
from harborage.testing.llm import ScriptedLLM

pytestmark = pytest.mark.anyio

ONE, OTHER = (Identity("t", "u", "s").with_run(run) for run in ("one", "other"))
LOG = logging.getLogger("test.model_recording")


def asking(text: str, **fields: Any) -> CompleteRequest:
    return CompleteRequest(messages=[ChatMessage(Role.USER, Content(text=text))], **fields)


def read(step: StepExchanges, transcript: ExchangeRecorder | None = None) -> list[Exchange]:
    found: list[Exchange] = codec.decode(bytes(step.encode(transcript or ExchangeRecorder(), LOG)), list[Exchange])
    return found


async def test_a_step_records_the_model_calls_in_it() -> None:
    """In the order of asking, answers and failures alike; the caller gets what the client gives."""
    model_recorder = ModelRecorder()
    client = model_recorder.wrap(ScriptedLLM(["one", RateLimitedError("slow down")]))
    step = model_recorder.begin(ONE)
    with bound(ONE):
        assert (await client.complete(asking("first"))).content == "one"
        with pytest.raises(RateLimitedError):
            await client.complete(asking("second"))
    model_recorder.end(ONE)
    exchanges = read(step)
    assert [one.messages[0].content.text for one in prompts_of(exchanges)] == ["first", "second"]
    assert exchanges[0].answer is not None
    assert exchanges[1].failure is not None
    assert exchanges[1].failure.kind == "RateLimitedError"


async def test_each_run_receives_its_own() -> None:
    """One client serves all runs; what one asks is not on another's record."""
    model_recorder = ModelRecorder()
    client = model_recorder.wrap(ScriptedLLM(["a", "b"]))
    steps = {who: model_recorder.begin(who) for who in (ONE, OTHER)}

    async def ask(who: Any, text: str) -> None:
        with bound(who):
            await client.complete(asking(text))

    await asyncio.gather(ask(ONE, "mine"), ask(OTHER, "theirs"))
    assert [prompts_of(read(steps[who]))[0].messages[0].content.text for who in (ONE, OTHER)] == ["mine", "theirs"]


async def test_a_model_call_outside_a_step_is_not_recorded() -> None:
    """Before a step begins, after it ended, and without a run."""
    model_recorder = ModelRecorder()
    client = model_recorder.wrap(ScriptedLLM(["a", "b", "c"]))
    step = model_recorder.begin(ONE)
    model_recorder.end(ONE)
    with bound(ONE):
        await client.complete(asking("late"))
    with bound(OTHER):
        await client.complete(asking("elsewhere"))
    assert step.encode(ExchangeRecorder(), LOG) is NO_EXCHANGES


async def test_a_call_that_was_cut_short_has_no_answer_to_record() -> None:
    """The step hears nothing of it."""
    model_recorder = ModelRecorder()

    class Slow:
        async def complete(self, request: CompleteRequest) -> Any:
            await asyncio.Event().wait()

        async def close(self) -> None: ...

    client = model_recorder.wrap(Slow())
    step = model_recorder.begin(ONE)
    with bound(ONE), pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await client.complete(asking("a"))
    assert step.encode(ExchangeRecorder(), LOG) is NO_EXCHANGES


async def test_what_cannot_be_recorded_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """The run goes on, the log says so, and what comes next is recorded whole."""
    model_recorder, transcript = ModelRecorder(), ExchangeRecorder()
    client = model_recorder.wrap(ScriptedLLM(["a", "b"]))
    step = model_recorder.begin(ONE)
    with bound(ONE), caplog.at_level(logging.WARNING):
        await client.complete(asking("x", extra={"bad": object()}))
        await client.complete(asking("x"))
        exchanges = read(step, transcript)
    assert "could not be recorded" in caplog.text
    assert (exchanges[0].answer, exchanges[0].failure) == (None, None)
    assert prompts_of(exchanges)[1].messages[0].content.text == "x"


async def test_closing_closes_the_client_inside() -> None:
    """The wrapper owns nothing of its own."""
    inner = ScriptedLLM()
    await ModelRecorder().wrap(inner).close()
    assert inner.is_closed
