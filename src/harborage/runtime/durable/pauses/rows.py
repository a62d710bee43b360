"""A pause as a row of the store of record, and back.

Identity, reason and times are columns; the question and the answer are JSON, stored apart and merged when they are
read. Pure: values in, values out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, assert_never

import msgspec

from harborage import codec
from harborage.errors import error_reason
from harborage.identity import Identity
from harborage.planner.decisions import PauseReason
from harborage.planner.errors import TrajectoryCorruptError
from harborage.planner.trajectory import Trajectory
from harborage.runtime.durable.pauses.errors import CheckpointCorruptError, UnsupportedFormatVersionError
from harborage.runtime.durable.pauses.record import FORMAT_VERSION
from harborage.runtime.loop.pauses import Pause, PauseDecision, PauseState
from harborage.store import NewPause, PauseStatus, SettlePause
from harborage.store.times import micros, moment

if TYPE_CHECKING:
    from harborage.store import PauseRow

WITHDRAWN: Final[dict[str, Any]] = {"rejected": True, "reason": "run ended"}
"""The answer of a pause that no call waits for any more."""

_DAMAGED: Final = "its row in harborage_pauses cannot be read"


class _Question(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The question. `trajectory` is the serialised history of the request; `step` and `call_id` name its call."""

    format_version: int
    payload: dict[str, Any] | None = None
    default: PauseDecision = PauseDecision.TIMEOUT
    key: str = ""
    trajectory: bytes | None = None
    step: int = 0
    call_id: str = ""
    is_masked: bool = False


class _Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer. `decision` is set if the status of the row does not give it; `by` and `event_id` are those of the
    control with the answer."""

    format_version: int
    payload: dict[str, Any] | None = None
    sealed: bytes | None = None
    decision: PauseDecision | None = None
    by: Identity | None = None
    event_id: str = ""


class _Version(msgspec.Struct, frozen=True):
    """The format version, which every version of both has."""

    format_version: Any = None


def encode_open_pause(pause: Pause) -> NewPause:
    """Return the change of the store that opens this pause.

    Raises:
        UnserializableError: the payload has no JSON form.
    """
    question = _Question(
        format_version=FORMAT_VERSION,
        payload=pause.payload,
        default=pause.default,
        key=pause.key,
        trajectory=pause.trajectory,
        step=pause.step,
        call_id=pause.call_id,
        is_masked=pause.is_masked,
    )
    return NewPause(
        token=pause.token,
        run_id=pause.identity.run_id,
        who=pause.identity.identity,
        reason=str(pause.reason),
        deadline=micros(pause.deadline),
        data=codec.encode(question, "PauseRecord"),
        at=micros(pause.paused_at),
    )


def encode_resolution(resolved: Pause, status: PauseStatus, payload: dict[str, Any] | None) -> SettlePause:
    """Return the change of the store that resolves a pause; `payload` is what the answer adds to the question.

    Raises:
        UnserializableError: the payload has no JSON form.
    """
    is_implied = _decision(status, resolved.default) == resolved.decision
    answer = _Answer(
        format_version=FORMAT_VERSION,
        payload=payload,
        sealed=resolved.sealed,
        decision=None if is_implied else resolved.decision,
        by=resolved.answered_by,
        event_id=resolved.answering,
    )
    return SettlePause(
        token=resolved.token,
        status=status,
        by=resolved.resolved_by,
        answer=codec.encode(answer, "PauseRecord"),
        at=0 if resolved.resumed_at is None else micros(resolved.resumed_at),
    )


def decode_row(row: PauseRow) -> Pause:
    """Return the pause of a row.

    Raises:
        CheckpointCorruptError: it cannot be read.
        UnsupportedFormatVersionError: another version wrote it than this code reads.
    """
    if row.is_damaged:
        raise CheckpointCorruptError(row.token, _DAMAGED)
    try:
        return _pause_of(row)
    except (ValueError, OverflowError) as error:  # an unknown reason, or an invalid time
        raise CheckpointCorruptError(row.token, str(error)) from error


def _pause_of(row: PauseRow) -> Pause:
    question = _read(row.data, _Question, row.token) if row.data else _Question(format_version=FORMAT_VERSION)
    pause = Pause(
        token=row.token,
        reason=PauseReason(row.reason),
        state=PauseState.PAUSED,
        identity=row.who.with_run(row.run_id),
        paused_at=moment(row.opened_at),
        payload=question.payload,
        deadline=None if row.deadline is None else moment(row.deadline),
        default=question.default,
        key=question.key,
        trajectory=question.trajectory,
        answering=row.answering,
        step=question.step,
        call_id=question.call_id,
        is_masked=question.is_masked,
    )
    decision = _decision(row.status, question.default)
    if decision is None:
        return pause
    answer = _read(row.answer, _Answer, row.token) if row.answer else _Answer(format_version=FORMAT_VERSION)
    payload = WITHDRAWN if row.status is PauseStatus.CANCELLED else answer.payload
    at = moment(row.opened_at if row.settled_at is None else row.settled_at)
    return pause.resolve(
        answer.decision or decision,
        payload,
        at,
        sealed=answer.sealed,
        by=row.settled_by,
        sender=answer.by,
        event_id=answer.event_id,
    )


def decode_trajectory(pause: Pause) -> Trajectory | None:
    """Return the history of a pause's request.

    Raises:
        CheckpointCorruptError: it cannot be read.
    """
    if pause.trajectory is None:
        return None
    try:
        return Trajectory.deserialize(pause.trajectory)
    except TrajectoryCorruptError as error:
        raise CheckpointCorruptError(pause.token, "trajectory") from error


def describe_damage(row: PauseRow) -> str:
    """Return why a stored pause cannot be read, open or resolved; "" if it can be read."""
    try:
        decode_trajectory(decode_row(row))
    except (CheckpointCorruptError, UnsupportedFormatVersionError) as error:
        return f"run {row.run_id}: {error_reason(error)}"
    return ""


def _decision(status: PauseStatus, default: PauseDecision) -> PauseDecision | None:
    """Return the decision of a status, unless the answer has another one; None for an open pause."""
    match status:
        case PauseStatus.OPEN:
            return None
        case PauseStatus.APPROVED:
            return PauseDecision.APPROVE
        case PauseStatus.REJECTED | PauseStatus.CANCELLED:
            return PauseDecision.REJECT
        case PauseStatus.ANSWERED:
            return PauseDecision.RESUME
        case PauseStatus.EXPIRED:
            return default
        case _ as unreachable:
            assert_never(unreachable)


def _read(data: bytes, shape: Any, token: str) -> Any:
    try:
        # The version is read first: another one may have another shape.
        version = codec.decode(data, _Version).format_version
        if type(version) is not int:  # a JSON `true` equals 1 in Python, but it is no version
            raise UnsupportedFormatVersionError(token)
        if version != FORMAT_VERSION:
            raise UnsupportedFormatVersionError(token, version)
        return codec.decode(data, shape)
    except msgspec.DecodeError as error:
        raise CheckpointCorruptError(token, str(error)) from error
