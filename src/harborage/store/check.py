"""Whether the tables of a store agree with each other: a pure function over rows, and the reading of those rows.

A store keeps some facts twice, so that no list has to count: how long a journal is, how many controls wait, how many
members of a group are live, how many events a session had. After a crash they must be what they were after some commit;
where they are not, `check` says which do not agree. It looks at whatever it is given: rows that point at something
that was not read count as pointing at nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from harborage.store.errors import EntryDamagedError
from harborage.store.queries import EventQuery, GroupQuery, Page, PauseQuery, RunQuery, SessionQuery
from harborage.store.rows import (
    EVENT_STEP,
    ControlRow,
    EventRow,
    GroupRow,
    PauseRow,
    PauseStatus,
    RunRow,
    SessionRow,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from harborage.identity import Identity
    from harborage.store.port import Store

T = TypeVar("T")
Q = TypeVar("Q", RunQuery, GroupQuery, PauseQuery, SessionQuery)

_PAGE = 500


class Disagreement(msgspec.Struct, frozen=True):
    """Two places of a store that do not agree: `subject` is the run, pause, group or session, `says` what is wrong."""

    kind: str
    subject: str
    says: str


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a store. `journals` and `controls` are by run; a journal that could not be read is its error."""

    runs: Sequence[RunRow]
    journals: Mapping[str, Sequence[bytes] | EntryDamagedError]
    controls: Mapping[str, Sequence[ControlRow]]
    pauses: Sequence[PauseRow]
    groups: Sequence[GroupRow]
    sessions: Sequence[SessionRow]
    events: Sequence[EventRow]


Consumed = Callable[[bytes], Iterable[str]]
"""The event ids of the controls that an entry of a journal answers."""


def check(shown: Shown, *, consumed: Consumed | None = None) -> list[Disagreement]:
    """What does not agree. With `consumed` also whether a run answered a control twice, or one that still waits."""
    runs = {row.run_id: row for row in shown.runs}
    opened = Counter(pause.run_id for pause in shown.pauses if pause.status is PauseStatus.OPEN)
    groups = {(group.who, group.group_id): group for group in shown.groups}
    found: list[Disagreement] = []
    for row in shown.runs:
        found += _journal(row, shown.journals[row.run_id])
        found += _inbox(row, shown.journals[row.run_id], shown.controls.get(row.run_id, ()), consumed)
        last_control = max((control.number for control in shown.controls.get(row.run_id, ())), default=0)
        found += _standing(row, opened[row.run_id], last_control, _is_awaited(row, runs, groups))
    found += _pauses(shown.pauses, runs)
    found += _groups(shown.groups, shown.runs)
    found += _families(shown.runs)
    found += _sessions(shown.sessions, shown.runs, shown.events)
    return found


# ── Runs ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _journal(row: RunRow, journal: Sequence[bytes] | EntryDamagedError) -> Iterator[Disagreement]:
    if isinstance(journal, EntryDamagedError):
        yield Disagreement("journal_damaged", row.run_id, str(journal))
    elif len(journal) != row.position:
        says = f"its row counts {row.position} entries, its journal has {len(journal)}"
        yield Disagreement("journal_length", row.run_id, says)


def _inbox(
    row: RunRow,
    journal: Sequence[bytes] | EntryDamagedError,
    controls: Sequence[ControlRow],
    consumed: Consumed | None,
) -> Iterator[Disagreement]:
    if row.unread != len(controls):
        says = f"its row counts {row.unread} unread controls, {len(controls)} are there"
        yield Disagreement("unread_count", row.run_id, says)
    if consumed is None or isinstance(journal, EntryDamagedError):
        return
    answered = Counter(event_id for entry in journal for event_id in consumed(entry))
    for event_id, times in answered.items():
        if times > 1:
            yield Disagreement("consumed_twice", row.run_id, f"control {event_id} was answered {times} times")
    for control in controls:
        if answered[control.event_id]:
            says = f"control {control.event_id} was answered, and is there to be answered again"
            yield Disagreement("consumed_unread", row.run_id, says)


