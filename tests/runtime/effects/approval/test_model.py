"""What binds an approval to one call, and what a resolved pause means for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from harborage import codec
from harborage.identity import Quadruple
from harborage.runtime.approval import ApprovalDecision, ApprovalRequest, fingerprint_of
from harborage.runtime.effects.approval.errors import InvalidApprovalError
from harborage.runtime.effects.approval.model import (
    EDIT_LOST,
    NOT_ANSWERED,
    OTHER_CALL,
    OUTSIDE,
    Granted,
    Refused,
    answer_payload,
    judge,
    patched_args,
    request_payload,
)
from harborage.runtime.pauses import Pause, PauseDecision, PauseReason, PauseState
from tests.kit.tables import each_row

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=1)
OWNER = Quadruple("acme", "ann", "s1", "r1")
CALL = ApprovalRequest(tool="pay", args=b'{"amount": 7}', identity=OWNER)
PRINT = fingerprint_of(CALL.tool, CALL.args, OWNER)
EDITED = b'{"amount": 5}'
EDITED_PRINT = fingerprint_of(CALL.tool, EDITED, OWNER)

parts = st.tuples(st.text(), st.binary(), st.builds(Quadruple, st.text(), st.text(), st.text(), st.text()))


def a_pause(**fields: Any) -> Pause:
    """The pause of the call, resolved at the given time."""
    return Pause(
        **{
            "token": "T",
            "reason": PauseReason.APPROVAL_REQUIRED,
            "state": PauseState.RESUMED,
            "identity": OWNER,
            "paused_at": NOON,
            "payload": {**request_payload(CALL, "policy", None, PRINT), **fields.pop("answer", {})},
            "resumed_at": NOON,
            "deadline": LATER,
            "default": PauseDecision.REJECT,
            **fields,
        }
    )


def answered(decision: ApprovalDecision, reason: str = "fine", approved: str = PRINT, edited: bool = False) -> Pause:
    """The pause after the gate resolved it."""
    answer = answer_payload(decision, reason, approved, is_edited=edited)
    return a_pause(decision=PauseDecision(decision), answer=answer)


@given(parts, parts)
def test_only_the_very_same_call_has_the_same_fingerprint(
    one: tuple[str, bytes, Quadruple], other: tuple[str, bytes, Quadruple]
) -> None:
    """Tool, arguments and each part of the principal all count, and no two calls run together."""
    assert (fingerprint_of(*one) == fingerprint_of(*other)) is (one == other)


def test_parts_do_not_run_together() -> None:
    """What ends one part cannot begin the next."""
    assert fingerprint_of("ab", b"c", OWNER) != fingerprint_of("a", b"bc", OWNER)
    assert fingerprint_of("pay", b"", Quadruple("a", "bc", "s")) != fingerprint_of(
        "pay", b"", Quadruple("ab", "c", "s")
    )


def test_a_fingerprint_is_a_sha256() -> None:
    """Sixty-four hex digits."""
    assert len(PRINT) == 64
    assert int(PRINT, 16) >= 0


def test_an_answer_says_what_it_allows() -> None:
    """An approval names the call it is for, a rejection says that it is one."""
    assert answer_payload(ApprovalDecision.APPROVE, "ok", "f", is_edited=False) == {
        "reason": "ok",
        "approver_reason": "ok",
        "approved_fingerprint": "f",
    }
    assert answer_payload(ApprovalDecision.APPROVE, "", "f", is_edited=True) == {
        "approved_fingerprint": "f",
        "edited": True,
    }
    assert answer_payload(ApprovalDecision.REJECT, "no", "f", is_edited=False) == {"reason": "no", "rejected": True}


def test_an_approval_lets_the_very_arguments_through() -> None:
    """With the approver's reason, not the policy's."""
    assert judge(answered(ApprovalDecision.APPROVE), CALL) == Granted(CALL.args, "fine")


def test_an_edited_approval_lets_the_edited_arguments_through() -> None:
    """And only those that were approved."""
    pause = answered(ApprovalDecision.APPROVE, approved=EDITED_PRINT, edited=True)
    assert judge(replace(pause, sealed=EDITED), CALL) == Granted(EDITED, "fine")
    assert judge(replace(pause, sealed=b'{"amount": 9}'), CALL) == Refused(EDIT_LOST)
    assert judge(pause, CALL) == Refused(EDIT_LOST)


def test_an_edit_that_changes_nothing_is_still_an_approval() -> None:
    """The same bytes have the same fingerprint."""
    pause = answered(ApprovalDecision.APPROVE, edited=True)
    assert judge(replace(pause, sealed=CALL.args), CALL) == Granted(CALL.args, "fine")


def test_a_rejection_refuses_with_its_reason() -> None:
    """An empty reason is not replaced by the policy's."""
    assert judge(answered(ApprovalDecision.REJECT, "too much"), CALL) == Refused("too much")
    assert judge(answered(ApprovalDecision.REJECT, ""), CALL) == Refused("")


