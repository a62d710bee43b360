"""A runtime over a model: who decides, what is opened and closed, and how histories are kept within its window."""

from __future__ import annotations

from typing import Any

import pytest

from harborage.artifacts import MemoryArtifactStore
from harborage.errors import InvalidOptionError
from harborage.events import LLMCostRecordedPayload, MemoryEventBus, PatternRedactor
from harborage.identity import Identity
from harborage.llm import (
    CompleteRequest,
    CompleteResponse,
    ConfigSnapshot,
    Cost,
    Deps,
    LLMClient,
    ModelProfile,
    ToolsUnsupportedError,
    UnknownModelStringError,
    Usage,
)
from harborage.llm.chain.accounting import Metered
from harborage.planner import (
    Finish,
    FinishReason,
    InvalidConfigError,
    OperatorPlannerConfig,
    OperatorPlanningHints,
    PlannerConfig,
)
from harborage.planner.finish import FinishPlanner
from harborage.planner.react import ReActPlanner
from harborage.runtime.durable.engine import RuntimeClosedError
from harborage.runtime.effects.model import Reasoner, choose_reasoner, open_reasoner
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.host import Runtime
from harborage.runtime.run import Run
from harborage.store import RunQuery
from harborage.testing.events import EventRecorder
from harborage.testing.llm import ScriptedLLM, calls_tools, says, user_text
from harborage.tools.builtin import artifact_fetch
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
MOCK = ConfigSnapshot(driver="mock", model="m", profiles={"m": ModelProfile(context_window_tokens=1000)})


async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def finish(runtime: Runtime, goal: str = "What is 1 + 2?") -> tuple[Run, Finish]:
    """A run towards the goal, and how it finished."""
    run = await runtime.start(goal, who=ME)
    return run, await run.finished()


async def test_a_model_string_is_enough() -> None:
    """`model="mock:"` opens that model under the reference planner; its answer is the run's."""
    async with Runtime(model="mock:") as runtime:
        run, result = await finish(runtime)
        assert result.reason is FinishReason.GOAL
        assert str(result.payload).startswith("mock:")
        kinds = [event.type async for event in run.events()]
    assert "llm.completion.chunk" in kinds


async def test_an_open_client_is_used_and_stays_open() -> None:
    """A client that was given calls the tools and is its owner's to close."""
    client = ScriptedLLM([calls_tools(("add", {"a": 1, "b": 2})), says("3")])
    async with Runtime(model=client, tools=[add]) as runtime:
        _, result = await finish(runtime)
    assert result.payload == "3"
    assert not client.is_closed
    assert "add" in [declared.name for declared in client.requests[0].tools]


PAID = CompleteResponse(
    "3", usage=Usage(prompt_tokens=20, completion_tokens=10, total_tokens=30), cost=Cost(total_cost=0.25)
)


class Plain:
    """A client that is none of ours; it may report its usage as it likes."""

    name = "plain"

    def __init__(self, answer: CompleteResponse = PAID) -> None:
        self.answer = answer

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        return self.answer

    async def close(self) -> None:
        return None


async def totals(model: Any, **options: Any) -> tuple[int, int, list[str]]:
    """The tokens and micro-dollars in the row of a run over this model, and the models that events of costs name."""
    async with Runtime(model=model, storage="memory:", **options) as runtime:
        run, _ = await finish(runtime)
        told = [event.payload async for event in run.events()]
        (row,) = (await runtime.parts.store.runs(RunQuery(run_ids=(run.id,), limit=1))).rows
    return row.tokens, row.cost, [one.model for one in told if isinstance(one, LLMCostRecordedPayload)]


async def test_what_an_open_client_reports_is_in_the_totals_of_the_run() -> None:
    """Its tokens and its cost, told by one event a call, as for a client that the runtime opened itself."""
    assert await totals(Plain()) == (30, 250_000, ["plain"])
    assert await totals([Plain(), "mock:"]) == (30, 250_000, ["plain"])


