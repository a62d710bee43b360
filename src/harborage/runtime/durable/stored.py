"""The engine over a store, which outlives the process and may be shared by several.

One worker at a time executes a run, under a lease; what it records is refused once it has lost the lease. A run that
only waits leaves memory after a while, and is restored from its record when it is woken.
"""

from __future__ import annotations

import asyncio
import builtins
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from harborage.clock import SYSTEM_CLOCK, Timers, sleep
from harborage.concurrency import CLOSE_GRACE_S, STOP, Crew
from harborage.crashes import contained
from harborage.errors import HarborageError, error_reason, error_text
from harborage.events import ANNOUNCED, BusStalledError
from harborage.identity import require_quadruple
from harborage.ids import new_id
from harborage.runtime.durable.control_sender import MAX_UNREAD, ControlSender, cancel_control, check_handles
from harborage.runtime.durable.engine import (
    EngineClosedError,
    EngineElsewhereError,
    EngineError,
    EngineStoppedError,
    RecordRefusedError,
    RunHandedOverError,
    RunNotFoundError,
    RunPutOffError,
    RunStatus,
    RunTakenError,
)
from harborage.runtime.durable.execution import Executor
from harborage.runtime.durable.histories import finish_of, request_of, steps_of
from harborage.runtime.durable.inbox import InboxRegistry
from harborage.runtime.durable.journal import Ended, Started, decode_entry, encode_entry, raw
from harborage.runtime.durable.launching import Launch, Launcher
from harborage.runtime.durable.leased_record import LeasedRecord
from harborage.runtime.durable.leased_run import LeasedRun, leased_run_of, put_off_change
from harborage.runtime.durable.parking import Parking
from harborage.runtime.durable.polling import MIN_POLL_S, ControlDelivery, PollTimer
from harborage.runtime.durable.reader import KEPT, UNREADABLE, ResultWaiters, RunReader, is_blocked, status_of
from harborage.runtime.loop.seam import Concluded, Program, RunRequest
from harborage.state.errors import DatabaseError
from harborage.store import Change, Commit, ControlRow, NewRun, RunQuery, RunRow, Status, Store
from harborage.store.errors import RunKnownError
from harborage.store.port import keep_alive

if TYPE_CHECKING:
    from harborage.events import RecordBus
    from harborage.events.bus import RunWriter
    from harborage.planner import Finish
    from harborage.runtime.durable.pauses.coordinator import Coordinator
    from harborage.runtime.durable.steps import Effects
    from harborage.runtime.loop.controls import ControlEvent
    from harborage.store import Committed
    from harborage.tasks.changes import RunEnds

_LINGER = timedelta(seconds=1)
_RECHECK = timedelta(seconds=30)
_CLAIMS = 100
_RETRY_S = 1.0
_RESULT_POLL_S = 0.25
_READY = Change(release=True, is_ready=True)


