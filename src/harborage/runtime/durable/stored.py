"""A host of runs over a store that outlives it, and that other processes may share.

Every run is carried by one worker at a time, which holds its lease; what it records is refused once the lease is lost.
A run that only waits leaves memory after a while, and is folded again from its record when there is a reason to.
"""

from __future__ import annotations

import asyncio
import builtins
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from harborage.clock import SYSTEM_CLOCK, Timer, Timers, sleep
from harborage.concurrency import CLOSE_GRACE_S, STOP, Crew
from harborage.crashes import contained
from harborage.errors import HarborageError, error_reason, error_text
from harborage.events import ANNOUNCED, BusStalledError
from harborage.identity import require_quadruple
from harborage.ids import new_id
from harborage.runtime.durable.bodies import taken_out
from harborage.runtime.durable.engine import (
    EngineClosedError,
    EngineElsewhereError,
    EngineError,
    EngineStoppedError,
    RecordRefusedError,
    RunNotFoundError,
    RunPutOffError,
    RunStatus,
    RunTakenError,
)
from harborage.runtime.durable.execution import Executor
from harborage.runtime.durable.histories import finish_of, request_of, steps_of
from harborage.runtime.durable.inbox import InboxRegistry
from harborage.runtime.durable.journal import Ended, Started, decode_entry, encode_entry, raw
from harborage.runtime.durable.lease import LeasedRun, Ledger, claimed
from harborage.runtime.durable.looking import SHORTEST_S, Delivery, NextLook
from harborage.runtime.durable.reader import KEPT, UNREADABLE, ResultWaiters, RunReader, is_blocked, status_of
from harborage.runtime.durable.releasing import parked, put_off
from harborage.runtime.durable.sending import MAX_UNREAD, ControlSender, cancellation, check_handles
from harborage.runtime.loop.seam import Concluded, Program, RunRequest
from harborage.state.errors import DatabaseError
from harborage.store import Change, Commit, ControlRow, Guard, Lease, NewRun, RunQuery, RunRow, Status, Store
from harborage.store.errors import LeaseLostError, RunKnownError
from harborage.store.port import commit_now_of, keep_alive

if TYPE_CHECKING:
    from harborage.events import RecordBus
    from harborage.planner import Finish
    from harborage.runtime.durable.steps import EffectTable
    from harborage.runtime.loop.controls import ControlEvent
    from harborage.runtime.loop.pauses import PauseCoordinator
    from harborage.store import Committed
    from harborage.tasks.closing import RunEnds

_LINGER = timedelta(seconds=1)
_RECHECK = timedelta(seconds=30)
_CLAIMS = 100
_HICCUP_S = 1.0
_LOOK_S = 0.25
_READY = Change(release=True, is_ready=True)


