"""The shared parts that a run's effects work with, built once when the runtime is assembled."""

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
from harborage.runtime.durable.engine import RunLeftError
from harborage.runtime.durable.mailbox import earliest
from harborage.runtime.durable.pauses.coordinator import Coordinator
from harborage.runtime.effects.approval.operator import OperatorApprovals
from harborage.runtime.effects.context_providers import ContextProviders
from harborage.runtime.effects.control_history import ControlHistory
from harborage.runtime.effects.executor import CatalogToolExecutor
from harborage.runtime.effects.gates import Gates
from harborage.runtime.effects.hooks import Hooks
from harborage.runtime.effects.model_recording import ModelRecorder
from harborage.runtime.effects.sealing import Seals
from harborage.runtime.effects.user_code import PlannerLimit, bounded
from harborage.runtime.loop.state import ControlErrors
from harborage.state.errors import DatabaseError
from harborage.tasks import TaskRegistry

T = TypeVar("T")


def _default_redactor() -> Redactor:
    return REDACTOR_DRIVERS.factory("patterns")()


class _LogAbandoned(msgspec.Struct, frozen=True, gc=False):
    """Logs code that was abandoned because it ignored its cancellation; made for each step, so it is small."""

    logger: logging.Logger
    who: Quadruple
    what: str

    def __call__(self, problem: BaseException | None) -> None:
        why = "" if problem is None else f", and could not be closed: {error_text(problem)}"
        text = "run %s: %s was abandoned: it ignored its cancellation for %g s%s"
        self.logger.warning(text, self.who.run_id, self.what, CANCEL_GRACE_S, why)


class AgentServices(msgspec.Struct, frozen=True, kw_only=True):
    """The services that the effects of all runs share.

    `pause_ttl` is how long a pause may stay open, `approval_ttl` how long a call may wait for approval; None is for
    ever. `binds_answers` refuses an approval or rejection that names another token than the open pause has.
    `announces` makes the runtime publish decisions, finishes and planner errors that the planner itself did not.
    `folds` keeps a run going when compression fails, by an arithmetic summary, and compresses again when it must.
    `keys_pauses` lets a step that is repeated after a crash find the pause that it opened; only where no run id is ever
    used twice. `redactor` takes secrets out of what a person is shown, and out of reasoning before it is recorded.
    `model_recorder` records the planners' model calls. `patience` is how long a run waits for a provider that is down;
    None lets it fail at once. `planner_limit` is how long a planner may take for one decision; without one it is its
    caller that ends it. `is_recorded` says that runs are recorded and resumed, so that their observations are
    values that a record can hold, and a step that the database refuses is retried. `admit` may refuse that a run spawns
    another. `context_providers` are queried for each run, and hold the session memory. `stragglers` owns decisions that
    ignore their cancellation, of an embedder's own executors. `publishes_with_record` says that a run's events are
    committed with the entries that it records, so that none is published of an entry that was not recorded.
    `hooks` are those of the agent's capabilities; None without any. `approvals` are what operators decided over what
    the gates say.
    `answer_type` makes of a type how answers of people become its values.
    `seals` keep what peers gave to be given back, and nobody may read.
    `has_output` says that the agent declares the type of its output, so that its answers are more than text.
    """

    pauses: Coordinator
    history: ControlHistory
    bus: EventBus | None = None
    tasks: TaskRegistry | None = None
    executor: CatalogToolExecutor | None = None
    gates: Gates = msgspec.field(default_factory=Gates)
    approvals: OperatorApprovals | None = None
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
    planner_limit: PlannerLimit | None = None
    model_recorder: ModelRecorder | None = None
    redactor: Redactor = msgspec.field(default_factory=_default_redactor)
    stragglers: Crew | None = None
    context_providers: ContextProviders | None = None
    admit: Callable[[Quadruple], Awaitable[None]] | None = None
    publishes_with_record: bool = False
    hooks: Hooks | None = None
    has_output: bool = False
    seals: Seals | None = None
    answer_type: Callable[[Any], Any] | None = None
    logger: logging.Logger = logging.getLogger("harborage.runtime")

    def reraise_refusal(self, error: HarborageError) -> None:
        """Raise an error again for which a recorded run is left: the step has not failed, and is retried."""
        if isinstance(error, RunLeftError) or (isinstance(error, DatabaseError) and self.is_recorded):
            raise error

    def answer_by(self, ttl: timedelta | None, deadline: datetime | None) -> datetime | None:
        """Return until when a question that is asked now can be answered: for `ttl`, at most until the run's deadline.

        None is for ever.
        """
        own = None if ttl is None else self.stamp.now() + ttl
        return earliest(own, deadline)

    def leavable(
        self, work: Awaitable[T], what: str, who: Quadruple, *, owner: asyncio.Task[Any] | None = None
    ) -> Awaitable[T]:
        """Await user code without letting it hold up its run.

        Work that ignores its cancellation for longer than the grace is abandoned, and the log names it. `owner` is the
        task that awaits it, where that is known.
        """
        return leavable(work, clock=self.clock, on_left=_LogAbandoned(self.logger, who, what), owner=owner)

    def bounded(self, work: Awaitable[T], seconds: float, what: str, who: Quadruple) -> Awaitable[T]:
        """Await user code for `seconds` at most. Whatever it does but answer is an ordinary error: see `bounded`."""
        return bounded(work, seconds, clock=self.clock, on_left=_LogAbandoned(self.logger, who, what))

    def emit(self, type: EventType, who: Quadruple, payload: Payload, at: datetime | None = None) -> None:
        """Publish an event about a run, as of `at` or now. Announcing must not end a run, so a failure is logged."""
        if self.bus is None:
            return
        try:
            self.bus.publish_nowait(Event(type, who, payload, at))
        except Exception as error:  # noqa: BLE001 - announcing must not end a run
            self.logger.warning("run %s: %s was not published: %s", who.run_id, type, error_reason(error))
