"""What a planner's author hands in, the parts that one scenario works with, and the report of their outcomes.

Every factory of a harness is called anew for each scenario, and may be a coroutine function. A bench closes what it
opened in reverse order when its scenario is over.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from enum import Flag, StrEnum, auto
from typing import Final, Self, TypeAlias, TypeVar, assert_never

import msgspec

from harborage.events import BUS_DRIVERS
from harborage.identity import Quadruple
from harborage.planner.context import Planner, RunContext
from harborage.planner.decisions import WakeMode
from harborage.planner.errors import PlannerError
from harborage.planner.trajectory import Trajectory
from harborage.tasks import InProcessTaskRegistry, TaskRegistry


class PromiseBrokenError(PlannerError, AssertionError):
    """A planner does not do what a planner promises."""


class ScenarioSkipped(Exception):  # noqa: N818 - ends a scenario, and is no error
    """A scenario does not apply to this planner; `reason` says why."""

    def __init__(self, reason: str) -> None:
        if not reason.strip():
            raise ValueError("a skipped scenario states its reason")
        self.reason = reason
        super().__init__(reason)


class Passed(msgspec.Struct, frozen=True, tag=True):
    """The planner keeps the promise."""


class Skipped(msgspec.Struct, frozen=True, tag=True):
    """The planner was not asked, for this reason."""

    reason: str


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The planner breaks the promise, or something around it failed. `error` is what was raised."""

    reason: str
    error: Exception


Outcome: TypeAlias = Passed | Skipped | Failed


class ConformanceReport(msgspec.Struct, frozen=True):
    """The outcome of every scenario, in the order they ran. `str(report)` is a line for each."""

    outcomes: Mapping[str, Outcome]

    @property
    def passed(self) -> tuple[str, ...]:
        """The scenarios that passed."""
        return tuple(name for name, outcome in self.outcomes.items() if isinstance(outcome, Passed))

    @property
    def skipped(self) -> dict[str, str]:
        """The scenarios that were skipped, and why."""
        return {name: outcome.reason for name, outcome in self.outcomes.items() if isinstance(outcome, Skipped)}

    @property
    def failed(self) -> dict[str, str]:
        """The scenarios that failed, and how."""
        return {name: outcome.reason for name, outcome in self.outcomes.items() if isinstance(outcome, Failed)}

    def __str__(self) -> str:
        return "\n".join(f"{name}: {_render_outcome(outcome)}" for name, outcome in self.outcomes.items())


class ConformanceFailedError(PlannerError, AssertionError):
    """Scenarios failed. `report` has every outcome; the cause groups the errors."""

    def __init__(self, report: ConformanceReport) -> None:
        self.report = report
        named = "; ".join(f"{name}: {reason}" for name, reason in report.failed.items())
        super().__init__(f"{len(report.failed)} of {len(report.outcomes)} scenarios failed: {named}")


def expect(holds: bool, what: str) -> None:
    """Check a promise.

    Raises:
        PromiseBrokenError: it does not hold; `what` is the message.
    """
    if not holds:
        raise PromiseBrokenError(what)


def _render_outcome(outcome: Outcome) -> str:
    match outcome:
        case Passed():
            return "passed"
        case Skipped(reason):
            return f"skipped ({reason})"
        case Failed(reason):
            return f"FAILED ({reason})"
        case _ as unreachable:
            assert_never(unreachable)


class Capabilities(Flag):
    """What a planner can do beyond returning decisions; a scenario that needs more is skipped."""

    NONE = 0
    #: It asks a model, which a scenario may let answer garbage.
    LLM_DRIVEN = auto()
    #: It returns `RequestPause` when it is built for the scenario `pause`.
    CAN_PAUSE = auto()
    #: It spawns a task and takes up the result.
    WAKE_ROUND_TRIP = auto()
    #: It finishes as cancelled when steering says so.
    HONOURS_CANCEL_CONTROL = auto()


REACT_CAPABILITIES: Final = Capabilities.LLM_DRIVEN | Capabilities.WAKE_ROUND_TRIP | Capabilities.HONOURS_CANCEL_CONTROL
"""What a planner that asks a model and never pauses by itself can do."""

DETERMINISTIC_CAPABILITIES: Final = (
    Capabilities.CAN_PAUSE | Capabilities.WAKE_ROUND_TRIP | Capabilities.HONOURS_CANCEL_CONTROL
)
"""What a planner that follows a decision tree can do."""


class Canned(StrEnum):
    """The scenarios for which a harness may build a planner that is sure to do one thing at its first step."""

    CALL_TOOL = "call_tool"
    FINISH = "finish"
    CALL_PARALLEL = "call_parallel"
    MALFORMED = "malformed"
    PAUSE = "pause"


