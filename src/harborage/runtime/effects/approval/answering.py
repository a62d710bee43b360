"""Waits for the answer to an approval, and gives one, also while no worker executes the run.

A call's approval is a pause that names the call. So a person may answer at any time: the answer is stored with the
pause, and the call reads it when it is repeated under its key. A waiting call has a future, a timer and a callback at
the coordinator, no task of its own; it polls for answers through other processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from harborage.identity import Identity, Quadruple, held_scopes
from harborage.planner.decisions import PauseReason
from harborage.runtime.durable.pauses.errors import AlreadyResumedError, PauseNotFoundError
from harborage.runtime.effects.approval.errors import (
    ApprovalDecisionError,
    ApprovalNotFoundError,
    ApprovalScopeRequiredError,
    GateClosedError,
    InvalidApprovalError,
)
from harborage.runtime.effects.approval.model import ApprovalDecision, answer_payload, fingerprint_of
from harborage.runtime.loop.pauses import Pause, PauseDecision

if TYPE_CHECKING:
    from harborage.clock import Timer, Timers
    from harborage.events import Redactor
    from harborage.runtime.durable.pauses.coordinator import Coordinator
    from harborage.runtime.effects.approval.model import ApprovalRequest

RECHECK_S = 30.0

# A timer may fire a moment before the coordinator's clock agrees that the deadline has passed.
_RETRY_DELAY = timedelta(milliseconds=50)


class _Signal(Enum):
    DUE = auto()
    CLOSED = auto()


class WaitingCall:
    """A call that waits for the answer to its pause, until `close`.

    `pause` is as it was opened. While `is_being_answered`, a second answer is refused. `is_idle`: the wait may be
    interrupted, and nothing is lost. `objection` returns why the tool does not take other arguments, "" if it does.
    """

    def __init__(
        self,
        request: ApprovalRequest,
        pause: Pause,
        coordinator: Coordinator,
        clock: Timers,
        *,
        recheck_s: float = RECHECK_S,
    ) -> None:
        self.request = request
        self.pause = pause
        self.token = pause.token
        self.is_idle = False
        self.is_being_answered = False
        self.objection: Callable[[bytes], str] | None = None
        self._recheck = timedelta(seconds=recheck_s)
        self._deadline = pause.deadline
        self._coordinator = coordinator
        self._clock = clock
        self._signal: asyncio.Future[Pause | _Signal] = asyncio.get_running_loop().create_future()
        self._timer: Timer | None = None
        self._unlisten = coordinator.on_resolved(pause.token, self._set_signal)
        self._arm(timedelta())

    def close(self) -> None:
        """Remove the callback and cancel the timer."""
        unlisten, self._unlisten = self._unlisten, _nothing
        unlisten()
        if self._timer is not None:
            self._timer.cancel()

    def abort(self) -> None:
        """End the wait without an answer, because the gate closes."""
        self._set_signal(_Signal.CLOSED)

    async def wait(self) -> Pause:
        """Wait for the answer, and return the resolved pause. Once its deadline has passed, this resolves it.

        Raises:
            GateClosedError: the gate closed first; the pause stays open.
        """
        while True:
            self.is_idle = True
            try:
                signal = await self._signal
            finally:
                self.is_idle = False
            match signal:
                case Pause():
                    return signal
                case _Signal.CLOSED:
                    raise GateClosedError()
                case _Signal.DUE:
                    self._signal = asyncio.get_running_loop().create_future()
                    pause = await self._coordinator.expire(self.token)
                    if not pause.is_paused:
                        return pause
                    self._arm(_RETRY_DELAY)

    def _arm(self, least: timedelta) -> None:
        """Check again at the deadline, but not sooner than after `least`; and at intervals before it."""
        delay = self._recheck
        if self._deadline is not None:
            delay = min(delay, max(least, self._deadline - self._clock.now()))
        self._timer = self._clock.call_later(delay.total_seconds(), lambda: self._set_signal(_Signal.DUE))

    def _set_signal(self, signal: Pause | _Signal) -> None:
        # The first signal counts. An answer between DUE and its handling is read from the coordinator.
        if not self._signal.done():
            self._signal.set_result(signal)


def _nothing() -> None:
    """Do nothing: the callback was removed."""


APPROVER_SCOPES = frozenset({"admin", "console:fleet"})


async def answer_approval(
    pauses: Coordinator,
    token: str,
    decision: ApprovalDecision,
    reason: str = "",
    *,
    redactor: Redactor,
    args: bytes | None = None,
    who: Identity | Quadruple | None = None,
    scopes: frozenset[str] | None = None,
) -> Pause:
    """Approve or reject the call with this token, once, and return the resolved pause; no worker needs to execute it.

    `who` answers, by default the ambient identity, with `scopes`, by default the ambient ones. With `args` an approval
    replaces the arguments; only the waiting call can read them.

    Raises:
        ApprovalDecisionError, InvalidApprovalError, ApprovalScopeRequiredError, ApprovalNotFoundError: in this order.
        PauseScopeMismatchError: the call belongs to another identity; it keeps waiting.
    """
    chosen, held = check_answer(decision, args, scopes)
    redacted = str(redactor.redact(reason))
    try:
        pause = await pauses.status(token, who=who, scopes=held)
    except PauseNotFoundError as error:
        raise ApprovalNotFoundError(token) from error
    question: dict[str, Any] = pause.payload or {}
    fingerprint = question.get("fingerprint")
    if pause.reason is not PauseReason.APPROVAL_REQUIRED or not pause.is_paused or not isinstance(fingerprint, str):
        raise ApprovalNotFoundError(token)
    approved = fingerprint if args is None else fingerprint_of(str(question.get("tool")), args, pause.identity)
    payload = answer_payload(chosen, redacted, approved, is_edited=args is not None)
    try:
        resolved = await pauses.resume(token, PauseDecision(chosen), payload, sealed=args, who=who, scopes=held)
    except (AlreadyResumedError, PauseNotFoundError) as error:
        raise ApprovalNotFoundError(token) from error
    return resolved.shown()


def check_answer(
    decision: ApprovalDecision, args: bytes | None, scopes: frozenset[str] | None
) -> tuple[ApprovalDecision, frozenset[str]]:
    """Return the decision, and the scopes it is made with.

    Raises:
        ApprovalDecisionError, InvalidApprovalError, ApprovalScopeRequiredError: in this order.
    """
    chosen = check_decision(decision)
    if args is not None and (chosen is not ApprovalDecision.APPROVE or not isinstance(args, bytes)):
        raise InvalidApprovalError("edited arguments are bytes, and come with an approval")
    held = held_scopes(scopes)
    if APPROVER_SCOPES.isdisjoint(held):
        raise ApprovalScopeRequiredError("an answer to an approval", APPROVER_SCOPES)
    return chosen, held


def check_decision(decision: ApprovalDecision) -> ApprovalDecision:
    """Return the decision as an `ApprovalDecision`.

    Raises:
        ApprovalDecisionError: it is neither approve nor reject.
    """
    try:
        return ApprovalDecision(decision)
    except ValueError:
        raise ApprovalDecisionError(decision) from None
