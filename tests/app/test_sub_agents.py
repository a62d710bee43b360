"""Agents that an agent calls: each call is a run of its own, whose answer comes back typed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from harborage import Agent, Identity, Limits, Runtime, tool
from harborage.errors import InvalidOptionError
from harborage.events import EventType
from harborage.runtime.durable.engine import RunFailedError
from harborage.runtime.history import build_history
from harborage.testing.llm import ScriptedLLM, calls_tools
from harborage.tools import CallContext

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")


@dataclass
class Notes:
    answer: str
    pages: int = 0


@dataclass
class Refund:
    euros: int


class Shop:
    def __init__(self, name: str) -> None:
        self.name = name


def llm(*lines: Any, **by_text: Any) -> ScriptedLLM:
    """A model that every run of its agent hears these lines of, or those of the text that its goal holds."""
    return ScriptedLLM(lines, by_text={text: [line] for text, line in by_text.items()})


def researcher(*answers: Any, **options: Any) -> Agent[Any, Any]:
    return Agent("researcher", model=llm(*answers), **options)


def observations(record: list[bytes]) -> list[Any]:
    return [call.observation for step in build_history(record).steps for call in step.calls]


async def test_a_call_of_an_agent_gives_its_typed_answer() -> None:
    """All fields of it, also where one is named like the answer of an envelope."""
    notes = researcher('{"answer": "tea is up", "pages": 3}', output=Notes)
    writer = Agent("writer", model=llm(calls_tools(("researcher", {"goal": "tea"})), "done"), agents=[notes])
    async with Runtime([writer]) as rt:
        run = await rt.start(writer, "write", who=ME)
        assert (await run.result()).output == "done"
        assert observations(await run.history()) == [{"answer": "tea is up", "pages": 3}]


async def test_the_model_is_shown_the_agent_as_a_tool_and_its_answer_as_the_result() -> None:
    model = llm(calls_tools(("paper_reader", {"goal": "tea"})), "done")
    child = Agent("paper reader", model=llm("tea is up"), description="Reads papers.")
    writer = Agent("writer", model=model, agents=[child])
    async with Runtime([writer]) as rt:
        await (await rt.start(writer, "write", who=ME)).result()
    first, second = model.requests
    shown = next(one for one in first.tools if one.name == "paper_reader")
    assert "Reads papers." in shown.description
    assert "tea is up" in str(second.messages[-1])


async def test_the_usage_of_a_result_counts_the_agents_that_were_called() -> None:
    writer = Agent(
        "writer",
        model=llm(calls_tools(("researcher", {"goal": "tea"})), "done"),
        agents=[researcher("tea is up")],
    )
    async with Runtime([writer]) as rt:
        result = await (await rt.start(writer, "write", who=ME)).result()
    assert result.usage.model_calls == 3
    assert result.usage.tool_calls == 0


async def test_several_agents_are_called_at_once() -> None:
    """Both have begun before one of them ends."""
    begun = [asyncio.Event(), asyncio.Event()]

    @tool(effects="read")
    async def look(place: int) -> int:
        """Look there."""
        begun[place].set()
        await asyncio.wait_for(begun[1 - place].wait(), 20)
        return place

    def one(place: int) -> Agent[Any, Any]:
        model = llm(calls_tools(("look", {"place": place})), f"seen {place}")
        return Agent(f"reader{place}", model=model, tools=[look])

    asked = calls_tools(("reader0", {"goal": "a"}), ("reader1", {"goal": "b"}))
    writer = Agent("writer", model=llm(asked, "done"), agents=[one(0), one(1)])
    async with Runtime([writer]) as rt:
        run = await rt.start(writer, "write", who=ME)
        await run.result()
        assert observations(await run.history()) == ["seen 0", "seen 1"]


async def test_the_same_agent_is_called_twice_at_once() -> None:
    """Each call is a run of its own."""
    asked = calls_tools(("researcher", {"goal": "goal_a"}), ("researcher", {"goal": "goal_b"}))
    writer = Agent(
        "writer", model=llm(asked, "done"), agents=[Agent("researcher", model=llm(goal_a="one", goal_b="two"))]
    )
    async with Runtime([writer]) as rt:
        run = await rt.start(writer, "write", who=ME)
        await run.result()
        assert sorted(observations(await run.history())) == ["one", "two"]


async def test_an_agent_without_a_model_has_that_of_its_caller() -> None:
    model = llm(calls_tools(("researcher", {"goal": "the leaves"})), "done", leaves="they are up")
    writer = Agent("writer", model=model, agents=[Agent("researcher")])
    async with Runtime([writer]) as rt:
        run = await rt.start(writer, "write", who=ME)
        await run.result()
        assert observations(await run.history()) == ["they are up"]


async def test_an_agent_that_fails_is_told_to_its_caller_who_goes_on() -> None:
    class Broken:
        async def next(self, run: object) -> Any:
            raise ValueError("no paper")

    child = Agent("researcher", planner=Broken())
    writer = Agent("writer", model=llm(calls_tools(("researcher", {"goal": "tea"})), "done"), agents=[child])
    async with Runtime([writer]) as rt:
        run = await rt.start(writer, "write", who=ME)
        assert (await run.result()).output == "done"
        [call] = build_history(await run.history()).steps[0].calls
    assert call.error.startswith("researcher: the agent's run failed: ")
    assert "no paper" in call.error


@pytest.mark.parametrize("args", [{}, {"goal": " "}, {"goal": 3}, {"goal": "a", "query": "b"}])
async def test_a_call_with_other_arguments_is_told_to_the_model(args: dict[str, Any]) -> None:
    """No run is started."""
    writer = Agent("writer", model=llm(calls_tools(("researcher", args)), "done"), agents=[researcher()])
    async with Runtime([writer]) as rt:
        run = await rt.start(writer, "write", who=ME)
        await run.result()
        [step, _] = build_history(await run.history()).steps
    assert not step.children
    assert step.observation is None or "goal" in str(step.observation)


async def test_an_agent_in_the_background_gives_its_answer_before_its_caller_ends() -> None:
    """The caller goes on while it works; when it would end, it waits, and is asked again with the answer."""
    may_end = asyncio.Event()

    @tool(effects="read")
    async def dig() -> str:
        """Dig."""
        await asyncio.wait_for(may_end.wait(), 20)
        return "gold"

    @tool(effects="read")
    async def note() -> str:
        """Note something, while the other works."""
        may_end.set()
        return "noted"

    digger = Agent("digger", model=llm(calls_tools(("dig", {})), "found gold"), tools=[dig])
    model = llm(calls_tools(("digger", {"goal": "dig"})), calls_tools(("note", {})), "I wait", "gold it is")
    writer = Agent("writer", model=model, tools=[note], agents=[digger.background()])
    async with Runtime([writer]) as rt:
        run = await rt.start(writer, "write", who=ME)
        assert (await asyncio.wait_for(run.result(), 20)).output == "gold it is"
    assert "found gold" in str(model.requests[-1].messages)


async def test_the_conversation_is_handed_over_and_the_answer_is_the_callers() -> None:
    billing = Agent("billing", model=llm('{"euros": 12}'), output=Refund)
    triage = Agent(
        "triage",
        model=llm(calls_tools(("billing", {"note": "a regular"}))),
        output=Refund | str,
        agents=[billing.handoff()],
    )
    async with Runtime([triage]) as rt:
        run = await rt.start(triage, "my tea is broken", who=ME)
        result = await run.result()
        [child] = build_history(await run.history()).children
    assert child.spec.query == "my tea is broken\n\nNote of the agent that handed this over: a regular"
    assert result.output == Refund(12)
    assert result.finish.metadata == {"handed_over_to": "billing"}


async def test_a_long_answer_is_handed_over_whole() -> None:
    """No part of it is replaced by a reference, which the model would be shown of a result of that size."""
    long = "tea " * 40_000
    triage = Agent(
        "triage",
        model=llm(calls_tools(("billing", {}))),
        agents=[Agent("billing", model=llm(long)).handoff()],
    )
    async with Runtime([triage]) as rt:
        assert (await (await rt.start(triage, "go", who=ME)).result()).output == long


async def test_an_agent_to_which_is_handed_over_sees_the_conversation() -> None:
    model = llm("the second answer")
    triage = Agent(
        "triage",
        model=ScriptedLLM(["the first answer"], by_text={"second": [calls_tools(("billing", {}))]}),
        agents=[Agent("billing", model=model).handoff()],
    )
    async with Runtime([triage]) as rt:
        chat = rt.session(triage, who=ME)
        await chat.send("the first question")
        reply = await chat.send("the second question")
    assert reply.output == "the second answer"
    shown = str(model.requests[0].messages)
    assert "the first answer" in shown
    assert "the second question" in shown


async def test_only_one_agent_may_be_handed_the_conversation() -> None:
    """In a parallel call it is refused, and the model is told."""
    asked = calls_tools(("billing", {}), ("support", {}))
    children = [Agent(name, model=llm("x")).handoff() for name in ("billing", "support")]
    triage = Agent("triage", model=llm(asked, "I answer myself"), agents=children)
    async with Runtime([triage]) as rt:
        run = await rt.start(triage, "go", who=ME)
        assert (await run.result()).output == "I answer myself"
        assert not build_history(await run.history()).children


async def test_an_agents_own_limits_hold_within_those_of_its_caller() -> None:
    """It ends at them; its caller is told, and goes on."""
    looked: list[int] = []

    @tool(effects="read")
    async def look() -> int:
        """Look."""
        looked.append(1)
        return 1

    greedy = [calls_tools(("look", {}))] * 9
    child = researcher(*greedy, tools=[look], limits=Limits(calls=2))
    writer = Agent(
        "writer",
        model=llm(calls_tools(("researcher", {"goal": "a"})), "done"),
        agents=[child],
        limits=Limits(calls=50, steps=50),
    )
    async with Runtime([writer]) as rt:
        run = await rt.start(writer, "write", who=ME)
        assert (await run.result()).output == "done"
        [call] = build_history(await run.history()).steps[0].calls
    assert "constraints_conflict" in call.error
    assert len(looked) == 2


async def test_the_limits_of_the_caller_end_the_agent_that_it_calls() -> None:
    looked: list[int] = []

    @tool(effects="read")
    async def look() -> int:
        """Look."""
        looked.append(1)
        return 1

    child = researcher(*[calls_tools(("look", {}))] * 9, tools=[look], limits=Limits(calls=50))
    model = llm(calls_tools(("researcher", {"goal": "a"})), "done")
    writer = Agent("writer", model=model, agents=[child], limits=Limits(calls=3))
    async with Runtime([writer]) as rt:
        run = await rt.start(writer, "write", who=ME)
        with pytest.raises(RunFailedError, match="calls"):
            await run.result()
    assert len(looked) == 3


async def test_cancelling_a_run_cancels_the_agents_that_it_called() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    @tool(effects="read")
    async def hang() -> None:
        """Hang."""
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    child = researcher(calls_tools(("hang", {})), tools=[hang])
    writer = Agent("writer", model=llm(calls_tools(("researcher", {"goal": "a"}))), agents=[child])
    async with Runtime([writer]) as rt:
        run = await rt.start(writer, "write", who=ME)
        await asyncio.wait_for(begun.wait(), 20)
        await run.cancel(hard=True)
        await asyncio.wait_for(run.finished(), 20)
        await asyncio.wait_for(cancelled.wait(), 20)


@pytest.mark.parametrize("together", [False, True], ids=["alone", "in_parallel"])
async def test_a_pause_while_an_agent_works_takes_effect_and_loses_nothing(together: bool) -> None:
    """The answer comes after the resume; nothing is called twice."""
    begun, may_end, calls = asyncio.Event(), asyncio.Event(), 0

    @tool(effects="read")
    async def dig() -> str:
        """Dig."""
        nonlocal calls
        calls += 1
        begun.set()
        await asyncio.wait_for(may_end.wait(), 20)
        return "gold"

    child = researcher(calls_tools(("dig", {})), "found gold", tools=[dig])
    other = Agent("other", model=llm("nothing"))
    asked = [("researcher", {"goal": "a"}), ("other", {"goal": "b"})][: 2 if together else 1]
    writer = Agent("writer", model=llm(calls_tools(*asked), "done"), agents=[child, other])
    async with Runtime([writer]) as rt:
        run = await rt.start(writer, "write", who=ME)
        await asyncio.wait_for(begun.wait(), 20)
        await run.pause()
        may_end.set()
        async with asyncio.timeout(20):
            async for event in run.events(children=False):
                if event.type is EventType.PAUSE_REQUESTED:
                    break
        await run.resume()
        assert (await asyncio.wait_for(run.result(), 20)).output == "done"
        history = build_history(await run.history())
    assert history.steps[0].calls[0].observation == "found gold"
    assert calls == 1


async def test_an_agents_question_to_a_person_is_found_and_answered_through_the_run_of_its_caller() -> None:
    @tool(effects="external", approval="always")
    async def pay(euros: int) -> str:
        """Pay."""
        return f"paid {euros}"

    child = researcher(calls_tools(("pay", {"euros": 3})), "it is paid", tools=[pay])
    writer = Agent("writer", model=llm(calls_tools(("researcher", {"goal": "a"})), "done"), agents=[child])
    async with Runtime([writer]) as rt:
        run = await rt.start(writer, "write", who=ME)
        pending = await asyncio.wait_for(run.wait_pending(), 20)
        assert pending.tool == "pay"
        await run.approve()
        assert (await asyncio.wait_for(run.result(), 20)).output == "done"


async def test_agents_get_the_dependencies_of_their_caller() -> None:
    @tool(effects="read")
    async def name(ctx: CallContext[Shop]) -> str:
        """Tell the shop."""
        return ctx.deps.name

    child = researcher(calls_tools(("name", {})), "told", tools=[name], deps=Shop)
    model = llm(calls_tools(("researcher", {"goal": "a"})), "done")
    writer = Agent("writer", model=model, agents=[child], deps=Shop)
    async with Runtime([writer]) as rt:
        run = await rt.start(writer, "write", who=ME, deps=Shop("porto"))
        await run.result()
        child_id = build_history(await run.history()).children[0].task_id
        task = await rt.tasks.get(child_id, who=ME.with_run(child_id))
    assert task.agent == "writer/researcher"
    assert msgspec.json.decode(task.result or b"")["answer"] == "told"


async def test_an_agent_whose_dependencies_nobody_gives_is_refused_when_it_is_opened() -> None:
    writer = Agent("writer", model=llm(), agents=[researcher(deps=Shop)])
    with pytest.raises(InvalidOptionError, match="'researcher', which 'writer' may call, needs Shop"):
        async with Runtime([writer]):
            pass


async def test_a_run_goes_on_in_another_process_while_its_agent_waits_for_a_person(storage: str) -> None:
    """The child keeps its own agent, and is answered there."""
    paid: list[int] = []

    @tool(effects="external", approval="always")
    async def pay(euros: int) -> str:
        """Pay."""
        paid.append(euros)
        return f"paid {euros}"

    def agent(said: Any, mine: Any) -> Agent[Any, Any]:
        child = Agent("researcher", model=llm(said), tools=[pay])
        return Agent("writer", model=llm(mine), agents=[child])

    writer = agent(calls_tools(("pay", {"euros": 3})), calls_tools(("researcher", {"goal": "a"})))
    async with Runtime([writer], storage=storage) as rt:
        run = await rt.start(writer, "write", who=ME)
        await asyncio.wait_for(run.wait_pending(), 20)
        run_id = run.id
    writer = agent("it is paid", "done")
    async with Runtime([writer], storage=storage) as rt:
        run = await rt.run(run_id, who=ME)
        await asyncio.wait_for(run.wait_pending(), 20)
        await run.approve()
        assert (await asyncio.wait_for(run.result(), 20)).output == "done"
    assert paid == [3]


async def test_a_run_with_agents_is_replayed() -> None:
    def made() -> Agent[Any, Any]:
        asked = calls_tools(("researcher", {"goal": "a"}), ("other", {"goal": "b"}))
        children = [researcher("one"), Agent("other", model=llm("two"))]
        return Agent("writer", model=llm(asked, "done"), agents=children)

    writer = made()
    async with Runtime([writer]) as rt:
        run = await rt.start(writer, "write", who=ME)
        await run.result()
        record = await run.history()
    replayed = await Runtime([made()]).replay(record)
    assert replayed.difference is None
    assert replayed.is_whole


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (lambda: Agent("a", agents="b"), "several agents"),
        (lambda: Agent("a", agents=[Agent]), "agents, such as"),
        (lambda: Agent("a", agents=[print]), "agents, such as"),
        (lambda: Agent("a", agents=[Agent("b"), Agent("b")]), "'b' is also the agent 'b'"),
        (lambda: Agent("a", agents=[Agent("_spawn_task")]), "a name of the runtime's own"),
        (
            lambda: Agent("a", output=str, agents=[Agent("b", output=Refund).handoff()]),
            "'b' may answer with Refund; add it to the output",
        ),
        (lambda: Agent("a", sub_agents=[]), "agents"),
        (lambda: Agent("a", handoffs=[]), r"agents=\[agent.handoff\(\)\]"),
    ],
)
def test_a_wrong_list_of_agents_is_refused_where_it_is_written(made: Any, text: str) -> None:
    with pytest.raises(Exception, match=text):
        made()
