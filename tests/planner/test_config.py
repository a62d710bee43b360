"""The planner section of a configuration, and how a name becomes a planner."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from harborage.drivers import DriverTable
from harborage.planner import (
    PLANNERS,
    DriverDuplicateError,
    DriverEmptyNameError,
    DriverNilFactoryError,
    DriverUnknownError,
    FactoryDeps,
    InvalidConfigError,
    OperatorPlannerConfig,
    OperatorPlanningHints,
    Planner,
    PlannerConfig,
    check_operator_config,
    config_from_operator,
    register,
    registered_drivers,
    resolve,
)
from harborage.planner.finish import FinishPlanner
from tests.kit.tables import each_row

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
    assert section - CONSUMED_BY_THE_RUNTIME == boundary - {"answer"}  # of an agent, not of an operator
    projected = config_from_operator(FULL)
    assert all(getattr(projected, name) == getattr(FULL, name) for name in boundary - {"answer"})


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


def test_defaults():
    """An empty section leaves everything to the defaults, compression off."""
    section = OperatorPlannerConfig()
    assert (section.max_steps, section.token_budget, section.parallel_tool_calls) == (0, 0, None)
    check_operator_config(section)


@each_row("replay", ["", "never", "text"])
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


pytestmark = pytest.mark.anyio

DEPS = FactoryDeps()


def test_built_in_names():
    """The reference planner and the stub are known by name, sorted, without importing either."""
    assert {"finish", "react"} <= set(registered_drivers())
    assert registered_drivers() == sorted(registered_drivers())


async def test_a_name_becomes_a_planner():
    """Resolving imports the driver on first use and builds a planner."""
    planner = await resolve(PlannerConfig(driver="finish"), DEPS)
    assert isinstance(planner, FinishPlanner)
    assert isinstance(planner, Planner)


async def test_the_factory_gets_what_it_needs():
    """The configuration and the dependencies reach the factory as they are."""
    seen = []

    def factory(config, deps):
        seen.append((config, deps))
        return FinishPlanner()

    table = DriverTable("planner", {"mine": factory})
    config = PlannerConfig(driver="mine", extra={"k": "v"})
    await resolve(config, DEPS, table=table)
    ((got_config, got_deps),) = seen
    assert got_config is config
    assert got_deps is DEPS


async def test_factory_errors_pass_through():
    """What a factory raises reaches the caller as it is."""
    error = ValueError("needs a model")

    def factory(config, deps):
        raise error

    with pytest.raises(ValueError, match="needs a model") as caught:
        await resolve(PlannerConfig(driver="mine"), DEPS, table=DriverTable("planner", {"mine": factory}))
    assert caught.value is error


@each_row(
    "targets, driver, said",
    [
        ({}, "x", r"x \(registered: <none>\)"),
        ({}, "", r"<empty> \(registered: <none>\)"),
        ({"b": FinishPlanner, "a": FinishPlanner}, "c", r"c \(registered: a,b\)"),
        ({"b": FinishPlanner, "a": FinishPlanner}, "", r"<empty> \(registered: a,b\)"),
    ],
)
async def test_unknown_names_list_the_known(targets, driver, said):
    """An unknown or empty name is an error that lists what there is, sorted."""
    with pytest.raises(DriverUnknownError, match=said):
        await resolve(PlannerConfig(driver=driver), DEPS, table=DriverTable("planner", targets))


def test_registration_is_checked_in_order(monkeypatch):
    """An empty name is reported before a missing factory, a missing factory before a duplicate."""
    table = DriverTable("planner", {"taken": FinishPlanner})
    monkeypatch.setattr("harborage.planner.config.PLANNERS", table)
    with pytest.raises(DriverEmptyNameError):
        register("", None)
    with pytest.raises(DriverNilFactoryError):
        register("taken", None)
    with pytest.raises(DriverDuplicateError):
        register("taken", FinishPlanner)
    register("fresh", FinishPlanner)
    assert table.names() == ["fresh", "taken"]


def test_tests_leave_the_table_alone():
    """Nothing in this file registers in the program's own table."""
    assert not {"fresh", "taken", "mine"} & set(PLANNERS.names())


async def test_a_cancelled_caller_gets_its_cancellation_first():
    """A cancelled caller learns of that, even when the name is unknown, and no factory runs."""
    built = []
    table = DriverTable("planner", {"mine": lambda config, deps: built.append(1)})

    async def call(driver):
        asyncio.current_task().cancel()
        await resolve(PlannerConfig(driver=driver), DEPS, table=table)

    for driver in ("mine", "unknown", ""):
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(call(driver))
    assert not built


async def test_resolving_while_others_register():
    """128 concurrent resolutions are not disturbed by registrations from other threads."""
    table = DriverTable("planner", {"mine": lambda config, deps: FinishPlanner()})

    def add(number):
        table.register(f"other-{number}", FinishPlanner)

    adding = [asyncio.to_thread(add, number) for number in range(128)]
    resolving = [resolve(PlannerConfig(driver="mine"), DEPS, table=table) for _ in range(128)]
    results = await asyncio.gather(*adding, *resolving)
    assert sum(isinstance(result, FinishPlanner) for result in results) == 128
    assert len(table.names()) == 129
