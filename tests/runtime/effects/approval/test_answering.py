"""Answering a waiting call: by whom, once, with which arguments, and with which events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from harborage.events import (
    MemoryEventBus,
    ToolApprovedPayload,
    ToolRejectedPayload,
    Triple,
)
from harborage.identity import IdentityRequiredError, Quadruple, bound
from harborage.runtime.approval import (
    ApprovalDecision,
    ApprovalDecisionError,
    ApprovalGate,
    ApprovalNotFoundError,
    ApprovalRequest,
    ApprovalScopeRequiredError,
    ApprovalUnrecordedError,
    InvalidApprovalError,
    ToolRejectedError,
    fingerprint_of,
)
from harborage.runtime.pauses import (
    Coordinator,
    Pause,
    PauseDecision,
    PauseScopeMismatchError,
)
from harborage.testing.clock import settle
from harborage.testing.events import EventRecorder

Calling = Callable[..., ApprovalRequest]
Gating = Callable[..., ApprovalGate]

APPROVE, REJECT = ApprovalDecision.APPROVE, ApprovalDecision.REJECT
ADMIN = frozenset({"admin"})
FLEET = frozenset({"console:fleet"})
INTRUDER = Quadruple("evil", "eve", "s6", "r6")
COLLEAGUE = Quadruple("acme", "bob", "s2")

Waiting = Callable[[ApprovalGate, ApprovalRequest], AbstractAsyncContextManager[tuple[asyncio.Task[bytes], str]]]
Refusing = Callable[[str], MemoryEventBus]


async def test_a_rejected_call_does_not_run(
    gate: ApprovalGate,
    calling: Calling,
    recorder: EventRecorder,
    owner: Quadruple,
    coordinator: Coordinator,
    waiting: Waiting,
) -> None:
    """The error says which, why and whose; the pause keeps the reason."""
    async with waiting(gate, calling()) as (task, token):
        await gate.resolve_approval(token, REJECT, "too much", who=owner, scopes=FLEET)
        with pytest.raises(ToolRejectedError) as caught:
            await task
    assert (caught.value.tool, caught.value.reason, caught.value.identity) == ("pay", "too much", owner)
    assert recorder.types == ["pause.requested", "tool.approval_requested", "pause.resumed", "tool.rejected"]
    assert recorder.payloads(ToolRejectedPayload) == [
        ToolRejectedPayload(tool="pay", pause_token=token, reason="too much", by=Triple.of(owner))
    ]
    payload = (await coordinator.status(token)).payload or {}
    assert (payload["rejected"], payload["reason"]) == (True, "too much")


@pytest.mark.parametrize("decision", ["", "resume", "timeout", "APPROVE"])
async def test_there_are_two_answers(gate: ApprovalGate, decision: Any) -> None:
    """Anything else is refused before scope and token are looked at."""
    with pytest.raises(ApprovalDecisionError):
        await gate.resolve_approval("no-such-token", decision)


@pytest.mark.parametrize("scopes", [frozenset(), frozenset({"owner_user", "tenant:admin"})])
async def test_an_answer_needs_a_scope(
    gate: ApprovalGate, calling: Calling, owner: Quadruple, scopes: frozenset[str], waiting: Waiting
) -> None:
    """Without it the call waits on, even for its owner."""
    async with waiting(gate, calling()) as (task, token):
        with pytest.raises(ApprovalScopeRequiredError):
            await gate.resolve_approval(token, APPROVE, who=owner, scopes=scopes)
        with bound(owner, scopes=scopes), pytest.raises(ApprovalScopeRequiredError):
            await gate.resolve_approval(token, APPROVE)
        assert gate.owner(token) == owner
        assert not task.done()


async def test_the_scope_is_looked_at_before_the_token(gate: ApprovalGate) -> None:
    """A caller without the scope does not learn which tokens exist."""
    with pytest.raises(ApprovalScopeRequiredError):
        await gate.resolve_approval("no-such-token", APPROVE, who=COLLEAGUE, scopes=frozenset())
    with pytest.raises(ApprovalNotFoundError):
        await gate.resolve_approval("no-such-token", APPROVE, who=COLLEAGUE, scopes=ADMIN)


async def test_ambient_identity_and_scopes_answer(
    gate: ApprovalGate, calling: Calling, owner: Quadruple, waiting: Waiting
) -> None:
    """As a server binds them for a request; an explicit empty set outranks them."""
    async with waiting(gate, calling()) as (task, token):
        with bound(owner, scopes=ADMIN):
            with pytest.raises(ApprovalScopeRequiredError):
                await gate.resolve_approval(token, APPROVE, scopes=frozenset())
            await gate.resolve_approval(token, APPROVE)
        assert await task == b'{"amount": 7}'


async def test_an_answer_needs_an_identity(
    gate: ApprovalGate, calling: Calling, owner: Quadruple, waiting: Waiting
) -> None:
    """A scope without an identity is refused; the call keeps waiting."""
    async with waiting(gate, calling()) as (task, token):
        with pytest.raises(IdentityRequiredError):
            await gate.resolve_approval(token, APPROVE, scopes=ADMIN)
        await gate.resolve_approval(token, APPROVE, who=owner, scopes=ADMIN)
        await task


async def test_a_foreign_admin_is_refused_and_the_right_one_is_not(
    gate: ApprovalGate, calling: Calling, coordinator: Coordinator, waiting: Waiting
) -> None:
    """Admin of another tenant, or fleet scope of another user: the call waits on until its tenant's admin comes."""
    async with waiting(gate, calling()) as (task, token):
        for who, scopes in ((INTRUDER, ADMIN), (COLLEAGUE, FLEET)):
            with pytest.raises(PauseScopeMismatchError):
                await gate.resolve_approval(token, APPROVE, who=who, scopes=scopes)
        assert (await coordinator.status(token)).is_paused
        await gate.resolve_approval(token, APPROVE, who=COLLEAGUE, scopes=ADMIN)
        assert await task == b'{"amount": 7}'


