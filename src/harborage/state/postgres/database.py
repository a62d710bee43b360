"""One database in Postgres: a pool of connections that reconnects, brought to this package's tables when opened.

A connection that breaks is replaced and the call made again, as long as what it did cannot have been done twice: each
call gets to know whether an earlier answer was lost. What the stores mean by their statements is their own business.
The notices of other stores arrive on a connection of their own. A notice carries no data, only that something may have
changed: the listener that is called looks for itself. After each break the listeners are called once, since notices
may have been missed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self, TypeAlias, TypeVar

from harborage.concurrency import Crew
from harborage.ids import new_id
from harborage.state.errors import (
    AnswerLostError,
    DatabaseError,
    DatabaseUnreachableError,
    StorageUrlError,
    StoreClosedError,
)
from harborage.state.postgres.driver import (
    UNKNOWN,
    Connection,
    Connector,
    Fault,
    Pool,
    Row,
    Source,
    address_of,
    fault_of,
    load_driver,
)
from harborage.state.sql_files import pending_migrations, read_migrations, read_statements

T = TypeVar("T")

Work: TypeAlias = Callable[[Connection, bool], Awaitable[T]]
"""What to do with a connection; the flag says that it was done before, perhaps to the end, but no answer came back."""

PACKAGE = "harborage.state.postgres"
_TABLES = "harborage.store.postgres"

_CONNECTIONS = 25
_IDLE_S = 300.0
_OPENING_S = 10.0
_CONNECTING_S = 10.0
_ANSWER_S = 30.0
_CLOSING_S = 5.0
_GIVING_UP_S = 1.0
_TURNS = 4


class Database:
    """A pool of at most 25 connections. `address` names it without the password; `schema` holds its tables."""

    def __init__(self, url: str, address: str, connector: Connector, pool: Pool, schema: str) -> None:
        self.address = address
        self.schema = schema
        self._url = url
        self._connector = connector
        self._pool = pool
        self._breaks = 0
        self._is_closed = False

    @classmethod
    async def open(cls, url: str, *, package: str = _TABLES) -> Self:
        """Connect, and apply the migrations of `package` that are missing; within ten seconds.

        Raises:
            MissingExtraError: the driver is not installed.
            StorageUrlError: the url means no database.
            DatabaseError: there is none, it does not let us in, or its tables are not ours; the text has no password.
        """
        driver = load_driver()
        connector = Connector(driver)
        address = address_of(url)
        pool: Pool | None = None
        try:
            async with asyncio.timeout(_OPENING_S):
                pool = await driver.create_pool(
                    url,
                    connect=connector.connect,
                    min_size=0,
                    max_size=_CONNECTIONS,
                    max_inactive_connection_lifetime=_IDLE_S,
                    timeout=_CONNECTING_S,
                    command_timeout=_ANSWER_S,
                    init=_prepare,
                    reset=_keep,
                )
                schema = await _migrate(pool, address, package)
            return cls(url, address, connector, pool, schema)
        except BaseException as error:
            if pool is not None:
                pool.terminate()
            await connector.aclose(_GIVING_UP_S)
            if isinstance(error, TimeoutError):
                said = f"it did not answer, or was busy with its tables, for {_OPENING_S:.0f} s"
                raise DatabaseUnreachableError(address, said) from error
            if isinstance(error, ValueError | OverflowError):
                # Not in its own words, and without it: they may quote a password that was written wrongly.
                raise StorageUrlError(f"{address}: a part of this url, or one of its options, makes no sense") from None
            fault = fault_of(error) if isinstance(error, Exception) else None
            if fault is not None:
                raise fault.kind(address, fault.said) from error
            raise

    @property
    def is_closed(self) -> bool:
        """Whether it has been closed."""
        return self._is_closed

    async def run(self, work: Work[T], *, run_id: str = "", source: Source | None = None) -> T:
        """Do `work` on a connection, again on another one where the first broke or where two changes met.

        With `source` the connection is not one of the pool.

        Raises:
            StoreClosedError: the database was closed.
            AnswerLostError: the connection broke while `work` was under way; what it did may have been kept.
            DatabaseError: the database refused; it names the run.
            Exception: what `work` raised.
        """
        is_again = is_broken = False
        turn = breaks = 0
        while True:
            turn += 1
            is_connected = False
            try:
                if is_broken and breaks == self._breaks:
                    # Where one connection broke the others mostly did, too, and would be tried one by one.
                    self._breaks += 1
                    await self._pool.expire_connections()
                breaks = self._breaks
                async with (self._pool if source is None else source).acquire() as connection:
                    is_connected = True
                    return await work(connection, is_again)
            except Exception as error:
                fault = fault_of(error)
                if self._is_closed and (fault is None or fault.kind is DatabaseUnreachableError):
                    raise StoreClosedError() from error
                if fault is None:
                    raise
                is_broken = fault.is_broken
                is_again = is_again or (is_connected and is_broken)
                # A server that refuses is not there; a connection that broke while it was opened may do better.
                is_refused = not is_connected and isinstance(error, ConnectionRefusedError)
                if is_refused or not fault.may_pass or turn >= _TURNS:
                    raise self._error(fault, run_id, is_again=is_again) from error

    async def fetch(self, query: str, *args: Any, run_id: str = "") -> Sequence[Row]:
        """The rows of a query that does no harm when it is made twice."""
        return await self.run(lambda connection, _: connection.fetch(query, *args), run_id=run_id)

    async def fetchrow(self, query: str, *args: Any, run_id: str = "") -> Row | None:
        """The first row of such a query."""
        return await self.run(lambda connection, _: connection.fetchrow(query, *args), run_id=run_id)

    async def fetchval(self, query: str, *args: Any, run_id: str = "") -> Any:
        """The first value of such a query."""
        return await self.run(lambda connection, _: connection.fetchval(query, *args), run_id=run_id)

    async def connect(self) -> Connection:
        """A connection of the caller's own, outside the pool; the caller ends it.

        Raises:
            DatabaseError: there is none to be had.
        """
        try:
            return await self.opened()
        except Exception as error:
            fault = fault_of(error)
            if fault is None:
                raise
            raise self._error(fault, "", is_again=False) from error

    async def opened(self) -> Connection:
        """The same for a source of connections: it raises what the driver raises, and `run` translates it."""
        connection = await self._connector.connect(self._url, timeout=_CONNECTING_S, command_timeout=_ANSWER_S)
        try:
            await _prepare(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def aclose(self) -> None:
        """Close every connection; those still in use after five seconds are cut. Closing twice does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            async with asyncio.timeout(_CLOSING_S):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()
        await self._connector.aclose(_CLOSING_S)

    def _error(self, fault: Fault, run_id: str, *, is_again: bool) -> DatabaseError:
        if is_again:
            return AnswerLostError(self.address, f"{fault.said} ({UNKNOWN})", run_id=run_id)
        return fault.kind(self.address, fault.said, run_id=run_id)


