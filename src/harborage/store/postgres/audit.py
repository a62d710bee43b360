"""A check of everything in a database: a slice is a few short statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from harborage.state.sql_files import read_statements
from harborage.store import sql
from harborage.store.postgres.reading import ROWS
from harborage.store.postgres.statements import fetch, plain
from harborage.store.sql.audit import Audit

if TYPE_CHECKING:
    from harborage.state.postgres.database import Database
    from harborage.store.examining import Examined, Judges, Part, Place
    from harborage.store.rows import PauseRow, SessionRow

SQL: Final[Mapping[str, str]] = {
    name: plain(text)
    for package in (sql.__name__, __package__)
    for name, text in read_statements(package, "statements/audit.sql").items()
}


class PostgresAudit:
    """Checks slices of the tables of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._audit = Audit(SQL)

    async def examine(self, part: Part, judges: Judges, after: Place) -> Examined:
        """Look at a slice of one part of the tables, behind this row."""
        asking = self._audit.examine(part, judges, after, _Rows())
        rows: Any = None
        while True:
            try:
                text, values = asking.send(rows)
            except StopIteration as done:
                examined: Examined = done.value
                return examined
            rows = await fetch(self._database, text, **values)


class _Rows:
    """Reads rows, whose texts Postgres keeps readable."""

    def suspects(self, rows: Sequence[Any], after: int, until: int) -> Sequence[tuple[str, str]]:
        """The suspect runs; one with a status of another version is damaged."""
        return [(run_id, "" if 0 <= status <= 5 else _damage(run_id, status)) for run_id, status in rows]

    def pause(self, row: Any) -> PauseRow:
        return ROWS.pause(row)

    def session(self, row: Any) -> SessionRow:
        return ROWS.session(row)

    def text(self, data: Any) -> str:
        return data or ""


def _damage(run_id: str, status: int) -> str:
    return f"run {run_id}: its row in harborage_runs has status {status}"
