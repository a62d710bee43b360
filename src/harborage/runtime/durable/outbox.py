"""What a run, branches included, has to say to its record and has not said yet.

Entries reach the record in the order they were noted, and one batch at a time. An entry is kept once `flush` returns;
`flush_soon` lets the run go on meanwhile. What the run publishes goes with the next batch. Where none follows soon,
because a step takes its time, it is kept with what else there is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from harborage.clock import SYSTEM_CLOCK
from harborage.runtime.durable.engine import RunLeftError
from harborage.runtime.durable.event_buffer import PublishingRecord
from harborage.runtime.durable.journal import Entry, Record, encode_entry

if TYPE_CHECKING:
    from harborage.clock import Timer, Timers
    from harborage.concurrency import Crew
    from harborage.runtime.durable.event_buffer import RunEventBuffer

SOON_S: Final = 0.02
"""How long something that was published waits for an entry to go with."""

RETRY_S: Final = 1.0
"""How long it waits after the record refused it."""


class Outbox:
    """The entries of one run on their way to `record`; without a record it takes none.

    `is_instant` says that the record takes entries without an await, so that there is no soon and no later.
    `is_waiting` says whether a step is under way that may take long: only then what was published is kept without the
    step's outcome.
    """

    __slots__ = (
        "_append_now",
        "_batches",
        "_callers",
        "_clock",
        "_crew",
        "_is_due",
        "_is_unsure",
        "_is_waiting",
        "_is_writing",
        "_record",
        "_run_id",
        "_seen",
        "_teller",
        "_timer",
        "_trails",
        "_unsaved",
        "_waiters",
        "is_instant",
    )

    def __init__(
        self,
        run_id: str,
        record: Record | None,
        crew: Crew,
        clock: Timers = SYSTEM_CLOCK,
        is_waiting: Callable[[], bool] = bool,
    ) -> None:
        self._run_id = run_id
        self._record = record
        self._clock = clock
        self._is_waiting = is_waiting
        has_news = getattr(record, "news", None) is not None  # asked first: to look for a whole protocol is costly
        self._teller = record if has_news and isinstance(record, PublishingRecord) else None
        self._timer: Timer | None = None
        self._batches = self._seen = 0
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
        if (news := self.news) is not None:
            news.listener, news.hastener = self._published, self.hurry
            self._arm()

    @property
    def news(self) -> RunEventBuffer | None:
        """What the run published and what is not kept yet; None where that is kept elsewhere."""
        return None if self._teller is None else self._teller.news

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
        if self._teller is not None and (news := self._teller.news) is not None:
            news.let_go()
            if news:
                self._arm()
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
        self._batches += 1
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

    async def leave(self) -> list[bytes]:
        """Hand over what was noted and is not kept, to whoever ends the run."""
        while self._is_writing:
            await self._turn()
        left, self._unsaved = self._unsaved, []
        self._trails = False
        return left

    async def settle(self) -> None:
        """Keep what was noted so far, if the record takes it. Whoever waits for it with `flush` learns how it went.

        What was on its way when the run was cut short is left to its fate: it may be kept already.
        """
        while self._is_writing:
            await self._turn()
        if not self._is_unsure:
            with suppress(RunLeftError):
                await self.flush()

    async def tell(self) -> None:
        """Keep what was noted and published so far.

        Raises:
            Exception: what the record raised; what was noted waits for the next flush.
        """
        await self.flush()
        while self._is_writing:
            await self._turn()
        if self._teller is None or not self.news:
            return
        if self._unsaved:
            await self._flush()
        else:
            await asyncio.shield(self._begin_to_tell(self._teller))

    def hurry(self) -> None:
        """Begin to keep what was noted and published so far; what is begun afterwards comes behind it."""
        if self._teller is None or not self.news or self._crew.is_closed:
            return
        telling = None if self._is_writing or self._unsaved else self._begin_to_tell(self._teller)
        self._crew.start(self._told(telling), "record")

    def _begin_to_tell(self, teller: PublishingRecord) -> asyncio.Task[None]:
        self._is_writing = True
        self._batches += 1
        telling = teller.tell()
        telling.add_done_callback(self._written)
        return telling

    def _written(self, _: asyncio.Task[None]) -> None:
        self._is_writing = False
        self._tell()

    def close(self) -> None:
        """Keep nothing more by itself."""
        if self._timer is not None:
            self._timer.cancel()
        if (news := self.news) is not None:
            news.listener = news.hastener = None

    async def _told(self, telling: asyncio.Task[None] | None) -> None:
        try:
            await (self.tell() if telling is None else asyncio.shield(telling))
        except RunLeftError:  # the run learns of it with its next entries
            if self.news:
                self._arm(RETRY_S)

    def _published(self) -> None:
        """What is told in a step that is done in a moment is true with its outcome, and kept no sooner."""
        assert self.news is not None
        self.news.hold(not self._is_waiting())
        self._arm()

    def _arm(self, after_s: float = SOON_S) -> None:
        """Look in a while whether what was published has gone with an entry."""
        if self._timer is None and not self._crew.is_closed:
            self._seen = self._batches
            self._timer = self._clock.call_later(after_s, self._ripen)

    def _ripen(self) -> None:
        self._timer = None
        if self.news and self._batches == self._seen:
            self.hurry()
        elif self.news:
            self._arm()  # it is younger than the last batch

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
