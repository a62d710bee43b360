"""What is pydantic-ai's own: typed output, retries of it, dependencies, prompts, approvals, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, CallDeferred, ModelRetry, RunContext, ToolReturn, UsageLimitExceeded, UsageLimits
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.toolsets import ExternalToolset, FunctionToolset

from harborage import FinishReason, Identity, Runtime, tool
from harborage.events import EventType
from harborage.planner import InvalidConfigError
from harborage.planner.adapters import AdapterUnsupportedError, adapt_pydantic_ai
from harborage.runtime.durable.engine import RunFailedError
from harborage.runtime.effects.options import RuntimeOptions
from harborage.testing.conformance.adapters import ScriptedModel
from harborage.testing.llm import calls_tools, says
from harborage.tools import SideEffect

pytestmark = pytest.mark.anyio

ME = Identity("tenant", "user", "session")


class Sum(BaseModel):
    """A typed answer."""

    total: int


def scripted(*answers: list[Any], seen: list[Any] | None = None) -> FunctionModel:
    """A model that answers in order and does not stream; `seen` collects its requests."""
    rest = list(answers)

    def answer(messages: Any, info: Any) -> ModelResponse:
        if seen is not None:
            seen.append((messages, info))
        return ModelResponse(parts=rest.pop(0))

    return FunctionModel(answer)


async def outcome(adapted: Any, goal: str = "go", **parts: Any) -> tuple[Any, list[bytes]]:
    """How a run of an adapted agent finished, and its record."""
    tools = [*adapted.tools, *parts.pop("tools", ())]
    async with Runtime(planner=adapted.planner, tools=tools, approvals=adapted.approvals, **parts) as runtime:
        run = await runtime.start(goal, who=ME)
        return await run.finished(), await run.history()


async def test_typed_output_is_the_payload() -> None:
    """The output tool is no tool of the run: its validated output is the finish, as JSON values."""
    agent = Agent(scripted([ToolCallPart("final_result", {"total": 3})]), output_type=Sum)
    finish, history = await outcome(adapt_pydantic_ai(agent))
    assert (finish.reason, finish.payload) == (FinishReason.GOAL, {"total": 3})
    assert not any(b'"name":"tool.' in entry for entry in history)


async def test_output_that_will_not_do_is_asked_for_again_within_the_step() -> None:
    """The framework's own retry of an output is part of the one decision; its first attempt is void for listeners."""
    seen: list[Any] = []
    agent = Agent(
        scripted(
            [ToolCallPart("final_result", {"total": "x"})], [ToolCallPart("final_result", {"total": 3})], seen=seen
        ),
        output_type=Sum,
    )
    finish, history = await outcome(adapt_pydantic_ai(agent))
    assert finish.payload == {"total": 3}
    assert len(seen) == 2
    assert sum(b'"name":"plan"' in entry for entry in history) == 1


async def test_what_was_streamed_of_a_void_answer_is_taken_back(model_of: Any) -> None:
    """When the model is asked again within a step, whoever listened is told that what came so far is void."""
    brain = ScriptedModel([says("not a number"), calls_tools(("final_result", {"total": 3}))])
    adapted = adapt_pydantic_ai(Agent(model_of(brain), output_type=Sum))
    async with Runtime(planner=adapted.planner) as runtime:
        run = await runtime.start("count", who=ME)
        told = [event.payload async for event in run.events() if event.type == EventType.LLM_COMPLETION_CHUNK]
    kinds = [(one.kind, one.done) for one in told]
    assert kinds[-2:] == [("reset", False), ("content", True)]
    assert "".join(one.delta for one in told) == "not a number"


@pytest.mark.parametrize(("strategy", "calls"), [("early", []), ("exhaustive", ["note"])])
async def test_an_output_beside_a_call(strategy: Any, calls: list[str]) -> None:
    """With `early` a good output ends the run and the call beside it is not made; else the calls come first."""
    made: list[str] = []
    output = ToolCallPart("final_result", {"total": 3})
    agent = Agent(scripted([ToolCallPart("note", {}), output], [output]), output_type=Sum, end_strategy=strategy)

    @agent.tool_plain
    def note() -> str:
        """Take a note."""
        made.append("note")
        return "noted"

    finish, _ = await outcome(adapt_pydantic_ai(agent))
    assert (finish.payload, made) == ({"total": 3}, calls)


