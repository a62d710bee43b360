"""Rows of runs as records, also where a row is damaged or a newer version wrote it: one such row hides no other.

Numbers can always be read. Texts may hold bytes that are no UTF-8, or a word that this version does not know.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from harborage.identity import Quadruple
from harborage.state.runs import RunRecord, Stand, Standing
from harborage.state.sqlite.times import moment

if TYPE_CHECKING:
    from harborage.state.sqlite.stations import Transaction

__all__ = ["UNREADABLE", "read_rows", "record_of", "salvaged_number", "salvaged_record"]

UNREADABLE: Final = (ValueError, TypeError, OverflowError)
"""What reading a damaged row raises: bytes that are no text, an unknown word, no row at all, a time out of range."""

_ID: Final = re.compile(r"unreadable-(\d+)")
_NO_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)


def read_rows(transaction: Transaction, sql: str, values: tuple[Any, ...]) -> tuple[list[Any], list[int]]:
    """The rows of a query that has a column `number`, and the numbers of those that cannot be read."""
    try:
        return transaction.execute(sql, values).fetchall(), []
    except UnicodeDecodeError:
        pass
    numbers: list[Any] = transaction.execute(f"SELECT number FROM ({sql.rstrip().rstrip(';')})", values).fetchall()
    rows, unreadable = transaction.execute(sql, values), []
    found: list[Any] = []
    for (number,) in numbers:
        try:
            found.append(next(rows))
        except UnicodeDecodeError:
            unreadable.append(number)
    return found, unreadable


def record_of(row: Any) -> RunRecord:
    """The run in a row of `find` or of a list.

    Raises:
        ValueError, TypeError, OverflowError: something in it cannot be read.
    """
    run_id, tenant, user, session, who_run, goal, agent, created_at, *rest = row
    stand, reason, wake_at, waits_for, owner, fence, entries, updated_at, _ = rest
    return RunRecord(
        run_id=run_id,
        who=Quadruple(tenant, user, session, who_run),
        goal=goal,
        agent=agent,
        standing=Standing(
            stand=Stand(stand),
            reason=reason,
            wake_at=None if wake_at is None else moment(wake_at),
            waits_for=waits_for,
        ),
        owner=owner,
        fence=fence,
        entries=entries,
        created_at=moment(created_at),
        updated_at=moment(updated_at),
    )


def salvaged_record(number: int, row: Any) -> RunRecord:
    """What can be read of a damaged run, from its row of `salvage`: a blocked one, whose reason names its row."""
    texts = [_text(one) for one in row[:7]] if row is not None else [None] * 7
    run_id = texts[0] or f"unreadable-{number}"
    reason = (
        f"run {run_id}: its row {number} in harborage_runs or harborage_standings cannot be read; upgrade if a newer "
        "version wrote it, else bring back a copy that is whole"
    )
    tenant, user, session, who_run, goal, agent = ("?" if one is None else one for one in texts[1:])
    return RunRecord(
        run_id=run_id,
        who=Quadruple(tenant, user, session, who_run),
        goal=goal,
        agent=agent,
        standing=Standing(stand=Stand.BLOCKED, reason=reason),
        fence=0 if row is None else row[7],
        entries=0 if row is None else row[8],
        created_at=_NO_TIME,
        updated_at=_NO_TIME,
    )


def salvaged_number(run_id: str) -> int | None:
    """The number of a run that `salvaged_record` had to name by it."""
    found = _ID.fullmatch(run_id)
    return None if found is None else int(found[1])


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
