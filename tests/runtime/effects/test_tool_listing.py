"""The tools of an agent that come from elsewhere: when they are listed, and what an unanswered call of one means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import harborage
from harborage.errors import InvalidOptionError
from harborage.identity import Quadruple
from harborage.planner.react.tools import RESERVED_TOOL_NAMES
from harborage.runtime.effects.tool_listing import RESERVED
from harborage.testing import call, script
from harborage.tools import CallContext, SideEffect, Tool, ToolDescriptor, ToolResult, Transport
from harborage.tools.errors import ToolUnansweredError
from harborage.tools.sources import OpenSource, SourceServices

pytestmark = pytest.mark.anyio


class Server:
    """A source that knows nothing before it is asked, and may be down."""

    name = "crm"
    known: Sequence[ToolDescriptor[Any]] = ()

    def __init__(self, effect: SideEffect = SideEffect.EXTERNAL, *, is_down: bool = False) -> None:
        self.effect = effect
        self.is_down = is_down
        self.listed_for: list[Quadruple] = []
        self.calls = 0
        self.is_closed = False

    def open(self, _services: SourceServices) -> OpenSource:
        return self

    async def list_tools(self, who: Quadruple) -> Sequence[ToolDescriptor[Any]]:
        self.listed_for.append(who)
        if self.is_down:
            raise ConnectionRefusedError("nobody listens")
        return [ToolDescriptor(Tool("crm_note", side_effects=self.effect, transport=Transport.MCP), self.call)]

    async def call(self, _args: bytes, _call: CallContext) -> ToolResult:
        self.calls += 1
        raise ToolUnansweredError("the connection was cut")

    async def aclose(self) -> None:
        self.is_closed = True


async def test_tools_are_listed_when_a_run_begins() -> None:
    """Making the agent asks nobody; the run is offered what its source lists, and the source is asked for whom."""
    server = Server(SideEffect.READ)
    agent = harborage.Agent("clerk", tools=[server], approvals={"crm_note": "never"})
    assert server.listed_for == []
    assert agent.tool_sources == (server,)
    result = await agent.replace(description="of the shop").run("hello", model=script("Done."))
    assert result.output == "Done."
    assert [who.run_id for who in server.listed_for] == [result.run_id]


async def test_an_unanswered_call_with_effects_is_unknown_and_made_once() -> None:
    """The planner learns that nobody knows whether it acted; a tool that only reads is asked again instead."""
    server = Server()
    result = await harborage.Agent("clerk", tools=[server]).run("note", model=script(call("crm_note"), "Done."))
    assert server.calls == 1
    assert "whether it acted is unknown, so it is not called again" in str(result.messages)
    reader = Server(SideEffect.READ)
    tool = (await reader.list_tools(Quadruple()))[0].tool
    assert tool.is_repeatable


async def test_a_source_that_is_down_costs_its_tools_and_not_the_run(caplog: pytest.LogCaptureFixture) -> None:
    """The run goes on without them, and the log says why."""
    result = await harborage.Agent("clerk", tools=[Server(is_down=True)]).run("hello", model=script("Done."))
    assert result.output == "Done."
    assert "the tools of crm could not be listed: nobody listens" in caplog.text


def test_two_sources_of_one_name_are_refused() -> None:
    """Their tools could not be told apart."""
    with pytest.raises(InvalidOptionError, match="two sources are named 'crm'"):
        harborage.Agent("clerk", tools=[Server(), Server()])
    with pytest.raises(InvalidOptionError, match=r"such as tools=\[crm\]"):
        harborage.Agent("clerk", tools=Server())  # type: ignore[arg-type]


def test_reserved_names_are_those_of_decisions_and_built_in_tools() -> None:
    """A peer cannot bring a tool whose name would mean a decision."""
    assert RESERVED_TOOL_NAMES < RESERVED
