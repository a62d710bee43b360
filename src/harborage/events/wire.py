"""Events as they leave the process: JSON, and frames of a server-sent event stream.

The envelope is in snake case, payload keys are as their classes spell them. Pure: nothing here knows who is reading.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from harborage import codec
from harborage.events.errors import InvalidEventError
from harborage.events.event import Event, Payload

__all__ = ["KEEPALIVE_FRAME", "comment_frame", "encode_wire", "event_frame", "retry_frame", "to_wire", "wire_time"]


class _WireEvent(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    type: str
    sequence: int
    occurred_at: str
    tenant: str
    user: str
    session: str
    run: str = ""
    payload: Payload | None = None
    extra: dict[str, str] | None = None


def wire_time(moment: datetime) -> str:
    """`moment` in RFC 3339, in UTC, with exactly nine fractional digits."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "000Z"


def encode_wire(event: Event) -> bytes:
    """A published event as compact JSON; `run`, `payload` and `extra` are left out when there is nothing in them.

    Raises:
        InvalidEventError: the event was never published, so it has no time.
        UnserializableError: the payload holds something that has no JSON form; `field` is its path.
    """
    return codec.encode(_wire(event), "event")


def to_wire(event: Event) -> dict[str, Any]:
    """The same as plain data.

    Raises:
        InvalidEventError, UnserializableError: as for `encode_wire`.
    """
    plain: dict[str, Any] = codec.to_plain(_wire(event), "event")
    return plain


def event_frame(event: Event) -> bytes:
    """One event of a server-sent event stream; its id is the sequence number, which a client sends back to resume.

    A notice to one reader, and an event without a number, has no id, so that the client's place stays that of the last
    one that had.

    Raises:
        InvalidEventError, UnserializableError: as for `encode_wire`.
    """
    has_place = event.sequence and not event.type.startswith("bus.")
    place = b"id: %d\n" % event.sequence if has_place else b""
    return b"event: %s\n%sdata: %s\n\n" % (event.type.encode(), place, encode_wire(event))


def comment_frame(text: str) -> bytes:
    """A comment, which clients ignore."""
    return f": {text}\n\n".encode()


def retry_frame(delay_ms: int) -> bytes:
    """How long clients should wait before they connect again."""
    return b"retry: %d\n\n" % delay_ms


KEEPALIVE_FRAME = comment_frame("keepalive")
"""What keeps an idle connection open."""


def _wire(event: Event) -> _WireEvent:
    if event.occurred_at is None:
        raise InvalidEventError(f"events: {event.type} was never published, so it has no time and no number")
    who = event.identity
    at = wire_time(event.occurred_at)
    return _WireEvent(
        str(event.type), event.sequence, at, who.tenant_id, who.user_id, who.session_id, who.run_id, event.payload,
        event.extra or None,
    )  # fmt: skip
