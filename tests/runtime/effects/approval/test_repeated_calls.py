"""Calls that are repeated under their key, and approvals that are for another call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import pytest

from harborage.events import (
    MemoryEventBus,
    PatternRedactor,
)
from harborage.identity import Quadruple
from harborage.runtime.approval import (
    AlwaysDeny,
    ApprovalDecision,
    ApprovalGate,
    ApprovalMismatchError,
    ApprovalRequest,
    InvalidApprovalError,
    ToolRejectedError,
    answer_approval,
)
from harborage.runtime.pauses import (
    Coordinator,
    Pause,
    PauseFilter,
    PauseReason,
    PauseRequest,
)
from harborage.store.memory import MemoryStore
from harborage.testing.clock import FakeClock, settle
from harborage.testing.events import EventRecorder

Calling = Callable[..., ApprovalRequest]
Gating = Callable[..., ApprovalGate]

APPROVE, REJECT = ApprovalDecision.APPROVE, ApprovalDecision.REJECT
ADMIN = frozenset({"admin"})
INTRUDER = Quadruple("evil", "eve", "s6", "r6")
COLLEAGUE = Quadruple("acme", "bob", "s2")

Waiting = Callable[[ApprovalGate, ApprovalRequest], AbstractAsyncContextManager[tuple[asyncio.Task[bytes], str]]]


async def test_a_call_that_comes_back_waits_on_the_pause_it_had(
    gating: Gating, calling: Calling, owner: Quadruple, bus: MemoryEventBus, clock: FakeClock, waiting: Waiting
) -> None:
    """All processes stop, seven days pass, one starts: the call re-enters, is approved and gets its very bytes."""
    store = MemoryStore()
    call = calling(key="r1/7")
    timeout = timedelta(days=30)
    async with waiting(gating(coordinator=Coordinator(store=store, clock=clock), timeout=timeout), call) as (_, token):
        pass
    clock.advance(7 * 24 * 3600)
    coordinator = Coordinator(store=store, bus=bus, clock=clock)
    gate = gating(coordinator=coordinator, timeout=timeout)
    async with waiting(gate, call) as (task, again):
        assert again == token
        assert (await coordinator.list(who=owner)).total == 1
        await gate.resolve_approval(token, APPROVE, who=COLLEAGUE, scopes=ADMIN)
        assert await task == call.args


async def test_a_deadline_that_passed_meanwhile_decides_when_the_call_comes_back(
    gating: Gating, calling: Calling, clock: FakeClock, waiting: Waiting
) -> None:
    """It is not asked again and does not wait."""
    store, call = MemoryStore(), calling(key="r1/7")
    async with waiting(gating(coordinator=Coordinator(store=store, clock=clock)), call):
        pass
    clock.advance(8 * 24 * 3600)
    gate = gating(coordinator=Coordinator(store=store, clock=clock))
    task = asyncio.create_task(gate.run_guarded(call))
    await clock.run_for(0)
    with pytest.raises(ToolRejectedError, match="no answer before"):
        await task


async def test_an_answer_given_before_is_taken_when_the_call_comes_back(
    gate: ApprovalGate, calling: Calling, owner: Quadruple, recorder: EventRecorder, waiting: Waiting
) -> None:
    """The call was cut short after its approval; under its key it need not ask again."""
    call = calling(key="r1/7")
    async with waiting(gate, call) as (task, token):
        await gate.resolve_approval(token, APPROVE, who=owner, scopes=ADMIN)
        task.cancel()
    assert await gate.run_guarded(call) == call.args
    assert recorder.types.count("tool.approval_requested") == 1


@pytest.mark.parametrize("change", [{"args": b'{"amount": 8}'}, {"tool": "refund"}])
async def test_another_call_under_the_same_key_is_refused(
    gate: ApprovalGate, calling: Calling, owner: Quadruple, change: dict[str, Any], waiting: Waiting
) -> None:
    """A stale approval never reaches changed arguments."""
    async with waiting(gate, calling(key="r1/7")) as (task, token):
        await gate.resolve_approval(token, APPROVE, who=owner, scopes=ADMIN)
        await task
    with pytest.raises(ApprovalMismatchError) as caught:
        await gate.run_guarded(calling(key="r1/7", **change))
    assert caught.value.token == token


async def test_another_principal_under_the_same_key_is_asked_for_itself(
    gate: ApprovalGate, calling: Calling, owner: Quadruple, waiting: Waiting
) -> None:
    """Keys belong to their owner and run."""
    async with waiting(gate, calling(key="k")) as (_, token):
        await gate.resolve_approval(token, APPROVE, who=owner, scopes=ADMIN)
        async with waiting(gate, calling(key="k", identity=INTRUDER)) as (_, other):
            assert other != token


async def test_a_call_cannot_wait_twice(gate: ApprovalGate, calling: Calling, waiting: Waiting) -> None:
    """One approval must not release two calls."""
    call = calling(key="r1/7")
    async with waiting(gate, call) as (task, _):
        with pytest.raises(InvalidApprovalError, match="waits under this key already"):
            await gate.run_guarded(call)
        assert not task.done()
        assert len(gate.tokens) == 1


async def test_a_pause_that_was_changed_in_the_store_is_worth_nothing(
    bus: MemoryEventBus, calling: Calling, clock: FakeClock, owner: Quadruple, waiting: Waiting
) -> None:
    """The fingerprint is compared when the answer comes: both sides learn that it is for another call."""

    class Tampering(Coordinator):
        async def resume(self, *args: Any, **options: Any) -> Pause:
            token, decision, payload = args
            return await super().resume(token, decision, {**payload, "fingerprint": "f" * 64}, **options)

    gate = ApprovalGate(AlwaysDeny(), Tampering(clock=clock), bus, PatternRedactor(), clock=clock)
    async with waiting(gate, calling()) as (task, token):
        with pytest.raises(ApprovalMismatchError):
            await gate.resolve_approval(token, APPROVE, who=owner, scopes=ADMIN)
        with pytest.raises(ToolRejectedError, match="another call"):
            await task


@pytest.mark.parametrize("args", [None, b'{"amount": 3}'])
async def test_an_answer_given_in_another_process_is_found(
    bus: MemoryEventBus, calling: Calling, clock: FakeClock, waiting: Waiting, args: bytes | None
) -> None:
    """This process gets no notice, but the waiting call polls; edited arguments come with the answer."""
    store = MemoryStore()
    gate = ApprovalGate(
        AlwaysDeny(), Coordinator(store=store, clock=clock), bus, PatternRedactor(), clock=clock, recheck_s=5.0
    )
    async with waiting(gate, calling()) as (task, token):
        elsewhere = Coordinator(store=store, clock=clock)
        await answer_approval(
            elsewhere, token, APPROVE, "fine", redactor=PatternRedactor(), args=args, who=COLLEAGUE, scopes=ADMIN
        )
        await clock.run_for(4.9)
        assert not task.done()
        await clock.run_for(0.1)
        assert await task == (args or b'{"amount": 7}')


@pytest.mark.parametrize("decision", [APPROVE, REJECT])
async def test_an_answer_given_while_nothing_was_up_is_taken_when_the_call_comes_back(
    gating: Gating, calling: Calling, bus: MemoryEventBus, clock: FakeClock, waiting: Waiting, decision: Any
) -> None:
    """The process that asked is gone, another one answers and goes too, a third continues: no person is asked again."""
    store, call = MemoryStore(), calling(key="r1/7")
    async with waiting(gating(coordinator=Coordinator(store=store, clock=clock)), call) as (_, token):
        pass
    clock.advance(24 * 3600)
    resolved = await answer_approval(
        Coordinator(store=store, clock=clock),
        token,
        decision,
        "because",
        redactor=PatternRedactor(),
        args=b'{"amount": 3}' if decision is APPROVE else None,
        who=COLLEAGUE,
        scopes=ADMIN,
    )
    assert resolved.sealed is None
    clock.advance(20 * 24 * 3600)
    recorder = EventRecorder(bus)
    last = Coordinator(store=store, clock=clock)
    for _ in range(2):  # whoever crashes behind the gate comes through it again
        task = asyncio.create_task(gating(coordinator=last).run_guarded(call))
        await clock.run_for(0)
        if decision is APPROVE:
            assert await task == b'{"amount": 3}'
        else:
            with pytest.raises(ToolRejectedError, match="because"):
                await task
    assert "tool.approval_requested" not in recorder.types
    assert (await last.status(token)).sealed is None


async def test_a_batch_answered_in_part_survives(
    gating: Gating, calling: Calling, clock: FakeClock, owner: Quadruple, waiting: Waiting
) -> None:
    """Three calls wait, two are answered, the process dies: of the three that come back only one asks still."""
    store = MemoryStore()
    calls = [calling(key=f"r1/7/{index}", args=b'{"amount": %d}' % index) for index in range(3)]
    first = gating(coordinator=Coordinator(store=store, clock=clock))
    tasks = [asyncio.create_task(first.run_guarded(call)) for call in calls]
    await settle()
    asked = first.tokens
    await first.resolve_approval(asked[0], APPROVE, args=b'{"amount": 100}', who=owner, scopes=ADMIN)
    await first.resolve_approval(asked[1], REJECT, "no", who=owner, scopes=ADMIN)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    again = gating(coordinator=Coordinator(store=store, clock=clock))
    tasks = [asyncio.create_task(again.run_guarded(call)) for call in calls]
    await settle()
    assert again.tokens == (asked[2],)
    assert await tasks[0] == b'{"amount": 100}'
    with pytest.raises(ToolRejectedError, match="no"):
        await tasks[1]
    await again.resolve_approval(asked[2], APPROVE, who=owner, scopes=ADMIN)
    assert await tasks[2] == b'{"amount": 2}'


async def test_the_gates_pauses_are_listed_with_the_others(
    gate: ApprovalGate, calling: Calling, coordinator: Coordinator, owner: Quadruple, waiting: Waiting
) -> None:
    """One list shows everything a person has to decide."""
    await coordinator.request(PauseRequest(identity=owner, reason=PauseReason.AWAIT_INPUT))
    async with waiting(gate, calling()) as (_, token):
        asked = PauseFilter(reasons=(PauseReason.APPROVAL_REQUIRED,))
        assert [row.token for row in (await coordinator.list(asked, who=owner)).rows] == [token]
        assert (await coordinator.list(who=owner)).total == 2
