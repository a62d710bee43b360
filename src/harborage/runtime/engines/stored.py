"""A host of runs over a store that outlives it, and that other processes may share.

Every run is carried by one worker at a time, which holds its lease; what it records is refused once the lease is lost.
A run that only waits leaves memory after a while, and is folded again from its record when there is a reason to.
"""

from __future__ import annotations

import asyncio
import builtins
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from harborage.clock import SYSTEM_CLOCK, Timers, sleep
from harborage.concurrency import STOP, Crew
from harborage.crashes import contained
from harborage.errors import HarborageError, error_reason, error_text
from harborage.events import ANNOUNCED, BusStalledError
from harborage.identity import require_quadruple
from harborage.ids import new_id
from harborage.runtime.durable import (
    ControlUnreadableError,
    EngineClosedError,
    EngineError,
    EngineStoppedError,
    HistoryMismatchError,
    Program,
    RecordRefusedError,
    RunNotFoundError,
    RunPutOffError,
    RunRequest,
    RunStatus,
    RunTakenError,
)
from harborage.runtime.engines.answers import Answers, check_handles
from harborage.runtime.engines.bodies import taken_out
from harborage.runtime.engines.carrying import Carriage, failure_of
from harborage.runtime.engines.histories import finish_of, request_of, steps_of
from harborage.runtime.engines.leased import Carried, Ledger, parked, put_off, settle, told
from harborage.runtime.engines.reader import KEPT, RunReader, is_blocked, status_of
from harborage.runtime.engines.sending import MAX_UNREAD, Desk
from harborage.runtime.journal import Ended, JournalCorruptError, Started, decode_entry, encode_entry, raw
from harborage.runtime.steering.controls import ControlEvent, ControlType, Scope
from harborage.runtime.steering.inbox import InboxRegistry
from harborage.state.errors import DatabaseCorruptError, DatabaseError
from harborage.state.runs import (
    Claim,
    EntryMissingError,
    Lease,
    RunQueue,
    RunRecord,
    RunStore,
    Stand,
    Standing,
    Write,
)

if TYPE_CHECKING:
    from harborage.planner import Finish
    from harborage.runtime.effects import EffectTable
    from harborage.runtime.pauses import PauseCoordinator

__all__ = ["StoredEngine"]

_LINGER = timedelta(seconds=1)
_RECHECK = timedelta(seconds=30)
_CLAIMS = 100
_CAUSES = 1000
_HICCUP_S = 1.0
_LOOK_S = 0.25
_SHORTEST_DOZE_S = 0.05
_UNREADABLE = (
    ControlUnreadableError,
    DatabaseCorruptError,
    EntryMissingError,
    HistoryMismatchError,
    JournalCorruptError,
)


