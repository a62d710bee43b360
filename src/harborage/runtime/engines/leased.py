"""A run as its worker holds it: the lease to write its record, and which controls have been handed to it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from harborage import codec
from harborage.errors import HarborageError, error_text
from harborage.planner import Finish
from harborage.runtime.durable import (
    ControlUnreadableError,
    RecordRefusedError,
    RunPutOffError,
    RunRequest,
    RunTakenError,
)
from harborage.runtime.engines.bodies import taken_out
from harborage.runtime.engines.mailbox import Mailbox, earliest
from harborage.runtime.steering.controls import ControlEvent
from harborage.runtime.steering.inbox import Inbox
from harborage.state.runs import Lease, LeaseLostError, RunStore, Sent, Stand, Standing, Write

if TYPE_CHECKING:
    from harborage.clock import Timers
    from harborage.runtime.effects import Waiting

__all__ = ["Carried", "Ledger", "parked", "put_off", "settle", "told"]

_LONGEST_WAIT = timedelta(days=1)


class Carried(msgspec.Struct, kw_only=True):
    """A run that this worker carries.

    `sent` are the controls that were handed to its inbox, by number, as far as they are not known to be taken; `parked`
    is what it is given back with when it leaves memory; `finish` is what it ended with, where somebody waits for that;
    `is_lost` says that another worker has it; `has_mail` is set once it has got what was sent before it was claimed;
    `unreadable` is why it can go no further than its next boundary.
    """

    request: RunRequest
    inbox: Inbox | None
    lease: Lease
    mailbox: Mailbox | None = None
    sent: deque[tuple[int, ControlEvent]] = msgspec.field(default_factory=deque)
    delivered: int = 0
    idle_since: float | None = None
    parked: Standing | None = None
    finish: Finish | None = None
    is_lost: bool = False
    unreadable: ControlUnreadableError | None = None
    task: asyncio.Task[None] | None = None
    has_mail: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    def admit(self, sent: Sent) -> None:
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

    def taken(self) -> int:
        """The number up to which controls have left the inbox; 0 when none has since this was last asked."""
        oldest = None if self.inbox is None else self.inbox.oldest
        number = 0
        while self.sent and self.sent[0][1] is not oldest:
            number, _ = self.sent.popleft()
        return number


class Ledger:
    """The record of one run as it is written while it is carried: under the lease of its worker, or not at all."""

    def __init__(self, store: RunStore, run: Carried) -> None:
        self._store = store
        self._run = run
        self._taken = 0

    async def append(self, run_id: str, entries: Sequence[bytes]) -> None:
        slim, bodies = taken_out(entries, run_id)
        # Kept until it is written: an append that was cut short has not told the store what left the inbox before it.
        taken = self._taken = max(self._taken, self._run.taken())
        await self.write(Write(entries=slim, bodies=bodies, taken=taken))
        if self._taken == taken:
            self._taken = 0

    async def write(self, write: Write) -> None:
        """Change the run.

        Raises:
            RunTakenError, RecordRefusedError: nothing was written.
        """
        lease = self._run.lease
        try:
            await self._store.append(lease, write)
        except LeaseLostError as error:
            self._run.is_lost = True
            raise RunTakenError(lease.run_id) from error
        except HarborageError as error:
            raise RecordRefusedError(lease.run_id, error_text(error)) from error


def parked(waiting: Waiting, now: datetime) -> Standing:
    """How a run stands that only waits."""
    return Standing(stand=Stand.PARKED, wake_at=waiting.until or now + _LONGEST_WAIT, waits_for=waiting.run_id)


def put_off(run: Carried, error: RunPutOffError) -> Standing:
    """How a run stands whose next step is tried again later; its deadline comes all the same."""
    return Standing(stand=Stand.PARKED, wake_at=earliest(error.until, run.request.deadline), reason=error.reason)


def settle(waiter: asyncio.Future[Finish | None], finish: Finish | None = None) -> None:
    """Give a waiter what its run ended with, or None to let it look again; one that has its answer keeps it."""
    if not waiter.done():
        waiter.set_result(finish)


async def told(waiter: asyncio.Future[Finish | None], clock: Timers, *, look_s: float) -> Finish | None:
    """What the run ended with here, or None for a reason to look again: after `look_s` seconds, unless that is 0."""
    timer = clock.call_later(look_s, partial(settle, waiter)) if look_s else None
    try:
        return await waiter
    finally:
        if timer is not None:
            timer.cancel()
