"""A check of everything in a store of any kind, and the closer look at what its slices suspect."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from harborage.store.check import Disagreement, Shown, check, check_places, twice
from harborage.store.errors import EntryDamagedError, RowNotFoundError
from harborage.store.examining import BEGINNING, Examined, Judges, Part, Place
from harborage.store.queries import EventQuery, PauseQuery, RunQuery, SessionQuery
from harborage.store.rows import GroupRow, PauseStatus, RunRow, SessionRow

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from harborage.identity import Identity
    from harborage.store.port import Store
    from harborage.store.queries import Page

T = TypeVar("T")

_PAGE = 500


async def check_everything(
    store: Store, judges: Judges, *, on_progress: Callable[[Part, float], None] | None = None
) -> AsyncIterator[Disagreement]:
    """Everything in the store that is damaged, gone or does not agree, however much there is, as it is found.

    Others may change the store meanwhile. `on_progress` is called after each slice with the part and how much of it was
    looked at, from 0 to 1.

    Raises:
        DatabaseError: the database cannot be read on.
    """
    for part in Part:
        after: Place | None = BEGINNING
        last: int | None = None
        while after is not None and (last is None or after[0] < last):
            examined = await store.examine(part, judges, after)
            # What others add meanwhile is not chased.
            last, after = examined.last if last is None else last, examined.after
            for one in (*examined.found, *await judged(store, examined)):
                yield one
            if on_progress is not None:
                on_progress(part, 1.0 if after is None or not last else min(1.0, after[0] / last))


async def judged(store: Store, examined: Examined) -> list[Disagreement]:
    """What does not agree of that which a slice suspects."""
    found: list[Disagreement] = []
    for run_id in examined.runs:
        found += await twice(lambda run_id=run_id: _of_run(store, run_id))  # type: ignore[misc]
    for who, group_id in examined.groups:
        found += await twice(lambda who=who, group_id=group_id: _of_group(store, who, group_id))  # type: ignore[misc]
    for who in examined.sessions:
        found += await twice(lambda who=who: _of_session(store, who))  # type: ignore[misc]
    return found


async def _of_run(store: Store, run_id: str) -> list[Disagreement]:
    """What of one run does not agree with its journal, controls, pauses, children, and what it waits for."""
    rows = (await store.runs(RunQuery(run_ids=(run_id,)))).rows
    if not rows or rows[0].is_damaged:
        return []
    row = rows[0]
    others: list[RunRow] = []
    if row.awaits:
        others += (await store.runs(RunQuery(run_ids=(row.awaits,)))).rows
    others += await _all(store.runs, RunQuery(parent=run_id, limit=_PAGE))
    try:
        journal: Sequence[bytes] | EntryDamagedError = await store.entries(run_id)
    except EntryDamagedError as error:
        journal = error
    groups = [await _group(store, name, row.who) for name in dict.fromkeys((row.group, row.awaits)) if name]
    shown = Shown(
        runs=[row, *others],
        journals={**dict.fromkeys((one.run_id for one in others), ()), run_id: journal},
        controls={run_id: await store.controls(run_id, limit=1 << 30)},
        pauses=await _all(store.pauses, PauseQuery(run_ids=(run_id,), statuses=(PauseStatus.OPEN,), limit=_PAGE)),
        groups=[group for group in groups if group is not None],
        sessions=(await _sessions(store, row.who)),
        events=(),
    )
    kinds = {"group_missing": row.group, "session_missing": row.who.session_id}
    return [one for one in check(shown) if one.subject == kinds.get(one.kind, run_id) and one.kind != "event_count"]


async def _of_group(store: Store, who: Identity, group_id: str) -> list[Disagreement]:
    """Whether a group counts its members right."""
    try:
        group, members = await store.group(group_id, who=who)
    except RowNotFoundError:
        return []
    members = await _all(store.runs, _members(who, group_id)) if len(members) >= group.members else members
    shown = Shown(
        runs=members,
        journals=dict.fromkeys((one.run_id for one in members), ()),
        controls={},
        pauses=(),
        groups=[group],
        sessions=(),
        events=(),
    )
    return [one for one in check(shown) if one.kind in {"group_live", "group_members"}]


def _members(who: Identity, group_id: str) -> RunQuery:
    return RunQuery(
        tenant=who.tenant_id, user=who.user_id, session=who.session_id, group=group_id, oldest_first=True, limit=_PAGE
    )


async def _of_session(store: Store, who: Identity) -> list[Disagreement]:
    """Whether a session has the events that it counts."""
    rows = await _sessions(store, who)
    if not rows:
        return []
    places: list[int] = []
    query = EventQuery(tenant=who.tenant_id, user=who.user_id, session=who.session_id, limit=_PAGE)
    while events := await store.events(query):
        places += (event.place for event in events)
        query = replace(query, after=events[-1].sequence)
    return [*check_places(rows[0], places)]


async def _sessions(store: Store, who: Identity) -> list[SessionRow]:
    query = SessionQuery(tenant=who.tenant_id, user=who.user_id, session=who.session_id, include_closed=True, limit=1)
    return (await store.sessions(query)).rows


async def _group(store: Store, group_id: str, who: Identity) -> GroupRow | None:
    try:
        group, _ = await store.group(group_id, who=who)
    except RowNotFoundError:
        return None
    return group


async def _all(ask: Callable[[Any], Awaitable[Page[T]]], query: Any) -> list[T]:
    found: list[T] = []
    while True:
        page = await ask(query)
        found += page.rows
        if page.cursor is None:
            return found
        query = replace(query, after=page.cursor)
