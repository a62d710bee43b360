"""How one change becomes true: persist, publish, then visible, and none of it in halves.

The record is saved first, because an event cannot be taken back but a record can; the event goes out second; only
then is the change applied in memory, where readers see it and waiters wake. When saving or publishing fails the record
is put back as it was, memory has not moved, and the failure reaches the caller. A record that another process has
written meanwhile is not touched.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from harborage.concurrency import Crew, together
from harborage.ids import new_id
from harborage.state import IdempotencyConflictError, StateStore
from harborage.tasks.errors import StaleChangeError

if TYPE_CHECKING:
    from harborage.events import Event, EventBus
    from harborage.tasks.records import Write

__all__ = ["Writer", "to_the_end"]

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Writer:
    """Carries changes out. Holds no state of its own; the callers see to it that a session changes once at a time.

    `id` tells its writes from those of other processes.
    """

    __slots__ = ("_bus", "_store", "id")

    def __init__(self, bus: EventBus, store: StateStore | None) -> None:
        self.id = new_id()
        self._bus = bus
        self._store = store

    async def commit(
        self,
        event: Event | None,
        apply: Callable[[], object],
        write: Callable[[], Write] | None = None,
        *,
        beside: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """Make one change true. `write` is only called when there is a store; `apply` must not fail.

        `beside` is what else the store must take before the event goes out; it does no harm without the change.

        Raises: whatever the store or the bus raised; the change has not happened.
            StaleChangeError: another process wrote the record first.
        """
        if self._store is not None and write is not None:
            await self._write_through(self._store, event, write(), beside)
        elif event is not None:
            await self._bus.publish(event)
        apply()

    async def publish(self, event: Event) -> None:
        """Publish an event whose change is true already."""
        await self._bus.publish(event)

    async def _write_through(
        self, store: StateStore, event: Event | None, write: Write, beside: Callable[[], Awaitable[object]] | None
    ) -> None:
        try:
            if beside is None:
                await store.save(write.record)
            else:
                await together(store.save(write.record), beside())
            if event is not None:
                await self._bus.publish(event)
        except IdempotencyConflictError as error:
            raise StaleChangeError(write.record.identity.run_id) from error
        except BaseException as error:
            # A save that was cut short may have arrived all the same, so the slot is put back in every case.
            await _put_back(store, write, error)
            raise


async def _put_back(store: StateStore, write: Write, cause: BaseException) -> None:
    record = write.record
    try:
        if write.prior is None:
            await store.delete(record.identity, record.kind)
        else:
            await store.save(write.prior)
    except IdempotencyConflictError:
        # The prior record is there still, but for the tool calls counted since: nothing of the change had arrived.
        return
    except Exception as error:  # noqa: BLE001 - told with the failure that is already on its way
        note = f"the {record.kind} record of {record.identity.run_id!r} may be ahead of the registry: {error}"
        cause.add_note(note)
        _log.warning(note, extra={"action": "tasks.put_back"})


async def to_the_end(crew: Crew, work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns. A caller that is cancelled meanwhile is held until the work is done, and cancelled then.

    For work that would leave half a change behind if it were cut short. Never: swallows the cancellation.
    """
    task: asyncio.Task[T] = crew.start(work, "tasks.change")
    interrupted: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            interrupted = error
    if interrupted is not None:
        raise interrupted from (None if task.cancelled() else task.exception())
    return task.result()
