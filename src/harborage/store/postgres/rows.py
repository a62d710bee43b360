"""How columns become rows of the port. Free text may hold what Postgres refuses in text, and is kept escaped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from zlib import crc32

from harborage.identity import Identity
from harborage.state.postgres.rows import read_text
from harborage.store.rows import (
    ControlRow,
    EventRow,
    GroupRow,
    GroupStatus,
    PauseRow,
    PauseStatus,
    RunRow,
    SessionRow,
    Status,
)

__all__ = ["controls_of", "event_of", "group_of", "pause_of", "run_of", "session_of"]

_STATUSES: Final = tuple(Status)
_PAUSES: Final = frozenset(PauseStatus)


def run_of(row: Any) -> RunRow:
    """A run from its columns."""
    (
        number, run_id, tenant, user, session, agent, parent, root, group, kind, priority, status, reason, blocked,
        description, about, created_at, updated_at, wake_at, deadline, awaits, position, owner, fence, attempts, woken,
        unread, children, tree, key, fingerprint, cascades, notifies, retains_turn, acknowledged, tool_count, tokens,
        cost, *whole,
    ) = row  # fmt: skip
    asked, outcome = whole or (None, None)
    return RunRow(
        number=number,
        run_id=run_id,
        who=Identity(tenant, user, session),
        agent=agent,
        parent=parent or "",
        root=root or "",
        group=group or "",
        kind=kind,
        priority=priority,
        status=_STATUSES[status],
        reason=read_text(reason),
        blocked=read_text(blocked or ""),
        description=read_text(description),
        about=read_text(about),
        asked=asked or b"",
        outcome=outcome or b"",
        created_at=created_at,
        updated_at=updated_at,
        wake_at=wake_at,
        deadline=deadline,
        awaits=awaits or "",
        position=position,
        owner=owner or "",
        fence=fence,
        attempts=attempts,
        is_woken=woken,
        unread=unread,
        children=children,
        tree=tree,
        key=key or "",
        fingerprint=fingerprint,
        is_cascading=cascades,
        notifies=notifies,
        retains_turn=retains_turn,
        is_acknowledged=acknowledged,
        tool_count=tool_count,
        tokens=tokens,
        cost=cost,
    )


def controls_of(rows: Iterable[Any]) -> list[ControlRow]:
    """Controls from their columns."""
    return [
        ControlRow(number=number, run_id=run_id, event_id=event_id, type=kind, sent_at=sent_at, data=data)
        for number, run_id, event_id, kind, sent_at, data in rows
    ]


def pause_of(row: Any) -> PauseRow:
    """A pause from its columns; one with a status that nobody knows is shown as damaged."""
    number, token, run_id, tenant, user, session, reason, status, opened_at, *rest = row
    deadline, settled_at, by, data, answer, answering = rest
    return PauseRow(
        number=number,
        token=token,
        run_id=run_id,
        who=Identity(tenant, user, session),
        reason=reason,
        status=PauseStatus(status) if status in _PAUSES else PauseStatus.OPEN,
        opened_at=opened_at,
        deadline=deadline,
        settled_at=settled_at,
        settled_by=read_text(by),
        data=data,
        answer=answer,
        answering=answering,
        is_damaged=status not in _PAUSES,
    )


def event_of(row: Any) -> EventRow:
    """An event from its columns."""
    sequence, tenant, user, session, place, run_id, kind, at, crc, data = row
    return EventRow(
        sequence=sequence,
        who=Identity(tenant, user, session),
        place=place,
        run_id=run_id,
        type=kind,
        at=at,
        data=data,
        is_damaged=crc32(data) != crc,
    )


def session_of(row: Any) -> SessionRow:
    """A session from its columns."""
    number, tenant, user, session, opened_at, seen_at, closed_at, close_reason, events, context = row
    return SessionRow(
        number=number,
        who=Identity(tenant, user, session),
        opened_at=opened_at,
        seen_at=seen_at,
        closed_at=closed_at,
        close_reason=read_text(close_reason),
        events=events,
        is_opened=context is not None,
        context=context or b"",
    )


def group_of(row: Any) -> GroupRow:
    """A group from its columns."""
    number, group_id, tenant, user, session, owner, retains, fails_fast, description, status, reason, *rest = row
    members, live, created, sealed, ended, due = rest
    return GroupRow(
        number=number,
        group_id=group_id,
        who=Identity(tenant, user, session),
        owner=owner,
        retains_turn=retains,
        fails_fast=fails_fast,
        description=read_text(description),
        status=GroupStatus(status),
        reason=read_text(reason),
        members=members,
        open_members=live,
        created_at=created,
        sealed_at=sealed,
        ended_at=ended,
        deadline=due,
    )
