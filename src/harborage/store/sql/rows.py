"""How columns become rows of the port, in the order in which every driver asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final
from zlib import crc32

from harborage.identity import Identity
from harborage.store.errors import EntryDamagedError
from harborage.store.queries import RunTotals, SessionTotals
from harborage.store.rows import (
    ControlRow,
    EventRow,
    GroupLeft,
    GroupRow,
    GroupStatus,
    PatchRow,
    PauseRow,
    PauseStatus,
    RunRow,
    SessionRow,
    Status,
)

_STATUSES: Final = dict(enumerate(Status))
_PAUSES: Final = frozenset(PauseStatus)
_GROUPS: Final = frozenset(GroupStatus)


class UnreadableError(ValueError):
    """A row holds what no row of this version holds."""


def status_of(code: int) -> Status:
    """The status that a number stands for.

    Raises:
        UnreadableError: it stands for none that this version knows.
    """
    try:
        return _STATUSES[code]
    except KeyError:
        raise UnreadableError(f"no run has status {code}") from None


def checked_entries(run_id: str, after: int, count: int, rows: Iterable[Any]) -> list[bytes]:
    """The entries behind the first `after` of a journal that has `count`, from their positions, checksums and data.

    Raises:
        EntryDamagedError: one is missing, or is not what was kept.
    """
    found: list[bytes] = []
    for position, crc, data in rows:
        if position != after + len(found) + 1 or crc32(data) != crc:
            break
        found.append(data)
    if after + len(found) < count:
        raise EntryDamagedError(run_id, after + len(found))
    return found


class RowReader:
    """Makes rows of columns. `text` reads free text as the driver keeps it; names are kept as they are."""

    def __init__(self, text: Callable[[str], str] = str) -> None:
        self._text = text

    def run(self, row: Any) -> RunRow:
        """A run, whole or not.

        Raises:
            UnreadableError: it has a status that this version does not know.
        """
        (
            number, run_id, tenant, user, session, agent, parent, root, group, kind, priority, status, reason, blocked,
            description, about, created_at, updated_at, wake_at, deadline, awaits, position, owner, fence, attempts,
            woken, unread, seen_control, children, tree, key, fingerprint, cascades, notifies, retains_turn,
            acknowledged, tool_count, tokens, cost, tags, *whole,
        ) = row  # fmt: skip
        asked, outcome = whole or (None, None)
        text = self._text
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
            status=status_of(status),
            reason=text(reason),
            blocked=text(blocked or ""),
            description=text(description),
            about=text(about),
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
            is_woken=bool(woken),
            unread=unread,
            seen_control=seen_control,
            children=children,
            tree=tree,
            key=key or "",
            fingerprint=fingerprint,
            is_cascading=bool(cascades),
            notifies=bool(notifies),
            retains_turn=bool(retains_turn),
            is_acknowledged=bool(acknowledged),
            tool_count=tool_count,
            tokens=tokens,
            cost=cost,
            tags=tags or "",
        )

    def pause(self, row: Any) -> PauseRow:
        """A pause; one with a status that this version does not know is shown as damaged."""
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
            settled_by=self._text(by),
            data=data,
            answer=answer,
            answering=answering,
            is_damaged=status not in _PAUSES,
        )

    def group(self, row: Any) -> GroupRow:
        """A group.

        Raises:
            UnreadableError: it has a status that this version does not know.
        """
        number, group_id, tenant, user, session, owner, retains, fails_fast, description, status, reason, *rest = row
        members, live, created, sealed, ended, due, outcome = rest
        if status not in _GROUPS:
            raise UnreadableError(f"no group has status {status}")
        return GroupRow(
            number=number,
            group_id=group_id,
            who=Identity(tenant, user, session),
            owner=owner,
            retains_turn=bool(retains),
            fails_fast=bool(fails_fast),
            description=self._text(description),
            status=GroupStatus(status),
            reason=self._text(reason),
            members=members,
            open_members=live,
            created_at=created,
            sealed_at=sealed,
            ended_at=ended,
            deadline=due,
            outcome=outcome.encode(),
        )

    def session(self, row: Any) -> SessionRow:
        """A session."""
        number, tenant, user, session, opened_at, seen_at, closed_at, close_reason, events, context = row
        return SessionRow(
            number=number,
            who=Identity(tenant, user, session),
            opened_at=opened_at,
            seen_at=seen_at,
            closed_at=closed_at,
            close_reason=self._text(close_reason),
            events=events,
            is_opened=context is not None,
            context=context or b"",
        )

    def totals(self, row: Any) -> SessionTotals:
        """A session and what its runs come to."""
        *session, agent, runs, tokens, cost, has_pause, has_failed = row
        return SessionTotals(
            row=self.session(session),
            agent=agent,
            runs=runs,
            tokens=tokens,
            cost=cost,
            has_pause=bool(has_pause),
            has_failed=bool(has_failed),
        )

    def event(self, row: Any) -> EventRow:
        """An event; one whose data is not what was kept is shown as damaged."""
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

    def control(self, row: Any) -> ControlRow:
        """A control that was not consumed."""
        number, run_id, event_id, kind, sent_at, data = row
        return ControlRow(number=number, run_id=run_id, event_id=event_id, type=kind, sent_at=sent_at, data=data)

    def patch(self, row: Any, patch_id: str, who: Identity) -> PatchRow:
        """A patch of this session."""
        decision, created_at, decided_at = row
        return PatchRow(patch_id=patch_id, who=who, decision=decision, created_at=created_at, decided_at=decided_at)


def run_totals(rows: Iterable[Any]) -> RunTotals:
    """The sums of what was added up way by way."""
    runs = tokens = cost = 0
    for row in rows:
        runs, tokens, cost = runs + row[0], tokens + row[1], cost + row[2]
    return RunTotals(runs=runs, tokens=tokens, cost=cost)


def group_left(row: Any) -> GroupLeft | None:
    """A group that a member has left; None for one whose status this version does not know."""
    run_id, group_id, status, members, live, fails_fast, retains_turn = row
    if status not in _GROUPS:
        return None
    return GroupLeft(run_id, group_id, GroupStatus(status), members, live, bool(fails_fast), bool(retains_turn))
