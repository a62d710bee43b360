"""Execute one run in this process: restore it from its record, and run its program, one history after the other.

Which worker may execute a run, and how its end is recorded, is decided by the engine that calls this.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from harborage.clock import Timers
from harborage.concurrency import CLOSE_GRACE_S, Crew, is_cancelled
from harborage.crashes import WorkCrashedError, contained
from harborage.errors import error_reason
from harborage.identity import bound
from harborage.runtime.durable.engine import NotPreparedError, RecordedFailureError, RolloverError, RunLeftError
from harborage.runtime.durable.histories import History, latest_history
from harborage.runtime.durable.journal import Entry, Record, Rolled, encode_entry, kept_text, raw
from harborage.runtime.durable.mailbox import Mailbox
from harborage.runtime.durable.pauses.coordinator import Coordinator
from harborage.runtime.durable.recorder import Recorder
from harborage.runtime.durable.steps import Effects
from harborage.runtime.loop.seam import Concluded, Program, RunRequest

if TYPE_CHECKING:
    from harborage.planner import Finish
    from harborage.runtime.durable.inbox import Inbox


class HostedRun(Protocol):
    """A run while an engine executes it. `mailbox` is set while its program runs, `unreadable` is the control
    that stops it. `tool_calls` counts those that were made here, `unsaved` are entries to commit with its end.
    """

    request: RunRequest
    inbox: Inbox | None
    mailbox: Mailbox | None
    tool_calls: int
    unsaved: list[bytes]

    @property
    def unreadable(self) -> RunLeftError | None: ...


class Executor(msgspec.Struct, frozen=True, kw_only=True):
    """Executes runs with one program, and the effects of each agent. `refusals` are the errors for which a step is
    retried later, and `is_draining` says that runs are handed over, as in `Recorder`."""

    program: Program
    effects: Effects
    pauses: Coordinator
    clock: Timers
    recheck_s: float
    logger: logging.Logger
    refusals: tuple[type[Exception], ...] = ()
    is_draining: Callable[[], bool] | None = None

    async def perform(
        self,
        run_id: str,
        run: HostedRun,
        journal: Record,
        entries: Sequence[Entry],
        *,
        is_stopping: Callable[[], bool],
    ) -> Finish | Concluded:
        """Execute a run from its last entry to its finish.

        Raises:
            HistoryMismatchError, JournalCorruptError: the run is blocked until other code executes it.
            Exception: the error with which the run failed.
        """
        history = latest_history(run.request, entries)
        crew = Crew(lambda name, error: self.logger.warning("run %s, %s: %s", run_id, name, error_reason(error)))
        try:
            while True:
                try:
                    return await self._once(run_id, run, journal, history, crew, is_stopping)
                except RolloverError as rollover:
                    history = History(rollover.carry, (), history.number + 1)
                    rolled = Rolled(at=self.clock.now(), carry=raw(history.request))
                    await journal.append(run_id, [encode_entry(rolled)])
        finally:
            left = await crew.aclose(clock=self.clock, grace_s=CLOSE_GRACE_S)
            if left:
                self.logger.warning("run %s: abandoned, ignoring their cancellation: %s", run_id, ", ".join(left))

    async def _once(
        self,
        run_id: str,
        run: HostedRun,
        journal: Record,
        history: History,
        crew: Crew,
        is_stopping: Callable[[], bool],
    ) -> Finish | Concluded:
        """Execute one history of the run to its end, or to its rollover."""
        request = history.request
        assert run.inbox is not None
        mailbox = Mailbox(
            run.inbox, self.pauses, crew, clock=self.clock, deadline=request.deadline, recheck_s=self.recheck_s
        )
        run.mailbox = mailbox
        if run.unreadable is not None:
            mailbox.refuse(run.unreadable)
        io = Recorder(
            run_id,
            self.effects.of(request.agent),
            journal,
            mailbox,
            clock=self.clock,
            crew=crew,
            past=history.entries,
            history=history.number,
            is_stopping=is_stopping,
            refusals=self.refusals,
            is_draining=self.is_draining,
        )
        try:
            with bound(request.who):
                finish = await contained(self.program(io, request))
            run.unsaved = await io.leave()
            return finish
        except asyncio.CancelledError as cancelled:
            await io.settle()
            if is_stopping() or is_cancelled():
                raise
            raise WorkCrashedError("the run awaited something that was cancelled elsewhere") from cancelled
        except RunLeftError:
            await io.flush()
            raise
        except Exception:
            run.unsaved = await io.leave()
            raise
        finally:
            run.mailbox = None
            run.tool_calls += mailbox.tool_calls
            mailbox.close()


def failure_of(error: BaseException) -> tuple[str, str]:
    """Return the class and text of the error that ended a run: of a recorded failure those of the recorded error."""
    if isinstance(error, NotPreparedError) and error.__cause__ is not None:
        return failure_of(error.__cause__)
    if isinstance(error, RecordedFailureError):
        return error.error, error.reason
    return type(error).__name__, kept_text(error)
