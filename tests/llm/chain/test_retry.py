"""An answer that the validator refuses is asked for again, with what was wrong with it."""

from __future__ import annotations

import asyncio

import pytest

from harborage.events import LLMRetryWithFeedbackPayload, MemoryEventBus
from harborage.identity import Quadruple, bound, effective_quadruple
from harborage.llm import (
    ChatMessage,
    ClientClosedError,
    CompleteRequest,
    CompleteResponse,
    ConfigSnapshot,
    Content,
    Deps,
    LLMConfigError,
    ModelProfile,
    RateLimitedError,
    RetryExhaustedError,
    Role,
)
from harborage.llm.chain.retry import Retrying, corrective_turn
from harborage.testing.clock import FakeClock
from harborage.testing.events import EventRecorder
from harborage.testing.llm import ScriptedLLM

pytestmark = pytest.mark.anyio

WHO = Quadruple("t", "u", "s", "r")
MODEL = "m"
QUESTION = ChatMessage(Role.USER, Content(text="the question"))


class Bench:
    """A retrying client over a script, and its events."""

    def __init__(self, *script, retries: int | None = 1, profiles: dict | None = None) -> None:
        self.inner = ScriptedLLM(script)
        bus = MemoryEventBus()
        self.recorder = EventRecorder(bus)
        known = {MODEL: ModelProfile(context_window_tokens=1000, max_retries=retries)}
        cfg = ConfigSnapshot(model=MODEL, profiles=known if profiles is None else profiles)
        self.client = Retrying(self.inner, cfg, Deps(artifacts=None, bus=bus, clock=FakeClock()))

    async def ask(self, **fields) -> CompleteResponse:
        """The answer to a question, `good` being the only one that is taken."""
        request = CompleteRequest(**{"messages": [QUESTION], "validator": only_good, **fields})
        with bound(WHO):
            return await self.client.complete(request)

    @property
    def events(self) -> list[LLMRetryWithFeedbackPayload]:
        return self.recorder.payloads(LLMRetryWithFeedbackPayload)


def only_good(response: CompleteResponse) -> None:
    """Take `good` and refuse everything else."""
    if response.content != "good":
        raise ValueError(f"{response.content or 'nothing'} is not good")


async def test_without_a_validator_everything_passes():
    """A request without a validator goes through unchanged, with any answer."""
    bench = Bench("bad")
    request = CompleteRequest(messages=[QUESTION])
    with bound(WHO):
        answer = await bench.client.complete(request)
    assert answer.content == "bad"
    assert bench.inner.requests == [request]
    assert bench.inner.requests[0] is request


async def test_a_good_answer_is_taken_at_once():
    """One call and no event when the validator is content."""
    bench = Bench("good")
    assert (await bench.ask()).content == "good"
    assert len(bench.inner.requests) == 1
    assert bench.events == []


async def test_bad_then_good():
    """A refused answer is asked for again: two calls, one event, and the caller gets the good one."""
    bench = Bench("bad", "good")
    assert (await bench.ask()).content == "good"
    assert len(bench.inner.requests) == 2
    [event] = bench.events
    assert (event.attempt, event.max_retries, event.reason) == (1, 1, "bad is not good")
    assert (event.identity, event.model) == (WHO, MODEL)


async def test_bad_and_bad_again():
    """When the last answer allowed is refused too, the error lists every reason and holds the last answer."""
    bench = Bench("bad", "worse")
    with pytest.raises(RetryExhaustedError) as caught:
        await bench.ask()
    assert len(bench.inner.requests) == 2
    assert len(bench.events) == 1
    assert "after 1 retries" in str(caught.value)
    assert "attempt=0 reason=bad is not good | attempt=1 reason=worse is not good" in str(caught.value)
    assert caught.value.response is not None
    assert caught.value.response.content == "worse"


async def test_no_retries_is_a_choice():
    """A profile with zero retries makes one call, and the first refusal is the end."""
    bench = Bench("bad", retries=0)
    with pytest.raises(RetryExhaustedError, match="after 0 retries"):
        await bench.ask()
    assert len(bench.inner.requests) == 1
    assert bench.events == []


@pytest.mark.parametrize("profiles", [{}, {MODEL: ModelProfile(context_window_tokens=1000)}])
async def test_one_retry_by_default(profiles):
    """A model without a profile, or whose profile is silent, gets one retry."""
    bench = Bench("bad", "good", profiles=profiles)
    assert (await bench.ask()).content == "good"


async def test_the_profile_of_the_requests_model_counts():
    """A request that names a model is retried as often as that model's profile says."""
    profiles = {
        MODEL: ModelProfile(context_window_tokens=1, max_retries=0),
        "other": ModelProfile(context_window_tokens=1, max_retries=2),
    }
    bench = Bench("bad", "bad", "good", profiles=profiles)
    assert (await bench.ask(model="other")).content == "good"
    assert [event.attempt for event in bench.events] == [1, 2]
    assert {event.model for event in bench.events} == {"other"}


