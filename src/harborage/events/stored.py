"""The stored form of an event: what a store keeps of it, and the way back.

Whose it is, its type, its time and its numbers are columns of their own, so none of them is in the bytes. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from harborage import codec
from harborage.events.errors import EventCorruptError
from harborage.events.event import Event, Payload, RedactedMap, SafePayload
from harborage.events.payloads import PAYLOADS
from harborage.store import EVENT_STEP, NewEvent
from harborage.store.times import micros, moment

if TYPE_CHECKING:
    from harborage.store import EventRow

__all__ = ["decode_event", "encode_event", "numbered", "typed_event"]


class _Stored(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """`payload` is always an object."""

    payload: Any
    extra: dict[str, str] | None = None


def encode_event(event: Event) -> NewEvent:
    """What is kept of a redacted event that has its time.

    Raises:
        UnserializableError: the payload holds something that has no JSON form; `field` is its path.
    """
    assert event.occurred_at is not None
    payload = event.payload.data if isinstance(event.payload, RedactedMap) else event.payload
    data = codec.encode(_Stored(payload, event.extra or None), "event")
    return NewEvent(type=str(event.type), data=data, run_id=event.identity.run_id, at=micros(event.occurred_at))


def decode_event(row: EventRow) -> Event:
    """The event that was kept, its payload as a `RedactedMap`.

    Raises:
        EventCorruptError: it cannot be read.
    """
    if row.is_damaged:
        raise EventCorruptError(row.who.session_id, row.place)
    try:
        stored, at = codec.decode(row.data, _Stored), moment(row.at)
    except (msgspec.DecodeError, OverflowError) as error:
        raise EventCorruptError(row.who.session_id, row.place) from error
    body = stored.payload if isinstance(stored.payload, dict) else {"value": stored.payload}
    who = row.who.with_run(row.run_id)
    return Event(row.type, who, RedactedMap(body), at, row.place, stored.extra, row.sequence)


def numbered(event: Event, place: int, first: int, offset: int) -> Event:
    """An event as it was kept: the one at `offset` of a commit whose first has this place and number in the store."""
    return Event(
        event.type,
        event.identity,
        event.payload,
        event.occurred_at,
        place + offset,
        event.extra,
        first + offset * EVENT_STEP,
    )


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