def _standing(row: RunRow, open_pauses: int, last_control: int, is_awaited: bool) -> Iterator[Disagreement]:
    """Whether a run can move, or has ended for good."""
    if row.status.is_final:
        kept = {"an owner": row.owner, "a time": row.wake_at, "a wait": row.awaits, "a wake-up": row.is_woken}
        for what in (name for name, value in kept.items() if value):
            yield Disagreement("ended_but_waits", row.run_id, f"it is {row.status} and has {what}")
        if last_control:
            yield Disagreement(
                "control_of_ended", row.run_id, f"it is {row.status}, and control {last_control} is unread"
            )
        if open_pauses:
            yield Disagreement("pause_of_ended", row.run_id, f"it is {row.status} and has an open pause")
        return
    if row.owner and not row.fence:
        yield Disagreement("owner_without_fence", row.run_id, f"worker {row.owner} holds it under no fence")
    if not row.position:  # a task that no worker executes waits for nothing
        if row.owner or row.is_woken:
            yield Disagreement("claimed_without_entries", row.run_id, "it has no entries, and a worker may have it")
        return
    if row.owner or row.is_woken or row.blocked:
        return
    if last_control > row.seen_control:
        says = f"control {last_control} is unread, its worker has seen those up to {row.seen_control}; nothing wakes it"
        yield Disagreement("sleeps_with_mail", row.run_id, says)
    if not open_pauses and row.wake_at is None and not is_awaited:
        yield Disagreement("waits_for_nothing", row.run_id, f"it is {row.status}, and nothing would ever move it")


def _is_awaited(row: RunRow, runs: Mapping[str, RunRow], groups: Mapping[tuple[Identity, str], GroupRow]) -> bool:
    """Whether the run waits for something that is still to end."""
    target = runs.get(row.awaits)
    if target is not None:
        return not target.status.is_final
    group = groups.get((row.who, row.awaits))
    return group is not None and not group.status.is_final


def _families(rows: Sequence[RunRow]) -> Iterator[Disagreement]:
    """Deleted children still count, so a row may count more than there are, never fewer."""
    children = Counter(row.parent for row in rows if row.parent)
    below = Counter(row.root for row in rows if row.root)
    keys = Counter((row.who, row.key) for row in rows if row.key)
    for row in rows:
        if children[row.run_id] > row.children:
            says = f"its row counts {row.children} children, there are {children[row.run_id]}"
            yield Disagreement("children_count", row.run_id, says)
        if below[row.run_id] > row.tree:
            says = f"its row counts {row.tree} runs below it, there are {below[row.run_id]}"
            yield Disagreement("tree_count", row.run_id, says)
        if row.key and keys[row.who, row.key] > 1:
            yield Disagreement("key_twice", row.run_id, f"another run of its session has the key {row.key}, too")


# ── Pauses and groups ───────────────────────────────────────────────────────────────────────────────────────────────


def _pauses(pauses: Sequence[PauseRow], runs: Mapping[str, RunRow]) -> Iterator[Disagreement]:
    for pause in pauses:
        yield from check_pause(pause, is_known=not pause.run_id or pause.run_id in runs)


def check_pause(pause: PauseRow, *, is_known: bool) -> Iterator[Disagreement]:
    """What of a pause does not agree; `is_known` says that its run, if it names one, is there."""
    is_open = pause.status is PauseStatus.OPEN
    if is_open == (pause.settled_at is not None):
        says = f"it is {pause.status}, and was settled at {pause.settled_at}"
        yield Disagreement("pause_settled", pause.token, says)
    if is_open and not is_known:
        yield Disagreement("pause_of_nobody", pause.token, f"there is no run {pause.run_id} to be answered")


def _groups(groups: Sequence[GroupRow], rows: Sequence[RunRow]) -> Iterator[Disagreement]:
    members: defaultdict[tuple[Identity, str], list[RunRow]] = defaultdict(list)
    for row in rows:
        if row.group:
            members[row.who, row.group].append(row)
    for group in groups:
        mine = members.pop((group.who, group.group_id), [])
        live = sum(not row.status.is_final for row in mine)
        if group.open_members != live:
            says = f"its row counts {group.open_members} live members, there are {live}"
            yield Disagreement("group_live", group.group_id, says)
        if group.members < len(mine):
            says = f"its row counts {group.members} members, there are {len(mine)}"
            yield Disagreement("group_members", group.group_id, says)
    for (_, group_id), mine in members.items():
        yield Disagreement("group_missing", group_id, f"run {mine[0].run_id} is a member of a group that is not there")