def default_context() -> RunContext:
    """A run at its first step: `conf-tenant`, `conf-user`, `conf-session`, `conf-run`, with a goal and no history."""
    goal = "say whether the planner conforms"
    return RunContext(
        quadruple=Quadruple("conf-tenant", "conf-user", "conf-session", "conf-run"),
        query=goal,
        goal=goal,
        trajectory=Trajectory(query=goal),
    )


class Harness(msgspec.Struct, frozen=True, kw_only=True):
    """A planner under test.

    `planner` builds it. `scenario` builds one for a `Canned` name, with a model that answers accordingly, or returns
    None where it has none. `wake_mode` and `capabilities` are what the author claims. `planner_on` builds one over a
    registry, for the wake round trip: its first decision spawns a task, the one after the task has ended is another.
    `open_registry` opens that registry on its bus and store; without it there is one in memory. The pack closes the
    registry, `cleanup` what it depends on, after each scenario. `patience_s` is how long a wake-up may take,
    `limit_s` how long a scenario, both in seconds.
    """

    planner: Callable[[], Planner | Awaitable[Planner]]
    capabilities: Capabilities = Capabilities.NONE
    wake_mode: WakeMode = WakeMode.PUSH
    scenario: Callable[[Canned], Planner | Awaitable[Planner | None] | None] | None = None
    planner_on: Callable[[TaskRegistry], Planner | Awaitable[Planner]] | None = None
    open_registry: Callable[[], TaskRegistry | Awaitable[TaskRegistry]] | None = None
    context: Callable[[], RunContext | Awaitable[RunContext]] = default_context
    cleanup: Callable[[], Awaitable[None] | None] | None = None
    patience_s: float = 2.0
    limit_s: float = 60.0


T = TypeVar("T")


class Bench:
    """The parts of one scenario. Use it as `async with Bench(harness) as bench`."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self._closing = AsyncExitStack()

    async def __aenter__(self) -> Self:
        if self.harness.cleanup is not None:
            self._closing.push_async_callback(self._clean_up)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._closing.aclose()

    def require(self, capability: Capabilities) -> None:
        """Check that the planner claims a capability.

        Raises:
            ScenarioSkipped: it does not.
        """
        if capability not in self.harness.capabilities:
            raise ScenarioSkipped(f"the planner does not claim {capability.name}")

    async def planner(self) -> Planner:
        """A fresh planner."""
        return await _resolve(self.harness.planner())

    async def canned(self, name: Canned) -> Planner:
        """Return a fresh planner that is sure to do what `name` says.

        Raises:
            ScenarioSkipped: the harness has none.
        """
        found = await self._make_canned(name)
        if found is None:
            raise ScenarioSkipped(f"the harness has no planner for the scenario {name}")
        return found

    async def canned_or_own(self, name: Canned) -> Planner:
        """Return a fresh planner that is sure to do what `name` says, else the harness's usual one."""
        found = await self._make_canned(name)
        return await self.planner() if found is None else found

    async def planner_on(self, registry: TaskRegistry) -> Planner:
        """A fresh planner over this registry.

        Raises:
            ScenarioSkipped: the harness has none.
        """
        if self.harness.planner_on is None:
            raise ScenarioSkipped("the harness has no planner over a task registry: pass planner_on")
        return await _resolve(self.harness.planner_on(registry))

    async def context(self) -> RunContext:
        """A fresh context."""
        return await _resolve(self.harness.context())

    async def registry(self) -> TaskRegistry:
        """A fresh task registry, the harness's own or one in memory; it is closed with the scenario."""
        opened = await (
            self._open_own_registry() if self.harness.open_registry is None else self._open_given_registry()
        )
        self._closing.push_async_callback(opened.aclose)
        return opened

    async def _make_canned(self, name: Canned) -> Planner | None:
        return None if self.harness.scenario is None else await _resolve(self.harness.scenario(name))

    async def _open_given_registry(self) -> TaskRegistry:
        assert self.harness.open_registry is not None
        return await _resolve(self.harness.open_registry())

    async def _open_own_registry(self) -> TaskRegistry:
        bus = BUS_DRIVERS.factory("inmem")()
        self._closing.push_async_callback(bus.aclose)
        return InProcessTaskRegistry(bus=bus)

    async def _clean_up(self) -> None:
        assert self.harness.cleanup is not None
        await _resolve(self.harness.cleanup())


async def _resolve(value: T | Awaitable[T]) -> T:
    """Return what a factory made, whether it is a plain or a coroutine function."""
    return await value if inspect.isawaitable(value) else value
