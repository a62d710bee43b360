"""Errors of SQLite as errors of the store, which name the file and say what to do."""

from __future__ import annotations

import errno

import apsw

from harborage.state.errors import (
    DatabaseCorruptError,
    DatabaseError,
    DatabaseFullError,
    DatabaseLockedError,
    DatabaseReadOnlyError,
    DatabaseUnreachableError,
)
from harborage.store.sql.rows import UnreadableError

_KINDS: tuple[tuple[type[apsw.Error], type[DatabaseError]], ...] = (
    (apsw.BusyError, DatabaseLockedError),
    (apsw.LockedError, DatabaseLockedError),
    (apsw.FullError, DatabaseFullError),
    (apsw.ReadOnlyError, DatabaseReadOnlyError),
    (apsw.PermissionsError, DatabaseReadOnlyError),
    (apsw.CorruptError, DatabaseCorruptError),
    (apsw.NotADBError, DatabaseCorruptError),
    (apsw.CantOpenError, DatabaseUnreachableError),
    (apsw.IOError, DatabaseUnreachableError),
    (apsw.ProtocolError, DatabaseUnreachableError),
)
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def failure(error: Exception, database: str, *, run_id: str = "", system_errno: int = 0) -> Exception:
    """The error that the caller gets instead of `error`; one that is not SQLite's own is returned as it is.

    `system_errno` is what the system said last: SQLite calls a disk that is full an I/O error now and then.
    """
    if isinstance(error, UnicodeDecodeError | UnreadableError):
        what = "a text in it is none: " if isinstance(error, UnicodeDecodeError) else ""
        translated: DatabaseError = DatabaseCorruptError(database, f"{what}{error}", run_id=run_id)
        translated.__cause__ = error
        return translated
    if not isinstance(error, apsw.Error):
        return error
    kind = next((ours for theirs, ours in _KINDS if isinstance(error, theirs)), DatabaseError)
    if isinstance(error, apsw.IOError) and system_errno in _NO_SPACE:
        kind = DatabaseFullError
    translated = kind(database, str(error), run_id=run_id)
    translated.__cause__ = error
    return translated
