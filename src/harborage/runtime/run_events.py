"""The events of one run as one stream: those that the bus has retained, then live ones, without a gap, to its end.

A reader subscribes to the whole session of the run, because the tasks that it spawns have runs of their own. Events
that the subscription dropped are read again from the bus; a notice replaces those that cannot be read again. The
stream ends with the run even if its last event never comes.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from harborage.concurrency import Crew
from harborage.errors import error_reason
from harborage.events import (
    BusClosedError,
    BusDroppedPayload,
    Cursor,
    CursorTooOldError,
    Event,
    EventBus,
    EventType,
    Filter,
    Subscription,
    TaskSpawnedPayload,
    typed_event,
)
from harborage.runtime.durable.engine import Engine, EngineClosedError, RunFailedError, RunNotFoundError
from harborage.tasks import TaskFilter, TaskRegistry

if TYPE_CHECKING:
    from harborage.identity import Quadruple

_ENDS = frozenset({EventType.TASK_COMPLETED, EventType.TASK_FAILED, EventType.TASK_CANCELLED})
# What a bus numbers for one reader alone is replayed to all of them, but was never lost by another.
_TO_ONE_READER = frozenset({EventType.BUS_DROPPED, EventType.BUS_SUBSCRIPTION_IDLE_CLOSED})
_LATEST = 2**62
_log = logging.getLogger(__name__)


class RunEvents:
    """One reader of one run; `since` is a sequence number below all events of the run. Read it once.

    Retained events are yielded from the sequence number after `after` on. The tasks that the run has spawned are known
    from its events; if the bus has dropped some of those, they are read from `tasks`. A `subscription` to the session
    that was opened before anything that is to be read happened has all of it, pieces of answers too, which no bus
    retains; the reader ends it.
    """

    def __init__(
        self,
        who: Quadruple,
        engine: Engine,
        bus: EventBus,
        tasks: TaskRegistry | None = None,
        *,
        since: int = 0,
        after: int = 0,
        children: bool = True,
        subscription: Subscription | None = None,
    ) -> None:
        self._who = who
        self._id = who.run_id
        self._session = Filter.of(who.identity)
        self._engine = engine
        self._bus = bus
        self._tasks = tasks
        self._children = children
        self._opened = subscription
        self._tree = {who.run_id}
        # The sequence number of the last event of the session that was examined.
        self._last_seen = since
        self._after = after
        self._numbers: list[int] = []
        self._has_begun = False
        self._is_over = False
        self._failure: Exception | None = None

    async def stream(self) -> AsyncGenerator[Event, None]:
        """Yield the events in order.

        Raises:
            BusClosedError, SubscriberLimitReachedError, ReplayUnavailableError: the bus cannot be read.
            DatabaseError: the status of the run could not be read.
        """
        subscription, has_all = self._opened or self._bus.subscribe(self._session), self._opened is not None
        while True:
            crew = Crew(lambda name, error: _log.error("%s: %s", name, error_reason(error)))
            try:
                # Checked before the replay: the last event of a run that is over is in it, or is no longer retained.
                if not has_all:
                    await self._check_over()
                for event in () if has_all else await self._read_retained():
                    # Earlier events were read only for the tasks that they spawned.
                    if event.sequence > self._after:
                        yield event
                    if self._is_end(event):
                        return
                if self._is_over:
                    break
                has_all = False
                crew.start(self._end_with_run(subscription), f"events of {self._id}")
                async for received in subscription:
                    for event in await self._accept(received):
                        yield event
                        if self._is_end(event):
                            return
            finally:
                subscription.cancel()
                await crew.aclose()
            # The run is over, or the bus ended the subscription of an idle reader: continue after its last event.
            try:
                subscription = self._bus.subscribe(self._session)
            except BusClosedError:
                break
        if self._failure is not None:
            raise self._failure

    async def _check_over(self) -> None:
        if self._is_over:
            return
        try:
            status = await self._engine.status(self._id)
        except RunNotFoundError:
            self._is_over = True
        else:
            self._is_over = status.phase.is_final

    async def _end_with_run(self, subscription: Subscription) -> None:
        """End the subscription once the run is over and the events until then have been delivered."""
        try:
            await self._engine.result(self._id)
        except (RunFailedError, RunNotFoundError, EngineClosedError):
            pass
        except Exception as error:  # noqa: BLE001 - raised to the reader at the end of the stream
            self._failure = error
        self._is_over = True
        try:
            # A replay waits for events that are being published; no event has a number above this one.
            await self._bus.replay(Cursor(self._session.session, _LATEST), self._session)
        except BusClosedError:
            pass
        finally:
            subscription.cancel()

    async def _read_retained(self) -> list[Event]:
        """Return the retained events of the stream that were not examined yet, after a notice if some are missing."""
        before = self._last_seen
        found, is_whole = await self._replay()
        is_missing = not is_whole or not (self._has_begun or any(_is_spawn_of(event, self._id) for event in found))
        if is_missing:
            await self._load_tree()
        events = self._select(found)
        self._numbers = [event.sequence for event in found if _is_for_all(event)]
        self._has_begun = True
        if not is_missing or not found:
            return events
        first = (events or found)[0]
        count = first.sequence - 1 - before
        return [_notice(first, BusDroppedPayload(before + 1, first.sequence - 1, count, 0)), *events]

    async def _accept(self, received: Event) -> list[Event]:
        """Return the events of the stream that one event of the subscription leads to."""
        event = typed_event(received)
        if isinstance(event.payload, BusDroppedPayload):
            return await self._recover(event, event.payload)
        # An event without a sequence number is not stored, so it was in no replay.
        if event.sequence and event.sequence <= self._last_seen:
            return []
        return self._select([event])

    async def _recover(self, notice: Event, lost: BusDroppedPayload) -> list[Event]:
        """Return the dropped events, read again; after a notice if some cannot be read again."""
        within: list[Event] = []
        if lost.to_seq > self._last_seen:
            found, _ = await self._replay()
            within = [event for event in found if event.sequence <= lost.to_seq]
        count = lost.dropped_count - self._count_replayed(lost) - sum(map(_is_for_all, within))
        if count > 0:
            await self._load_tree()
        events = self._select(within)
        self._last_seen = max(self._last_seen, lost.to_seq)
        if count <= 0:
            return events
        payload = BusDroppedPayload(lost.from_seq, lost.to_seq, count, lost.subscriber_id)
        if within:
            return [_notice(within[0], payload), *events]
        return [replace(notice, payload=payload)]

    def _count_replayed(self, lost: BusDroppedPayload) -> int:
        """Return how many of the dropped events had been replayed when the subscription began."""
        numbers = self._numbers
        return max(0, bisect_right(numbers, lost.to_seq) - bisect_left(numbers, lost.from_seq))

    async def _replay(self) -> tuple[list[Event], bool]:
        """Return the retained events after the last examined one, and whether they are complete."""
        session = self._session.session
        try:
            found, is_whole = await self._bus.replay(Cursor(session, self._last_seen), self._session), True
        except CursorTooOldError:
            found, is_whole = await self._bus.replay(Cursor(session, 0), self._session), False
        return [typed_event(event) for event in found if event.sequence > self._last_seen], is_whole

    async def _load_tree(self) -> None:
        """Read which tasks belong to the run from the registry, because an event of their start may be missing."""
        left = [self._id] if self._tasks is not None and self._children else []
        while left and self._tasks is not None:
            found = await self._tasks.list(self._who.identity, TaskFilter(parent=left.pop()))
            left += [task.id for task in found]
            self._tree.update(task.id for task in found)

    def _select(self, events: list[Event]) -> list[Event]:
        """Return the events that belong to the stream; all of them count as examined."""
        if events and events[-1].sequence:
            self._last_seen = events[-1].sequence
        return [event for event in events if self._belongs(event)]

    def _belongs(self, event: Event) -> bool:
        """Return whether the event is about a run of the tree; a spawn by one of them adds to the tree."""
        payload = event.payload
        if self._children and isinstance(payload, TaskSpawnedPayload) and payload.parent_task_id in self._tree:
            self._tree.add(payload.task_id)
        return event.identity.run_id in self._tree or getattr(payload, "task_id", "") in self._tree

    def _is_end(self, event: Event) -> bool:
        return event.type in _ENDS and getattr(event.payload, "task_id", "") == self._id


def _is_for_all(event: Event) -> bool:
    return event.type not in _TO_ONE_READER


def _is_spawn_of(event: Event, run_id: str) -> bool:
    return isinstance(event.payload, TaskSpawnedPayload) and event.payload.task_id == run_id


def _notice(first: Event, payload: BusDroppedPayload) -> Event:
    """Return a notice with the sequence number right before `first`."""
    return Event(EventType.BUS_DROPPED, first.identity, payload, first.occurred_at, first.sequence - 1)
