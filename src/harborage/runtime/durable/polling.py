"""How a worker polls its store: it delivers controls to the runs that it executes, and decides when to poll again."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from harborage.runtime.durable.leased_run import CONTROLS_PAGE
from harborage.store.times import moment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harborage.clock import Timers
    from harborage.runtime.durable.leased_run import LeasedRun
    from harborage.store import Queue, Store

MIN_POLL_S: Final = 0.05
"""The shortest time between two polls without a change in between, in seconds."""


class ControlDelivery:
    """Delivers the controls that any process sent to the runs that this worker executes."""

    def __init__(self, store: Store, worker: str, running: Mapping[str, LeasedRun]) -> None:
        self._store = store
        self._worker = worker
        self._running = running
        self._reading = asyncio.Lock()
        self._begun = self._done = 0

    async def deliver(self) -> None:
        """Deliver the controls that were sent by now; one read serves all callers that wait for it.

        Raises:
            HarborageError: the store refused.
        """
        wanted = self._begun + 1
        async with self._reading:
            if self._done >= wanted or not self._running:
                return  # a read that began after this call has delivered them
            self._begun = number = self._begun + 1
            unread = await self._store.unread(self._worker)
            behind = {
                run_id: run
                for run_id, last in unread.items()
                if (run := self._running.get(run_id)) is not None and last > run.delivered
            }
            if behind:
                await self._deliver_to(behind)
            self._done = number

    async def _deliver_to(self, behind: Mapping[str, LeasedRun]) -> None:
        """Deliver to these runs the controls that they lack: one read for all of them, more for long inboxes."""
        after = {run_id: run.delivered for run_id, run in behind.items()}
        sent = await self._store.controls_of(after, limit=CONTROLS_PAGE)
        for control in sent:
            behind[control.run_id].admit(control)
        for run_id, count in Counter(control.run_id for control in sent).items():
            if count == CONTROLS_PAGE:
                await behind[run_id].fetch(self._store)


class PollTimer:
    """Decides when a worker polls again: on a change, when a waiting run is due, at least every `recheck_s` seconds.

    The last is needed because a process may die between a commit and the notification of it.
    """

    def __init__(self, queue: Queue, clock: Timers, *, agents: Sequence[str], recheck_s: float) -> None:
        self._queue = queue
        self._clock = clock
        self._agents = agents
        self._recheck_s = recheck_s
        self._due: int | None = None
        self._is_known = self._was_due = False
        self._is_unsure = True
        self.changed = asyncio.Event()

    async def may_claim(self) -> bool:
        """Return whether a claim may bring runs: one is ready, or an earlier claim was made in vain, or not to its end.

        What such a claim has taken comes with the next one.

        Raises:
            HarborageError: the store refused.
        """
        if self._is_unsure:
            return True
        await self._look()
        return self._due is not None and moment(self._due) <= self._clock.now()

    def claimed(self, *, is_sure: bool) -> None:
        """Note that a claim was made, or, unless that `is_sure`, that one may have been."""
        self._is_unsure, self._is_known = not is_sure, False

    async def _look(self) -> None:
        self._due, self._is_known = await self._queue.next_due(agents=self._agents), True

    async def wait(self, *, at_most_s: float | None, takes_runs: bool) -> None:
        """Wait until the next poll; `at_most_s` is for a worker that has runs, or callers that wait for a result.

        One that takes no runs does not wait for what is due.

        Raises:
            HarborageError: the store refused.
        """
        if self.changed.is_set():
            return
        if not self._is_known:
            await self._look()
        self._is_known, due = False, self._due if takes_runs else None
        delay_s = self._recheck_s if at_most_s is None else min(self._recheck_s, at_most_s)
        left_s = delay_s if due is None else (moment(due) - self._clock.now()).total_seconds()
        # Only once without a delay: the store compares due times with its own clock, which may be behind this one.
        self._was_due, was_due = left_s <= 0, self._was_due
        delay_s = min(delay_s, max(left_s, MIN_POLL_S if was_due else 0.0))
        timer = self._clock.call_later(delay_s, self.changed.set)
        try:
            await self.changed.wait()
        finally:
            timer.cancel()
