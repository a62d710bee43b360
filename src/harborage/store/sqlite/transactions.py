"""What works in the two threads of a database: one writes in group commits, the other reads.

A batch of writes is one transaction and one flush to the disk. Should one of them fail after it changed something, or
the commit itself, all of it is taken back and each write gets a transaction of its own: only those that cannot be done
fail. What is done twice that way is plain SQL, and the first time left nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import apsw

from harborage.errors import HarborageError
from harborage.store.sqlite.connection import repeated, statements
from harborage.store.sqlite.failures import failure

if TYPE_CHECKING:
    from harborage.store.sqlite.threads import Call

_MOST_ROWS: Final = 8  # each number of rows is a statement to keep ready, and there is room for a hundred


class Rows:
    """An INSERT of one row of values, as the statements that insert several at once."""

    __slots__ = ("_statements", "_width")

    def __init__(self, sql: str, width: int) -> None:
        self._statements = [repeated(sql, rows) for rows in range(1, _MOST_ROWS + 1)]
        self._width = width

    def portions(self, values: Sequence[Any]) -> Iterator[tuple[str, Sequence[Any]]]:
        """The statements that insert these values, row by row, each with those it takes."""
        most = _MOST_ROWS * self._width
        for first in range(0, len(values), most):
            some = values[first : first + most]
            yield self._statements[len(some) // self._width - 1], some


class Transaction:
    """What a piece of work gets: `execute` as SQLite's connection has it; `notify` has the listeners of all processes
    called.

    `shared` are numbers that the pieces of work of one transaction have in common.
    Rows that nothing in the transaction reads may be left to its end with `add_later`, where those of all work share
    their statements: each statement costs more than its rows.
    """

    __slots__ = ("_later", "connection", "execute", "is_notifying", "shared")

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self.execute = connection.execute
        self.is_notifying = False
        self.shared: dict[str, int] = {}
        self._later: dict[Rows, list[Any]] = {}

    def add_later(self, rows: Rows, values: Sequence[Any]) -> None:
        """Insert rows at the end of the transaction, or when `add_now` is called: their values, row by row."""
        waiting = self._later.get(rows)
        if waiting is None:
            self._later[rows] = [*values]
        else:
            waiting += values

    def add_now(self) -> None:
        """Insert what was left for later."""
        for rows, values in self._later.items():
            for sql, some in rows.portions(values):
                self.execute(sql, some)
        self._later.clear()

    def notify(self) -> None:
        """Have the listeners of all processes called once this is committed."""
        self.is_notifying = True


class _Station:
    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self._connection = connection
        self._path = str(path)

    def close(self) -> None:
        self._connection.close()

    def _fail(self, calls: Sequence[Call], error: Exception) -> None:
        system_errno = self._connection.system_errno
        for call in calls:
            translated = failure(error, self._path, run_id=call.run_id, system_errno=system_errno)
            if isinstance(translated, HarborageError):  # its traceback keeps frames of this thread, and those the call
                translated = translated.with_traceback(None)
            call.error = translated

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


class Writer(_Station):
    """Carries out writes. `notify` is called, in this thread, with the number of the last change that others may wait
    for, and `on_closed` once the connection is closed."""

    def __init__(
        self,
        connection: apsw.Connection,
        path: Path,
        notify: Callable[[int], None],
        on_closed: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(connection, path)
        self._notify = notify
        self._on_closed = on_closed
        self._count_change = statements("schema")["notify"]

    def close(self) -> None:
        super().close()
        if self._on_closed is not None:
            self._on_closed()

    def carry_out(self, calls: Sequence[Call]) -> None:
        wanted = [call for call in calls if not call.future.cancelled()]
        if not wanted or self._commit(wanted):
            return
        for call in wanted:
            self._commit([call])

    def _commit(self, calls: Sequence[Call]) -> bool:
        """Carry out calls in one transaction; False when it was taken back and some of them may do better alone."""
        execute = self._connection.execute
        try:
            self._roll_back()  # what could not be taken back when it failed
            execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            self._fail(calls, error)
            return True
        transaction = Transaction(self._connection)
        try:
            for call in calls:
                self._perform(call, transaction)
            transaction.add_now()
            changes: Any = execute(self._count_change).get if transaction.is_notifying else None
            execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - raised to the caller
            self._fail(calls, error)
            self._roll_back()
            return len(calls) == 1
        if changes is not None:
            self._notify(changes)
        return True

    def _perform(self, call: Call, transaction: Transaction) -> None:
        """Carry out one call.

        Raises:
            Exception: it failed, and not without a trace.
        """
        call.error = None
        before = self._connection.total_changes()
        try:
            call.result = call.work(transaction)
        except Exception as error:
            if self._connection.total_changes() != before or not self._connection.in_transaction:
                raise
            self._fail([call], error)


class Reader(_Station):
    """Carries out reads; those of a batch see the database as it stood when the first of them looked."""

    def carry_out(self, calls: Sequence[Call]) -> None:
        wanted = [call for call in calls if not call.future.cancelled()]
        if not wanted:
            return
        transaction = Transaction(self._connection)
        try:
            self._connection.execute("BEGIN")
            for call in wanted:
                self._perform(call, transaction)
            self._roll_back()
        except apsw.Error as error:
            self._fail([call for call in wanted if call.error is None], error)

    def _perform(self, call: Call, transaction: Transaction) -> None:
        try:
            call.result = call.work(transaction)
        except Exception as error:  # noqa: BLE001 - raised to the caller
            self._fail([call], error)
