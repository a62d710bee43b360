"""One SQLite file, as a process uses it: one thread writes, one reads, and listeners are called after changes.

Every store of a process works on the same `Database`. What a write changed is on disk once its call returns.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import apsw

from harborage.clock import SYSTEM_CLOCK
from harborage.state.sql_files import read_migrations
from harborage.store.sqlite.connection import (
    check_migrated,
    check_place,
    complete,
    connect,
    connect_read_only,
    migrate,
    note_lost_log,
    statements,
    stays_lost,
)
from harborage.store.sqlite.failures import failure
from harborage.store.sqlite.threads import Lane
from harborage.store.sqlite.transactions import Reader, Transaction, Writer
from harborage.store.times import micros

T = TypeVar("T")

_BUSY_TIMEOUT_S = 5.0


class Database:
    """An open database. Any number of event loops may use it at once; close it with `aclose`."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        busy_timeout_s: float = _BUSY_TIMEOUT_S,
        is_read_only: bool = False,
        package: str = __package__,
    ) -> None:
        """Nothing is opened yet; `Database.open` does both. The tables are those of the migrations in `package`."""
        self._package = package
        # The real one: beside another path there would be another log, and other locks.
        self.path = Path(os.path.realpath(Path(path).expanduser()))
        self._busy_timeout_s = busy_timeout_s
        self._is_read_only = is_read_only
        self._writer = Lane(f"harborage-write {self.path.name}", self._make_writer)
        self._reader = Lane(f"harborage-read {self.path.name}", self._make_reader)
        self._count_changes = statements("schema")["count_changes"]
        self._listeners: list[_Listener] = []
        self._lock = threading.Lock()
        self._last_change = 0

    @classmethod
    async def open(
        cls,
        path: str | os.PathLike[str],
        *,
        busy_timeout_s: float = _BUSY_TIMEOUT_S,
        is_read_only: bool = False,
        package: str = __package__,
    ) -> Self:
        """The database in the file `path`, made when it is missing, with the tables of this version of the package.

        `busy_timeout_s` is how long to wait for other processes that hold it. With `is_read_only` nothing is made or
        changed, and every write raises DatabaseReadOnlyError.

        Raises:
            DatabaseError: it cannot be used; the class says why, the text names the file and says what to do.
        """
        database = cls(path, busy_timeout_s=busy_timeout_s, is_read_only=is_read_only, package=package)
        try:
            await database._writer.open()
            await database._reader.open()
            database._last_change = await database.read(database._changes)
        except BaseException as error:
            await database.aclose()
            if isinstance(error, apsw.Error):
                raise failure(error, str(database.path)) from error
            raise
        return database

    @property
    def is_closed(self) -> bool:
        """Whether it takes no call any more."""
        return self._writer.is_closed

    def write(self, work: Callable[[Transaction], T], *, run_id: str = "") -> Awaitable[T]:
        """The result of `work` once what it changed is on disk. Work that raises has changed nothing.

        `work` is called in another thread, and a second time when its batch was taken back: it must be repeatable.
        `run_id` is what errors are to name. A caller that is cancelled does not know whether the work was done.

        Raises:
            StoreClosedError: the database is closed.
            DatabaseError: SQLite refused.
        """
        return self._writer.ask(work, run_id)

    def read(self, work: Callable[[Transaction], T], *, run_id: str = "") -> Awaitable[T]:
        """The result of `work`, which sees everything that was written before this call, and one state of it.

        Raises:
            StoreClosedError: the database is closed.
            DatabaseError: SQLite refused.
        """
        return self._reader.ask(work, run_id)

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` on the running event loop after changes of which a writer notifies; returns a function that
        removes it."""
        one = _Listener(listener, asyncio.get_running_loop())
        with self._lock:
            self._listeners = [*self._listeners, one]

        def unlisten() -> None:
            one.is_off = True
            with self._lock:
                self._listeners = [other for other in self._listeners if other is not one]

        return unlisten

    async def look(self) -> None:
        """Call the listeners if another process notified of a change since the last look."""
        changes = await self.read(self._changes)
        if changes != self._last_change:
            self._notify(changes)

    async def lost_log(self) -> int:
        """When it was found that the log of this file was lost, in microseconds since 1970; 0 if it never was, or once
        that is accepted."""
        found = await self.read(lambda transaction: transaction.execute(statements("schema")["lost_log"]).get)
        return 0 if found is None else int(found)

    async def accept_lost_log(self) -> None:
        """Say no more that the log was lost."""
        await self.write(lambda transaction: transaction.execute(statements("schema")["accept_lost_log"]).get)

    async def aclose(self) -> None:
        """Carry out what was asked for so far, then let go of file and threads. Closing twice does nothing."""
        try:
            await self._reader.aclose()
        finally:
            await self._writer.aclose()

    def _changes(self, transaction: Transaction) -> int:
        changes: Any = transaction.execute(self._count_changes).get
        return int(changes)

    def _notify(self, changes: int) -> None:
        self._last_change = max(changes, self._last_change)
        for listener in self._listeners:
            listener.notify()

    def _make_writer(self) -> Writer:
        if self._is_read_only:
            found = self._connect_read_only()
            try:
                check_migrated(found, self.path, read_migrations(self._package))
            except BaseException:
                found.close()
                raise
            return Writer(found, self.path, self._notify)
        check_place(self.path)
        known = read_migrations(self._package)
        is_lost = stays_lost(self.path)
        connection = connect(self.path, busy_timeout_s=self._busy_timeout_s, known=known)
        try:
            migrate(connection, self.path, known)
            if is_lost:
                note_lost_log(connection, micros(SYSTEM_CLOCK.now()))
            return Writer(connection, self.path, self._notify, partial(complete, self.path))
        except BaseException:
            connection.close()
            raise

    def _connect_read_only(self) -> apsw.Connection:
        return connect_read_only(self.path, busy_timeout_s=self._busy_timeout_s)

    def _make_reader(self) -> Reader:
        if self._is_read_only:
            return Reader(self._connect_read_only(), self.path)
        return Reader(connect(self.path, busy_timeout_s=self._busy_timeout_s, is_reader=True), self.path)


class _Listener:
    """A listener and the event loop on which it is called."""

    __slots__ = ("_listener", "_loop", "is_off")

    def __init__(self, listener: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        self._listener = listener
        self._loop = loop
        self.is_off = False

    def notify(self) -> None:
        """Safe from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._call)
        except RuntimeError:
            self.is_off = True  # that loop is closed: it has no listener any more

    def _call(self) -> None:
        if not self.is_off:
            self._listener()
