"""What a store says of runs, read whole: rows, entries with their bodies, and how a run ended."""

from __future__ import annotations

import asyncio
import builtins
import logging
from collections import OrderedDict
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec.structs import replace

from harborage.planner import Finish, FinishReason
from harborage.runtime.durable.bodies import read_whole
from harborage.runtime.durable.engine import (
    AgentMissingError,
    ControlUnreadableError,
    DependenciesMissingError,
    EngineClosedError,
    HistoryMismatchError,
    NotPreparedError,
    RunBlockedError,
    RunFailedError,
    RunNotFoundError,
    RunPhase,
    RunStatus,
)
from harborage.runtime.durable.execution import failure_of
from harborage.runtime.durable.histories import finish_of
from harborage.runtime.durable.journal import Ended, Entry, JournalCorruptError
from harborage.state.errors import DatabaseCorruptError, DatabaseError, MigrationError, StoreClosedError
from harborage.store import RunQuery, Status
from harborage.store.errors import EntryDamagedError
from harborage.store.port import commit_now_of
from harborage.store.tags import tags_of
from harborage.store.times import moment

if TYPE_CHECKING:
    from harborage.clock import Timers
    from harborage.store import RunRow, Store

_PAGE = 200
_REASONS: Final = frozenset[str](FinishReason)  # a run that failed without a finish has the class of its error there
_CAUSES = 1000
_FORGOTTEN: Final = (
    "; in memory runs that have ended are forgotten, but for the last RuntimeOptions.keep_finished: wait for the "
    "result while the run goes on, give that option a higher number, or the runtime a storage"
)


UNREADABLE: Final = (
    AgentMissingError,
    ControlUnreadableError,
    DatabaseCorruptError,
    DependenciesMissingError,
    EntryDamagedError,
    HistoryMismatchError,
    JournalCorruptError,
)
"""What says that a run's record cannot be read, or not by this code: the run is kept, and blocked."""

KEPT: Final = "run %s is blocked and keeps %s for later: %s"
"""What is logged of a control for a blocked run: the run, the control, and why the run is blocked."""


