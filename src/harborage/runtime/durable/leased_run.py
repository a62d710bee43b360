"""A run that this worker executes: its lease, the controls delivered to it, and how it is released."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from harborage import codec
from harborage.errors import error_text
from harborage.runtime.durable.bodies import extract_bodies
from harborage.runtime.durable.engine import ControlUnreadableError, RunPutOffError
from harborage.runtime.durable.inbox import Inbox
from harborage.runtime.durable.mailbox import Mailbox, earliest
from harborage.runtime.durable.reader import Ending
from harborage.runtime.loop.controls import ControlEvent
from harborage.runtime.loop.seam import RunRequest
from harborage.store import Change, Commit, Lease, Status
from harborage.store.times import micros

if TYPE_CHECKING:
    from harborage.runtime.durable.steps import Waiting
    from harborage.store import ControlRow, Records, RunRow

_LONGEST_WAIT = timedelta(days=1)
CONTROLS_PAGE: Final = 100
"""How many controls of a run are read at a time."""

_STOPPED = Change(release=True, is_ready=True, progress=True)  # that its worker stops is not the run's fault


class LeasedRun(msgspec.Struct, kw_only=True):
    """A run that this worker executes, whose journal has `position` stored entries.

    `attempts` counts its claims since it last made progress; `sent` are the delivered controls, by number, that are not
    known to be consumed, `delivered` is the number of the last one; `parked` is the change with which it is released
    when it leaves memory; `ending` is how it ended, if a caller waits for that; `is_lost` says that another worker has
    the lease; `unreadable` is the control that stops the run at its next step; `group` is that of its task, `parent`
    the run that started it; `tool_calls` counts the calls it made here, `unsaved` are entries to commit with its end.
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

    def find_idle_wait(self, now: float, linger_s: float) -> Waiting | None:
        """Return what the run waits for, if it has only waited for `linger_s` seconds; call it every so often."""
        waiting = None if self.mailbox is None or self.task is None else self.mailbox.waiting
        if waiting is None or self.idle_since is None:
            self.idle_since = None if waiting is None else now
            return None
        return waiting if now - self.idle_since >= linger_s else None

    def release_change(self) -> Change:
        """Return the change that releases the run when it is cut short here.

        It is parked if that was decided before, else ready for another worker. A control that was delivered after that
        decision may be consumed and not applied, so it makes the run ready, too.
        """
        if self.parked is None:
            return _STOPPED
        is_current = self.parked.blocked is not None or self.delivered == self.parked.seen_control
        return self.parked if is_current else replace(self.parked, is_ready=True)

    async def fetch(self, records: Records) -> None:
        """Deliver the controls that were sent and are not delivered yet."""
        while True:
            page = await records.controls(self.lease.run_id, after=self.delivered, limit=CONTROLS_PAGE)
            for sent in page:
                self.admit(sent)
            if len(page) < CONTROLS_PAGE or self.inbox is None or self.unreadable is not None:
                return

    def admit(self, sent: ControlRow) -> None:
        """Deliver a control to the run's inbox, unless it was delivered before.

        One that cannot be read stops the run at its next step, and no control after it is delivered.
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

    def pop_consumed(self) -> tuple[int, ...]:
        """Return the numbers of the controls that have left the inbox since the last call.

        They need not be in order: an answer goes to its waiting call past earlier controls.
        """
        if not self.sent:
            return ()
        waiting = set() if self.inbox is None else {id(control) for control in self.inbox.peek()}
        numbers = tuple(number for number, control in self.sent if id(control) not in waiting)
        if numbers:
            self.sent = deque(one for one in self.sent if id(one[1]) in waiting)
        return numbers

    def hand_out(self, control: ControlEvent) -> int:
        """Return the number of a control, which the caller then has to consume; 0 if it was not delivered here."""
        for one in self.sent:
            if one[1] is control:
                self.sent.remove(one)
                return one[0]
        return 0

    def list_consumed(self) -> tuple[int, ...]:
        """Return the numbers of the controls that are no longer in the inbox."""
        waiting = [] if self.inbox is None else self.inbox.peek()
        return tuple(number for number, control in self.sent if not any(control is one for one in waiting))

    def list_unconsumed(self) -> list[ControlEvent]:
        """Return the controls that were delivered and that the run did not consume."""
        return [control for _, control in self.sent]


def leased_run_of(row: RunRow) -> LeasedRun:
    """Return the run of a row that this worker has claimed; its full request is read from its first entry later."""
    request = RunRequest(who=row.quadruple, goal=row.about)
    return LeasedRun(
        request=request,
        lease=row.lease,
        position=row.position,
        attempts=row.attempts,
        group=row.group,
        parent=row.parent,
    )


def parking_change(run: LeasedRun, waiting: Waiting, now: datetime) -> Change:
    """Return the change that releases a run which only waits.

    The controls that were delivered so far do not end that wait: those that it has not consumed stay in its inbox, and
    only a later one makes it ready.
    """
    until = waiting.until or now + _LONGEST_WAIT
    return Change(
        release=True,
        progress=True,
        reason="",
        wake_at=micros(until),
        awaits=waiting.run_id,
        seen_control=run.delivered,
    )


def put_off_change(run: LeasedRun, error: RunPutOffError) -> Change:
    """Return the change that releases a run whose next step is retried later, at its deadline at the latest."""
    until = earliest(error.until, run.request.deadline)
    return Change(release=True, progress=True, reason=error.reason, wake_at=micros(until))


def add_start(commit: Commit, entries: Sequence[bytes], *, agent: str, worker: str, is_of_run: bool) -> Commit:
    """Return the commit with the first entries of the run that it starts, claimed by `worker` if one is named.

    In the commit of another run, as `is_of_run` says, large values stay in their entries: a body is of the run that
    commits it.
    """
    (row,) = commit.starts
    slim, bodies = (entries, {}) if is_of_run else extract_bodies(entries, row.run_id)
    status = Status.RUNNING if worker else Status.PENDING
    row = replace(row, entries=tuple(slim), agent=agent, worker=worker, status=status)
    return replace(commit, starts=(row,), bodies=bodies)
