"""A pause as it is exported: JSON with a format version; reading and writing it again gives the same bytes.

A new format adds a step to `UPCASTS`, so that every older one still opens. Pure: bytes in, values out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

import msgspec

from harborage import codec
from harborage.identity import Identity, Quadruple
from harborage.ids import named_id, new_id
from harborage.planner.decisions import PauseReason
from harborage.planner.errors import TrajectoryCorruptError
from harborage.planner.trajectory import Trajectory
from harborage.runtime.durable.pauses.errors import (
    CheckpointCorruptError,
    InvalidReasonError,
    PauseDecisionError,
    UnsupportedFormatVersionError,
)
from harborage.runtime.loop.pauses import Pause, PauseDecision, PauseState

FORMAT_VERSION = 1

Upcast = Callable[[dict[str, Any]], dict[str, Any]]
UPCASTS: Mapping[int, Upcast] = MappingProxyType({})
"""Maps a format version to the step that makes the next version of it, `format_version` included."""


class PauseRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pause in its exported form. Fields without a default are always there."""

    format_version: int
    token: str
    reason: PauseReason
    state: PauseState
    identity: Identity
    run_id: str = ""
    payload: dict[str, Any] | None = None
    paused_at: datetime
    resumed_at: datetime | None
    trajectory_bytes: bytes | None = None
    deadline: datetime | None = None
    default: PauseDecision = PauseDecision.TIMEOUT
    decision: PauseDecision | None = None
    key: str = ""
    sealed: bytes | None = None
    resolved_by: str = msgspec.field(default="", name="settled_by")
    step: int = 0
    call_id: str = ""
    is_masked: bool = False


def plain_payload(payload: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a copy of `payload` as plain JSON data, so that it reads the same before and after a restart.

    Raises:
        UnserializableError: something inside has no JSON form; `field` is its path below `PauseRecord.payload`.
    """
    if payload is None:
        return None
    codec.validate_encodable(payload, "PauseRecord.payload")
    plain: dict[str, Any] = codec.to_plain(payload, "PauseRecord.payload")
    return plain


def encode_pause(pause: Pause) -> bytes:
    """Encode a pause as a checkpoint of the current format version.

    Raises:
        UnserializableError: the payload has no JSON form.
    """
    who = pause.identity
    record = PauseRecord(
        format_version=FORMAT_VERSION,
        token=pause.token,
        reason=pause.reason,
        state=pause.state,
        identity=who.identity,
        run_id=who.run_id,
        payload=pause.payload,
        paused_at=pause.paused_at,
        resumed_at=pause.resumed_at,
        trajectory_bytes=pause.trajectory,
        deadline=pause.deadline,
        default=pause.default,
        decision=pause.decision,
        key=pause.key,
        sealed=pause.sealed,
        resolved_by=pause.resolved_by,
        step=pause.step,
        call_id=pause.call_id,
        is_masked=pause.is_masked,
    )
    return codec.encode(record, "PauseRecord")


def decode_pause(data: bytes, token: str = "", upcasts: Mapping[int, Upcast] = UPCASTS) -> Pause:
    """Decode the pause of a checkpoint. `token` is only for the error texts.

    Raises:
        CheckpointCorruptError: empty, malformed, of another shape, or with a trajectory that cannot be read.
        UnsupportedFormatVersionError: no version, or one that neither this code nor `upcasts` knows.
    """
    record = _read_record(_upcast(_parse(data, token), token, upcasts), token)
    if record.trajectory_bytes is not None:
        try:
            Trajectory.deserialize(record.trajectory_bytes)
        except TrajectoryCorruptError as error:
            raise CheckpointCorruptError(token, "trajectory_bytes") from error
    return Pause(
        token=record.token,
        reason=record.reason,
        state=record.state,
        identity=record.identity.with_run(record.run_id),
        paused_at=record.paused_at,
        payload=record.payload,
        resumed_at=record.resumed_at,
        decision=record.decision,
        deadline=record.deadline,
        default=record.default,
        key=record.key,
        trajectory=record.trajectory_bytes,
        sealed=record.sealed,
        resolved_by=record.resolved_by,
        step=record.step,
        call_id=record.call_id,
        is_masked=record.is_masked,
    )


def _parse(data: bytes, token: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = codec.decode(data, dict[str, Any])
    except msgspec.DecodeError as error:
        raise CheckpointCorruptError(token, str(error)) from error
    return found


def _upcast(found: dict[str, Any], token: str, upcasts: Mapping[int, Upcast]) -> dict[str, Any]:
    """Return `found` in the current format, upgraded one version at a time."""
    while True:
        version = found.get("format_version")
        # A JSON `true` equals 1 in Python, but it is no version.
        if type(version) is not int:
            raise UnsupportedFormatVersionError(token)
        if version == FORMAT_VERSION:
            return found
        step = upcasts.get(version)
        if step is None:
            raise UnsupportedFormatVersionError(token, version)
        found = step(found)


def _read_record(found: dict[str, Any], token: str) -> PauseRecord:
    try:
        return msgspec.convert(found, PauseRecord)
    except msgspec.ValidationError as error:
        raise CheckpointCorruptError(token, str(error)) from error


def checked_reason(reason: PauseReason) -> PauseReason:
    try:
        return PauseReason(reason)
    except ValueError:
        raise InvalidReasonError(reason) from None


def checked_decision(decision: PauseDecision) -> PauseDecision:
    try:
        return PauseDecision(decision)
    except ValueError:
        raise PauseDecisionError(decision) from None


def pause_token(owner: Quadruple, key: str) -> str:
    """Return a new token, or the token of a key of this owner, so that a repeated request opens no second pause."""
    if not key:
        return new_id()
    return named_id(owner.tenant_id, owner.user_id, owner.session_id, owner.run_id, key)
