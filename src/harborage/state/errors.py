"""What can go wrong in a record store."""

from __future__ import annotations

from harborage.errors import HarborageError
from harborage.identity import IdentityRequiredError

__all__ = [
    "IdempotencyConflictError",
    "IdentityRequiredError",
    "InvalidRecordError",
    "NotFoundError",
    "StateError",
    "StoreClosedError",
]


class StateError(HarborageError):
    """A record store failed."""


class NotFoundError(StateError):
    """No such record for this identity; another owner's record looks exactly the same."""


class StoreClosedError(StateError):
    """The state store is closed; open a new one."""


class InvalidRecordError(StateError):
    """A record needs a non-empty event id and kind."""


class IdempotencyConflictError(StateError):
    """An event id was used again for another record. `event_id` is the one; make a new id for each change."""

    def __init__(self, event_id: str = "") -> None:
        self.event_id = event_id
        super().__init__(
            f"event id {event_id!r} already stands for another record; make a new id for each change"
            if event_id
            else ""
        )
