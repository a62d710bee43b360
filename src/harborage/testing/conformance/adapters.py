"""What every adapter of another framework's agent must do. Pass a bench that builds such an agent:

    await run_conformance(open_bench)

or one test a scenario: `@pytest.mark.parametrize("scenario", SCENARIOS)` and `await check(scenario, open_bench)`. The
agent's model is a `ScriptedModel`. The framework's fake model turns its own request into a `NeutralRequest`, awaits
`ScriptedModel.answer`, and turns the answer back, without a network. The request alone decides which line is next, so
runs do not disturb each other, and may change their process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from harborage.events import EventType
from harborage.identity import Identity
from harborage.llm import ChatMessage, CompleteResponse, Role
from harborage.llm.scripted import ScriptExhaustedError
from harborage.planner import CallParallel, Finish, FinishReason, InputArtifactView, RunContext, Trajectory
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.durable.engine import RunFailedError
from harborage.runtime.host import Runtime
from harborage.state.storage import open_storage
from harborage.testing.clock import settle
from harborage.testing.conformance.checks import check_scenario, expect, expect_equal, run_scenarios
from harborage.testing.llm import calls_tools, says
from harborage.tools import SideEffect, ToolOptions

if TYPE_CHECKING:
    from harborage.planner.adapters import Adapted
    from harborage.runtime.run import Run

ModelLine: TypeAlias = CompleteResponse | Exception


class NeutralRequest(msgspec.Struct, frozen=True):
    """One request: the conversation without system messages, the names of the tools, and the system text."""

    messages: Sequence[ChatMessage]
    tools: Sequence[str] = ()
    system: str = ""


class ScriptedModel:
    """Answers a conversation that holds `n` answers with line `n` of `script`; `{goal}` becomes the first user's text.

    With `is_slow` it never answers; `is_asked` is set by the first request, `cancelled_calls` counts cancellations.
    """

    def __init__(self, script: Sequence[ModelLine], *, is_slow: bool = False) -> None:
        self._script = tuple(script)
        self._is_slow = is_slow
        self.requests: list[NeutralRequest] = []
        self.is_asked = asyncio.Event()
        self.cancelled_calls = 0

    async def answer(self, request: NeutralRequest) -> CompleteResponse:
        """Return the next line for this conversation.

        Raises:
            ScriptExhaustedError: the script has no such line.
            Exception: the line itself.
        """
        self.requests.append(request)
        self.is_asked.set()
        if self._is_slow:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled_calls += 1
                raise
        await asyncio.sleep(0)
        at = sum(message.role is Role.ASSISTANT for message in request.messages)
        if at >= len(self._script):
            raise ScriptExhaustedError(f"the script has {len(self._script)} line(s); asked for line {at + 1}")
        line = self._script[at]
        if isinstance(line, Exception):
            raise line
        goal = next(iter(texts_of(request.messages, Role.USER)), "")
        return replace(line, content=line.content.replace("{goal}", goal))


def texts_of(messages: Sequence[ChatMessage], role: Role) -> list[str]:
    """Return the texts of one side of a conversation, in order."""
    return [message.content.text or "" for message in messages if message.role is role]


ME = Identity("tenant", "user", "session")
LIMIT_S = 30
DOT = b"\x89PNG\r\n\x1a\n"


class AdapterBench(Protocol):
    """Builds an agent of one framework, and adapts it."""

    def adapt(
        self,
        model: ScriptedModel,
        functions: Sequence[Callable[..., Awaitable[Any]]],
        tool_options: dict[str, ToolOptions] | None = None,
    ) -> Adapted:
        """Return an agent whose model is `model` and whose tools are `functions`: typed, async, with a docstring."""
        ...

    async def aclose(self) -> None:
        """Release its resources."""
        ...


OpenBench: TypeAlias = Callable[[], Awaitable[AdapterBench]]
Scenario: TypeAlias = Callable[[AdapterBench], Awaitable[None]]


class Tools:
    """The tools of an agent, and a record of their calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.is_holding = asyncio.Event()
        self.may_end = asyncio.Event()

    @property
    def functions(self) -> list[Callable[..., Awaitable[Any]]]:
        """The tools as plain functions."""
        outer = self

        async def add(a: int, b: int) -> int:
            """Add two numbers."""
            outer.calls.append("add")
            return a + b

        async def hold() -> str:
            """Wait until the test sets `may_end`."""
            outer.calls.append("hold")
            outer.is_holding.set()
            await outer.may_end.wait()
            return "held"

        async def fail() -> str:
            """Fail."""
            outer.calls.append("fail")
            raise LookupError("the drawer is empty")

        return [add, hold, fail]

    options: dict[str, ToolOptions] = {  # noqa: RUF012 - never changed
        "hold": ToolOptions(effects=SideEffect.READ)
    }


