"""What a run, branches included, has to say to its record and has not said yet.

Entries reach the record in the order they were noted, and one batch at a time. An entry is kept once `flush` returns;
`flush_soon` lets the run go on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from harborage.runtime.durable import RunLeftError
from harborage.runtime.journal import Entry, Record, encode_entry

if TYPE_CHECKING:
    from harborage.concurrency import Crew

__all__ = ["Outbox"]


class Outbox:
    """The entries of one run on their way to `record`; without a record it takes none.

    `is_instant` says that the record takes entries without an await, so that there is no soon and no later.
    """

    __slots__ = (
        "_append_now",
        "_callers",
        "_crew",
        "_is_due",
        "_is_unsure",
        "_is_writing",
        "_record",
        "_run_id",
        "_trails",
        "_unsaved",
        "_waiters",
        "is_instant",
    )

    def __init__(self, run_id: str, record: Record | None, crew: Crew) -> None:
        self._run_id = run_id
        self._record = record
        self._append_now = None if record is None else record.append_now
        self.is_instant = self._append_now is not None
        self._crew = crew
        self._unsaved: list[bytes] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._is_writing = False
        self._is_due = False
        self._is_unsure = False
        self._trails = False
        self._callers = 0

    @property
    def is_busy(self) -> bool:
        """Whether somebody waits here until what was noted is kept, and goes on then."""
        return self._callers > 0

    @property
    def is_behind(self) -> bool:
        """Whether something that was to be kept soon is not kept yet."""
        return self._trails or self._is_writing

    def note(self, entry: Entry) -> bytes:
        """Take an entry, to be kept by the next flush; returns its stored form.

        Raises:
            UnserializableError: a value inside has no JSON form.
        """
        if self._record is None:
            return b""
        stored = encode_entry(entry)
        self._unsaved.append(stored)
        return stored

    def withdraw(self, stored: bytes) -> None:
        """Forget an entry that is not kept and not on its way: what it announced does not happen."""
        with suppress(ValueError):
            self._unsaved.remove(stored)

    async def flush(self) -> None:
        """Keep what was noted so far.

        Raises:
            Exception: what the record raised; all that was noted waits for the next flush.
        """
        if self._append_now is not None:
            self._keep(self._append_now)
            return
        self._callers += 1
        try:
            await self._flush()
        finally:
            self._callers -= 1

    def _keep(self, append_now: Callable[[str, Sequence[bytes]], None]) -> None:
        """Hand what was noted to a record in memory: a task and a turn of the event loop for it would be waste."""
        if self._unsaved:
            batch, self._unsaved = self._unsaved, []
            append_now(self._run_id, batch)

    async def _flush(self) -> None:
        while self._is_writing:  # what is on its way may be the caller's, and is kept before what came behind it
            await self._turn()
        if not self._unsaved or self._record is None:
            return
        batch, self._unsaved = self._unsaved, []
        trailed, self._trails = self._trails, False
        self._is_writing = True
        try:
            await self._record.append(self._run_id, batch)
            self._is_unsure = False
        except BaseException as error:
            # Branches share what is unsaved, so one that is cut short here must not lose what others noted. An
            # entry that was kept all the same and comes twice says the same thing twice.
            self._unsaved[:0] = batch
            self._trails |= trailed
            self._is_unsure = not isinstance(error, Exception)
            raise
        finally:
            self._is_writing = False
            self._tell()

    def flush_soon(self) -> None:
        """Keep what was noted so far while the run goes on; `flush` waits for it, and tells whether it went well.

        Nothing is written before the run gives way for the first time, so a run that never does writes it together
        with what comes next.
        """
        if self._append_now is not None:
            self._keep(self._append_now)
            return
        if self._record is None:
            return
        self._trails = True
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._begin)

    async def settle(self) -> None:
        """Keep what was noted so far, if the record takes it. Whoever waits for it with `flush` learns how it went.

        What was on its way when the run was cut short is left to its fate: it may be kept already.
        """
        while self._is_writing:
            await self._turn()
        if not self._is_unsure:
            with suppress(RunLeftError):
                await self.flush()

    def _begin(self) -> None:
        self._is_due = False
        if self._trails and not self._crew.is_closed:
            self._crew.start(self.settle(), "record")

    async def _turn(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def _tell(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
