"""A provider that is down interrupts a run and does not end it: it waits, asks again, and fails after long enough."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage import Finish, FinishReason, Identity, Run, RunContext, Runtime, RuntimeOptions, codec
from harborage.events import EventType
from harborage.events.memory_bus import MemoryEventBus
from harborage.llm import ConfigSnapshot, ModelProfile, TransportPolicy
from harborage.llm.errors import (
    AuthenticationFailedError,
    BadRequestError,
    ConnectionFailedError,
    ProviderUnavailableError,
    QuotaExceededError,
    RateLimitedError,
)
from harborage.runtime.durable.engine import RunFailedError, RunPhase
from harborage.runtime.effects.outages import STORED_PATIENCE, next_attempt, outage_of
from harborage.state.storage import open_storage
from harborage.testing.clock import FakeClock
from harborage.testing.conformance.llm_bench import Failure, Refusal
from harborage.testing.events import EventRecorder
from tests.kit.llm_server import LLMServer

pytestmark = pytest.mark.anyio

WHO = Identity("t", "u", "s")
GOAL = Finish(FinishReason.GOAL, "ok")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
DOWN = ProviderUnavailableError("no capacity")


class Flaky:
    """Fails with `error` as long as `is_down`; counts its calls and keeps its requests."""

    def __init__(self, error: Exception = DOWN) -> None:
        self.error = error
        self.is_down = True
        self.calls = 0
        self.messages: tuple[str, ...] = ()

    async def next(self, run: RunContext) -> Any:
        self.calls += 1
        if self.is_down:
            raise RuntimeError("planner") from self.error
        self.messages = run.control.user_messages
        return Finish(FinishReason.CANCELLED, "stopped") if run.control.cancelled else GOAL


@asynccontextmanager
async def opened(where: str, planner: Any, clock: FakeClock, **parts: Any) -> AsyncIterator[Runtime]:
    """A runtime in memory, or over a storage that is opened with the same clock."""
    if where == "memory":
        async with Runtime(planner=planner, clock=clock, **parts) as rt:
            yield rt
        return
    async with (
        await open_storage(where, clock=clock) as storage,
        Runtime(planner=planner, clock=clock, storage=storage, **parts) as rt,
    ):
        yield rt


@pytest.fixture(params=["memory", "stored", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"memory": "memory", "stored": "memory:", "sqlite": f"sqlite:{tmp_path / 'runs.db'}"}[request.param]


async def until(clock: FakeClock, holds: Any) -> None:
    """Let real time of other threads pass, and none of the clock's, until `holds()`."""
    for _ in range(2_000):
        if holds():
            return
        await clock.run_for(0)
        await asyncio.sleep(0.001)
    raise AssertionError("it did not come true")


async def parked(clock: FakeClock | None, run: Run) -> str:
    """The reason of a run once it waits."""
    for _ in range(2_000):
        status = await run.status()
        if status.phase is RunPhase.PARKED:
            return status.reason
        if clock is not None:
            await clock.run_for(0)
        await asyncio.sleep(0.001)
    raise AssertionError(f"the run does not wait: {status}")


async def ended(clock: FakeClock, run: Run) -> Finish:
    result = asyncio.ensure_future(run.finished())
    await until(clock, result.done)
    return await result


# ── The rules ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_only_what_waiting_cures_is_an_outage() -> None:
    """Found through the errors that it caused; a refused key, a bad request and an empty account are none."""
    for error, is_outage in (
        (ProviderUnavailableError("x"), True),
        (ConnectionFailedError("x"), True),
        (RateLimitedError("x"), True),
        (AuthenticationFailedError("x"), False),
        (BadRequestError("x"), False),
        (QuotaExceededError("x"), False),
        (ValueError("x"), False),
    ):
        outer = RuntimeError("outer")
        outer.__cause__ = error
        assert (outage_of(outer) is error) is is_outage, error
    around = RuntimeError()
    around.__cause__ = around
    assert outage_of(around) is None


