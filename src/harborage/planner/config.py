"""The planner section of an operator's configuration, and how the name in it becomes a planner.

A planner is an object that is passed in; only configuration needs a name. Nothing here imports a driver before it is
asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeAlias, cast

import msgspec

from harborage.callables import CallbackKindError, require_async, require_sync
from harborage.drivers import DriverTable
from harborage.llm import LLMClient
from harborage.planner.answers import AnswerFormat
from harborage.planner.context import Planner, raise_if_cancelled, resolve_wake_mode
from harborage.planner.decisions import ReasoningReplayMode
from harborage.planner.errors import InvalidConfigError

DEFAULT_DRIVER = "react"
DEFAULT_SKILLS_CONTEXT_MAX = 5
DEFAULT_SPAWN_DEPTH_CAP = 4


class OperatorPlanningHints(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`planner.planning_hints`: what the prompt shall say about planning."""

    constraints: str = ""
    preferred_tools: list[str] = []


class OperatorPlannerConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The `planner` section as an operator writes it; a zero or an empty string leaves the choice to the default.

    `token_budget` is the history size in tokens above which it is compressed, 0 for never.
    """

    driver: str = ""
    max_steps: int = 0
    extra_guidance: str = ""
    reasoning_replay: str = ""
    max_tool_examples_per_tool: int = 0
    parallel_tool_calls: bool | None = None
    skills_context_max: int = 0
    absolute_max_spawn_depth: int = 0
    planning_hints: OperatorPlanningHints = OperatorPlanningHints()
    token_budget: int = 0
    extra: dict[str, Any] = {}


class PlannerConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options that a planner's factory gets. Zero, empty and None mean the default; `extra` is the driver's own.

    The driver `finish` asks no model, so the options have no effect on it, and it takes no `extra`. `answer` is the
    form that the answers of runs must have, text if there is none.
    """

    driver: str = ""
    max_steps: int = 0
    extra_guidance: str = ""
    reasoning_replay: str = ""
    max_tool_examples_per_tool: int = 0
    parallel_tool_calls: bool | None = None
    answer: AnswerFormat | None = None
    extra: dict[str, Any] = {}


def check_operator_config(section: OperatorPlannerConfig, *, drivers: Collection[str] = (DEFAULT_DRIVER,)) -> None:
    """Check a planner section; an empty driver means `react`.

    Raises:
        InvalidConfigError: the message names the key and what it may hold.
    """
    if section.driver and section.driver not in drivers:
        raise InvalidConfigError(
            f"planner.driver {section.driver!r} is unknown; use one of {', '.join(sorted(drivers))}"
        )
    _check_options(section, ("max_steps", "max_tool_examples_per_tool", *_RUNTIME_COUNTS))


def check_config(config: PlannerConfig) -> None:
    """Check the common options of a configuration; the driver table checks `driver`, the driver itself `extra`.

    Raises:
        InvalidConfigError: the message names the option and what it may hold.
    """
    _check_options(config, ("max_steps", "max_tool_examples_per_tool"))


def _check_options(config: OperatorPlannerConfig | PlannerConfig, counts: Collection[str]) -> None:
    replay = config.reasoning_replay
    if not ReasoningReplayMode.is_valid(replay):
        raise InvalidConfigError(f"planner.reasoning_replay {replay!r} is unknown; use never or text")
    for name in counts:
        count = getattr(config, name)
        if isinstance(count, bool) or not isinstance(count, int):
            raise InvalidConfigError(f"planner.{name} is {count!r}; use a whole number, 0 for the default")
        if count < 0:
            raise InvalidConfigError(f"planner.{name} is {count}; it must not be negative")
    if not isinstance(config.extra_guidance, str):
        raise InvalidConfigError(f"planner.extra_guidance is {config.extra_guidance!r}; use a text")
    if not isinstance(config.parallel_tool_calls, bool | None):
        raise InvalidConfigError(f"planner.parallel_tool_calls is {config.parallel_tool_calls!r}; use True or False")


_RUNTIME_COUNTS = ("skills_context_max", "absolute_max_spawn_depth", "token_budget")


def config_from_operator(section: OperatorPlannerConfig) -> PlannerConfig:
    """The section as a planner's factory gets it; without a driver it is `react`.

    Left out, because the runtime uses them itself: `skills_context_max`, `absolute_max_spawn_depth`, `planning_hints`
    and `token_budget`.
    """
    return PlannerConfig(
        driver=section.driver or DEFAULT_DRIVER,
        max_steps=section.max_steps,
        extra_guidance=section.extra_guidance,
        reasoning_replay=section.reasoning_replay,
        max_tool_examples_per_tool=section.max_tool_examples_per_tool,
        parallel_tool_calls=section.parallel_tool_calls,
        extra=dict(section.extra),
    )


class FactoryDeps(msgspec.Struct, frozen=True, kw_only=True):
    """What the drivers of planners share. A driver that needs a part that is missing refuses to be built."""

    llm: LLMClient | None = None


Factory: TypeAlias = Callable[[PlannerConfig, FactoryDeps], Planner]
"""Builds a planner. Never: falls back silently when a dependency it needs is missing."""

PLANNERS: DriverTable[Factory] = DriverTable(
    "planner",
    {"finish": "harborage.planner.finish:make", "react": "harborage.planner.react:make"},
)
"""The planners of this program; an application freezes it once it is built."""


def register(name: str, factory: Factory | str) -> None:
    """Register `factory`, or the `module:attribute` path of one, under `name`.

    Raises:
        DriverEmptyNameError, DriverNilFactoryError, DriverDuplicateError: in this order.
        DriverFrozenError: the application is built already.
    """
    PLANNERS.register(name, factory)


def registered_drivers() -> list[str]:
    """The names that configuration may use, sorted."""
    return PLANNERS.names()


async def resolve(config: PlannerConfig, deps: FactoryDeps, *, table: DriverTable[Factory] = PLANNERS) -> Planner:
    """Build the planner that `config` names with its driver.

    Raises:
        asyncio.CancelledError: the caller was cancelled; reported first.
        DriverUnknownError: the name is not registered; the message lists those that are.
        InvalidConfigError: an option is out of its range, or what the factory made is no planner.
        Exception: what the driver's factory raised.
    """
    raise_if_cancelled()
    make = table.factory(config.driver)
    require_sync(make, f"the factory of the planner {config.driver!r}")
    check_config(config)
    return check_planner(make(config, deps))


def check_planner(planner: object) -> Planner:
    """Return `planner` if it is one: its `next` is async, and the wake mode that it may declare is known.

    Raises:
        InvalidConfigError: it is no planner; the message says why.
    """
    name = type(planner).__name__
    ask = getattr(planner, "next", None)
    if ask is None:
        raise InvalidConfigError(f"{name} is no planner: it has no `next`")
    try:
        require_async(ask, f"{name}.next")
        resolve_wake_mode(planner)
    except CallbackKindError as error:
        raise InvalidConfigError(f"{name} is no planner: {error}") from error
    return cast("Planner", planner)
