"""The stored form of an event: what a log keeps of it, and the way back.

The log itself knows the session and the number, so neither is in the bytes. Pure.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from harborage import codec
from harborage.events.errors import EventCorruptError
from harborage.events.event import Event, Payload, RedactedMap, SafePayload, unix_ns
from harborage.events.payloads import PAYLOADS

if TYPE_CHECKING:
    from harborage.events.log import Logged

__all__ = ["decode_event", "encode_event", "typed_event"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Stored(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """`occurred_at` is unix nanoseconds; `payload` is always an object."""

    type: str
    occurred_at: int
    payload: Any
    run_id: str = ""
    extra: dict[str, str] | None = None


def encode_event(event: Event) -> bytes:
    """The bytes that are kept of a redacted event that has its time.

    Raises:
        UnserializableError: the payload holds something that has no JSON form; `field` is its path.
    """
    assert event.occurred_at is not None
    payload = event.payload.data if isinstance(event.payload, RedactedMap) else event.payload
    at = unix_ns(event.occurred_at)
    return codec.encode(_Stored(str(event.type), at, payload, event.identity.run_id, event.extra or None), "event")


def decode_event(kept: Logged) -> Event:
    """The event that was kept, its payload as a `RedactedMap`.

    Raises:
        EventCorruptError: it cannot be read.
    """
    try:
        stored = codec.decode(kept.data, _Stored)
    except msgspec.DecodeError as error:
        raise EventCorruptError(kept.who.session_id, kept.sequence) from error
    body = stored.payload if isinstance(stored.payload, dict) else {"value": stored.payload}
    at = _EPOCH + timedelta(microseconds=stored.occurred_at // 1_000)
    return Event(stored.type, kept.who.with_run(stored.run_id), RedactedMap(body), at, kept.sequence, stored.extra)


def typed_event(event: Event) -> Event:
    """The event with the payload object that its first readers got; as it is where it has none, or no longer fits.

    What a log gives back are plain maps. Only a type that has one safe class can be told apart from them.
    """
    payload = event.payload
    if not isinstance(payload, RedactedMap):
        return event
    kind = _CLASSES.get(event.type)
    if kind is None:
        return event
    try:
        found: Payload = msgspec.json.decode(codec.encode(payload.data, "event"), type=kind)
    except msgspec.DecodeError:
        return event
    return msgspec.structs.replace(event, payload=found)


_CLASSES: dict[str, type[Payload]] = {
    str(kind): classes[0]
    for kind, classes in PAYLOADS.items()
    if len(classes) == 1 and issubclass(classes[0], SafePayload)
}
