"""The gate as a caller meets it: its parts, who is asked, and what is shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from harborage.events import (
    MemoryEventBus,
    PatternRedactor,
    RedactionFailedError,
    ToolApprovalRequestedPayload,
    ToolApprovedPayload,
    Triple,
)
from harborage.identity import IdentityRequiredError, Quadruple
from harborage.runtime.approval import (
    DEFAULT_TIMEOUT,
    AlwaysApprove,
    AlwaysDeny,
    ApprovalDecision,
    ApprovalDecisionError,
    ApprovalGate,
    ApprovalRequest,
    BusRequiredError,
    CoordinatorRequiredError,
    InvalidApprovalError,
    PolicyFailedError,
    PolicyRequiredError,
    RedactorRequiredError,
    fingerprint_of,
)
from harborage.runtime.effects.approval.gate import POLICY_TIMEOUT_S
from harborage.runtime.pauses import (
    Coordinator,
    PauseDecision,
    PauseReason,
    PauseState,
)
from harborage.testing.clock import FakeClock
from harborage.testing.events import EventRecorder, FailingRedactor
from tests.kit.tables import each_row

Calling = Callable[..., ApprovalRequest]
Gating = Callable[..., ApprovalGate]

APPROVE, REJECT = ApprovalDecision.APPROVE, ApprovalDecision.REJECT
ADMIN = frozenset({"admin"})
INTRUDER = Quadruple("evil", "eve", "s6", "r6")

Waiting = Callable[[ApprovalGate, ApprovalRequest], AbstractAsyncContextManager[tuple[asyncio.Task[bytes], str]]]
Refusing = Callable[[str], MemoryEventBus]


@each_row(
    "missing, error",
    [
        ("policy", PolicyRequiredError),
        ("coordinator", CoordinatorRequiredError),
        ("bus", BusRequiredError),
        ("redactor", RedactorRequiredError),
    ],
)
def test_a_gate_needs_all_its_parts(missing: str, error: type[Exception]) -> None:
    """Each missing part has its own error."""
    parts: dict[str, Any] = {
        "policy": AlwaysDeny(),
        "coordinator": Coordinator(),
        "bus": MemoryEventBus(),
        "redactor": PatternRedactor(),
    }
    with pytest.raises(error):
        ApprovalGate(**{**parts, missing: None})


def test_a_gate_needs_a_default_it_knows(gating: Gating) -> None:
    """A timeout is no answer: the deadline approves or rejects."""
    with pytest.raises(ApprovalDecisionError):
        gating(default="timeout")


async def test_a_call_that_needs_no_approval_passes(
    gating: Gating, calling: Calling, recorder: EventRecorder, coordinator: Coordinator, owner: Quadruple
) -> None:
    """Its very bytes come back; no pause, no event."""
    call = calling(args=b'{ "amount" : 7 }')
    assert await gating(AlwaysApprove()).run_guarded(call) is call.args
    assert recorder.types == []
    assert (await coordinator.list(who=owner)).total == 0


async def test_an_approver_is_shown_the_arguments_without_secrets(
    gate: ApprovalGate, calling: Calling, recorder: EventRecorder, owner: Quadruple, waiting: Waiting
) -> None:
    """Large ones are cut; what is no JSON is not shown."""
    for args in (b'{"key":"k","token":"hunter2"}', b'{"note":"' + b"x" * 5000 + b'"}', b"{"):
        async with waiting(gate, calling(args=args)) as (task, token):
            await gate.resolve_approval(token, APPROVE, who=owner, scopes=ADMIN)
            assert await task == args
    masked, cut, none = recorder.payloads(ToolApprovalRequestedPayload)
    assert (masked.args, masked.args_cut, masked.masked) == (msgspec.Raw(b'{"key":"k","token":"***"}'), UNSET, True)
    assert (cut.args, cut.masked) == (UNSET, UNSET)
    assert not isinstance(cut.args_cut, msgspec.UnsetType)
    assert cut.args_cut.bytes == 5011
    assert (none.args, none.args_cut, none.masked) == (UNSET, UNSET, UNSET)


async def test_an_approved_call_gets_its_very_bytes(
    gate: ApprovalGate, calling: Calling, recorder: EventRecorder, owner: Quadruple, waiting: Waiting
) -> None:
    """Pause, question, answer and approval carry one token, in order, for the call's own run."""
    call = calling(args=b'{ "amount" : 7 }', tags=("payment",))
    async with waiting(gate, call) as (task, token):
        resolved = await gate.resolve_approval(token, APPROVE, "fine", who=owner, scopes=ADMIN)
        assert await task is call.args
    assert (resolved.decision, resolved.state) == (PauseDecision.APPROVE, PauseState.RESUMED)
    assert recorder.types == ["pause.requested", "tool.approval_requested", "pause.resumed", "tool.approved"]
    assert recorder.payloads(ToolApprovalRequestedPayload) == [
        ToolApprovalRequestedPayload(
            tool="pay",
            pause_token=token,
            reason="policy: deny-all",
            tags=("payment",),
            args_summary={"args": {"amount": 7}, "tool": "pay"},
            args=msgspec.Raw(call.args),
        )
    ]
    assert recorder.payloads(ToolApprovedPayload) == [
        ToolApprovedPayload(tool="pay", pause_token=token, approver_reason="fine", by=Triple.of(owner), edited=False)
    ]
    assert {event.identity for event in recorder.events} == {owner}


