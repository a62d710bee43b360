"""What the tools of a run depend on: given by its caller, or made by a factory of the runtime that executes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harborage import Agent, CallContext, Identity, Runtime, tool
from harborage.errors import InvalidOptionError
from harborage.runtime.durable.engine import RunBlockedError
from harborage.testing.llm import ScriptedLLM, calls_tools, says
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
ASKS = calls_tools(("order", {"item": "tea"}))


@dataclass
class Shop:
    """A live object, such as a database."""

    name: str = "Porto"
    orders: list[str] = field(default_factory=list)


class BigShop(Shop):
    """A shop, too."""


@tool(effects="write", approval="always")
async def order(ctx: CallContext[Shop], item: str) -> str:
    """Order an item."""
    ctx.deps.orders.append(item)
    return f"{ctx.deps.name} sends {item}"


@tool(effects="read")
def look(ctx: CallContext[Shop]) -> str:
    """Look at the shop."""
    return ctx.deps.name


def shopkeeper(*lines: Any) -> Agent[Shop, str]:
    """An agent whose model says these lines."""
    return Agent("shopkeeper", model=ScriptedLLM(list(lines)), tools=[order, look], deps=Shop)


async def test_tools_get_what_the_caller_gave() -> None:
    """The very object, in a thread, too; nothing of it is recorded."""
    shop = Shop("Lagos")
    agent = shopkeeper(calls_tools(("look", {})), ASKS, says("done"))
    run = await agent.start("go", deps=shop)
    await (await run.wait_pending()).approve()
    result = await run.result()
    assert [one.text for one in result.messages if one.role == "tool"] == ["Lagos", "Lagos sends tea"]
    assert shop.orders == ["tea"]
    assert b"Shop" not in b"".join(await run.history())


async def test_a_factory_makes_what_nobody_gave_once_for_each_run_and_closes_it() -> None:
    """It is called with the identity, by the first call that needs it."""
    log: list[str] = []

    @asynccontextmanager
    async def open_shop(who: Identity) -> AsyncIterator[Shop]:
        log.append(f"open for {who.user_id}")
        yield Shop("Faro")
        log.append("closed")

    agent = shopkeeper(calls_tools(("look", {}), ("look", {})), calls_tools(("look", {})), says("done"))
    async with Runtime([agent], deps={Shop: open_shop}) as runtime:
        run = await runtime.start(agent, "go", who=ME)
        result = await run.result()
    assert [one.text for one in result.messages if one.role == "tool"][-1] == "Faro"
    assert log == ["open for u", "closed"]


@each_row(
    "factory",
    [
        lambda who: Shop(who.tenant_id),
        lambda who: asyncio.sleep(0, Shop(who.tenant_id)),
        lambda who: BigShop(who.tenant_id),
    ],
)
async def test_a_factory_is_a_function_or_an_async_function(factory: Any) -> None:
    """Its object is used as it is."""
    agent = shopkeeper(calls_tools(("look", {})), says("done"))
    async with Runtime([agent], deps={Shop: factory}) as runtime:
        result = await (await runtime.start(agent, "go", who=ME)).result()
    assert [one.text for one in result.messages if one.role == "tool"] == ["t"]


async def test_a_factory_that_fails_fails_the_call_before_it_is_made_and_is_called_again_by_the_next() -> None:
    """The model sees why."""
    attempts: list[int] = []

    def open_shop(who: Identity) -> Shop:
        attempts.append(1)
        if len(attempts) == 1:
            raise ConnectionError("the database is away")
        return Shop("Faro")

    agent = shopkeeper(calls_tools(("look", {})), calls_tools(("look", {})), says("done"))
    async with Runtime([agent], deps={Shop: open_shop}) as runtime:
        result = await (await runtime.start(agent, "go", who=ME)).result()
    first, second = [one.text for one in result.messages if one.role == "tool"]
    assert "making Shop failed: ConnectionError: the database is away" in first
    assert second == "Faro"


async def test_a_run_that_goes_on_elsewhere_gets_its_dependencies_from_the_factory_there(tmp_path: Path) -> None:
    """A process that has none keeps the run and says what it lacks; one that has them goes on, and acts once."""
    url = f"sqlite:{tmp_path / 'runs.db'}"
    first, second = Shop("first"), Shop("second")
    agent = shopkeeper(ASKS, says("done"))
    async with Runtime([agent], storage=url) as runtime:
        run = await runtime.start(agent, "go", who=ME, deps=first)
        await run.wait_pending()
    async with Runtime([shopkeeper(says("done"))], storage=url) as runtime:
        run = await runtime.run(run.id, who=ME)
        with pytest.raises(RunBlockedError, match=r"needs deps of type Shop.*deps=\{Shop: factory\}"):
            await run.result()
        await run.approve()
    async with Runtime([shopkeeper(says("done"))], storage=url, deps={Shop: lambda _who: second}) as runtime:
        result = await (await runtime.run(run.id, who=ME)).result()
    assert result.output == "done"
    assert (first.orders, second.orders) == ([], ["tea"])


@each_row(
    "options, text",
    [
        ({}, r"deps: the agent 'shopkeeper' needs deps=Shop\(…\), or a factory: Runtime\(\[…\], deps="),
        ({"deps": "Porto"}, "deps: the agent 'shopkeeper' takes Shop, not str"),
    ],
)
async def test_a_run_without_what_its_agent_needs_is_refused(options: dict[str, Any], text: str) -> None:
    """Before it starts, with what to write."""
    agent = shopkeeper()
    with pytest.raises(InvalidOptionError, match=text):
        await agent.run("go", **options)
    async with Runtime([agent]) as runtime:
        with pytest.raises(InvalidOptionError, match=text):
            await runtime.start(agent, "go", who=ME, **options)
        with pytest.raises(InvalidOptionError, match=text):
            await runtime.session(agent, who=ME, **options).send("go")


async def test_an_agent_that_takes_none_refuses_them() -> None:
    """With what to write."""
    agent = Agent("plain", model=ScriptedLLM([]))
    text = r"deps: the agent 'plain' takes none; declare them: Agent\('plain', deps=Shop\)"
    with pytest.raises(InvalidOptionError, match=text):
        await agent.run("go", deps=Shop())  # type: ignore[call-overload]


@each_row(
    "make, text",
    [
        (lambda: Agent("a", deps=Shop()), r"deps takes the type: Agent\(…, deps=Shop\)"),  # type: ignore[arg-type]
        (lambda: Agent("a", deps="Shop"), "deps takes the type, not its name: deps=Shop"),
        (lambda: Runtime([shopkeeper()], deps=Shop), "types and their factories"),  # type: ignore[arg-type]
        (lambda: Runtime([shopkeeper()], deps={"Shop": Shop}), "types and their factories"),
        (lambda: Runtime([shopkeeper()], deps={Shop: Shop()}), "a function of the identity"),  # type: ignore[dict-item]
    ],
)
def test_what_is_no_type_or_no_factory_is_refused_where_it_is_written(make: Any, text: str) -> None:
    """In one line with the fix."""
    with pytest.raises(InvalidOptionError, match=text):
        make()


async def test_a_session_gives_them_to_each_of_its_runs() -> None:
    """As to one run."""
    agent, shop = (
        shopkeeper(calls_tools(("look", {})), says("one"), calls_tools(("look", {})), says("two")),
        Shop("Faro"),
    )
    async with Runtime([agent]) as runtime:
        chat = runtime.session(agent, who=ME, deps=shop)
        assert (await chat.send("hi")).output == "one"
        again = await chat.send("again")
    assert [one.text for one in again.messages if one.role == "tool"] == ["Faro"]