ADD = ("add", {"a": 1, "b": 2})


async def one_decision_is_one_turn(bench: AdapterBench) -> None:
    """Each step asks the model once, and the runtime, not the framework, calls the tool: the record shows both."""
    model, tools = ScriptedModel([calls_tools(ADD), says("three")]), Tools()
    finish, run = await _run_to_end(bench, model, tools)
    expect_equal((finish.reason, finish.payload), (FinishReason.GOAL, "three"), "finish")
    expect_equal(tools.calls, ["add"], "calls of the tool")
    expect_equal(len(model.requests), 2, "turns of the model")
    history = b"\n".join(run)
    expect_equal(history.count(b'"name":"plan"'), 2, "plan steps in the record")
    expect(b'"name":"tool.add"' in history, "the tool's call is a step of the record")


async def history_is_rebuilt(bench: AdapterBench) -> None:
    """The model sees the goal, its own call and its answer, under the very id it gave."""
    model = ScriptedModel([calls_tools(ADD, content="let me see", ids=["id-7"]), says("three")])
    await _run_to_end(bench, model, Tools(), goal="add one and two")
    request = model.requests[1].messages
    expect_equal(texts_of(request, Role.USER), ["add one and two"], "the user's text")
    expect_equal(texts_of(request, Role.TOOL), ["3"], "the answer")
    (said,) = [one for one in request if one.role is Role.ASSISTANT]
    expect_equal(said.content.text, "let me see", "the text beside the call")
    expect_equal([(call.id, call.name) for call in said.tool_calls], [("id-7", "add")], "the call")


async def calls_of_one_turn_are_parallel(bench: AdapterBench) -> None:
    """Several calls of one answer are one decision, and each is shown with its own answer."""
    model = ScriptedModel([calls_tools(ADD, ("add", {"a": 3, "b": 4})), says("done")])
    tools = Tools()
    _, history = await _run_to_end(bench, model, tools)
    expect(any(CallParallel.__name__.encode() in entry for entry in history), "the record holds one CallParallel")
    expect_equal(tools.calls, ["add", "add"], "calls of the tool")
    expect_equal(texts_of(model.requests[1].messages, Role.TOOL), ["3", "7"], "answers")


async def a_failure_is_shown(bench: AdapterBench) -> None:
    """A tool that fails is an answer for the model, not the end of the run."""
    model = ScriptedModel([calls_tools(("fail", {})), says("so be it")])
    finish, _ = await _run_to_end(bench, model, Tools())
    expect_equal(finish.payload, "so be it", "payload")
    (answer,) = texts_of(model.requests[1].messages, Role.TOOL)
    expect("the drawer is empty" in answer, f"the model is shown why: {answer}")


async def invalid_arguments_are_shown(bench: AdapterBench) -> None:
    """Arguments that do not fit never reach the function; the model gets an error."""
    model, tools = ScriptedModel([calls_tools(("add", {"a": "one"})), says("I see")]), Tools()
    finish, _ = await _run_to_end(bench, model, tools)
    expect_equal((finish.payload, tools.calls), ("I see", []), "payload and calls")
    (answer,) = texts_of(model.requests[1].messages, Role.TOOL)
    expect("error" in answer, f"the model is shown an error: {answer}")


