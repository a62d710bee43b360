"""The cluster of a chaos story: a database, the outside service, and workers that can be killed, frozen and thawed.

The process that plays the story has an engine of its own over the same database: it sends, answers and reads, and
executes nothing.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, cast

from msgspec.structs import replace

from harborage.runtime.durable.stored import StoredEngine
from harborage.runtime.history import all_runs
from harborage.runtime.loop.controls import ControlEvent, ControlType, Scope
from harborage.runtime.pauses import AlreadyResumedError, Coordinator, Pause
from harborage.state.errors import DatabaseError
from harborage.store import LIVE, Commit, RunQuery, RunRow
from tests.programs.chaos.databases import Database, open_at
from tests.programs.chaos.service import Service
from tests.programs.chaos.worker import ME, MovedClock, Orders

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.state.storage import Storage
    from harborage.store import Committed, Store
    from tests.programs.chaos.forkserver import ForkServer

PATIENCE_S: Final = 60.0
_LOOK_S: Final = 0.02
_PAGE: Final = 200


class Process:
    """A worker as others see it. What is sent to one that has died meanwhile goes nowhere."""

    def __init__(self, name: str, pid: int) -> None:
        self.name = name
        self.pid = pid
        self.is_gone = False
        try:
            self._handle = os.pidfd_open(pid)
        except ProcessLookupError:
            self._handle = -1
            self.is_gone = True

    def send(self, what: signal.Signals) -> None:
        """Send it a signal."""
        if not self.is_gone:
            with suppress(ProcessLookupError):  # it died in this very moment
                signal.pidfd_send_signal(self._handle, what)

    async def gone(self) -> None:
        """Return when it is dead."""
        if self.is_gone:
            return
        loop = asyncio.get_running_loop()
        dead: asyncio.Future[None] = loop.create_future()
        handle = os.dup(self._handle)
        loop.add_reader(handle, _resolve, dead)
        try:
            await dead
        finally:
            loop.remove_reader(handle)
            os.close(handle)
        self.close()

    async def kill(self) -> None:
        """End it as `kill -9` does."""
        self.send(signal.SIGKILL)
        await self.gone()

    def close(self) -> None:
        """Let go of it."""
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1
        self.is_gone = True


class Cluster:
    """`async with Cluster(database, forkserver, goals) as cluster:`; at the end of the block every process is killed.

    Its runs are of so many `sessions`; each request to the service takes `delay_s`. `storage`, `pauses` and `sender`
    belong to the test.
    """

    def __init__(
        self,
        database: Database,
        forkserver: ForkServer,
        goals: Sequence[str],
        *,
        sessions: int = 1,
        delay_s: float = 0.0,
    ) -> None:
        self.database = database
        self.service = Service(goals, sessions=sessions, delay_s=delay_s)
        self.sent: list[tuple[str, str, bytes]] = []
        self.storage: Storage
        self.pauses: Coordinator
        self.sender: StoredEngine
        self._goals = goals
        self._forkserver = forkserver
        self._moved_s = 0.0
        self._port = 0
        self._numbers = count()
        self._processes: set[Process] = set()

    async def __aenter__(self) -> Self:
        self._port = await self.service.open()
        await self._sit_down()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.send(signal.SIGKILL)
        for process in tuple(self._processes):
            await process.gone()
        await self.service.aclose()
        await self.storage.aclose()

    async def move_clock(self, moved_s: float) -> None:
        """Move everybody's clock ahead, for processes that are started from now on."""
        self._moved_s += moved_s
        await self.storage.aclose()
        await self._sit_down()

    async def _sit_down(self) -> None:
        clock = MovedClock(self._moved_s)
        storage = self.storage = await open_at(self.database, clock)
        self.now = clock.now
        self.pauses = Coordinator(store=storage.store, clock=clock)
        sending = cast("Store", _Sending(storage.store, self.sent))
        self.sender = StoredEngine(sending, self.pauses, clock=clock)

    # ── Processes ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def processes(self) -> list[Process]:
        """Those that live."""
        self._processes = {one for one in self._processes if not one.is_gone}
        return list(self._processes)

    def start(self, name: str, **orders: Any) -> Process:
        """Start a process; the rest is as `Orders` has it."""
        wanted = Orders(database=self.database, port=self._port, name=name, moved_s=self._moved_s)
        process = Process(name, self._forkserver.start(replace(wanted, **orders)))
        self._processes.add(process)
        return process

    async def freeze(self, process: Process) -> None:
        """Let a process stand still, but not in the middle of writing: there it would keep a lock of SQLite, which only
        the end of the process takes away, and nobody could go on."""
        while True:
            process.send(signal.SIGSTOP)
            try:
                await self.storage.store.commit(Commit(wakes=("nobody",)))
            except DatabaseError:
                process.send(signal.SIGCONT)
            else:
                return

    async def stop(self) -> None:
        """Ask every process to stop, and wait until all have."""
        for process in self.processes:
            process.send(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            for process in self.processes:
                await process.gone()

    # ── Looking and sending ─────────────────────────────────────────────────────────────────────────────────────────

    async def records(self, *, is_open: bool = False) -> list[RunRow]:
        """Every run, or every run that has not ended."""
        return await all_runs(self.storage.store, RunQuery(statuses=LIVE) if is_open else RunQuery())

    async def run(self) -> RunRow:
        """The first run, once every wanted one was begun, so that no worker starts one again."""
        await until(self._has_begun)
        return (await self.records())[0]

    async def _has_begun(self) -> bool:
        return len(self.service.begun) == len(self._goals)

    async def is_over(self) -> bool:
        """Whether every wanted run was begun, and every run has ended."""
        return len(self.service.begun) == len(self._goals) and not await self.records(is_open=True)

    async def open_pauses(self) -> Sequence[Pause]:
        """The newest open pauses."""
        return (await self.pauses.list(who=ME, page_size=_PAGE)).rows

    async def send(self, who: Quadruple, type: ControlType, payload: dict[str, Any] | None = None) -> None:
        """Send a run a control; of several answers to one pause the first counts, and the others are none.

        Raises:
            RunNotFoundError: it has ended.
        """
        control = ControlEvent(type, who, Scope.ADMIN, who.tenant_id, payload, f"event-{next(self._numbers)}")
        with suppress(AlreadyResumedError):
            await self.sender.send(who.run_id, control)


class _Sending:
    """The store as those reach it who send; `sent` gets what it took: run, event id and data."""

    def __init__(self, inner: Store, sent: list[tuple[str, str, bytes]]) -> None:
        self._inner = inner
        self._sent = sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def commit(self, commit: Commit) -> Committed:
        work = asyncio.ensure_future(self._inner.commit(commit))
        work.add_done_callback(partial(self._note, commit))
        return await asyncio.shield(work)  # a sender that gives up may have sent all the same

    def _note(self, commit: Commit, work: asyncio.Future[Committed]) -> None:
        if work.cancelled() or work.exception() is not None:
            return
        for send, is_new in zip(commit.sends, work.result().sent, strict=False):
            if is_new:
                self._sent.append((send.run_id, send.event_id, send.data))


async def until(is_so: Callable[[], Awaitable[bool]], *, patience_s: float = PATIENCE_S) -> None:
    """Return when it is so.

    Raises:
        TimeoutError: it is not, for too long.
    """
    async with asyncio.timeout(patience_s):
        while not await is_so():  # noqa: ASYNC110 - other processes tell of nothing
            await asyncio.sleep(_LOOK_S)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