# ── Events ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _sessions(
    sessions: Sequence[SessionRow], rows: Sequence[RunRow], events: Sequence[EventRow]
) -> Iterator[Disagreement]:
    logs: defaultdict[Identity, list[EventRow]] = defaultdict(list)
    for event in sorted(events, key=lambda one: one.sequence):
        logs[event.who].append(event)
        if event.sequence % EVENT_STEP:
            yield Disagreement("event_step", event.run_id, f"sequence {event.sequence} is between two stored events")
        if event.is_damaged:
            yield Disagreement("event_damaged", event.run_id, f"the event of sequence {event.sequence} cannot be read")
    for sequence, times in Counter(event.sequence for event in events).items():
        if times > 1:
            yield Disagreement("event_twice", str(sequence), f"{times} events have the sequence {sequence}")
    known = {session.who for session in sessions}
    for who in {row.who: None for row in rows if row.who not in known}:
        yield Disagreement("session_missing", who.session_id, "a run belongs to a session that is not there")
    for session in sessions:
        yield from _log(session, logs.pop(session.who, []))
    for who in logs:
        yield Disagreement("session_missing", who.session_id, "events belong to a session that is not there")


def _log(session: SessionRow, events: Sequence[EventRow]) -> Iterator[Disagreement]:
    """Places follow the sequence without a gap, from 1 to what the session counts."""
    yield from check_places(session, [event.place for event in events])


def check_places(session: SessionRow, places: Sequence[int]) -> Iterator[Disagreement]:
    """What of a session's count of events does not agree with their places, in the order of their sequence."""
    name = session.who.session_id
    for before, place in pairwise((0, *places)):
        if place > before + 1:
            yield Disagreement("event_gap", name, f"events {before + 1} to {place - 1} are gone")
        elif place != before + 1:
            yield Disagreement("event_gap", name, f"event {place} follows event {before}")
    last = places[-1] if places else 0
    if last != session.events:
        yield Disagreement("event_count", name, f"its row counts {session.events} events, the last one is {last}")


# ── Reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def disagreements(store: Store, *, consumed: Consumed | None = None) -> list[Disagreement]:
    """What does not agree in a store that others may be changing: only what two looks, one after the other, find."""

    async def look() -> list[Disagreement]:
        return check(await read(store), consumed=consumed)

    return await twice(look)


async def twice(look: Callable[[], Awaitable[list[Disagreement]]]) -> list[Disagreement]:
    """What two looks, one after the other, find both: what only one finds was being changed meanwhile."""
    first = await look()
    if not first:
        return []
    second = {*await look()}
    return [one for one in first if one in second]


async def read(store: Store) -> Shown:
    """All rows of a store. It is not one moment of it where others write meanwhile."""
    runs = await _all(store.runs, RunQuery(limit=_PAGE, oldest_first=True))
    journals: dict[str, Sequence[bytes] | EntryDamagedError] = {}
    for row in runs:
        try:
            journals[row.run_id] = await store.entries(row.run_id)
        except EntryDamagedError as error:
            journals[row.run_id] = error
    return Shown(
        runs=runs,
        journals=journals,
        controls={row.run_id: await store.controls(row.run_id, limit=1 << 30) for row in runs},
        pauses=await _all(store.pauses, PauseQuery(limit=_PAGE)),
        groups=await _all(store.groups, GroupQuery(limit=_PAGE)),
        sessions=await _all(store.sessions, SessionQuery(limit=_PAGE, include_closed=True)),
        events=await _events(store),
    )


async def _all(ask: Callable[[Q], Awaitable[Page[T]]], query: Q) -> list[T]:
    found: list[T] = []
    while True:
        page = await ask(query)
        found += page.rows
        if page.cursor is None:
            return found
        more: Any = replace(query, after=page.cursor)
        query = more


async def _events(store: Store) -> list[EventRow]:
    found: list[EventRow] = []
    while page := await store.events(EventQuery(after=found[-1].sequence if found else 0, limit=_PAGE)):
        found += page
    return found
