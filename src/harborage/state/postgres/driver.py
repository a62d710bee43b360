"""What is used of asyncpg, in types, and where it is loaded: at the first connection, or never.

Also where its connections are opened, so that nothing is left behind when one is no longer wanted; and what a failure
of it or of the database means, by the SQLSTATE codes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import Any, NamedTuple, Protocol, TypeAlias
from urllib.parse import unquote, urlsplit

from harborage.concurrency import Crew
from harborage.errors import MissingExtraError
from harborage.state.errors import (
    DatabaseCorruptError,
    DatabaseError,
    DatabaseFullError,
    DatabaseLockedError,
    DatabaseReadOnlyError,
    DatabaseUnreachableError,
    StorageUrlError,
)

Row: TypeAlias = Mapping[str, Any]

_logger = logging.getLogger(__name__)


class Connection(Protocol):
    """One connection to a database. A broken one is closed; it never reconnects."""

    async def execute(self, query: str, *args: Any) -> str: ...

    async def fetch(self, query: str, *args: Any, timeout: float | None = None) -> Sequence[Row]: ...

    async def fetchrow(self, query: str, *args: Any) -> Row | None: ...

    async def fetchval(self, query: str, *args: Any) -> Any: ...

    def transaction(self) -> AbstractAsyncContextManager[object]: ...

    async def add_listener(self, channel: str, callback: Callable[[Any, int, str, str], None]) -> None: ...

    def add_termination_listener(self, callback: Callable[[Any], None]) -> None: ...

    def is_closed(self) -> bool: ...

    def terminate(self) -> None: ...


class Source(Protocol):
    """Where a connection comes from for as long as one piece of work takes."""

    def acquire(self) -> AbstractAsyncContextManager[Connection]: ...


class Pool(Source, Protocol):
    """Connections that are opened when they are needed, and again after they broke."""

    async def expire_connections(self) -> None: ...

    async def close(self) -> None: ...

    def terminate(self) -> None: ...


class Driver(Protocol):
    """The module."""

    def create_pool(
        self, dsn: str, *, connect: Callable[..., Awaitable[Connection]], **options: Any
    ) -> Awaitable[Pool]: ...

    def connect(self, dsn: str, **options: Any) -> Awaitable[Connection]: ...


class Connector:
    """Opens connections, each to its end, even where the caller is cancelled meanwhile.

    The driver leaves a future behind that no task awaits when it is cancelled in the middle of connecting.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._crew = Crew(lambda name, error: _logger.debug("%s: %s", name, error))

    async def connect(self, dsn: str, **options: Any) -> Connection:
        """A new connection. Raises what the driver raises."""

        async def opened() -> Connection:
            return await self._driver.connect(dsn, **options)

        opening: asyncio.Task[Connection] = self._crew.start(opened(), "a connection to Postgres")
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_drop)
            raise

    async def aclose(self, patience_s: float) -> None:
        """Wait for what is being opened, and cut what takes longer."""
        try:
            async with asyncio.timeout(patience_s):
                await self._crew.join()
        except TimeoutError:
            pass
        await self._crew.aclose()


def _drop(opening: asyncio.Task[Connection]) -> None:
    """End a connection that is no longer wanted."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().terminate()


def load_driver() -> Driver:
    """asyncpg.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        driver: Any = import_module("asyncpg")
    except ImportError as error:
        raise MissingExtraError("postgres", "storage in Postgres") from error
    found: Driver = driver
    return found


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