async def test_the_pause_says_what_is_asked(
    gate: ApprovalGate, calling: Calling, coordinator: Coordinator, owner: Quadruple, clock: FakeClock, waiting: Waiting
) -> None:
    """Tool, reason, redacted arguments and fingerprint; a deadline of a week that rejects."""
    call = calling(args=b'{"amount": 7, "api_key": "k-123"}')
    async with waiting(gate, call) as (_, token):
        pause = await coordinator.status(token)
    assert pause.reason is PauseReason.APPROVAL_REQUIRED
    assert pause.payload == {
        "tool": "pay",
        "reason": "policy: deny-all",
        "args_summary": {"args": {"amount": 7, "api_key": "***"}, "tool": "pay"},
        "fingerprint": fingerprint_of("pay", call.args, owner),
    }
    assert (pause.deadline, pause.default) == (clock.now() + DEFAULT_TIMEOUT, PauseDecision.REJECT)
    assert timedelta(days=7) == DEFAULT_TIMEOUT


async def test_secrets_are_hidden_from_approvers_and_reach_the_tool(
    gate: ApprovalGate, calling: Calling, recorder: EventRecorder, owner: Quadruple, waiting: Waiting
) -> None:
    """What is shown is redacted, what runs is not."""
    call = calling(args=b'{"password": "swordfish"}')
    async with waiting(gate, call) as (task, token):
        await gate.resolve_approval(token, APPROVE, who=owner, scopes=ADMIN)
        assert await task == b'{"password": "swordfish"}'
    summary = recorder.payloads(ToolApprovalRequestedPayload)[0].args_summary
    assert summary == {"args": {"password": "***"}, "tool": "pay"}


async def test_the_reason_of_a_policy_is_redacted_where_it_is_kept_and_shown(
    gating: Gating, calling: Calling, coordinator: Coordinator, recorder: EventRecorder, waiting: Waiting
) -> None:
    """A policy may quote what it judges."""
    gate = gating(policy=lambda request: (True, "it sends Bearer abc.def"))
    async with waiting(gate, calling()) as (_, token):
        pause = await coordinator.status(token)
    assert (pause.payload or {})["reason"] == "it sends Bearer ***"
    assert recorder.payloads(ToolApprovalRequestedPayload)[0].reason == "it sends Bearer ***"


async def test_arguments_that_are_no_json_show_only_their_length(
    gate: ApprovalGate, calling: Calling, recorder: EventRecorder, waiting: Waiting
) -> None:
    """Nothing of an unreadable body is shown."""
    async with waiting(gate, calling(args=b"\xff\xfe\xfd")):
        pass
    summary = recorder.payloads(ToolApprovalRequestedPayload)[0].args_summary
    assert summary == {"args": {"_nonjson_length": 3}, "tool": "pay"}


