"""How a run is started that the worker of this process executes at once: its start and its claim are one commit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from harborage.clock import Timers, sleep
from harborage.concurrency import CLOSE_GRACE_S, Crew
from harborage.errors import error_reason
from harborage.runtime.durable.leased_run import LeasedRun, add_start
from harborage.state.errors import DatabaseError
from harborage.store import Change, Commit, Guard, Lease, NewRun, Store
from harborage.store.errors import LeaseLostError
from harborage.store.port import commit_now_of

if TYPE_CHECKING:
    from harborage.events.bus import RunWriter
    from harborage.runtime.loop.seam import RunRequest
    from harborage.store import Committed

_RETRY_S: Final = 1.0
_READY: Final = Change(release=True, is_ready=True)

_log = logging.getLogger(__name__)


class Launch(NamedTuple):
    """A run to be started: `commit` has its row, and all else that changes with it."""

    request: RunRequest
    row: NewRun
    entries: Sequence[bytes]
    commit: Commit

    def commit_of(self, worker: str, *, is_of_run: bool = False) -> Commit:
        """Return the commit that starts the run, claimed by `worker` if one is named; see `add_start`."""
        agent = self.request.agent
        return add_start(self.commit, self.entries, agent=agent, worker=worker, is_of_run=is_of_run)

    def run_of(self, worker: str) -> LeasedRun:
        """Return the run as `worker` holds it once it is started."""
        row = self.row
        lease = Lease(row.run_id, worker, 1)
        return LeasedRun(
            request=self.request, lease=lease, position=len(self.entries), group=row.group, parent=row.parent
        )


class Launcher:
    """Starts runs for `worker`. `start_run` executes one, if `is_taking` says that the worker still does."""

    def __init__(
        self,
        store: Store,
        worker: str,
        agents: Sequence[str],
        clock: Timers,
        start_run: Callable[[LeasedRun, Sequence[bytes]], None],
        is_taking: Callable[[], bool],
    ) -> None:
        self._store = store
        self._worker = worker
        self._agents = agents
        self._clock = clock
        self._start_run = start_run
        self._is_taking = is_taking
        self._crew = Crew(lambda name, error: _log.debug("%s: %s", name, error_reason(error)))

    def _takes(self, agent: str) -> bool:
        """Whether the worker executes runs of this agent, and now."""
        return self._is_taking() and (not self._agents or not agent or agent in self._agents)

    async def start(self, launch: Launch, accepted: Callable[[], None] | None, write: RunWriter | None) -> Committed:
        """Start a run, and execute it if the worker takes it.

        Raises:
            CommitRefusedError, DatabaseError: the store refused.
        """
        takes = self._takes(launch.request.agent)
        commit_now = commit_now_of(self._store)
        if commit_now is None and write is None and takes:
            # Cut short with its caller, it would leave a run to a worker that knows nothing of it.
            return await asyncio.shield(self._crew.start(self._start_here(launch), f"start of {launch.row.run_id}"))
        worker = self._worker if takes and commit_now is not None else ""
        commit = launch.commit_of(worker, is_of_run=write is not None)
        if write is not None:
            done = await write(commit, accepted=accepted)
        else:
            done = await self._store.commit(commit) if commit_now is None else commit_now(commit, accepted)
        if worker:
            await self._begin(launch.run_of(worker), launch.entries)
        return done

    async def settle(self) -> None:
        """Wait a moment for the starts that are under way: the worker still has to be one when they are made."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_GRACE_S):
                await self._crew.join()

    async def aclose(self) -> None:
        """End the starts that are still under way. Stop serving first."""
        await self._crew.aclose()

    async def _start_here(self, launch: Launch) -> Committed:
        if not self._is_taking():
            return await self._store.commit(launch.commit_of(""))
        run = launch.run_of(self._worker)
        try:
            done = await self._store.commit(launch.commit_of(self._worker))
        except DatabaseError:
            self._crew.start(self._free(run), f"release of {run.lease.run_id}")
            raise
        await self._begin(run, launch.entries)
        return done

    async def _begin(self, run: LeasedRun, entries: Sequence[bytes]) -> None:
        """Execute a run that was started with the worker as its owner, unless the worker has stopped meanwhile."""
        if self._is_taking():
            self._start_run(run, entries)
        else:
            await self._release(run)

    async def _release(self, run: LeasedRun) -> None:
        guard = Guard(lease=run.lease, position=run.position)
        with suppress(LeaseLostError):  # the end of the worker has freed it
            await self._store.commit(Commit(guard=guard, change=_READY))

    async def _free(self, run: LeasedRun) -> None:
        """Release a run that may have been started, although the store did not say so."""
        while self._is_taking():
            await sleep(self._clock, _RETRY_S)
            with suppress(DatabaseError):
                await self._release(run)
                break