async def test_an_answer_counts_once(gate: ApprovalGate, calling: Calling, owner: Quadruple, waiting: Waiting) -> None:
    """A second one finds nothing, before and after the call has gone on."""
    async with waiting(gate, calling()) as (task, token):
        await gate.resolve_approval(token, APPROVE, who=owner, scopes=ADMIN)
        for _ in range(2):
            with pytest.raises(ApprovalNotFoundError) as caught:
                await gate.resolve_approval(token, REJECT, who=owner, scopes=ADMIN)
            assert caught.value.id == token
            assert await task == b'{"amount": 7}'


async def test_of_many_answers_one_counts(
    gate: ApprovalGate, calling: Calling, owner: Quadruple, recorder: EventRecorder, waiting: Waiting
) -> None:
    """Concurrent approvers of one call: one wins, the others find nothing."""
    async with waiting(gate, calling()) as (task, token):
        tries = (gate.resolve_approval(token, APPROVE, str(n), who=owner, scopes=ADMIN) for n in range(20))
        results = await asyncio.gather(*tries, return_exceptions=True)
        await task
    assert sum(isinstance(result, Pause) for result in results) == 1
    assert sum(isinstance(result, ApprovalNotFoundError) for result in results) == 19
    assert recorder.types.count("tool.approved") == 1


async def test_a_batch_is_answered_in_part(
    gate: ApprovalGate, calling: Calling, owner: Quadruple, coordinator: Coordinator
) -> None:
    """Each token wakes its own call; the others wait on, whatever the order."""
    calls = {n: calling(args=b"%d" % n) for n in range(5)}
    async with asyncio.TaskGroup() as group:
        tasks = {n: group.create_task(gate.run_guarded(call)) for n, call in calls.items()}
        await settle()
        rows = (await coordinator.list(who=owner)).rows
        tokens = {(row.payload or {})["args_summary"]["args"]: row.token for row in rows}
        for n in (3, 0, 4):
            await gate.resolve_approval(tokens[n], APPROVE, who=owner, scopes=ADMIN)
        await settle()
        assert {n for n, task in tasks.items() if task.done()} == {0, 3, 4}
        assert len(gate.tokens) == 2
        for n in (1, 2):
            await gate.resolve_approval(tokens[n], APPROVE, who=owner, scopes=ADMIN)
    assert {n: task.result() for n, task in tasks.items()} == {n: b"%d" % n for n in range(5)}


async def test_128_calls_wait_without_cross_talk(gate: ApprovalGate, calling: Calling) -> None:
    """Equal calls of different owners each get the answer of their own owner."""

    async def live(n: int) -> str:
        who = Quadruple(f"tenant-{n}", "u", "s", "r")
        task = asyncio.create_task(gate.run_guarded(calling(identity=who)))
        await settle(4)
        token = next(token for token in gate.tokens if gate.owner(token) == who)
        await gate.resolve_approval(token, APPROVE if n % 2 else REJECT, f"said {n}", who=who, scopes=FLEET)
        (result,) = await asyncio.gather(task, return_exceptions=True)
        return result.reason if isinstance(result, ToolRejectedError) else result.decode()

    results = await asyncio.gather(*(live(n) for n in range(128)))
    assert results == ['{"amount": 7}' if n % 2 else f"said {n}" for n in range(128)]
    assert len(gate.tokens) == 0


async def test_an_approver_may_edit_the_arguments(
    gate: ApprovalGate, calling: Calling, owner: Quadruple, coordinator: Coordinator, waiting: Waiting
) -> None:
    """The call gets the edited bytes, and the pause records a new fingerprint beside the old one."""
    call, edited = calling(), b'{"amount": 5}'
    async with waiting(gate, call) as (task, token):
        await gate.resolve_approval(token, APPROVE, "less", args=edited, who=owner, scopes=ADMIN)
        assert await task == edited
    payload = (await coordinator.status(token)).payload or {}
    assert payload["edited"] is True
    assert payload["fingerprint"] == fingerprint_of("pay", call.args, owner)
    assert payload["approved_fingerprint"] == fingerprint_of("pay", edited, owner)


