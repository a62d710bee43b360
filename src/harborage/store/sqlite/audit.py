"""A check of everything in a file: a slice is read in one transaction, and damaged rows as far as they can be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from harborage.store import sql
from harborage.store.sql.audit import Audit
from harborage.store.sqlite.connection import statements
from harborage.store.sqlite.salvage import salvaged_text

if TYPE_CHECKING:
    from harborage.store.examining import Examined, Judges, Part, Place
    from harborage.store.rows import PauseRow, SessionRow
    from harborage.store.sqlite.database import Database
    from harborage.store.sqlite.reading import Reading
    from harborage.store.sqlite.transactions import Transaction


class SQLiteAudit:
    """Checks slices of the tables of one file."""

    def __init__(self, reading: Reading) -> None:
        self._sql: Final = statements("audit", sql.__name__) | statements("audit")
        self._audit = Audit(self._sql)
        self._reading = reading

    def examine(self, tx: Transaction, part: Part, judges: Judges, after: Place) -> Examined:
        """Look at a slice of one part of the tables, behind the row of this number."""
        asking = self._audit.examine(part, judges, after, _Rows(tx, self._reading, self._sql))
        rows: Any = None
        while True:
            try:
                text, values = asking.send(rows)
            except StopIteration as done:
                examined: Examined = done.value
                return examined
            rows = tx.execute(text, values).fetchall()


class _Rows:
    """Reads rows in a transaction, damaged ones too."""

    def __init__(self, tx: Transaction, reading: Reading, sql: dict[str, str]) -> None:
        self._tx = tx
        self._reading = reading
        self._sql = sql

    def suspects(self, rows: Sequence[Any], after: int, until: int) -> Sequence[tuple[str, str]]:
        """The suspect runs; all runs of the slice when a text of one of them cannot be read."""
        within = {"after": after, "until": until}
        try:
            self._tx.execute(self._sql["run_texts"], within).fetchall()
        except UnicodeDecodeError:
            rows = self._tx.execute(self._sql["run_numbers"], within).fetchall()
        runs = [self._reading.row(self._tx, num) for (num,) in rows]
        return [(run.run_id, run.blocked if run.is_damaged else "") for run in runs]

    def pause(self, row: Any) -> PauseRow:
        return self._reading.pause_row(self._tx, row[0])

    def session(self, row: Any) -> SessionRow:
        return self._reading.session_row(self._tx, row[0])

    def text(self, data: Any) -> str:
        return salvaged_text(data)


async def page_flaws(database: Database) -> list[str]:
    """What is wrong with the pages of a file and its indexes; each table is one look, which no writer waits for.

    Raises:
        DatabaseError: it cannot be read on.
    """
    sql = statements("audit")["tables"]
    tables: list[Any] = await database.read(lambda tx: tx.execute(sql).fetchall())
    found: list[str] = []
    for (table,) in tables:
        check = f"PRAGMA quick_check('{table}')"
        said: list[Any] = await database.read(lambda tx, check=check: tx.execute(check).fetchall())  # type: ignore[misc]
        found += [str(flaw) for (flaw,) in said if flaw != "ok"]
    return found
