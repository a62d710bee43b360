"""What a check of a whole file asks of its rows: which of them are gone, and everything that was sent to runs.

It reads, and names what it finds by run as far as a row still says which; it repairs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from harborage.store.rows import ControlRow
from harborage.store.sqlite.connection import statements

if TYPE_CHECKING:
    from harborage.store.sqlite.database import Database
    from harborage.store.sqlite.stations import Transaction

__all__ = ["RowGone", "controls_after", "controls_gone", "rows_gone", "sessions_gone"]


class RowGone(NamedTuple):
    """A run whose row is gone; `first_entry` may say which it was."""

    number: int
    first_entry: bytes


async def rows_gone(database: Database) -> list[RowGone]:
    """The runs whose row is gone that other rows speak of."""
    sql = statements("audit")

    def read(transaction: Transaction) -> list[RowGone]:
        found: list[Any] = transaction.execute(sql["rows_gone"]).fetchall()
        gone: list[RowGone] = []
        for (number,) in found:
            first: Any = transaction.execute(sql["first_entry"], {"number": number}).fetchone()
            gone.append(RowGone(number, b"" if first is None else bytes(first[0])))
        return gone

    return await database.read(read)


async def controls_gone(database: Database) -> list[tuple[str, int]]:
    """The runs for which more controls wait than are kept, with how many should."""
    sql = statements("audit")["controls_gone"]
    rows: list[Any] = await database.read(lambda transaction: transaction.execute(sql).fetchall())
    return [(_text(run_id), count) for run_id, count in rows]


async def controls_after(database: Database, after: int, *, limit: int) -> list[ControlRow]:
    """What was sent to runs and waits, behind number `after`."""
    sql, values = statements("audit")["waiting_controls"], {"after": after, "limit": limit}
    rows: list[Any] = await database.read(lambda transaction: transaction.execute(sql, values).fetchall())
    return [
        ControlRow(
            number=number, run_id=_text(run_id), event_id=_text(event_id), type="", sent_at=sent_at, data=bytes(data)
        )
        for number, run_id, event_id, sent_at, data in rows
    ]


async def sessions_gone(database: Database) -> list[int]:
    """The numbers of sessions that are known by their events alone."""
    sql = statements("audit")["sessions_gone"]
    rows: list[Any] = await database.read(lambda transaction: transaction.execute(sql).fetchall())
    return [number for (number,) in rows]


def _text(data: bytes | None) -> str:
    return "" if data is None else bytes(data).decode("utf-8", "replace")
