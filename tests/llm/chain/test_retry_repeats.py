"""Calls whose failure is safe to repeat are made again, patiently and not for ever."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.identity import Quadruple, bound
from harborage.llm import (
    AuthenticationFailedError,
    BadRequestError,
    ClientClosedError,
    CompleteRequest,
    CompleteResponse,
    ConfigSnapshot,
    ConnectionFailedError,
    Deps,
    IncompleteAnswerError,
    LLMConfigError,
    MalformedAnswerError,
    ProviderError,
    ProviderTimeoutError,
    ProviderUnavailableError,
    QuotaExceededError,
    RateLimitedError,
    Retry,
    TransportPolicy,
)
from harborage.llm.chain.retry import Resilient, backoff_s, wait_s
from harborage.testing.clock import FakeClock, settle
from harborage.testing.llm import ScriptedLLM
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

WHO = Quadruple("t", "u", "s", "r")
POLICY = TransportPolicy(max_retries=2, base_s=1.0, max_s=8.0, max_retry_after_s=60.0)
BUSY = ProviderUnavailableError("busy")


class Bench:
    """A resilient client over a script, on a clock that does not move, with dice that always show 1."""

    def __init__(self, *script, policy: TransportPolicy = POLICY, dice: float = 1.0) -> None:
        self.inner = ScriptedLLM(script)
        self.clock = FakeClock()
        deps = Deps(artifacts=None, bus=None, clock=self.clock, random=lambda: dice)
        self.client = Resilient(self.inner, ConfigSnapshot(transport=policy), deps)

    @property
    def calls(self) -> int:
        return len(self.inner.requests)

    def begin(self, **fields) -> asyncio.Future[CompleteResponse]:
        """A call that is under way."""

        async def call() -> CompleteResponse:
            with bound(WHO):
                return await self.client.complete(CompleteRequest(**fields))

        return asyncio.ensure_future(call())

    async def ask(self, **fields) -> CompleteResponse:
        """A call, with as much time as it takes."""
        task = self.begin(**fields)
        await self.clock.run_for(1000)
        assert task.done()
        return task.result()


# --- how long to wait


@given(st.just(0.0) | st.floats(0.001, 100), st.floats(0, 100), st.integers(0, 5000), st.floats(0, 1, exclude_max=True))
def test_backoff_keeps_its_bounds(base, most, retries, dice):
    """A wait lies between half and the whole of the doubled base, and never above the maximum."""
    policy = TransportPolicy(base_s=base, max_s=most)
    wait = backoff_s(policy, retries, dice)
    whole = min(most, base * 2.0 ** min(retries, 900))
    assert whole / 2 <= wait <= whole


@given(st.floats(0.001, 10), st.floats(0, 1, exclude_max=True))
def test_backoff_doubles(base, dice):
    """With the same dice every wait is twice the one before, until the maximum."""
    policy = TransportPolicy(base_s=base, max_s=1e9)
    waits = [backoff_s(policy, retries, dice) for retries in range(5)]
    assert all(later == pytest.approx(2 * earlier) for earlier, later in pairwise(waits))


@each_row("asked, wait", [(0.0, 0.0), (3.5, 3.5), (60.0, 60.0), (60.1, None), (-5.0, 0.0)])
def test_what_the_provider_asks_for_counts(asked, wait):
    """Retry-After is honoured to the second; one longer than we bear means that there is no repeat."""
    assert wait_s(POLICY, RateLimitedError(retry_after_s=asked), 0, 0.5) == wait


def test_a_retry_after_that_is_no_number():
    """Our own wait is used instead."""
    assert wait_s(POLICY, RateLimitedError(retry_after_s=float("nan")), 0, 1.0) == 1.0


@each_row("kind", [BadRequestError, AuthenticationFailedError, QuotaExceededError, ProviderError])
def test_errors_that_time_does_not_heal(kind):
    """A call that was refused for good is not repeated, even if the provider asks for a wait."""
    assert wait_s(POLICY, kind(retry_after_s=1.0), 0, 0.5) is None


# --- the repeats


@each_row(
    "kind",
    [
        RateLimitedError,
        ProviderUnavailableError,
        ProviderTimeoutError,
        ConnectionFailedError,
        IncompleteAnswerError,
        MalformedAnswerError,
    ],
)
async def test_safe_failures_are_repeated(kind):
    """A failure that is safe to repeat is followed by another call, and its answer counts."""
    bench = Bench(kind("once"), "fine")
    assert (await bench.ask()).content == "fine"
    assert bench.calls == 2


async def test_an_error_that_says_so_itself():
    """The `retry` of the error counts, not its class."""
    error = BadRequestError("odd but passing")
    error.retry = Retry.SAFE
    assert (await Bench(error, "fine").ask()).content == "fine"


@each_row("error", [BadRequestError("no"), AuthenticationFailedError("no"), ValueError("a bug")])
async def test_other_failures_come_out_at_once(error):
    """Neither a refusal nor a bug is repeated."""
    bench = Bench(error, "never")
    with pytest.raises(type(error)) as caught:
        await bench.ask()
    assert caught.value is error
    assert bench.calls == 1


async def test_the_last_failure_comes_out():
    """After the last repeat the error is raised as it is."""
    last = RateLimitedError("still")
    bench = Bench(BUSY, BUSY, last, "never")
    with pytest.raises(RateLimitedError) as caught:
        await bench.ask()
    assert caught.value is last
    assert bench.calls == 3


async def test_no_repeats():
    """A policy without repeats passes the request on as it is."""
    bench = Bench(BUSY, policy=TransportPolicy(max_retries=0))
    with pytest.raises(ProviderUnavailableError):
        await bench.ask()
    assert bench.calls == 1


async def test_waits_on_the_injected_clock():
    """The waits are those of the policy, on the given clock."""
    bench = Bench(BUSY, BUSY, "fine")
    task = bench.begin()
    await bench.clock.run_for(0.99)
    assert bench.calls == 1
    await bench.clock.run_for(0.02)
    assert bench.calls == 2
    await bench.clock.run_for(1.9)
    assert bench.calls == 2
    await bench.clock.run_for(0.2)
    assert task.result().content == "fine"


async def test_the_dice_shorten_the_wait():
    """Low dice halve the wait, so that many callers do not come back at once."""
    bench = Bench(BUSY, "fine", dice=0.0)
    task = bench.begin()
    await bench.clock.run_for(0.51)
    assert task.done()


async def test_retry_after_is_honoured():
    """The repeat comes when the provider asked for it, not sooner."""
    bench = Bench(RateLimitedError("slow down", retry_after_s=20.0), "fine")
    task = bench.begin()
    await bench.clock.run_for(19.9)
    assert bench.calls == 1
    await bench.clock.run_for(0.2)
    assert task.result().content == "fine"


async def test_a_retry_after_beyond_bearing():
    """A provider that asks for an hour fails the call now."""
    bench = Bench(RateLimitedError("slow down", retry_after_s=3600.0), "never")
    with pytest.raises(RateLimitedError):
        await bench.ask()
    assert bench.clock.armed == 0


async def test_a_caller_that_will_have_gone():
    """A wait beyond the caller's deadline is not begun: the failure is raised at once."""
    bench = Bench(RateLimitedError("slow down", retry_after_s=20.0), "never")
    deadline = bench.clock.now() + timedelta(seconds=20)
    task = bench.begin(deadline=deadline)
    await settle()
    assert isinstance(task.exception(), RateLimitedError)
    patient = Bench(RateLimitedError("slow down", retry_after_s=20.0), "fine")
    assert (await patient.ask(deadline=deadline + timedelta(seconds=1))).content == "fine"


