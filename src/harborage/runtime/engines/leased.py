"""A run as its worker holds it: the lease to write its record, how far that goes, and the controls it was handed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from harborage import codec
from harborage.errors import HarborageError, error_text
from harborage.runtime.durable import (
    ControlUnreadableError,
    RecordRefusedError,
    RunPutOffError,
    RunRequest,
    RunTakenError,
)
from harborage.runtime.engines.bodies import taken_out
from harborage.runtime.engines.mailbox import Mailbox, earliest
from harborage.runtime.engines.reader import Ending
from harborage.runtime.journal import is_outcome
from harborage.runtime.steering.controls import ControlEvent
from harborage.runtime.steering.inbox import Inbox
from harborage.store import Change, Commit, Guard, Lease, RunQuery, Status
from harborage.store.errors import ControlsLeftError, LeaseLostError, WaitCycleError
from harborage.store.port import commit_now_of
from harborage.store.times import micros

if TYPE_CHECKING:
    from harborage.runtime.effects import Waiting
    from harborage.store import ControlRow, Records, RunRow, Store

__all__ = ["Carried", "Ledger", "claimed", "parked", "put_off"]

_LONGEST_WAIT = timedelta(days=1)
_PROGRESS = Change(progress=True)


class Carried(msgspec.Struct, kw_only=True):
    """A run that this worker carries, of whose journal `position` entries are kept.

    `attempts` counts its claims since it last made progress; `sent` are the controls that were handed to its inbox, by
    number, as far as they are not known to be taken; `parked` is what it is given back with when it leaves memory;
    `ending` is how it ended, where somebody waits for that; `is_lost` says that another worker has it;
    `unreadable` is why it can go no further than its next boundary.
    """

    request: RunRequest
    inbox: Inbox | None
    lease: Lease
    position: int = 0
    attempts: int = 0
    mailbox: Mailbox | None = None
    sent: deque[tuple[int, ControlEvent]] = msgspec.field(default_factory=deque)
    delivered: int = 0
    idle_since: float | None = None
    parked: Change | None = None
    ending: Ending | None = None
    is_lost: bool = False
    unreadable: ControlUnreadableError | None = None
    task: asyncio.Task[None] | None = None

    async def fetch(self, records: Records) -> None:
        """Hand over everything that was sent and is not handed over yet."""
        while page := await records.controls(self.lease.run_id, after=self.delivered):
            for sent in page:
                self.admit(sent)
            if self.inbox is None or self.unreadable is not None:
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
        """The numbers of the controls that have left the inbox since this was last asked."""
        oldest = None if self.inbox is None else self.inbox.oldest
        numbers: list[int] = []
        while self.sent and self.sent[0][1] is not oldest:
            numbers.append(self.sent.popleft()[0])
        return tuple(numbers)

    def heard(self) -> tuple[int, ...]:
        """The numbers of the controls that are in the inbox no more, whichever came first."""
        waiting = [] if self.inbox is None else self.inbox.peek()
        return tuple(number for number, control in self.sent if not any(control is one for one in waiting))

    def left(self) -> list[ControlEvent]:
        """The controls that the run was handed and never took."""
        return [control for _, control in self.sent]


class Ledger:
    """The record of one run as it is written while it is carried: under the lease of its worker, or not at all."""

    def __init__(self, store: Store, run: Carried) -> None:
        self._store = store
        self._run = run
        self._taken: tuple[int, ...] = ()
        self._unsure = 0
        self._commit_now = commit_now_of(store)

    @property
    def append_now(self) -> Callable[[str, Sequence[bytes]], None] | None:
        """`append` without an await, where the store is in memory; None for every other."""
        return None if self._commit_now is None else self._append_now

    async def append(self, run_id: str, entries: Sequence[bytes]) -> None:
        """Add entries to the run's journal.

        Raises:
            RunTakenError, RecordRefusedError: nothing was written.
        """
        slim, bodies = taken_out(entries, run_id)
        # Kept until it is written: an append that was cut short has not told the store what left the inbox before it.
        self._taken += self._run.taken()
        progress = self._has_progress(entries)
        await self._write(slim, bodies, _PROGRESS if progress else None)
        if progress:
            self._run.attempts = 1

    def _append_now(self, run_id: str, entries: Sequence[bytes]) -> None:
        """Large values stay in their entries: in memory nothing is saved by keeping them apart."""
        assert self._commit_now is not None
        run = self._run
        progress = self._has_progress(entries)
        change = self._change(entries, {}, _PROGRESS if progress else None, run.taken())
        try:
            self._commit_now(change)
        except LeaseLostError as error:
            run.is_lost = True
            raise RunTakenError(run_id) from error
        except HarborageError as error:
            raise RecordRefusedError(run_id, error_text(error)) from error
        run.position += len(entries)
        if progress:
            run.attempts = 1

    def _has_progress(self, entries: Sequence[bytes]) -> bool:
        """Whether these entries end a row of attempts that came to nothing."""
        return self._run.attempts > 1 and any(map(is_outcome, entries))

    async def end(self, entry: bytes, status: Status, reason: str) -> list[ControlEvent]:
        """End the run; returns the controls that it never took, which are consumed with it.

        Raises:
            RunTakenError, RecordRefusedError: nothing was written.
        """
        slim, bodies = taken_out([entry], self._run.lease.run_id)
        change = Change(status=status, reason=reason)
        late: tuple[int, ...] = ()
        self._taken += self._run.taken()
        taken = self._taken
        while True:
            self._taken = (*taken, *(number for number, _ in self._run.sent), *late)
            try:
                await self._write(slim, bodies, change)
            except ControlsLeftError as error:
                for control in error.controls:
                    self._run.admit(control)
                late = tuple(control.number for control in error.controls)  # one that cannot be read ends with its run
            else:
                return self._run.left()

    async def release(self, change: Change, *, late: int) -> None:
        """Give the run back; a lease that was lost is nothing to give back.

        A run that waits for a task without a run is looked at again when it is `late`: nobody may wake it before.

        Raises:
            HarborageError: the store refused.
        """
        if change.awaits and not await self._is_kept(change.awaits):
            change = replace(change, awaits="", wake_at=min(change.wake_at or late, late))
        try:
            # Nothing is consumed: what left the inbox and is in no entry is for whoever goes on with the run.
            await self._commit((), {}, change, ())
        except WaitCycleError:
            # What it waits for waits for it: it is looked at again at its time, and whoever looks over them says so.
            await self._commit((), {}, replace(change, awaits=""), ())
        except LeaseLostError:
            return

    async def _write(self, entries: Sequence[bytes], bodies: Mapping[str, bytes], change: Change | None) -> None:
        try:
            await self._commit(entries, bodies, change, self._taken)
        except LeaseLostError as error:
            self._run.is_lost = True
            raise RunTakenError(self._run.lease.run_id) from error
        except ControlsLeftError:
            raise
        except HarborageError as error:
            raise RecordRefusedError(self._run.lease.run_id, error_text(error)) from error

    async def _commit(
        self, entries: Sequence[bytes], bodies: Mapping[str, bytes], change: Change | None, taken: tuple[int, ...]
    ) -> None:
        run = self._run
        try:
            await self._store.commit(self._change(entries, bodies, change, taken))
        except asyncio.CancelledError:
            self._unsure = len(entries)
            raise
        except LeaseLostError:
            if not self._unsure or not await self._was_kept():
                raise
            # The append that was cut short was kept, and these entries begin with it.
            entries = entries[self._unsure :]
            run.position += self._unsure
            await self._store.commit(self._change(entries, bodies, change, taken))
        self._unsure = 0
        run.position += len(entries)
        self._taken = self._taken[len(taken) :]

    def _change(
        self, entries: Sequence[bytes], bodies: Mapping[str, bytes], change: Change | None, taken: tuple[int, ...]
    ) -> Commit:
        guard = Guard(lease=self._run.lease, position=self._run.position)
        return Commit(guard=guard, entries=tuple(entries), bodies=bodies, change=change, consumed=taken)

    async def _is_kept(self, run_id: str) -> bool:
        return bool((await self._store.runs(RunQuery(run_ids=(run_id,), limit=1))).rows)

    async def _was_kept(self) -> bool:
        """Whether an append that was cut short is in the journal all the same."""
        lease = self._run.lease
        rows = (await self._store.runs(RunQuery(run_ids=(lease.run_id,), limit=1))).rows
        return bool(rows) and rows[0].lease == lease and rows[0].position == self._run.position + self._unsure


def claimed(row: RunRow) -> Carried:
    """A run that this worker has claimed; what it was asked for is in its first entry."""
    request = RunRequest(who=row.quadruple, goal=row.about)
    return Carried(request=request, inbox=None, lease=row.lease, position=row.position, attempts=row.attempts)


def parked(waiting: Waiting, now: datetime) -> Change:
    """How a run is given back that only waits."""
    until = waiting.until or now + _LONGEST_WAIT
    return Change(release=True, progress=True, reason="", wake_at=micros(until), awaits=waiting.run_id)


def put_off(run: Carried, error: RunPutOffError) -> Change:
    """How a run is given back whose next step is tried again later; its deadline comes all the same."""
    until = earliest(error.until, run.request.deadline)
    return Change(release=True, progress=True, reason=error.reason, wake_at=micros(until))
