"""The request at an approval gate, what an answer means for the waiting call, and the usual policies. No I/O, no clock.

An approval counts for one call: one tool, the exact bytes of its arguments, one principal. Any other answer
refuses the call. A policy is a callable, sync or async, that decides for one call: it returns `(required, reason)`, or
just whether approval is required. It gets the whole request with the caller's identity, so one policy may decide
differently for each tenant or user.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias, assert_never

import msgspec
from msgspec.structs import force_setattr

from harborage import codec
from harborage.errors import all_of, names_of, one_of
from harborage.identity import Quadruple
from harborage.runtime.effects.approval.errors import InvalidApprovalError
from harborage.runtime.loop.controls import Remember
from harborage.runtime.loop.pauses import Pause, PauseDecision
from harborage.tools.enums import SideEffect

NOT_ANSWERED = "no answer before the deadline"
OUTSIDE = "the pause was resolved without this gate"
OTHER_CALL = "the pause was opened for another call"
_REMEMBERED = frozenset(Remember)
EDIT_LOST = "the edited arguments are not those that were approved; make the call again"


class ApprovalDecision(StrEnum):
    """The answer of a person, or of the deadline."""

    APPROVE = "approve"
    REJECT = "reject"


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One call that may need approval. `args` are the bytes that the tool would get, `args_schema` is the JSON Schema
    for them, so that an approver who edits them invalidly gets an error at once, also while no worker executes the run.

    `key` identifies the call, for example by run and position: repeated under it after a restart, the call waits
    for its first pause. `deadline` is the run's: a later answer has no effect, so a gate that rejects by default does
    so then. `question` is what a hook of a capability asks the approver; it is empty for every other call. `step`, from
    1, and `call_id` name the call in events; 0 and "" where they are not known.
    """

    tool: str
    args: bytes
    identity: Quadruple
    tags: tuple[str, ...] = ()
    side_effects: SideEffect | None = None
    key: str = ""
    args_schema: dict[str, Any] | None = None
    deadline: datetime | None = None
    question: str = ""
    step: int = 0
    call_id: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "tags", names_of(self.tags, "tags"))
        if self.side_effects is not None:
            force_setattr(self, "side_effects", one_of(SideEffect, self.side_effects, "side_effects"))

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by name, as the tool would get them.

        Raises:
            CodecError: they are no JSON; a gate whose policy raises it refuses the call.
        """
        decoded: dict[str, Any] = codec.decode(self.args.strip() or b"{}")
        return decoded


class Granted(msgspec.Struct, frozen=True):
    """The call may run, with these arguments; with `remember`, calls like it may, too."""

    args: bytes
    reason: str = ""
    remember: Remember | None = None


class Refused(msgspec.Struct, frozen=True):
    """The call may not run."""

    reason: str = ""


Ruling = Granted | Refused


def fingerprint_of(tool: str, args: bytes, who: Quadruple) -> str:
    """Return the SHA-256 of tool, arguments and principal in hex; it is equal only for the same call.

    Each part is preceded by its length, so that no two calls run together into the same text.
    """
    digest = hashlib.sha256()
    for part in (tool, args, who.tenant_id, who.user_id, who.session_id, who.run_id):
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()


def request_payload(request: ApprovalRequest, reason: str, summary: Any, fingerprint: str) -> dict[str, Any]:
    """Return the payload of the pause: enough for a person to decide, and to recognise the call again."""
    schema = {} if request.args_schema is None else {"args_schema": request.args_schema}
    return {"tool": request.tool, "reason": reason, "args_summary": summary, "fingerprint": fingerprint, **schema}


def answer_payload(
    decision: ApprovalDecision, reason: str, approved: str, *, is_edited: bool, remember: Remember | None = None
) -> dict[str, Any]:
    """Return the payload of an answer; `approved` is the fingerprint of the call that may run."""
    match decision:
        case ApprovalDecision.APPROVE:
            edited = {"edited": True} if is_edited else {}
            remembered = {} if remember is None else {"remember": str(remember)}
            # Without a reason of the approver's the pause keeps the one for which it was asked.
            because = {"reason": reason, "approver_reason": reason} if reason else {}
            return {**because, "approved_fingerprint": approved, **edited, **remembered}
        case ApprovalDecision.REJECT:
            return {"reason": reason, "rejected": True}
        case _ as unreachable:
            assert_never(unreachable)


def patched_args(args: bytes, patch: dict[str, Any]) -> bytes:
    """Return the arguments of a call as a JSON merge patch changes them: a key that is null is taken out.

    Raises:
        InvalidApprovalError: the call's own arguments are no JSON object.
    """
    try:
        own = codec.decode(args.strip() or b"{}")
    except msgspec.DecodeError:
        own = None
    if not isinstance(own, dict):
        raise InvalidApprovalError("this call's own arguments are no JSON object; replace all of them")
    return codec.encode(_merged(own, patch), "args")


def _merged(value: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(value) if isinstance(value, dict) else {}
    for key, inner in patch.items():
        if inner is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), inner)
    return merged


def judge(pause: Pause, request: ApprovalRequest) -> Ruling:
    """Return what a resolved pause means for the call of `request`; an approver's own arguments are sealed in it."""
    payload = pause.payload or {}
    if payload.get("fingerprint") != fingerprint_of(request.tool, request.args, request.identity):
        return Refused(OTHER_CALL)
    match pause.decision:
        case PauseDecision.APPROVE:
            return _judge_approved(pause, request)
        case PauseDecision.REJECT | PauseDecision.TIMEOUT:
            if payload.get("rejected"):
                return Refused(str(payload.get("reason", "")))
            return Refused(NOT_ANSWERED if _was_due(pause) else OUTSIDE)
        case PauseDecision.RESUME | None:
            return Refused(OUTSIDE)
        case _ as unreachable:
            assert_never(unreachable)


