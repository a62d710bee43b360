"""Waiting calls end: at their deadline, by cancellation, when the gate closes; and leave nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import pytest

from harborage.events import (
    MemoryEventBus,
    PatternRedactor,
    ToolApprovedPayload,
)
from harborage.identity import Quadruple
from harborage.runtime.approval import (
    DEFAULT_TIMEOUT,
    AlwaysDeny,
    ApprovalCancelledError,
    ApprovalDecision,
    ApprovalGate,
    ApprovalNotFoundError,
    ApprovalRequest,
    GateClosedError,
    ToolRejectedError,
)
from harborage.runtime.pauses import (
    Coordinator,
    PauseDecision,
)
from harborage.state.errors import DatabaseError
from harborage.store import Commit, Committed
from harborage.store.memory import MemoryStore
from harborage.testing.clock import FakeClock, settle
from harborage.testing.events import EventRecorder

Calling = Callable[..., ApprovalRequest]
Gating = Callable[..., ApprovalGate]

APPROVE, REJECT = ApprovalDecision.APPROVE, ApprovalDecision.REJECT
ADMIN = frozenset({"admin"})

Waiting = Callable[[ApprovalGate, ApprovalRequest], AbstractAsyncContextManager[tuple[asyncio.Task[bytes], str]]]


async def test_at_its_deadline_a_call_is_refused(
    gating: Gating,
    calling: Calling,
    clock: FakeClock,
    coordinator: Coordinator,
    recorder: EventRecorder,
    waiting: Waiting,
) -> None:
    """Not a moment earlier; the pause records the default as its decision."""
    gate = gating(timeout=timedelta(minutes=5))
    async with waiting(gate, calling()) as (task, token):
        await clock.run_for(299.999)
        assert not task.done()
        await clock.run_for(0.001)
        with pytest.raises(ToolRejectedError, match="no answer before the deadline"):
            await task
    assert (await coordinator.status(token)).decision is PauseDecision.REJECT
    assert recorder.types[2:] == ["pause.resumed", "tool.rejected"]


async def test_a_gate_may_approve_by_default(
    gating: Gating, calling: Calling, clock: FakeClock, recorder: EventRecorder, waiting: Waiting
) -> None:
    """Where it is configured, silence is consent, and the event says so."""
    gate = gating(timeout=timedelta(minutes=5), default=APPROVE)
    async with waiting(gate, calling()) as (task, _):
        await clock.run_for(300)
        assert await task == b'{"amount": 7}'
    assert recorder.payloads(ToolApprovedPayload)[0].approver_reason == "no answer before the deadline"


async def test_without_a_timeout_a_call_waits_for_an_answer(
    gating: Gating, calling: Calling, clock: FakeClock, owner: Quadruple, waiting: Waiting
) -> None:
    """A month later the answer still counts; meanwhile it is only looked for now and then."""
    gate = gating(timeout=None, recheck_s=86_400.0)
    async with waiting(gate, calling()) as (task, token):
        assert clock.armed == 1
        await clock.run_for(30 * 24 * 3600)
        assert clock.armed == 1
        await gate.resolve_approval(token, APPROVE, who=owner, scopes=ADMIN)
        assert await task == b'{"amount": 7}'


async def test_an_answer_in_time_calls_the_timer_off(
    gate: ApprovalGate, calling: Calling, clock: FakeClock, owner: Quadruple, waiting: Waiting
) -> None:
    """Nothing ticks for a call that has gone on."""
    async with waiting(gate, calling()) as (task, token):
        assert clock.armed == 1
        await gate.resolve_approval(token, APPROVE, who=owner, scopes=ADMIN)
        await task
        assert clock.armed == 0


async def test_an_answer_and_the_timer_in_the_same_moment_have_one_outcome(
    gating: Gating, calling: Calling, clock: FakeClock, owner: Quadruple, coordinator: Coordinator, waiting: Waiting
) -> None:
    """The timer fired, but another caller resolved the pause before the call had its turn: that answer counts."""
    gate = gating(timeout=timedelta(minutes=5))
    async with waiting(gate, calling()) as (task, token):
        clock.advance(300)
        await coordinator.expire(token)
        with pytest.raises(ApprovalNotFoundError):
            await gate.resolve_approval(token, APPROVE, who=owner, scopes=ADMIN)
        with pytest.raises(ToolRejectedError, match="no answer before"):
            await task


async def test_a_timer_that_fires_too_early_is_armed_again(
    bus: MemoryEventBus, calling: Calling, clock: FakeClock, waiting: Waiting
) -> None:
    """The coordinator's clock decides; the call looks again until it agrees."""
    slow = FakeClock(clock.now() - timedelta(milliseconds=120))
    gate = ApprovalGate(
        AlwaysDeny(), Coordinator(clock=slow), bus, PatternRedactor(), timeout=timedelta(seconds=1), clock=clock
    )
    async with waiting(gate, calling()) as (task, _):
        slow.advance(1)
        await clock.run_for(1)
        assert not task.done()
        slow.advance(0.12)
        await clock.run_for(0.05)
        with pytest.raises(ToolRejectedError):
            await task


