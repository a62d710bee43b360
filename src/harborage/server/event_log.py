"""The events behind a cursor: read from the store of record, or from what a bus in memory retains.

Numbers are those of the wire. A stored event has the number of the store, which grows over the installation in steps of
`EVENT_STEP`; an event of a bus without a store has that bus's own number, in the same steps.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from harborage.errors import error_reason
from harborage.events import (
    BusClosedError,
    Cursor,
    CursorTooOldError,
    Event,
    EventCorruptError,
    EventType,
    Filter,
    RecordBus,
    RedactedMap,
    ReplayUnavailableError,
    TaskSpawnedPayload,
    typed_event,
)
from harborage.events.event import StoredPayload
from harborage.events.rows import decode_for_wire
from harborage.store import EVENT_STEP, EventQuery, RunQuery

if TYPE_CHECKING:
    from harborage.events import EventBus
    from harborage.identity import Identity
    from harborage.store import EventRow, Views

PAGE: Final = 256
"""How many events are read at once."""

_NOT_STORED: Final = frozenset(
    {
        EventType.LLM_COMPLETION_CHUNK,
        EventType.TOOL_PROGRESS,
        EventType.BUS_DROPPED,
        EventType.BUS_SUBSCRIPTION_IDLE_CLOSED,
    }
)
_NO_REPLAY: Final = "replay not configured on this driver"
_TOO_OLD: Final = "reconnect cursor older than the retained window"
_CANNOT: Final = "driver does not support replay"
_FAILED: Final = "replay failed"
_log = logging.getLogger(__name__)


class Logged(msgspec.Struct, frozen=True, gc=False):
    """An event of the log with its number. `lost` counts the events from number `first` on that cannot be read.

    `event` is None where all that is known of the lost ones is their numbers; one that cannot be read has no payload.
    """

    number: int
    event: Event | None
    first: int = 0
    lost: int = 0


class Page(msgspec.Struct, frozen=True):
    """Events in the order of their numbers; `is_last` says that the log had no more when it was read."""

    events: Sequence[Logged]
    is_last: bool


class Start(msgspec.Struct, frozen=True):
    """Where a stream begins: the newest number, and why a replay behind its cursor is impossible, "" if it is not."""

    newest: int
    gap: str = ""


class Wanted:
    """Which events a stream sends: those of these types, and of one run, with or without its descendants.

    No types are all of them, no run is every run. An event of a task may name its run in the payload alone. `note`
    learns from every event of the session which runs descend from it; `load` reads those that are known already.
    """

    def __init__(self, types: tuple[str, ...] = (), run: str = "", *, children: bool = False) -> None:
        self.types = types
        self.run = run
        self.children = children and bool(run)
        self._types = frozenset((*types, EventType.BUS_DROPPED)) if types else None
        self._family = {run} if run else None
        self._is_loaded = not self.children

    def __call__(self, event: Event) -> bool:
        """Return whether the stream sends the event; before the descendants are loaded, of any run."""
        if self._types is not None and event.type not in self._types:
            return False
        return self._family is None or not self._is_loaded or self._is_of(event, self._family)

    @staticmethod
    def _is_of(event: Event, family: set[str]) -> bool:
        return event.identity.run_id in family or (event.type.startswith("task.") and _task_id(event) in family)

    def note(self, event: Event) -> None:
        """Learn of a run that one of the family has spawned."""
        if self._family is None or not self.children or event.type != EventType.TASK_SPAWNED:
            return
        spawned = _spawned(event)
        if spawned is not None and spawned.parent_task_id in self._family:
            self._family.add(spawned.task_id)

    async def load(self, store: Views, who: Identity) -> None:
        """Read the descendants that the run has by now.

        Raises:
            HarborageError: the store cannot be read.
        """
        if self._is_loaded or self._family is None:
            return
        level = list(self._family)
        while level:
            below = RunQuery(
                tenant=who.tenant_id, user=who.user_id, session=who.session_id, parents=tuple(level), limit=PAGE
            )
            found: list[str] = []
            while True:
                page = await store.runs(below)
                found += [row.run_id for row in page.rows]
                if page.cursor is None:
                    break
                below = msgspec.structs.replace(below, after=page.cursor)
            level = [run_id for run_id in found if run_id not in self._family]
            self._family.update(level)
        self._is_loaded = True


def _spawned(event: Event) -> TaskSpawnedPayload | None:
    payload = event.payload
    if isinstance(payload, StoredPayload):
        try:
            return msgspec.json.decode(payload.raw, type=TaskSpawnedPayload)
        except msgspec.DecodeError:
            return None
    typed = typed_event(event).payload
    return typed if isinstance(typed, TaskSpawnedPayload) else None


class _OfTask(msgspec.Struct, frozen=True, rename={"task_id": "TaskID"}):
    task_id: str = ""


def _task_id(event: Event) -> str:
    payload = event.payload
    if isinstance(payload, StoredPayload):
        try:
            return msgspec.json.decode(payload.raw, type=_OfTask).task_id
        except msgspec.DecodeError:
            return ""
    if isinstance(payload, RedactedMap):  # read from the store on its way to the subscribers
        return str(payload.data.get("TaskID", ""))
    return str(getattr(payload, "task_id", ""))


class EventLog(Protocol):
    """What a stream reads that it did not get live."""

    def number_of(self, event: Event) -> int:
        """Return the number of a live event; 0 for one that is in no log."""
        ...

    async def start(self, cursor: int | None) -> Start:
        """Return where a stream begins that its subscription precedes; `cursor` is the number that its reader has.

        Raises:
            HarborageError: the store cannot be read now.
        """
        ...

    async def read(self, after: int, upto: int) -> Page:
        """Return the next events behind the number `after`; the log once had one with the number `upto`.

        Raises:
            HarborageError: the store cannot be read now.
        """
        ...


def open_log(bus: EventBus, filter: Filter, wanted: Wanted) -> EventLog:
    """Return the log of a bus, for the subscription of this filter; `wanted` leaves out what its stream does not send.

    An event that says who belongs to the family of a run is never left out.
    """
    return StoredLog(bus, filter, wanted) if isinstance(bus, RecordBus) else RetainedLog(bus, filter)


class StoredLog:
    """The events of a store of record, those of other processes included."""

    def __init__(self, bus: RecordBus, filter: Filter, wanted: Wanted) -> None:
        self._bus = bus
        self._filter = filter
        types = wanted.types
        if types and wanted.children:
            types = (*types, EventType.TASK_SPAWNED)
        # An admin's filter names a session, too: that of the reader, which narrows nothing.
        mine = Filter() if filter.admin else filter
        self._all = EventQuery(tenant=mine.tenant, user=mine.user, session=mine.session)
        self._query = msgspec.structs.replace(self._all, types=types, limit=PAGE)

    def number_of(self, event: Event) -> int:
        return event.store_sequence

    async def start(self, cursor: int | None) -> Start:
        await self._bus.follow(self._filter)
        newest = await self._bus.store.events(msgspec.structs.replace(self._all, newest_first=True, limit=1))
        return Start(newest[0].sequence if newest else 0)

    async def read(self, after: int, upto: int) -> Page:
        rows = await self._bus.store.events(msgspec.structs.replace(self._query, after=after))
        return Page([_logged(row) for row in rows], len(rows) < PAGE)


def _logged(row: EventRow) -> Logged:
    try:
        return Logged(row.sequence, decode_for_wire(row))
    except EventCorruptError:
        return Logged(row.sequence, Event(row.type, row.who.with_run(row.run_id), None), row.sequence, 1)


class RetainedLog:
    """The events that a bus without a store still has in memory."""

    def __init__(self, bus: EventBus, filter: Filter) -> None:
        self._bus = bus
        self._filter = filter

    def number_of(self, event: Event) -> int:
        return 0 if event.type in _NOT_STORED else event.sequence * EVENT_STEP

    async def start(self, cursor: int | None) -> Start:
        gap = ""
        if cursor is not None:
            try:
                await self._bus.replay(Cursor(self._filter.session, cursor // EVENT_STEP), self._filter)
            except ReplayUnavailableError:
                gap = _NO_REPLAY
            except CursorTooOldError:
                gap = _TOO_OLD
            except NotImplementedError:
                gap = _CANNOT
            except BusClosedError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever a bus of others raises, the stream goes on live
                _log.warning("events: a bus could not replay: %s", error_reason(error))
                gap = _FAILED
        return Start(self._bus.last_sequence(self._filter.identity) * EVENT_STEP, gap)

    async def read(self, after: int, upto: int) -> Page:
        place, lost = after // EVENT_STEP, []
        try:
            found = await self._bus.replay(Cursor(self._filter.session, place), self._filter)
        except CursorTooOldError as error:
            last = error.oldest - 1
            lost = [Logged(last * EVENT_STEP, None, (place + 1) * EVENT_STEP, last - place)]
            found = await self._bus.replay(Cursor(self._filter.session, last), self._filter)
        except ReplayUnavailableError:
            return Page([Logged(upto, None, (place + 1) * EVENT_STEP, upto // EVENT_STEP - place)], True)
        page = [Logged(event.sequence * EVENT_STEP, event) for event in found[:PAGE] if event.type not in _NOT_STORED]
        if not page and len(found) > PAGE:
            page = [Logged(found[PAGE - 1].sequence * EVENT_STEP, None)]
        return Page([*lost, *page], len(found) <= PAGE)
