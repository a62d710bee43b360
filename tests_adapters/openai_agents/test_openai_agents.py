"""What is openai-agents' own: handoffs, typed output, guardrails, tools that end a run, approvals, what is refused."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    ModelSettings,
    RunContextWrapper,
    ToolGuardrailFunctionOutput,
    ToolsToFinalOutputResult,
    WebSearchTool,
    function_tool,
    handoff,
    input_guardrail,
    output_guardrail,
    tool_input_guardrail,
)
from agents.extensions import handoff_filters

from harborage import FinishReason, Identity, RunContext, Runtime, SideEffect, tool
from harborage.events import EventType
from harborage.llm import Role
from harborage.planner.adapters import AdapterUnsupportedError, adapt_openai_agents
from harborage.testing.clock import settle
from harborage.testing.conformance.adapters import ScriptedModel, texts_of
from harborage.testing.llm import calls_tools, says

pytestmark = pytest.mark.anyio

ME = Identity("tenant", "user", "session")


@dataclass
class Sum:
    """A typed answer."""

    total: int


@function_tool
def note(word: str) -> str:
    """Take a note."""
    return f"noted {word}"


@function_tool
def broken() -> str:
    """Break."""
    raise LookupError("no ink left")


async def outcome(adapted: Any, **parts: Any) -> tuple[Any, list[bytes]]:
    """How a run of an adapted agent finished, and its record."""
    tools = [*adapted.tools, *parts.pop("tools", ())]
    async with Runtime(planner=adapted.planner, tools=tools, approvals=adapted.approvals, **parts) as runtime:
        run = await runtime.start("go", who=ME)
        return await run.finished(), await run.history()


async def test_typed_output_is_the_payload(brain_model: Any) -> None:
    """The output type is asked for by the framework, and its value is the finish, as JSON values."""
    agent = Agent(name="a", model=brain_model(ScriptedModel([says('{"response":{"total":3}}')])), output_type=Sum)
    finish, _ = await outcome(adapt_openai_agents(agent))
    assert (finish.reason, finish.payload) == (FinishReason.GOAL, {"total": 3})


async def test_a_handoff_is_a_step(brain_model: Any) -> None:
    """Handing over is a tool call in the record; from the next step on the other agent's model and tools decide."""
    clerk_brain = ScriptedModel([says("never"), calls_tools(("note", {"word": "hi"})), says("the clerk is done")])
    clerk = Agent(name="clerk", model=brain_model(clerk_brain), instructions="you are the clerk", tools=[note])
    desk_brain = ScriptedModel([calls_tools(("transfer_to_clerk", {}))])
    desk = Agent(name="desk", model=brain_model(desk_brain), handoffs=[clerk])
    finish, history = await outcome(adapt_openai_agents(desk))
    assert (finish.payload, finish.metadata["agent"]) == ("the clerk is done", "clerk")
    assert any(b'"name":"tool.transfer_to_clerk"' in entry for entry in history)
    assert [list(seen.tools) for seen in desk_brain.requests] == [["transfer_to_clerk", "artifact_fetch"]]
    assert [(list(seen.tools), seen.system) for seen in clerk_brain.requests] == [
        (["note", "artifact_fetch"], "you are the clerk")
    ] * 2


async def test_agents_that_hand_over_to_each_other(brain_model: Any) -> None:
    """Agents may refer to each other in a circle, a handoff may take arguments, and the last one counts."""
    there = Agent(name="there", model=brain_model(ScriptedModel([says(""), calls_tools(("transfer_to_here", {}))])))
    here_brain = ScriptedModel([calls_tools(("go_there", {"total": 4})), says(""), says("back here")])
    here = Agent(name="here", model=brain_model(here_brain))
    given: list[int] = []

    def moved(ctx: RunContextWrapper[Any], sum: Sum) -> None:
        given.append(sum.total)

    here.handoffs = [handoff(there, tool_name_override="go_there", on_handoff=moved, input_type=Sum)]
    there.handoffs = [here]
    finish, _ = await outcome(adapt_openai_agents(here))
    assert (finish.payload, finish.metadata["agent"], given) == ("back here", "here", [4])


async def test_of_two_handoffs_the_first_counts(brain_model: Any) -> None:
    """Like in the framework, whoever was named first takes over."""
    first = Agent(name="first", model=brain_model(ScriptedModel([says(""), says("mine")])))
    second = Agent(name="second", model=brain_model(ScriptedModel([])))
    brain = ScriptedModel([calls_tools(("transfer_to_first", {}), ("transfer_to_second", {}))])
    desk = Agent(name="desk", model=brain_model(brain), handoffs=[first, second])
    finish, _ = await outcome(adapt_openai_agents(desk))
    assert finish.payload == "mine"


