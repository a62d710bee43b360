"""The engine of runs as its callers see it, and the errors of engines and of the runs they execute.

`Engine` starts a run, sends it controls, reads its result and its history; the run's own loop sees its engine as
`Durable`.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec

from harborage.errors import HarborageError, NotFoundError, error_summary
from harborage.identity import Quadruple

if TYPE_CHECKING:
    from harborage.planner import Finish, FinishReason
    from harborage.runtime.durable.steps import Effects
    from harborage.runtime.loop.controls import ControlEvent
    from harborage.runtime.loop.seam import Program, RunRequest

T = TypeVar("T")

PROVIDER_UNAVAILABLE: Final = "interrupted: provider unavailable"
"""How the reason of a parked run begins whose model's provider is down; its step is retried later."""


class EngineError(HarborageError):
    """The engine could not do what its caller requested."""


class EngineClosedError(EngineError):
    """The engine is closed; with a storage the next runtime over it resumes the runs that had not ended."""


class EngineStoppedError(EngineError):
    """The engine of this process has stopped, so no run would continue here; the cause says why.

    What is recorded is safe: end this process, or open the runtime again, and the runs continue.
    """

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(
            f"the engine of this process has stopped: {reason}; open the runtime again to continue its runs"
            if reason
            else ""
        )


class EngineElsewhereError(EngineError):
    """This event loop does not execute these runs; open a runtime and use its runs on one, in `async with Runtime(…)`.

    The runtime was opened on another one, which may have ended.
    """


class RunNotFoundError(EngineError, NotFoundError):
    """There is no run with that id here."""

    what = "run"


class RunEndedError(RunNotFoundError):
    """The run has ended, so it takes no more controls; start another run to continue."""

    def __init__(self, run_id: str = "") -> None:
        super().__init__(run_id, message=f"run {run_id} has ended; start another to continue" if run_id else "")


class RunFailedError(EngineError):
    """The run ended with an error instead of a finish, which is the cause if it is still known, or without its goal.

    `reason` is why it finished, None after an error; `messages` are what was said, `usage` what its tree of runs used.
    """

    def __init__(
        self,
        run_id: str = "",
        error: str = "",
        message: str = "",
        *,
        reason: FinishReason | None = None,
        messages: Sequence[Any] = (),
        usage: Any = None,
    ) -> None:
        self.run_id = run_id
        self.error = error
        self.message = message
        self.reason = reason
        self.messages = messages
        self.usage = usage
        super().__init__(f"run {run_id} failed: {error}{message and ': '}{message}")


class RunBlockedError(EngineError):
    """The run needs other code, or a repair, to continue; controls sent meanwhile are kept. `reason` says why."""

    def __init__(self, run_id: str = "", reason: str = "") -> None:
        self.run_id = run_id
        self.reason = reason
        super().__init__(
            f"run {run_id} is blocked: {reason}; it is kept, and continues once a worker with the code that it was "
            "started with opens its storage, or once what cannot be read is repaired"
        )


class RuntimeClosedError(EngineError):
    """The runtime is not open; use it inside `async with Runtime(…) as rt:`."""


class RuntimeOpenError(EngineError):
    """The runtime is open already; enter it once at a time."""


class NotPreparedError(EngineError):
    """The run could not be prepared, for example because an input is missing; the cause says why."""


class RunLeftError(EngineError):
    """This worker executes the run no further. The run has not ended: it stopped at its last recorded step."""

    run_id = ""


class RecordRefusedError(RunLeftError):
    """A step could not be recorded, so the run stopped there; the cause says why. It continues once that is fixed."""

    def __init__(self, run_id: str = "", reason: str = "") -> None:
        self.run_id = run_id
        super().__init__(f"run {run_id} stopped at its last recorded step: {reason}")


class RunTakenError(RunLeftError):
    """Another worker executes the run now; what this one still did for it was not recorded."""

    def __init__(self, run_id: str = "") -> None:
        self.run_id = run_id
        super().__init__(f"run {run_id} is executed by another worker now")


class RunHandedOverError(RunLeftError):
    """This worker is to stop, so another one goes on with the run from its next step."""

    def __init__(self, run_id: str = "") -> None:
        self.run_id = run_id
        super().__init__(f"run {run_id} is handed over" if run_id else "")


class RunPutOffError(RunLeftError):
    """The run's next step is retried at `until`, or when a control arrives; its record says so."""

    def __init__(self, run_id: str, until: datetime, reason: str = "") -> None:
        self.run_id = run_id
        self.until = until
        self.reason = reason
        super().__init__(f"run {run_id}: {reason}; next attempt {until:%Y-%m-%d %H:%M:%S} UTC")


class AgentMissingError(RunLeftError):
    """This runtime lacks the agent that a run names; the run continues once a worker that has it executes it."""

    def __init__(self, agent: str = "", known: Iterable[str] = ()) -> None:
        self.agent = agent
        have = ", ".join(map(repr, sorted(known))) or "none"
        super().__init__(f"there is no agent {agent!r} here (known: {have}); add it to Runtime([…])")