async def test_an_open_client_that_reports_nothing_adds_nothing() -> None:
    """Nor does one whose usage or cost cannot be; neither costs the caller the answer."""
    odd = CompleteResponse("3", usage=Usage(prompt_tokens=-1), cost=Cost(total_cost=float("nan")))
    assert await totals(Plain(CompleteResponse("3"))) == (0, 0, [])
    assert await totals(Plain(odd)) == (0, 0, [])
    assert await totals(Plain(CompleteResponse("3", usage=None, cost=None))) == (0, 0, [])  # type: ignore[arg-type]


async def test_a_client_that_is_open_with_parts_of_its_own_is_counted_too() -> None:
    """Its events go to the bus that it was opened with, so the runtime tells its own of each call."""
    bus = MemoryEventBus()
    told = EventRecorder(bus)
    client = Metered(Plain(), ConfigSnapshot(model="m"), Deps(artifacts=MemoryArtifactStore(), bus=bus))
    assert await totals(client) == (30, 250_000, [""])
    assert len(told.payloads(LLMCostRecordedPayload)) == 1


async def test_made_up_answers_are_in_the_totals_without_an_event() -> None:
    """The mock says what a call would take; no event tells of it, because no provider was asked."""
    tokens, cost, told = await totals("mock:")
    assert tokens > 0
    assert cost > 0
    assert told == []


async def test_what_the_runtime_opened_it_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client of a configuration is open inside the runtime and closed behind it."""
    client = ScriptedLLM([says("ok")])

    async def opened(config: ConfigSnapshot, deps: Deps) -> ScriptedLLM:
        assert config is MOCK
        assert deps.bus is not None
        return client

    monkeypatch.setattr("harborage.llm.opening.open_llm", opened)
    async with Runtime(model=MOCK) as runtime:
        assert (await finish(runtime))[1].payload == "ok"
        assert not client.is_closed
    assert client.is_closed


async def test_instructions_and_guidance_reach_the_prompt() -> None:
    """An agent's instructions are in the prompt of every step, before the planner's extra guidance."""
    client = ScriptedLLM([says("ok")])
    config = PlannerConfig(extra_guidance="Second.")
    async with Runtime(model=client, planner=config, instructions="First.") as runtime:
        await finish(runtime)
    system = client.requests[0].messages[0].content.text or ""
    assert system.index("First.") < system.index("Second.")


async def test_the_runtime_limits_the_steps() -> None:
    """The reference planner's own lower limit does not end a run before the one that the runtime was given."""
    script = [calls_tools(("add", {"a": n, "b": 0})) for n in range(15)] + [says("done")] * 2
    async with Runtime(model=ScriptedLLM(script), tools=[add]) as runtime:
        assert (await finish(runtime))[1].payload == "done"
    async with Runtime(model=ScriptedLLM(script), planner=PlannerConfig(max_steps=3), tools=[add]) as runtime:
        _, result = await finish(runtime)
    assert result.reason is FinishReason.NO_PATH
    assert result.metadata is not None
    assert result.metadata["max_steps_exceeded"] is True


async def test_a_run_over_a_model_ends_at_its_step_limit_with_what_it_has() -> None:
    """After its last step the model may only answer; the run has no path, an event says why, and nothing failed."""

    def turn(request: CompleteRequest) -> CompleteResponse:
        return says("so far 1") if request.tool_choice == "none" else calls_tools(("add", {"a": 1, "b": 0}))

    for limits in ({"options": RuntimeOptions(max_steps=4)}, {"planner": PlannerConfig(max_steps=4)}):
        client = ScriptedLLM([turn] * 9)
        async with Runtime(model=client, tools=[add], **limits) as runtime:
            run, result = await finish(runtime)
            kinds = [event.type async for event in run.events()]
            record = await run.history()
            assert (await runtime.replay(record)).is_same
        assert (result.reason, result.payload) == (FinishReason.NO_PATH, "so far 1"), limits
        assert len(client.requests) == 5
        assert kinds.count("planner.max_steps_exceeded") == 1
        assert kinds.index("planner.max_steps_exceeded") < kinds.index("planner.finish")
        assert "planner.error" not in kinds


