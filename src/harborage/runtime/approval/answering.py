"""Answering an approval: the checks of an answer, and answering a call that no worker executes right now.

A call's approval is a pause that names the call. So a person may answer while no worker executes the run: the answer
is stored with the pause, and the call finds it when it is repeated under its key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harborage.identity import Identity, Quadruple, held_scopes
from harborage.runtime.approval.errors import (
    ApprovalDecisionError,
    ApprovalNotFoundError,
    ApprovalScopeRequiredError,
    InvalidRequestError,
)
from harborage.runtime.approval.model import ApprovalDecision, answer_payload, fingerprint_of
from harborage.runtime.pauses import (
    AlreadyResumedError,
    Pause,
    PauseCoordinator,
    PauseDecision,
    PauseNotFoundError,
    PauseReason,
)

if TYPE_CHECKING:
    from harborage.events import Redactor

APPROVER_SCOPES = frozenset({"admin", "console:fleet"})


async def answer_approval(
    pauses: PauseCoordinator,
    token: str,
    decision: ApprovalDecision,
    reason: str = "",
    *,
    redactor: Redactor,
    args: bytes | None = None,
    who: Identity | Quadruple | None = None,
    scopes: frozenset[str] | None = None,
) -> Pause:
    """Answer the approval `token`, once; return the settled pause. No worker needs to execute the call.

    `who` answers, by default the ambient identity, with `scopes`, by default the ambient ones. With `args` an approval
    replaces the arguments; only the waiting call can read them.

    Raises:
        ApprovalDecisionError, InvalidRequestError, ApprovalScopeRequiredError, ApprovalNotFoundError: in this order.
        ScopeMismatchError: the call belongs to another identity; it keeps waiting.
    """
    chosen, held = check_answer(decision, args, scopes)
    said = str(redactor.redact(reason))
    try:
        pause = await pauses.status(token, who=who, scopes=held)
    except PauseNotFoundError as error:
        raise ApprovalNotFoundError(token) from error
    asked: dict[str, Any] = pause.payload or {}
    fingerprint = asked.get("fingerprint")
    if pause.reason is not PauseReason.APPROVAL_REQUIRED or not pause.is_paused or not isinstance(fingerprint, str):
        raise ApprovalNotFoundError(token)
    approved = fingerprint if args is None else fingerprint_of(str(asked.get("tool")), args, pause.identity)
    payload = answer_payload(chosen, said, approved, is_edited=args is not None)
    try:
        settled = await pauses.resume(token, PauseDecision(chosen), payload, sealed=args, who=who, scopes=held)
    except (AlreadyResumedError, PauseNotFoundError) as error:
        raise ApprovalNotFoundError(token) from error
    return settled.shown()


def check_answer(
    decision: ApprovalDecision, args: bytes | None, scopes: frozenset[str] | None
) -> tuple[ApprovalDecision, frozenset[str]]:
    """Return the decision, and the scopes it is made with.

    Raises:
        ApprovalDecisionError, InvalidRequestError, ApprovalScopeRequiredError: in this order.
    """
    chosen = check_decision(decision)
    if args is not None and (chosen is not ApprovalDecision.APPROVE or not isinstance(args, bytes)):
        raise InvalidRequestError("edited arguments are bytes, and come with an approval")
    held = held_scopes(scopes)
    if APPROVER_SCOPES.isdisjoint(held):
        raise ApprovalScopeRequiredError()
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
