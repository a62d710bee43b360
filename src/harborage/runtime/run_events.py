"""The events of one run as one stream: what the bus remembers, then what it tells, without a gap, to the run's end.

A reader subscribes to the whole session of the run, because the tasks that it spawns have runs of their own. What the
subscription lost is read again from the bus, and what cannot be read again is announced. The stream ends with the run
even when the event that says so never comes.
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
    """One reader of one run; `since` is a number that all events of the run are above. Read it once.

    What is remembered is given from behind the number `after` on. Which tasks the run has spawned is learned from the
    events; where the bus has forgotten some, `tasks` knows.
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
    ) -> None:
        self._who = who
        self._id = who.run_id
        self._session = Filter.of(who.identity)
        self._engine = engine
        self._bus = bus
        self._tasks = tasks
        self._children = children
        self._tree = {who.run_id}
        # The number of the last event of the session that was looked at.
        self._place = since
        self._after = after
        self._numbers: list[int] = []
        self._has_begun = False
        self._is_over = False
        self._failure: Exception | None = None

    async def stream(self) -> AsyncGenerator[Event, None]:
        """The events, in order.

        Raises:
            BusClosedError, SubscriberLimitReachedError, ReplayUnavailableError: the bus cannot be read.
            DatabaseError: whether the run has ended could not be found out.
        """
        subscription = self._bus.subscribe(self._session)
        while True:
            crew = Crew(lambda name, error: _log.error("%s: %s", name, error_reason(error)))
            try:
                # Asked before the replay: the last event of a run that is over is in it, or is forgotten.
                await self._look_whether_over()
                for event in await self._remembered():
                    # Those before it were looked at for the tasks that they spawned.
                    if event.sequence > self._after:
                        yield event
                    if self._is_end(event):
                        return
                if self._is_over:
                    break
                crew.start(self._end_with_run(subscription), f"events of {self._id}")
                async for told in subscription:
                    for event in await self._taken(told):
                        yield event
                        if self._is_end(event):
                            return
            finally:
                subscription.cancel()
                await crew.aclose()
            # The run is over, or the bus let go of a reader that did not read for long: go on from where it was.
            try:
                subscription = self._bus.subscribe(self._session)
            except BusClosedError:
                break
        if self._failure is not None:
            raise self._failure

    async def _look_whether_over(self) -> None:
        if self._is_over:
            return
        try:
            status = await self._engine.status(self._id)
        except RunNotFoundError:
            self._is_over = True
        else:
            self._is_over = status.phase.is_final

    async def _end_with_run(self, subscription: Subscription) -> None:
        """End the subscription once the run is over, and everything that was told until then has been handed out."""
        try:
            await self._engine.result(self._id)
        except (RunFailedError, RunNotFoundError, EngineClosedError):
            pass
        except Exception as error:  # noqa: BLE001 - raised to the reader at the end of the stream
            self._failure = error
        self._is_over = True
        try:
            # A replay waits for what is on its way; nothing is behind this number.
            await self._bus.replay(Cursor(self._session.session, _LATEST), self._session)
        except BusClosedError:
            pass
        finally:
            subscription.cancel()

    async def _remembered(self) -> list[Event]:
        """What the bus still knows that was not looked at yet."""
        before = self._place
        found, is_whole = await self._replayed()
        is_missing = not is_whole or not (self._has_begun or any(_is_spawn_of(event, self._id) for event in found))
        if is_missing:
            await self._ask_for_family()
        events = self._sifted(found)
        self._numbers = [event.sequence for event in found if _is_for_all(event)]
        self._has_begun = True
        if not is_missing or not found:
            return events
        first = (events or found)[0]
        count = first.sequence - 1 - before
        return [_notice(first, BusDroppedPayload(before + 1, first.sequence - 1, count, 0)), *events]

    async def _taken(self, told: Event) -> list[Event]:
        """What one event of the subscription comes to."""
        event = typed_event(told)
        if isinstance(event.payload, BusDroppedPayload):
            return await self._recovered(event, event.payload)
        # What has no number was told beside the record, so it was in no replay.
        if event.sequence and event.sequence <= self._place:
            return []
        return self._sifted([event])

    async def _recovered(self, notice: Event, lost: BusDroppedPayload) -> list[Event]:
        """What the subscription lost, read again; behind a notice when some of it cannot be."""
        within: list[Event] = []
        if lost.to_seq > self._place:
            found, _ = await self._replayed()
            within = [event for event in found if event.sequence <= lost.to_seq]
        count = lost.dropped_count - self._replayed_before(lost) - sum(map(_is_for_all, within))
        if count > 0:
            await self._ask_for_family()
        events = self._sifted(within)
        self._place = max(self._place, lost.to_seq)
        if count <= 0:
            return events
        payload = BusDroppedPayload(lost.from_seq, lost.to_seq, count, lost.subscriber_id)
        if within:
            return [_notice(within[0], payload), *events]
        return [replace(notice, payload=payload)]

    def _replayed_before(self, lost: BusDroppedPayload) -> int:
        """How many of the lost events had been replayed when the subscription began."""
        numbers = self._numbers
        return max(0, bisect_right(numbers, lost.to_seq) - bisect_left(numbers, lost.from_seq))

    async def _replayed(self) -> tuple[list[Event], bool]:
        """What the bus remembers behind the last event that was looked at, and whether nothing of it is forgotten."""
        session = self._session.session
        try:
            found, is_whole = await self._bus.replay(Cursor(session, self._place), self._session), True
        except CursorTooOldError:
            found, is_whole = await self._bus.replay(Cursor(session, 0), self._session), False
        return [typed_event(event) for event in found if event.sequence > self._place], is_whole

    async def _ask_for_family(self) -> None:
        """Learn which tasks belong to the run, now that an event that said so may be lost."""
        left = [self._id] if self._tasks is not None and self._children else []
        while left and self._tasks is not None:
            found = await self._tasks.list(self._who.identity, TaskFilter(parent=left.pop()))
            left += [task.id for task in found]
            self._tree.update(task.id for task in found)

    def _sifted(self, events: list[Event]) -> list[Event]:
        """Those of the events that belong to the stream, all of which have been looked at then."""
        if events and events[-1].sequence:
            self._place = events[-1].sequence
        return [event for event in events if self._belongs(event)]

    def _belongs(self, event: Event) -> bool:
        """Whether the event is about a run of the tree; a spawn below one of them grows the tree."""
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
    """A notice that stands right before `first`."""
    return Event(EventType.BUS_DROPPED, first.identity, payload, first.occurred_at, first.sequence - 1)
