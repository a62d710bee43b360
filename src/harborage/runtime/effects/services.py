"""The shared parts that a run's effects act on; built once by whoever assembles the runtime."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from harborage.clock import SYSTEM_CLOCK, Clock, Timers
from harborage.concurrency import CANCEL_GRACE_S, Crew, leavable
from harborage.errors import HarborageError, error_reason, error_text
from harborage.events import REDACTOR_DRIVERS, Event, EventBus, EventType, Payload, Redactor
from harborage.identity import Quadruple
from harborage.runtime.durable.mailbox import earliest
from harborage.runtime.effects.context_desk import ContextDesk
from harborage.runtime.effects.control_history import ControlHistory
from harborage.runtime.effects.executor import CatalogToolExecutor
from harborage.runtime.effects.gates import Gates
from harborage.runtime.effects.model_recording import Hearing
from harborage.runtime.loop.pauses import PauseCoordinator
from harborage.runtime.loop.state import ControlErrors
from harborage.state.errors import DatabaseError
from harborage.tasks import TaskRegistry

T = TypeVar("T")


def _default_redactor() -> Redactor:
    return REDACTOR_DRIVERS.factory("patterns")()


class _Left(msgspec.Struct, frozen=True, gc=False):
    """Says in the log what was left; made for each step of each run, so it is small."""

    logger: logging.Logger
    who: Quadruple
    what: str

    def __call__(self, problem: BaseException | None) -> None:
        why = "" if problem is None else f", and could not be closed: {error_text(problem)}"
        text = "run %s: %s was left: it ignored its cancellation for %g s%s"
        self.logger.warning(text, self.who.run_id, self.what, CANCEL_GRACE_S, why)


class AgentServices(msgspec.Struct, frozen=True, kw_only=True):
    """What effects need. `pause_ttl` is how long a pause may stay open, `approval_ttl` how long a call that waits for a
    yes; None lets it wait for ever.

    `binds_answers` refuses an approval or rejection that names another token than the open pause has.
    `announces` makes the runtime publish decisions, finishes and planner errors that the planner itself did not.
    `folds` keeps a run going when compression fails, by an arithmetic summary, and compresses again when it must.
    `keys_pauses` lets a step that is repeated after a crash find the pause that it opened; only where no run id is ever
    used twice. `redactor` takes secrets out of what a person is shown, and out of reasoning before it is recorded.
    `hearing` hears what planners ask of their models, for the record. `patience` is how long a run waits for a
    provider that is down; None lets it fail at once. `is_recorded` says that runs are kept and carried
    on, so that what they observe is what a record can hold, and a database that refuses is asked again. `admit`
    refuses that a run spawns another. `desk` asks context providers, and has the memory of sessions. `stragglers` owns
    decisions that ignore their cancellation, of executors that belong to an embedder. `tells_with_record` says that
    what a run publishes is kept with what it
    records: what is not on record was not told.
    """

    pauses: PauseCoordinator
    history: ControlHistory
    bus: EventBus | None = None
    tasks: TaskRegistry | None = None
    executor: CatalogToolExecutor | None = None
    gates: Gates = msgspec.field(default_factory=Gates)
    clock: Timers = SYSTEM_CLOCK
    stamp: Clock = SYSTEM_CLOCK
    control_errors: ControlErrors = ControlErrors.FAIL
    hard_cancel_hook: Callable[[str], Awaitable[None]] | None = None
    pause_ttl: timedelta | None = None
    approval_ttl: timedelta | None = None
    binds_answers: bool = False
    announces: bool = False
    folds: bool = False
    keys_pauses: bool = False
    is_recorded: bool = False
    patience: timedelta | None = None
    hearing: Hearing | None = None
    redactor: Redactor = msgspec.field(default_factory=_default_redactor)
    stragglers: Crew | None = None
    desk: ContextDesk | None = None
    admit: Callable[[Quadruple], Awaitable[None]] | None = None
    tells_with_record: bool = False
    logger: logging.Logger = logging.getLogger("harborage.runtime")

    def reraise_refusal(self, error: HarborageError) -> None:
        """A database that refuses a run that is recorded has not failed its step, which is taken again."""
        if isinstance(error, DatabaseError) and self.is_recorded:
            raise error

    def answer_by(self, ttl: timedelta | None, deadline: datetime | None) -> datetime | None:
        """Until when what is asked now can be answered: for `ttl`, but not beyond the run's deadline; None for ever."""
        own = None if ttl is None else self.stamp.now() + ttl
        return earliest(own, deadline)

    def leavable(
        self, work: Awaitable[T], what: str, who: Quadruple, *, owner: asyncio.Task[Any] | None = None
    ) -> Awaitable[T]:
        """What code of others gives, which cannot hold up its run: when that is to end and the work goes on for longer
        than the grace, it is ended, and its name is logged. `owner` is the task that awaits it, where that is known."""
        return leavable(work, clock=self.clock, on_left=_Left(self.logger, who, what), owner=owner)

    def emit(self, type: EventType, who: Quadruple, payload: Payload, at: datetime | None = None) -> None:
        """Publish an event about a run, as of `at` or now. Announcing must not end a run, so a failure is logged."""
        if self.bus is None:
            return
        try:
            self.bus.publish_nowait(Event(type, who, payload, at))
        except Exception as error:  # noqa: BLE001 - announcing must not end a run
            self.logger.warning("run %s: %s was not published: %s", who.run_id, type, error_reason(error))