async def an_approval_holds_a_tool(bench: AdapterBench) -> None:
    """A gated tool waits for a person; the approved call runs, and a rejection is an answer for the model."""
    model, tools = ScriptedModel([calls_tools(ADD), calls_tools(ADD), says("done")]), Tools()
    adapted = bench.adapt(model, tools.functions, tools.options)
    gates: dict[str, Any] = {**adapted.approvals, "add": AlwaysDeny("look first")}
    async with Runtime(planner=adapted.planner, tools=adapted.tools, approvals=gates) as runtime:
        run = await runtime.start("add", who=ME)
        await _wait_until_paused(run)
        expect_equal(tools.calls, [], "calls before the approval")
        await run.approve((await run.waiting())[0].token, args={"a": 20, "b": 1})
        await _until(lambda: len(model.requests) == 2)
        await _wait_until_paused(run)
        await run.reject("once is enough", token=(await run.waiting())[0].token)
        expect_equal((await run.finished()).payload, "done", "payload")
    first, second = texts_of(model.requests[2].messages, Role.TOOL)
    expect_equal((first, tools.calls), ("21", ["add"]), "the approved call")
    expect("once is enough" in second, f"the refusal is shown: {second}")


async def a_pause_is_binding(bench: AdapterBench) -> None:
    """A paused run does not ask the model until it is resumed."""
    model, tools = ScriptedModel([calls_tools(("hold", {})), says("done")]), Tools()
    async with _runtime(bench, model, tools) as runtime:
        run = await runtime.start("wait", who=ME)
        await tools.is_holding.wait()
        await run.pause()
        tools.may_end.set()
        await _wait_until_paused(run)
        expect_equal(len(model.requests), 1, "turns before the resume")
        await run.resume({"note": "resume now"})
        expect_equal((await run.finished()).payload, "done", "payload")
    expect(any("resume now" in text for text in texts_of(model.requests[1].messages, Role.USER)), "the answer is shown")


async def steering_is_shown_at_its_place(bench: AdapterBench) -> None:
    """A message, injected context and a redirect follow the step they came in, then and at every later step."""
    model = ScriptedModel([calls_tools(("hold", {})), calls_tools(ADD), says("done")])
    tools = Tools()
    async with _runtime(bench, model, tools) as runtime:
        run = await runtime.start("wait", who=ME)
        await tools.is_holding.wait()
        await run.message("and hurry")
        await run.inject({"weather": "rain"})
        await run.redirect("go home")
        tools.may_end.set()
        await run.finished()
    for request in (model.requests[1].messages, model.requests[2].messages):
        words = [text for one in request for text in (one.content.text or "",) if text]
        places = [_place(words, text) for text in ("wait", "held", "and hurry", "rain", "go home")]
        expect_equal(places, sorted(places), f"the order of {words}")
    last = [one.role for one in model.requests[2].messages if one.content.text]
    expect_equal(last[-1], Role.TOOL, "the later step's answer comes after the messages before it")


async def a_soft_cancel_ends_without_a_turn(bench: AdapterBench) -> None:
    """A cancelled run ends as cancelled at its next step, and the model is not asked again."""
    model, tools = ScriptedModel([calls_tools(("hold", {})), says("never")]), Tools()
    async with _runtime(bench, model, tools) as runtime:
        run = await runtime.start("wait", who=ME)
        await tools.is_holding.wait()
        await run.cancel()
        tools.may_end.set()
        expect_equal((await run.finished()).reason, FinishReason.CANCELLED, "reason")
    expect_equal(len(model.requests), 1, "turns of the model")


