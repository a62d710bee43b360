"""What the outside sees of a host of runs, and the errors of both sides.

`Engine` starts a run, sends it controls, reads its result and its history; what the run's loop sees of its host is
`Durable`.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import msgspec

from harborage.errors import HarborageError, NotFoundError, error_summary
from harborage.identity import Quadruple

if TYPE_CHECKING:
    from harborage.planner import Finish
    from harborage.runtime.durable.steps import EffectTable
    from harborage.runtime.loop.controls import ControlEvent
    from harborage.runtime.loop.seam import Program, RunRequest

T = TypeVar("T")

PROVIDER_UNAVAILABLE: Final = "interrupted: provider unavailable"
"""How the reason of a parked run begins whose model's provider is down; in time it is asked again."""


class EngineError(HarborageError):
    """A run's host could not do what was asked."""


class EngineClosedError(EngineError):
    """This host is closed; with a storage the next one over it continues the runs that had not ended."""


class EngineStoppedError(EngineError):
    """The engine of this process has stopped, so nothing here would ever move a run; the cause says why.

    What is recorded is safe: end this process, or open the runtime again, and the runs go on.
    """

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(
            f"the engine of this process has stopped: {reason}; open the runtime again, and its runs go on"
            if reason
            else ""
        )


class EngineElsewhereError(EngineError):
    """Nothing moves these runs on this event loop; open a runtime and use its runs on one, in `async with Runtime(…)`.

    The runtime was opened on another one, which may have ended.
    """


class RunNotFoundError(EngineError, NotFoundError):
    """There is no run with that id here."""

    what = "run"


class RunEndedError(RunNotFoundError):
    """The run has ended, so it takes nothing more; start another to go on."""

    def __init__(self, run_id: str = "") -> None:
        super().__init__(run_id, message=f"run {run_id} has ended; start another to go on" if run_id else "")


class RunFailedError(EngineError):
    """The run ended with an error instead of a finish; the error is the cause where it is still known."""

    def __init__(self, run_id: str = "", error: str = "", message: str = "") -> None:
        self.run_id = run_id
        self.error = error
        self.message = message
        super().__init__(f"run {run_id} failed: {error}: {message}")


class RunBlockedError(EngineError):
    """The run needs other code, or a repair, before it goes on; what it is sent meanwhile is kept. `reason` is why."""

    def __init__(self, run_id: str = "", reason: str = "") -> None:
        self.run_id = run_id
        self.reason = reason
        super().__init__(
            f"run {run_id} is blocked: {reason}; it is kept, and goes on once a worker with the code that it was "
            "started with opens its storage, or once what cannot be read is repaired"
        )


class NotPreparedError(EngineError):
    """The run could not be given what it works with; the cause says why."""


class RunLeftError(EngineError):
    """This host executes the run no further. The run has not ended: it stopped at its last recorded step."""


class RecordRefusedError(RunLeftError):
    """What a run did could not be recorded, so it stopped there; the cause says why. It goes on once that is mended."""

    def __init__(self, run_id: str = "", reason: str = "") -> None:
        self.run_id = run_id
        super().__init__(f"run {run_id} stopped at its last recorded step: {reason}")


class RunTakenError(RunLeftError):
    """Another host carries the run now; whatever this one still did for it was not recorded."""

    def __init__(self, run_id: str = "") -> None:
        self.run_id = run_id
        super().__init__(f"run {run_id} is carried by another host now")


class RunPutOffError(RunLeftError):
    """The run's next step is taken at `until`, or when something arrives; its record says so."""

    def __init__(self, run_id: str, until: datetime, reason: str = "") -> None:
        self.run_id = run_id
        self.until = until
        self.reason = reason
        super().__init__(f"run {run_id}: {reason}; next attempt {until:%Y-%m-%d %H:%M:%S} UTC")


class HistoryMismatchError(RunLeftError):
    """The code asked for another step than the journal recorded; the run is kept and heals when the right code is back.

    `position`, `recorded` and `asked` name where they part.
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
    """Carries a run into a new history: the host catches it and begins again with `carry`."""

    def __init__(self, carry: RunRequest) -> None:
        self.carry = carry
        super().__init__("the run asked for a new history")


class RunPhase(StrEnum):
    """Where a run stands."""

    PENDING = "pending"
    RUNNING = "running"
    PARKED = "parked"
    BLOCKED = "blocked"
    FINISHED = "finished"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """Whether the run will never move again."""
        return self in {RunPhase.FINISHED, RunPhase.FAILED}


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a host's list of runs."""

    run_id: str
    who: Quadruple
    goal: str
    phase: RunPhase
    reason: str = ""


class Engine(Protocol):
    """What the outside sees of a host of runs."""

    async def start(self, run_id: str, request: RunRequest, *, seed: Sequence[bytes] = ()) -> None:
        """Begin a run, answering its first steps from `seed`; starting the same id again does nothing."""
        ...

    async def send(self, run_id: str, control: ControlEvent) -> bool:
        """Queue a control for the run; durable once this returns. False for an event id that was queued before.

        A blocked run takes it once it goes on again, which is logged.

        Raises:
            RunNotFoundError: no such run.
            RunEndedError: it has ended.
        """
        ...

    async def result(self, run_id: str) -> Finish:
        """How the run finished, once it has.

        Raises:
            RunFailedError: it ended with an error.
            RunBlockedError: it needs other code, or a repair; ask again once that is there.
            RunNotFoundError: no such run.
        """
        ...

    async def status(self, run_id: str) -> RunStatus:
        """Where the run stands now.

        Raises:
            RunNotFoundError: no such run.
        """
        ...

    async def list(self) -> list[RunStatus]:
        """Every run this host knows, oldest first."""
        ...

    async def history(self, run_id: str) -> builtins.list[bytes]:
        """The run's recorded entries in order: for views, replay and forks.

        Raises:
            RunNotFoundError: no such run.
        """
        ...

    async def serve(self, program: Program, effects: EffectTable) -> None:
        """Carry runs with this code until cancelled; on the way out every run is left where its journal stands."""
        ...


class RecordedFailureError(EngineError):
    """A step raised when it ran; this is what was recorded of it."""

    def __init__(self, name: str = "", error: str = "", message: str = "") -> None:
        self.name = name
        self.error = error
        self.reason = message
        super().__init__(f"step {name!r} failed: {error}: {message}")


class StrayCancellationError(EngineError):
    """A step ended in a cancellation that nobody asked of it: it or what it awaited was cancelled elsewhere."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        super().__init__(f"step {name!r} awaited something that was cancelled elsewhere")


class StepCrashedError(EngineError):
    """A step raised what Python does not count as an error, such as SystemExit; it fails the run like any other."""

    def __init__(self, name: str = "", crash: BaseException | None = None) -> None:
        self.name = name
        super().__init__(f"step {name!r} raised {'' if crash is None else error_summary(crash)}")
