"""The four indexes of search: each finds rows of a principal by a part of their text, newest first, and counts them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from harborage.artifacts import ArtifactScope
from harborage.events import RecordBus
from harborage.protocol.errors import Code, ProtocolError
from harborage.protocol.methods import TokenScope
from harborage.protocol.wire.common import NO_TIME, ArtifactReference
from harborage.protocol.wire.search import Facet, SearchFilter, SearchRow
from harborage.server.families.artifacts import created_at
from harborage.server.families.task_rows import show_tasks
from harborage.store import EventQuery, Owner, RunQuery, SessionListQuery, SessionState, Status
from harborage.store.times import micros, moment
from harborage.tasks import TaskKind, TaskStatus

if TYPE_CHECKING:
    from harborage.artifacts.values import ArtifactRef
    from harborage.protocol.wire.tasks import TaskRow
    from harborage.server.services import Call
    from harborage.store import EventRow, RunRow, SessionTotals

_LONGEST: Final = 32_768
_SHOWN: Final = 256
_STATES: Final = {
    "open": (SessionState.RUNNING,),
    "closed": (SessionState.COMPLETED, SessionState.FAILED),
}
_FACETS: Final[Mapping[str, tuple[str, ...]]] = {
    "sessions.status": tuple(_STATES),
    "tasks.status": tuple(map(str, TaskStatus)),
    "tasks.kind": tuple(map(str, TaskKind)),
    "events.type": (),
    "events.run": (),
    "artifacts.mime": (),
    "artifacts.namespace": (),
}
"""The facets there are, each with its values; none for any."""


class Reach(NamedTuple):
    """Whose things may be found; no users are all of them, no tenants none."""

    tenants: tuple[str, ...]
    users: tuple[str, ...]
    sessions: tuple[str, ...]


class Wanted(NamedTuple):
    """What is looked for."""

    reach: Reach
    text: str
    filter: SearchFilter
    facets: tuple[Facet, ...]

    def facet(self, key: str) -> tuple[str, ...]:
        """The values that are asked for, of which each found thing has one; none for any."""
        return tuple(dict.fromkeys(one.value for one in self.facets if one.key == key))


class Found(NamedTuple):
    """The newest rows, and how many there are of all pages."""

    rows: Sequence[SearchRow] = ()
    total: int = 0


def reach_of(call: Call, filter: SearchFilter) -> tuple[Reach, bool]:
    """Return whose things a caller may find, and whether some are another tenant's.

    Raises:
        ProtocolError: `scope_mismatch` for another tenant without a scope.
    """
    own_tenant, own_user = call.who.tenant_id, call.who.user_id
    tenants = _given(filter.tenant_ids) or (own_tenant,)
    users, sessions = _given(filter.user_ids), _given(filter.session_ids)
    is_foreign = any(one != own_tenant for one in tenants)
    if is_foreign:
        call.require(TokenScope.ADMIN, TokenScope.CONSOLE_FLEET)
    if call.is_scoped:
        return Reach(tenants, users, sessions), is_foreign
    is_mine = not users or own_user in users
    return Reach(tenants if is_mine else (), (own_user,), sessions), False


def _given(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name))


def check_facets(facets: Sequence[Facet]) -> None:
    """Accept facets that an index has.

    Raises:
        ProtocolError: `invalid_request`.
    """
    for facet in facets:
        if facet.key not in _FACETS:
            raise ProtocolError(Code.INVALID_REQUEST, f"facets.key: there are {', '.join(_FACETS)}")
        known = _FACETS[facet.key]
        if known and facet.value not in known:
            raise ProtocolError(Code.INVALID_REQUEST, f"facets.value of {facet.key}: there are {', '.join(known)}")


# ── Sessions ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _sessions(call: Call, wanted: Wanted, most: int) -> Found:
    reach, when = wanted.reach, wanted.filter
    if not reach.tenants:
        return Found()
    query = SessionListQuery(
        tenants=reach.tenants,
        users=reach.users,
        sessions=reach.sessions,
        states=tuple(state for value in wanted.facet("sessions.status") for state in _STATES[value]),
        since=micros(when.since),
        until=micros(when.until),
        words=wanted.text,
        limit=most,
    )
    store = call.parts.store
    rows = [_session_row(call, one) for one in await store.list_sessions(query)]
    return Found(rows, await store.count_sessions(query))


def _session_row(call: Call, found: SessionTotals) -> SearchRow:
    who, is_open = found.row.who, found.state is SessionState.RUNNING
    row = SearchRow(
        index="sessions",
        id=who.session_id,
        tenant_id=who.tenant_id,
        user_id=who.user_id,
        session_id=who.session_id,
        occurred_at=moment(found.row.opened_at),
        facets={"status": "open" if is_open else "closed"},
    )
    return _with_preview(call, row, found.row.close_reason or who.session_id)


# ── Tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _tasks(call: Call, wanted: Wanted, most: int) -> Found:
    reach, when = wanted.reach, wanted.filter
    if not reach.tenants:
        return Found()
    owners = tuple(Owner(*one) for one in product(reach.tenants, reach.users or ("",), reach.sessions or ("",)))
    (tenant, user, session), *others = owners
    query = RunQuery(
        shown=tuple(map(Status, wanted.facet("tasks.status"))),
        kinds=wanted.facet("tasks.kind"),
        since=micros(when.since),
        until=micros(when.until),
        words=wanted.text,
    )
    if others:
        is_one = len(reach.tenants) == 1, len(reach.users) == 1
        query = replace(query, owners=owners, tenant=tenant if is_one[0] else "", user=user if all(is_one) else "")
    else:
        query = replace(query, tenant=tenant, user=user, session=session)
    store = call.parts.store
    rows = await _runs(call, query, most)
    counts = await store.count_runs(query)
    return Found([_task_row(call, row) for row in await show_tasks(store, rows)], counts.total)


async def _runs(call: Call, query: RunQuery, most: int) -> list[RunRow]:
    """The newest runs of a query; the store looks at so many at a time where no index answers."""
    found: list[RunRow] = []
    while True:
        page = await call.parts.store.runs(replace(query, limit=most - len(found)))
        found += page.rows
        if page.cursor is None or len(found) >= most:
            return found
        query = replace(query, after=page.cursor)


def _task_row(call: Call, task: TaskRow) -> SearchRow:
    row = SearchRow(
        index="tasks",
        id=task.id,
        tenant_id=task.identity.tenant,
        user_id=task.identity.user,
        session_id=task.identity.session,
        run_id=task.id,
        occurred_at=task.started_at,
        facets={"status": task.status, "kind": task.kind},
    )
    return _with_preview(call, row, task.description or task.query)


# ── Events ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _events(call: Call, wanted: Wanted, most: int) -> Found:
    """The events of one session: the first that the filter names, else the caller's. A bus that keeps none has none."""
    reach, when, bus = wanted.reach, wanted.filter, call.parts.bus
    if not reach.tenants or not isinstance(bus, RecordBus):
        return Found()
    user = next(iter(reach.users), call.who.user_id)
    session = next(iter(reach.sessions), call.who.session_id)
    query = EventQuery(
        tenant=reach.tenants[0],
        user=user,
        session=session,
        run_ids=wanted.facet("events.run"),
        types=wanted.facet("events.type"),
        since=micros(when.since),
        until=micros(when.until),
        text=wanted.text,
        newest_first=True,
        limit=most,
    )
    rows = [_event_row(call, row) for row in await bus.store.events(query)]
    return Found(rows, await bus.store.total_events(query))