_SCHEMA = read_statements(PACKAGE, "statements/schema.sql")


async def _prepare(connection: Connection) -> None:
    """Make a new connection one on which what was committed is on disk."""
    await connection.execute(_SCHEMA["prepare_connection"])


async def _keep(_: Connection) -> None:
    """Take a connection back as it is: no statement leaves anything behind, so cleaning up would only cost time."""


async def _migrate(pool: Pool, address: str, package: str) -> str:
    """Apply what is missing, one process at a time; returns the schema that the tables are in."""
    migrations = read_migrations(package)
    async with pool.acquire() as connection:
        schema: str | None = await connection.fetchval(_SCHEMA["schema"])
        if schema is None:
            raise DatabaseError(address, "its search path names no schema that exists")
        if await connection.fetchval(_SCHEMA["has_migrations"]):
            rows = await connection.fetch(_SCHEMA["applied_migrations"])
            if not pending_migrations(migrations, {row["number"]: row["checksum"] for row in rows}, address):
                return schema
        async with connection.transaction():
            await connection.execute(_SCHEMA["lock_migrations"])
            await connection.execute(_SCHEMA["create_migrations"])
            rows = await connection.fetch(_SCHEMA["applied_migrations"])
            applied = {row["number"]: row["checksum"] for row in rows}
            for one in pending_migrations(migrations, applied, address):
                await connection.execute(one.sql)
                await connection.execute(_SCHEMA["keep_migration"], one.number, one.name, one.checksum)
    return schema


CHANNEL = "harborage"

_PULSE_S = 10.0
_SHORTEST_BREAK_S = 0.05
_LONGEST_BREAK_S = 5.0

_logger = logging.getLogger(__name__)


class Notices:
    """The listeners of one store. `stamp` goes with every notice that the store sends, so that it ignores its own.

    It listens from the first listener on until it is closed.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._place = f"{database.schema}/"
        self.stamp = self._place + new_id()
        self._listeners: list[Callable[[], None]] = []
        self._crew = Crew(lambda name, error: _logger.error("%s: %s", name, error))
        self._is_listening = False

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` on this event loop for every notice; returns a function that removes it."""
        self._listeners.append(listener)
        if not self._is_listening:
            self._is_listening = True
            self._crew.start(self._listen(), f"notices of {self._database.address}")

        def unlisten() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unlisten

    def notify(self) -> None:
        """Call every listener of this store."""
        for listener in tuple(self._listeners):
            listener()

    async def aclose(self) -> None:
        """Listen no more. Closing twice does nothing."""
        self._listeners.clear()
        await self._crew.aclose()

    async def _listen(self) -> None:
        """Hold a connection that listens, for as long as there is a database."""
        break_s = _SHORTEST_BREAK_S
        while not self._database.is_closed:
            try:
                connection = await self._database.connect()
            except DatabaseError as error:
                _logger.warning("notices: %s", error)
            else:
                break_s = _SHORTEST_BREAK_S
                await self._receive(connection)
            await asyncio.sleep(break_s)
            break_s = min(2 * break_s, _LONGEST_BREAK_S)

    async def _receive(self, connection: Connection) -> None:
        """Listen on this connection until it breaks."""
        is_broken = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: is_broken.set())
            await connection.add_listener(CHANNEL, self._received)
            self.notify()
            while not is_broken.is_set():
                try:
                    async with asyncio.timeout(_PULSE_S):
                        await is_broken.wait()
                except TimeoutError:
                    # A peer that vanished without a word is only noticed when it does not answer.
                    await connection.fetch("select", timeout=_PULSE_S / 2)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - a broken connection has many faces; the next one is on its way
            _logger.warning("notices of %s: %s", self._database.address, error)
        finally:
            connection.terminate()

    def _received(self, connection: Any, pid: int, channel: str, payload: str) -> None:
        if payload != self.stamp and payload.startswith(self._place):
            self.notify()