async def test_a_bad_output_beside_a_call_makes_the_call() -> None:
    """Output that fails validation does not keep the call that came with it from being made."""
    first = [ToolCallPart("note", {}), ToolCallPart("final_result", {"total": "x"})]
    agent = Agent(scripted(first, [ToolCallPart("final_result", {"total": 1})]), output_type=Sum)
    made: list[str] = []

    @agent.tool_plain
    def note() -> str:
        """Take a note."""
        made.append("note")
        return "noted"

    await outcome(adapt_pydantic_ai(agent))
    assert made == ["note"]


async def test_prompts_and_dependencies_are_the_agents_own() -> None:
    """Static and dynamic prompts are sent at every step, and functions get the dependencies of their run."""
    seen: list[Any] = []
    model = scripted([ToolCallPart("whoami", {})], [TextPart("done")], seen=seen)
    agent = Agent(model, deps_type=str, system_prompt="be kind", instructions="be brief")

    @agent.system_prompt
    def greeting(ctx: RunContext[str]) -> str:
        return f"you serve {ctx.deps}"

    @agent.tool
    async def whoami(ctx: RunContext[str]) -> str:
        """Say who asks."""
        return f"{ctx.deps} in {ctx.run_id} for {ctx.tool_name}"

    adapted = adapt_pydantic_ai(agent, deps_for=lambda who: f"{who.user_id}@{who.tenant_id}")
    await outcome(adapted)
    for messages, info in seen:
        system = [part.content for part in messages[0].parts if part.part_kind == "system-prompt"]
        assert (system, info.instructions) == (["be kind", "you serve user@tenant"], "be brief")
    assert seen[1][0][-1].parts[0].content.startswith("user@tenant in 01")


async def test_a_tool_that_asks_for_approval_is_held() -> None:
    """Such a tool waits for a person once the runtime has its policy; without the policy it does not run at all."""
    paid: list[int] = []

    def built() -> Any:
        agent = Agent(scripted([ToolCallPart("pay", {"sum": 5})], [TextPart("done")]))

        @agent.tool_plain(requires_approval=True)
        def pay(sum: int) -> str:
            """Pay."""
            paid.append(sum)
            return "paid"

        return adapt_pydantic_ai(agent)

    forgotten = built()
    async with Runtime(planner=forgotten.planner, tools=forgotten.tools) as runtime:
        await (await runtime.start("pay", who=ME)).finished()
    assert paid == []
    adapted = built()
    assert set(adapted.approvals) == {"pay"}
    async with Runtime(planner=adapted.planner, tools=adapted.tools, approvals=adapted.approvals) as runtime:
        run = await runtime.start("pay", who=ME)
        async for event in run.events():
            if event.type == EventType.PAUSE_REQUESTED:
                assert paid == []
                await run.approve((await run.waiting())[0].token)
    assert paid == [5]


async def test_a_whole_toolset_that_asks_for_approval_is_held() -> None:
    """Approval that a wrapped toolset asks for counts for all its tools, under the names the model knows."""
    toolset = FunctionToolset()

    @toolset.tool_plain
    def pay() -> str:
        """Pay."""
        return "paid"

    agent = Agent(TestModel(), toolsets=[toolset.prefixed("bank").approval_required()])
    adapted = adapt_pydantic_ai(agent)
    assert [one.tool.name for one in adapted.tools] == ["bank_pay"]
    assert set(adapted.approvals) == {"bank_pay"}


@pytest.mark.parametrize(
    ("raised", "told"),
    [(ModelRetry("try a smaller one"), "try a smaller one"), (CallDeferred(), "left to another system")],
)
async def test_what_a_tool_asks_of_its_framework_is_told(raised: Exception, told: str) -> None:
    """A retry that a tool asks for goes to the model at once; what only the framework can do is an error."""
    seen: list[Any] = []
    agent = Agent(scripted([ToolCallPart("odd", {})], [TextPart("ok")], seen=seen))
    calls: list[int] = []

    @agent.tool_plain
    def odd() -> str:
        """Raise."""
        calls.append(1)
        raise raised

    await outcome(adapt_pydantic_ai(agent))
    assert told in seen[1][0][-1].parts[0].content
    assert calls == [1]


