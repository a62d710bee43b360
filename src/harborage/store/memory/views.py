"""Which rows of a store in memory a query finds. Pure: rows in, rows out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

from harborage.identity import Identity
from harborage.store.queries import (
    EventCount,
    EventCountQuery,
    EventQuery,
    GroupQuery,
    Owner,
    Page,
    PauseQuery,
    RunQuery,
    SessionListQuery,
    SessionPlace,
    SessionQuery,
    SessionSort,
    SessionTotals,
)
from harborage.store.rows import CRASH, EventRow, GroupRow, PauseRow, PauseStatus, RunRow, SessionRow, Status

Asks: TypeAlias = Callable[[str], Collection[str]]
"""The reasons of the open pauses of a run."""

T = TypeVar("T", RunRow, GroupRow, PauseRow, SessionRow)


def find_runs(rows: Iterable[RunRow], query: RunQuery, asks: Asks) -> Page[RunRow]:
    """A page of the runs that a query finds."""
    found = [(row.created_at, row.number, row) for row in rows if has_run(query, row, asks)]
    return _page(found, query.after, query.limit, oldest_first=query.oldest_first)


def find_pauses(rows: Iterable[PauseRow], query: PauseQuery) -> Page[PauseRow]:
    """A page of the pauses that a query finds."""
    found = [(row.opened_at, row.number, row) for row in rows if has_pause(query, row)]
    return _page(found, query.after, query.limit)


def find_groups(rows: Iterable[GroupRow], query: GroupQuery) -> Page[GroupRow]:
    """A page of the groups that a query finds."""
    found = [(row.created_at, row.number, row) for row in rows if _has_group(query, row)]
    return _page(found, query.after, query.limit)


def find_sessions(rows: Iterable[SessionRow], query: SessionQuery) -> Page[SessionRow]:
    """A page of the sessions that a query finds."""
    found = [(row.opened_at, row.number, row) for row in rows if _has_session(query, row)]
    return _page(found, query.after, query.limit)


def find_events(rows: Iterable[EventRow], query: EventQuery) -> list[EventRow]:
    """The events that a query finds, in its order."""
    after, back = query.after, query.newest_first
    found = [
        row
        for row in rows
        if (not after or (row.sequence < after if back else row.sequence > after)) and has_event(query, row)
    ]
    found.sort(key=lambda row: row.sequence, reverse=back)
    return found[: query.limit]


def count_events(logs: Mapping[Identity, Sequence[EventRow]], query: EventCountQuery) -> list[EventCount]:
    """How many events a query finds, by slot and type."""
    counts: Counter[tuple[int, str]] = Counter()
    heads = tuple(head.encode() for head in query.task_heads)
    for who, rows in logs.items():
        if not (who.tenant_id in query.tenants and who.user_id in query.users and who.session_id in query.sessions):
            continue
        counts.update(
            ((row.at * 1_000 - query.start) // query.bucket, row.type)
            for row in rows
            if query.since <= row.at < query.until
            and (
                row.run_id in (query.run_ids or (row.run_id,))
                or (row.type.startswith("task.") and bytes(row.data).startswith(heads))
            )
            and row.type in (query.types or (row.type,))
        )
    return [EventCount(*key, count) for key, count in sorted(counts.items())]


def events_near(logs: Mapping[Identity, list[EventRow]], query: EventQuery) -> Iterable[EventRow]:
    """Return the events of the sessions that a query may be about: of one, where its whole identity is named."""
    if query.tenant and query.user and query.session:
        return logs.get(Identity(query.tenant, query.user, query.session), [])
    of = (query.tenant, query.user, query.session)
    return [row for who, log in logs.items() if _is_of(*of, who) for row in log]


def has_event(query: EventQuery, row: EventRow) -> bool:
    """Whether a query finds this event, whatever its page."""
    return (
        row.type in (query.types or (row.type,))
        and _is_of(query.tenant, query.user, query.session, row.who)
        and row.run_id in (query.run_ids or (row.run_id,))
        and _is_between(row.at, query.since, query.until)
        and _says(query.text, row.type, row.run_id)
    )


def total_sessions(
    sessions: Iterable[SessionRow], runs_of: Callable[[Identity], list[RunRow]], asking: Collection[Identity]
) -> Iterator[SessionTotals]:
    """Every session, with what its runs come to; something waits for an answer in those that are `asking`."""
    for session in sessions:
        runs = runs_of(session.who)
        yield SessionTotals(
            row=session,
            agent=next((run.agent for run in reversed(runs) if not run.parent), ""),
            runs=len(runs),
            tokens=sum(run.tokens for run in runs),
            cost=sum(run.cost for run in runs),
            has_pause=session.who in asking,
            has_failed=any(run.status is Status.FAILED for run in runs),
        )


def list_sessions(rows: Iterable[SessionTotals], query: SessionListQuery) -> list[SessionTotals]:
    """The sessions that a query finds, in its order, behind its place."""
    found = [(row, row.place(query.sort)) for row in rows if has_totals(query, row)]
    found.sort(key=lambda one: _rank(one[1], query.sort))
    after = query.after
    if after is not None:
        found = [one for one in found if _rank(one[1], query.sort) > _rank(after, query.sort)]
    return [row for row, _ in found[: query.limit]]


def _rank(place: SessionPlace, sort: SessionSort) -> SessionPlace:
    return place if sort is SessionSort.STARTED_ASC else place._replace(key=-place.key)


def has_totals(query: SessionListQuery, found: SessionTotals) -> bool:
    """Whether a query finds this session of a principal whom it names, whatever its page."""
    row, who = found.row, found.row.who
    return (
        row.is_opened
        and found.state in (query.states or (found.state,))
        and found.agent in (query.agents or (found.agent,))
        and _is_between(row.opened_at, query.since, query.until)
        and query.has_pause in (None, found.has_pause)
        and query.has_failed in (None, found.has_failed)
        and (query.cost_above is None or found.cents > query.cost_above)
        and _says(query.text, who.session_id, who.user_id, found.agent)
        and _says(query.words, who.session_id, who.tenant_id, who.user_id, row.close_reason)
    )


def shown_status(row: RunRow, asks: Asks) -> Status:
    """The status of a run as people see it."""
    if row.status.is_final:
        return row.status
    if (row.blocked and not row.owner) or asks(row.run_id):
        return Status.PAUSED
    return Status.PENDING if row.status is Status.PENDING else Status.RUNNING


def has_run(query: RunQuery, row: RunRow, asks: Asks) -> bool:
    """Whether a query finds this run, whatever its page."""
    shown = shown_status(row, asks) if query.shown or query.words else row.status
    has_approval = None if query.has_approval is None else "approval_required" in asks(row.run_id)
    return (
        _is_of(query.tenant, query.user, query.session, row.who)
        and row.run_id in (query.run_ids or (row.run_id,))
        and row.status in (query.statuses or (row.status,))
        and row.kind in (query.kinds or (row.kind,))
        and (not query.reasons or _has_failed_so(query, row))
        and query.agent in ("", row.agent)
        and query.parent in ("", row.parent)
        and row.parent in (query.parents or (row.parent,))
        and query.root in ("", row.root)
        and query.group in ("", row.group)
        and _is_between(row.created_at, query.since, query.until)
        and (not query.longer_than or row.updated_at - row.created_at > query.longer_than)
        and (not query.only_blocked or bool(row.blocked))
        and all(mark in row.tags for mark in query.tags)
        and (not query.shown or shown in query.shown)
        and query.has_approval == has_approval
        and (not query.owners or any(_is_owned(row.who, owner) for owner in query.owners))
        and _says(query.text, row.about, row.description)
        and _says(query.words, row.run_id, row.about, row.description, row.kind, shown)
    )


def _has_failed_so(query: RunQuery, row: RunRow) -> bool:
    is_so = row.reason in query.reasons or (query.or_crashed and CRASH in row.reason)
    return row.status is Status.FAILED and is_so


def _says(wanted: str, *texts: str) -> bool:
    return not wanted or any(wanted.lower() in text.lower() for text in texts)


def _is_owned(who: Identity, owner: Owner) -> bool:
    is_of_user = owner.user in ("", who.user_id) and owner.session in ("", who.session_id)
    return owner.tenant == who.tenant_id and is_of_user


def has_pause(query: PauseQuery, row: PauseRow) -> bool:
    """Whether a query finds this pause, whatever its page."""
    return (
        _is_of(query.tenant, query.user, query.session, row.who)
        and row.token in (query.tokens or (row.token,))
        and row.run_id in (query.run_ids or (row.run_id,))
        and row.status in (query.statuses or (row.status,))
        and row.reason in (query.reasons or (row.reason,))
        and _is_between(row.opened_at, query.since, query.until)
        and (query.due is None or _is_due(row, query.due))
    )


def _is_due(row: PauseRow, now: int) -> bool:
    return row.status is PauseStatus.OPEN and row.deadline is not None and row.deadline <= now


def _has_group(query: GroupQuery, row: GroupRow) -> bool:
    return (
        _is_of(query.tenant, query.user, query.session, row.who)
        and row.group_id in (query.group_ids or (row.group_id,))
        and row.status in (query.statuses or (row.status,))
        and (not query.only_empty or (row.members > 0 and not row.open_members))
    )


def _has_session(query: SessionQuery, row: SessionRow) -> bool:
    return (
        _is_of(query.tenant, query.user, query.session, row.who)
        and (query.include_closed or row.closed_at is None)
        and (row.is_opened or not query.only_opened)
        and _is_between(row.seen_at, query.seen_since, query.seen_until)
        and _is_left(query, row)
    )


def _is_left(query: SessionQuery, row: SessionRow) -> bool:
    bounds = [(row.seen_at, query.seen_before), (row.opened_at, query.opened_before)]
    given = [at < before for at, before in bounds if before is not None]
    return not given or any(given)


def _is_of(tenant: str, user: str, session: str, who: Identity) -> bool:
    return tenant in ("", who.tenant_id) and user in ("", who.user_id) and session in ("", who.session_id)


def _is_between(at: int, since: int | None, until: int | None) -> bool:
    return (since is None or at >= since) and (until is None or at <= until)


def _page(
    found: list[tuple[int, int, T]], after: tuple[int, int] | None, limit: int, *, oldest_first: bool = False
) -> Page[T]:
    found.sort(key=lambda one: one[:2], reverse=not oldest_first)
    if after is not None:
        found = [one for one in found if (one[:2] > after if oldest_first else one[:2] < after)]
    rows = found[:limit]
    return Page([row for *_, row in rows], rows[-1][:2] if len(found) > limit else None)
