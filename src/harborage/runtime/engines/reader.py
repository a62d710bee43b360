"""What a store says of runs, read whole: records, entries with their bodies, and how a run ended."""

from __future__ import annotations

import builtins
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from harborage.runtime.durable import RunBlockedError, RunFailedError, RunNotFoundError, RunPhase, RunStatus
from harborage.runtime.engines.bodies import read_whole
from harborage.runtime.engines.histories import finish_of
from harborage.runtime.journal import Ended, Entry, JournalCorruptError
from harborage.state.errors import DatabaseCorruptError, DatabaseError, MigrationError
from harborage.state.runs import RunFilter, RunRecord, RunStore, Stand

if TYPE_CHECKING:
    from harborage.planner import Finish

__all__ = ["KEPT", "RunReader", "is_blocked", "status_of"]

_PAGE = 200
_PHASES = {
    Stand.READY: RunPhase.PENDING,
    Stand.PARKED: RunPhase.PARKED,
    Stand.BLOCKED: RunPhase.BLOCKED,
    Stand.FINISHED: RunPhase.FINISHED,
    Stand.FAILED: RunPhase.FAILED,
}


KEPT: Final = "run %s is blocked and keeps %s for later: %s"
"""What is logged of a control for a blocked run: the run, the control, and why the run is blocked."""


class RunReader:
    """Reads the runs of one store."""

    def __init__(self, store: RunStore) -> None:
        self._store = store

    async def record(self, run_id: str) -> RunRecord:
        """The record of one run.

        Raises:
            RunNotFoundError: there is none.
        """
        found = await self._store.list(RunFilter(run_id=run_id), limit=1)
        if not found:
            raise RunNotFoundError(f"no run {run_id!r} on this host")
        return found[0]

    async def records(self) -> builtins.list[RunRecord]:
        """Every record, oldest first."""
        found: builtins.list[RunRecord] = []
        while page := await self._store.list(RunFilter(), after=found[-1].run_id if found else "", limit=_PAGE):
            found += page
        return found

    async def entries(self, run_id: str) -> Sequence[Entry]:
        """The run's entries, whole.

        Raises:
            JournalCorruptError, EntryMissingError: one of them cannot be read, or is not there.
        """
        return await read_whole(run_id, await self._store.read(run_id), partial(self._store.body, run_id))

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
            record = await self.record(run_id)
            if is_blocked(record):
                if not was_tried:
                    return None, False
                raise RunBlockedError(run_id, record.standing.reason)
            if not record.standing.stand.is_final:
                return None, True
            return await self.finish(record, causes.get(run_id)), True
        except (DatabaseCorruptError, MigrationError):
            raise
        except DatabaseError as error:  # the run outlives it, and so does whoever waits for the run
            logger.warning("run %s: its result is waited for: %s", run_id, error)
            return None, False

    async def finish(self, record: RunRecord, cause: Exception | None) -> Finish:
        """What an ended run returned.

        Raises:
            RunFailedError: it failed, from `cause`.
            JournalCorruptError, EntryMissingError: its last entry cannot be read, or is not there.
        """
        run_id = record.run_id
        first = max(0, record.entries - 1)
        stored = await self._store.read(run_id, after=first)
        if not stored:
            raise JournalCorruptError(f"run {run_id}: it has ended, but no entry says how")
        (last,) = await read_whole(run_id, stored[-1:], partial(self._store.body, run_id), first=first)
        finish = finish_of(last, run_id)
        if finish is not None:
            return finish
        assert isinstance(last, Ended)
        raise RunFailedError(run_id, last.error, last.message) from cause


def is_blocked(record: RunRecord) -> bool:
    """Whether the run needs other code, or a repair, and no worker tries it now."""
    return record.standing.stand is Stand.BLOCKED and not record.owner


def status_of(record: RunRecord, *, is_parked: bool) -> RunStatus:
    """The status of a kept run; `is_parked` says that this process holds it in memory, and that it waits there."""
    phase = _PHASES[record.standing.stand]
    if is_parked:
        phase = RunPhase.PARKED
    elif phase is RunPhase.PENDING and record.owner:
        phase = RunPhase.RUNNING
    return RunStatus(run_id=record.run_id, who=record.who, goal=record.goal, phase=phase, reason=record.standing.reason)