class StoredEngine:
    """Runs of one store, carried by this process as `worker` while it serves; start, send and read work at any time.

    `agent` is written into the runs that are started here and names those that are carried here. A run that only waits
    leaves memory after `linger`. `refused` hears of every control that its run, being over, never took; `ends` of the
    end of each run, and gives what ends with it and what follows; `outcome_of` says what is kept of the error that ends
    one. `max_unread` controls may wait for a run, besides a CANCEL. What runs publish on a `bus` over the same store is
    kept with what they record.
    """

    def __init__(
        self,
        store: Store,
        pauses: PauseCoordinator,
        *,
        agent: str = "",
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
        self._store = store
        self._reader = RunReader(store)
        self._pauses = pauses
        self._agent = agent
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
        self._carried: dict[str, LeasedRun] = {}
        self._next = NextLook(store, clock, agent=agent, recheck_s=recheck.total_seconds())
        self._delivery = Delivery(store, self._worker, self._carried)
        self._sweeping: Timer | None = None
        self._has_tried = self._is_joined = self._is_closed = False
        self._waiters = ResultWaiters(clock)
        self._unrecorded: dict[str, tuple[int, ...]] = {}
        self._work: tuple[Executor, Crew] | None = None
        self._ends = Crew(lambda name, error: self._logger.debug("%s: %s", name, error_reason(error)))
        self._stopped: Exception | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # ── From outside ────────────────────────────────────────────────────────────────────────────────────────────────

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
    ) -> Committed:
        """Start a run with all else that changes with it: `commit` has one start, its row. `accepted` as a store in
        memory takes it.

        Raises:
            EngineClosedError, EngineStoppedError: nothing has changed.
            CommitRefusedError, DatabaseError: the store refused.
        """
        self._check_open()
        (row,) = commit.starts
        entries = [encode_entry(Started(at=self._clock.now(), request=raw(request))), *steps_of(seed, row.run_id)]
        slim, bodies = taken_out(entries, row.run_id)
        commit_now = commit_now_of(self._store)
        # In memory the worker that serves begins at once. Elsewhere a start that is cut short may be kept, and then
        # must not belong to a worker that knows nothing of it.
        worker = self._worker if self._is_joined and commit_now is not None else ""
        status = Status.RUNNING if worker else Status.PENDING
        row = replace(row, entries=tuple(slim), agent=self._agent, worker=worker, status=status)
        commit = replace(commit, starts=(row,), bodies=bodies)
        done = await self._store.commit(commit) if commit_now is None else commit_now(commit, accepted)
        if worker:
            lease, position = Lease(row.run_id, worker, 1), len(entries)
            run = LeasedRun(request=request, lease=lease, position=position, group=row.group, parent=row.parent)
            await self._begin(run, entries)
        else:
            self._next.changed.set()
        return done

    async def _begin(self, run: LeasedRun, entries: Sequence[bytes]) -> None:
        """Carry a run that was started with this worker as its owner, which may have stopped meanwhile."""
        if self._is_joined:
            self._take_up(run, entries)
        else:
            guard = Guard(lease=run.lease, position=run.position)
            with suppress(LeaseLostError):  # the end of the worker has freed it
                await self._store.commit(Commit(guard=guard, change=_READY))

    async def send(self, run_id: str, control: ControlEvent) -> bool:
        self._check_open()
        row = await self._reader.row(run_id)
        stamped = self._controls.checked(row, control)
        if is_blocked(row):
            self._logger.warning(KEPT, run_id, control.type, row.blocked)
        carried = self._carried.get(run_id)
        if carried is not None and carried.mailbox is not None:
            carried.mailbox.check_open(control)
        if carried is not None or (self._work is not None and not row.owner):
            await check_handles(self._pauses, row.quadruple, stamped)  # it goes on here, if it does
        is_new = await self._controls.keep(stamped)
        await self._deliver_now(run_id)  # a run that is carried here has it when this returns
        self._next.changed.set()
        return is_new

    async def result(self, run_id: str) -> Finish:
        has_looked = False
        while True:
            looks_again = self._work is None
            with self._waiters.waiting(run_id) as waiter:
                if run_id not in self._carried:
                    # A worker that begins to serve may have the code that a blocked run needs.
                    was_tried = self._has_tried if self._work is not None else has_looked
                    finish, is_known = await self._reader.ending(run_id, self._logger, was_tried=was_tried)
                    has_looked = True
                    if finish is not None:
                        return finish
                    looks_again |= not is_known
                self._check_open()
                finish = await self._waiters.ended(waiter, look_s=_LOOK_S if looks_again else 0.0)
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
            return await self.send(run_id, cancellation(row.quadruple, hard=hard))
        return False

    async def untaken(self, run_id: str) -> builtins.list[ControlEvent]:
        """The controls that a run was sent and that it has not heard of when its worker stopped."""
        return await self._controls.unread(run_id, besides=self._unrecorded.get(run_id, ()))

    async def wake(self, run_id: str) -> None:
        """Look at a parked run again: what it waits for may have come."""
        await self._store.commit(Commit(wakes=(run_id,)))
        self._next.changed.set()

    async def serve(self, program: Program, effects: EffectTable) -> None:
        if self._is_closed:
            raise EngineClosedError()
        if self._work is not None:
            raise EngineError("this host is being served already; stop the other worker first")
        crew = Crew(lambda name, error: self._logger.error("%s: %s", name, error_reason(error)))
        carriage = Executor(
            program=program,
            effects=effects,
            pauses=self._pauses,
            clock=self._clock,
            recheck_s=self._recheck_s,
            logger=self._logger,
            refusals=(BusStalledError, DatabaseError),
        )
        self._work, self._stopped, self._loop = (carriage, crew), None, asyncio.get_running_loop()
        unlisten = self._store.on_change(self._next.changed.set)
        alive = Crew(lambda name, error: self._logger.error("%s: %s", name, error_reason(error)))
        joined = asyncio.Event()
        try:
            sign = alive.start(keep_alive(self._store, self._worker, self._clock, joined=joined), "sign of life")
            sign.add_done_callback(lambda _: joined.set())
            sign.add_done_callback(lambda _: self._next.changed.set())
            await joined.wait()
            self._is_joined = True
            await self._attend(sign)
        except Exception as error:
            self._stopped = error
            raise
        finally:
            self._work, self._is_joined = None, False
            self._waiters.notify_others()
            unlisten()
            await crew.aclose()
            await alive.aclose()

    async def aclose(self) -> None:
        """Take nothing more; who waits for a result is told, an end on its way gets a second. Stop serving first."""
        self._is_closed = True
        self._waiters.notify_others()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_GRACE_S):
                await self._ends.join()
        await self._ends.aclose()

    # ── Carrying ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _attend(self, sign: asyncio.Task[None]) -> None:
        """Take up what is ready, hand on what was sent, let go of what only waits; until cancelled.

        Raises:
            EngineError: the worker's sign of life has ended, so others would take what is taken up here.
        """
        is_first, self._has_tried = True, False
        while True:
            self._next.changed.clear()
            if sign.done():
                cause = None if sign.cancelled() else sign.exception()
                raise EngineError(f"its worker gives no sign of life any more: {cause}") from cause
            try:
                if is_first and (blocked := await self._reader.blocked(self._agent)):
                    await self._store.unblock(blocked)  # code that was wrong may be right now
                is_first, is_more = False, True
                while is_more:
                    claims = await self._store.claim(self._worker, agent=self._agent, limit=_CLAIMS)
                    for claim in claims:
                        self._take_up(claimed(claim.row), claim.entries, claim.controls)
                    is_more = len(claims) == _CLAIMS
                self._has_tried = True
                await self._delivery.look()
                self._waiters.notify_others(self._carried)
                is_busy = bool(self._carried or self._waiters)
                await self._next.wait(at_most_s=max(self._linger_s / 2, SHORTEST_S) if is_busy else None)
            except HarborageError as error:
                self._logger.error("the store of runs: %s", error_reason(error))
                await sleep(self._clock, _HICCUP_S)

    def _take_up(self, run: LeasedRun, entries: Sequence[bytes], controls: Sequence[ControlRow] = ()) -> None:
        assert self._work is not None
        carriage, crew = self._work
        if run.lease.run_id not in self._carried:
            self._seat(run)
        run.task = crew.start(self._carry(run, carriage, entries, controls), f"run {run.lease.run_id}")

    def _seat(self, run: LeasedRun) -> None:
        run.inbox = self._inboxes.open(run.request.who)
        self._carried[run.lease.run_id] = run
        if self._sweeping is None:
            self._sweep()

    async def _supersede(self, run: LeasedRun) -> bool:
        """End what this worker still does for a run that it lost: it was thought dead, and has got the run anew.

        False when it has got it once more since then.
        """
        while (before := self._carried.get(run.lease.run_id)) is not run:
            if before is None or before.task is None:
                self._seat(run)
                self._next.changed.set()  # controls may have come before there was an inbox for them
            elif before.lease.fence > run.lease.fence:
                return False
            else:
                before.is_lost = True
                before.task.cancel(STOP)
                await asyncio.wait([before.task])
                self._let_go(before)  # one that never had its turn could not
        return True

    async def _carry(
        self, run: LeasedRun, carriage: Executor, entries: Sequence[bytes], controls: Sequence[ControlRow]
    ) -> None:
        """Carry one run to its end, to where it waits, or to where this host stops."""
        ledger = Ledger(self._store, run, self._ends, self._bus)
        try:
            if not await self._supersede(run):
                return
            with ledger.opened():
                released = await contained(self._outcome(run, carriage, ledger, entries, controls))
        except RunTakenError as error:
            self._logger.warning("%s", error_reason(error))
            self._let_go(run)
        except Exception as error:  # noqa: BLE001 - a record that refuses, or what nobody foresaw: it is tried again
            self._logger.error("run %s is given back: %s", run.lease.run_id, error_reason(error))
            self._let_go(run)
            await self._release(run, ledger, _READY, wait_s=_HICCUP_S)
        except asyncio.CancelledError:
            if self._work is None:
                self._unrecorded[run.lease.run_id] = run.heard()
            self._let_go(run)
            await self._release(run, ledger, run.given_back())
            raise
        else:
            self._let_go(run)
            if released is not None:
                await self._release(run, ledger, released)
        finally:
            ledger.close()
            self._next.changed.set()

    async def _outcome(
        self,
        run: LeasedRun,
        carriage: Executor,
        ledger: Ledger,
        stored: Sequence[bytes],
        controls: Sequence[ControlRow],
    ) -> Change | None:
        """How the run is given back now that it is carried no further; None once its end is recorded."""
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
            result = await carriage.perform(run_id, run, ledger, entries, is_stopping=lambda: self._is_leaving(run))
            ending = Concluded.of(result)
            entry = encode_entry(Ended(at=self._clock.now(), finish=raw(ending.finish)))
            change = Change(status=ending.status, reason=str(ending.finish.reason), outcome=ending.outcome)
        except (RunTakenError, RecordRefusedError):
            raise
        except RunPutOffError as error:
            self._logger.warning("%s", error_reason(error), extra=ANNOUNCED)
            return put_off(run, error)
        except UNREADABLE as error:
            return self._blocked(error)
        except DatabaseError as error:
            raise RecordRefusedError(run_id, error_text(error)) from error
        except Exception as error:  # noqa: BLE001 - kept as the run's result
            run.ending = self._reader.failed(run_id, error)
            what, why = run.ending.error, run.ending.message
            entry = encode_entry(Ended(at=self._clock.now(), error=what, message=why))
            outcome = b"" if self._outcome_of is None else self._outcome_of(error)
            change = Change(status=Status.FAILED, reason=f"{what}: {why}", outcome=outcome)
        recording = self._end(run, ledger, entry, change)
        if ledger.append_now is None:
            # Asked to stop meanwhile, this host goes; the end, which may be kept by then, is told of all the same.
            await asyncio.shield(self._ends.start(recording, f"end of {run_id}"))
        else:
            await recording
        if run.ending is None and run_id in self._waiters:
            run.ending = finish_of(decode_entry(entry, run_id, -1), run_id)
        return None

    async def _end(self, run: LeasedRun, ledger: Ledger, entry: bytes, change: Change) -> None:
        """Record the end of a run, and do what follows from it for its task."""
        follow = await ledger.end(entry, change, self._refused, self._run_ends)
        if follow is not None:
            self._ends.start(follow, f"what follows from the end of {run.lease.run_id}")

    def _blocked(self, error: Exception) -> Change:
        """How a run is given back that other code, or a repair, must come to."""
        self._logger.error("%s", error_reason(error))
        return Change(release=True, blocked=error_text(error))

    def _is_leaving(self, run: LeasedRun) -> bool:
        return self._work is None or run.parked is not None or run.is_lost

    def _let_go(self, run: LeasedRun) -> None:
        """Carry the run no more."""
        if self._carried.get(run.lease.run_id) is run:
            del self._carried[run.lease.run_id]
        inbox, ending = run.inbox, run.ending
        run.inbox = run.ending = None  # an error's traceback keeps `run`
        if inbox is not None:
            self._inboxes.retire(inbox.identity)
            self._waiters.notify(run.lease.run_id, ending)

    async def _release(self, run: LeasedRun, ledger: Ledger, change: Change, *, wait_s: float = 0.0) -> None:
        """Give a run back; a store that refuses is asked again, for as long as this host serves."""
        while True:
            if wait_s:
                await sleep(self._clock, wait_s)
            try:
                await ledger.release(change)
                return
            except HarborageError as error:
                self._logger.error("run %s is not given back: %s", run.lease.run_id, error_reason(error))
                if self._work is None:
                    return  # the end of this worker frees its runs
                wait_s = _HICCUP_S

    async def _deliver_now(self, run_id: str) -> None:
        """As `_deliver`, for the sake of one run; a store that refuses is asked again with the next look."""
        try:
            await self._delivery.look()
        except HarborageError as error:
            self._logger.warning("run %s has its controls a moment later: %s", run_id, error_reason(error))

    def _sweep(self) -> None:
        """Let go of runs that have only waited for a while; where they stand is in their record. Again in a moment."""
        now = self._clock.monotonic()
        for run in self._carried.values():
            waiting = run.idle(now, self._linger_s)
            if waiting is not None and run.task is not None and run.parked is None:
                why = run.unreadable
                run.parked = parked(run, waiting, self._clock.now()) if why is None else self._blocked(why)
                run.task.cancel(STOP)
        again_s = max(self._linger_s / 2, SHORTEST_S)
        self._sweeping = self._clock.call_later(again_s, self._sweep) if self._carried and self._work else None

    # ── What is known of runs ───────────────────────────────────────────────────────────────────────────────────────

    def _status(self, row: RunRow) -> RunStatus:
        run = self._carried.get(row.run_id)
        return status_of(row, is_parked=run is not None and run.mailbox is not None and run.mailbox.is_parked)

    def _check_open(self) -> None:
        if self._is_closed:
            raise EngineClosedError()
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            raise EngineElsewhereError()
        if self._stopped is not None:
            raise EngineStoppedError(str(self._stopped) or type(self._stopped).__name__) from self._stopped
