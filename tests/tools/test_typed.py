"""A tool as the function that it was made of: called outside a run, bound to an object, with its own options."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from harborage.app import Agent
from harborage.errors import InvalidOptionError
from harborage.identity import Quadruple
from harborage.planner.finish import FinishPlanner
from harborage.tools import (
    CallContext,
    SideEffect,
    ToolCatalog,
    ToolInvalidError,
    ToolOptions,
    ToolPolicy,
    UnsupportedTypeError,
    tool,
)

pytestmark = pytest.mark.anyio

CALL = CallContext(Quadruple("t", "u", "s", "r"))


@dataclass
class Desk:
    """An object with tools."""

    opened: list[str] = field(default_factory=list)

    @tool(effects="write")
    async def open(self, order: str) -> int:
        """Open a case for an order."""
        self.opened.append(order)
        return len(self.opened)

    @tool
    def who_asks(self, ctx: CallContext[object], order: str) -> str:
        """Say who asks about an order."""
        return f"{ctx.who.user_id} asks {type(self).__name__} for {order}"

    @tool
    @staticmethod
    def double(n: int) -> int:
        """Double it."""
        return n * 2

    def plain(self, order: str) -> str:
        """Not a tool yet."""
        return order


@tool
async def slowly(n: int) -> int:
    """Return it."""
    return n


@tool
def at_once(n: int = 2) -> int:
    """Return it."""
    return n


@tool
async def with_context(ctx: CallContext[Any], n: int) -> int:
    """Return it."""
    return n


async def test_calling_a_tool_calls_its_function() -> None:
    """Outside every run: an async one is awaited, the other returns at once."""
    assert await slowly(3) == 3
    assert at_once() == 2
    assert at_once(n=4) == 4
    assert Desk.double(4) == 8


async def test_a_tool_that_takes_the_context_says_how_it_is_called_outside_a_run() -> None:
    """Nobody but a run has the context of a call."""
    with pytest.raises(UnsupportedTypeError, match=r"call with_context.function\(ctx, …\) outside a run"):
        await with_context(3)
    assert with_context.function is not None
    assert await with_context.function(CALL, 3) == 3


async def test_a_method_is_bound_to_the_object_it_is_taken_from() -> None:
    """Each object has its own; the object is no argument of the model."""
    one, other = Desk(), Desk()
    assert await one.open("7") == 1
    assert (await one.open.body(b'{"order":"8"}', CALL)).value == 2
    assert (one.opened, other.opened) == (["7", "8"], [])
    assert list(one.open.tool.args_schema["properties"]) == ["order"]
    assert (await other.who_asks.body(b'{"order":"8"}', CALL)).value == "u asks Desk for 8"


async def test_a_method_without_its_object_is_refused_by_agents_and_catalogs() -> None:
    """In a line that shows what to write."""
    fix = r"give the method of an object, for example Desk\(…\).open"
    with pytest.raises(InvalidOptionError, match=f"tools: open: {fix}"):
        Agent("a", planner=FinishPlanner(), tools=[Desk.open])
    with pytest.raises(ToolInvalidError, match=fix):
        ToolCatalog().register(Desk.open)
    assert Agent("a", planner=FinishPlanner(), tools=[Desk().open]).tools[0].tool.name == "open"


def test_a_function_that_is_no_tool_is_refused_by_agents() -> None:
    """Nobody has said what it does to the world."""
    with pytest.raises(InvalidOptionError, match="tools: plain is a plain function; put @tool above it"):
        Agent("a", planner=FinishPlanner(), tools=[Desk.plain])  # type: ignore[list-item]
    with pytest.raises(InvalidOptionError, match="tools: two are named 'slowly'"):
        Agent("a", planner=FinishPlanner(), tools=[slowly, slowly])


def test_retries_and_a_timeout_are_the_policy_of_the_tool() -> None:
    """The timeout is in seconds."""
    assert tool(at_once.function, effects="read", retries=2, timeout=1.5).tool.policy == ToolPolicy(
        max_retries=2, timeout_ms=1500
    )
    assert tool(at_once.function, retries=0).policy.max_retries == 0
    assert tool(at_once.function, effects="external").tool.side_effects is SideEffect.EXTERNAL


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"retries": 3}, 'at_once: retries= needs effects="read" or idempotent=True'),
        ({"retries": -1, "effects": "read"}, "retries=-1: expected a whole number from 0 on"),
        ({"timeout": "10"}, "timeout='10': expected a number from 0 on"),
        ({"timeout": 3, "policy": ToolPolicy()}, "not beside retries or timeout"),
        ({"effects": "wrte"}, "did you mean 'write'?"),
        ({"approval": "allways"}, "'always', 'never', or a function of the call"),
    ],
)
def test_options_that_do_not_fit_are_refused_when_the_tool_is_made(options: ToolOptions, says: str) -> None:
    """Each with the fix."""
    with pytest.raises(InvalidOptionError) as caught:
        tool(at_once.function, **options)
    assert says in str(caught.value)
