"""What a tool may do with its context while it is called: ask a person, run an agent, show its progress."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

import pytest

from harborage import (
    Agent,
    CallContext,
    FinishReason,
    Identity,
    Limits,
    QuestionExpiredError,
    QuestionRejectedError,
    RunFailedError,
    Runtime,
    ToolError,
    ToolFailedError,
    tool,
)
from harborage.events import Event, EventType, Filter, ToolProgressPayload
from harborage.runtime.steering import PayloadInvalidError
from harborage.testing import call, script
from harborage.testing.clock import FakeClock, settle
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")


class Size(StrEnum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Notes:
    text: str


notes = Agent("notes", output=Notes, model=script(Notes("tides"), by_text={"fail": [call("nothing"), "no"]}))
CALLS: list[str] = []


@tool(effects="read", timeout=5)
async def order(ctx: CallContext, item: str) -> str:
    """Order an item."""
    CALLS.append(item)
    first = await ctx.ask(f"Which size of {item}?", Size)
    second = await ctx.ask("How many?", int, default=1, expires=timedelta(days=2))
    return f"{second} {first.name} {item}"


@tool(effects="read")
async def careful(ctx: CallContext, way: str) -> str:
    """Ask, and say how it went."""
    try:
        if way == "bool":
            return str(await ctx.ask("Go on?", bool))
        return await ctx.ask("Your name?", str, expires=timedelta(hours=1))
    except (QuestionExpiredError, QuestionRejectedError) as error:
        return f"{type(error).__name__}: {error}"


@tool(effects="read", timeout=5)
async def research(ctx: CallContext, question: str) -> int:
    """Find something out."""
    return len((await ctx.run(notes, question)).text)


@tool(effects="read")
async def survive(ctx: CallContext, question: str) -> str:
    """Find something out, if it can be."""
    try:
        return (await ctx.run(notes, question)).text
    except ToolFailedError as error:
        return f"failed: {error.tool}"


@tool(effects="read")
async def walk(ctx: CallContext, steps: int) -> str:
    """Say how far it is."""
    for step in range(steps):
        ctx.progress(f"page {step + 1}", done=step + 1, total=steps)
    return "there"


async def test_a_tool_asks_and_gets_checked_answers() -> None:
    """Each answer is a value of the type that was asked for; one of another form is refused where it is given."""
    clock = FakeClock()
    agent = Agent("shop", tools=[order], model=script(call("order", item="tea"), "Ordered."))
    async with Runtime([agent], clock=clock) as runtime:
        run = await runtime.start(agent, "tea", who=ME)
        pending = await run.wait_pending()
        assert (pending.question, pending.tool) == ("Which size of tea?", "")
        with pytest.raises(PayloadInvalidError):
            await run.answer("medium")
        clock.advance(60)  # the time limit of the tool does not count
        await run.answer("l")
        while (await run.wait_pending()).question != "How many?":
            await settle()
        await run.answer(3)
        result = await run.result()
    assert (result.output, result.messages[2].text) == ("Ordered.", "3 LARGE tea")


@each_row("way, said", [("bool", "False"), ("name", "QuestionRejectedError: rejected: Your name? (not mine)")])
async def test_a_question_may_be_refused(way: str, said: str) -> None:
    """A yes-or-no question is answered False by that; the tool may catch any other refusal."""
    agent = Agent("shop", tools=[careful], model=script(call("careful", way=way), "done"))
    async with Runtime([agent]) as runtime:
        run = await runtime.start(agent, "go", who=ME)
        await (await run.wait_pending()).reject("not mine")
        assert (await run.result()).messages[2].text == said


async def test_a_question_that_nobody_answers_expires() -> None:
    """The default of the question is the answer then, or the tool is told."""
    clock = FakeClock()
    agent = Agent("shop", tools=[careful], model=script(call("careful", way="name"), "done"))
    async with Runtime([agent], clock=clock) as runtime:
        run = await runtime.start(agent, "go", who=ME)
        await run.wait_pending()
        clock.advance(2 * 3600)
        result = await run.result()
    assert result.messages[2].text == "QuestionExpiredError: nobody answered in time: Your name?"


async def test_a_cancelled_run_does_not_wait_for_the_question_of_a_tool() -> None:
    """Nor does the question wait for an answer any longer."""
    agent = Agent("shop", tools=[order], model=script(call("order", item="tea"), "Ordered."))
    async with Runtime([agent]) as runtime:
        run = await runtime.start(agent, "tea", who=ME)
        await run.wait_pending()
        await run.cancel()
        finish = await run.finished()
        assert finish.reason == FinishReason.CANCELLED
        assert not list(await runtime.pending(who=ME))


async def test_a_tool_that_waited_is_called_again_by_the_next_process(tmp_path: Path) -> None:
    """It finds the answers that were given, and asks nothing twice."""
    CALLS.clear()
    url = f"sqlite:{tmp_path / 'runs.db'}"
    agent = Agent("shop", tools=[order], model=script(call("order", item="tea"), "Ordered."))
    async with Runtime([agent], storage=url) as runtime:
        run = await runtime.start(agent, "tea", who=ME)
        await (await run.wait_pending()).answer("s")
        while (await run.wait_pending()).question != "How many?":
            await settle()
    async with Runtime([agent], storage=url) as runtime:
        again = runtime.get(run.id, who=ME)
        pending = await again.wait_pending()
        assert pending.question == "How many?"
        await pending.answer(2)
        assert (await again.result()).messages[2].text == "2 SMALL tea"
    assert CALLS == ["tea", "tea"]


async def test_a_tool_runs_an_agent_as_a_child() -> None:
    """Its output has its type, and it counts in the usage of the tree; the model of the caller cannot call it."""
    model = script(call("research", question="tides?"), "Five.")
    agent = Agent("writer", tools=[research], model=model)
    async with Runtime([agent]) as runtime:
        run = await runtime.start(agent, "go", who=ME)
        result = await run.result()
        assert (await run.replay()).is_same
    assert (result.messages[2].text, result.usage.model_calls) == ("5", 3)
    assert "notes" not in [one.name for one in model.requests[0].tools]


async def test_a_child_of_a_tool_that_fails_raises_in_the_tool() -> None:
    """The tool may catch it; otherwise it is the error of the call."""
    failing = notes.replace(limits=Limits(steps=1), model=script(call("nothing"), call("nothing")))
    calls = {"survive": survive, "research": research}

    @tool(effects="read")
    async def study(ctx: CallContext, question: str) -> str:
        """Find out."""
        try:
            return (await ctx.run(failing, question)).text
        except ToolFailedError as error:
            return f"failed: {error.tool}"

    agent = Agent("writer", tools=[study, *calls.values()], model=script(call("study", question="x"), "No."))
    async with Runtime([agent]) as runtime:
        result = await (await runtime.start(agent, "go", who=ME)).result()
    assert result.messages[2].text == "failed: notes"


async def test_progress_is_published_at_most_ten_times_a_second_and_the_last_one_always() -> None:
    """With the step and the tool that it is of."""
    clock = FakeClock()
    agent = Agent("walker", tools=[walk], model=script(call("walk", steps=40), "There."))
    async with Runtime([agent], clock=clock) as runtime:
        events = runtime.bus.subscribe(Filter.of(ME, (EventType.TOOL_PROGRESS, EventType.TASK_COMPLETED)))
        run = await runtime.start(agent, "go", who=ME)
        await run.result()
        found: list[Event] = []
        async with asyncio.timeout(20):
            async for event in events:
                if event.type == EventType.TASK_COMPLETED:
                    break
                found.append(event)
        payloads = [one.payload for one in found if isinstance(one.payload, ToolProgressPayload)]
        assert [(one.message, one.done, one.total) for one in payloads] == [("page 1", 1, 40), ("page 40", 40, 40)]
        assert [(one.step, one.tool_name) for one in payloads] == [(1, "walk")] * 2


async def test_outside_a_run_a_context_offers_neither() -> None:
    """The text says so; progress is shown to nobody."""
    context = CallContext(ME.with_run("r"))
    context.progress("on my way")
    with pytest.raises(ToolError, match=r"^ctx.ask: this call is made outside a run"):
        await context.ask("Which size?", Size)
    with pytest.raises(ToolError, match=r"^ctx.run: this call is made outside a run"):
        await context.run(notes, "go")


@each_row(
    "wrong, text",
    [
        (lambda ctx: ctx.ask("", str), "ctx.ask=''"),
        (lambda ctx: ctx.ask("Go?", object()), "no type"),
        (lambda ctx: ctx.ask("Go?", bool, expires=3), "expires=3"),
        (lambda ctx: ctx.run("notes", "go"), "ctx.run='notes'"),
        (lambda ctx: ctx.run(notes, ""), "goal=''"),
    ],
)
async def test_what_cannot_be_asked_is_said_to_the_model(wrong: object, text: str) -> None:
    """By name, and with the fix; the run goes on."""

    @tool(effects="read")
    async def err(ctx: CallContext) -> str:
        """Ask wrongly."""
        await wrong(ctx)  # type: ignore[operator]
        return "asked"

    agent = Agent("wrong", tools=[err], model=script(call("err"), "done"))
    async with Runtime([agent]) as runtime:
        result = await (await runtime.start(agent, "go", who=ME)).result()
    assert text in result.messages[2].text or "object" in result.messages[2].text


async def test_a_run_that_fails_says_so(tmp_path: Path) -> None:
    """A tool's own questions are no reason to lose the reason of a run."""
    agent = Agent("shop", tools=[careful], model=script(call("careful", way="bool"), RuntimeError("gone")))
    async with Runtime([agent], storage=f"sqlite:{tmp_path / 'runs.db'}") as runtime:
        run = await runtime.start(agent, "go", who=ME)
        await (await run.wait_pending()).approve()
        with pytest.raises(RunFailedError):
            await run.result()