async def a_hard_cancel_cuts_a_tool(bench: AdapterBench) -> None:
    """A hard cancel does not wait for the tool."""
    model, tools = ScriptedModel([calls_tools(("hold", {})), says("never")]), Tools()
    async with _runtime(bench, model, tools) as runtime:
        run = await runtime.start("wait", who=ME)
        await tools.is_holding.wait()
        await run.cancel(hard=True)
        expect_equal((await run.finished()).reason, FinishReason.CANCELLED, "reason")


async def a_hard_cancel_cuts_the_model(bench: AdapterBench) -> None:
    """A hard cancel does not wait for the model, and cancels its call."""
    model = ScriptedModel([says("never")], is_slow=True)
    async with _runtime(bench, model, Tools()) as runtime:
        run = await runtime.start("think", who=ME)
        await model.is_asked.wait()
        await run.cancel(hard=True)
        expect_equal((await run.finished()).reason, FinishReason.CANCELLED, "reason")
        await _until(lambda: model.cancelled_calls == 1)


async def steps_are_limited(bench: AdapterBench) -> None:
    """A model that never finishes is stopped by the run's own limit."""
    model = ScriptedModel([calls_tools(ADD)] * 9)
    async with _runtime(bench, model, Tools()) as runtime:
        run = await runtime.start("go round", who=ME, max_steps=3)
        try:
            await run.finished()
        except RunFailedError as error:
            expect("MaxSteps" in str(error), f"the failure names the limit: {error}")
        else:
            expect(False, "the run fails")
    expect_equal(len(model.requests), 3, "turns of the model")


async def another_runtime_resumes_a_run(bench: AdapterBench) -> None:
    """Another runtime over the same storage repeats no decision, and continues the same conversation."""
    script = [calls_tools(ADD), calls_tools(("hold", {})), says("done")]
    first, second = ScriptedModel(script), ScriptedModel(script)
    tools, later = Tools(), Tools()
    async with await open_storage("memory:") as storage:
        async with _runtime(bench, first, tools, storage=storage) as runtime:
            run_id = (await runtime.start("add, then hold", who=ME)).id
            await tools.is_holding.wait()
        later.may_end.set()
        async with _runtime(bench, second, later, storage=storage) as runtime:
            finish = await (await runtime.run(run_id, who=ME)).finished()
    expect_equal(finish.payload, "done", "payload")
    expect_equal((len(first.requests), len(second.requests)), (2, 1), "turns of the model, before and after")
    expect_equal((tools.calls, later.calls), (["add", "hold"], ["hold"]), "calls, before and after")
    expect_equal(texts_of(second.requests[0].messages, Role.TOOL), ["3", "held"], "answers after the change")


async def runs_do_not_mix(bench: AdapterBench) -> None:
    """One planner serves many runs at once, and each sees its own conversation alone."""
    model = ScriptedModel([calls_tools(ADD), calls_tools(ADD), says("goal: {goal}")])
    async with _runtime(bench, model, Tools()) as runtime:
        goals = [f"goal number {number}" for number in range(12)]
        runs = [
            await runtime.start(goal, who=Identity("t", "u", f"s{number % 3}")) for number, goal in enumerate(goals)
        ]
        answers = [(await run.finished()).payload for run in runs]
    expect_equal(answers, [f"goal: {goal}" for goal in goals], "answers")
    expect_equal(len(model.requests), 3 * len(goals), "turns of the model")


async def answers_are_streamed(bench: AdapterBench) -> None:
    """The model's text is passed on as it comes, closed once a turn."""
    model, pieces = ScriptedModel([says("word by word")]), []
    done = 0
    async with _runtime(bench, model, Tools()) as runtime:
        run = await runtime.start("speak", who=ME)
        async for event in run.events():
            if event.type == EventType.LLM_COMPLETION_CHUNK:
                payload: Any = event.payload
                pieces.append(payload.delta)
                done += payload.done
    expect_equal(("".join(pieces), done), ("word by word", 1), "pieces, and how often they were closed")


