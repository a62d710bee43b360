"""What is used of asyncpg, in types, and where it is loaded: at the first connection, or never.

Also where its connections are opened, so that nothing is left behind when one is no longer wanted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import Any, Protocol, TypeAlias

from harborage.concurrency import Crew
from harborage.errors import MissingExtraError

Row: TypeAlias = Mapping[str, Any]

_logger = logging.getLogger(__name__)


class Connection(Protocol):
    """One connection to a database. A broken one is closed; it never mends itself."""

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
