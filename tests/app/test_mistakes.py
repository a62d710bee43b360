"""Typical mistakes of a first day: each is refused where it is made, in one line that names the thing and the fix."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import harborage.client
from harborage import (
    Agent,
    CallContext,
    Capability,
    Identity,
    Limits,
    Model,
    Runtime,
    WorkflowContext,
    tool,
    workflow,
)
from harborage.testing import call, script
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
MODEL = script("hi")


@dataclass
class Answer:
    text: str


@dataclass
class Same:
    text: str


class Shop: ...


class Desk:
    @tool
    async def open(self, day: str) -> str:
        """Open the desk."""
        return day


@tool
async def look(item: str) -> int:
    """Look."""
    return 1


@tool(name="look")
async def look_again(item: str) -> int:
    """Look."""
    return 1


@tool
async def of_shop(ctx: CallContext[Shop], item: str) -> int:
    """Look in the shop."""
    return 1


@tool(effects="read")
async def odd() -> object:
    """Return something odd."""
    return object()


def plain(item: int) -> int:
    """Look."""
    return item


def bare(item):  # type: ignore[no-untyped-def]
    """Look."""
    return item


def agent(**options: Any) -> Agent[Any, Any]:
    return Agent("support", model=MODEL, **options)


MADE: list[tuple[str, Callable[[], Any], str]] = [
    ("sub_agents", lambda: agent(sub_agents=[]), "sub_agents=[]: there is no such option; did you mean agents?"),
    ("output_type", lambda: agent(output_type=int), "there is no such option; did you mean output?"),
    ("response_format", lambda: agent(response_format=int), "there is no such option; did you mean output?"),
    ("deps_type", lambda: agent(deps_type=Shop), "there is no such option; did you mean deps?"),
    ("system_prompt", lambda: agent(system_prompt="x"), "did you mean instructions?"),
    ("handoffs", lambda: agent(handoffs=[]), "did you mean agents=[agent.handoff()]?"),
    ("max_turns", lambda: agent(max_turns=3), "did you mean limits=Limits(steps=…)?"),
    ("a typing error", lambda: agent(instrutions="x"), "did you mean instructions?"),
    ("a plain function", lambda: agent(tools=[plain]), "tools: plain is a plain function; put @tool above it"),
    ("one tool", lambda: agent(tools=look), "tools: give several, such as tools=[look]"),
    ("no tool", lambda: agent(tools=[5]), "tools=5: expected tools, such as functions with @tool"),
    ("two of a name", lambda: agent(tools=[look, look_again]), "tools: two are named 'look'; give one of them another"),
    ("an unbound method", lambda: agent(tools=[Desk.open]), "open: give the method of an object, for example Desk(…)."),
    ("a value as output", lambda: agent(output=Answer("x")), "output: takes the type: Answer"),
    ("a name as output", lambda: agent(output="Answer"), "output: takes the type, not its name: output=Answer"),
    (
        "a schema as output",
        lambda: agent(output={}),
        "output: takes a type; for a schema write output=json_schema({…})",
    ),
    ("None as output", lambda: agent(output=None), "None says nothing about an answer; leave it out for text"),
    ("two alike", lambda: agent(output=Answer | Same), 'the same fields; add kind: Literal["answer"] to each'),
    ("one agent", lambda: agent(agents=agent()), "expected several agents, such as [researcher]"),
    ("an agent's name", lambda: agent(agents=["writer"]), "agents='writer': expected agents, such as"),
    ("limits as a dict", lambda: agent(limits={"steps": 3}), "expected harborage.Limits(steps=…, seconds=…), or None"),
    ("a limit below 0", lambda: Limits(steps=-1), "steps=-1: expected a whole number of at least 1, or nothing"),
    ("approvals", lambda: agent(approvals="allways"), "expected never, writes, always, a policy, or one for each tool"),
    ("memory", lambda: agent(memory="rolling"), "there is no memory strategy 'rolling'; use one of: none, truncation"),
    ("no name", lambda: Agent(""), "name='': expected the agent's name, first: Agent(\"support\", model=…)"),
    ("a change", lambda: setattr(agent(), "model", "x"), "an agent does not change; agent.replace(model=…) returns an"),
    ("replace", lambda: agent().replace(modle="x"), "modle='x': there is no such option; did you mean model?"),
    ("Model", lambda: Model("openai:gpt-5", temprature=1), "did you mean temperature?"),  # type: ignore[call-arg]
    ("effort", lambda: Model("openai:gpt-5", reasoning="hgh"), "expected one of off, low, medium, high"),  # type: ignore[arg-type]
    ("side_effects", lambda: tool(side_effects="read")(plain), "did you mean effects?"),  # type: ignore[call-overload]
    ("effects", lambda: tool(effects="wrte")(plain), "did you mean 'write'?"),  # type: ignore[call-overload]
    ("retries", lambda: tool(retries=3)(plain), 'plain: retries= needs effects="read" or idempotent=True'),
    ("no annotation", lambda: tool(bare), "bare.item: annotate it, for example item: str"),
    ("a class as tool", lambda: tool(Answer), "Answer: Answer is a class; wrap it in a function"),
    ("a plain workflow", lambda: workflow(plain), "@workflow: plain is not async; write async def plain(ctx: Work"),  # type: ignore[call-overload]
    (
        "Capability",
        lambda: agent(capabilities=[Capability]),
        "capabilities: Capability is the class; write Capability(",
    ),
    ("two agents", lambda: Runtime([agent(), agent()]), "two agents are named 'support'; each agent needs a name of"),
    ("no agents", lambda: Runtime([]), "Runtime([…]): there is no agent"),
    (
        "an address",
        lambda: harborage.client.connect("localhost"),
        "expected an http or https url, such as 'http://127.",
    ),
]


@each_row("what, make, text", MADE)
def test_a_wrong_value_is_refused_where_it_is_made(
    what: str, make: Callable[[], Any], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """By name, and with the fix."""
    caplog.set_level(logging.ERROR)
    with pytest.raises(Exception) as refused:
        make()
    said = str(refused.value)
    assert text in said
    assert "\n" not in said
    assert len(said) < 300


async def no_key() -> Any:
    return await Agent("a", model="openai:gpt-5").run("x")


async def no_such_provider() -> Any:
    return await Agent("a", model="antropic:claude").run("x")


async def no_provider() -> Any:
    return await Agent("a", model="gpt-5").run("x")


async def other_words() -> Any:
    result: Any = await agent().run("x")
    return result.data


async def forgotten_await() -> Any:
    coming: Any = agent().run("x")
    try:
        return coming.output
    finally:
        coming.close()


async def without_identity() -> Any:
    async with Runtime([agent()]) as runtime:
        started: Any = runtime.start
        return await started("support", "x")


async def no_such_agent() -> Any:
    async with Runtime([agent()]) as runtime:
        return await runtime.start("suport", "x", who=ME)


async def not_open() -> Any:
    return await Runtime([agent()]).start("support", "x", who=ME)


async def no_such_status() -> Any:
    async with Runtime([agent()]) as runtime:
        return await runtime.runs(who=ME, status="wating")


async def no_deps() -> Any:
    lacking: Any = agent(tools=[of_shop], deps=Shop)
    return await lacking.run("x")


async def deps_of_another_type() -> Any:
    return await agent(tools=[of_shop], deps=Shop).run("x", deps=3)


async def deps_that_nobody_wants() -> Any:
    return await Agent("a", model=MODEL).run("x", deps=Shop())


async def an_option_of_others() -> Any:
    run: Any = agent().run
    return await run("x", max_turns=3)


async def a_number_as_goal() -> Any:
    run: Any = agent().run
    return await run(5)


async def nothing_to_approve() -> Any:
    run = await agent().start("x")
    await run.finished()
    return await run.approve()


async def a_tool_like_a_function() -> Any:
    @workflow
    async def restock(ctx: WorkflowContext, goal: str) -> str:
        return str(await look("tea"))

    return await restock.run("x")


async def asyncio_in_a_workflow() -> Any:
    @workflow
    async def restock(ctx: WorkflowContext, goal: str) -> str:
        await asyncio.sleep(1)
        return goal

    return await restock.run("x")


DONE: list[tuple[Callable[[], Any], str]] = [
    (no_key, "no API key for openai: set the environment variable OPENAI_API_KEY"),
    (no_such_provider, "there is no provider 'antropic' (did you mean anthropic?)"),
    (no_provider, "'gpt-5' names no provider; write openai:gpt-5"),
    (other_words, "a result has no 'data'; did you mean .output?"),
    (forgotten_await, "'coroutine' object has no attribute 'output'"),
    (without_identity, "start: identity required, none given"),
    (no_such_agent, "agent='suport': expected one of support; did you mean 'support'?"),
    (not_open, "The runtime is not open; use it inside `async with Runtime(…) as rt:`"),
    (no_such_status, "did you mean 'waiting'?"),
    (no_deps, "deps: the agent 'support' needs deps=Shop(…), or a factory: Runtime([…], deps={Shop: factory})"),
    (deps_of_another_type, "deps: the agent 'support' takes Shop, not int"),
    (deps_that_nobody_wants, "deps: the agent 'a' takes none; declare them: Agent('a', deps=Shop)"),
    (an_option_of_others, "max_turns=3: there is no such option; did you mean limits=Limits(steps=…)?"),
    (a_number_as_goal, "goal=5: expected a text"),
    (nothing_to_approve, "has ended; start another to continue"),
    (a_tool_like_a_function, "the workflow 'restock' calls a tool by await ctx.call(look, …)"),
    (asyncio_in_a_workflow, "awaits asyncio.tasks.sleep, which is not recorded: write await ctx.sleep(timedelta(…))"),
]


@each_row("do, text", DONE)
async def test_a_wrong_use_is_refused_when_it_is_made(
    do: Callable[[], Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, too."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(Exception) as refused:
        await do()
    assert text in str(refused.value)
    assert "\n" not in str(refused.value)


async def test_a_result_that_is_no_json_is_said_to_the_model() -> None:
    """The tool is named, with the fix; the run goes on."""
    result = await Agent("a", model=script(call("odd"), "fine"), tools=[odd]).run("x")
    assert result.messages[2].text == '{"error":"odd returned object; annotate the result or return JSON","tool":"odd"}'
