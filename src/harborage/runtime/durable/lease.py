"""A run as its worker holds it: the lease to write its record, how far that goes, and the controls it was handed."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from harborage import codec
from harborage.errors import HarborageError, error_reason, error_text
from harborage.identity import bound
from harborage.runtime.durable.bodies import taken_out
from harborage.runtime.durable.engine import ControlUnreadableError, RecordRefusedError, RunTakenError
from harborage.runtime.durable.event_buffer import BufferedEvent, RunEventBuffer
from harborage.runtime.durable.inbox import Inbox
from harborage.runtime.durable.journal import is_outcome
from harborage.runtime.durable.mailbox import Mailbox
from harborage.runtime.durable.reader import Ending
from harborage.runtime.loop.controls import ControlEvent
from harborage.runtime.loop.seam import RunRequest
from harborage.store import Change, Commit, Committed, Guard, Lease, RunQuery
from harborage.store.errors import (
    ControlsLeftError,
    LeaseLostError,
    RowNotFoundError,
    RunCycleError,
    StatusConflictError,
)
from harborage.store.port import commit_now_of
from harborage.tasks.closing import EndedRun

if TYPE_CHECKING:
    from harborage.concurrency import Crew
    from harborage.events import RecordBus
    from harborage.runtime.durable.steps import Waiting
    from harborage.store import ControlRow, Records, RunRow, Store
    from harborage.tasks.closing import Closing, RunEnds

Refuse: TypeAlias = Callable[[ControlEvent], None]
"""Says of a control that it came too late."""

_log = logging.getLogger(__name__)

CONTROLS_PAGE: Final = 100
"""How many controls of a run are read at a time."""

_PROGRESS = Change(progress=True)
_STOPPED = Change(release=True, is_ready=True, progress=True)  # that its worker stops is not the run's fault
_NO_BODIES: Mapping[str, bytes] = {}


class LeasedRun(msgspec.Struct, kw_only=True):
    """A run that this worker carries, of whose journal `position` entries are kept.

    `attempts` counts its claims since it last made progress; `sent` are the controls that were handed to its inbox, by
    number, as far as they are not known to be taken; `parked` is what it is given back with when it leaves memory;
    `ending` is how it ended, where somebody waits for that; `is_lost` says that another worker has it; `unreadable` is
    why it can go no further than its next boundary; `group` is that of its task, `parent` the run that started it;
    `tool_calls` counts the calls it made here, `unsaved` are entries that are kept with its end.
    """

    request: RunRequest
    lease: Lease
    position: int = 0
    attempts: int = 0
    inbox: Inbox | None = None
    mailbox: Mailbox | None = None
    sent: deque[tuple[int, ControlEvent]] = msgspec.field(default_factory=deque)
    delivered: int = 0
    idle_since: float | None = None
    parked: Change | None = None
    ending: Ending | None = None
    is_lost: bool = False
    unreadable: ControlUnreadableError | None = None
    task: asyncio.Task[None] | None = None
    group: str = ""
    parent: str = ""
    tool_calls: int = 0
    unsaved: list[bytes] = []

    def idle(self, now: float, linger_s: float) -> Waiting | None:
        """What the run waits for, if it has done nothing else for `linger_s` seconds; to be asked every so often."""
        waiting = None if self.mailbox is None or self.task is None else self.mailbox.waiting
        if waiting is None or self.idle_since is None:
            self.idle_since = None if waiting is None else now
            return None
        return waiting if now - self.idle_since >= linger_s else None

    def given_back(self) -> Change:
        """How the run is given back where it was cut short: as its worker decided when it let it leave memory, or else
        ready for another worker. A control that was handed over after that decision may be taken and not applied, so
        it makes the run ready, too."""
        if self.parked is None:
            return _STOPPED
        is_current = self.parked.blocked is not None or self.delivered == self.parked.seen_control
        return self.parked if is_current else replace(self.parked, is_ready=True)

    async def fetch(self, records: Records) -> None:
        """Hand over everything that was sent and is not handed over yet."""
        while True:
            page = await records.controls(self.lease.run_id, after=self.delivered, limit=CONTROLS_PAGE)
            for sent in page:
                self.admit(sent)
            if len(page) < CONTROLS_PAGE or self.inbox is None or self.unreadable is not None:
                return

    def admit(self, sent: ControlRow) -> None:
        """Hand a control to the run's inbox, if that has not got it yet.

        One that cannot be read stops the run at its next boundary, and nothing sent after it is handed over.
        """
        if self.inbox is None or sent.number <= self.delivered or self.unreadable is not None:
            return
        try:
            control = codec.decode(sent.data, ControlEvent)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            self.unreadable = ControlUnreadableError(self.lease.run_id, sent.number, sent.event_id, error_text(error))
            if self.mailbox is not None:
                self.mailbox.refuse(self.unreadable)
            return
        self.delivered = sent.number
        self.sent.append((sent.number, control))
        self.inbox.admit(control)

    def taken(self) -> tuple[int, ...]:
        """The numbers of the controls that have left the inbox since this was last asked.

        An answer that was handed to its call may leave before others that came first.
        """
        if not self.sent:
            return ()
        waiting = set() if self.inbox is None else {id(control) for control in self.inbox.peek()}
        numbers = tuple(number for number, control in self.sent if id(control) not in waiting)
        if numbers:
            self.sent = deque(one for one in self.sent if id(one[1]) in waiting)
        return numbers

    def hand_out(self, control: ControlEvent) -> int:
        """The number of a control, which the caller sees consumed from here on; 0 for one that was not handed over."""
        for one in self.sent:
            if one[1] is control:
                self.sent.remove(one)
                return one[0]
        return 0

    def heard(self) -> tuple[int, ...]:
        """The numbers of the controls that are in the inbox no more, whichever came first."""
        waiting = [] if self.inbox is None else self.inbox.peek()
        return tuple(number for number, control in self.sent if not any(control is one for one in waiting))

    def left(self) -> list[ControlEvent]:
        """The controls that the run was handed and never took."""
        return [control for _, control in self.sent]


class _Closing(NamedTuple):
    """What ends a group with its last member, and its event as it is kept."""

    what: Closing
    event: BufferedEvent


class Ledger:
    """The record of one run as it is written while it is carried: under the lease of its worker, or not at all.

    Over the store of its bus it keeps what the run publishes as well, from `opened` to `close`. `crew` sees to the end
    of what must not be cut short.
    """

    def __init__(self, store: Store, run: LeasedRun, crew: Crew, bus: RecordBus | None = None) -> None:
        self._store = store
        self._run = run
        self._crew = crew
        self._bus = bus
        self._news: RunEventBuffer | None = None
        self._taken: tuple[int, ...] = ()
        self._unsure = self._unsure_news = 0
        self._telling: asyncio.Task[None] | None = None
        self._is_torn = False
        self._commit_now = commit_now_of(store)

    @property
    def append_now(self) -> Callable[[str, Sequence[bytes]], None] | None:
        """`append` without an await, where the store is in memory; None for every other."""
        return None if self._commit_now is None else self._append_now

    @property
    def news(self) -> RunEventBuffer | None:
        """What the run published and what is not kept yet; None where its bus keeps that."""
        return self._news

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Take what the run publishes from now on; what happens in the block is done by the run."""
        who = self._run.request.who
        if self._bus is not None and self._bus.store is self._store:
            self._news = RunEventBuffer(self._bus, who, self._run.hand_out)
        with bound(who):
            yield

    def close(self) -> None:
        """Take no more of it. Of entries that were refused what they announced is dropped, as it did not happen."""
        self._forget_torn()
        news, self._news = self._news, None
        if news is not None:
            if self._run.is_lost:
                news.forget()
            news.forget_held()
            news.close()

    def _forget_torn(self) -> None:
        """Drop what was published with entries that were refused; what may be kept all the same is looked for."""
        if self._is_torn and self._news is not None:
            self._look_for_unsure()
            self._news.forget()

    def tell(self) -> asyncio.Task[None]:
        """Begin to keep what the run published by itself, which is done to its end though the run is cut short."""
        if self._telling is None:
            self._telling = self._crew.start(self._tell(), f"events of {self._run.lease.run_id}")
        return self._telling

    async def _tell(self) -> None:
        # What has left the inbox and is in no entry was handed to a call in flight: these events say what came of it.
        self._taken += self._left()
        try:
            await self._write((), {}, None)
        finally:
            self._telling = None

    def _left(self) -> tuple[int, ...]:
        """The controls that left the inbox, but for those that a step took whose outcome is not noted yet."""
        return () if self._news is not None and self._news.is_holding else self._run.taken()

    async def _told(self) -> None:
        """Wait until what is on its way by itself is kept, or refused."""
        if self._telling is not None:
            await asyncio.wait([self._telling])

    async def append(self, run_id: str, entries: Sequence[bytes]) -> None:
        """Add entries to the run's journal.

        Raises:
            RunTakenError, RecordRefusedError: nothing was written.
        """
        await self._told()
        slim, bodies = taken_out(entries, run_id)
        # Kept until it is written: an append that was cut short has not told the store what left the inbox before it.
        self._taken += self._left()
        progress = self._has_progress(entries)
        await self._write(slim, bodies, _PROGRESS if progress else None)
        if progress:
            self._run.attempts = 1

    def _append_now(self, run_id: str, entries: Sequence[bytes]) -> None:
        """Large values stay in their entries: in memory nothing is saved by keeping them apart."""
        assert self._commit_now is not None
        run = self._run
        progress = run.attempts > 1 and any(map(is_outcome, entries))
        told = () if self._news is None else self._news.leave()
        taken = self._left() if run.sent else ()
        try:
            done = self._commit_now(self._change(entries, _NO_BODIES, _PROGRESS if progress else None, taken, told))
        except LeaseLostError as error:
            run.is_lost = True
            raise RunTakenError(run_id) from error
        except HarborageError as error:
            self._come_back(told)
            self._is_torn = True
            raise RecordRefusedError(run_id, error_text(error)) from error
        run.position += len(entries)
        if progress:
            run.attempts = 1
        if self._news is not None:
            self._news.kept(told, done)

    def _has_progress(self, entries: Sequence[bytes]) -> bool:
        """Whether these entries end a row of attempts that came to nothing."""
        return self._run.attempts > 1 and any(map(is_outcome, entries))

    async def end(
        self, entry: bytes, change: Change, refuse: Refuse | None, ends: RunEnds | None = None
    ) -> Coroutine[Any, Any, None] | None:
        """End the run; returns what follows from that by `ends`, if anything. Of the controls that it never took, which
        are consumed with it, `refuse` says that each came too late: with the end where that can be kept together, else
        after it. So it is with the end of the group whose last member it was.

        Raises:
            RunTakenError, RecordRefusedError: nothing was written.
        """
        await self._told()
        slim, bodies = taken_out([*self._run.unsaved, entry], self._run.lease.run_id)
        change = replace(change, tool_calls=self._run.tool_calls)
        late: tuple[int, ...] = ()
        self._taken += self._run.taken()
        taken = self._taken
        refused = 0
        end = EndedRun.of(self._run.request.who, change, group=self._run.group, parent=self._run.parent)
        closing, is_refused = await self._closing(end, ends, is_refused=False), False
        while True:
            self._taken = (*taken, *(number for number, _ in self._run.sent), *late)
            if self._news is not None:
                refused = self._refuse(refused, refuse)
                self._news.let_go()
            try:
                done = await self._write(slim, bodies, change, closing)
            except ControlsLeftError as error:
                for control in error.controls:
                    self._run.admit(control)
                late = tuple(control.number for control in error.controls)  # one that cannot be read ends with its run
            except (StatusConflictError, RowNotFoundError) as error:
                if closing is None:
                    raise RecordRefusedError(self._run.lease.run_id, error_text(error)) from error
                # The group is not as it was taken to be: it is looked at, and if it moves again it ends after the run.
                closing, is_refused = None if is_refused else await self._closing(end, ends, is_refused=True), True
            else:
                self.close()
                self._refuse(refused, refuse)
                left = next(iter(done.left), None)
                return None if ends is None else ends.ended(end, left, None if closing is None else closing.what)

    async def _closing(self, end: EndedRun, ends: RunEnds | None, *, is_refused: bool) -> _Closing | None:
        """What ends the run's group with the run, where its event can be kept with that."""
        if ends is None or self._news is None or self._bus is None or not end.group:
            return None
        try:
            what = await ends.closing(end, is_refused=is_refused)
            return None if what is None else _Closing(what, BufferedEvent(*self._bus.prepare(what.event)))
        except HarborageError as error:
            _log.warning("group %s is ended after its last member: %s", end.group, error_reason(error))
            return None

    def _refuse(self, since: int, refuse: Refuse | None) -> int:
        """Refuse the controls that were left, but for those that were refused; how many they are now."""
        left = self._run.left()
        if refuse is not None:
            for control in left[since:]:
                refuse(control)
        return len(left)

    async def release(self, change: Change) -> None:
        """Give the run back; a lease that was lost is nothing to give back.

        Raises:
            HarborageError: the store refused.
        """
        await self._told()
        self._forget_torn()
        if self._news is not None:
            self._news.forget_held()
        change = replace(change, tool_calls=self._run.tool_calls)
        try:
            # Nothing is consumed but what is told of here: what else left the inbox and is in no entry is for whoever
            # goes on with the run.
            await self._commit((), {}, change, ())
        except RunCycleError:
            # What it waits for waits for it: it is looked at again at its time, and whoever looks over them says so.
            await self._commit((), {}, replace(change, awaits=""), ())
        except LeaseLostError:
            return

    async def _write(
        self,
        entries: Sequence[bytes],
        bodies: Mapping[str, bytes],
        change: Change | None,
        closing: _Closing | None = None,
    ) -> Committed:
        try:
            done = await self._commit(entries, bodies, change, self._taken, closing)
        except LeaseLostError as error:
            self._run.is_lost = True
            raise RunTakenError(self._run.lease.run_id) from error
        except (ControlsLeftError, StatusConflictError, RowNotFoundError):
            raise
        except BaseException as error:
            self._is_torn |= bool(entries)
            if isinstance(error, HarborageError):
                raise RecordRefusedError(self._run.lease.run_id, error_text(error)) from error
            raise
        if entries:
            self._is_torn = False
        return done

    async def _commit(
        self,
        entries: Sequence[bytes],
        bodies: Mapping[str, bytes],
        change: Change | None,
        taken: tuple[int, ...],
        closing: _Closing | None = None,
    ) -> Committed:
        run, news = self._run, self._news
        told = () if news is None else news.leave()
        try:
            done = await self._store.commit(self._change(entries, bodies, change, taken, told, closing))
        except asyncio.CancelledError:
            self._unsure, self._unsure_news = len(entries), len(told)
            self._come_back(told)
            raise
        except LeaseLostError:
            if not self._unsure:
                raise  # what was published did not happen, either
            self._come_back(told)
            if not await self._was_kept():
                raise
            # The append that was cut short was kept, and what is to be kept now begins with it.
            kept, self._unsure = self._unsure, 0
            run.position += kept
            self._look_for_unsure()
            return await self._commit(entries[kept:], bodies, change, taken, closing)
        except Exception:
            self._come_back(told)
            raise
        self._unsure = self._unsure_news = 0
        run.position += len(entries)
        self._taken = self._taken[len(taken) :]
        if news is not None:
            news.kept(told if closing is None else (*told, closing.event), done)
        return done

    def _look_for_unsure(self) -> None:
        """Let readers be told what an append that was cut short has kept; it is not kept again."""
        unsure, self._unsure_news = self._unsure_news, 0
        if self._news is not None:
            told = self._news.leave()
            self._news.kept(told[:unsure], Committed())
            self._news.come_back(told[unsure:])

    def _come_back(self, told: tuple[BufferedEvent, ...]) -> None:
        if self._news is not None:
            self._news.come_back(told)

    def _change(
        self,
        entries: Sequence[bytes],
        bodies: Mapping[str, bytes],
        change: Change | None,
        taken: tuple[int, ...],
        told: tuple[BufferedEvent, ...],
        closing: _Closing | None = None,
    ) -> Commit:
        guard = Guard(lease=self._run.lease, position=self._run.position)
        if closing is not None:
            told = (*told, closing.event)
        if not told:
            return Commit(guard=guard, entries=tuple(entries), bodies=bodies, change=change, consumed=taken)
        return Commit(
            guard=guard,
            entries=tuple(entries),
            bodies=bodies,
            change=change,
            consumed=(*taken, *(one.consumes for one in told if one.consumes)),
            who=self._run.request.who.identity,
            events=tuple(one.data for one in told),
            groups=() if closing is None else (closing.what.change,),
        )

    async def _was_kept(self) -> bool:
        """Whether an append that was cut short is in the journal all the same."""
        lease = self._run.lease
        rows = (await self._store.runs(RunQuery(run_ids=(lease.run_id,), limit=1))).rows
        return bool(rows) and rows[0].lease == lease and rows[0].position == self._run.position + self._unsure


def claimed(row: RunRow) -> LeasedRun:
    """A run that this worker has claimed; what it was asked for is in its first entry."""
    request = RunRequest(who=row.quadruple, goal=row.about)
    return LeasedRun(
        request=request,
        lease=row.lease,
        position=row.position,
        attempts=row.attempts,
        group=row.group,
        parent=row.parent,
    )
