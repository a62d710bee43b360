"""Storing events before they are delivered: one queue of events for each session, committed to the store in order.

An event that is delivered with a number is stored by then. The store gives the numbers, in the commit, because another
process may write in the same session. The events of a run that this worker executes come here after its commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from harborage.concurrency import CLOSE_GRACE_S, CancelScope, Crew, together
from harborage.errors import error_reason
from harborage.events.errors import BusBacklogError, BusClosedError, BusStalledError
from harborage.events.event import Event
from harborage.events.rows import set_numbers
from harborage.events.tail import Tail
from harborage.identity import Identity, Quadruple
from harborage.store import Commit, Committed

if TYPE_CHECKING:
    from harborage.clock import Timer, Timers
    from harborage.events.fanout import FanOut, SessionKey
    from harborage.store import NewEvent, Store

MAX_BATCH = 1_000
MAX_SESSIONS = 1_024
RETRY_S = 1.0

_log = logging.getLogger(__name__)


class _Item:
    """A queued event, or the mark of a caller that waits for the queue. Without `data` an event is not stored."""

    __slots__ = ("data", "event", "waiter")

    def __init__(self, event: Event | None, data: NewEvent | None, waiter: asyncio.Future[Event] | None) -> None:
        self.event = event
        self.data = data
        self.waiter = waiter

    def succeed(self, event: Event) -> None:
        """Give the waiting caller the event with its numbers."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(event)

    def fail(self, error: BaseException) -> None:
        """Raise `error` at the waiting caller."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_exception(error)


class _Callback(_Item):
    """Calls `then`, at once, when all events queued before it are delivered or refused."""

    __slots__ = ("_then",)

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__(None, None, None)
        self._then = then

    def succeed(self, event: Event) -> None:
        self._then()

    def fail(self, error: BaseException) -> None:
        self._then()


class _Queue:
    """The events of one session that wait for the store, and the tail that delivers them.

    `failure` is why the store refused events of `publish_nowait`; `is_working` says that a task writes the queue.
    """

    __slots__ = ("failure", "is_working", "items", "tail", "who")

    def __init__(self, who: Identity, tail: Tail) -> None:
        self.who = who
        self.tail = tail
        self.items: deque[_Item] = deque()
        self.failure: Exception | None = None
        self.is_working = False


class EventWriter:
    """Stores events in `store`, then delivers them to `subscribers` with their numbers, those of a session in order.

    At most `max_backlog` events wait for the store.
    """

    def __init__(self, store: Store, clock: Timers, subscribers: FanOut, *, max_backlog: int) -> None:
        self._store = store
        self._clock = clock
        self._subscribers = subscribers
        self._max_backlog = max_backlog
        self._queues: dict[SessionKey, _Queue] = {}
        self._all_sessions = Tail(store, None, subscribers.deliver_to_admins, lambda: bool(subscribers.admins))
        self._backlog = 0
        self._retry: Timer | None = None
        self._is_last = False
        self._crew = Crew(self._crashed)

    def add(self, event: Event, data: NewEvent) -> None:
        """Store an event in the background; one that the store refuses is offered again until it takes it.

        Raises:
            BusStalledError: the store refuses earlier events of this session.
            BusBacklogError: too many events wait already.
        """
        queue = self._queue(event.identity)
        if queue.failure is not None:
            raise BusStalledError(queue.who.session_id) from queue.failure
        if self._backlog >= self._max_backlog:
            raise BusBacklogError(self._max_backlog)
        self._put(queue, _Item(event, data, None))

    def add_and_wait(self, event: Event, data: NewEvent) -> asyncio.Future[Event]:
        """Store an event; the future has it with its number, or the error of the store."""
        waiter: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        self._put(self._queue(event.identity), _Item(event, data, waiter))
        return waiter

    def deliver_committed(self, events: Sequence[Event], done: Committed) -> None:
        """Deliver events of one session that a commit has stored; if it gives no numbers, they are read first."""
        queue = self._queue(events[0].identity)
        self._subscribers.rate.add(len(events), self._clock.monotonic())
        if done.first:
            numbered = [set_numbers(event, done.place, done.first, index) for index, event in enumerate(events)]
            self._deliver(queue, numbered, holds=queue.is_working)
            return
        for one in (queue.tail, self._all_sessions):
            self._crew.start(self._read_on(one), "events.read")

    def deliver_unstored(self, event: Event) -> None:
        """Deliver an event that is not stored, after the queued events of its session."""
        queue = self._queues.get(_key(event.identity))
        if queue is None or not queue.items or queue.failure is not None or self._backlog >= self._max_backlog:
            self._subscribers.deliver(event)
        else:
            self._put(queue, _Item(event, None, None))

    def call_after_delivery(self, who: Identity, then: Callable[[], None]) -> None:
        """Call `then` once the queued events of the session are delivered or refused, and before later ones are."""
        queue = self._queues.get(_key(who))
        if queue is None or not queue.items or queue.failure is not None:
            then()
        else:
            self._put(queue, _Callback(then))

    async def wait_until_written(self, who: Identity) -> None:
        """Wait until the queued events of the session are stored or refused."""
        queue = self._queues.get(_key(who))
        if queue is None or not queue.items:
            return
        mark: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        self._put(queue, _Item(None, None, mark))
        try:
            await mark
        except Exception as error:  # noqa: BLE001 - logged
            # Their publishers get this error; the stored events can be read all the same.
            _log.warning("events: session %s: the store refuses its latest events: %s", who.session_id, error)

    async def start_following(self, who: Identity | None) -> None:
        """Deliver what other processes store in the session, or without `who` in any, from now on."""
        tail = self._all_sessions if who is None else self._queue(who).tail
        await tail.start()

    def last_sequence(self, who: Identity | Quadruple) -> int:
        """Return the highest known number of the session; 0 if none is known."""
        queue = self._queues.get(_key(who))
        return 0 if queue is None else queue.tail.last or 0

    async def catch_up(self) -> None:
        """Deliver what other processes have stored since the last look at the store."""
        tails = [self._queue(Identity(*key)).tail for key in self._subscribers.by_session]
        if self._subscribers.admins:
            tails.append(self._all_sessions)
        await together(*(tail.read_on() for tail in tails))

    async def aclose(self, seconds: float) -> None:
        """Offer all queued events to the store once more, for `seconds` at most; drop and log what it does not take."""
        self._is_last = True
        if self._retry is not None:
            self._retry.cancel()
        self._try_again()
        with CancelScope(self._clock, seconds) as waiting:
            await self._crew.join()
        left = [queue for queue in self._queues.values() if queue.items]
        if left:
            lost = {queue.who.session_id: len(queue.items) for queue in left}
            how = "refused events until the bus closed; they are lost"
            if waiting.was_cancelled:
                how = f"did not answer within {seconds:g} s; events may be lost"
            _log.error("events: %s %s, by session: %s", type(self._store).__name__, how, lost)
        for item in (item for queue in left for item in queue.items):
            item.fail(BusClosedError())
        self._queues.clear()
        held = await self._crew.aclose(clock=self._clock, grace_s=CLOSE_GRACE_S)
        if held:
            _log.error("events: %s ignores its cancellation and is left behind", type(self._store).__name__)

    def _queue(self, who: Identity | Quadruple) -> _Queue:
        key = _key(who)
        queue = self._queues.get(key)
        if queue is None:
            session = Identity(*key)
            subscribers = self._subscribers
            tail = Tail(self._store, session, subscribers.deliver_to_session, lambda: key in subscribers.by_session)
            queue = self._queues[key] = _Queue(session, tail)
        return queue

    def _put(self, queue: _Queue, item: _Item) -> None:
        if not queue.is_working:
            asyncio.get_running_loop()  # without one nothing could ever be stored
        queue.items.append(item)
        self._backlog += 1
        self._wake(queue)

    def _wake(self, queue: _Queue) -> None:
        if not queue.is_working:
            queue.is_working = True
            self._crew.start(self._work(queue), "events.write")

    async def _work(self, queue: _Queue) -> None:
        """Store and deliver queued events, batch by batch, until the queue is empty or the store refuses it."""
        try:
            while queue.items and await self._write(queue):
                pass
        finally:
            queue.is_working = False
            queue.tail.release()
            if not self._is_writing_beside(queue):
                self._all_sessions.release()
        self._drop_idle_queues()

    async def _write(self, queue: _Queue) -> bool:
        """Store the next events of a queue, and deliver them; return whether the next may be tried at once."""
        count = min(len(queue.items), MAX_BATCH)
        rows = [item.data for item in islice(queue.items, count) if item.data is not None]
        done = Committed()
        if rows:
            try:
                done = await self._store.commit(Commit(who=queue.who, events=tuple(rows)))
            except Exception as error:  # noqa: BLE001 - raised at waiting publishers, logged for the others
                return self._requeue(queue, count, error)
            if not queue.tail.is_next(done.place):
                await self._read_on(queue.tail, before=done.place)
        if queue.failure is not None:
            queue.failure = None
            _log.info("events: the store takes the events of session %s again", queue.who.session_id)
        self._deliver_items(queue, [queue.items.popleft() for _ in range(count)], done)
        return True

    def _deliver_items(self, queue: _Queue, items: Sequence[_Item], done: Committed) -> None:
        """Deliver the stored events of a batch, and in their order those that are not stored."""
        offset = 0
        self._backlog -= len(items)
        self._subscribers.rate.add(sum(item.data is not None for item in items), self._clock.monotonic())
        for item in items:
            event = item.event
            if event is None:
                item.succeed(_NO_EVENT)
                continue
            if item.data is None:
                self._subscribers.deliver(event)
            else:
                event = set_numbers(event, done.place, done.first, offset)
                offset += 1
                self._deliver(queue, [event])
            item.succeed(event)

    def _deliver(self, queue: _Queue, events: Sequence[Event], *, holds: bool = False) -> None:
        """Deliver stored events, or start the read of those that other processes stored before them.

        With `holds` events of the queue are being stored, whose numbers may be lower.
        """
        everything = self._all_sessions
        holds_all = everything.last is None and (holds or self._is_writing_beside(queue))
        for one, waits in ((queue.tail, holds), (everything, holds_all)):
            if not one.add(events, holds=waits):
                self._crew.start(self._read_on(one), "events.read")

    def _is_writing_beside(self, queue: _Queue) -> bool:
        return any(one.is_working for one in self._queues.values() if one is not queue)

    async def _read_on(self, tail: Tail, before: int | None = None) -> None:
        """Deliver what other processes stored; if the store cannot be read, subscribers wait for the next read."""
        try:
            await tail.read_on(before=before)
        except Exception as error:  # noqa: BLE001 - the next read finds what is missing
            _log.warning("events: cannot read yet what other processes stored: %s", error_reason(error))

    def _requeue(self, queue: _Queue, count: int, error: Exception) -> bool:
        """After a refused commit: raise `error` at the waiting publishers, and queue the other events again.

        Returns whether the next events may be tried at once.
        """
        tried = [queue.items.popleft() for _ in range(count)]
        owed = [item for item in tried if item.data is not None and item.waiter is None]
        for item in tried:
            item.fail(error)
            if item.event is not None and item.data is None:
                self._subscribers.deliver(item.event)
        self._backlog -= count - len(owed)
        queue.items.extendleft(reversed(owed))
        if owed and queue.failure is None:
            _log.error(
                "events: the store refused %d events of session %s; they are offered again: %s",
                len(owed),
                queue.who.session_id,
                error,
            )
        queue.failure = error if owed else None
        if not owed or any(item.waiter is not None for item in queue.items):
            return True
        if self._retry is None and not self._is_last:
            self._retry = self._clock.call_later(RETRY_S, self._try_again)
        return False

    def _try_again(self) -> None:
        self._retry = None
        for queue in self._queues.values():
            if queue.items:
                self._wake(queue)

    def _drop_idle_queues(self) -> None:
        """Forget the queues of sessions without events and subscribers; their last number is read again if needed."""
        if len(self._queues) <= MAX_SESSIONS:
            return
        followed = self._subscribers.by_session
        idle = [key for key, queue in self._queues.items() if not (queue.items or queue.is_working or key in followed)]
        for key in islice(idle, len(self._queues) - MAX_SESSIONS // 2):
            del self._queues[key]

    def _crashed(self, name: str, error: BaseException) -> None:
        _log.critical("events: %s ended: %s", name, error, exc_info=error)
        for queue in self._queues.values():
            for item in queue.items:
                item.fail(error)


_NO_EVENT = Event("", Identity("", "", "").with_run(""), None)


def _key(who: Identity | Quadruple) -> SessionKey:
    return (who.tenant_id, who.user_id, who.session_id)