def _judge_approved(pause: Pause, request: ApprovalRequest) -> Ruling:
    payload = pause.payload or {}
    approved = payload.get("approved_fingerprint")
    if approved is None:
        by_default = pause.default is PauseDecision.APPROVE and _was_due(pause)
        return Granted(request.args, NOT_ANSWERED) if by_default else Refused(OUTSIDE)
    reason = str(payload.get("approver_reason", ""))
    said = payload.get("remember")
    remember = Remember(said) if said in _REMEMBERED else None
    if approved == payload["fingerprint"]:
        return Granted(request.args, reason, remember)
    edited = pause.sealed
    if edited is not None and approved == fingerprint_of(request.tool, edited, request.identity):
        return Granted(edited, reason, remember)
    return Refused(EDIT_LOST)


def _was_due(pause: Pause) -> bool:
    """Return whether the pause was resolved at its deadline or later."""
    return pause.deadline is not None and pause.resumed_at is not None and pause.resumed_at >= pause.deadline


PolicyAnswer: TypeAlias = tuple[bool, str] | bool
ApprovalPolicy: TypeAlias = Callable[[ApprovalRequest], PolicyAnswer | Awaitable[PolicyAnswer]]


class AlwaysDeny:
    """No call runs without a person's approval."""

    def __init__(self, reason: str = "") -> None:
        self._reason = reason or "policy: deny-all"

    def __call__(self, request: ApprovalRequest) -> tuple[bool, str]:
        return True, self._reason


class AlwaysApprove:
    """Every call runs without approval."""

    def __call__(self, request: ApprovalRequest) -> tuple[bool, str]:
        return False, ""


class Tagged:
    """Calls of tools that have at least one of these tags need approval; without any tag none does."""

    def __init__(self, require_tags: Iterable[str], reason: str = "") -> None:
        self._tags = frozenset(names_of(require_tags, "require_tags"))
        self._reason = reason or "policy: tagged"

    def __call__(self, request: ApprovalRequest) -> tuple[bool, str]:
        is_required = not self._tags.isdisjoint(request.tags)
        return is_required, self._reason if is_required else ""


class BySideEffect:
    """Calls of tools with one of these side effects need approval; so does one whose side effect is not known."""

    def __init__(self, classes: Iterable[SideEffect], reason: str = "") -> None:
        self._classes = frozenset(all_of(SideEffect, classes, "classes"))
        self._reason = reason

    def __call__(self, request: ApprovalRequest) -> tuple[bool, str]:
        effect = request.side_effects
        if effect is not None and effect not in self._classes:
            return False, ""
        return True, self._reason or f"policy: side effect {effect or 'unknown'}"
