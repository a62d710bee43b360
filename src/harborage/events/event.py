"""An event, and what a payload is.

A payload class says by its base whether the bus may deliver it as it is (`SafePayload`) or must redact it first
(`PlainPayload`). Nothing here knows a particular event; those are in `payloads/`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

import msgspec

from harborage.events.errors import InvalidEventError, SequenceProvidedError, UnknownEventTypeError
from harborage.events.types import EVENT_TYPES
from harborage.identity import Identity, Quadruple, require_triple

_UPPER = {"id": "ID", "kid": "KID", "mime": "MIME", "ms": "MS", "ok": "OK", "uri": "URI", "url": "URL"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def wire_key(name: str) -> str:
    """Return the wire spelling of a payload field: `task_id` is `TaskID`, `authorize_url` is `AuthorizeURL`."""
    return "".join(_UPPER.get(word, word.capitalize()) for word in name.split("_"))


def _plain_key(name: str) -> str:
    return name.replace("_", "")


def unix_ns(moment: datetime) -> int:
    """Return `moment` as nanoseconds since 1970, exact to the microsecond."""
    since = moment - _EPOCH
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1_000


# Events and payloads are immutable trees, never cycles: keeping them out of the garbage collector's lists
# makes a full replay ring free to hold.
class Payload(msgspec.Struct, frozen=True, gc=False, rename=wire_key):
    """The body of an event. Subclass `SafePayload` or `PlainPayload`, not this."""


class SafePayload(Payload, frozen=True):
    """A body whose keys name nothing secret: delivered as the typed object, its texts and free values redacted.

    Identities, times, numbers and flags stay as they are. Whatever else a field holds may quote anything.
    """


class PlainPayload(Payload, frozen=True, rename=_plain_key):
    """A body that may quote anything: subscribers get its redacted form as a `RedactedMap`."""


class RedactedMap(SafePayload, frozen=True):
    """A plain payload after redaction."""

    data: dict[str, Any]


class StoredMap(RedactedMap, frozen=True):
    """A payload that was no map when it was published, read back from a store: on the wire it is its content."""

    def __eq__(self, other: object) -> bool:
        return self.data == other.data if isinstance(other, RedactedMap) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment] # as of every payload that holds a dict


class StoredPayload(Payload, frozen=True):
    """A payload as a store keeps it: the very bytes that subscribers got on the wire."""

    raw: msgspec.Raw


class Triple(msgspec.Struct, frozen=True, gc=False, rename=wire_key):
    """An identity without a run, in the spelling that payloads use."""

    tenant_id: str = ""
    user_id: str = ""
    session_id: str = ""

    @classmethod
    def of(cls, who: Identity | Quadruple) -> Triple:
        """Return the triple of `who`."""
        return cls(who.tenant_id, who.user_id, who.session_id)


class Principal(msgspec.Struct, frozen=True, gc=False, rename=wire_key):
    """An identity in the short spelling of impersonation audits: Tenant, User, Session."""

    tenant: str = ""
    user: str = ""
    session: str = ""

    @classmethod
    def of(cls, who: Identity | Quadruple) -> Principal:
        """Return the principal of `who`."""
        return cls(who.tenant_id, who.user_id, who.session_id)


class Event(msgspec.Struct, frozen=True, gc=False):
    """One thing that happened. The bus fills in the numbers, and `occurred_at` when the caller left it open.

    `sequence` is its number in the stream that subscribers see, without gaps: a durable bus counts the events of a
    session, the bus in memory those of all sessions. `store_sequence` is its number in the store of record, which grows
    over all sessions and skips numbers; 0 where no store has it.
    """

    type: str
    identity: Quadruple
    payload: Payload | None
    occurred_at: datetime | None = None
    sequence: int = 0
    extra: dict[str, str] | None = None
    store_sequence: int = 0


def validate_event(event: Event) -> None:
    """Accept an event that may be published.

    Raises:
        UnknownEventTypeError, IdentityRequiredError, SequenceProvidedError, InvalidEventError: in this order.
    """
    if event.type not in EVENT_TYPES:
        raise UnknownEventTypeError(event.type)
    who = event.identity
    if type(who) is not Quadruple or not (who.tenant_id and who.user_id and who.session_id):  # a call less for most
        require_triple(who, "events: publish")
    if event.sequence:
        raise SequenceProvidedError()
    if event.payload is None:
        raise InvalidEventError(f"events: {event.type} has no payload; PAYLOADS lists the class for each type")


ANNOUNCED: Final[Mapping[str, object]] = MappingProxyType({"is_announced": True})
"""Marks a log record that repeats an event, so that a log with both has it once: `log.warning(…, extra=ANNOUNCED)`."""


def is_announced(record: logging.LogRecord) -> bool:
    """Return whether an event says the same as this log record."""
    return bool(getattr(record, "is_announced", False))
