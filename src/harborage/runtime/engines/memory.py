"""A host of runs in this process: every run is one task, its record lives in a journal that is given or in memory.

It is the reference for other hosts: what it does with a journal that outlives it (carry on where the record stands) is
what they do with theirs.
"""

from __future__ import annotations

import asyncio
import builtins
import logging
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.concurrency import Crew
from harborage.crashes import contained
from harborage.errors import error_reason, error_text
from harborage.events import ANNOUNCED
from harborage.identity import require_quadruple
from harborage.planner import Finish
from harborage.runtime.durable import (
    EngineClosedError,
    EngineError,
    HistoryMismatchError,
    Program,
    RunBlockedError,
    RunFailedError,
    RunNotFoundError,
    RunPhase,
    RunPutOffError,
    RunRequest,
    RunStatus,
)
from harborage.runtime.engines.answers import Answers, answered_pause, check_handles
from harborage.runtime.engines.carrying import Carriage, failure_of
from harborage.runtime.engines.histories import read_entries, read_value, steps_of
from harborage.runtime.engines.mailbox import Mailbox, earliest
from harborage.runtime.engines.reader import KEPT
from harborage.runtime.engines.sending import MAX_UNREAD, limit_of
from harborage.runtime.journal import (
    Ended,
    Entry,
    InstantJournal,
    Journal,
    JournalCorruptError,
    Started,
    encode_entry,
    raw,
)
from harborage.runtime.steering.controls import ControlEvent, ControlType, Scope
from harborage.runtime.steering.errors import InboxFullError
from harborage.runtime.steering.inbox import Inbox, InboxRegistry

if TYPE_CHECKING:
    from harborage.runtime.effects import EffectTable
    from harborage.runtime.pauses import PauseCoordinator

__all__ = ["MemoryEngine"]

_RECHECK = timedelta(seconds=30)


class _Carried(msgspec.Struct, kw_only=True):
    """A run this host knows: its request, how far it is, and what carries it."""

    request: RunRequest
    inbox: Inbox | None = None
    phase: RunPhase = RunPhase.PENDING
    reason: str = ""
    finish: Finish | None = None
    failure: tuple[str, str] | None = None
    cause: Exception | None = None
    mailbox: Mailbox | None = None
    unreadable: None = None
    is_recorded: bool = True
    is_carried: bool = False
    ended: asyncio.Event = msgspec.field(default_factory=asyncio.Event)