async def test_cancelled_while_waiting():
    """A cancelled caller stops waiting at once and leaves no timer; others are not disturbed."""
    bench = Bench(BUSY, "fine")
    task = bench.begin()
    await settle()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert bench.clock.armed == 0
    assert bench.calls == 1


# --- streaming


async def test_the_output_of_a_broken_stream_is_voided():
    """Callbacks get a reset before the repeat, and `done` once, for the answer that counts."""

    def break_off(request):
        request.on_reasoning("hm", False)
        request.on_content("ha", False)
        request.on_reasoning("", True)
        request.on_content("", True)
        raise IncompleteAnswerError("cut")

    received = []
    await Bench(break_off, "whole").ask(
        stream=True,
        on_content=lambda delta, done: received.append("done" if done else delta),
        on_reasoning=lambda delta, done: received.append("thought" if done else delta),
        on_reset=lambda: received.append("reset"),
    )
    assert received == ["hm", "ha", "reset", "whole", "thought", "done"]


async def test_a_stream_that_never_began_needs_no_reset():
    """Nothing is voided when nothing was streamed."""
    received = []
    await Bench(BUSY, "whole").ask(
        stream=True, on_content=lambda delta, done: received.append(delta), on_reset=lambda: received.append("reset")
    )
    assert received == ["whole", ""]


async def test_done_comes_when_every_attempt_failed():
    """Callbacks get `done` on errors and on cancellation."""

    def break_off(request):
        request.on_content("ha", False)
        request.on_content("", True)
        raise IncompleteAnswerError("cut")

    received = []
    with pytest.raises(IncompleteAnswerError):
        await Bench(break_off, break_off, break_off).ask(
            stream=True,
            on_content=lambda delta, done: received.append("done" if done else delta),
            on_reset=lambda: received.append("reset"),
        )
    assert received == ["ha", "reset", "ha", "reset", "ha", "done"]
    bench, received = Bench(break_off, "never"), []
    task = bench.begin(stream=True, on_content=lambda delta, done: received.append(done))
    await settle()
    task.cancel()
    await asyncio.wait([task])
    assert received == [False, True]


async def test_many_at_once():
    """128 calls that fail once each get their own answer, and their streams do not mix."""
    bench = Bench(BUSY, lambda request: CompleteResponse(request.model))
    received: dict[str, list[str]] = {}

    async def one(number: int) -> str:
        name = f"model-{number}"
        received[name] = []
        request = CompleteRequest(model=name, stream=True, on_content=lambda delta, done: received[name].append(delta))
        with bound(Quadruple("t", "u", "s", f"r-{number}")):
            return (await bench.client.complete(request)).content

    tasks = [asyncio.ensure_future(one(number)) for number in range(128)]
    await bench.clock.run_for(10)
    assert [task.result() for task in tasks] == [f"model-{number}" for number in range(128)]
    assert all("".join(deltas) == name for name, deltas in received.items())
    assert bench.clock.armed == 0


async def test_closing():
    """Closing closes the client inside, and nothing is asked afterwards; a layer around nothing is refused."""
    bench = Bench("ok")
    await bench.client.close()
    assert bench.inner.is_closed
    with pytest.raises(ClientClosedError):
        await bench.client.complete(CompleteRequest())
    with pytest.raises(LLMConfigError):
        Resilient(None, ConfigSnapshot(), Deps(artifacts=None, bus=None))
