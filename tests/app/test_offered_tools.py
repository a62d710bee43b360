"""`@tool(when=…)`: which tools a run is offered, decided once when it begins, and recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from harborage import Agent, AgentContext, Identity, RunFailedError, Runtime, tool
from harborage.errors import InvalidOptionError, UnknownOptionError
from harborage.testing.llm import ScriptedLLM, calls_tools, says
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")


@dataclass
class Shop:
    is_open: bool


def is_open(ctx: AgentContext[Shop]) -> bool:
    return ctx.deps.is_open


@tool(effects="read", when=is_open)
async def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


@tool(effects="read")
async def look(order: str) -> str:
    """Look an order up."""
    return "broken"


def offered(model: ScriptedLLM) -> list[str]:
    return sorted({one.name for one in model.requests[0].tools} & {"refund", "look"})


async def test_a_tool_is_offered_where_it_says_so() -> None:
    """The function gets the context of the run; a call of a tool that is not offered is refused as unknown."""
    for shop, names in ((Shop(True), ["look", "refund"]), (Shop(False), ["look"])):
        model = ScriptedLLM([calls_tools(("refund", {"order": "7"})), says("done")])
        result = await Agent("a", model=model, tools=[refund, look], deps=Shop).run("go", deps=shop)
        assert offered(model) == names
        assert ("refunded 7" in [one.text for one in result.messages]) is shop.is_open


async def test_the_answer_is_asked_once_and_recorded(storage: str) -> None:
    """Two steps, a restart and a replay ask no more, and see the same tools."""
    asked: list[str] = []

    async def once(ctx: AgentContext[None]) -> bool:
        asked.append(ctx.goal)
        return False

    @tool(effects="read", when=once)
    async def rare() -> str:
        """Do something rare."""
        return "rare"

    @tool(effects="external", approval="always")
    async def pay() -> str:
        """Pay."""
        return "paid"

    def agent() -> tuple[Agent[None, str], ScriptedLLM]:
        model = ScriptedLLM([calls_tools(("pay", {})), says("done")])
        return Agent("a", model=model, tools=[rare, pay]), model

    first, _ = agent()
    async with Runtime([first], storage=storage) as runtime:
        run = await runtime.start("go", who=ME)
        await run.wait_pending()
    second, model = agent()
    model = ScriptedLLM([says("done")])
    second = second.replace(model=model)
    async with Runtime([second], storage=storage) as runtime:
        found = await runtime.run(run.id, who=ME)
        await found.approve()
        await found.finished()
        assert "rare" not in [one.name for one in model.requests[0].tools]
        replayed = await runtime.replay(await found.history())
    assert asked == ["go"]
    assert replayed.difference is None


def fails(_ctx: Any) -> bool:
    raise KeyError("shop")


@each_row(
    "when, text",
    [
        (fails, "when= of the tool 'x' failed: KeyError: 'shop'"),
        (lambda _: "yes", "when= of the tool 'x' failed: it returned str, not True or False"),
    ],
)
async def test_a_condition_that_does_not_answer_fails_the_run(when: Any, text: str) -> None:
    """A tool is never offered by mistake."""

    @tool(when=when)
    async def x() -> str:
        """Do it."""
        return ""

    with pytest.raises(RunFailedError) as failed:
        await Agent("a", model=ScriptedLLM([says("done")]), tools=[x]).run("go")
    assert text in f"{failed.value} {failed.value.__cause__}"


@each_row(
    "option, text", [({"when": True}, "a function of the AgentContext"), ({"enabled": fails}, "did you mean when?")]
)
def test_what_is_no_condition_is_refused(option: dict[str, Any], text: str) -> None:
    """Where the tool is written."""
    with pytest.raises((InvalidOptionError, UnknownOptionError), match=text):

        @tool(**option)
        async def x() -> str:
            """Do it."""
            return ""
