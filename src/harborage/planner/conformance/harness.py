"""What a planner's author hands in: how to build the planner, what it can do, and what it runs on.

Every factory is called anew for each scenario, and may be a coroutine function.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Flag, StrEnum, auto
from typing import Final

import msgspec

from harborage.identity import Quadruple
from harborage.planner.context import Planner, RunContext
from harborage.planner.enums import WakeMode
from harborage.planner.trajectory import Trajectory
from harborage.tasks import TaskRegistry

__all__ = [
    "DETERMINISTIC_CAPABILITIES",
    "REACT_CAPABILITIES",
    "Canned",
    "Capabilities",
    "Harness",
    "default_context",
]


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
    registry, `cleanup` what it stands on, after each scenario. `patience_s` is how long a wake-up may take,
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
