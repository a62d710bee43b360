"""What a failure of the driver or the database means: pure knowledge of SQLSTATE codes, without the driver itself."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from harborage.state.errors import (
    DatabaseCorruptError,
    DatabaseError,
    DatabaseFullError,
    DatabaseLockedError,
    DatabaseReadOnlyError,
    DatabaseUnreachableError,
    StorageUrlError,
)

UNKNOWN = "the way to it broke, and whether the change was kept is not known"
UNFIT = "a value cannot be kept in Postgres: text must be free of NUL and lone surrogates, numbers have 64 bits"


class Fault(NamedTuple):
    """What went wrong, as which error; `may_pass` with another try, `is_broken` says that the answer was lost."""

    kind: type[DatabaseError]
    said: str
    may_pass: bool = False
    is_broken: bool = False


# By the whole code, or by its class: its first two characters.
_KINDS: dict[str, type[DatabaseError]] = {
    "08": DatabaseUnreachableError,
    "25006": DatabaseReadOnlyError,
    "28": DatabaseUnreachableError,
    "3D": DatabaseUnreachableError,
    "40": DatabaseLockedError,
    "42501": DatabaseReadOnlyError,
    "53100": DatabaseFullError,
    "53300": DatabaseUnreachableError,
    "55P03": DatabaseLockedError,
    "57014": DatabaseLockedError,
    "57P": DatabaseUnreachableError,
    "XX001": DatabaseCorruptError,
    "XX002": DatabaseCorruptError,
}
# Two changes met: they locked each other, or what one relied on (a body that others name, too) went away.
_MET = frozenset({"40001", "40P01", "23503"})
_BROKEN = ("08", "57P01", "57P02", "57P05")


def fault_of(error: Exception) -> Fault | None:
    """What `error` says of the database; None when it says nothing of it."""
    if isinstance(error, TimeoutError):
        return Fault(DatabaseUnreachableError, "it did not answer in time", is_broken=True)
    if isinstance(error, OSError):
        return Fault(DatabaseUnreachableError, str(error), may_pass=True, is_broken=True)
    if type(error).__module__.partition(".")[0] != "asyncpg":
        return None
    code: str | None = getattr(error, "sqlstate", None)
    if code is None:
        return _of_the_driver(error)
    if code.startswith("22"):
        return Fault(DatabaseError, UNFIT)
    kind = _KINDS.get(code) or _KINDS.get(code[:3]) or _KINDS.get(code[:2]) or DatabaseError
    is_broken = code.startswith(_BROKEN)
    said = str(getattr(error, "message", None) or error)
    return Fault(kind, said, may_pass=is_broken or code in _MET, is_broken=is_broken)


def is_unique_violation(error: Exception) -> bool:
    """Whether a row was refused because another one has its key."""
    return getattr(error, "sqlstate", None) == "23505"


def address_of(url: str) -> str:
    """The url without its password and options: what may be shown and logged.

    Raises:
        StorageUrlError: it does not say which database it means.
    """
    try:
        split = urlsplit(url)
        hosts = split.netloc.rpartition("@")[2]
    except ValueError:
        # Without its cause: that would quote the url.
        raise StorageUrlError(
            "the storage url cannot be read; write postgres://USER:PASSWORD@HOST:PORT/DATABASE"
        ) from None
    user = unquote(split.username or "")
    return f"{split.scheme}://{user}{'@' if user else ''}{hosts}{unquote(split.path)}"


def _of_the_driver(error: Exception) -> Fault:
    """A failure that never reached the server: a value that has no wire form, or a connection that is gone."""
    if isinstance(error, ValueError):
        return Fault(DatabaseError, UNFIT)
    return Fault(DatabaseUnreachableError, str(error), may_pass=True, is_broken=True)
