"""`sessions.list` and `sessions.inspect`: conversations with what their runs come to."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from harborage.artifacts import ArtifactScope
from harborage.concurrency import together
from harborage.protocol.errors import Code, ProtocolError
from harborage.protocol.methods import TokenScope
from harborage.protocol.wire.common import WireIdentity, time_or_none
from harborage.protocol.wire.sessions import (
    Intervention,
    SessionArtifact,
    SessionDetail,
    SessionFilter,
    SessionInspectRequest,
    SessionListRequest,
    SessionPage,
    SessionRow,
)
from harborage.server.families.artifacts import created_at
from harborage.server.families.paging import (
    DEFAULT_PAGE_SIZE,
    MAX_PAGE_SIZE,
    decode_token,
    encode_token,
    foreign_cursor,
)
from harborage.server.served import UNNAMED, agent_id
from harborage.server.services import Call, Endpoint
from harborage.store import PauseQuery, SessionListQuery, SessionPlace, SessionSort, SessionState
from harborage.store.times import micros, moment

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.store import PauseRow, SessionTotals

_VERSION: Final = "1"
_NS: Final = 1_000
_MOST_RECENT: Final = 5
_MOST_DIGITS: Final = 19
_STATUSES: Final = ("running", "paused", "completed", "failed")


async def list_sessions(call: Call, asked: SessionListRequest) -> SessionPage:
    """Return one page of the sessions that the caller may see, closed ones included."""
    is_foreign = any(one not in ("", call.who.tenant_id) for one in asked.filter.tenant_ids)
    if is_foreign:
        call.require(TokenScope.ADMIN, TokenScope.CONSOLE_FLEET)
    sort, limit = _sort(asked.sort), _limit(asked.limit)
    query = _query(call, asked.filter, sort, _place(asked.cursor, sort), limit + 1)
    if is_foreign:
        await call.audit()
    if query is None:
        return SessionPage(rows=[], next_cursor="", truncated=False)
    found = await call.parts.store.list_sessions(query)
    has_more = len(found) > limit
    rows = found[:limit]
    return SessionPage(
        rows=[show_session(one) for one in rows],
        next_cursor=_cursor(rows[-1], sort) if has_more else "",
        truncated=has_more,
    )


async def inspect_session(call: Call, asked: SessionInspectRequest) -> SessionDetail:
    """Return one session with what was asked in it, and stored in it, of late.

    Of several users who have a session of this id, a scoped caller sees the own one, else the one opened last.
    """
    if not asked.session_id.strip():
        raise ProtocolError(Code.INVALID_REQUEST, "session_id: which session, as sessions.list names it")
    found = await _find(call, asked.session_id)
    if found is None:
        raise ProtocolError(Code.NOT_FOUND, "there is no such session; sessions.list names those there are")
    who = found.row.who
    interventions, artifacts = await together(_interventions(call, who), _artifacts(call, who))
    return SessionDetail(row=show_session(found), recent_interventions=interventions, recent_artifacts=artifacts)


async def _find(call: Call, session_id: str) -> SessionTotals | None:
    """Return the session of the caller, else with a scope that of another user of the tenant, else of any tenant."""
    who, store = call.who, call.parts.store
    mine = SessionListQuery(tenants=(who.tenant_id,), users=(who.user_id,), sessions=(session_id,), limit=1)
    of_tenant = SessionListQuery(tenants=(who.tenant_id,), sessions=(session_id,), limit=1)
    of_any = SessionListQuery(sessions=(session_id,), limit=1)
    for query in (mine, of_tenant, of_any) if call.is_scoped else (mine,):
        found = await store.list_sessions(query)
        if found:
            if found[0].row.who.tenant_id != who.tenant_id:
                await call.audit()
            return found[0]
    return None


# ── Whose, and which ──────────────────────────────────────────────────────────────────────────────────────────────────


def _whose(call: Call, filter: SessionFilter) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return the tenants and users whose sessions are meant; no users are all of them, None none.

    Without tenants in the filter they are the caller's own, whatever its scope.
    """
    tenants = tuple(dict.fromkeys(one for one in filter.tenant_ids if one))
    users = tuple(dict.fromkeys(one for one in filter.user_ids if one))
    if call.is_scoped and tenants:
        return tenants, users
    own = call.who.user_id
    return ((call.who.tenant_id,), (own,)) if not users or own in users else None


