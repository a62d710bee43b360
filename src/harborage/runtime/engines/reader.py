"""What a store says of runs, read whole: rows, entries with their bodies, and how a run ended."""

from __future__ import annotations

import builtins
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harborage.runtime.durable import RunBlockedError, RunFailedError, RunNotFoundError, RunPhase, RunStatus
from harborage.runtime.engines.bodies import read_whole
from harborage.runtime.engines.histories import finish_of
from harborage.runtime.journal import Ended, Entry, JournalCorruptError
from harborage.state.errors import DatabaseCorruptError, DatabaseError, MigrationError
from harborage.store import RunQuery, Status

if TYPE_CHECKING:
    from harborage.planner import Finish
    from harborage.store import RunRow, Store

__all__ = ["KEPT", "RunReader", "is_blocked", "phase_of", "status_of"]

_PAGE = 200


KEPT: Final = "run %s is blocked and keeps %s for later: %s"
"""What is logged of a control for a blocked run: the run, the control, and why the run is blocked."""


class RunReader:
    """Reads the runs of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def row(self, run_id: str) -> RunRow:
        """The row of one run.

        Raises:
            RunNotFoundError: there is none.
        """
        found = (await self._store.runs(RunQuery(run_ids=(run_id,), limit=1))).rows
        if not found:
            raise RunNotFoundError(f"no run {run_id!r} on this host")
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

    async def blocked(self, agent: str) -> builtins.list[str]:
        """The blocked runs that a worker of this agent may try: its own and those of none, or all without an agent."""
        rows = await self.rows(RunQuery(only_blocked=True))
        return [row.run_id for row in rows if not agent or row.agent in ("", agent)]

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

    async def ending(
        self, run_id: str, causes: Mapping[str, Exception], logger: logging.Logger, was_tried: bool
    ) -> tuple[Finish | None, bool]:
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
            return await self.finish(row, causes.get(run_id)), True
        except (DatabaseCorruptError, MigrationError):
            raise
        except DatabaseError as error:  # the run outlives it, and so does whoever waits for the run
            logger.warning("run %s: its result is waited for: %s", run_id, error)
            return None, False

    async def finish(self, row: RunRow, cause: Exception | None) -> Finish:
        """What an ended run returned.

        Raises:
            RunFailedError: it failed, from `cause`.
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
        raise RunFailedError(run_id, last.error, last.message) from cause


def is_blocked(row: RunRow) -> bool:
    """Whether the run needs other code, or a repair, and no worker tries it now."""
    return bool(row.blocked) and not row.owner


def phase_of(row: RunRow) -> RunPhase:
    """Where a kept run stands, as its row tells it."""
    match row:
        case _ if row.status is Status.FAILED:
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
        run_id=row.run_id, who=row.quadruple, goal=row.about, phase=phase, reason=row.blocked or row.reason
    )
