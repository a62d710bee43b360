"""The reference planner under the real runtime: tools, branches, steering, sub-tasks and an ending, from one script."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from harborage.events import Cursor, EventType, Filter
from harborage.identity import Identity
from harborage.llm import CompleteRequest, CompleteResponse, Role
from harborage.planner import CallTool, Finish, FinishReason, RunContext, Trajectory
from harborage.planner.react import ReActPlanner
from harborage.runtime.approval import AlwaysApprove
from harborage.runtime.dispatch import CatalogToolExecutor
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.host import Runtime
from harborage.runtime.pauses import Coordinator
from harborage.runtime.steering import InboxRegistry, RunLoop, RunSpec
from harborage.testing.clock import settle
from harborage.testing.llm import ScriptedLLM, calls_tools, says, user_text
from harborage.testing.planners import ScriptedPlanner
from harborage.tools import SideEffect, ToolCatalog, tool
from tests.kit.provider_rules import check_request

pytestmark = pytest.mark.anyio

WHO = Identity("t", "u", "s")


@tool(effects=SideEffect.PURE)
async def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@tool(effects=SideEffect.READ)
async def read(name: str) -> dict:
    """Reads a file."""
    return {"name": name, "body": "x" * 40_000}


async def events(rt: Runtime) -> list:
    """Everything that was published in the session."""
    return await rt.bus.replay(Cursor(WHO.session_id, 0), Filter.of(WHO))


def answers(request: CompleteRequest) -> list[str]:
    """What the tools answered, as the model is shown it."""
    return [message.content.text for message in request.messages if message.role is Role.TOOL]


def user_texts(request: CompleteRequest) -> list[str]:
    """What user's messages say, one text a message."""
    return [message.content.text or "" for message in request.messages if message.role is Role.USER]


async def test_a_whole_run():
    """A call, two calls at once, a message from the user, and the answer: each request is legal and shows them all."""
    waits = asyncio.Event()

    @tool(effects=SideEffect.READ)
    async def slow() -> str:
        """Waits until the user has sent a message."""
        await waits.wait()
        return "line 1\nline 2"

    llm = ScriptedLLM(
        [
            calls_tools(("add", {"a": 1, "b": 2}), content="Let me add.", reasoning="1 and 2"),
            calls_tools(("add", {"a": 3, "b": 4}), ("add", {"a": "x", "b": 4})),
            calls_tools(("slow", {})),
            says("It is 3."),
        ]
    )
    async with Runtime(planner=ReActPlanner(llm), tools=[add, slow]) as rt:
        run = await rt.start("add it up", who=WHO)
        async for event in run.events():
            if event.type == EventType.TOOL_INVOKED and event.payload.tool_name == "slow":
                await run.message("Hurry, please.")
                waits.set()
        finish = await run.finished()
        published = await events(rt)
    assert (finish.reason, finish.payload) == (FinishReason.GOAL, "It is 3.")
    requests = llm.requests
    for request in requests:
        check_request(request)
        assert [one.name for one in request.tools] == ["_spawn_task", "_await_task", "add", "artifact_fetch", "slow"]
    last = requests[-1]
    one, two, three, four = answers(last)
    assert (one, two, four) == ("3", "7", "line 1\nline 2")
    assert three.startswith("error: ")
    assert last.messages[2].content.text == "Let me add."
    assert last.messages[-1].role is Role.USER
    assert last.messages[-1].content.text == "Hurry, please."
    kinds = [event.payload.decision_kind for event in published if event.type == EventType.PLANNER_DECISION]
    assert kinds == ["CallTool", "CallParallel", "CallTool", "Finish"]
    assert sum(event.type == EventType.PLANNER_FINISH for event in published) == 1


async def test_a_message_stays_where_it_was_said():
    """A user's message is in every later request, between the steps it came between."""
    script = [calls_tools(("add", {"a": number, "b": 0})) for number in range(3)]
    async with Runtime(planner=ReActPlanner(llm := ScriptedLLM([*script, "done"])), tools=[add]) as rt:
        run = await rt.start("go", who=WHO)
        await run.message("before everything")
        await run.inject({"colour": "red"})
        await run.finished()
    last = llm.requests[-1]
    check_request(last)
    roles = [str(message.role) for message in last.messages]
    assert roles == ["system", "user", "user", "user", *["assistant", "tool"] * 3]
    assert last.messages[2].content.text == "before everything"
    assert '{"colour":"red"}' in last.messages[3].content.text
    for request in llm.requests:
        assert last.messages[: len(request.messages)] == request.messages


