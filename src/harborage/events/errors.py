"""The errors of events: publishing, subscribing, replay, redaction.

EventError
├── UnknownEventTypeError          a type that is not registered
├── SequenceProvidedError          the caller gave an event a number; the bus does that
├── InvalidEventError              an event without a payload
├── BusClosedError                 the bus has been closed
├── IdentityScopeRequiredError     a filter names less than a whole session and is not an admin's
├── SubscriberLimitReachedError    too many live subscriptions for one session
├── ReplayUnavailableError         this bus keeps nothing to replay
├── CursorTooOldError              the requested events are kept no longer
├── AggregateBadWindowError        window and bucket do not fit
├── EventCorruptError              a stored event is missing or cannot be read
├── BusBacklogError                too many events wait for the store
├── BusStalledError                the store refuses earlier events of the session
└── RedactionError
    ├── RedactionFailedError           a value could not be redacted, so it was not published
    ├── RedactionDepthExceededError    nested deeper than the redactor goes
    └── RedactorMissingError           no ambient redactor
"""

from __future__ import annotations

from harborage.errors import HarborageError


class EventError(HarborageError):
    """An operation on events failed."""


class UnknownEventTypeError(EventError):
    """An event has a type that is not registered. `type` is its type."""

    def __init__(self, type: str = "") -> None:
        self.type = type
        super().__init__(
            f"events: unknown event type {type!r}; use an EventType, or call register_event_type at start-up"
        )


class SequenceProvidedError(EventError):
    """An event came with a sequence number; leave it 0, the bus gives the numbers."""


class InvalidEventError(EventError):
    """An event has no payload; give it the payload class that PAYLOADS lists for its type."""


class BusClosedError(EventError):
    """The event bus is closed; open a new one."""


class IdentityScopeRequiredError(EventError):
    """A filter must name tenant, user and session, or be an admin filter."""


class SubscriberLimitReachedError(EventError):
    """The session has its most live subscriptions, which is `limit`; cancel one first."""

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        super().__init__(f"events: this session already has {limit} subscriptions, the most it may; cancel one first")


class ReplayUnavailableError(EventError):
    """This bus keeps no events to replay; set replay_buffer_size above 0."""


class CursorTooOldError(EventError):
    """The events after the cursor are kept no longer. `oldest` is the first one kept, `requested` the cursor."""

    def __init__(self, oldest: int = 0, requested: int = 0) -> None:
        self.oldest = oldest
        self.requested = requested
        super().__init__(f"events: cursor too old: oldest={oldest} requested={requested}; replay from 0 instead")


class AggregateBadWindowError(EventError):
    """Window and bucket must both be positive, and the window a whole number of buckets."""


class EventCorruptError(EventError):
    """A stored event cannot be read, or `is_missing`. `session_id` and `sequence` say which."""

    def __init__(self, session_id: str = "", sequence: int = 0, *, is_missing: bool = False) -> None:
        self.session_id = session_id
        self.sequence = sequence
        self.is_missing = is_missing
        what = "cannot be read; another program changed it, or a later version wrote it"
        if is_missing:
            what = "is missing from the store; another program deleted it"
        super().__init__(f"events: event {sequence} of session {session_id} {what}")


class BusBacklogError(EventError):
    """`limit` events wait for the store, the most that may; this one was not published."""

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        super().__init__(f"events: {limit} events wait for a store that does not keep up; this one was not published")


class BusStalledError(EventError):
    """The store refuses earlier events of the session; until it takes them, the session can publish no more."""

    def __init__(self, session_id: str = "") -> None:
        self.session_id = session_id
        super().__init__(
            f"events: the store refuses the events of session {session_id}; they are offered again until it takes "
            "them, and this one was not published"
            if session_id
            else ""
        )


class RedactionError(EventError):
    """Redacting a value failed."""


class RedactionFailedError(RedactionError):
    """A value could not be redacted and was therefore not published. `rule` names the rule that failed."""

    def __init__(self, message: str = "", *, rule: str = "") -> None:
        self.rule = rule
        super().__init__(message)


class RedactionDepthExceededError(RedactionError):
    """A value is nested deeper than the redactor goes. `limit` is that depth."""

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        super().__init__(f"audit: value is nested {limit} levels deep or more; flatten it or store it as an artifact")


class RedactorMissingError(RedactionError):
    """No redactor is bound in this context; enter `with_redactor(...)` first."""
