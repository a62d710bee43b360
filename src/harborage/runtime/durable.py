"""The durable seam: what the run loop sees of its host, and what the outside sees of it.

The loop is written against `Durable` alone, so the same loop runs in memory, on a journal in SQLite or Postgres, and
on a distributed engine. `Engine` is the other side: start a run, send it controls, read its result and its history.
"""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeAlias, TypeVar

import msgspec

from harborage.errors import HarborageError, NotFoundError
from harborage.identity import Quadruple
from harborage.planner import Finish, FinishReason, JoinSpec
from harborage.runtime.context import Context
from harborage.runtime.limits import Limits
from harborage.store import Status

if TYPE_CHECKING:
    from harborage.runtime.effects import EffectTable
    from harborage.runtime.joins import BranchOutcome
    from harborage.runtime.steering.arrivals import Arrivals, Hold, Woken
    from harborage.runtime.steering.controls import ControlEvent

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


class Durable(Protocol):
    """What the loop sees of its host. Every answer is recorded: a run that is carried on gets the same ones again.

    Names of steps are registered effects, payloads and results have a JSON form. Never: runs a recorded step again.
    """

    @property
    def run_id(self) -> str:
        """The run this seam belongs to."""
        ...

    async def step(self, name: str, payload: Any) -> Any:
        """Run the effect `name` once and return its result.

        Raises:
            StepInterruptedError: a hard cancel or the run's deadline cut it short.
            Exception: what the effect raised.
        """
        ...

    async def gather(
        self, branches: Sequence[Callable[[Durable], Awaitable[T]]], join: JoinSpec
    ) -> list[BranchOutcome[T]]:
        """Run branches side by side until `join` is satisfied; every branch has exactly one outcome, in order."""
        ...

    async def drain(self) -> Arrivals:
        """What has arrived by now. Never: waits."""
        ...

    async def wait(self, hold: Hold) -> Woken:
        """Park until there is a reason to look again; may take days and needs no process meanwhile."""
        ...

    async def spawn(self, child_id: str, spec: Any) -> Any:
        """Start a child under an id of its own; asking twice starts one child."""
        ...

    async def join(self, child_id: str) -> Any:
        """How the child ended, once it has."""
        ...

    async def rollover(self, carry: RunRequest) -> NoReturn:
        """Begin a new history of the same run with `carry` in place of what it was started with. Never: returns."""
        ...

    async def patched(self, change: str) -> bool:
        """Whether this run takes the code change of that name: True if it meets it first, False if it is older."""
        ...


class GatedTools(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which tools need approval, as a run records it when it starts: those of these names, or all but the exempt."""

    names: frozenset[str] = frozenset()
    is_all: bool = False
    exempt: frozenset[str] = frozenset()

    def __contains__(self, tool: object) -> bool:
        return tool not in self.exempt if self.is_all else tool in self.names


class RunRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run is started with. `deadline` is absolute; `token_budget` 0 switches compression off.

    A rehearsal changes nothing outside itself: calls of tools that have effects, and spawned tasks, are refused. A fork
    has its steps before `forked_at` from the run `forked_from`. `limits` are those of the run `limits_of`, which it
    shares; they are its own where that is empty. `context` is what its caller gave it to be shown; `asks_context` says
    that providers are asked before its first step, `writes_memory` that its session remembers it when it reached its
    goal. A child was spawned by another run. `gated` are the tools whose calls need approval; a run of an earlier
    version, which has none on record, takes those of whoever carries it.
    """

    who: Quadruple
    goal: str
    query: str = ""
    task_id: str = ""
    max_steps: int = 0
    deadline: datetime | None = None
    token_budget: int = 0
    input_artifact_ids: tuple[str, ...] = ()
    is_rehearsal: bool = False
    forked_from: str = ""
    forked_at: int = 0
    limits: Limits | None = None
    limits_of: str = ""
    is_child: bool = False
    context: Context | None = None
    asks_context: bool = False
    writes_memory: bool = False
    gated: GatedTools | None = None

    def within(self, parent: RunRequest | None) -> RunRequest:
        """The same for a run that `parent` has spawned: it shares the limits of its tree."""
        if parent is None:
            return self
        root = "" if parent.limits is None else parent.limits_of or parent.who.run_id
        return msgspec.structs.replace(self, limits=parent.limits, limits_of=root)


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


class Concluded(msgspec.Struct, frozen=True, kw_only=True):
    """How a program ended its run, and the task of the run: with which status, and with what result or error."""

    finish: Finish
    status: Status
    outcome: bytes = b""

    @staticmethod
    def of(ending: Finish | Concluded) -> Concluded:
        """The same for a program that says nothing of a task: it is complete when the goal is reached, else failed."""
        if isinstance(ending, Concluded):
            return ending
        status = Status.COMPLETE if ending.reason is FinishReason.GOAL else Status.FAILED
        return Concluded(finish=ending, status=status)


Program: TypeAlias = Callable[[Any, RunRequest], Awaitable[Finish | Concluded]]
"""What a host runs: pure code over the seam, from a request to a finish. It is called with the host's `Durable`."""


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
