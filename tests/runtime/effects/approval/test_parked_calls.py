"""Answers to calls whose run is parked in no process, and what such an answer may not do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from harborage.events import PatternRedactor
from harborage.identity import Quadruple, bound
from harborage.runtime.approval import (
    ApprovalDecision,
    ApprovalDecisionError,
    ApprovalGate,
    ApprovalNotFoundError,
    ApprovalRequest,
    ApprovalScopeRequiredError,
    InvalidApprovalError,
    answer_approval,
)
from harborage.runtime.pauses import (
    Coordinator,
    Pause,
    PauseDecision,
    PauseFilter,
    PauseReason,
    PauseRequest,
    PauseScopeMismatchError,
    PauseState,
)
from harborage.store.memory import MemoryStore
from harborage.testing.clock import FakeClock

APPROVE, REJECT = ApprovalDecision.APPROVE, ApprovalDecision.REJECT
ADMIN = frozenset({"admin"})
FLEET = frozenset({"console:fleet"})
INTRUDER = Quadruple("evil", "eve", "s6", "r6")

Answering = Callable[..., Any]


@pytest.fixture
def store() -> MemoryStore:
    """What outlives every process of a test."""
    return MemoryStore()


@pytest.fixture
def starting(store: MemoryStore, clock: FakeClock) -> Callable[[], Coordinator]:
    """Makes the coordinator of another process."""
    return lambda: Coordinator(store=store, clock=clock)


@pytest.fixture
async def left(
    starting: Callable[[], Coordinator],
    gating: Callable[..., ApprovalGate],
    calling: Callable[..., ApprovalRequest],
    waiting: Any,
) -> str:
    """The token of a call that waited in a process that is gone."""
    async with waiting(gating(coordinator=starting()), calling(key="k")) as (_, token):
        return str(token)


async def answer(pauses: Coordinator, token: str, decision: Any = APPROVE, **options: Any) -> Pause:
    """An answer of the owner, as an admin."""
    who = {"who": Quadruple("acme", "ann", "s1"), "scopes": ADMIN}
    return await answer_approval(pauses, token, decision, "r", redactor=PatternRedactor(), **{**who, **options})


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"decision": "maybe", "args": "text", "scopes": frozenset()}, ApprovalDecisionError),
        ({"args": "text", "scopes": frozenset()}, InvalidApprovalError),
        ({"decision": REJECT, "args": b"{}"}, InvalidApprovalError),
        ({"scopes": frozenset()}, ApprovalScopeRequiredError),
        ({"scopes": None}, ApprovalScopeRequiredError),
        ({"token": "other", "who": INTRUDER}, ApprovalNotFoundError),
        ({"who": INTRUDER}, PauseScopeMismatchError),
        ({"who": INTRUDER, "scopes": FLEET}, PauseScopeMismatchError),
    ],
)
async def test_an_unfit_answer_is_refused(
    starting: Callable[[], Coordinator], left: str, options: dict[str, Any], error: type[Exception]
) -> None:
    """In the order of a gate's own checks; the call can still be answered."""
    with pytest.raises(error):
        await answer(starting(), **{"token": left, **options})
    assert (await answer(starting(), left)).decision is PauseDecision.APPROVE


async def test_the_ambient_identity_is_the_fallback(starting: Callable[[], Coordinator], left: str) -> None:
    """As everywhere."""
    with bound(Quadruple("acme", "ann", "s1", "r9")):
        resolved = await answer_approval(starting(), left, REJECT, redactor=PatternRedactor(), scopes=FLEET)
    assert resolved.payload is not None
    assert resolved.payload["rejected"] is True


async def test_an_answer_is_given_once(starting: Callable[[], Coordinator], left: str) -> None:
    """Of ten processes one answers; the others learn that nothing waits any more."""
    results = await asyncio.gather(
        *(answer(starting(), left, APPROVE if n % 2 else REJECT) for n in range(10)), return_exceptions=True
    )
    assert sum(isinstance(result, Pause) for result in results) == 1
    assert sum(isinstance(result, ApprovalNotFoundError) for result in results) == 9


async def test_only_approvals_are_answered(starting: Callable[[], Coordinator], owner: Quadruple) -> None:
    """A pause of another kind, or one that names no call, is no approval."""
    pauses = starting()
    for reason in (PauseReason.AWAIT_INPUT, PauseReason.APPROVAL_REQUIRED):
        pause = await pauses.request(PauseRequest(identity=owner, reason=reason, payload={"tool": "pay"}))
        with pytest.raises(ApprovalNotFoundError):
            await answer(pauses, pause.token)
        assert (await pauses.status(pause.token)).is_paused


async def test_only_the_call_sees_edited_arguments(starting: Callable[[], Coordinator], left: str) -> None:
    """They are in no list, no status, and not in what the approver gets back; secrets in the reason are redacted."""
    pauses = starting()
    resolved = await answer(pauses, left, args=b'{"amount": 3, "password": "hunter2"}')
    rows = (await pauses.list(PauseFilter(states=(PauseState.RESUMED,)), who=resolved.identity)).rows
    for seen in (resolved, *rows, await pauses.status(left), await starting().status(left)):
        assert "hunter2" not in repr(seen)
    assert len(rows) == 1