class StoredEngine:
    """The engine over a store: `worker` executes its runs while it serves; start, send and read work at any time.

    Only runs of these `agents`, and those of none, are executed here; all without a name. Names may be added: each poll
    asks again. A run that only waits leaves memory after `linger`. `refused` is called for every control that its run
    ended without consuming, `ends` for the end of each run: it returns what ends with it and the work that follows.
    `outcome_of` returns the stored form of the error that ends a run. `max_unread` controls may wait for a run, besides
    a CANCEL. Events that runs publish on a `bus` over the same store are committed with their entries.
    """

    def __init__(
        self,
        store: Store,
        pauses: Coordinator,
        *,
        agents: Sequence[str] = (),
        worker: str = "",
        inboxes: InboxRegistry | None = None,
        clock: Timers = SYSTEM_CLOCK,
        linger: timedelta = _LINGER,
        recheck: timedelta = _RECHECK,
        refused: Callable[[ControlEvent], None] | None = None,
        ends: RunEnds | None = None,
        outcome_of: Callable[[Exception], bytes] | None = None,
        max_unread: int = MAX_UNREAD,
        bus: RecordBus | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        self._controls = ControlSender(store, clock, most=max_unread)
        self._store, self._pauses = store, pauses
        self._reader = RunReader(store)
        self.was_sent = store.was_sent
        self._agents = agents
        self._worker = worker or new_id()
        self._inboxes = InboxRegistry(clock=clock) if inboxes is None else inboxes
        self._clock = clock
        self._linger_s = linger.total_seconds()
        self._recheck_s = recheck.total_seconds()
        self._refused = refused
        self._run_ends = ends
        self._outcome_of = outcome_of
        self._bus = bus
        self._logger = logging.getLogger(__name__) if logger is None else logger
        self._running: dict[str, LeasedRun] = {}
        self._poll_timer = PollTimer(store, clock, agents=agents, recheck_s=recheck.total_seconds())
        self._delivery = ControlDelivery(store, self._worker, self._running)
        self._parking = Parking(self._running, clock, self._linger_s, self._block_change)
        self._has_tried = self._is_joined = self._is_closed = False
        self._waiters = ResultWaiters(clock)
        self._unrecorded: dict[str, tuple[int, ...]] = {}
        self._work: tuple[Executor, Crew] | None = None
        self._ends = Crew(lambda name, error: self._logger.debug("%s: %s", name, error_reason(error)))
        self._launcher = Launcher(store, self._worker, agents, clock, self._start_run, self._is_taking)
        self._stopped: Exception | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # ── For callers ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self, run_id: str, request: RunRequest, *, seed: Sequence[bytes] = ()) -> None:
        require_quadruple(request.who, "start")
        if request.who.run_id != run_id:
            raise EngineError(f"run {run_id} cannot be started for the identity of run {request.who.run_id}")
        run = NewRun(run_id=run_id, who=request.who.identity, goal=request.goal)
        with suppress(RunKnownError):
            await self.launch(request, Commit(starts=(run,)), seed=seed)

    async def launch(
        self,
        request: RunRequest,
        commit: Commit,
        *,
        seed: Sequence[bytes] = (),
        accepted: Callable[[], None] | None = None,
        write: RunWriter | None = None,
    ) -> Committed:
        """Start a run with all else that changes with it: `commit` has one start, its row. `accepted` as a store in
        memory takes it; `write` commits for the run that starts this one.

        Raises:
            EngineClosedError, EngineStoppedError: nothing has changed.
            CommitRefusedError, DatabaseError: the store refused.
        """
        self._check_open()
        (row,) = commit.starts
        entries = [encode_entry(Started(at=self._clock.now(), request=raw(request))), *steps_of(seed, row.run_id)]
        return await self._launcher.start(Launch(request, row, entries, commit), accepted, write)

    async def send(self, run_id: str, control: ControlEvent) -> bool:
        self._check_open()
        row = await self._reader.row(run_id)
        stamped = self._controls.validate(row, control)
        if is_blocked(row):
            self._logger.warning(KEPT, run_id, control.type, row.blocked)
        running = self._running.get(run_id)
        if running is not None and running.mailbox is not None:
            running.mailbox.check_open(control)
        if running is not None or (self._work is not None and not row.owner):
            await check_handles(self._pauses, row.quadruple, stamped)  # the run would continue in this process
        is_new = await self._controls.send(stamped)
        await self._deliver_now(run_id)  # a run that is executed here has it when this returns
        return is_new

    async def result(self, run_id: str) -> Finish:
        has_looked = False
        while True:
            looks_again = self._work is None
            with self._waiters.waiting(run_id) as waiter:
                if run_id not in self._running:
                    # A worker that begins to serve may have the code that a blocked run needs.
                    was_tried = self._has_tried if self._work is not None else has_looked
                    finish, is_known = await self._reader.ending(run_id, self._logger, was_tried=was_tried)
                    has_looked = True
                    if finish is not None:
                        return finish
                    looks_again |= not is_known
                self._check_open()
                finish = await self._waiters.ended(waiter, look_s=_RESULT_POLL_S if looks_again else 0.0)
                if finish is not None:
                    return finish

    async def status(self, run_id: str) -> RunStatus:
        return self._status(await self._reader.row(run_id))

    async def list(self) -> list[RunStatus]:
        return [self._status(row) for row in await self._reader.rows(RunQuery(oldest_first=True))]

    async def history(self, run_id: str) -> builtins.list[bytes]:
        await self._reader.row(run_id)
        return [encode_entry(entry) for entry in await self._reader.entries(run_id)]

    async def cancel(self, run_id: str, *, hard: bool = False) -> bool:
        """Send the run a CANCEL of its own; False when it has ended already."""
        row = await self._reader.row(run_id)
        with suppress(RunNotFoundError):
            return await self.send(run_id, cancel_control(row.quadruple, hard=hard))
        return False

    async def list_unconsumed(self, run_id: str) -> builtins.list[ControlEvent]:
        """Return the controls of a run that it had not consumed when its worker stopped."""
        return await self._controls.unread(run_id, besides=self._unrecorded.get(run_id, ()))

    async def wake(self, run_id: str) -> None:
        """Wake a parked run: what it waits for may have come."""
        await self._store.commit(Commit(wakes=(run_id,)))

    async def serve(self, program: Program, effects: Effects) -> None:
        if self._is_closed:
            raise EngineClosedError()
        if self._work is not None:
            raise EngineError("this host is being served already; stop the other worker first")
        crew = Crew(lambda name, error: self._logger.error("%s: %s", name, error_reason(error)))
        executor = Executor(
            program=program,
            effects=effects,
            pauses=self._pauses,
            clock=self._clock,
            recheck_s=self._recheck_s,
            logger=self._logger,
            refusals=(BusStalledError, DatabaseError),
            is_draining=lambda: self._parking.is_draining,
        )
        self._work, self._stopped, self._loop = (executor, crew), None, asyncio.get_running_loop()
        self._parking.open()
        # Also for what this engine commits itself: the store calls its listeners at once for changes of this process.
        unlisten = self._store.on_change(self._poll_timer.changed.set)
        alive = Crew(lambda name, error: self._logger.error("%s: %s", name, error_reason(error)))
        joined = asyncio.Event()
        try:
            sign = alive.start(keep_alive(self._store, self._worker, self._clock, joined=joined), "sign of life")
            sign.add_done_callback(lambda _: joined.set())
            sign.add_done_callback(lambda _: self._poll_timer.changed.set())
            await joined.wait()
            self._is_joined = True
            await self._poll(sign)
        except Exception as error:
            self._stopped = error
            raise
        finally:
            self._work, self._is_joined = None, False
            await self._launcher.settle()
            self._parking.stop()
            self._waiters.notify_others()
            unlisten()
            await crew.aclose()
            await alive.aclose()

    async def drain(self, grace_s: float) -> None:
        """Let go of every run at its next step boundary, for other workers; see `Parking.drain`."""
        await self._parking.drain(grace_s)

    async def aclose(self) -> None:
        """Close the engine: callers that wait for a result get an error, ends being stored a second more.

        Stop serving first.
        """
        self._is_closed = True
        self._waiters.notify_others()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_GRACE_S):
                await self._ends.join()
        await self._ends.aclose()
        await self._launcher.aclose()

    # ── Executing ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _poll(self, sign: asyncio.Task[None]) -> None:
        """Claim runs that are ready, deliver controls and notify callers, until cancelled.

        Raises:
            EngineError: the worker's sign of life has ended, so other workers would claim its runs.
        """
        is_first, self._has_tried = True, False
        while True:
            self._poll_timer.changed.clear()
            if sign.done():
                cause = None if sign.cancelled() else sign.exception()
                raise EngineError(f"its worker gives no sign of life any more: {cause}") from cause
            try:
                if is_first and (blocked := await self._reader.blocked(self._agents)):
                    await self._store.unblock(blocked)  # code that was wrong may be right now
                is_first, takes_runs = False, not self._parking.is_draining
                fresh = await self._claim() if takes_runs and await self._poll_timer.may_claim() else 0
                self._has_tried = True
                if len(self._running) > fresh:  # a claim brings the controls of its run
                    await self._delivery.deliver()
                self._waiters.notify_others(self._running)
                is_busy = bool(self._running or self._waiters)
                at_most_s = max(self._linger_s / 2, MIN_POLL_S) if is_busy else None
                await self._poll_timer.wait(at_most_s=at_most_s, takes_runs=takes_runs)
            except HarborageError as error:
                self._poll_timer.claimed(is_sure=False)
                self._logger.error("the store of runs: %s", error_reason(error))
                await sleep(self._clock, _RETRY_S)

    async def _claim(self) -> int:
        """Claim the runs that are ready, and start to execute them; return how many there were."""
        count = 0
        while True:
            claims = await self._store.claim(self._worker, agents=self._agents, limit=_CLAIMS)
            for claim in claims:
                self._start_run(leased_run_of(claim.row), claim.entries, claim.controls)
            count += len(claims)
            if len(claims) < _CLAIMS:
                self._poll_timer.claimed(is_sure=True)
                return count

    def _start_run(self, run: LeasedRun, entries: Sequence[bytes], controls: Sequence[ControlRow] = ()) -> None:
        assert self._work is not None
        executor, crew = self._work
        if run.lease.run_id not in self._running:
            self._add_run(run)
        run.task = crew.start(self._execute(run, executor, entries, controls), f"run {run.lease.run_id}")

    def _add_run(self, run: LeasedRun) -> None:
        run.inbox = self._inboxes.open(run.request.who)
        self._running[run.lease.run_id] = run
        self._parking.watch()

    async def _supersede(self, run: LeasedRun) -> bool:
        """Stop an earlier execution of a run whose lease this worker lost and has claimed again.

        Return False if this worker has claimed it once more since then.
        """
        while (before := self._running.get(run.lease.run_id)) is not run:
            if before is None or before.task is None:
                self._add_run(run)
                self._poll_timer.changed.set()  # controls may have come before there was an inbox for them
            elif before.lease.fence > run.lease.fence:
                return False
            else:
                before.is_lost = True
                before.task.cancel(STOP)
                await asyncio.wait([before.task])
                self._remove_run(before)  # one that never had its turn could not
        return True

    async def _execute(
        self, run: LeasedRun, executor: Executor, entries: Sequence[bytes], controls: Sequence[ControlRow]
    ) -> None:
        """Execute one run until it ends, waits, or this worker stops."""
        record = LeasedRecord(self._store, run, self._ends, self._bus)
        looks_again = True
        try:
            if not await self._supersede(run):
                return
            with record.opened():
                released = await contained(self._perform(run, executor, record, entries, controls))
        except RunTakenError as error:
            self._logger.warning("%s", error_reason(error))
            self._remove_run(run)
        except Exception as error:  # noqa: BLE001 - the record refused, or an unforeseen error: the run is retried
            self._logger.error("run %s is released: %s", run.lease.run_id, error_reason(error))
            self._remove_run(run)
            await self._release(run, record, _READY, wait_s=_RETRY_S)
        except asyncio.CancelledError:
            if self._work is None:
                self._unrecorded[run.lease.run_id] = run.list_consumed()
            self._remove_run(run)
            await self._release(run, record, run.release_change())
            raise
        else:
            self._remove_run(run)
            if released is None:
                looks_again = False  # the store has notified of the end, and of the runs that it wakes
            else:
                await self._release(run, record, released)
        finally:
            record.close()
            if looks_again:
                self._poll_timer.changed.set()

    async def _perform(
        self,
        run: LeasedRun,
        executor: Executor,
        record: LeasedRecord,
        stored: Sequence[bytes],
        controls: Sequence[ControlRow],
    ) -> Change | None:
        """Execute the run; return the change that releases it, None once its end is recorded."""
        run_id = run.lease.run_id
        try:
            entries = await self._reader.whole(run_id, stored)
            run.request = request_of(run_id, entries)
            for control in controls:
                run.admit(control)
            if controls:
                await run.fetch(self._store)  # and what else came before the claim, all before its first step
            if run.unreadable is not None:
                raise run.unreadable
            result = await executor.perform(run_id, run, record, entries, is_stopping=lambda: self._is_stopping(run))
            ending = Concluded.of(result)
            entry = encode_entry(Ended(at=self._clock.now(), finish=raw(ending.finish)))
            change = Change(status=ending.status, reason=str(ending.finish.reason), outcome=ending.outcome)
        except (RunTakenError, RecordRefusedError):
            raise
        except RunPutOffError as error:
            self._logger.warning("%s", error_reason(error), extra=ANNOUNCED)
            return put_off_change(run, error)
        except RunHandedOverError:
            return _READY
        except UNREADABLE as error:
            return self._block_change(error)
        except DatabaseError as error:
            raise RecordRefusedError(run_id, error_text(error)) from error
        except Exception as error:  # noqa: BLE001 - kept as the run's result
            run.ending = self._reader.failed(run_id, error)
            what, why = run.ending.error, run.ending.message
            entry = encode_entry(Ended(at=self._clock.now(), error=what, message=why))
            outcome = b"" if self._outcome_of is None else self._outcome_of(error)
            change = Change(status=Status.FAILED, reason=f"{what}: {why}", outcome=outcome)
        recording = self._end(run, record, entry, change)
        if record.append_now is None:
            # If this worker stops meanwhile, the commit of the end still completes, and its event is delivered.
            await asyncio.shield(self._ends.start(recording, f"end of {run_id}"))
        else:
            await recording
        if run.ending is None and run_id in self._waiters:
            run.ending = finish_of(decode_entry(entry, run_id, -1), run_id)
        return None

    async def _end(self, run: LeasedRun, record: LeasedRecord, entry: bytes, change: Change) -> None:
        """Record the end of a run, and start the follow-up work of its task."""
        follow = await record.end(entry, change, self._refused, self._run_ends)
        if follow is not None:
            self._ends.start(follow, f"what follows from the end of {run.lease.run_id}")

    def _block_change(self, error: Exception) -> Change:
        """Return the change that releases a run which is blocked until other code, or a repair, lets it continue."""
        self._logger.error("%s", error_reason(error))
        return Change(release=True, blocked=error_text(error))

    def _is_taking(self) -> bool:
        """Whether this worker executes what is started here."""
        return self._is_joined and not self._parking.is_draining

    def _is_stopping(self, run: LeasedRun) -> bool:
        return self._work is None or run.parked is not None or run.is_lost

    def _remove_run(self, run: LeasedRun) -> None:
        """Execute the run no more: close its inbox, and notify the callers that wait for its end."""
        if self._running.get(run.lease.run_id) is run:
            del self._running[run.lease.run_id]
        inbox, ending = run.inbox, run.ending
        run.inbox = run.ending = None  # an error's traceback keeps `run`
        if inbox is not None:
            self._inboxes.retire(inbox.identity)
            self._waiters.notify(run.lease.run_id, ending)

    async def _release(self, run: LeasedRun, record: LeasedRecord, change: Change, *, wait_s: float = 0.0) -> None:
        """Release a run; a commit that the store refuses is retried as long as this worker serves."""
        while True:
            if wait_s:
                await sleep(self._clock, wait_s)
            try:
                await record.release(change)
                return
            except HarborageError as error:
                self._logger.error("run %s could not be released: %s", run.lease.run_id, error_reason(error))
                if self._work is None:
                    return  # the end of this worker frees its runs
                wait_s = _RETRY_S

    async def _deliver_now(self, run_id: str) -> None:
        """Deliver controls for the sake of one run; a read that the store refuses is retried with the next poll."""
        try:
            await self._delivery.deliver()
        except HarborageError as error:
            self._logger.warning("run %s gets its controls with the next poll: %s", run_id, error_reason(error))

    # ── Status ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _status(self, row: RunRow) -> RunStatus:
        run = self._running.get(row.run_id)
        return status_of(row, is_parked=run is not None and run.mailbox is not None and run.mailbox.is_parked)

    def _check_open(self) -> None:
        if self._is_closed:
            raise EngineClosedError()
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            raise EngineElsewhereError()
        if self._stopped is not None:
            raise EngineStoppedError(str(self._stopped) or type(self._stopped).__name__) from self._stopped
