"""What can go wrong with what is kept: records, runs, and the database they are kept in.

StateError
├── RecordNotFoundError · InvalidRecordError · EventIdConflictError    a record
├── StoreClosedError                                                   the store is closed
├── StorageUrlError                                                    the url does not say what to open
└── DatabaseError                                                      the database refused; nothing was changed
    ├── DatabaseLockedError            another process held it for too long
    ├── DatabaseFullError              no space left
    ├── DatabaseReadOnlyError          it may not be written
    ├── DatabaseCorruptError           damaged, or no such database at all
    ├── DatabaseUnreachableError       it cannot be opened, or the connection broke
    │   └── AnswerLostError            … in the middle of a change, which may have been kept
    ├── DatabasePlaceError             its file lies where locks cannot be relied on
    └── MigrationError
        ├── SchemaNewerError           written by a newer version of this package
        └── MigrationChangedError      its tables were made by another line of this package
"""

from __future__ import annotations

from typing import Self

from harborage.errors import HarborageError, NotFoundError, first_sentence


class StateError(HarborageError):
    """What is kept could not be kept or read."""


class RecordNotFoundError(StateError, NotFoundError):
    """No such record for this identity; another owner's record looks exactly the same. `id` is its kind or event id."""

    what = "state record"
    fix = "save one first, under the same identity"


class StoreClosedError(StateError):
    """The store is closed; open a new one."""


class InvalidRecordError(StateError):
    """A record needs a non-empty event id and kind."""


class EventIdConflictError(StateError):
    """An event id was used again for another record. `event_id` is the one; make a new id for each change."""

    def __init__(self, event_id: str = "") -> None:
        self.event_id = event_id
        super().__init__(
            f"event id {event_id!r} was already used for another record; make a new id for each change"
            if event_id
            else ""
        )


class StorageUrlError(StateError):
    """A storage url says nothing that could be opened: write memory:, sqlite:PATH, a bare path, or postgres://…."""


class DatabaseError(StateError):
    """The database refused. Nothing was changed, and it serves again once the cause is gone.

    `database` is its path or its address without a password, `run_id` the run it was about, where there is one.
    """

    advice = "look at what the database said"

    def __init__(self, database: str = "", said: str = "", *, run_id: str = "") -> None:
        self.database = database
        self.said = said
        self.run_id = run_id
        about = f" (run {run_id})" if run_id else ""
        super().__init__(f"{database}: {said or first_sentence(type(self))}{about}; {self.advice}" if database else "")

    def about(self, run_id: str) -> Self:
        """The same error, with the id of this run."""
        return type(self)(self.database, self.said, run_id=run_id)


class DatabaseLockedError(DatabaseError):
    """Another process held the database for too long; nothing was changed."""

    advice = "try again, or end the process that holds it"


class DatabaseFullError(DatabaseError):
    """No space is left for the database; nothing was changed."""

    advice = "free some space on that disk"


class DatabaseReadOnlyError(DatabaseError):
    """The database may not be written; nothing was changed."""

    advice = "give this process the right to write it (a file, and the folder it is in), or name another"


class DatabaseCorruptError(DatabaseError):
    """The database is damaged, or is none at all; it was left as it is."""

    advice = "keep the file, and bring back a copy that is whole"


class DatabaseUnreachableError(DatabaseError):
    """The database cannot be opened, or the way to it broke."""

    advice = "see that it is there and that this process may use it"


class AnswerLostError(DatabaseUnreachableError):
    """The way to the database broke in the middle of a change; whether that was kept is not known."""

    advice = "look at what was kept before doing it again"


class DatabasePlaceError(DatabaseError):
    """The database's file has a second name or is on a network, so its locks cannot be relied on; it was not opened."""

    advice = (
        "keep one name (copy the file to have a second database) on a local disk, with the folder it lies in, or use "
        "postgres://…"
    )


class MigrationError(DatabaseError):
    """The tables of the database are not those that this version of the package works with; nothing was changed."""


class SchemaNewerError(MigrationError):
    """The database was written by a newer version of this package; nothing was changed."""

    advice = "upgrade this package, or name another database"


class MigrationChangedError(MigrationError):
    """The database has the tables of another line of this package; nothing was changed."""

    advice = "name another database, or use the version of this package that made this one"
