"""One run carried by this process: its record read, its program run against the seam, history after history.

What every host that lives in a process shares. Who may carry a run, and what becomes of its end, is the host's affair.
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
from harborage.runtime.durable.recorder import Recorder
from harborage.runtime.durable.steps import EffectTable
from harborage.runtime.loop.pauses import PauseCoordinator
from harborage.runtime.loop.seam import Concluded, Program, RunRequest

if TYPE_CHECKING:
    from harborage.planner import Finish
    from harborage.runtime.durable.inbox import Inbox


class HostedRun(Protocol):
    """What a host knows of a run while it carries it. The mailbox is set while there is one; `unreadable` is what ends
    the run's stay here at its next boundary. `tool_calls` counts those that were made here, `unsaved` are
    entries that are kept with the run's end."""

    request: RunRequest
    inbox: Inbox | None
    mailbox: Mailbox | None
    tool_calls: int
    unsaved: list[bytes]

    @property
    def unreadable(self) -> RunLeftError | None: ...


class Executor(msgspec.Struct, frozen=True, kw_only=True):
    """What carries runs: the code, the pauses they wait on, the clock. `is_stopping` and `refusals` as `Recorder` knows
    them."""

    program: Program
    effects: EffectTable
    pauses: PauseCoordinator
    clock: Timers
    recheck_s: float
    logger: logging.Logger
    refusals: tuple[type[Exception], ...] = ()

    async def perform(
        self,
        run_id: str,
        run: HostedRun,
        journal: Record,
        entries: Sequence[Entry],
        *,
        is_stopping: Callable[[], bool],
    ) -> Finish | Concluded:
        """Carry a run from where its entries stand to its finish.

        Raises:
            HistoryMismatchError, JournalCorruptError: the run waits for other code.
            Exception: what the run failed with.
        """
        told = latest_history(run.request, entries)
        crew = Crew(lambda name, error: self.logger.warning("run %s, %s: %s", run_id, name, error_reason(error)))
        try:
            while True:
                try:
                    return await self._once(run_id, run, journal, told, crew, is_stopping)
                except RolloverError as rollover:
                    told = History(rollover.carry, (), told.number + 1)
                    rolled = Rolled(at=self.clock.now(), carry=raw(told.request))
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
        told: History,
        crew: Crew,
        is_stopping: Callable[[], bool],
    ) -> Finish | Concluded:
        """Carry one history of the run to its end, or to its rollover."""
        request = told.request
        assert run.inbox is not None
        mailbox = Mailbox(
            run.inbox, self.pauses, crew, clock=self.clock, deadline=request.deadline, recheck_s=self.recheck_s
        )
        run.mailbox = mailbox
        if run.unreadable is not None:
            mailbox.refuse(run.unreadable)
        io = Recorder(
            run_id,
            self.effects,
            journal,
            mailbox,
            clock=self.clock,
            crew=crew,
            past=told.entries,
            history=told.number,
            is_stopping=is_stopping,
            refusals=self.refusals,
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
    """Class and text of what ended a run; of a step that failed before the run was carried on, those of its error."""
    if isinstance(error, NotPreparedError) and error.__cause__ is not None:
        return failure_of(error.__cause__)
    if isinstance(error, RecordedFailureError):
        return error.error, error.reason
    return type(error).__name__, kept_text(error)
