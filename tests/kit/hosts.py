"""Engines over one storage, as the suite of hosts opens them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from harborage.runtime.durable.stored import StoredEngine
from harborage.runtime.pauses import Coordinator

if TYPE_CHECKING:
    from harborage.runtime.durable.engine import Engine
    from harborage.state.storage import Storage
    from harborage.testing.clock import FakeClock
    from tests.kit.conformance.host_death import Death


class StoredHosts:
    """Engines over one storage; each is another worker."""

    keeps_queued_controls = True

    def __init__(self, storage: Storage, clock: FakeClock, linger: timedelta = timedelta(0)) -> None:
        self._storage = storage
        self._clock = clock
        self._linger = linger
        self._opened: list[StoredEngine] = []
        self.pauses = Coordinator(store=storage.store, clock=clock)

    def now(self) -> datetime:
        return self._clock.now()

    async def open(self, death: Death | None = None) -> Engine:
        store = self._storage.store if death is None else death.of(self._storage.store)
        self._opened.append(StoredEngine(store, self.pauses, clock=self._clock, linger=self._linger))
        return self._opened[-1]

    async def pass_time(self, seconds: float) -> None:
        await self._clock.run_for(seconds)

    async def aclose(self) -> None:
        for engine in self._opened:
            await engine.aclose()
        await self._storage.aclose()