class StoredEngine:
    """Runs of one store, carried by this process as `worker` while it serves; start, send and read work at any time.

    `agent` is written into the runs that are started here and names those that are carried here. A run that only waits
    leaves memory after `linger`. `refused` hears of every control that its run, being over, never took. `max_unread`
    controls may wait for a run, besides a CANCEL; `answers` knows which answers came to nothing.
    """

    def __init__(
        self,
        store: RunStore,
        queue: RunQueue,
        pauses: PauseCoordinator,
        *,
        agent: str = "",
        worker: str = "",
        inboxes: InboxRegistry | None = None,
        clock: Timers = SYSTEM_CLOCK,
        linger: timedelta = _LINGER,
        recheck: timedelta = _RECHECK,
        refused: Callable[[ControlEvent], None] | None = None,
        max_unread: int = MAX_UNREAD,
        answers: Answers | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        self._desk = Desk(queue, Answers() if answers is None else answers, clock, most=max_unread)
        self._store = store
        self._reader = RunReader(store)
        self._queue = queue
        self._pauses = pauses
        self._agent = agent
        self._worker = worker or new_id()
        self._inboxes = InboxRegistry(clock=clock) if inboxes is None else inboxes
        self._clock = clock
        self._linger_s = linger.total_seconds()
        self._recheck_s = recheck.total_seconds()
        self._refused = refused
        self._logger = logging.getLogger(__name__) if logger is None else logger
        self._carried: dict[str, Carried] = {}
        self._causes: OrderedDict[str, Exception] = OrderedDict()
        self._changed = asyncio.Event()
        self._looking = asyncio.Lock()
        self._looks = self._looked = 0
        self._swept_at = 0.0
        self._was_due = self._has_tried = False
        self._waiters: dict[str, set[asyncio.Future[Finish | None]]] = {}
        self._work: tuple[Carriage, Crew] | None = None
        self._is_closed = False
        self._stopped: Exception | None = None

    # ── From outside ────────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self, run_id: str, request: RunRequest, *, seed: Sequence[bytes] = ()) -> None:
        require_quadruple(request.who, "start")
        self._check_open()
        now = self._clock.now()
        started = encode_entry(Started(at=now, request=raw(request)))
        slim, bodies = taken_out([started, *steps_of(seed, run_id)], run_id)
        record = RunRecord(
            run_id=run_id, who=request.who, goal=request.goal, agent=self._agent, created_at=now, updated_at=now
        )
        await self._store.create(record, Write(entries=slim, bodies=bodies))
        self._changed.set()

    async def send(self, run_id: str, control: ControlEvent) -> bool:
        self._check_open()
        record = await self._reader.record(run_id)
        stamped = self._desk.checked(record, control)
        if is_blocked(record):
            self._logger.warning(KEPT, run_id, control.type, record.standing.reason)
        carried = self._carried.get(run_id)
        if carried is not None and carried.mailbox is not None:
            carried.mailbox.check_open(control)
        if carried is not None or (self._work is not None and not record.owner):
            await check_handles(self._pauses, record.who, stamped)  # it goes on here, if it does
        is_new = await self._desk.keep(stamped)
        await self._deliver_now(run_id)  # a run that is carried here has it when this returns
        self._changed.set()
        return is_new

    async def result(self, run_id: str) -> Finish:
        has_looked = False
        while True:
            waiter: asyncio.Future[Finish | None] = asyncio.get_running_loop().create_future()
            self._waiters.setdefault(run_id, set()).add(waiter)
            looks_again = self._work is None
            try:
                if run_id not in self._carried:
                    # A worker that begins to serve may have the code that a blocked run needs.
                    was_tried = self._has_tried if self._work is not None else has_looked
                    finish, is_known = await self._reader.ending(run_id, self._causes, self._logger, was_tried)
                    has_looked = True
                    if finish is not None:
                        return finish
                    looks_again |= not is_known
                self._check_open()
                finish = await told(waiter, self._clock, look_s=_LOOK_S if looks_again else 0.0)
                if finish is not None:
                    return finish
            finally:
                self._waiters[run_id].discard(waiter)
                if not self._waiters[run_id]:
                    del self._waiters[run_id]

    async def status(self, run_id: str) -> RunStatus:
        return self._status(await self._reader.record(run_id))

    async def list(self) -> list[RunStatus]:
        return [self._status(record) for record in await self._reader.records()]

    async def history(self, run_id: str) -> builtins.list[bytes]:
        await self._reader.record(run_id)
        return [encode_entry(entry) for entry in await self._reader.entries(run_id)]

    async def cancel(self, run_id: str, *, hard: bool = False) -> bool:
        """Send the run a CANCEL of its own; False when it has ended already."""
        record = await self._reader.record(run_id)
        who, payload = record.who, {"hard": True} if hard else None
        try:
            return await self.send(run_id, ControlEvent(ControlType.CANCEL, who, Scope.ADMIN, who.tenant_id, payload))
        except RunNotFoundError:
            return False

    async def wake(self, run_id: str) -> None:
        """Look at a parked run again: what it waits for may have come."""
        await self._queue.wake(run_id)
        self._changed.set()

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
            refusals=(BusStalledError, DatabaseError),
        )
        self._work, self._stopped = (carriage, crew), None
        unlisten = self._queue.on_change(self._changed.set)
        alive = Crew(lambda name, error: self._logger.error("%s: %s", name, error_reason(error)))
        try:
            sign = alive.start(self._queue.keep_alive(self._worker), "sign of life")
            sign.add_done_callback(lambda _: self._changed.set())
            await asyncio.sleep(0)
            await self._attend(sign)
        except Exception as error:
            self._stopped = error
            raise
        finally:
            self._work = None
            self._tell_all()
            unlisten()
            await crew.aclose()
            await alive.aclose()

    async def aclose(self) -> None:
        """Take nothing more; whoever waits for a result is told. Stop serving first. Closing twice does nothing."""
        self._is_closed = True
        self._tell_all()

    # ── Carrying ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _attend(self, sign: asyncio.Task[None]) -> None:
        """Take up what is ready, hand on what was sent, let go of what only waits; until cancelled.

        Raises:
            EngineError: the worker's sign of life has ended, so others would take what is taken up here.
        """
        blocked, behind, self._has_tried = True, "", False  # code that was wrong may be right now
        while True:
            self._changed.clear()
            if sign.done():
                cause = None if sign.cancelled() else sign.exception()
                raise EngineError(f"its worker gives no sign of life any more: {cause}") from cause
            try:
                is_more = True
                while is_more:
                    claims = await self._queue.claim(
                        self._worker, agent=self._agent, limit=_CLAIMS, blocked=blocked, behind=behind
                    )
                    for claim in claims:
                        self._take_up(claim)
                        if claim.record.standing.stand is Stand.BLOCKED:
                            behind = claim.record.run_id
                    is_more = len(claims) == _CLAIMS
                    blocked = blocked and is_more
                self._has_tried = True
                await self._deliver()
                self._sweep()
                self._tell_strangers()
                await self._doze()
            except HarborageError as error:
                self._logger.error("the store of runs: %s", error_reason(error))
                await sleep(self._clock, _HICCUP_S)

    def _take_up(self, claim: Claim) -> None:
        record, lease = claim
        assert self._work is not None
        carriage, crew = self._work
        run = Carried(request=RunRequest(who=record.who, goal=record.goal), inbox=None, lease=lease)
        if record.run_id not in self._carried:
            self._seat(run)
        run.task = crew.start(self._carry(run, carriage), f"run {record.run_id}")

    def _seat(self, run: Carried) -> None:
        run.inbox = self._inboxes.open(run.request.who)
        self._carried[run.lease.run_id] = run

    async def _supersede(self, run: Carried) -> bool:
        """End what this worker still does for a run that it lost: it was thought dead, and has got the run anew.

        False when it has got it once more since then.
        """
        while (before := self._carried.get(run.lease.run_id)) is not run:
            if before is None or before.task is None:
                self._seat(run)
                self._changed.set()  # controls may have come before there was an inbox for them
            elif before.lease.fence > run.lease.fence:
                return False
            else:
                before.is_lost = True
                before.task.cancel(STOP)
                await asyncio.wait([before.task])
        return True

    async def _carry(self, run: Carried, carriage: Carriage) -> None:
        """Carry one run to its end, to where it waits, or to where this host stops."""
        try:
            if not await self._supersede(run):
                return
            standing = await contained(self._outcome(run, carriage, Ledger(self._store, run)))
        except RunTakenError as error:
            self._logger.warning("%s", error_reason(error))
            self._let_go(run)
        except Exception as error:  # noqa: BLE001 - a record that refuses, or what nobody foresaw: it is tried again
            self._logger.error("run %s is given back: %s", run.lease.run_id, error_reason(error))
            self._let_go(run)
            await self._release(run.lease, Standing(), wait_s=_HICCUP_S)
        except asyncio.CancelledError:
            self._let_go(run)
            await self._release(run.lease, Standing() if run.parked is None else run.parked)
            raise
        else:
            left = self._let_go(run)
            if standing.stand.is_final:
                self._report(left)
            else:
                await self._release(run.lease, standing)
        self._changed.set()

    async def _outcome(self, run: Carried, carriage: Carriage, ledger: Ledger) -> Standing:
        """How the run stands now that it is carried no further; what it ended with is recorded."""
        run_id = run.lease.run_id
        try:
            entries = await self._reader.entries(run_id)
            run.request = request_of(run_id, entries)
            await run.has_mail.wait()  # what was sent before it was claimed comes before its first step
            if run.unreadable is not None:
                raise run.unreadable
            finish = await carriage.perform(run_id, run, ledger, entries, is_stopping=lambda: self._is_leaving(run))
            entry = encode_entry(Ended(at=self._clock.now(), finish=raw(finish)))
            standing = Standing(stand=Stand.FINISHED, reason=str(finish.reason))
        except (RunTakenError, RecordRefusedError):
            raise
        except RunPutOffError as error:
            self._logger.warning("%s", error_reason(error), extra=ANNOUNCED)
            return put_off(run, error)
        except _UNREADABLE as error:
            return self._blocked(error)
        except DatabaseError as error:
            raise RecordRefusedError(run_id, error_text(error)) from error
        except Exception as error:  # noqa: BLE001 - kept as the run's result
            self._remember(run_id, error)
            name, message = failure_of(error)
            entry = encode_entry(Ended(at=self._clock.now(), error=name, message=message))
            standing = Standing(stand=Stand.FAILED, reason=f"{name}: {message}")
        await self._deliver_now(run_id)  # what was accepted since the last boundary is refused, not dropped
        slim, bodies = taken_out([entry], run_id)
        await ledger.write(Write(entries=slim, bodies=bodies, taken=run.taken(), standing=standing))
        if standing.stand is Stand.FINISHED and run_id in self._waiters:
            run.finish = finish_of(decode_entry(entry, run_id, -1), run_id)
        return standing

    def _blocked(self, error: Exception) -> Standing:
        """How a run stands that other code, or a repair, must come to."""
        self._logger.error("%s", error_reason(error))
        return Standing(stand=Stand.BLOCKED, reason=error_text(error))

    def _is_leaving(self, run: Carried) -> bool:
        return self._work is None or run.parked is not None or run.is_lost

    def _let_go(self, run: Carried) -> builtins.list[ControlEvent]:
        """Carry the run no more; returns the controls that it never took."""
        if self._carried.get(run.lease.run_id) is run:
            del self._carried[run.lease.run_id]
        inbox, run.inbox = run.inbox, None
        if inbox is None:
            return []
        left = inbox.drain()
        self._inboxes.retire(inbox.identity)
        self._tell(run.lease.run_id, run.finish)
        return left

    async def _release(self, lease: Lease, standing: Standing, *, wait_s: float = 0.0) -> None:
        """Give a run back; a store that refuses is asked again, for as long as this host serves."""
        while True:
            if wait_s:
                await sleep(self._clock, wait_s)
            try:
                await self._queue.release(lease, standing)
                return
            except HarborageError as error:
                self._logger.error("run %s is not given back: %s", lease.run_id, error_reason(error))
                if self._work is None:
                    return  # the end of this worker frees its runs
                wait_s = _HICCUP_S

    def _report(self, left: Sequence[ControlEvent]) -> None:
        if self._refused is not None:
            for control in left:
                self._refused(control)

    async def _deliver_now(self, run_id: str) -> None:
        """As `_deliver`, for the sake of one run; a store that refuses is asked again with the next look."""
        try:
            await self._deliver()
        except HarborageError as error:
            self._logger.warning("run %s has its controls a moment later: %s", run_id, error_reason(error))

    async def _deliver(self) -> None:
        """Hand what was sent, by any process, to the runs that are carried here; one look serves all who ask for it."""
        wanted = self._looks + 1
        async with self._looking:
            if self._looked >= wanted or not self._carried:
                return  # a look that began since has found it
            self._looks = number = self._looks + 1
            carried = list(self._carried.values())
            for sent in await self._queue.arrived(self._worker):
                run = self._carried.get(sent.run_id)
                if run is not None:
                    run.admit(sent)
            for run in carried:
                run.has_mail.set()
            self._looked = number

    def _sweep(self) -> None:
        """Let go of runs that have only waited for a while; where they stand is in their record."""
        now = self._clock.monotonic()
        if now - self._swept_at < self._linger_s / 2:
            return  # every change comes here: looking at all runs each time would cost their number squared
        self._swept_at = now
        for run in self._carried.values():
            waiting = None if run.mailbox is None else run.mailbox.waiting
            if waiting is None or run.task is None:
                run.idle_since = None
            elif run.idle_since is None:
                run.idle_since = now
            elif now - run.idle_since >= self._linger_s and run.parked is None:
                if run.unreadable is None:
                    run.parked = parked(waiting, self._clock.now())
                else:
                    run.parked = self._blocked(run.unreadable)
                run.task.cancel(STOP)

    async def _doze(self) -> None:
        """Wait for a change, for the next time that a parked run waits for, or for the next look at those carried."""
        if self._changed.is_set():
            return
        delay_s = self._recheck_s
        if self._carried or self._waiters:
            delay_s = min(delay_s, max(self._linger_s / 2, _SHORTEST_DOZE_S))
        wake_at = await self._queue.next_wake(agent=self._agent)
        left_s = delay_s if wake_at is None else (wake_at - self._clock.now()).total_seconds()
        # At once only once: the store tells what is due by a clock of its own, which may be behind this one.
        self._was_due, was_due = left_s <= 0, self._was_due
        delay_s = min(delay_s, max(left_s, _SHORTEST_DOZE_S if was_due else 0.0))
        timer = self._clock.call_later(delay_s, self._changed.set)
        try:
            await self._changed.wait()
        finally:
            timer.cancel()

    # ── What is known of runs ───────────────────────────────────────────────────────────────────────────────────────

    def _status(self, record: RunRecord) -> RunStatus:
        run = self._carried.get(record.run_id)
        return status_of(record, is_parked=run is not None and run.mailbox is not None and run.mailbox.is_parked)

    def _remember(self, run_id: str, cause: Exception) -> None:
        self._causes[run_id] = cause
        while len(self._causes) > _CAUSES:
            self._causes.popitem(last=False)

    def _tell(self, run_id: str, finish: Finish | None = None) -> None:
        for waiter in self._waiters.get(run_id, ()):
            settle(waiter, finish)

    def _tell_all(self) -> None:
        for run_id in list(self._waiters):
            self._tell(run_id)

    def _tell_strangers(self) -> None:
        """Let those look again who wait for a run that another worker carries."""
        for run_id in [one for one in self._waiters if one not in self._carried]:
            self._tell(run_id)

    def _check_open(self) -> None:
        if self._is_closed:
            raise EngineClosedError()
        if self._stopped is not None:
            raise EngineStoppedError(str(self._stopped) or type(self._stopped).__name__) from self._stopped
