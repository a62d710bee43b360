"""The surface as a program writes it: an agent with tools, dependencies, a stream and a conversation, each in full."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest

from harborage import (
    Agent,
    AgentContext,
    CallContext,
    FinishReason,
    Identity,
    Image,
    Limits,
    Memory,
    Model,
    RunFailedError,
    Runtime,
    json_schema,
    tool,
)
from harborage.runtime.steering import PayloadInvalidError
from harborage.testing import call, script
from tests.app.test_media import PNG

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")


@dataclass
class Receipt:
    order: str
    euros: Decimal


@dataclass
class Answer:
    text: str = ""
    refunded: bool = False


@dataclass
class Shop:
    orders: dict[str, str]


class Desk:
    def __init__(self, name: str) -> None:
        self.name = name

    @tool(effects="read")
    async def open(self, day: str) -> str:
        """Say who opens the desk."""
        return f"{self.name} opens on {day}"


@tool(effects="external", approval="always")
async def refund(order: str, euros: Decimal) -> Receipt:
    """Refund an order."""
    return Receipt(order, euros)


@tool(effects="read")
async def find_order(ctx: CallContext[Shop], order: str) -> str:
    """Find an order."""
    return ctx.deps.orders[order]


def support(**options: object) -> Agent[None, Answer]:
    return Agent(
        "support",
        model=options.pop("model", "mock:"),  # type: ignore[arg-type]
        instructions="Be brief.",
        tools=[refund, Desk("Ada").open],
        output=Answer,
        limits=Limits(steps=40, calls=60, tokens=200_000, seconds=600),
        approvals="writes",
    )


async def test_an_agent_answers_in_its_type(tmp_path: Path) -> None:
    """With usage, steps and messages; a run goes on from those of another one."""
    (tmp_path / "receipt.png").write_bytes(PNG)
    agent = support(model=script(call("open", day="Monday"), Answer("Ada opens.")))
    result = await agent.run(["Who opens?", Image(tmp_path / "receipt.png")])
    assert result.output == Answer("Ada opens.")
    assert (result.usage.tool_calls, result.usage.model_calls, len(result.steps)) == (1, 2, 2)
    assert result.messages[0].text == "Who opens?"
    again = await agent.run("And on Tuesday?", messages=result.messages, model=script(Answer("Ada, too.")))
    assert again.output.text == "Ada, too."
    assert "Who opens?" in [message.text for message in again.messages]
    assert result.run_id != again.run_id
    assert agent.replace(model="openai:gpt-5-mini").model == "openai:gpt-5-mini"
    assert await refund("7", Decimal(12)) == Receipt("7", Decimal(12))


async def test_a_run_that_reaches_no_goal_says_how_far_it_came() -> None:
    """By its limit: reason, messages and usage."""
    agent = support(model=script(call("open", day="1"), call("open", day="2"), call("open", day="3")))
    with pytest.raises(RunFailedError) as failed:
        await agent.run("go", limits=Limits(calls=1, steps=2))
    assert failed.value.reason in (FinishReason.CONSTRAINTS_CONFLICT, FinishReason.NO_PATH)
    assert failed.value.messages[0].text == "go"
    assert failed.value.usage is not None
    assert failed.value.usage.tool_calls >= 1


async def test_dependencies_come_of_the_caller_or_of_a_factory() -> None:
    """The factory is called with the identity, and may be an async context manager."""
    opened: list[str] = []

    @asynccontextmanager
    async def open_shop(who: Identity) -> AsyncIterator[Shop]:
        opened.append(who.user_id)
        yield Shop({"7": "broken"})

    def greet(ctx: AgentContext[Shop]) -> str:
        return f"There are {len(ctx.deps.orders)} orders."

    model = script(call("find_order", order="7"), "broken")
    agent = Agent("support", deps=Shop, model=model, instructions=greet, tools=[find_order])
    assert (await agent.run("7?", deps=Shop({"7": "fine", "8": "fine"}))).messages[2].text == "fine"
    async with Runtime([agent], deps={Shop: open_shop}) as runtime:
        result = await (await runtime.start(agent, "7?", who=ME)).result()
    assert (result.messages[2].text, opened[:1]) == ("broken", ["u"])


async def test_one_handle_streams_and_steers() -> None:
    """Text, partial outputs and events; an approval of the one call that waits, with other arguments."""
    agent = support(model=script(call("refund", order="7", euros="12"), Answer("Done.", refunded=True)))
    async with agent.stream("Refund order 7") as run:
        pending = await run.wait_pending()
        assert (pending.tool, pending.args["order"]) == ("refund", "7")
        outputs = asyncio.ensure_future(anext_all(run.outputs()))
        assert pending.requester.tenant_id == "local"
        assert await run.prioritize(9)
        with pytest.raises(PayloadInvalidError, match="refund does not take these arguments"):
            await pending.approve(args={"eurs": "5"})
        assert await pending.approve(args={"euros": "5"})
        result = await run.result()
        assert (await outputs)[-1] == Answer("Done.", refunded=True)
        cursor = [event.sequence async for event in run.events()][-2]
        assert len([event async for event in run.events(after=cursor)]) == 1
    assert Decimal(5) == refund.read_result(result.steps[0].calls[0].observation).euros


async def anext_all(found: AsyncIterator[Answer]) -> list[Answer]:
    return [one async for one in found]


async def test_a_conversation_remembers() -> None:
    """Two messages at once wait in turn."""
    agent = support(model=script(Answer("It is on its way."))).replace(memory=Memory(tokens=8_000))
    chat = agent.session("s-7")
    first, second = await asyncio.gather(chat.send("Where is my order?"), chat.send("And the second one?"))
    assert first.output == second.output == Answer("It is on its way.")
    async with chat.stream("Thanks") as run:
        assert (await run.result()).output.text


@pytest.mark.filterwarnings("error")
async def test_every_form_of_output_and_model_is_taken() -> None:
    """As the surface says; nothing is opened before a run."""
    schema = json_schema({"type": "object", "properties": {"a": {"type": "integer"}}})
    for output in (Answer, Answer | Receipt, list[Answer], Answer | None, bool, int, str, schema):
        Agent("a", model=[Model("openai:gpt-5", reasoning="high"), "anthropic:claude-sonnet-4-5"], output=output)
