"""A workflow: ordinary code, of which each await is one recorded step of its run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from harborage import (
    Agent,
    Identity,
    QuestionExpiredError,
    RunFailedError,
    Runtime,
    ToolFailedError,
    ToolRejectedError,
    WorkflowContext,
    tool,
    workflow,
)
from harborage.app.workflow import WorkflowInvalidError
from harborage.runtime.durable.engine import RunBlockedError
from harborage.runtime.history import build_history
from harborage.runtime.loop.errors import PayloadInvalidError
from harborage.testing.clock import FakeClock
from harborage.testing.llm import ScriptedLLM
from harborage.tools import CallContext
from tests.kit.planners import StepPlanner

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")


@dataclass
class Restock:
    item: str
    count: int = 1


@dataclass
class Report:
    text: str
    paid: int = 0


class Shop:
    def __init__(self, prices: dict[str, int]) -> None:
        self.prices = prices


@tool(effects="read")
async def price(item: str) -> int:
    """Tell the price."""
    return {"tea": 3, "rice": 4}[item]


@tool(effects="external", approval="always")
async def pay(euros: int) -> str:
    """Pay."""
    return f"paid {euros}"


@tool(effects="read")
async def of_shop(ctx: CallContext[Shop], item: str) -> int:
    """Tell the price in the shop."""
    return ctx.deps.prices[item]


@tool(effects="external")
async def fail() -> None:
    """Fail."""
    raise ValueError("no stock")


def observations(record: list[bytes]) -> list[Any]:
    return [call.observation for step in build_history(record).steps for call in step.calls]


async def result_of(made: Any, goal: Any = "go", **options: Any) -> Any:
    async with Runtime([made]) as rt:
        return await (await rt.start(made, goal, who=ME, **options)).result()


async def test_the_result_of_a_call_is_typed_and_so_is_that_of_the_workflow() -> None:
    @workflow
    async def restock(ctx: WorkflowContext, goal: str) -> Report:
        cost = await ctx.call(price, item=goal)
        return Report(f"{goal} costs {cost}", cost + 1)

    result = await result_of(restock, "tea")
    assert result.output == Report("tea costs 3", 4)
    assert len(result.steps) == 2


async def test_a_goal_may_be_a_value() -> None:
    @workflow
    async def restock(ctx: WorkflowContext, goal: Restock) -> str:
        return f"{goal.count} {goal.item}"

    assert (await restock.run(Restock("tea", 20))).output == "20 tea"


async def test_calls_are_made_at_once_and_their_results_come_in_order() -> None:
    @workflow
    async def restock(ctx: WorkflowContext, goal: str) -> str:
        tea, rice = await ctx.gather(ctx.call(price, item="tea"), ctx.call(price, "rice"))
        return f"{tea} {rice}"

    result = await result_of(restock)
    assert result.output == "3 4"
    assert len(result.steps[0].calls) == 2


async def test_loops_and_try_are_pythons_own() -> None:
    """A call that failed raises, and the code goes on."""

    @workflow
    async def restock(ctx: WorkflowContext, goal: str) -> str:
        said = []
        for item in ("tea", "rice"):
            said += [await ctx.call(price, item=item)]
        try:
            await ctx.call(fail)
        except ToolFailedError as error:
            return f"{sum(said)}: {error.tool} {error.is_unknown} {error.reason}"
        return "no"

    output = (await result_of(restock)).output
    assert output.startswith("7: fail False ")
    assert "no stock" in output


async def test_one_of_several_calls_that_failed_raises_once_all_have_ended() -> None:
    @workflow
    async def restock(ctx: WorkflowContext, goal: str) -> str:
        try:
            await ctx.gather(ctx.call(price, item="tea"), ctx.call(fail))
        except ToolFailedError as error:
            return error.tool
        return "no"

    assert (await result_of(restock)).output == "fail"


async def test_a_call_that_a_person_refused_raises_that() -> None:
    @workflow
    async def restock(ctx: WorkflowContext, goal: str) -> str:
        try:
            return await ctx.call(pay, euros=3)
        except ToolRejectedError as error:
            return f"refused: {error.reason}"

    async with Runtime([restock]) as rt:
        run = await rt.start(restock, "go", who=ME)
        await (await asyncio.wait_for(run.wait_pending(), 20)).reject("too much")
        assert "too much" in (await asyncio.wait_for(run.result(), 20)).output


async def test_an_agent_is_run_as_a_child_and_gives_its_typed_output() -> None:
    writer = Agent("writer", model=ScriptedLLM(['{"text": "fine", "paid": 3}']), output=Report)

    @workflow
    async def restock(ctx: WorkflowContext, goal: str) -> str:
        report = await ctx.run(writer, "Summarise")
        return f"{report.text} {report.paid}"

    result = await result_of(restock)
    assert result.output == "fine 3"
    assert result.usage.model_calls == 1


async def test_an_agent_is_asked_for_another_output() -> None:
    """In the form of the type at the call, which is checked and asked again; its own output stays for other calls."""
    answers = {"tea": ["no report", '{"text": "Tea.", "paid": 2}'], "number": ['{"value": 7}'], "text": ["plain"]}
    model = ScriptedLLM(["no"], by_text=answers)
    writer = Agent("writer", model=model)

    @workflow
    async def restock(ctx: WorkflowContext, goal: str) -> str:
        report = await ctx.run(writer, "tea", output=Report)
        text, number = await ctx.run(writer, "text"), await ctx.run(writer, "number", output=int)
        return f"{report.paid} {text} {number} {await ctx.run(writer, 'text', output=str)}"

    async with Runtime([restock], storage="memory:") as runtime:
        run = await runtime.start(restock, "go", who=ME)
        assert (await run.result()).output == "2 plain 7 plain"
        assert (await run.replay()).is_same
    schemas = [request.response_format for request in model.requests]
    assert [schema is None for schema in schemas] == [False, False, True, False, True]


async def test_the_model_of_a_workflow_is_asked_for_text_and_for_values() -> None:
    """What `@workflow(model=…)` names; each is a child without tools of its own, which counts in the usage."""
    model = ScriptedLLM(["no"], by_text={"What now?": ["Buy tea."], "Which?": ['{"value": [1, 2]}']})

    @workflow(model=model)
    async def restock(ctx: WorkflowContext, goal: str) -> str:
        text, numbers = await ctx.model("What now?"), await ctx.model("Which?", output=list[int])
        return f"{text} {sum(numbers)}"

    result = await restock.run("go")
    assert (result.output, result.usage.model_calls) == ("Buy tea. 3", 2)


@pytest.mark.parametrize("storage", ["memory:", "sqlite"])
async def test_several_answers_of_models_are_gathered(storage: str, tmp_path: Path) -> None:
    """Each in its own type."""
    model = ScriptedLLM(["no"], by_text={"one": ['{"value": 1}'], "two": ["two!"]})

    @workflow(model=model)
    async def restock(ctx: WorkflowContext, goal: str) -> str:
        one, two = await ctx.gather(ctx.model("one", output=int), ctx.model("two"))
        return f"{one + 1} {two}"

    url = storage if storage == "memory:" else f"sqlite:{tmp_path / 'runs.db'}"
    async with Runtime([restock], storage=url) as runtime:
        assert (await (await runtime.start(restock, "go", who=ME)).result()).output == "2 two!"


@pytest.mark.parametrize(
    ("asks", "text"),
    [
        (lambda ctx: ctx.model("What now?"), 'ctx.model: the workflow has no model; write @workflow(model="openai'),
        (lambda ctx: ctx.model(""), "ctx.model takes what is asked as a text first, not ''"),
        (lambda ctx: ctx.run("writer", "go"), "ctx.run takes an agent and its goal as a text, not 'writer' and 'go'"),
        (
            lambda ctx: ctx.run(decided, "go", output=int),
            "'decided' decides by a planner of its own, which takes no ou",
        ),
    ],
    ids=["no model", "no prompt", "no agent", "own planner"],
)
async def test_what_a_model_cannot_be_asked_is_refused_with_the_fix(asks: Any, text: str) -> None:
    """By name, in the run."""

    @workflow(agents=[decided])
    async def restock(ctx: WorkflowContext, goal: str) -> str:
        await asks(ctx)
        return "asked"

    async with Runtime([restock], storage="memory:") as runtime:
        with pytest.raises(RunFailedError) as failed:
            await (await runtime.start(restock, "go", who=ME)).result()
    assert text in str(failed.value)


decided = Agent("decided", planner=StepPlanner([]))


async def test_a_child_is_started_and_awaited_later() -> None:
    writer = Agent("writer", model=ScriptedLLM(["written"]))

    @workflow
    async def restock(ctx: WorkflowContext, goal: str) -> str:
        child = await ctx.spawn(writer, "Write")
        cost = await ctx.call(price, item="tea")
        return f"{await child.result()} {cost}"

    assert (await result_of(restock)).output == "written 3"


async def test_a_child_that_is_not_awaited_is_said_in_one_line() -> None:
    """Who takes the start of a child for the child itself is told what to write."""
    writer = Agent("writer", model=ScriptedLLM(["written"]))

    @workflow
    async def restock(ctx: WorkflowContext, goal: str) -> str:
        child: Any = ctx.spawn(writer, "Write")
        return str(await child.result())

    with pytest.raises(RunFailedError, match=r"write: child = await ctx\.spawn\(writer, …\)"):
        await result_of(restock)


async def test_a_workflow_is_called_by_an_agent_and_by_a_workflow() -> None:
    @workflow
    async def inner(ctx: WorkflowContext, goal: str) -> str:
        return f"inner {await ctx.call(price, item=goal)}"

    @workflow
    async def outer(ctx: WorkflowContext, goal: str) -> str:
        return f"outer {await ctx.run(inner, goal)}"

    assert (await result_of(outer, "tea")).output == "outer inner 3"


async def test_tools_get_the_dependencies_of_the_workflow() -> None:
    @workflow
    async def restock(ctx: WorkflowContext[Shop], goal: str) -> str:
        return str(await ctx.call(of_shop, item="tea"))

    assert (await result_of(restock, deps=Shop({"tea": 9}))).output == "9"


async def test_a_sleep_lasts_as_long_as_it_says_on_the_runs_clock() -> None:
    clock = FakeClock()

    @workflow
    async def restock(ctx: WorkflowContext, goal: str) -> str:
        before = ctx.now()
        await ctx.sleep(timedelta(hours=3))
        return str((ctx.now() - before) >= timedelta(hours=3))

    async with Runtime([restock], clock=clock) as rt:
        run = await rt.start(restock, "go", who=ME)
        await clock.run_for(timedelta(hours=2).total_seconds())
        assert not (await run.status()).phase.is_final
        await clock.run_for(timedelta(hours=2).total_seconds())
        assert (await asyncio.wait_for(run.result(), 20)).output == "True"


async def test_a_question_is_answered_with_a_checked_value() -> None:
    """An answer of another type is refused, and the question stays open."""

    @workflow
    async def restock(ctx: WorkflowContext, goal: str) -> str:
        wanted = await ctx.ask("What and how many?", Restock)
        return f"{wanted.count} {wanted.item}"

    async with Runtime([restock]) as rt:
        run = await rt.start(restock, "go", who=ME)
        pending = await asyncio.wait_for(run.wait_pending(), 20)
        assert pending.question == "What and how many?"
        with pytest.raises(PayloadInvalidError, match="does not fit the question"):
            await pending.answer({"count": "many"})
        await (await asyncio.wait_for(run.wait_pending(), 20)).answer({"item": "tea", "count": 20})
        assert (await asyncio.wait_for(run.result(), 20)).output == "20 tea"
        assert observations(await run.history()) == [{"value": {"item": "tea", "count": 20}}]


@pytest.mark.parametrize(("answer", "output"), [("approve", "True"), ("reject", "False")])
async def test_a_yes_or_no_question_takes_an_approval_or_a_rejection(answer: str, output: str) -> None:
    @workflow
    async def restock(ctx: WorkflowContext, goal: str) -> str:
        return str(await ctx.ask("Order?", bool))

    async with Runtime([restock]) as rt:
        run = await rt.start(restock, "go", who=ME)
        pending = await asyncio.wait_for(run.wait_pending(), 20)
        await (pending.approve() if answer == "approve" else pending.reject())
        assert (await asyncio.wait_for(run.result(), 20)).output == output


@pytest.mark.parametrize("has_default", [True, False])
async def test_a_question_that_nobody_answers_in_time_has_its_default_or_raises(has_default: bool) -> None:
    clock = FakeClock()

    @workflow
    async def restock(ctx: WorkflowContext, goal: str) -> str:
        try:
            if has_default:
                return str(await ctx.ask("Order?", int, expires=timedelta(hours=1), default=7))
            return str(await ctx.ask("Order?", int, expires=timedelta(hours=1)))
        except QuestionExpiredError as error:
            return f"nobody: {error.question}"

    async with Runtime([restock], clock=clock) as rt:
        run = await rt.start(restock, "go", who=ME)
        await clock.run_for(7200)
        output = (await asyncio.wait_for(run.result(), 20)).output
    assert output == ("7" if has_default else "nobody: Order?")


async def test_messages_are_received_in_their_order_each_once() -> None:
    """Also one that came before the code waited for it."""
    may_go = asyncio.Event()

    @tool(effects="read")
    async def hold() -> None:
        """Wait."""
        await asyncio.wait_for(may_go.wait(), 20)

    @workflow
    async def listen(ctx: WorkflowContext, goal: str) -> list[str]:
        await ctx.call(hold)
        return [str(await ctx.receive()) for _ in range(3)]

    async with Runtime([listen]) as rt:
        run = await rt.start(listen, "go", who=ME)
        await run.message("one")
        await run.message("two")
        may_go.set()
        await run.inject({"no": "message"})
        await run.message("three")
        assert (await asyncio.wait_for(run.result(), 20)).output == ["one", "two", "three"]
        assert (await Runtime([listen]).replay(await run.history())).difference is None


async def test_a_message_that_does_not_come_in_time_is_none() -> None:
    clock = FakeClock()

    @workflow
    async def listen(ctx: WorkflowContext, goal: str) -> str:
        return str(await ctx.receive(timeout=timedelta(hours=1)))

    async with Runtime([listen], clock=clock) as rt:
        run = await rt.start(listen, "go", who=ME)
        await clock.run_for(7200)
        assert (await asyncio.wait_for(run.result(), 20)).output == "None"


async def test_a_message_reaches_a_workflow_that_left_memory(storage: str) -> None:
    """It is sent while no worker has the run, and received when one has."""

    @workflow
    async def listen(ctx: WorkflowContext, goal: str) -> str:
        return f"{await ctx.receive()} {await ctx.ask('Go?', bool)}"

    async with Runtime([listen], storage=storage) as rt:
        run = await rt.start(listen, "go", who=ME)
    async with Runtime(planner=StepPlanner(), agent="other", storage=storage) as rt:
        await rt.get(run.id, who=ME).message("hello")
    async with Runtime([listen], storage=storage) as rt:
        run = rt.get(run.id, who=ME)
        await (await asyncio.wait_for(run.wait_pending(), 20)).approve()
        assert (await asyncio.wait_for(run.result(), 20)).output == "hello True"


async def test_a_redirect_of_a_workflow_is_rejected_with_the_reason() -> None:
    @workflow
    async def listen(ctx: WorkflowContext, goal: str) -> str:
        return str(await ctx.receive())

    async with Runtime([listen]) as rt:
        run = await rt.start(listen, "go", who=ME)
        await run.redirect("another goal")
        await run.message("hello")
        assert (await asyncio.wait_for(run.result(), 20)).output == "hello"
        [control] = [one for one in build_history(await run.history()).controls if one.type == "REDIRECT"]
        assert control.error == "payload_invalid"


async def test_a_workflow_goes_on_in_another_process_with_the_same_numbers(storage: str) -> None:
    """It is executed again over its record: no call is made twice, and what it drew at random stays the same."""
    calls, drawn = [], []

    @tool(effects="external")
    async def order(item: str, key: str) -> str:
        """Order something."""
        calls.append(item)
        return key

    def made() -> Any:
        @workflow
        async def restock(ctx: WorkflowContext, goal: str) -> str:
            key, at = str(ctx.uuid()), ctx.now()
            drawn.append((key, at, ctx.random.random()))
            kept = await ctx.call(order, item="tea", key=key)
            if not await ctx.ask("More?", bool):
                return "no"
            await ctx.call(order, item="rice", key="k")
            return str(kept == key)

        return restock

    first = made()
    async with Runtime([first], storage=storage) as rt:
        run = await rt.start(first, "go", who=ME)
        await asyncio.wait_for(run.wait_pending(), 20)
        run_id = run.id
    second = made()
    async with Runtime([second], storage=storage) as rt:
        run = await rt.run(run_id, who=ME)
        await (await asyncio.wait_for(run.wait_pending(), 20)).approve()
        assert (await asyncio.wait_for(run.result(), 20)).output == "True"
        replayed = await Runtime([made()]).replay(await run.history())
    assert calls == ["tea", "rice"]
    assert drawn[0] == drawn[1] == drawn[2]
    assert replayed.difference is None


async def test_code_that_changed_under_a_running_workflow_is_refused_by_name_and_position(tmp_path: Path) -> None:
    """The run is kept, and goes on with the code that began it."""
    storage = f"sqlite:{tmp_path / 'runs.db'}"

    def made(item: str) -> Any:
        @workflow
        async def restock(ctx: WorkflowContext, goal: str) -> str:
            await ctx.call(price, item=item)
            return str(await ctx.ask("More?", bool))

        return restock

    async with Runtime([first := made("tea")], storage=storage) as rt:
        run = await rt.start(first, "go", who=ME)
        await asyncio.wait_for(run.wait_pending(), 20)
    async with Runtime([made("rice")], storage=storage) as rt:
        other = await rt.run(run.id, who=ME)
        await (await other.pending())[0].approve()
        with pytest.raises(RunBlockedError) as blocked:
            await asyncio.wait_for(other.result(), 20)
    text = 'operation 1 was price({"item":"tea"}), and the code asks for price({"item":"rice"})'
    assert text in str(blocked.value)
    async with Runtime([made("tea")], storage=storage) as rt:
        assert (await asyncio.wait_for((await rt.run(run.id, who=ME)).result(), 20)).output == "True"


async def test_a_change_of_the_code_is_taken_by_new_runs_and_not_by_those_that_were_there(tmp_path: Path) -> None:
    storage = f"sqlite:{tmp_path / 'runs.db'}"

    def made(is_new: bool) -> Any:
        @workflow
        async def restock(ctx: WorkflowContext, goal: str) -> str:
            item = "rice" if is_new and ctx.patched("rice first") else "tea"
            cost = await ctx.call(price, item=item)
            return f"{cost} {await ctx.ask('More?', bool)}"

        return restock

    async with Runtime([old := made(False)], storage=storage) as rt:
        run = await rt.start(old, "go", who=ME)
        await asyncio.wait_for(run.wait_pending(), 20)
    async with Runtime([new := made(True)], storage=storage) as rt:
        before = await rt.run(run.id, who=ME)
        await (await before.pending())[0].approve()
        assert (await asyncio.wait_for(before.result(), 20)).output == "3 True"
        after = await rt.start(new, "go", who=ME)
        await (await asyncio.wait_for(after.wait_pending(), 20)).approve()
        assert (await asyncio.wait_for(after.result(), 20)).output == "4 True"
        assert (await Runtime([made(True)]).replay(await after.history())).difference is None


async def foreign_sleep() -> None:
    await asyncio.sleep(0.01)


async def foreign_turn() -> None:
    await asyncio.sleep(0)


async def foreign_gather() -> None:
    await asyncio.gather(foreign_turn())


async def foreign_tool() -> None:
    await price("tea")


async def foreign_agent() -> None:
    await Agent("a", model=ScriptedLLM(["x"])).run("go")


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (foreign_sleep, r"awaits asyncio.tasks.sleep, which is not recorded: write await ctx.sleep"),
        (foreign_turn, r"awaits asyncio.tasks.sleep"),
        (foreign_gather, r"which is not recorded"),
        (foreign_tool, r"calls a tool by await ctx.call\(price, …\)"),
        (foreign_agent, r"runs an agent by await ctx.run\(a, …\)"),
    ],
)
async def test_what_no_record_holds_is_refused_by_name(other: Any, text: str) -> None:
    @workflow
    async def restock(ctx: WorkflowContext, goal: str) -> str:
        await other()
        return "no"

    with pytest.raises(RunFailedError, match=text):
        await result_of(restock)


async def test_a_foreign_coroutine_in_a_gather_is_refused() -> None:
    @workflow
    async def restock(ctx: WorkflowContext, goal: str) -> str:
        await ctx.gather(ctx.call(price, item="tea"), foreign_turn())  # type: ignore[call-overload]
        return "no"

    with pytest.raises(RunFailedError, match="takes operations such as ctx.call"):
        await result_of(restock)


async def test_an_error_of_the_code_fails_the_run_with_its_text() -> None:
    @workflow
    async def restock(ctx: WorkflowContext, goal: str) -> str:
        raise KeyError("tea")

    with pytest.raises(RunFailedError, match="tea"):
        await result_of(restock)


async def test_a_result_of_another_type_fails_the_run() -> None:
    @workflow
    async def restock(ctx: WorkflowContext, goal: str) -> Report:
        return "text"  # type: ignore[return-value]

    with pytest.raises(RunFailedError, match="returned something else than it declares"):
        await result_of(restock)


async def test_a_cancel_ends_a_sleeping_workflow() -> None:
    @workflow
    async def restock(ctx: WorkflowContext, goal: str) -> str:
        await ctx.sleep(timedelta(days=3))
        return "no"

    async with Runtime([restock]) as rt:
        run = await rt.start(restock, "go", who=ME)
        await run.cancel()
        with pytest.raises(RunFailedError, match="cancelled"):
            await asyncio.wait_for(run.result(), 20)


async def no_context(goal: str) -> str:
    return goal


async def untyped(ctx: WorkflowContext, goal) -> str:  # type: ignore[no-untyped-def]
    return "x"


def plain(ctx: WorkflowContext, goal: str) -> str:
    return goal


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (no_context, "takes the context and the goal"),
        (untyped, "does not say the types"),
        (plain, "plain is not async"),
    ],
)
def test_a_function_that_is_no_workflow_is_refused_where_it_is_written(function: Any, text: str) -> None:
    with pytest.raises(WorkflowInvalidError, match=text):
        workflow(function)


async def test_a_step_of_a_long_workflow_costs_no_more_than_one_of_a_short() -> None:
    """The function stays where it is between two steps: its code is executed once."""
    executed = 0

    @workflow
    async def count(ctx: WorkflowContext, goal: str) -> str:
        nonlocal executed
        for _ in range(100):
            executed += 1
            await ctx.call(price, item="tea")
        return "done"

    await result_of(count)
    assert executed == 100