async def test_a_listener_that_fails_leaves_no_turn_behind(brain_model: Any) -> None:
    """The framework streams from a task of its own; it is over when the step is."""
    before = asyncio.all_tasks()

    def deaf(delta: str, done: bool, kind: str) -> None:
        if delta:
            raise LookupError("nobody listens")

    planner = adapt_openai_agents(Agent(name="a", model=brain_model(ScriptedModel([says("a long answer")])))).planner
    with pytest.raises(LookupError):
        await planner.next(RunContext(quadruple=ME.with_run("run"), goal="go", on_chunk=deaf))
    await settle()
    assert asyncio.all_tasks() - before == set()


async def test_a_failed_handoff_leads_nowhere(brain_model: Any) -> None:
    """A handoff that was refused or failed leaves the decision where it was."""

    def refuse(ctx: RunContextWrapper[Any]) -> None:
        raise LookupError("nobody there")

    clerk = Agent(name="clerk", model=brain_model(ScriptedModel([])))
    brain = ScriptedModel([calls_tools(("transfer_to_clerk", {})), says("then I do it")])
    desk = Agent(name="desk", model=brain_model(brain), handoffs=[handoff(clerk, on_handoff=refuse)])
    finish, _ = await outcome(adapt_openai_agents(desk))
    assert (finish.payload, finish.metadata["agent"]) == ("then I do it", "desk")


async def test_a_tools_failure_is_a_failure(brain_model: Any) -> None:
    """The framework's default text for errors does not pass for a result; a text the author chose does."""

    def apology(ctx: Any, error: Exception) -> str:
        return "sorry, later"

    @function_tool(failure_error_function=apology)
    def shy() -> str:
        """Fail politely."""
        raise LookupError("hidden")

    brain = ScriptedModel([calls_tools(("broken", {}), ("shy", {})), says("ok")])
    agent = Agent(name="a", model=brain_model(brain), tools=[broken, shy])
    await outcome(adapt_openai_agents(agent))
    loud, polite = texts_of(brain.requests[1].messages, Role.TOOL)
    assert "error" in loud
    assert "no ink left" in loud
    assert polite == "sorry, later"


@pytest.mark.parametrize("behavior", ["stop_on_first_tool", {"stop_at_tool_names": ["note"]}])
async def test_a_tool_may_end_the_run(brain_model: Any, behavior: Any) -> None:
    """A result that the agent takes as its answer ends the run without another turn."""
    brain = ScriptedModel([calls_tools(("note", {"word": "x"}))])
    agent = Agent(name="a", model=brain_model(brain), tools=[note], tool_use_behavior=behavior)
    finish, _ = await outcome(adapt_openai_agents(agent))
    assert (finish.payload, len(brain.requests)) == ("noted x", 1)


async def test_a_failed_tool_does_not_end_the_run(brain_model: Any) -> None:
    """What failed is no answer."""
    brain = ScriptedModel([calls_tools(("broken", {})), says("I tried")])
    agent = Agent(name="a", model=brain_model(brain), tools=[broken], tool_use_behavior="stop_on_first_tool")
    finish, _ = await outcome(adapt_openai_agents(agent))
    assert finish.payload == "I tried"


@pytest.mark.parametrize(("resets", "choices"), [(True, ["required", None]), (False, ["required", "required"])])
async def test_a_forced_choice_counts_once(brain_model: Any, resets: bool, choices: list[Any]) -> None:
    """A tool choice is forgotten after the first call where the agent says so, although steps are apart."""
    model = brain_model(ScriptedModel([calls_tools(("note", {"word": "x"})), says("ok")]))
    agent = Agent(
        name="a",
        model=model,
        tools=[note],
        model_settings=ModelSettings(tool_choice="required"),
        reset_tool_choice=resets,
    )
    await outcome(adapt_openai_agents(agent))
    assert [settings.tool_choice for settings in model.settings] == choices


@pytest.mark.parametrize("side", ["input", "output"])
async def test_a_guardrails_alarm_ends_the_run(brain_model: Any, side: str) -> None:
    """An alarm is an outcome that names the guardrail; input is looked at once, before the first turn."""
    asked: list[int] = []

    def look(ctx: Any, agent: Any, value: Any) -> GuardrailFunctionOutput:
        asked.append(1)
        return GuardrailFunctionOutput(
            output_info=None, tripwire_triggered=side == "output" or value[0]["content"] != "go"
        )

    brain = ScriptedModel([calls_tools(("note", {"word": "x"})), says("ok")])
    agent = Agent(name="a", model=brain_model(brain), tools=[note])
    if side == "input":
        agent.input_guardrails = [input_guardrail(name="watch", run_in_parallel=False)(look)]
    else:
        agent.output_guardrails = [output_guardrail(name="watch")(look)]
    finish, _ = await outcome(adapt_openai_agents(agent))
    if side == "input":
        assert (finish.payload, asked) == ("ok", [1])
        return
    assert (finish.reason, finish.metadata["guardrail"]) == (FinishReason.CONSTRAINTS_CONFLICT, "watch")