async def test_arguments_that_cannot_be_redacted_are_shown_to_no_approver(
    gating: Gating, calling: Calling, coordinator: Coordinator, owner: Quadruple, recorder: EventRecorder
) -> None:
    """The call fails before there is a pause."""
    gate = gating(redactor=FailingRedactor())
    with pytest.raises(RedactionFailedError):
        await gate.run_guarded(calling())
    assert (await coordinator.list(who=owner)).total == 0
    assert recorder.types == []


async def test_a_question_whose_event_is_refused_fails_the_call(
    gating: Gating, calling: Calling, coordinator: Coordinator, owner: Quadruple, refusing: Refusing
) -> None:
    """No call waits for it; its pause stays open until its deadline."""
    gate = gating(bus=refusing("tool.approval_requested"))
    with pytest.raises(RuntimeError, match="refused"):
        await gate.run_guarded(calling())
    assert len(gate.tokens) == 0
    assert (await coordinator.list(who=owner)).total == 1


@pytest.mark.parametrize("field", ["tenant_id", "user_id", "session_id"])
async def test_a_call_needs_a_complete_identity(gate: ApprovalGate, calling: Calling, field: str) -> None:
    """The run alone may be missing."""
    parts = {"tenant_id": "acme", "user_id": "ann", "session_id": "s1", field: ""}
    with pytest.raises(IdentityRequiredError, match=field):
        await gate.run_guarded(calling(identity=Quadruple(**parts)))


async def test_a_call_needs_a_tool(gate: ApprovalGate, calling: Calling) -> None:
    """It is looked at before the identity."""
    with pytest.raises(InvalidApprovalError, match="name of its tool"):
        await gate.run_guarded(calling(tool="", identity=Quadruple()))


async def test_a_policy_may_be_any_callable(
    gating: Gating, calling: Calling, recorder: EventRecorder, owner: Quadruple, waiting: Waiting
) -> None:
    """At once or awaitably, with a reason or just yes or no; and it sees whose call it is."""

    async def asks_about_evil(call: ApprovalRequest) -> bool:
        return call.identity.tenant_id == "evil"

    gate = gating(asks_about_evil)
    assert await gate.run_guarded(calling()) == b'{"amount": 7}'
    async with waiting(gate, calling(identity=INTRUDER)):
        assert recorder.payloads(ToolApprovalRequestedPayload)[0].reason == "policy: approval required"
    gate = gating(lambda call: (len(call.args) > 3, "long"))
    assert await gate.run_guarded(calling(args=b"{}")) == b"{}"
    async with waiting(gate, calling()):
        assert recorder.payloads(ToolApprovalRequestedPayload)[1].reason == "long"


@pytest.mark.parametrize("answer", [None, "yes", 7, (True,)])
async def test_an_answer_that_is_none_fails_the_call(gating: Gating, calling: Calling, answer: object) -> None:
    """A policy that says nothing clear allows nothing."""
    with pytest.raises(PolicyFailedError):
        await gating(lambda call: answer).run_guarded(calling())


async def test_a_policy_that_fails_fails_the_call(gating: Gating, calling: Calling, recorder: EventRecorder) -> None:
    """The policy's error is the cause; no person is asked."""

    def broken(call: ApprovalRequest) -> bool:
        raise KeyError("rules")

    with pytest.raises(PolicyFailedError, match="'pay'") as caught:
        await gating(broken).run_guarded(calling())
    assert isinstance(caught.value.__cause__, KeyError)
    assert recorder.types == []


async def test_a_policy_that_never_answers_fails_the_call_in_time(
    gating: Gating, calling: Calling, clock: FakeClock
) -> None:
    """A call whose request cannot be published does not wait for ever."""

    async def hangs(call: ApprovalRequest) -> bool:
        await asyncio.Event().wait()
        return False

    task = asyncio.create_task(gating(hangs).run_guarded(calling()))
    await clock.run_for(POLICY_TIMEOUT_S)
    with pytest.raises(PolicyFailedError) as caught:
        await task
    assert isinstance(caught.value.__cause__, TimeoutError)