@given(
    st.integers(1, 200),
    st.floats(0, 90_000),
    st.floats(0, 86_400),
    st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)),
)
def test_every_wait_is_bounded_and_the_last_attempt_is_at_the_limit(
    attempts: int, gone_s: float, patience_s: float, asked_s: float | None
) -> None:
    """The next attempt is later than now, not later than the patience allows, and none comes after that."""
    since, now, patience = NOW, NOW + timedelta(seconds=gone_s), timedelta(seconds=patience_s)
    at = next_attempt(attempts, since=since, now=now, patience=patience, asked_s=asked_s, key="r/1")
    if now >= since + patience:
        assert at is None
    else:
        assert at is not None
        assert now < at <= since + patience


def test_waits_grow_to_a_quarter_of_an_hour() -> None:
    """15 seconds at first, twice as long each time, less up to a quarter; a longer wait that is asked for counts."""
    for attempts, longest in ((1, 15), (2, 30), (3, 60), (7, 900), (100, 900)):
        at = next_attempt(attempts, since=NOW, now=NOW, patience=STORED_PATIENCE, key="r")
        assert at is not None
        assert longest * 0.75 <= (at - NOW).total_seconds() <= longest, attempts
    assert next_attempt(1, since=NOW, now=NOW, patience=STORED_PATIENCE, asked_s=500) == NOW + timedelta(seconds=500)


# ── Runs ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_run_waits_for_its_provider_and_goes_on(place: str) -> None:
    """It is parked with the reason, tries again when its time comes, and finishes; its planner lost no step by it."""
    clock, planner, bus = FakeClock(), Flaky(), MemoryEventBus()
    recorder = EventRecorder(bus)
    async with opened(place, planner, clock, bus=bus) as rt:
        run = await rt.start("go", who=WHO, max_steps=1)
        assert (await parked(clock, run)).startswith("interrupted: provider unavailable: ")
        assert planner.calls == 1
        planner.is_down = False
        await clock.run_for(16)
        assert await ended(clock, run) == GOAL
    assert planner.calls == 2
    (warning,) = [event.payload for event in recorder.events if event.type == EventType.RUNTIME_WARNING]
    assert "attempt 1 failed, next attempt at " in codec.encode_text(warning)
    assert not [event for event in recorder.events if event.type == EventType.PLANNER_ERROR]


async def test_resume_tries_now_and_is_an_applied_control(place: str) -> None:
    """Nothing is asked before its time but on RESUME, which is published as applied; a message has it tried, too."""
    clock, planner = FakeClock(), Flaky()
    async with opened(place, planner, clock) as rt:
        run = await rt.start("go", who=WHO)
        await parked(clock, run)
        await run.resume()
        await until(clock, lambda: planner.calls == 2)
        await parked(clock, run)
        planner.is_down = False
        await run.message("try the other one")
        assert await ended(clock, run) == GOAL
        assert [(one.type, one.err) for one in rt.control_history(who=WHO)] == [
            ("RESUME", None),
            ("USER_MESSAGE", None),
        ]
    assert (planner.calls, planner.messages) == (3, ("try the other one",))


async def test_a_run_that_waited_long_enough_fails_and_says_so(place: str) -> None:
    """After the patience of its runtime, with the number of attempts; not one attempt comes after that."""
    clock, planner = FakeClock(), Flaky()
    options, began = RuntimeOptions(provider_patience=timedelta(seconds=60)), clock.now()
    bus = MemoryEventBus()
    recorder = EventRecorder(bus)
    async with opened(place, planner, clock, options=options, bus=bus) as rt:
        run = await rt.start("go", who=WHO)
        result = asyncio.ensure_future(run.finished())
        while not result.done():
            assert clock.now() - began < timedelta(hours=1)
            await clock.run_for(5)
            await asyncio.sleep(0.001)
        with pytest.raises(RunFailedError, match="planner"):
            await result
        warnings = [codec.encode_text(one.payload) for one in recorder.events if one.type == EventType.RUNTIME_WARNING]
        # The clock goes on while a disk is slow, so it may be a few minutes.
        assert re.search(rf"given up after {planner.calls} attempts in 0:0[1-9]:", warnings[-1])
        assert len(warnings) == planner.calls
        assert (await rt.replay(await run.history())).is_same
        calls = planner.calls
        await clock.run_for(600)
        assert planner.calls == calls


