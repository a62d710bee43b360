"""Tools that fail when a test says so."""

from __future__ import annotations

from typing import Any

import pytest

from harborage import Agent, CallTool, Finish, FinishReason, tool
from harborage.errors import InvalidOptionError
from harborage.testing import FaultInjector, run_once
from harborage.testing.planners import ScriptedPlanner
from harborage.tools import ToolCatalog

pytestmark = pytest.mark.anyio

made: list[int] = []


@tool(effects="read")
def double(number: int) -> int:
    """Double a number."""
    made.append(number)
    return 2 * number


@tool(effects="external")
def halve(number: int) -> float:
    """Halve a number."""
    return number / 2


async def observed(tools: Any, *calls: str) -> list[Any]:
    """What a planner sees of calls of these tools."""
    made.clear()
    script: list[Any] = [CallTool(name, b'{"number": 4}') for name in calls]
    planner = ScriptedPlanner(
        [*script, lambda run: Finish(FinishReason.GOAL, [step.observation for step in run.trajectory.steps])]
    )
    output, _, error = await run_once(Agent("a", planner=planner, tools=tools), "go")
    assert error is None
    return list(output)


async def test_the_next_calls_of_a_tool_fail_and_then_it_works() -> None:
    """A failed call is not made, and no policy repeats it; another tool is as before."""
    injector = FaultInjector([double, halve])
    injector.simulate_failure("double", "timeout", 2)
    first, other, second, third = await observed(injector.tools, "double", "halve", "double", "double")
    assert "deadline" in str(first) == str(second)
    assert (other, third, made) == (2.0, 8, [4])


async def test_failures_of_several_classes_come_in_their_order() -> None:
    """Each says what it is."""
    injector = FaultInjector([double])
    for error_class in ("permanent", "5xx", "transient"):
        injector.simulate_failure("double", error_class)
    permanent, server, transient, fine = await observed(injector.tools, *["double"] * 4)
    assert "simulated failure of double - at `$`" in str(permanent)
    assert "simulated failure of double (5xx)" in str(server)
    assert "simulated failure of double (transient)" in str(transient)
    assert fine == 8


async def test_the_tools_of_a_catalog_can_fail() -> None:
    """They are replaced in it."""
    catalog = ToolCatalog()
    catalog.register(double)
    injector = FaultInjector(catalog)
    injector.simulate_failure("double", "permanent")
    found = catalog.resolve("double")
    assert found is injector.tools[0]
    with pytest.raises(Exception, match="simulated failure"):
        await found.body(b'{"number": 4}', None)  # type: ignore[arg-type]


async def test_what_cannot_fail_is_left_alone() -> None:
    """A tool that is not here, a blank name, and no times at all; a class that does not exist is refused."""
    injector = FaultInjector([double])
    for name, times in (("nope", 1), ("", 1), ("double", 0), ("double", -1)):
        injector.simulate_failure(name, "timeout", times)
    assert await observed(injector.tools, "double") == [8]
    with pytest.raises(InvalidOptionError, match="error_class"):
        injector.simulate_failure("double", "sometimes")