async def test_a_single_step_is_enough_for_an_answer() -> None:
    """The limit ends only a run that goes on: one whose first answer is final has reached its goal."""
    async with Runtime(model=ScriptedLLM(["hi"]), options=RuntimeOptions(max_steps=1)) as runtime:
        assert (await finish(runtime))[1].reason is FinishReason.GOAL


async def test_a_history_that_outgrows_its_budget_is_summarised_by_the_model() -> None:
    """Over a model no summariser is needed; the next prompt has the summary in place of the steps."""
    summary = '{"goals":[],"facts":["the sum is 3"],"pending":[],"last_output_digest":"","note":""}'

    def spoken(request):
        if request.response_format is not None:
            return says(summary)
        return says("3") if "the sum is 3" in user_text(request) else calls_tools(("add", {"a": 1, "b": 2}))

    client = ScriptedLLM([spoken] * 20)
    async with Runtime(model=client, tools=[add], options=RuntimeOptions(token_budget=40)) as runtime:
        run, result = await finish(runtime)
        kinds = [event.type async for event in run.events()]
    assert result.payload == "3"
    assert "trajectory.compressed" in kinds


@each_row("window, wanted, budget", [(1000, None, 600), (0, None, 0), (1000, 0, 0), (1000, 7, 7)])
def test_the_budget_of_a_history(window: int, wanted: int | None, budget: int) -> None:
    """As wanted, 0 for never; unset it follows the model's window, where one is known."""
    assert Reasoner(planner=FinishPlanner(), window=window).token_budget(wanted) == budget


@each_row(
    "given, message",
    [
        ({}, "needs planner= or model="),
        ({"planner": PlannerConfig()}, "needs planner= or model="),
        ({"planner": FinishPlanner(), "model": "mock:"}, "brings its own model"),
        ({"planner": FinishPlanner(), "instructions": "Be kind."}, "pass them to your own planner"),
    ],
)
def test_a_runtime_takes_a_planner_or_a_model(given: dict, message: str) -> None:
    """Neither, both, or instructions that no planner reads: refused when the runtime is made."""
    with pytest.raises(InvalidOptionError, match=message):
        Runtime(**given)


async def test_tools_for_a_model_that_takes_none_are_refused_at_the_door() -> None:
    """What a profile says is known before money is spent; the error names the model and the setting."""
    profile = ModelProfile(context_window_tokens=1000, supports_tools=False)
    model = ConfigSnapshot(driver="mock", model="m", profiles={"m": profile})
    with pytest.raises(ToolsUnsupportedError, match=r"m takes no tools.*llm\.profiles\['m'\]\.supports_tools"):
        await Runtime(model=model, tools=[add]).__aenter__()


async def test_a_model_that_cannot_be_opened_opens_nothing() -> None:
    """The error is the model's own and names the fix; what was opened before it is closed again."""
    runtime = Runtime(model="nobody:x")
    with pytest.raises(UnknownModelStringError, match="nobody"):
        async with runtime:
            pass
    with pytest.raises(RuntimeClosedError):
        _ = runtime.bus


async def test_a_factory_makes_a_planner_over_the_open_client() -> None:
    """It keeps the model's summaries, its window's budget and its closing; the class of a planner is a factory, too."""
    summary = '{"goals":[],"facts":["the sum is 3"],"pending":[],"last_output_digest":"","note":""}'

    def spoken(request: CompleteRequest) -> CompleteResponse:
        if request.response_format is not None:
            return says(summary)
        return says("3") if "the sum is 3" in user_text(request) else calls_tools(("add", {"a": 1, "b": 2}))

    def own(client: LLMClient) -> ReActPlanner:
        return ReActPlanner(client, system_prompt="You are Bob.", max_steps=99)

    client = ScriptedLLM([spoken] * 20)
    async with Runtime(model=client, planner=own, tools=[add], options=RuntimeOptions(token_budget=40)) as runtime:
        run, result = await finish(runtime)
        kinds = [event.type async for event in run.events()]
        assert (await runtime.replay(await run.history())).is_same
    assert result.payload == "3"
    assert "trajectory.compressed" in kinds
    assert (client.requests[0].messages[0].content.text or "").startswith("You are Bob.")
    async with Runtime(model=ScriptedLLM(["hi"]), planner=ReActPlanner) as runtime:
        assert (await finish(runtime))[1].payload == "hi"
    bus = MemoryEventBus()
    deps = Deps(artifacts=MemoryArtifactStore(), bus=bus)
    reasoner = await open_reasoner(choose_reasoner(own, MOCK, ""), deps, [], None, redactor=PatternRedactor())
    assert (reasoner.window, reasoner.token_budget(None)) == (1000, 600)
    await bus.aclose()