async def test_the_answer_to_a_pause_stays():
    """What a person answers is rendered at its place and in every later request, once."""
    script = [calls_tools(("add", {"a": number, "b": 0})) for number in range(2)]
    async with Runtime(planner=ReActPlanner(llm := ScriptedLLM([*script, "done"])), tools=[add]) as rt:
        run = await rt.start("go", who=WHO)
        await run.pause()
        while not await run.waiting():
            await settle()
        await run.resume({"colour": "red"})
        await run.finished()
    published = [[text for text in user_texts(request) if '"colour":"red"' in text] for request in llm.requests]
    assert [len(texts) for texts in published] == [1, 1, 1]
    for request in llm.requests:
        check_request(request)
        assert llm.requests[-1].messages[: len(request.messages)] == request.messages


async def test_a_heavy_result():
    """A large result is shown as an excerpt with the call that reads the rest."""
    llm = ScriptedLLM([calls_tools(("read", {"name": "f"})), "done"])
    async with Runtime(planner=ReActPlanner(llm), tools=[read]) as rt:
        await (await rt.start("go", who=WHO)).finished()
    (shown,) = answers(llm.requests[-1])
    assert '"name":"f"' in shown
    assert "artifact_fetch(ref=" in shown
    assert len(shown) < 1_000
    assert "truncated" not in shown


async def test_a_sub_task():
    """A spawned task is a run of its own on the same planner; the run that awaits it gets its result."""

    def waits_for_the_child(request: CompleteRequest) -> CompleteResponse:
        task_id = answers(request)[-1].split('"task_id":"')[1].split('"')[0]
        return calls_tools(("_await_task", {"task_id": task_id}))

    script = [calls_tools(("_spawn_task", {"spec": {"query": "be the child"}})), waits_for_the_child, "done"]
    llm = ScriptedLLM(script, by_text={"be the child": ["I was here."]})
    async with Runtime(planner=ReActPlanner(llm), tools=[add]) as rt:
        run = await rt.start("be the parent", who=WHO)
        assert (await run.finished()).payload == "done"
    last = llm.of(run.id)[-1].request
    check_request(last)
    assert "I was here." in answers(last)[-1]


async def test_a_sub_task_that_is_not_awaited():
    """The result of a background task is pushed into the next prompt after it has ended."""
    has_ended = asyncio.Event()

    @tool(effects=SideEffect.READ)
    async def look() -> str:
        """Looks until the sub-task has ended."""
        await has_ended.wait()
        return "looked"

    script = [calls_tools(("_spawn_task", {"spec": {"query": "be the child"}})), calls_tools(("look", {})), "done"]
    llm = ScriptedLLM(script, by_text={"be the child": ["I was here."]})
    async with Runtime(planner=ReActPlanner(llm), tools=[look]) as rt:
        run = await rt.start("be the parent", who=WHO)
        async for event in run.events():
            if event.type == EventType.TASK_COMPLETED and event.payload.task_id != run.id:
                await settle()
                has_ended.set()
    last = llm.of(run.id)[-1].request
    check_request(last)
    (line,) = [line for line in user_text(last).splitlines() if line.startswith('{"background_resolved"')]
    resolved = json.loads(line)["background_resolved"]
    (group,) = resolved.values()
    assert [member["status"] for member in group["members"]] == ["complete"]


async def test_a_slip_does_not_end_the_run():
    """A reserved call among others is corrected within its step, and the run reaches its goal."""
    mixed = calls_tools(("add", {"a": 1, "b": 1}), ("_await_task", {"task_id": "x"}))
    llm = ScriptedLLM([mixed, calls_tools(("add", {"a": 1, "b": 1})), "two"])
    async with Runtime(planner=ReActPlanner(llm), tools=[add]) as rt:
        finish = await (await rt.start("go", who=WHO)).finished()
    assert finish.payload == "two"
    assert "reminder: " in llm.requests[-1].messages[0].content.text


async def test_calls_one_at_a_time():
    """With parallel calls switched off the runtime makes the calls of one answer step by step."""
    llm = ScriptedLLM([calls_tools(("add", {"a": 1, "b": 1}), ("add", {"a": 2, "b": 2})), "done"])
    async with Runtime(planner=ReActPlanner(llm, parallel_tool_calls=False), tools=[add]) as rt:
        await (await rt.start("go", who=WHO)).finished()
    assert len(llm.calls) == 2
    assert answers(llm.requests[-1]) == ["2", "4"]
    check_request(llm.requests[-1])