@pytest.mark.parametrize(("decision", "args"), [(REJECT, b"{}"), (APPROVE, '{"amount": 5}'), (APPROVE, {"amount": 5})])
async def test_only_an_approval_may_edit_and_only_in_bytes(
    gate: ApprovalGate, calling: Calling, owner: Quadruple, decision: ApprovalDecision, args: Any, waiting: Waiting
) -> None:
    """Everything else is refused and the call waits on."""
    async with waiting(gate, calling()) as (task, token):
        with pytest.raises(InvalidApprovalError):
            await gate.resolve_approval(token, decision, args=args, who=owner, scopes=ADMIN)
        assert not task.done()


async def test_an_edit_that_failed_does_not_stick(
    gate: ApprovalGate, calling: Calling, owner: Quadruple, waiting: Waiting
) -> None:
    """The arguments of a refused approver are forgotten."""
    async with waiting(gate, calling()) as (task, token):
        with pytest.raises(PauseScopeMismatchError):
            await gate.resolve_approval(token, APPROVE, args=b'{"amount": 9}', who=INTRUDER, scopes=ADMIN)
        await gate.resolve_approval(token, APPROVE, who=owner, scopes=ADMIN)
        assert await task == b'{"amount": 7}'


async def test_a_reason_is_redacted(
    gate: ApprovalGate, calling: Calling, owner: Quadruple, recorder: EventRecorder, waiting: Waiting
) -> None:
    """What people type may hold a secret."""
    async with waiting(gate, calling()) as (task, token):
        await gate.resolve_approval(token, APPROVE, "use Bearer abc.def", who=owner, scopes=ADMIN)
        await task
    assert recorder.payloads(ToolApprovedPayload)[0].approver_reason == "use Bearer ***"


async def test_a_pause_resolved_past_the_gate_refuses_the_call(
    gate: ApprovalGate, calling: Calling, owner: Quadruple, coordinator: Coordinator, waiting: Waiting
) -> None:
    """The call is woken, but resolving the bare pause does not approve it."""
    async with waiting(gate, calling()) as (task, token):
        await coordinator.resume(token, PauseDecision.APPROVE, who=owner)
        with pytest.raises(ToolRejectedError, match="without this gate"):
            await task


async def test_ending_the_run_wakes_its_calls(
    gate: ApprovalGate, calling: Calling, owner: Quadruple, coordinator: Coordinator, waiting: Waiting
) -> None:
    """A rejection of the bare pause rejects the call with its reason."""
    async with waiting(gate, calling()) as (task, token):
        answer = {"rejected": True, "reason": "run ended"}
        await coordinator.resume(token, PauseDecision.REJECT, answer, who=owner)
        with pytest.raises(ToolRejectedError, match="run ended"):
            await task


async def test_an_answer_that_comes_second_finds_nothing(
    gate: ApprovalGate, calling: Calling, owner: Quadruple, coordinator: Coordinator, waiting: Waiting
) -> None:
    """The pause was resolved, but its call has not had its turn yet."""
    async with waiting(gate, calling()) as (task, token):
        await coordinator.resume(token, PauseDecision.REJECT, who=owner)
        with pytest.raises(ApprovalNotFoundError):
            await gate.resolve_approval(token, APPROVE, args=b'{"amount": 9}', who=owner, scopes=ADMIN)
        with pytest.raises(ToolRejectedError):
            await task


async def test_an_approval_whose_event_is_refused_fails_the_call(
    gating: Gating, calling: Calling, owner: Quadruple, waiting: Waiting, refusing: Refusing
) -> None:
    """The error still carries what was approved."""
    gate = gating(bus=refusing("tool.approved"))
    async with waiting(gate, calling()) as (task, token):
        await gate.resolve_approval(token, APPROVE, who=owner, scopes=ADMIN)
        with pytest.raises(ApprovalUnrecordedError) as caught:
            await task
    assert caught.value.approved_args == b'{"amount": 7}'
    assert isinstance(caught.value.__cause__, RuntimeError)


async def test_a_rejection_whose_event_is_refused_is_still_a_rejection(
    gating: Gating, calling: Calling, owner: Quadruple, waiting: Waiting, refusing: Refusing
) -> None:
    """What the bus said is its cause."""
    gate = gating(bus=refusing("tool.rejected"))
    async with waiting(gate, calling()) as (task, token):
        await gate.resolve_approval(token, REJECT, "no", who=owner, scopes=ADMIN)
        with pytest.raises(ToolRejectedError, match="no") as caught:
            await task
    assert isinstance(caught.value.__cause__, RuntimeError)