async def test_a_factory_keeps_the_check_for_tools() -> None:
    """A model that takes no tools is refused at the start, for every planner."""
    profile = ModelProfile(context_window_tokens=1000, supports_tools=False)
    model = ConfigSnapshot(driver="mock", model="m", profiles={"m": profile})
    with pytest.raises(ToolsUnsupportedError):
        await Runtime(model=model, planner=ReActPlanner, tools=[add]).__aenter__()


async def test_what_a_factory_makes_is_checked() -> None:
    """What is no planner is refused when the runtime opens, by name."""
    with pytest.raises(InvalidConfigError, match="list is no planner"):
        await Runtime(model=ScriptedLLM(), planner=lambda client: []).__aenter__()


async def test_planner_options_are_checked_before_a_run() -> None:
    """A misspelt mode or a negative count is refused where the runtime is made, an unknown option where it opens."""
    for config in (
        PlannerConfig(reasoning_replay="txet"),
        PlannerConfig(max_steps=-5),
        PlannerConfig(max_tool_examples_per_tool=-1),
        OperatorPlannerConfig(token_budget=-1),
        OperatorPlannerConfig(driver="raect"),
    ):
        with pytest.raises(InvalidConfigError, match=r"planner\.\w+"):
            Runtime(model=ScriptedLLM(), planner=config)
    with pytest.raises(InvalidConfigError, match=r"planner\.extra\.nonsense"):
        await Runtime(model=ScriptedLLM(), planner=PlannerConfig(extra={"nonsense": 1})).__aenter__()


async def test_an_operators_section_reaches_the_runtime() -> None:
    """Its hints are in the prompt, its limits are those of the runtime; what it leaves open stays as it was."""
    hints = OperatorPlanningHints(constraints="be quick", preferred_tools=["add"])
    section = OperatorPlannerConfig(
        extra_guidance="Be kind.",
        planning_hints=hints,
        absolute_max_spawn_depth=2,
        token_budget=7_000,
        skills_context_max=3,
    )
    client = ScriptedLLM(["hi"])
    async with Runtime(model=client, planner=section, options=RuntimeOptions(max_spawn_depth=9)) as runtime:
        await finish(runtime)
        assert (runtime.options.max_spawn_depth, runtime.options.token_budget) == (2, 7_000)
        assert runtime.options.max_skills == 3
    said = client.requests[0].messages[0].content.text or ""
    for words in ("Be kind.", "Constraints: be quick", "Preferred tools: add"):
        assert words in said
    untouched = Runtime(model=client, planner=OperatorPlannerConfig(), options=RuntimeOptions(max_spawn_depth=9))
    assert untouched.options == RuntimeOptions(max_spawn_depth=9)


async def test_what_is_kept_outside_of_a_prompt_can_always_be_read() -> None:
    """The tool that reads it is declared without being asked for, once, unless the model is known to take no tools."""

    async def big() -> str:
        """Big."""
        return "line of it\n" * 9_000

    for tools, options in (([big], RuntimeOptions()), ([big, artifact_fetch()], RuntimeOptions())):
        client = ScriptedLLM([calls_tools(("big", {})), says("read")])
        async with Runtime(model=client, tools=tools, options=options) as runtime:
            await finish(runtime)
        for request in client.requests:
            assert [one.name for one in request.tools].count("artifact_fetch") == 1
        assert "artifact_fetch(ref=" in str(client.requests[1].messages[-1].content.text)
    profile = ModelProfile(context_window_tokens=1000, supports_tools=False)
    without = ConfigSnapshot(driver="mock", model="m", profiles={"m": profile})
    async with Runtime(model=without) as runtime:
        assert runtime.catalog.resolve("artifact_fetch") is None
