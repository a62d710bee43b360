"""The planner section of an operator's configuration, and the part of it that a planner's factory gets.

Values and pure functions; reading files and choosing defaults for other rooms happen elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from harborage.planner.enums import ReasoningReplayMode
from harborage.planner.errors import InvalidConfigError

__all__ = [
    "OperatorPlannerConfig",
    "OperatorPlanningHints",
    "PlannerConfig",
    "check_config",
    "check_operator_config",
    "config_from_operator",
]

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

    @property
    def skills_context_cap(self) -> int:
        """How many skills a run's prompt holds: 5 unless set."""
        return self.skills_context_max or DEFAULT_SKILLS_CONTEXT_MAX

    @property
    def spawn_depth_cap(self) -> int:
        """How deep tasks may spawn tasks: 4 unless set."""
        return self.absolute_max_spawn_depth or DEFAULT_SPAWN_DEPTH_CAP


class PlannerConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a planner's factory gets. Zero, empty and None mean the driver's own default; `extra` is the driver's.

    The driver `finish` asks no model, so the options have no effect on it, and it takes no `extra`.
    """

    driver: str = ""
    max_steps: int = 0
    extra_guidance: str = ""
    reasoning_replay: str = ""
    max_tool_examples_per_tool: int = 0
    parallel_tool_calls: bool | None = None
    extra: dict[str, Any] = {}


def check_operator_config(section: OperatorPlannerConfig, *, drivers: Collection[str] = (DEFAULT_DRIVER,)) -> None:
    """Accept a planner section that can be built; an empty driver stands for `react`.

    Raises:
        InvalidConfigError: the message names the key and what it may hold.
    """
    if section.driver and section.driver not in drivers:
        raise InvalidConfigError(
            f"planner.driver {section.driver!r} is unknown; use one of {', '.join(sorted(drivers))}"
        )
    _check_options(section, ("max_steps", "max_tool_examples_per_tool", *_RUNTIME_COUNTS))


def check_config(config: PlannerConfig) -> None:
    """Accept a configuration whose common options a driver can use; `driver` and `extra` are judged by others.

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
            raise InvalidConfigError(f"planner.{name} is {count!r}; give a whole number, 0 for the default")
        if count < 0:
            raise InvalidConfigError(f"planner.{name} is {count}; it must not be negative")
    if not isinstance(config.extra_guidance, str):
        raise InvalidConfigError(f"planner.extra_guidance is {config.extra_guidance!r}; give a text")
    if not isinstance(config.parallel_tool_calls, bool | None):
        raise InvalidConfigError(f"planner.parallel_tool_calls is {config.parallel_tool_calls!r}; use True or False")


_RUNTIME_COUNTS = ("skills_context_max", "absolute_max_spawn_depth", "token_budget")


def config_from_operator(section: OperatorPlannerConfig) -> PlannerConfig:
    """The section as a planner's factory gets it; without a driver it is `react`.

    Not carried, because the runtime consumes them: `skills_context_max`, `absolute_max_spawn_depth`, `planning_hints`
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