def _query(
    call: Call, filter: SessionFilter, sort: SessionSort, after: SessionPlace | None, limit: int
) -> SessionListQuery | None:
    """Return the query of a request; None where nothing can pass it.

    Raises:
        ProtocolError: `invalid_request`; the message names the field.
    """
    if not set(filter.statuses).issubset(_STATUSES):
        raise ProtocolError(Code.INVALID_REQUEST, f"filter.statuses: there are {', '.join(_STATUSES)}")
    window, above = filter.started_window, filter.cost_above_cents
    if window.from_ is not None and window.to is not None and window.from_ > window.to:
        raise ProtocolError(Code.INVALID_REQUEST, "filter.started_window: from is not after to")
    if above is not None and (above < 0 or not math.isfinite(above)):
        raise ProtocolError(Code.INVALID_REQUEST, "filter.cost_above_cents: not negative")
    states = tuple(dict.fromkeys(SessionState(one) for one in filter.statuses if one != "paused"))
    whose = _whose(call, filter)
    if whose is None or (filter.statuses and not states):  # a session is never paused
        return None
    return SessionListQuery(
        tenants=whose[0],
        users=whose[1],
        states=states,
        agents=tuple("" if one == UNNAMED else one for one in dict.fromkeys(filter.agent_ids)),
        since=micros(window.from_),
        until=micros(window.to),
        has_pause=filter.has_intervention,
        has_failed=filter.has_failed_task,
        cost_above=None if above is None else math.floor(above),
        text=filter.query,
        sort=sort,
        after=after,
        limit=limit,
    )


def _sort(asked: str) -> SessionSort:
    known = tuple(map(str, SessionSort))
    if asked and asked not in known:
        raise ProtocolError(Code.INVALID_REQUEST, f"sort: there are {', '.join(known)}")
    return SessionSort(asked or SessionSort.STARTED_DESC)


def _limit(asked: int) -> int:
    if not 0 <= asked <= MAX_PAGE_SIZE:
        raise ProtocolError(Code.INVALID_REQUEST, f"limit: from 1 to {MAX_PAGE_SIZE}, or 0 for {DEFAULT_PAGE_SIZE}")
    return asked or DEFAULT_PAGE_SIZE


# ── Cursors ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _cursor(found: SessionTotals, sort: SessionSort) -> str:
    """The place of a session: version, time, cost, its id, and, since several users may have it, sort and number."""
    place = found.place(sort)
    is_cost = sort is SessionSort.COST_DESC
    time, cost = (0, place.key) if is_cost else (place.key * _NS, found.cents)
    return encode_token(f"{_VERSION}|{time}|{cost}|{place.session}|{sort}|{place.number}")


def _place(cursor: str, sort: SessionSort) -> SessionPlace | None:
    """Return the place that a cursor names.

    Raises:
        ProtocolError: `invalid_request`: it is malformed, or belongs to another sort.
    """
    if not cursor:
        return None
    version, _, rest = decode_token(cursor).partition("|")
    time, _, rest = rest.partition("|")
    cost, _, rest = rest.partition("|")
    rest, _, number = rest.rpartition("|")
    session, _, of_sort = rest.rpartition("|")
    are_numbers = all(one.isascii() and one.isdigit() and len(one) <= _MOST_DIGITS for one in (time, cost, number))
    if version != _VERSION or not are_numbers or not session or of_sort != sort or int(time) % _NS:
        raise foreign_cursor()
    key = int(cost) if sort is SessionSort.COST_DESC else int(time) // _NS
    return SessionPlace(key, session, int(number))


# ── Rows ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def show_session(found: SessionTotals) -> SessionRow:
    """Return a session as it travels."""
    row, who = found.row, found.row.who
    agent = agent_id(found.agent) if found.runs else ""
    return SessionRow(
        session_id=who.session_id,
        status=found.state,
        agent_id=agent,
        agent_name=agent,
        user_id=who.user_id,
        tenant_id=who.tenant_id,
        started_at=moment(row.opened_at),
        last_activity_at=moment(found.last_at),
        duration=max(0, found.last_at - row.opened_at) * _NS,
        tasks_count=found.runs,
        events_count=row.events,
        total_cost_cents=found.cents,
        total_tokens=found.tokens,
        has_pending_intervention=found.has_pause,
        has_failed_task=found.has_failed,
        identity=WireIdentity.of(who),
    )


async def _interventions(call: Call, who: Identity) -> list[Intervention]:
    query = PauseQuery(tenant=who.tenant_id, user=who.user_id, session=who.session_id, limit=_MOST_RECENT)
    return [_intervention(pause) for pause in (await call.parts.store.pauses(query)).rows]


def _intervention(pause: PauseRow) -> Intervention:
    return Intervention(
        type="pause",
        reason=pause.reason,
        outcome="pending" if pause.settled_at is None else pause.status,
        occurred_at=moment(pause.opened_at if pause.settled_at is None else pause.settled_at),
    )


async def _artifacts(call: Call, who: Identity) -> list[SessionArtifact]:
    found = await call.parts.artifacts.list(ArtifactScope(who.tenant_id, who.user_id, who.session_id))
    shown = [
        SessionArtifact(
            filename=ref.filename or ref.id,
            mime=ref.mime_type,
            size_bytes=ref.size_bytes,
            created_at=time_or_none(created_at(ref)),
        )
        for ref in found
    ]
    return sorted(shown, key=lambda one: one.created_at, reverse=True)[:_MOST_RECENT]


ENDPOINTS: Final[dict[str, Endpoint]] = {
    "sessions.list": Endpoint(SessionListRequest, SessionPage, list_sessions),
    "sessions.inspect": Endpoint(SessionInspectRequest, SessionDetail, inspect_session),
}
