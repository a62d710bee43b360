"""What a worker looks for while its runs are executed: controls that were sent to them, and when to look again."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from harborage.runtime.durable.lease import CONTROLS_PAGE
from harborage.store.times import moment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harborage.clock import Timers
    from harborage.runtime.durable.lease import LeasedRun
    from harborage.store import Queue, Store

SHORTEST_S: Final = 0.05
"""The shortest time between two looks that nothing has asked for."""


class Delivery:
    """Hands what was sent, by any process, to the runs that this worker carries."""

    def __init__(self, store: Store, worker: str, carried: Mapping[str, LeasedRun]) -> None:
        self._store = store
        self._worker = worker
        self._carried = carried
        self._looking = asyncio.Lock()
        self._looks = self._looked = 0

    async def look(self) -> None:
        """Hand over what was sent by now; one look serves all who ask for it meanwhile.

        Raises:
            HarborageError: the store refused.
        """
        wanted = self._looks + 1
        async with self._looking:
            if self._looked >= wanted or not self._carried:
                return  # a look that began since has found it
            self._looks = number = self._looks + 1
            unread = await self._store.unread(self._worker)
            behind = {
                run_id: run
                for run_id, last in unread.items()
                if (run := self._carried.get(run_id)) is not None and last > run.delivered
            }
            if behind:
                await self._hand_over(behind)
            self._looked = number

    async def _hand_over(self, behind: Mapping[str, LeasedRun]) -> None:
        """Give these runs what they have not got, however many they are by one read; long inboxes by more."""
        after = {run_id: run.delivered for run_id, run in behind.items()}
        sent = await self._store.controls_of(after, limit=CONTROLS_PAGE)
        for control in sent:
            behind[control.run_id].admit(control)
        for run_id, count in Counter(control.run_id for control in sent).items():
            if count == CONTROLS_PAGE:
                await behind[run_id].fetch(self._store)


class NextLook:
    """When a worker looks again: at a change, when a run that waits is due, and every `recheck_s` seconds at least.

    That look is due in any case: a process may die between a commit and the notice of it, so that nobody is told.
    """

    def __init__(self, queue: Queue, clock: Timers, *, agent: str, recheck_s: float) -> None:
        self._queue = queue
        self._clock = clock
        self._agent = agent
        self._recheck_s = recheck_s
        self._was_due = False
        self.changed = asyncio.Event()

    async def wait(self, *, at_most_s: float | None) -> None:
        """Wait until it is time; `at_most_s` is for a worker that has runs, or callers who wait for some.

        Raises:
            HarborageError: the store refused.
        """
        if self.changed.is_set():
            return
        delay_s = self._recheck_s if at_most_s is None else min(self._recheck_s, at_most_s)
        due = await self._queue.next_due(agent=self._agent)
        left_s = delay_s if due is None else (moment(due) - self._clock.now()).total_seconds()
        # At once only once: the store tells what is due by a clock of its own, which may be behind this one.
        self._was_due, was_due = left_s <= 0, self._was_due
        delay_s = min(delay_s, max(left_s, SHORTEST_S if was_due else 0.0))
        timer = self._clock.call_later(delay_s, self.changed.set)
        try:
            await self.changed.wait()
        finally:
            timer.cancel()