async def test_each_attempt_starts_from_the_original_messages():
    """The corrective turn follows the original question; earlier refused answers are not carried along."""
    bench = Bench("first", "second", "good", retries=2)
    await bench.ask()
    first, second, third = (request.messages for request in bench.inner.requests)
    assert first == (QUESTION,)
    assert second == (QUESTION, *corrective_turn("first", "first is not good"))
    assert third == (QUESTION, *corrective_turn("second", "second is not good"))


async def test_an_empty_answer_is_not_quoted():
    """After an empty answer the corrective turn is the user's message alone."""
    bench = Bench("", "good")
    await bench.ask()
    [_, added] = bench.inner.requests[1].messages
    assert added.role is Role.USER
    assert "nothing is not good" in (added.content.text or "")


def test_the_corrective_turn():
    """The model sees its own answer and the complaint, the complaint cut to 256 bytes."""
    echo, complaint = corrective_turn("answer", "x" * 300)
    assert (echo.role, echo.content.text) == (Role.ASSISTANT, "answer")
    assert "x" * 256 + "…" in (complaint.content.text or "")
    assert "x" * 257 not in (complaint.content.text or "")


async def test_long_reasons_are_cut():
    """A reason takes 256 bytes in the event and 160 in the error."""

    def refuse(response):
        raise ValueError("y" * 999)

    bench = Bench("bad", "bad")
    with pytest.raises(RetryExhaustedError) as caught:
        await bench.ask(validator=refuse)
    assert bench.events[0].reason == "y" * 256 + "…"
    assert "y" * 160 + "…" in str(caught.value)
    assert "y" * 161 not in str(caught.value)


async def test_an_inner_error_is_never_retried():
    """What the call itself raises comes out at once, also when a retry is left."""
    bench = Bench(RateLimitedError("slow down"), "good")
    with pytest.raises(RateLimitedError):
        await bench.ask()
    assert len(bench.inner.requests) == 1


async def test_the_callers_messages_stay():
    """The caller's list has its old length after a retry."""
    messages = [QUESTION]
    await Bench("bad", "good").ask(messages=messages)
    assert messages == [QUESTION]


async def test_cancelled_before_an_attempt():
    """A caller that was asked to stop gets the cancellation, and no further call is made."""
    bench = Bench("bad", "good")

    def cancel_and_refuse(response):
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        raise ValueError("bad")

    task = asyncio.ensure_future(bench.ask(validator=cancel_and_refuse))
    await asyncio.wait([task])
    assert task.cancelled()
    assert len(bench.inner.requests) == 1


async def test_streaming_listeners_get_a_reset_between_attempts():
    """Deltas come as they are made, there is a reset between two attempts, and `done` comes once, at the end."""
    bench = Bench("bad", "good")
    received = []
    await bench.ask(
        stream=True,
        on_content=lambda delta, done: received.append("done" if done else delta),
        on_reset=lambda: received.append("reset"),
    )
    assert received == ["bad", "reset", "good", "done"]


async def test_streaming_listeners_get_done_when_retries_run_out():
    """Callbacks get `done` although no answer was good enough."""
    bench = Bench("bad", "bad")
    received = []
    with pytest.raises(RetryExhaustedError):
        await bench.ask(stream=True, on_content=lambda delta, done: received.append(done))
    assert received == [False, False, True]


async def test_many_at_once():
    """128 calls with one bad answer each get their own good one, under their own identity."""
    bench = Bench(lambda request: CompleteResponse("bad"), lambda request: CompleteResponse("good"))
    seen = []

    def check(response):
        who = effective_quadruple()
        assert who is not None
        seen.append(who.run_id)
        only_good(response)

    async def one(number: int) -> str:
        request = CompleteRequest(messages=[QUESTION], validator=check)
        with bound(Quadruple("t", "u", "s", f"r-{number}")):
            return (await bench.client.complete(request)).content

    assert await asyncio.gather(*(one(number) for number in range(128))) == ["good"] * 128
    assert sorted(event.identity.run_id for event in bench.events) == sorted(set(seen))
    assert len(seen) == 256


async def test_closing():
    """Closing closes the client inside, and nothing is asked afterwards."""
    bench = Bench("good")
    await bench.client.close()
    await bench.client.close()
    assert bench.inner.is_closed
    with pytest.raises(ClientClosedError):
        await bench.ask()


def test_nothing_inside():
    """A layer around nothing is refused when it is made."""
    with pytest.raises(LLMConfigError):
        Retrying(None, ConfigSnapshot(), Deps(artifacts=None, bus=None))


async def test_a_failing_bus_never_fails_a_call():
    """An event that cannot be published does not cost the caller the answer."""

    class Broken:
        def publish_nowait(self, event):
            raise RuntimeError("no bus")

    inner = ScriptedLLM(["bad", "good"])
    client = Retrying(inner, ConfigSnapshot(model=MODEL), Deps(artifacts=None, bus=Broken(), clock=FakeClock()))
    with bound(WHO):
        answer = await client.complete(CompleteRequest(messages=[QUESTION], validator=only_good))
    assert answer.content == "good"