class MemoryEngine:
    """Runs in this process, on `journal`. `keep_finished` ended runs stay readable; the oldest is dropped first.

    `refused` hears of every control that was queued and that its run, being over, never took. `max_unread` controls may
    wait for a run, besides a CANCEL; `answers` knows which answers came to nothing.
    """

    def __init__(
        self,
        pauses: PauseCoordinator,
        *,
        inboxes: InboxRegistry | None = None,
        journal: Journal | None = None,
        clock: Timers = SYSTEM_CLOCK,
        recheck: timedelta = _RECHECK,
        keep_finished: int = 10_000,
        refused: Callable[[ControlEvent], None] | None = None,
        max_unread: int = MAX_UNREAD,
        answers: Answers | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        self._pauses = pauses
        self._max_unread = max_unread
        self._answers = Answers() if answers is None else answers
        self._inboxes = InboxRegistry(clock=clock) if inboxes is None else inboxes
        self._journal: Journal = InstantJournal() if journal is None else journal
        self._clock = clock
        self._recheck_s = recheck.total_seconds()
        self._keep_finished = keep_finished
        self._refused = refused
        self._logger = logging.getLogger(__name__) if logger is None else logger
        self._runs: dict[str, _Carried] = {}
        self._finished: deque[str] = deque()
        self._work: tuple[Carriage, Crew] | None = None
        self._has_looked_back = False
        self._is_closed = False

    async def start(self, run_id: str, request: RunRequest, *, seed: Sequence[bytes] = ()) -> None:
        require_quadruple(request.who, "start")
        if self._is_closed:
            raise EngineClosedError()
        if await self._known(run_id) is not None:
            return
        started = encode_entry(Started(at=self._clock.now(), request=raw(request)))
        entries = [started, *steps_of(seed, run_id)]
        run = _Carried(request=request, inbox=self._inboxes.open(request.who), is_recorded=False)
        self._runs[run_id] = run
        try:
            await self._journal.append(run_id, entries)
        except BaseException:
            del self._runs[run_id]
            self._retire(run)
            raise
        run.is_recorded = True
        self._launch(run_id, run)

    async def send(self, run_id: str, control: ControlEvent) -> bool:
        run = await self._find(run_id)
        if run.inbox is None:
            raise RunNotFoundError(f"run {run_id} has ended; start another to go on")
        if run.mailbox is not None:
            run.mailbox.check_open(control)
        if run.phase is RunPhase.BLOCKED:
            self._logger.warning(KEPT, run_id, control.type, run.reason)
        run.inbox.check(control)
        await check_handles(self._pauses, run.request.who, control)
        put = partial(self._put, run_id, run)
        return await (self._answers.send(control, put) if answered_pause(control) else put(control))

    async def _put(self, run_id: str, run: _Carried, control: ControlEvent) -> bool:
        if run.inbox is None:
            raise RunNotFoundError(f"run {run_id} has ended; start another to go on")
        limit = limit_of(control, self._max_unread)
        if limit and len(run.inbox) >= limit:
            raise InboxFullError(run=run.request.who, limit=limit)
        return run.inbox.enqueue(control)

    async def result(self, run_id: str) -> Finish:
        run = await self._find(run_id)
        while not run.phase.is_final:
            await run.ended.wait()
            if self._is_closed and not run.phase.is_final:
                raise EngineClosedError()
            if run.phase is RunPhase.BLOCKED:
                raise RunBlockedError(run_id, run.reason)
        if run.finish is not None:
            return run.finish
        assert run.failure is not None
        raise RunFailedError(run_id, *run.failure) from run.cause

    async def status(self, run_id: str) -> RunStatus:
        return _status(run_id, await self._find(run_id))

    async def list(self) -> list[RunStatus]:
        await self._look_back()
        return [_status(run_id, run) for run_id, run in self._runs.items()]

    async def history(self, run_id: str) -> builtins.list[bytes]:
        await self._find(run_id)
        return await self._journal.read(run_id)

    async def cancel(self, run_id: str, *, hard: bool = False) -> bool:
        """Send the run a CANCEL of its own; False when it has ended already."""
        run = await self._find(run_id)
        if run.inbox is None:
            return False
        who = run.request.who
        control = ControlEvent(ControlType.CANCEL, who, Scope.ADMIN, who.tenant_id, {"hard": True} if hard else None)
        return run.inbox.enqueue(control)

    async def serve(self, program: Program, effects: EffectTable) -> None:
        if self._is_closed:
            raise EngineClosedError()
        if self._work is not None:
            raise EngineError("this host is being served already; stop the other worker first")
        crew = Crew(lambda name, error: self._logger.error("%s: %s", name, error_reason(error)))
        carriage = Carriage(
            program=program,
            effects=effects,
            pauses=self._pauses,
            clock=self._clock,
            recheck_s=self._recheck_s,
            logger=self._logger,
        )
        self._work = (carriage, crew)
        try:
            await self._look_back()
            for run_id, run in list(self._runs.items()):
                self._launch(run_id, run)
            await asyncio.get_running_loop().create_future()
        finally:
            self._work = None
            await crew.aclose()

    async def aclose(self) -> None:
        """Let go of every run: it takes no more controls, and whoever waits for its result is told. Stop serving first.

        A run that was still going stands where its journal stands. Closing twice does nothing.
        """
        self._is_closed = True
        for run in self._runs.values():
            self._retire(run)
            run.ended.set()

    async def _look_back(self) -> None:
        """Take up what the journal holds from before this host."""
        if self._has_looked_back:
            return
        earlier = await self._journal.runs()
        for run_id in earlier:
            try:
                await self._known(run_id)
            except JournalCorruptError as error:
                self._logger.error("run %s is left alone: %s", run_id, error_reason(error))
        # Runs that were started meanwhile come after those of before.
        self._runs = {run_id: self._runs[run_id] for run_id in (*earlier, *self._runs) if run_id in self._runs}
        self._has_looked_back = True

    async def _known(self, run_id: str) -> _Carried | None:
        """The run, taken up from the journal if this host has not met it; None when there is none."""
        if run_id not in self._runs:
            entries = await self._journal.read(run_id)
            if entries and run_id not in self._runs:
                self._take_up(run_id, read_entries(run_id, entries))
        return self._runs.get(run_id)

    def _take_up(self, run_id: str, entries: Sequence[Entry]) -> None:
        first, last = entries[0], entries[-1]
        if not isinstance(first, Started):
            raise JournalCorruptError(f"run {run_id}, entry 0: a run begins with `started`, not {type(first).__name__}")
        run = _Carried(request=read_value(first.request, RunRequest, f"run {run_id}, entry 0"))
        if isinstance(last, Ended) and last.finish is not None:
            run.finish = read_value(last.finish, Finish, f"run {run_id}, entry {len(entries) - 1}")
        self._runs[run_id] = run
        if isinstance(last, Ended):
            if run.finish is None:
                run.failure = (last.error, last.message)
            self._close(run_id, run, RunPhase.FAILED if run.finish is None else RunPhase.FINISHED)
        else:
            run.inbox = self._inboxes.open(run.request.who)
            self._launch(run_id, run)

    def _launch(self, run_id: str, run: _Carried) -> None:
        """Carry a run, if there is a worker, and nobody does yet, and it has begun and not ended."""
        if self._work is None or run.is_carried or not run.is_recorded or run.phase.is_final:
            return
        carriage, crew = self._work
        run.is_carried = True
        crew.start(self._carry(run_id, run, carriage), f"run {run_id}")

    async def _carry(self, run_id: str, run: _Carried, carriage: Carriage) -> None:
        """Carry one run to its end, or to where this host stops."""
        run.phase, run.reason = RunPhase.RUNNING, ""
        run.ended.clear()
        try:
            entry = await contained(self._carried(run_id, run, carriage))
            if entry is not None:
                await self._end(run_id, run, entry)
        except asyncio.CancelledError:
            # Unless this host stops, somebody else cancelled the task: the run goes on from its record.
            asyncio.get_running_loop().call_soon(self._carry_on, run_id, run)
            raise
        except Exception as error:
            if not run.phase.is_final:
                run.cause, run.failure = error, failure_of(error)
                self._close(run_id, run, RunPhase.FAILED)
            raise
        finally:
            run.is_carried = False
            if run.phase is RunPhase.RUNNING:
                run.phase = RunPhase.PENDING

    def _carry_on(self, run_id: str, run: _Carried) -> None:
        if self._work is not None:
            self._logger.warning("run %s: its task was cancelled, and not by its host; it is carried on", run_id)
        self._launch(run_id, run)

    async def _carried(self, run_id: str, run: _Carried, carriage: Carriage) -> bytes | None:
        """How the run ended, as its last entry; None for a run that waits for other code."""
        while True:
            try:
                entries = read_entries(run_id, await self._journal.read(run_id))
                finish = await carriage.perform(
                    run_id, run, self._journal, entries, is_stopping=lambda: self._work is None
                )
                entry = encode_entry(Ended(at=self._clock.now(), finish=raw(finish)))
            except RunPutOffError as error:
                self._logger.warning("%s", error_reason(error), extra=ANNOUNCED)
                run.phase, run.reason = RunPhase.PARKED, error.reason
                await self._hold(run, error.until)
                run.phase, run.reason = RunPhase.RUNNING, ""
            except (HistoryMismatchError, JournalCorruptError) as error:
                run.phase, run.reason = RunPhase.BLOCKED, error_text(error)
                run.ended.set()
                self._logger.error("%s", error_reason(error))
                return None
            except Exception as error:  # noqa: BLE001 - kept as the run's result
                run.cause, run.failure = error, failure_of(error)
                return encode_entry(Ended(at=self._clock.now(), error=run.failure[0], message=run.failure[1]))
            else:
                run.finish = finish
                return entry

    async def _hold(self, run: _Carried, until: datetime) -> None:
        """Wait until then, for the run's deadline, or for something that arrives."""
        assert run.inbox is not None
        woken = asyncio.Event()
        unlisten = run.inbox.on_enqueue(lambda _: woken.set())
        latest = earliest(until, run.request.deadline) or until
        timer = self._clock.call_later(max(0.0, (latest - self._clock.now()).total_seconds()), woken.set)
        try:
            if not run.inbox:
                await woken.wait()
        finally:
            timer.cancel()
            unlisten()

    async def _end(self, run_id: str, run: _Carried, entry: bytes) -> None:
        try:
            await self._journal.append(run_id, [entry])
        finally:
            self._close(run_id, run, RunPhase.FAILED if run.finish is None else RunPhase.FINISHED)
        while len(self._finished) > self._keep_finished:
            oldest = self._finished.popleft()
            del self._runs[oldest]
            await self._journal.forget(oldest)

    def _close(self, run_id: str, run: _Carried, phase: RunPhase) -> None:
        self._retire(run)
        run.phase = phase
        run.ended.set()
        self._finished.append(run_id)

    def _retire(self, run: _Carried) -> None:
        """Take no more controls for the run, and report those that it never took."""
        inbox, run.inbox = run.inbox, None
        if inbox is None:
            return
        left = inbox.drain()
        self._inboxes.retire(run.request.who)
        if self._refused is not None:
            for control in left:
                self._refused(control)

    async def _find(self, run_id: str) -> _Carried:
        run = await self._known(run_id)
        if run is None:
            raise RunNotFoundError(f"no run {run_id!r} on this host")
        return run


def _status(run_id: str, run: _Carried) -> RunStatus:
    phase = run.phase
    if phase is RunPhase.RUNNING and run.mailbox is not None and run.mailbox.is_parked:
        phase = RunPhase.PARKED
    if run.failure is not None:
        reason = f"{run.failure[0]}: {run.failure[1]}"
    else:
        reason = run.reason or ("" if run.finish is None else str(run.finish.reason))
    return RunStatus(run_id=run_id, who=run.request.who, goal=run.request.goal, phase=phase, reason=reason)