async def test_a_default_that_cannot_be_kept_fails_the_call(
    bus: MemoryEventBus, calling: Calling, clock: FakeClock, waiting: Waiting
) -> None:
    """The store refused, so nothing was decided and nothing runs."""

    class Refusing(MemoryStore):
        is_refusing = False

        async def commit(self, commit: Commit) -> Committed:
            if self.is_refusing:
                raise DatabaseError("memory", "refused")
            return await super().commit(commit)

    store = Refusing()
    pauses = Coordinator(store=store, clock=clock)
    gate = ApprovalGate(AlwaysDeny(), pauses, bus, PatternRedactor(), clock=clock, recheck_s=86_400.0)
    async with waiting(gate, calling()) as (task, _):
        store.is_refusing = True
        await clock.run_for(DEFAULT_TIMEOUT.total_seconds())
        with pytest.raises(DatabaseError):
            await task
    assert len(gate.tokens) == 0


async def test_a_cancelled_call_leaves_its_pause_open(
    gate: ApprovalGate, calling: Calling, coordinator: Coordinator, owner: Quadruple, waiting: Waiting
) -> None:
    """The cancellation itself goes on, with the reason as its cause; a later answer finds no call."""
    async with waiting(gate, calling()) as (task, token):
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
    assert type(caught.value) is asyncio.CancelledError
    cause = caught.value.__cause__
    assert isinstance(cause, ApprovalCancelledError)
    assert (cause.token, cause.tool) == (token, "pay")
    assert (await coordinator.status(token)).is_paused
    with pytest.raises(ApprovalNotFoundError):
        await gate.resolve_approval(token, APPROVE, who=owner, scopes=ADMIN)


async def test_a_timeout_around_a_waiting_call_works(gate: ApprovalGate, calling: Calling) -> None:
    """asyncio's own timeout is what its caller sees."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await gate.run_guarded(calling())


async def test_25_cancelled_calls_leave_nothing(
    gate: ApprovalGate, calling: Calling, clock: FakeClock, waiting: Waiting
) -> None:
    """No waiter, no timer, no listener, no task."""
    tasks_before = asyncio.all_tasks()
    for _ in range(25):
        async with waiting(gate, calling()) as (task, _):
            assert len(gate.tokens) == 1
            task.cancel()
    assert len(gate.tokens) == 0
    assert clock.armed == 0
    assert gate._coordinator._waiters._wakers == {}  # type: ignore[attr-defined]
    assert asyncio.all_tasks() == tasks_before


async def test_an_approval_that_was_cancelled_by_its_approver_can_be_repeated(
    bus: MemoryEventBus, calling: Calling, clock: FakeClock, owner: Quadruple, waiting: Waiting
) -> None:
    """An answer that never reached the store is no answer."""

    class Stopping(MemoryStore):
        stop: asyncio.Event | None = None

        async def commit(self, commit: Commit) -> Committed:
            if self.stop is not None:
                await self.stop.wait()
            return await super().commit(commit)

    store = Stopping()
    gate = ApprovalGate(AlwaysDeny(), Coordinator(store=store, clock=clock), bus, PatternRedactor(), clock=clock)
    async with waiting(gate, calling()) as (task, token):
        store.stop = asyncio.Event()
        approving = asyncio.create_task(gate.resolve_approval(token, APPROVE, who=owner, scopes=ADMIN))
        await settle()
        assert gate.owner(token) is None
        approving.cancel()
        await asyncio.gather(approving, return_exceptions=True)
        store.stop = None
        assert gate.owner(token) == owner
        await gate.resolve_approval(token, REJECT, "no", who=owner, scopes=ADMIN)
        with pytest.raises(ToolRejectedError, match="no"):
            await task


async def test_a_closed_gate_lets_nothing_through(
    gate: ApprovalGate, calling: Calling, owner: Quadruple, coordinator: Coordinator, waiting: Waiting
) -> None:
    """Waiting calls are turned away, their pauses stay; closing twice does nothing."""
    async with waiting(gate, calling()) as (task, token):
        await gate.aclose()
        await gate.aclose()
        with pytest.raises(GateClosedError):
            await task
    assert (await coordinator.status(token)).is_paused
    with pytest.raises(GateClosedError):
        await gate.run_guarded(calling(tool=""))
    with pytest.raises(GateClosedError):
        await gate.resolve_approval(token, "nonsense")  # type: ignore[arg-type]
    assert len(gate.tokens) == 0


async def test_a_gate_that_closes_while_a_call_is_on_its_way_turns_it_away(
    bus: MemoryEventBus, calling: Calling, clock: FakeClock
) -> None:
    """The pause was being stored, so no caller could have answered it."""

    class Stopping(MemoryStore):
        stop = asyncio.Event()

        async def commit(self, commit: Commit) -> Committed:
            await self.stop.wait()
            return await super().commit(commit)

    store = Stopping()
    gate = ApprovalGate(AlwaysDeny(), Coordinator(store=store, clock=clock), bus, PatternRedactor(), clock=clock)
    task = asyncio.create_task(gate.run_guarded(calling()))
    await settle()
    await gate.aclose()
    store.stop.set()
    with pytest.raises(GateClosedError):
        await task
