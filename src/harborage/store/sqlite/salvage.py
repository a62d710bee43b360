"""Rows that are damaged, or that a newer version wrote: one such row hides no other, and is named.

Numbers can always be read. Texts may hold bytes that are no UTF-8, and numbers what this version does not know.
"""

from __future__ import annotations

from typing import Any, Final

from harborage.identity import Identity
from harborage.store.rows import PauseRow, PauseStatus, RunRow, SessionRow, Status
from harborage.store.sql.rows import UnreadableError
from harborage.store.times import LATEST

UNREADABLE: Final = (UnicodeDecodeError, UnreadableError)
"""What reading a damaged row raises."""

_STATUSES: Final = dict(enumerate(Status))


def shown_status(code: int) -> Status:
    """The status that a list shows: a run whose status cannot be read is pending, and blocked."""
    return _STATUSES.get(code, Status.PENDING)


def checked_run(row: RunRow) -> RunRow:
    """Accept a run that is whole.

    Raises:
        UnreadableError: its session is not there, or one of its times lies before 1970 or after the year 9999.
    """
    _check_session(row.who)
    _check_times(row.created_at, row.updated_at, row.wake_at, row.deadline)
    return row


def checked_pause(row: PauseRow) -> PauseRow:
    """Accept a pause that is whole.

    Raises:
        UnreadableError: as for a run, or this version does not know its status.
    """
    _check_session(row.who)
    _check_times(row.opened_at, row.settled_at, row.deadline)
    if row.is_damaged:
        raise UnreadableError("no pause has its status")
    return row


def checked_session(row: SessionRow) -> SessionRow:
    """Accept a session that is whole.

    Raises:
        UnreadableError: as for the times of a run.
    """
    _check_times(row.opened_at, row.seen_at, row.closed_at)
    return row


def _check_session(who: Identity) -> None:
    if who.session_id is None:
        raise UnreadableError("its session is not there")


def _check_times(*times: int | None) -> None:
    given = [at for at in times if at is not None]
    if min(given) < 0 or max(given) > LATEST:
        raise UnreadableError("one of its times is none")


def salvaged_run(row: Any) -> RunRow:
    """What can be read of a damaged run, from its row of `salvage`: blocked, with a text that names the row.

    Times are 0 and what is no text is a question mark; the id of such a run is made of its number.
    """
    number, session_number, status, position, fence, *texts = row
    run_id, tenant, user, session, agent, about = (salvaged_text(text, "") for text in texts)
    run_id = run_id or f"unreadable-{number}"
    where = f"row {number} in harborage_runs"
    if not session:
        where = f"{where}, or row {session_number} in harborage_sessions to which it belongs,"
    return RunRow(
        number=number,
        run_id=run_id,
        who=Identity(tenant or "?", user or "?", session or "?"),
        agent=agent,
        status=shown_status(status),
        blocked=(
            f"run {run_id}: {where} cannot be read; upgrade if a newer version wrote it, else bring back a copy that "
            "is whole"
        ),
        about=about or "?",
        created_at=0,
        updated_at=0,
        position=position,
        fence=fence,
        is_damaged=True,
    )


def salvaged_pause(row: Any) -> PauseRow:
    """What can be read of a damaged pause, from its row of `salvaged_pause`; times are 0, and its request is empty."""
    number, *texts = row
    token, run_id, tenant, user, session, reason, status = (salvaged_text(text, "") for text in texts)
    return PauseRow(
        number=number,
        token=token or f"unreadable-{number}",
        run_id=run_id,
        who=Identity(tenant or "?", user or "?", session or "?"),
        reason=reason,
        status=PauseStatus(status) if status in frozenset(PauseStatus) else PauseStatus.OPEN,
        opened_at=0,
        is_damaged=True,
    )


def salvaged_session(row: Any) -> SessionRow:
    """What can be read of a damaged session, from its row of `salvaged_session`; times are 0, unless it was closed."""
    number, *texts, closed_at, events, is_opened = row
    tenant, user, session = (salvaged_text(text, "") for text in texts)
    return SessionRow(
        number=number,
        who=Identity(tenant or "?", user or "?", session or "?"),
        opened_at=0,
        seen_at=0,
        closed_at=None if closed_at is None else 0,
        events=events,
        is_opened=bool(is_opened),
        is_damaged=True,
    )


def salvaged_text(data: bytes | None, otherwise: str | None = None) -> str:
    """The text that bytes stand for; if they stand for none `otherwise`, or else what can be read of it."""
    try:
        return "" if data is None else data.decode()
    except UnicodeDecodeError:
        if otherwise is not None:
            return otherwise
        assert data is not None
        return data.decode(errors="replace")