async def test_rich_results_become_json() -> None:
    """A model, a dataclass or a `ToolReturn` is recorded as JSON values, with what the framework shows beside it."""
    agent = Agent(scripted([ToolCallPart("rich", {})], [TextPart("ok")]))

    @agent.tool_plain
    def rich() -> ToolReturn:
        """Give more than one thing."""
        return ToolReturn(Sum(total=1), content="look", metadata={"for": "us"})

    _, history = await outcome(adapt_pydantic_ai(agent))
    assert any(b'{"result":{"total":1},"content":"look"}' in entry for entry in history)


async def test_the_run_decides_what_the_model_may_call() -> None:
    """Other tools of the runtime are declared too, and the agent's own only where this run may call them."""

    @tool(effects=SideEffect.PURE)
    def extra(word: str) -> str:
        """Shout."""
        return word.upper()

    seen: list[Any] = []
    agent = Agent(scripted([ToolCallPart("extra", {"word": "hi"})], [TextPart("ok")], seen=seen))

    @agent.tool_plain
    def secret() -> str:
        """Not for everybody."""
        return ""

    adapted = adapt_pydantic_ai(agent, tool_options={"secret": {"auth_scopes": ("vault",)}})
    finish, _ = await outcome(adapted, tools=[extra], options=RuntimeOptions())
    assert finish.payload == "ok"
    assert [one.name for one in seen[0][1].function_tools] == ["artifact_fetch", "extra"]
    assert seen[1][0][-1].parts[0].content == "HI"


async def test_usage_limits_see_the_steps_of_the_run() -> None:
    """A request limit counts the run's turns, not those of one step."""
    agent = Agent(scripted(*[[ToolCallPart("go", {})]] * 5))

    @agent.tool_plain
    def go() -> str:
        """Go on."""
        return "on"

    with pytest.raises(RunFailedError) as caught:
        await outcome(adapt_pydantic_ai(agent, usage_limits=UsageLimits(request_limit=2)))
    assert isinstance(caught.value.__cause__.__cause__, UsageLimitExceeded)


async def test_usage_is_reported() -> None:
    """Each turn tells what it took."""
    adapted = adapt_pydantic_ai(Agent(TestModel(custom_output_text="hi", call_tools=[])))
    async with Runtime(planner=adapted.planner) as runtime:
        run = await runtime.start("go", who=ME)
        told = [event.payload async for event in run.events() if event.type == EventType.LLM_COST_RECORDED]
    assert [one.model for one in told] == ["test"]
    assert told[0].usage.prompt_tokens > 0


def external() -> Agent:
    """An agent with a toolset that is run elsewhere."""
    return Agent(TestModel(), toolsets=[ExternalToolset([])])


def dynamic() -> Agent:
    """An agent whose toolset is made when a run begins."""
    agent = Agent(TestModel())
    agent.toolset(lambda ctx: FunctionToolset())
    return agent


def native() -> Agent:
    """An agent with a tool of the provider's."""
    return Agent(TestModel(), capabilities=[NativeTool(WebSearchTool())])


def late() -> Agent:
    """An agent with a tool that loads late."""
    agent = Agent(TestModel())

    @agent.tool_plain(defer_loading=True)
    def rare() -> str:
        """Rarely used."""
        return ""

    return agent


@pytest.mark.parametrize(
    ("build", "what"),
    [(external, "toolset"), (dynamic, "toolset"), (native, "'web_search'"), (late, "'rare'")],
)
def test_what_cannot_be_cut_is_refused(build: Any, what: str) -> None:
    """A part that would act inside the turn, or is not known before it, is refused by name."""
    with pytest.raises(AdapterUnsupportedError, match=what):
        adapt_pydantic_ai(build())


def test_options_for_an_unknown_tool_are_refused() -> None:
    """A slip in a tool's name does not leave the tool without what was said about it."""
    with pytest.raises(InvalidConfigError, match="payy"):
        adapt_pydantic_ai(Agent(TestModel()), tool_options={"payy": {}})
