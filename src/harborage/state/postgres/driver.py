"""What is used of asyncpg, in types, and where it is loaded: at the first connection, or never."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import Any, Protocol, TypeAlias

from harborage.errors import MissingExtraError

__all__ = ["Connection", "Driver", "Pool", "Row", "load_driver"]

Row: TypeAlias = Mapping[str, Any]


class Connection(Protocol):
    """One connection to a database. A broken one is closed; it never mends itself."""

    async def execute(self, query: str, *args: Any) -> str: ...

    async def fetch(self, query: str, *args: Any, timeout: float | None = None) -> Sequence[Row]: ...

    async def fetchrow(self, query: str, *args: Any) -> Row | None: ...

    async def fetchval(self, query: str, *args: Any) -> Any: ...

    def transaction(self) -> AbstractAsyncContextManager[object]: ...

    async def add_listener(self, channel: str, callback: Callable[[Any, int, str, str], None]) -> None: ...

    def add_termination_listener(self, callback: Callable[[Any], None]) -> None: ...

    def terminate(self) -> None: ...


class Pool(Protocol):
    """Connections that are opened when they are needed, and again after they broke."""

    def acquire(self) -> AbstractAsyncContextManager[Connection]: ...

    async def expire_connections(self) -> None: ...

    async def close(self) -> None: ...

    def terminate(self) -> None: ...


class Driver(Protocol):
    """The module."""

    def create_pool(self, dsn: str, **options: Any) -> Awaitable[Pool]: ...

    def connect(self, dsn: str, **options: Any) -> Awaitable[Connection]: ...


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