async def test_the_answer_is_streamed():
    """What the model writes is streamed piece by piece while it writes."""
    async with Runtime(planner=ReActPlanner(ScriptedLLM([says("abcd")], piece=2))) as rt:
        await (await rt.start("go", who=WHO)).finished()
        published = await events(rt)
    pieces = [event.payload for event in published if event.type == EventType.LLM_COMPLETION_CHUNK]
    assert [(one.delta, one.done) for one in pieces if one.kind == "content"] == [
        ("ab", False),
        ("cd", False),
        ("", True),
    ]


async def test_many_runs_on_one_planner():
    """A hundred runs at once each have their own conversation."""
    script = [calls_tools(("add", {"a": 1, "b": 1})), lambda request: says(user_text(request))]
    async with Runtime(planner=ReActPlanner(ScriptedLLM(script)), tools=[add], options=RuntimeOptions()) as rt:
        runs = [await rt.start(f"goal {number}", who=WHO) for number in range(100)]
        finishes = await asyncio.gather(*(run.finished() for run in runs))
    assert [finish.payload for finish in finishes] == [f"Goal:\ngoal {number}" for number in range(100)]


async def test_arguments_that_a_tool_refuses_bring_guidance() -> None:
    """Each refusal in a row counts, gated calls included, and the prompt gets firmer; a call that fits settles it."""
    bad, good = calls_tools(("strict", {"zz": 1})), calls_tools(("strict", {"n": 1}))

    @tool(effects=SideEffect.READ)
    async def strict(n: int) -> int:
        """Strict."""
        return n

    for approvals in (None, {"strict": AlwaysApprove()}):
        llm = ScriptedLLM([bad, bad, bad, good, bad, says("done")])
        async with Runtime(model=llm, tools=[strict], approvals=approvals) as runtime:
            run = await runtime.start("go", who=Identity("t", "u", "s"))
            assert (await run.finished()).payload == "done"
            record = await run.history()
            assert (await runtime.replay(record)).is_same
        said = [request.messages[0].content.text or "" for request in llm.requests]
        tiers = [next((tier for tier in TIERS if f"{tier}: " in text), "") for text in said]
        assert tiers == ["", "reminder", "warning", "critical", "", "reminder"], approvals


async def test_a_tool_that_fails_brings_no_guidance() -> None:
    """Arguments that fit are not the model's mistake, whatever the tool does then."""

    @tool(effects=SideEffect.READ)
    async def broken(n: int) -> int:
        """Broken."""
        raise ValueError("out of paper")

    llm = ScriptedLLM([calls_tools(("broken", {"n": 1})), says("done")])
    async with Runtime(model=llm, tools=[broken]) as runtime:
        await (await runtime.start("go", who=Identity("t", "u", "s"))).finished()
    assert not [tier for tier in TIERS if f"{tier}: " in str(llm.requests[1].messages[0].content.text)]


async def test_a_bare_loop_counts_refused_arguments_too() -> None:
    """What an executor refuses for its arguments is a failure of that kind in the history."""

    @tool(effects=SideEffect.READ)
    async def strict(n: int) -> int:
        """Strict."""
        return n

    catalog = ToolCatalog()
    catalog.register(strict)

    class Own:
        """An executor of one's own over that of the catalog."""

        def __init__(self) -> None:
            self.inner = CatalogToolExecutor(catalog)

        async def execute_decision(self, rc: RunContext, decision: Any) -> tuple[Any, Any]:
            return await self.inner.execute_decision(rc, decision)

    for executor in (Own(), CatalogToolExecutor(catalog)):
        history = Trajectory()
        base = RunContext(quadruple=Identity("t", "u", "s").with_run("r"), trajectory=history)
        planner = ScriptedPlanner([CallTool("strict", b'{"zz":1}'), Finish(FinishReason.GOAL)])
        spec = RunSpec(planner=planner, base=base, tool_executor=executor)
        await RunLoop(InboxRegistry(), Coordinator()).run(spec)
        (step,) = history.steps
        assert step.failure is not None
        assert (step.failure.code, step.failure.attempts) == ("invalid_args", 1)


TIERS = ("reminder", "warning", "critical")
