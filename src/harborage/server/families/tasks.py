"""`tasks.list` and `tasks.get`: runs as a board shows them, from the rows of the store and from one run's record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harborage.concurrency import together
from harborage.errors import InvalidOptionError, error_text
from harborage.events import AdminTasksListedPayload, Event, EventType, Triple
from harborage.planner import TASK_ERROR_RUN_LOOP
from harborage.protocol.errors import Code, ProtocolError
from harborage.protocol.methods import TokenScope
from harborage.protocol.wire.tasks import (
    StatusStrip,
    TaskCounts,
    TaskCursor,
    TaskDetail,
    TaskFilter,
    TaskGetRequest,
    TaskListRequest,
    TaskPage,
)
from harborage.runtime.effects.options import checked_tags
from harborage.server.families.paging import (
    DEFAULT_PAGE_SIZE,
    MAX_PAGE_SIZE,
    decode_token,
    encode_token,
    foreign_cursor,
)
from harborage.server.families.task_detail import describe_task
from harborage.server.families.task_rows import show_tasks
from harborage.server.services import Call, Endpoint
from harborage.store import LIVE, Owner, RunQuery, Status
from harborage.store.tags import marks_of
from harborage.store.times import micros
from harborage.tasks import TaskKind, TaskStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harborage.store import RunRow, Store

_WORD: Final = "tasks"
_NS: Final = 1_000
_US_OF_MS: Final = 1_000
_MOST_IDENTITIES: Final = 100

Place = tuple[int, int]


async def list_tasks(call: Call, asked: TaskListRequest) -> TaskPage:
    """Return one page of the tasks that the caller may see, newest start first."""
    tenants = {call.who.tenant_id, *(one.tenant for one in asked.filter.identities if one.tenant)}
    if len(tenants) > 1:
        call.require(TokenScope.ADMIN)
    owners, size, query = _owners(call, asked.filter), _page_size(asked.page_size), _query(asked.filter)
    queries = [replace(query, tenant=one.tenant, user=one.user, session=one.session) for one in owners]
    store = call.parts.store
    after = await _place(store, asked.cursor.next_page_token, owners)
    if len(tenants) > 1:
        await _audit(call, len(tenants))
    rows, has_more = await read_page(store, queries, after, size)
    strip = StatusStrip(**await _strip(call)) if asked.include_status_counter_strip else None
    return TaskPage(
        rows=await show_tasks(store, rows),
        cursor=TaskCursor(next_page_token=_token(rows[-1]) if has_more else ""),
        aggregates=TaskCounts(**await count_shown(store, queries)),
        status_counter_strip=strip,
    )


async def get_task(call: Call, asked: TaskGetRequest) -> TaskDetail:
    """Return one task in detail: its session, its parent, what it cost, and how it ended."""
    if not asked.id.strip():
        raise ProtocolError(Code.INVALID_REQUEST, "id: which task, as tasks.list names it")
    query = RunQuery(tenant=call.who.tenant_id, run_ids=(asked.id,), is_whole=True, limit=1)
    rows = (await call.parts.store.runs(query)).rows
    if not rows or not (call.is_scoped or rows[0].who.user_id == call.who.user_id):
        raise ProtocolError(Code.NOT_FOUND, "there is no such task; tasks.list names those there are")
    return await describe_task(call, rows[0])


# ── Whose ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _audit(call: Call, tenants: int) -> None:
    """Publish that an admin lists the tasks of so many tenants."""
    payload = AdminTasksListedPayload(Triple.of(call.caller.who), call.method.name, tenants)
    await call.parts.bus.publish(Event(EventType.AUDIT_ADMIN_SCOPE_USED, call.caller.who.with_run(""), payload))


def _owners(call: Call, filter: TaskFilter) -> list[Owner]:
    """Return whose tasks are meant: those of the caller's session, else of each identity that the caller may see.

    Raises:
        ProtocolError: `invalid_request`: too many are named.
    """
    who = call.who
    if not filter.identities:
        return [Owner(who.tenant_id, who.user_id, who.session_id)]
    if len(filter.identities) > _MOST_IDENTITIES:
        raise ProtocolError(Code.INVALID_REQUEST, f"filter.identities: at most {_MOST_IDENTITIES} at a time")
    asked = [Owner(one.tenant or who.tenant_id, one.user, one.session) for one in filter.identities]
    if not call.is_scoped:
        own = who.user_id
        asked = [one._replace(user=own) for one in asked if one.user in ("", own)]
    return _widest(asked)


def _widest(owners: Iterable[Owner]) -> list[Owner]:
    """The same owners without those whom another of them covers, so that no task is found twice."""
    found = list(dict.fromkeys(owners))
    return [one for one in found if not any(other != one and _covers(other, one) for other in found)]


def _covers(wide: Owner, narrow: Owner) -> bool:
    parts = zip(wide, narrow, strict=True)
    return all(one in ("", other) for one, other in parts)


# ── Which ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _query(filter: TaskFilter) -> RunQuery:
    """Return the query of a filter, without an owner yet.

    Raises:
        ProtocolError: `invalid_request`; the message names the field.
    """
    _check_words("statuses", filter.statuses, tuple(TaskStatus))
    _check_words("kinds", filter.kinds, tuple(TaskKind))
    if filter.latency_above_ms < 0:
        raise ProtocolError(Code.INVALID_REQUEST, "filter.latency_above_ms: not negative")
    if filter.since is not None and filter.until is not None and filter.since > filter.until:
        raise ProtocolError(Code.INVALID_REQUEST, "filter.since: not after until")
    classes = tuple(dict.fromkeys(filter.error_classes))
    return RunQuery(
        shown=tuple(dict.fromkeys(map(Status, filter.statuses))),
        kinds=tuple(dict.fromkeys(filter.kinds)),
        parent=filter.parent_task_id,
        group=filter.group_id,
        reasons=classes,
        or_crashed=TASK_ERROR_RUN_LOOP in classes,
        has_approval=filter.has_pending_approval,
        since=micros(filter.since),
        until=micros(filter.until),
        longer_than=filter.latency_above_ms * _US_OF_MS,
        text=filter.search,
        tags=_tags(filter),
    )


def _tags(filter: TaskFilter) -> tuple[str, ...]:
    try:
        return marks_of(checked_tags(filter.tags, "filter.tags"))
    except InvalidOptionError as error:
        raise ProtocolError(Code.INVALID_REQUEST, error_text(error)) from error


def _check_words(field: str, words: Sequence[str], known: Sequence[str]) -> None:
    if not set(words).issubset(known):
        raise ProtocolError(Code.INVALID_REQUEST, f"filter.{field}: there are {', '.join(known)}")


def _page_size(asked: int) -> int:
    if not 0 <= asked <= MAX_PAGE_SIZE:
        text = f"page_size: from 1 to {MAX_PAGE_SIZE}, or 0 for {DEFAULT_PAGE_SIZE}"
        raise ProtocolError(Code.INVALID_REQUEST, text)
    return asked or DEFAULT_PAGE_SIZE


# ── Pages ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def read_page(
    store: Store, queries: Sequence[RunQuery], after: Place | None, size: int
) -> tuple[list[RunRow], bool]:
    """Return the newest runs of all queries together behind a place, and whether there are more."""
    found = await together(*(_read_on(store, replace(query, after=after), size + 1) for query in queries))
    rows = sorted((row for part in found for row in part), key=_newest_first)
    return rows[:size], len(rows) > size


async def _read_on(store: Store, query: RunQuery, count: int) -> list[RunRow]:
    """The first runs of a query; the store looks at so many at a time where no index answers."""
    found: list[RunRow] = []
    while True:
        page = await store.runs(replace(query, limit=count - len(found)))
        found += page.rows
        if page.cursor is None or len(found) >= count:
            return found
        query = replace(query, after=page.cursor)


def _newest_first(row: RunRow) -> tuple[int, int]:
    return -row.created_at, -row.number


def _token(row: RunRow) -> str:
    return encode_token(f"{_WORD}:{row.created_at * _NS}:{row.run_id}")


async def _place(store: Store, token: str, owners: Sequence[Owner]) -> Place | None:
    """Return the place of a cursor; that of a task which is gone is before all of its moment.

    Raises:
        ProtocolError: `invalid_request`: it is malformed, or of a list of other tasks.
    """
    if not token:
        return None
    word, _, rest = decode_token(token).partition(":")
    at, _, run_id = rest.partition(":")
    if word != _WORD or not (at.isascii() and at.isdigit()) or len(at) > 19 or int(at) % _NS or not run_id:
        raise foreign_cursor()
    rows = (await store.runs(RunQuery(run_ids=(run_id,), limit=1))).rows
    if not rows:
        return int(at) // _NS, 0
    (row,) = rows
    whose = Owner(row.who.tenant_id, row.who.user_id, row.who.session_id)
    if row.created_at * _NS != int(at) or not any(_covers(one, whose) for one in owners):
        raise foreign_cursor()
    return row.created_at, row.number


# ── Counts ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def count_shown(store: Store, queries: Sequence[RunQuery]) -> dict[str, int]:
    """Return how many runs of all queries have each status that a board shows."""
    counts = dict.fromkeys(map(str, TaskStatus), 0)
    for found in await together(*(_count(store, query) for query in queries)):
        for status, count in found.items():
            counts[status] += count
    return counts


async def _count(store: Store, query: RunQuery) -> Mapping[str, int]:
    """Count by status in the store, and of those that go on the paused ones apart."""
    counts, paused = dict((await store.count_runs(query)).by_status), 0
    if not query.shown or Status.PAUSED in query.shown:
        asking = await store.count_runs(replace(query, shown=(Status.PAUSED,), statuses=LIVE))
        for status in LIVE:
            counts[status] -= asking.by_status[status]
        paused = asking.total
    counts[Status.RUNNING] += counts[Status.PAUSED]
    counts[Status.PAUSED] = paused
    return {str(status): max(0, count) for status, count in counts.items()}


async def _strip(call: Call) -> dict[str, int]:
    who = call.who
    session = RunQuery(tenant=who.tenant_id, user=who.user_id, session=who.session_id)
    counts = await count_shown(call.parts.store, [session])
    del counts[TaskStatus.CANCELLED]
    counts["completed"] = counts.pop(TaskStatus.COMPLETE)
    return counts


ENDPOINTS: Final[dict[str, Endpoint]] = {
    "tasks.list": Endpoint(TaskListRequest, TaskPage, list_tasks),
    "tasks.get": Endpoint(TaskGetRequest, TaskDetail, get_task),
}