class RunReader:
    """Reads the runs of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._causes: OrderedDict[str, Exception] = OrderedDict()

    def failed(self, run_id: str, cause: Exception) -> RunFailedError:
        """The error that the result of a run raises which failed in this process; it keeps its cause here."""
        if isinstance(cause, NotPreparedError) and isinstance(cause.__cause__, Exception):
            cause = cause.__cause__
        self._causes[run_id] = cause
        while len(self._causes) > _CAUSES:
            self._causes.popitem(last=False)
        failure = RunFailedError(run_id, *failure_of(cause))
        failure.__cause__ = cause
        return failure

    async def row(self, run_id: str) -> RunRow:
        """The row of one run.

        Raises:
            RunNotFoundError: there is none.
            EngineClosedError: the store was closed, and so the host before it.
        """
        try:
            found = (await self._store.runs(RunQuery(run_ids=(run_id,), limit=1))).rows
        except StoreClosedError as error:
            raise EngineClosedError() from error
        if not found:
            raise not_found(run_id, self._store)
        return found[0]

    async def rows(self, query: RunQuery) -> builtins.list[RunRow]:
        """Every run of a query, page by page."""
        found: builtins.list[RunRow] = []
        while True:
            page = await self._store.runs(replace(query, limit=_PAGE))
            found += page.rows
            if page.cursor is None:
                return found
            query = replace(query, after=page.cursor)

    async def blocked(self, agents: Sequence[str]) -> builtins.list[str]:
        """The blocked runs that a worker of these agents may try: theirs and those of none, or all without a name."""
        rows = await self.rows(RunQuery(only_blocked=True))
        return [row.run_id for row in rows if not agents or not row.agent or row.agent in agents]

    async def entries(self, run_id: str) -> Sequence[Entry]:
        """The run's entries, whole.

        Raises:
            JournalCorruptError, EntryDamagedError: one of them cannot be read, or is not there.
        """
        return await self.whole(run_id, await self._store.entries(run_id))

    async def whole(self, run_id: str, stored: Sequence[bytes], *, first: int = 0) -> Sequence[Entry]:
        """Entries that were read, from number `first` on, with their bodies in their places.

        Raises:
            JournalCorruptError, EntryDamagedError: one of them cannot be read, or is not there.
        """
        return await read_whole(run_id, stored, partial(self._store.body, run_id), first=first)

    async def ending(self, run_id: str, logger: logging.Logger, *, was_tried: bool) -> tuple[Finish | None, bool]:
        """How a run ended, None while it goes on; and whether that is known: a database may be out for a while.

        Raises:
            RunNotFoundError: there is none.
            RunFailedError: it ended with an error.
            RunBlockedError: it is blocked although the code of this process `was_tried`; before that, it is not known.
            DatabaseCorruptError, MigrationError: the database will not answer by itself.
        """
        try:
            row = await self.row(run_id)
            if is_blocked(row):
                if not was_tried:
                    return None, False
                raise RunBlockedError(run_id, row.blocked)
            if not row.status.is_final:
                return None, True
            return await self.finish(row), True
        except (DatabaseCorruptError, MigrationError):
            raise
        except DatabaseError as error:  # the run outlives it, and so do its waiting callers
            logger.warning("run %s: its result is waited for: %s", run_id, error)
            return None, False

    async def finish(self, row: RunRow) -> Finish:
        """What an ended run returned.

        Raises:
            RunFailedError: it failed; its cause is known in the process that executed it.
            JournalCorruptError, EntryDamagedError: its last entry cannot be read, or is not there.
        """
        run_id = row.run_id
        first = max(0, row.position - 1)
        stored = await self._store.entries(run_id, after=first)
        if not stored:
            raise JournalCorruptError(f"run {run_id}: it has ended, but no entry says how")
        (last,) = await self.whole(run_id, stored[-1:], first=first)
        finish = finish_of(last, run_id)
        if finish is not None:
            return finish
        assert isinstance(last, Ended)
        raise RunFailedError(run_id, last.error, last.message) from self._causes.get(run_id)


Ending: TypeAlias = Finish | RunFailedError
"""How a run ended: with a finish, or with the error that its result raises."""


class ResultWaiters:
    """The callers of this process that wait for a run to end, by run."""

    def __init__(self, clock: Timers) -> None:
        self._clock = clock
        self._waiters: dict[str, set[asyncio.Future[Ending | None]]] = {}

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._waiters

    def __bool__(self) -> bool:
        return bool(self._waiters)

    @contextmanager
    def waiting(self, run_id: str) -> Iterator[asyncio.Future[Ending | None]]:
        """A future of the caller's own, from now on: nothing that happens while it looks is missed."""
        waiter: asyncio.Future[Ending | None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(run_id, set()).add(waiter)
        try:
            yield waiter
        finally:
            self._waiters[run_id].discard(waiter)
            if not self._waiters[run_id]:
                del self._waiters[run_id]

    async def ended(self, waiter: asyncio.Future[Ending | None], *, look_s: float) -> Finish | None:
        """What the run ended with here, or None for a reason to look again: after `look_s` seconds, if not 0.

        Raises:
            RunFailedError: it failed here.
        """
        timer = self._clock.call_later(look_s, partial(_settle, waiter, None)) if look_s else None
        try:
            ending = await waiter
        finally:
            if timer is not None:
                timer.cancel()
        if isinstance(ending, RunFailedError):
            raise RunFailedError(ending.run_id, ending.error, ending.message) from ending.__cause__
        return ending

    def notify(self, run_id: str, ending: Ending | None = None) -> None:
        """Say to those who wait for a run how it ended; None lets them look again."""
        for waiter in self._waiters.get(run_id, ()):
            _settle(waiter, ending)

    def notify_others(self, known: Container[str] = ()) -> None:
        """Let all look again who wait for a run that is not among those `known`."""
        for run_id in self._waiters:
            if run_id not in known:
                self.notify(run_id)


def _settle(waiter: asyncio.Future[Ending | None], ending: Ending | None) -> None:
    if not waiter.done():
        waiter.set_result(ending)


def not_found(run_id: str, store: Store) -> RunNotFoundError:
    """What is said of a run that `store` does not hold, or not for the one who asks: both learn the same."""
    is_forgetful = commit_now_of(store) is not None
    return RunNotFoundError(run_id, message=f"no run {run_id!r} here{_FORGOTTEN}" if is_forgetful else "")


def is_blocked(row: RunRow) -> bool:
    """Whether the run needs other code, or a repair, and no worker tries it now."""
    return bool(row.blocked) and not row.owner


def phase_of(row: RunRow) -> RunPhase:
    """Return the status of a kept run, from its row."""
    match row:
        case _ if row.status is Status.FAILED and row.reason not in _REASONS:
            return RunPhase.FAILED
        case _ if row.status.is_final:
            return RunPhase.FINISHED
        case _ if row.owner:
            return RunPhase.RUNNING
        case _ if row.blocked:
            return RunPhase.BLOCKED
        case _:
            return RunPhase.PENDING if row.is_woken else RunPhase.PARKED


def status_of(row: RunRow, *, is_parked: bool) -> RunStatus:
    """The status of a kept run; `is_parked` says that this process holds it in memory, and that it waits there."""
    phase = RunPhase.PARKED if is_parked else phase_of(row)
    return RunStatus(
        run_id=row.run_id,
        who=row.quadruple,
        goal=row.about,
        phase=phase,
        reason=row.blocked or row.reason,
        agent=row.agent,
        tags=tags_of(row.tags),
        started_at=moment(row.created_at),
    )