async def test_what_waiting_does_not_cure_ends_the_run_at_once(place: str) -> None:
    """So does every outage where the runtime has no patience."""
    for error, options in (
        (AuthenticationFailedError("no such key"), RuntimeOptions()),
        (DOWN, RuntimeOptions(provider_patience=timedelta())),
    ):
        clock, planner = FakeClock(), Flaky(error)
        async with opened(place, planner, clock, options=options) as rt:
            run = await rt.start("go", who=WHO)
            with pytest.raises(RunFailedError, match="planner"):
                await ended(clock, run)
        assert planner.calls == 1


async def test_a_waiting_run_heeds_cancels_and_its_deadline(place: str) -> None:
    """A hard cancel ends it, a soft one gives the planner its word, and its deadline comes in the middle of a wait."""
    clock, planner = FakeClock(), Flaky()
    async with opened(place, planner, clock) as rt:
        hard = await rt.start("go", who=WHO)
        await parked(clock, hard)
        await hard.cancel(hard=True)
        assert (await ended(clock, hard)).reason is FinishReason.CANCELLED
        soft = await rt.start("go", who=WHO)
        await parked(clock, soft)
        planner.is_down = False
        await soft.cancel()
        assert (await ended(clock, soft)).reason is FinishReason.CANCELLED
        planner.is_down = True
        late = await rt.start("go", who=WHO, deadline=clock.now() + timedelta(seconds=5))
        await parked(clock, late)
        calls = planner.calls
        await clock.run_for(6)
        assert (await ended(clock, late)).reason is FinishReason.DEADLINE_EXCEEDED
        assert planner.calls == calls


async def test_attempts_are_counted_across_processes(tmp_path: Path) -> None:
    """A run whose process ended while it waited goes on waiting in the next one: same time, same count, same limit."""
    url, clock, planner = f"sqlite:{tmp_path / 'runs.db'}", FakeClock(), Flaky()
    options = RuntimeOptions(provider_patience=timedelta(seconds=40))
    async with opened(url, planner, clock, options=options) as rt:
        run = await rt.start("go", who=WHO)
        await parked(clock, run)
    async with opened(url, planner, clock, options=options) as rt:
        run = await rt.run(run.id, who=WHO)
        assert (await run.status()).reason.startswith("interrupted: provider unavailable")
        assert planner.calls == 1
        await clock.run_for(39)
        assert not (await run.status()).phase.is_final
        await clock.run_for(2)
        with pytest.raises(RunFailedError):
            await ended(clock, run)


async def test_a_run_that_waited_replays() -> None:
    """The attempts that failed are no steps: what was recorded comes out again."""
    clock, planner = FakeClock(), Flaky()
    async with Runtime(planner=planner, clock=clock) as rt:
        run = await rt.start("go", who=WHO)
        await parked(clock, run)
        await run.message("hello")
        await until(clock, lambda: planner.calls == 2)
        await parked(clock, run)
        planner.is_down = False
        await clock.run_for(20)
        await ended(clock, run)
        replayed = await rt.replay(await run.history())
        assert (replayed.is_same, replayed.is_whole) == (True, True), replayed.summary()


async def test_a_real_server_that_refuses_and_then_serves(tmp_path: Path) -> None:
    """Over the whole chain: its own retries first, then the run waits, and the answer comes when the server is back."""
    async with LLMServer() as server:
        config = ConfigSnapshot(
            driver="openai_compat",
            provider="test",
            model="m",
            base_url=server.base_url(),
            api_key="k",
            profiles={"m": ModelProfile(context_window_tokens=8_000)},
            transport=TransportPolicy(max_retries=1, base_s=0.0, max_s=0.0),
        )
        server.script(*[Refusal(failure=Failure.OVERLOADED)] * 2, "here I am")
        async with Runtime(model=config, storage=f"sqlite:{tmp_path / 'runs.db'}") as rt:
            run = await rt.start("go", who=WHO)
            await server.until(lambda one: len(one.requests) == 2 and not one.busy)
            async for event in run.events():
                if event.type == EventType.RUNTIME_WARNING:
                    break
            await parked(None, run)
            await run.resume()
            assert (await asyncio.wait_for(run.finished(), 10)).reason is FinishReason.GOAL
        assert len(server.requests) == 3
