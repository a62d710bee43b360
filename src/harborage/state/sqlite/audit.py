"""What a check of a whole file asks of its rows: which of them are gone, and everything that was sent to runs.

It reads, and names what it finds by run as far as a row still says which; it repairs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from harborage.state.runs import Sent
from harborage.state.sqlite.connection import statements

if TYPE_CHECKING:
    from harborage.state.sqlite.database import Database
    from harborage.state.sqlite.stations import Transaction

__all__ = ["RowGone", "controls_after", "controls_gone", "rows_gone", "sessions_gone"]


class RowGone(NamedTuple):
    """A run of which rows are gone. `run_id` is empty where both are; `first_entry` may say it then."""

    number: int
    run_id: str
    tables: tuple[str, ...]
    first_entry: bytes


async def rows_gone(database: Database) -> list[RowGone]:
    """The runs of which a row is gone that other rows speak of."""
    sql = statements("audit")

    def read(transaction: Transaction) -> list[RowGone]:
        found: list[Any] = transaction.execute(sql["rows_gone"]).fetchall()
        gone: list[RowGone] = []
        for number, run_id, is_run_gone, is_standing_gone in found:
            tables = [name for name, is_gone in zip(_TABLES, (is_run_gone, is_standing_gone), strict=True) if is_gone]
            first: Any = transaction.execute(sql["first_entry"], {"number": number}).fetchone()
            gone.append(RowGone(number, _text(run_id), tuple(tables), b"" if first is None else bytes(first[0])))
        return gone

    return await database.read(read)


async def controls_gone(database: Database) -> list[tuple[str, int]]:
    """The runs whose last control is gone, with its number."""
    sql = statements("audit")["controls_gone"]
    rows: list[Any] = await database.read(lambda transaction: transaction.execute(sql).fetchall())
    return [(_text(run_id), number) for run_id, number in rows]


async def controls_after(database: Database, after: int, *, limit: int) -> list[Sent]:
    """What was sent to runs, taken or not, behind number `after`."""
    sql, values = statements("audit")["controls"], {"after": after, "limit": limit}
    rows: list[Any] = await database.read(lambda transaction: transaction.execute(sql, values).fetchall())
    return [Sent(number, _text(run_id), _text(event_id), bytes(data)) for number, run_id, event_id, data in rows]


async def sessions_gone(database: Database) -> list[int]:
    """The numbers of sessions that are known by their events alone."""
    sql = statements("audit")["sessions_gone"]
    rows: list[Any] = await database.read(lambda transaction: transaction.execute(sql).fetchall())
    return [number for (number,) in rows]


_TABLES = ("harborage_runs", "harborage_standings")


def _text(data: bytes | None) -> str:
    return "" if data is None else bytes(data).decode("utf-8", "replace")