@each_row(
    "other",
    [
        ApprovalRequest(tool="pay", args=b'{"amount":7}', identity=OWNER),
        ApprovalRequest(tool="refund", args=CALL.args, identity=OWNER),
        ApprovalRequest(tool="pay", args=CALL.args, identity=Quadruple("acme", "bob", "s1", "r1")),
        ApprovalRequest(tool="pay", args=CALL.args, identity=Quadruple("acme", "ann", "s1", "r2")),
    ],
)
def test_an_approval_is_worth_nothing_for_another_call(other: ApprovalRequest) -> None:
    """One other byte, tool, user or run is another call."""
    assert judge(answered(ApprovalDecision.APPROVE), other) == Refused(OTHER_CALL)


def test_a_changed_pause_is_worth_nothing() -> None:
    """A pause whose fingerprint was tampered with, or is gone, refuses."""
    assert judge(a_pause(decision=PauseDecision.APPROVE, payload={"fingerprint": "f"}), CALL) == Refused(OTHER_CALL)
    assert judge(a_pause(decision=PauseDecision.APPROVE, payload=None), CALL) == Refused(OTHER_CALL)


def test_at_the_deadline_the_default_decides() -> None:
    """A default of approval lets the call's own arguments through, every other one refuses."""
    for default in (PauseDecision.REJECT, PauseDecision.TIMEOUT):
        late = a_pause(decision=default, default=default, resumed_at=LATER)
        assert judge(late, CALL) == Refused(NOT_ANSWERED)
    late = a_pause(decision=PauseDecision.APPROVE, default=PauseDecision.APPROVE, resumed_at=LATER, sealed=EDITED)
    assert judge(late, CALL) == Granted(CALL.args, NOT_ANSWERED)


@each_row("decision", [PauseDecision.APPROVE, PauseDecision.RESUME, PauseDecision.REJECT, None])
def test_a_pause_resolved_past_its_gate_refuses(decision: PauseDecision | None) -> None:
    """No gate checked whether that caller may approve, so nothing runs."""
    for default in (PauseDecision.REJECT, PauseDecision.APPROVE):
        assert judge(a_pause(decision=decision, default=default), CALL) == Refused(OUTSIDE)


def test_an_approval_past_the_gate_after_the_deadline_is_no_default() -> None:
    """Only a pause that was to be approved by default is."""
    late = a_pause(decision=PauseDecision.APPROVE, default=PauseDecision.REJECT, resumed_at=LATER)
    assert judge(late, CALL) == Refused(OUTSIDE)
    endless = a_pause(decision=PauseDecision.APPROVE, default=PauseDecision.APPROVE, deadline=None)
    assert judge(endless, CALL) == Refused(OUTSIDE)


@each_row(
    "own, patch, wanted",
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({"a": 1}, {}, {"a": 1}),
    ],
)
def test_a_merge_patch_changes_what_it_names(own: Any, patch: Any, wanted: Any) -> None:
    """A key that is null goes, objects are merged, anything else is replaced."""
    assert codec.decode(patched_args(codec.encode(own), patch)) == wanted


@each_row("args", [b"[1]", b"7", b"{"])
def test_only_an_object_is_patched(args: bytes) -> None:
    """What is no JSON object cannot be changed in part."""
    with pytest.raises(InvalidApprovalError):
        patched_args(args, {"a": 1})
