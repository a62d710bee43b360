"""The operator's planner section and the part of it that a factory gets."""

from __future__ import annotations

import msgspec
import pytest

from harborage.planner import (
    InvalidConfigError,
    OperatorPlannerConfig,
    OperatorPlanningHints,
    PlannerConfig,
    check_operator_config,
    config_from_operator,
)
from tables import each_row

FULL = OperatorPlannerConfig(
    driver="mine",
    max_steps=7,
    extra_guidance="be kind",
    reasoning_replay="text",
    max_tool_examples_per_tool=2,
    parallel_tool_calls=False,
    skills_context_max=3,
    absolute_max_spawn_depth=2,
    planning_hints=OperatorPlanningHints(constraints="c"),
    token_budget=1000,
    extra={"k": "v"},
)
CONSUMED_BY_THE_RUNTIME = {"skills_context_max", "absolute_max_spawn_depth", "planning_hints", "token_budget"}


def test_every_field_is_carried_or_named_as_left_out():
    """The projection is total: a field of the section is in the factory's configuration or left to the runtime."""
    section, boundary = set(OperatorPlannerConfig.__struct_fields__), set(PlannerConfig.__struct_fields__)
    assert section - CONSUMED_BY_THE_RUNTIME == boundary
    projected = config_from_operator(FULL)
    assert all(getattr(projected, name) == getattr(FULL, name) for name in boundary)


def test_an_empty_section_is_react():
    """Without a driver the reference planner is meant; everything else stays at the driver's default."""
    assert config_from_operator(OperatorPlannerConfig()) == PlannerConfig(driver="react")


def test_extra_is_copied():
    """Changing the section later does not reach the factory's configuration."""
    section = OperatorPlannerConfig(extra={"k": "v"})
    projected = config_from_operator(section)
    section.extra["k"] = "other"
    assert projected.extra == {"k": "v"}


def test_the_projection_never_fails():
    """Validation is another step: an unknown replay mode is carried as it is."""
    assert config_from_operator(OperatorPlannerConfig(reasoning_replay="bogus")).reasoning_replay == "bogus"


@pytest.mark.parametrize(("given", "skills", "depth"), [(0, 5, 4), (1, 1, 1), (9, 9, 9)])
def test_zero_caps_mean_the_default(given, skills, depth):
    """Zero skills and zero depth stand for 5 and 4."""
    section = OperatorPlannerConfig(skills_context_max=given, absolute_max_spawn_depth=given)
    assert (section.skills_context_cap, section.spawn_depth_cap) == (skills, depth)


def test_defaults():
    """An empty section leaves everything to the defaults, compression off."""
    section = OperatorPlannerConfig()
    assert (section.max_steps, section.token_budget, section.parallel_tool_calls) == (0, 0, None)
    check_operator_config(section)


@pytest.mark.parametrize("replay", ["", "never", "text"])
def test_valid_replay(replay):
    """The three spellings of the replay mode are accepted."""
    check_operator_config(OperatorPlannerConfig(driver="react", reasoning_replay=replay))


@each_row(
    "change, said",
    [
        ({"driver": "raect"}, "planner.driver 'raect'"),
        ({"driver": "finish"}, "use one of react"),
        ({"reasoning_replay": "Never"}, "planner.reasoning_replay 'Never'"),
        ({"reasoning_replay": "provider_native"}, "planner.reasoning_replay"),
        ({"max_steps": -1}, "planner.max_steps is -1"),
        ({"max_tool_examples_per_tool": -1}, "planner.max_tool_examples_per_tool"),
        ({"skills_context_max": -1}, "planner.skills_context_max"),
        ({"absolute_max_spawn_depth": -1}, "planner.absolute_max_spawn_depth"),
        ({"token_budget": -1}, "planner.token_budget"),
    ],
)
def test_a_bad_section_is_refused_by_key(change, said):
    """Each invalid value is refused before anything is built, and the message names its key."""
    with pytest.raises(InvalidConfigError, match=said):
        check_operator_config(OperatorPlannerConfig(**change))


def test_other_drivers_can_be_allowed():
    """A program that knows more drivers accepts their names."""
    check_operator_config(OperatorPlannerConfig(driver="mine"), drivers=["react", "mine"])


def test_the_section_is_read_from_plain_data():
    """A configuration file's data becomes a section."""
    plain = {"driver": "react", "planning_hints": {"preferred_tools": ["a"]}, "token_budget": 5}
    section = msgspec.convert(plain, OperatorPlannerConfig)
    assert section.planning_hints.preferred_tools == ["a"]
    assert section.token_budget == 5
