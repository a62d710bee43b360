"""What an open runtime does beside carrying runs: hear what other processes did, and end what nobody else would.

It works on what is kept, whoever's it is. What goes wrong is logged and tried again the next time; no run is held up.
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
    from harborage.runtime.durable.orphans import Places
    from harborage.runtime.durable.pauses.coordinator import Coordinator
    from harborage.sessions import SessionRegistry
    from harborage.store import Queue

_BREATH_S = 0.05


class Upkeep:
    """The upkeep of one runtime.

    `places` is what several processes share, None where everything ends with this one; then only `pauses` are looked
    at. `hears` are asked to look for what others did.
    """

    def __init__(
        self,
        pauses: Coordinator,
        sessions: SessionRegistry,
        *,
        places: Places | None = None,
        hears: Sequence[Callable[[], Awaitable[None]]] = (),
        interval: timedelta,
        clock: Timers,
        logger: logging.Logger,
    ) -> None:
        self._pauses = pauses
        self._sessions = sessions
        self._places = places
        self._hears = hears
        self._interval_s = interval.total_seconds()
        self._clock = clock
        self._logger = logger

    async def serve(self) -> None:
        """Do what is due now, and again every interval, until cancelled."""
        await self._try(self._sweep, "sessions")
        while True:
            await self._try(self._settle, "what waits")
            await sleep(self._clock, self._interval_s)

    async def hear(self, queue: Queue) -> None:
        """Look for what other processes did whenever something has changed, until cancelled."""
        changed = asyncio.Event()
        unlisten = queue.on_change(changed.set)
        try:
            while True:
                await changed.wait()
                changed.clear()
                for look in self._hears:
                    await self._try(look, "what other processes did")
                await sleep(self._clock, _BREATH_S)  # a burst of changes is one reason to look
        finally:
            unlisten()

    async def _settle(self) -> None:
        if self._places is None:
            await self._pauses.expire_due()
            return
        from harborage.runtime.durable.orphans import settle  # loaded where there is a storage

        for one in await settle(self._places):
            wait = one.wait
            self._logger.info("%s %s: %s; %s", wait.kind, wait.id, wait.orphan or "it was overdue", one.done)

    async def _sweep(self) -> None:
        error = (await self._sessions.sweep()).error
        if error is not None:
            raise error

    async def _try(self, work: Callable[[], Awaitable[None]], what: str) -> None:
        try:
            await work()
        except (HarborageError, OSError, TimeoutError) as error:
            self._logger.warning("upkeep, %s: %s", what, error_reason(error))