def _event_row(call: Call, event: EventRow) -> SearchRow:
    who = event.who
    row = SearchRow(
        index="events",
        id=f"{who.session_id}:{event.sequence}",
        tenant_id=who.tenant_id,
        user_id=who.user_id,
        session_id=who.session_id,
        run_id=event.run_id,
        occurred_at=moment(event.at),
        facets={"type": event.type},
    )
    return _with_preview(call, row, event.type)


# ── Artifacts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _artifacts(call: Call, wanted: Wanted, most: int) -> Found:
    """The files of the principals; a store of artifacts lists all of a scope."""
    reach, text = wanted.reach, wanted.text.lower()
    scopes = [ArtifactScope(*one) for one in product(reach.tenants, reach.users or ("",), reach.sessions or ("",))]
    listed = [ref for scope in scopes for ref in await call.parts.artifacts.list(scope)]
    mimes, spaces = wanted.facet("artifacts.mime"), wanted.facet("artifacts.namespace")
    found = [
        ref
        for ref in listed
        if text in "\n".join((ref.id, ref.filename, ref.mime_type, ref.namespace)).lower()
        and ref.mime_type in (mimes or (ref.mime_type,))
        and ref.namespace in (spaces or (ref.namespace,))
    ]
    found.sort(key=_newest_first)
    return Found([_artifact_row(call, ref) for ref in found[:most]], len(found))


def _newest_first(ref: ArtifactRef) -> tuple[float, str]:
    at = created_at(ref)
    return 0.0 if at is None else -at.timestamp(), ref.id


def _artifact_row(call: Call, ref: ArtifactRef) -> SearchRow:
    scope = ref.scope
    facets = {"mime": ref.mime_type, "namespace": ref.namespace}
    row = SearchRow(
        index="artifacts",
        id=ref.id,
        tenant_id=scope.tenant_id,
        user_id=scope.user_id,
        session_id=scope.session_id,
        occurred_at=NO_TIME,
        ref=ArtifactReference.of(ref),
        facets={name: value for name, value in facets.items() if value},
    )
    return _with_preview(call, row, ref.filename)


# ── Previews ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _with_preview(call: Call, row: SearchRow, text: str) -> SearchRow:
    """The row with the beginning of its text, without secrets; a text that is very long is only referred to."""
    shown = call.parts.redactor.redact(text)
    if not isinstance(shown, str):
        return row
    size = len(shown.encode())
    if size >= _LONGEST:
        made = ArtifactReference(id=row.id, mime_type="text/plain", size_bytes=size)
        return replace(row, ref=made if row.ref is None else row.ref)
    return replace(row, preview=shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…")


Index = Callable[["Call", Wanted, int], Awaitable[Found]]

INDEXES: Final[Mapping[str, Index]] = {
    "sessions": _sessions,
    "tasks": _tasks,
    "events": _events,
    "artifacts": _artifacts,
}
"""What finds the rows of each index."""
