"""What tests of agents are written with: a script in the place of every model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from harborage import Agent, Identity, RunFailedError, tool
from harborage.errors import InvalidOptionError
from harborage.testing import call, runtime, script
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

ADA = Identity("acme", "ada", "s-7")


@dataclass
class Answer:
    text: str


@tool(effects="external", approval="always")
async def refund(order: str, euros: int) -> str:
    """Refund an order."""
    return f"refunded {euros} for {order}"


support = Agent("support", model="openai:gpt-5", tools=[refund])


async def test_an_approval_is_tested_in_five_lines() -> None:
    """The agent has another model for this run, and the test answers as a person would."""
    model = script(call("refund", order="7", euros=12), "Done.")
    run = await support.start("Refund order 7", model=model)
    pending = await run.wait_pending()
    assert pending.args == {"order": "7", "euros": 12}
    await pending.reject("not yet")
    assert "not yet" in (await run.result()).messages[-2].text


async def test_every_agent_of_a_runtime_follows_the_script() -> None:
    """Those that others call, too, and whatever model they name; the caller starts them as they are."""
    billing = Agent("billing", model="anthropic:claude-sonnet-4-5", output=Answer)
    desk = Agent("desk", model="openai:gpt-5", agents=[billing], output=Answer)
    model = script(call("billing", goal="Check order 7"), Answer("ok"), by_text={"Check order 7": [Answer("paid")]})
    async with runtime([desk, support, Agent("modelless")], model=model) as rt:
        result = await (await rt.start(desk, "Order 7?", who=ADA)).result()
        assert (result.output, result.messages[2].text) == (Answer("ok"), '{"text":"paid"}')
        assert len(model.requests) == 3


async def test_several_calls_are_made_at_once() -> None:
    """A list is one answer of the model."""

    @tool(effects="read")
    async def look(at: str) -> str:
        """Look."""
        return at.upper()

    agent = Agent("looker", tools=[look], model=script([call("look", at="a"), call("look", at="b")], "Both."))
    result = await agent.run("Look at both")
    assert [one.text for one in result.messages if one.tool and one.text] == ["A", "B"]
    assert result.usage.model_calls == 2


async def test_a_script_that_ends_too_early_says_so() -> None:
    """With the number of its lines."""
    with pytest.raises(RunFailedError, match=r"the script has 1 line\(s\), and the model was called once more"):
        await Agent("a", tools=[], output=Answer, model=script("no JSON")).run("go")


@each_row("line", [(object(),), ({1, object()},), ([call("a"), "b", object()],)])
async def test_a_line_without_a_form_is_refused(line: Any) -> None:
    """When the script is written."""
    with pytest.raises(InvalidOptionError, match=r"expected a text, call\("):
        script(line)


async def test_agents_are_a_list() -> None:
    """A single one is a mistake."""
    one: Any = "support"
    with pytest.raises(InvalidOptionError, match="several agents"):
        runtime(one, model=script())