async def test_a_tool_asks_for_approval_by_its_arguments(brain_model: Any) -> None:
    """The tool's own question is the approval policy: it is asked with the arguments and the run's context."""
    asked: list[Any] = []

    async def is_large(ctx: RunContextWrapper[Any], args: dict[str, Any], call_id: str) -> bool:
        asked.append((ctx.context, args))
        return args["sum"] > 10

    @function_tool(needs_approval=is_large)
    def pay(sum: int) -> str:
        """Pay."""
        return f"paid {sum}"

    brain = ScriptedModel([calls_tools(("pay", {"sum": 5})), calls_tools(("pay", {"sum": 50})), says("done")])
    adapted = adapt_openai_agents(
        Agent(name="a", model=brain_model(brain), tools=[pay]), context_for=lambda who: who.user_id
    )
    async with Runtime(planner=adapted.planner, tools=adapted.tools, approvals=adapted.approvals) as runtime:
        run = await runtime.start("pay", who=ME)
        async for event in run.events():
            if event.type == EventType.PAUSE_REQUESTED:
                await run.reject("too much", token=(await run.waiting())[0].token)
    small, large = texts_of(brain.requests[2].messages, Role.TOOL)
    assert small == "paid 5"
    assert "too much" in large
    assert asked == [("user", {"sum": 5}), ("user", {"sum": 50})]


async def test_the_run_decides_what_the_model_may_call(brain_model: Any) -> None:
    """Other tools of the runtime are declared too, and the agent's own only where this run may call them."""

    @tool(effects=SideEffect.PURE)
    def extra(word: str) -> str:
        """Shout."""
        return word.upper()

    brain = ScriptedModel([calls_tools(("extra", {"word": "hi"})), says("ok")])
    adapted = adapt_openai_agents(
        Agent(name="a", model=brain_model(brain), tools=[note]), tool_options={"note": {"auth_scopes": ("vault",)}}
    )
    await outcome(adapted, tools=[extra])
    assert list(brain.requests[0].tools) == ["artifact_fetch", "extra"]
    assert texts_of(brain.requests[1].messages, Role.TOOL) == ["HI"]


@tool_input_guardrail
def check(data: Any) -> ToolGuardrailFunctionOutput:
    """Let everything pass."""
    return ToolGuardrailFunctionOutput.allow()


def decide(ctx: Any, results: Any) -> ToolsToFinalOutputResult:
    """Never the end."""
    return ToolsToFinalOutputResult(is_final_output=False)


def guarded() -> Any:
    """A tool with a guardrail of its own."""
    guarded_tool = function_tool(lambda word: word, name_override="guarded", strict_mode=False)
    guarded_tool.tool_input_guardrails = [check]
    return guarded_tool


OTHER = Agent(name="other")
NAMESAKE = function_tool(lambda: "x", name_override="note", strict_mode=False)
FILTERED = handoff(OTHER, input_filter=handoff_filters.remove_all_tools)


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        ({"tools": [WebSearchTool()]}, "web_search"),
        ({"tools": [guarded()]}, "'guarded'"),
        ({"mcp_servers": [object()]}, "MCP"),
        ({"tool_use_behavior": decide}, "tool_use_behavior"),
        ({"handoffs": [FILTERED]}, "transfer_to_other"),
        ({"tools": [note], "handoffs": [Agent(name="b", tools=[NAMESAKE])]}, "'note'"),
    ],
)
def test_what_cannot_be_cut_is_refused(parts: dict[str, Any], what: str) -> None:
    """A part that would act inside the turn, or is not known before it, is refused by name."""
    with pytest.raises(AdapterUnsupportedError, match=what):
        adapt_openai_agents(Agent(name="a", **parts))


def test_an_approval_inside_an_agent_that_is_a_tool_is_refused() -> None:
    """Nobody would see a question that is asked inside a nested run."""

    @function_tool(needs_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    inner = Agent(name="inner", tools=[pay])
    with pytest.raises(AdapterUnsupportedError, match="pay"):
        adapt_openai_agents(Agent(name="a", tools=[inner.as_tool("ask", "Ask.")]))
