"""Names for planners, and how a name becomes a planner."""

from __future__ import annotations

import asyncio

import pytest

from harborage.drivers import DriverTable
from harborage.planner import (
    PLANNERS,
    DriverDuplicateError,
    DriverEmptyNameError,
    DriverNilFactoryError,
    DriverUnknownError,
    FactoryDeps,
    Planner,
    PlannerConfig,
    register,
    registered_drivers,
    resolve,
)
from harborage.planner.finish import FinishPlanner

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


@pytest.mark.parametrize(
    ("targets", "driver", "said"),
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
    monkeypatch.setattr("harborage.planner.registry.PLANNERS", table)
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


async def test_a_cancelled_caller_is_told_first():
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