class DependenciesMissingError(RunLeftError):
    """This runtime lacks what the agent of a run depends on; the run continues once a worker that has it executes it.

    `wanted` names the type that the agent takes.
    """

    def __init__(self, run_id: str = "", wanted: str = "") -> None:
        self.run_id = run_id
        self.wanted = wanted
        super().__init__(
            f"run {run_id} needs deps of type {wanted}, which this process does not have; give it a factory: "
            f"Runtime([…], deps={{{wanted}: factory}})"
        )


class HistoryMismatchError(RunLeftError):
    """The code executes another step than the journal recorded; the run continues once the right code executes it.

    `position`, `recorded` and `asked` name the step at which they differ.
    """

    def __init__(self, run_id: str = "", position: str = "", recorded: str = "", asked: str = "") -> None:
        self.run_id = run_id
        self.position = position
        self.recorded = recorded
        self.asked = asked
        super().__init__(f"run {run_id} at {position}: recorded step {recorded!r}, the code asks for {asked!r}")


class ControlUnreadableError(RunLeftError):
    """A control that was sent to the run cannot be read; the run is blocked, with all that was sent after it.

    `number` is that of the control's row, `event_id` the control's own id.
    """

    def __init__(self, run_id: str = "", number: int = 0, event_id: str = "", reason: str = "") -> None:
        self.run_id = run_id
        self.number = number
        self.event_id = event_id
        super().__init__(
            f"run {run_id}: its control {number} (event id {event_id!r}) cannot be read: {reason}; upgrade if a newer "
            f"version sent it, else delete row {number} of harborage_controls, and start a worker again"
            if run_id
            else ""
        )


class RolloverError(RunLeftError):
    """Ends a history of a run: the engine catches it and continues the run in a new history with `carry`."""

    def __init__(self, carry: RunRequest) -> None:
        self.carry = carry
        super().__init__("the run asked for a new history")


class RunPhase(StrEnum):
    """The phase of a run."""

    PENDING = "pending"
    RUNNING = "running"
    PARKED = "parked"
    BLOCKED = "blocked"
    FINISHED = "finished"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """Whether the run has ended."""
        return self in {RunPhase.FINISHED, RunPhase.FAILED}


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of one run. `agent` is the name under which its agent's runs are recorded, `tags` are what it was
    marked with when it was started."""

    run_id: str
    who: Quadruple
    goal: str
    phase: RunPhase
    reason: str = ""
    agent: str = ""
    tags: Mapping[str, str] = {}
    started_at: datetime | None = None


class Engine(Protocol):
    """An engine of runs, as its callers see it."""

    async def start(self, run_id: str, request: RunRequest, *, seed: Sequence[bytes] = ()) -> None:
        """Start a run whose first steps are recalled from `seed`; starting the same id again does nothing."""
        ...

    async def send(self, run_id: str, control: ControlEvent) -> bool:
        """Queue a control for the run; durable once this returns. Return False if its event id was queued before.

        A blocked run consumes it once it continues, which is logged.

        Raises:
            RunNotFoundError: no such run.
            RunEndedError: it has ended.
        """
        ...

    async def was_sent(self, run_id: str, event_id: str) -> bool:
        """Return whether a control with this event id was queued for the run, also once it has ended."""
        ...

    async def result(self, run_id: str) -> Finish:
        """Wait until the run has finished, and return its finish.

        Raises:
            RunFailedError: it ended with an error.
            RunBlockedError: it needs other code, or a repair; call this again once that is there.
            RunNotFoundError: no such run.
        """
        ...

    async def status(self, run_id: str) -> RunStatus:
        """Return the status of the run.

        Raises:
            RunNotFoundError: no such run.
        """
        ...

    async def list(self) -> list[RunStatus]:
        """Return the status of every run, oldest first."""
        ...

    async def history(self, run_id: str) -> builtins.list[bytes]:
        """Return the run's recorded entries in order: for views, replay and forks.

        Raises:
            RunNotFoundError: no such run.
        """
        ...

    async def serve(self, program: Program, effects: Effects) -> None:
        """Execute runs with this code until cancelled; every run then stops at its last recorded step."""
        ...


class RecordedFailureError(EngineError):
    """The recorded failure of a step that raised when it was executed."""

    def __init__(self, name: str = "", error: str = "", message: str = "") -> None:
        self.name = name
        self.error = error
        self.reason = message
        super().__init__(f"step {name!r} failed: {error}: {message}")


class StrayCancellationError(EngineError):
    """A step ended in a cancellation that the engine did not request: what it awaited was cancelled elsewhere."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        super().__init__(f"step {name!r} awaited something that was cancelled elsewhere")


class StepCrashedError(EngineError):
    """A step raised an exception that is no `Exception`, such as SystemExit; it fails the run like any other error."""

    def __init__(self, name: str = "", crash: BaseException | None = None) -> None:
        self.name = name
        super().__init__(f"step {name!r} raised {'' if crash is None else error_summary(crash)}")