async def without_a_subscriber_nothing_is_streamed(bench: AdapterBench) -> None:
    """A planner that is called outside a runtime, without a callback for deltas, gives the same decisions."""
    model = ScriptedModel([says("quietly")])
    planner = bench.adapt(model, Tools().functions).planner
    decision = await planner.next(RunContext(quadruple=ME.with_run("run"), goal="speak", trajectory=Trajectory()))
    expect(isinstance(decision, Finish) and decision.payload == "quietly", f"the decision: {decision}")
    expect_equal(
        sorted(model.requests[0].tools), ["add", "fail", "hold"], "an agent without a catalog has its own tools"
    )


async def pictures_reach_the_model(bench: AdapterBench) -> None:
    """The user's attachment is part of the request, as a picture and not as text."""
    model = ScriptedModel([says("a dot")])
    picture = InputArtifactView(id="a1", mime="image/png", bytes=DOT)
    run = RunContext(
        quadruple=ME.with_run("run"), goal="what is it?", trajectory=Trajectory(), input_artifacts=[picture]
    )
    await bench.adapt(model, []).planner.next(run)
    (request,) = texts_of(model.requests[0].messages, Role.USER)
    expect("what is it?" in request and "image/png" in request, f"the request holds both: {request[:200]}")


async def a_model_that_fails_fails_the_run(bench: AdapterBench) -> None:
    """An error of the framework's model ends the run with its text."""
    model = ScriptedModel([ConnectionError("the line is dead")])
    async with _runtime(bench, model, Tools()) as runtime:
        try:
            await (await runtime.start("call", who=ME)).finished()
        except RunFailedError as error:
            expect("the line is dead" in str(error), f"the failure says why: {error}")
        else:
            expect(False, "the run fails")


SCENARIOS: tuple[Scenario, ...] = (
    one_decision_is_one_turn,
    history_is_rebuilt,
    calls_of_one_turn_are_parallel,
    a_failure_is_shown,
    invalid_arguments_are_shown,
    an_approval_holds_a_tool,
    a_pause_is_binding,
    steering_is_shown_at_its_place,
    a_soft_cancel_ends_without_a_turn,
    a_hard_cancel_cuts_a_tool,
    a_hard_cancel_cuts_the_model,
    steps_are_limited,
    another_runtime_resumes_a_run,
    runs_do_not_mix,
    answers_are_streamed,
    without_a_subscriber_nothing_is_streamed,
    pictures_reach_the_model,
    a_model_that_fails_fails_the_run,
)


async def check(scenario: Scenario, open_bench: OpenBench) -> None:
    """Run one scenario against a fresh bench.

    Raises:
        ConformanceError: the adapter breaks a promise.
    """
    async with asyncio.timeout(LIMIT_S):
        await check_scenario(scenario, open_bench)


async def run_conformance(open_bench: OpenBench) -> None:
    """Run every scenario, each against a fresh bench.

    Raises:
        ExceptionGroup: the broken promises, one error a scenario.
    """
    await run_scenarios(SCENARIOS, open_bench)


def _runtime(bench: AdapterBench, model: ScriptedModel, tools: Tools, **parts: Any) -> Runtime:
    adapted = bench.adapt(model, tools.functions, tools.options)
    return Runtime(planner=adapted.planner, tools=adapted.tools, approvals=adapted.approvals, **parts)


async def _run_to_end(
    bench: AdapterBench, model: ScriptedModel, tools: Tools, *, goal: str = "go"
) -> tuple[Finish, Sequence[bytes]]:
    """Return how a run finished, and its journal."""
    async with _runtime(bench, model, tools) as runtime:
        run = await runtime.start(goal, who=ME)
        finish = await run.finished()
        return finish, await run.history()


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():
        await settle()


async def _wait_until_paused(run: Run) -> None:
    while not await run.waiting():
        await settle()


def _place(words: Sequence[str], text: str) -> int:
    found = [index for index, word in enumerate(words) if text in word]
    expect(bool(found), f"{text!r} is shown in {words}")
    return found[0]
