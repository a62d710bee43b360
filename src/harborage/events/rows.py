"""An event as a row of the store, and back.

Its identity, type, time and numbers are columns of their own, so none of them is in the encoded bytes. Pure.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from harborage import codec
from harborage.events.errors import EventCorruptError
from harborage.events.event import Event, Payload, RedactedMap, SafePayload, StoredMap, StoredPayload
from harborage.events.payloads.by_type import PAYLOADS
from harborage.events.wire import wire_payload
from harborage.store import EVENT_STEP, NewEvent
from harborage.store.times import micros, moment

if TYPE_CHECKING:
    from harborage.store import EventRow


class _Stored(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """`payload` is an object, as it is on the wire; `is_map` says that it is the content of a `RedactedMap`."""

    payload: Any
    extra: dict[str, str] | None = None
    is_map: bool = False


class _StoredAsWire(msgspec.Struct, frozen=True, gc=False):
    payload: msgspec.Raw
    extra: dict[str, str] | None = None
    is_map: bool = False


def encode_event(event: Event) -> NewEvent:
    """Return the row to insert for an event that is redacted and has its time.

    Raises:
        UnserializableError: the payload holds something that has no JSON form; `field` is its path.
    """
    assert event.occurred_at is not None
    is_map = isinstance(event.payload, RedactedMap) and not isinstance(event.payload, StoredMap)
    payload = event.payload.data if isinstance(event.payload, RedactedMap) else wire_payload(event.payload)
    data = codec.encode(_Stored(payload, event.extra or None, is_map), "event")
    return NewEvent(type=str(event.type), data=data, run_id=event.identity.run_id, at=micros(event.occurred_at))


def task_head(task_id: str) -> str:
    """Return the text with which the data of every event begins whose payload is about this task alone."""
    return codec.encode(_Stored({"TaskID": task_id}), "event").decode().removesuffix("}}")


def decode_event(row: EventRow) -> Event:
    """Return the event of a row, its payload as a `RedactedMap`.

    Raises:
        EventCorruptError: the row cannot be read.
    """
    if row.is_damaged:
        raise EventCorruptError(row.who.session_id, row.place)
    try:
        stored, at = codec.decode(row.data, _Stored), moment(row.at)
    except (msgspec.DecodeError, OverflowError) as error:
        raise EventCorruptError(row.who.session_id, row.place) from error
    body = stored.payload if isinstance(stored.payload, dict) else {"value": stored.payload}
    who = row.who.with_run(row.run_id)
    payload = RedactedMap(body) if stored.is_map else StoredMap(body)
    return Event(row.type, who, payload, at, row.place, stored.extra, row.sequence)


def decode_for_wire(row: EventRow) -> Event:
    """Return the event of a row for clients alone: on the wire it equals the one that was published, byte for byte.

    Raises:
        EventCorruptError: the row cannot be read.
    """
    if row.is_damaged:
        raise EventCorruptError(row.who.session_id, row.place)
    try:
        stored, at = codec.decode(row.data, _StoredAsWire), moment(row.at)
    except (msgspec.DecodeError, OverflowError) as error:
        raise EventCorruptError(row.who.session_id, row.place) from error
    raw = msgspec.Raw(b'{"Data":%b}' % bytes(stored.payload)) if stored.is_map else stored.payload.copy()
    who = row.who.with_run(row.run_id)
    return Event(row.type, who, StoredPayload(raw), at, row.place, stored.extra, row.sequence)


def event_flaw(at: int, data: bytes) -> str:
    """Return why a stored event cannot be read that has this time and these bytes; "" when it can be."""
    try:
        _decoder().decode(data)
        moment(at)
    except (msgspec.DecodeError, OverflowError) as error:
        return f"it cannot be read: {error}"
    return ""


@cache
def _decoder() -> msgspec.json.Decoder[_Stored]:
    return msgspec.json.Decoder(_Stored)


def set_numbers(event: Event, sequence: int, store_sequence: int, offset: int) -> Event:
    """Return the event at `offset` of a commit with its numbers; those of the commit's first event are given."""
    return Event(
        event.type,
        event.identity,
        event.payload,
        event.occurred_at,
        sequence + offset,
        event.extra,
        store_sequence + offset * EVENT_STEP,
    )


def typed_event(event: Event) -> Event:
    """Return a replayed event with a typed payload, as live subscribers get it; unchanged where that is impossible.

    A store returns payloads as plain maps. They are typed again if their event type has one payload class, which is a
    `SafePayload`, and if they still fit it.
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
