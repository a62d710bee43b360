"""The upkeep of an open runtime: it reads what other processes did, and ends overdue and orphaned work.

It works on everything in the storage, also on the work of other runtimes. A failure is logged and retried the next
time; it delays no run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from harborage.clock import Timers, sleep
from harborage.errors import HarborageError, error_reason

if TYPE_CHECKING:
    from harborage.runtime.durable.orphans import PendingSources
    from harborage.runtime.durable.pauses.coordinator import Coordinator
    from harborage.sessions import SessionRegistry
    from harborage.store import Queue

_REFRESH_DELAY_S = 0.05


class Upkeep:
    """The upkeep of one runtime.

    `sources` is what several processes share, None if everything ends with this one; then only overdue `pauses` are
    ended. `refreshes` are called to read what other processes did.
    """

    def __init__(
        self,
        pauses: Coordinator,
        sessions: SessionRegistry,
        *,
        sources: PendingSources | None = None,
        refreshes: Sequence[Callable[[], Awaitable[None]]] = (),
        interval: timedelta,
        clock: Timers,
        logger: logging.Logger,
    ) -> None:
        self._pauses = pauses
        self._sessions = sessions
        self._sources = sources
        self._refreshes = refreshes
        self._interval_s = interval.total_seconds()
        self._clock = clock
        self._logger = logger

    async def serve(self) -> None:
        """End what is overdue or orphaned now, and again every interval, until cancelled."""
        await self._try(self._sweep, "sessions")
        while True:
            await self._try(self._end_overdue, "overdue work")
            await sleep(self._clock, self._interval_s)

    async def refresh_on_change(self, queue: Queue) -> None:
        """Read what other processes did whenever the store has changed, until cancelled."""
        changed = asyncio.Event()
        unlisten = queue.on_change(changed.set)
        try:
            while True:
                await changed.wait()
                changed.clear()
                for refresh in self._refreshes:
                    await self._try(refresh, "changes of other processes")
                await sleep(self._clock, _REFRESH_DELAY_S)  # a burst of changes needs one read only
        finally:
            unlisten()

    async def _end_overdue(self) -> None:
        if self._sources is None:
            await self._pauses.expire_due()
            return
        from harborage.runtime.durable.orphans import end_orphaned_work  # loaded where there is a storage

        for one in await end_orphaned_work(self._sources):
            item = one.item
            self._logger.info("%s %s: %s; %s", item.kind, item.id, item.orphan or "it was overdue", one.done)

    async def _sweep(self) -> None:
        error = (await self._sessions.sweep()).error
        if error is not None:
            raise error

    async def _try(self, work: Callable[[], Awaitable[None]], what: str) -> None:
        try:
            await work()
        except (HarborageError, OSError, TimeoutError) as error:
            self._logger.warning("upkeep, %s: %s", what, error_reason(error))
