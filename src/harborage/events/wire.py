"""Events as they leave the process: JSON, and frames of a server-sent event stream.

The envelope is in snake case, payload keys are as their classes spell them; every time has nine fractional digits,
those in payloads, too. Pure: nothing here knows the client.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from harborage import codec
from harborage.events.errors import InvalidEventError
from harborage.events.event import StoredMap, StoredPayload

if TYPE_CHECKING:
    from harborage.events.event import Event, Payload


class _WireEvent(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    type: str
    sequence: int
    occurred_at: str
    tenant: str
    user: str
    session: str
    run: str = ""
    payload: Any = None
    extra: dict[str, str] | None = None


def wire_time(moment: datetime) -> str:
    """Return `moment` in RFC 3339, in UTC, with exactly nine fractional digits."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "000Z"


def encode_wire(event: Event, number: int | None = None) -> bytes:
    """Return a published event as compact JSON; `run`, `payload` and `extra` are left out when they are empty.

    `number` is its sequence there, if that is not the event's own.

    Raises:
        InvalidEventError: the event was never published, so it has no time.
        UnserializableError: the payload holds something that has no JSON form; `field` is its path.
    """
    return codec.encode(_wire(event, number), "event")


def to_wire(event: Event) -> dict[str, Any]:
    """Return the same as plain data.

    Raises:
        InvalidEventError, UnserializableError: as for `encode_wire`.
    """
    plain: dict[str, Any] = codec.to_plain(_wire(event), "event")
    return plain


def event_frame(event: Event) -> bytes:
    """Return one event of a server-sent event stream; its id is the sequence number, which a client sends to resume.

    A notice of the bus to one subscriber, and an event without a number, has no id: the client keeps its last one.

    Raises:
        InvalidEventError, UnserializableError: as for `encode_wire`.
    """
    return numbered_frame(event, event.sequence)


def numbered_frame(event: Event, number: int) -> bytes:
    """Return the same with `number` as the event's sequence and id.

    Raises:
        InvalidEventError, UnserializableError: as for `encode_wire`.
    """
    has_id = number and not event.type.startswith("bus.")
    id_line = b"id: %d\n" % number if has_id else b""
    return b"event: %s\n%sdata: %s\n\n" % (event.type.encode(), id_line, encode_wire(event, number))


def comment_frame(text: str) -> bytes:
    """Return a comment, which clients ignore."""
    return f": {text}\n\n".encode()


def retry_frame(delay_ms: int) -> bytes:
    """Return the frame that says how long clients should wait before they connect again, in milliseconds."""
    return b"retry: %d\n\n" % delay_ms


KEEPALIVE_FRAME = comment_frame("keepalive")
"""Keeps an idle connection open."""


def _wire(event: Event, number: int | None = None) -> _WireEvent:
    if event.occurred_at is None:
        raise InvalidEventError(f"events: {event.type} was never published, so it has no time and no number")
    who = event.identity
    at = wire_time(event.occurred_at)
    return _WireEvent(
        str(event.type), event.sequence if number is None else number, at,
        who.tenant_id, who.user_id, who.session_id, who.run_id, wire_payload(event.payload), event.extra or None,
    )  # fmt: skip


def wire_payload(payload: Payload | None) -> Any:
    """Return what stands for a payload on the wire; its times are texts with nine fractional digits."""
    if isinstance(payload, StoredPayload):
        return payload.raw
    return payload.data if isinstance(payload, StoredMap) else _with_times(payload)


def _with_times(body: Any) -> Any:
    """Return a payload, or a part of one, with its times as texts; the same object if it has none."""
    if isinstance(body, datetime):
        return wire_time(body)
    if isinstance(body, tuple) and body and _may_hold_times(body[0].__class__):
        return [_with_times(one) for one in body]
    if not (fields := _timed_fields(body.__class__)):
        return body
    shown: dict[str, Any] = {}
    for name, key, may_hold_times in fields:
        value = getattr(body, name)
        if value is not msgspec.UNSET:
            shown[key] = _with_times(value) if may_hold_times else value
    return shown


@cache
def _timed_fields(kind: type) -> tuple[tuple[str, str, bool], ...]:
    """Return name, key and whether it may hold a time of each field of a class; nothing for one that holds no time."""
    if not _may_hold_times(kind):
        return ()
    fields = msgspec.structs.fields(kind)
    return tuple((one.name, one.encode_name, _leads_to_time(one.type) or one.type is Any) for one in fields)


@cache
def _may_hold_times(kind: type) -> bool:
    """Return whether a class has a field that holds a time, or a part that may."""
    if not issubclass(kind, msgspec.Struct):
        return False
    return any(_leads_to_time(field.type) for field in msgspec.structs.fields(kind))


def _leads_to_time(hint: Any) -> bool:
    inner = get_args(hint)
    if inner:
        return any(_leads_to_time(one) for one in inner)
    return hint is datetime or (isinstance(hint, type) and _may_hold_times(hint))
