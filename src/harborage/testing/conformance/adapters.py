"""What every adapter of another framework's agent must do. Hand in a bench that builds such an agent:

    await run_conformance(open_bench)

or one test a scenario: `@pytest.mark.parametrize("scenario", SCENARIOS)` and `await check(scenario, open_bench)`. The
agent's model is a `Brain`, which sees the framework's request in neutral words and never leaves the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from harborage.events import EventType
from harborage.identity import Identity
from harborage.llm import Role
from harborage.planner import CallParallel, Finish, FinishReason, InputArtifactView, RunContext, Trajectory
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.durable import RunFailedError
from harborage.runtime.host import Run, Runtime
from harborage.state.storage import open_storage
from harborage.testing.clock import settle
from harborage.testing.conformance.adapter_brain import Brain, shown
from harborage.testing.conformance.checks import check_scenario, expect, expect_equal, run_scenarios
from harborage.testing.llm import calls_tools, says
from harborage.tools import SideEffect, ToolOptions

if TYPE_CHECKING:
    from harborage.planner.adapters import Adapted

__all__ = ["SCENARIOS", "AdapterBench", "Brain", "OpenBench", "Scenario", "check", "run_conformance", "shown"]

ME = Identity("tenant", "user", "session")
LIMIT_S = 30
DOT = b"\x89PNG\r\n\x1a\n"


class AdapterBench(Protocol):
    """Builds an agent of one framework, and adapts it."""

    def adapt(
        self,
        brain: Brain,
        functions: Sequence[Callable[..., Awaitable[Any]]],
        tool_options: dict[str, ToolOptions] | None = None,
    ) -> Adapted:
        """An agent whose model is `brain` and whose tools are `functions`: typed, async, with a docstring."""
        ...

    async def aclose(self) -> None:
        """Release what it holds."""
        ...


OpenBench: TypeAlias = Callable[[], Awaitable[AdapterBench]]
Scenario: TypeAlias = Callable[[AdapterBench], Awaitable[None]]


class Desk:
    """Tools to call, and what became of them."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.is_held = asyncio.Event()
        self.go_on = asyncio.Event()

    @property
    def functions(self) -> list[Callable[..., Awaitable[Any]]]:
        """The tools as plain functions."""
        desk = self

        async def add(a: int, b: int) -> int:
            """Add two numbers."""
            desk.calls.append("add")
            return a + b

        async def hold() -> str:
            """Wait until somebody lets go."""
            desk.calls.append("hold")
            desk.is_held.set()
            await desk.go_on.wait()
            return "let go"

        async def fail() -> str:
            """Fail."""
            desk.calls.append("fail")
            raise LookupError("the drawer is empty")

        return [add, hold, fail]

    options: dict[str, ToolOptions] = {  # noqa: RUF012 - never changed
        "hold": ToolOptions(side_effects=SideEffect.READ)
    }


ADD = ("add", {"a": 1, "b": 2})


async def one_decision_is_one_turn(bench: AdapterBench) -> None:
    """Each step asks the model once, and the runtime, not the framework, calls the tool: the record shows both."""
    brain, desk = Brain([calls_tools(ADD), says("three")]), Desk()
    finish, run = await _see_through(bench, brain, desk)
    expect_equal((finish.reason, finish.payload), (FinishReason.GOAL, "three"), "finish")
    expect_equal(desk.calls, ["add"], "calls of the tool")
    expect_equal(len(brain.seen), 2, "turns of the model")
    history = b"\n".join(run)
    expect_equal(history.count(b'"name":"plan"'), 2, "plan steps in the record")
    expect(b'"name":"tool.add"' in history, "the tool's call is a step of the record")


async def history_is_rebuilt(bench: AdapterBench) -> None:
    """The model sees the goal, its own call and its answer, under the very id it gave."""
    brain = Brain([calls_tools(ADD, content="let me see", ids=["id-7"]), says("three")])
    await _see_through(bench, brain, Desk(), goal="add one and two")
    request = brain.seen[1].messages
    expect_equal(shown(request, Role.USER), ["add one and two"], "what the user said")
    expect_equal(shown(request, Role.TOOL), ["3"], "the answer")
    (said,) = [one for one in request if one.role is Role.ASSISTANT]
    expect_equal(said.content.text, "let me see", "what was said beside the call")
    expect_equal([(call.id, call.name) for call in said.tool_calls], [("id-7", "add")], "the call")


async def calls_of_one_turn_are_parallel(bench: AdapterBench) -> None:
    """Several calls of one answer are one decision, and each is shown with its own answer."""
    brain = Brain([calls_tools(ADD, ("add", {"a": 3, "b": 4})), says("done")])
    desk = Desk()
    _, history = await _see_through(bench, brain, desk)
    expect(any(CallParallel.__name__.encode() in entry for entry in history), "the record holds one CallParallel")
    expect_equal(desk.calls, ["add", "add"], "calls of the tool")
    expect_equal(shown(brain.seen[1].messages, Role.TOOL), ["3", "7"], "answers")


async def a_failure_is_shown(bench: AdapterBench) -> None:
    """A tool that fails is an answer for the model, not the end of the run."""
    brain = Brain([calls_tools(("fail", {})), says("so be it")])
    finish, _ = await _see_through(bench, brain, Desk())
    expect_equal(finish.payload, "so be it", "payload")
    (answer,) = shown(brain.seen[1].messages, Role.TOOL)
    expect("the drawer is empty" in answer, f"the model is shown why: {answer}")


async def invalid_arguments_are_shown(bench: AdapterBench) -> None:
    """Arguments that do not fit never reach the function, and the model is told."""
    brain, desk = Brain([calls_tools(("add", {"a": "one"})), says("I see")]), Desk()
    finish, _ = await _see_through(bench, brain, desk)
    expect_equal((finish.payload, desk.calls), ("I see", []), "payload and calls")
    (answer,) = shown(brain.seen[1].messages, Role.TOOL)
    expect("error" in answer, f"the model is shown an error: {answer}")


async def an_approval_holds_a_tool(bench: AdapterBench) -> None:
    """A gated tool waits for a person; what was approved is what runs, and a no is an answer for the model."""
    brain, desk = Brain([calls_tools(ADD), calls_tools(ADD), says("done")]), Desk()
    adapted = bench.adapt(brain, desk.functions, desk.options)
    gates: dict[str, Any] = {**adapted.approvals, "add": AlwaysDeny("look first")}
    async with Runtime(planner=adapted.planner, tools=adapted.tools, approvals=gates) as runtime:
        run = await runtime.start("add", who=ME)
        await _settled_on_a_pause(run)
        expect_equal(desk.calls, [], "calls before anybody said yes")
        await run.approve((await run.waiting())[0].token, args={"a": 20, "b": 1})
        await _until(lambda: len(brain.seen) == 2)
        await _settled_on_a_pause(run)
        await run.reject((await run.waiting())[0].token, reason="once is enough")
        expect_equal((await run.result()).payload, "done", "payload")
    first, second = shown(brain.seen[2].messages, Role.TOOL)
    expect_equal((first, desk.calls), ("21", ["add"]), "the approved call")
    expect("once is enough" in second, f"the refusal is shown: {second}")


async def a_pause_is_binding(bench: AdapterBench) -> None:
    """A paused run does not ask the model; resumed, it goes on."""
    brain, desk = Brain([calls_tools(("hold", {})), says("done")]), Desk()
    async with _runtime(bench, brain, desk) as runtime:
        run = await runtime.start("wait", who=ME)
        await desk.is_held.wait()
        await run.pause()
        desk.go_on.set()
        await _settled_on_a_pause(run)
        expect_equal(len(brain.seen), 1, "turns before the resume")
        await run.resume({"note": "carry on"})
        expect_equal((await run.result()).payload, "done", "payload")
    expect(any("carry on" in text for text in shown(brain.seen[1].messages, Role.USER)), "the answer is shown")


async def steering_is_shown_at_its_place(bench: AdapterBench) -> None:
    """A message, injected context and a redirect stand after the step they came in, then and at every later step."""
    brain = Brain([calls_tools(("hold", {})), calls_tools(ADD), says("done")])
    desk = Desk()
    async with _runtime(bench, brain, desk) as runtime:
        run = await runtime.start("wait", who=ME)
        await desk.is_held.wait()
        await run.message("and hurry")
        await run.inject({"weather": "rain"})
        await run.redirect("go home")
        desk.go_on.set()
        await run.result()
    for request in (brain.seen[1].messages, brain.seen[2].messages):
        words = [text for one in request for text in (one.content.text or "",) if text]
        places = [_place(words, text) for text in ("wait", "let go", "and hurry", "rain", "go home")]
        expect_equal(places, sorted(places), f"the order of {words}")
    last = [one.role for one in brain.seen[2].messages if one.content.text]
    expect_equal(last[-1], Role.TOOL, "the later step's answer comes after what was said before it")


async def a_soft_cancel_ends_without_a_turn(bench: AdapterBench) -> None:
    """A cancelled run ends as cancelled at its next step, and the model is not asked again."""
    brain, desk = Brain([calls_tools(("hold", {})), says("never")]), Desk()
    async with _runtime(bench, brain, desk) as runtime:
        run = await runtime.start("wait", who=ME)
        await desk.is_held.wait()
        await run.cancel()
        desk.go_on.set()
        expect_equal((await run.result()).reason, FinishReason.CANCELLED, "reason")
    expect_equal(len(brain.seen), 1, "turns of the model")


async def a_hard_cancel_cuts_a_tool(bench: AdapterBench) -> None:
    """A hard cancel does not wait for the tool."""
    brain, desk = Brain([calls_tools(("hold", {})), says("never")]), Desk()
    async with _runtime(bench, brain, desk) as runtime:
        run = await runtime.start("wait", who=ME)
        await desk.is_held.wait()
        await run.cancel(hard=True)
        expect_equal((await run.result()).reason, FinishReason.CANCELLED, "reason")


async def a_hard_cancel_cuts_the_model(bench: AdapterBench) -> None:
    """A hard cancel does not wait for the model, and the call of it is over, not merely forgotten."""
    brain = Brain([says("never")], is_slow=True)
    async with _runtime(bench, brain, Desk()) as runtime:
        run = await runtime.start("think", who=ME)
        await brain.is_asked.wait()
        await run.cancel(hard=True)
        expect_equal((await run.result()).reason, FinishReason.CANCELLED, "reason")
        await _until(lambda: brain.cut == 1)


async def steps_are_limited(bench: AdapterBench) -> None:
    """A model that never finishes is stopped by the run's own limit."""
    brain = Brain([calls_tools(ADD)] * 9)
    async with _runtime(bench, brain, Desk()) as runtime:
        run = await runtime.start("go round", who=ME, max_steps=3)
        try:
            await run.result()
        except RunFailedError as error:
            expect("MaxSteps" in str(error), f"the failure names the limit: {error}")
        else:
            expect(False, "the run fails")
    expect_equal(len(brain.seen), 3, "turns of the model")


async def a_run_is_carried_on(bench: AdapterBench) -> None:
    """Another runtime over the same storage asks for no decision twice, and goes on with the same conversation."""
    script = [calls_tools(ADD), calls_tools(("hold", {})), says("done")]
    first, second = Brain(script), Brain(script)
    desk, later = Desk(), Desk()
    async with await open_storage("memory:") as storage:
        async with _runtime(bench, first, desk, storage=storage) as runtime:
            run_id = (await runtime.start("carry", who=ME)).id
            await desk.is_held.wait()
        later.go_on.set()
        async with _runtime(bench, second, later, storage=storage) as runtime:
            finish = await (await runtime.run(run_id, who=ME)).result()
    expect_equal(finish.payload, "done", "payload")
    expect_equal((len(first.seen), len(second.seen)), (2, 1), "turns of the model, before and after")
    expect_equal((desk.calls, later.calls), (["add", "hold"], ["hold"]), "calls, before and after")
    expect_equal(shown(second.seen[0].messages, Role.TOOL), ["3", "let go"], "answers after the change")


async def runs_do_not_mix(bench: AdapterBench) -> None:
    """One planner serves many runs at once, and each sees its own conversation alone."""
    brain = Brain([calls_tools(ADD), calls_tools(ADD), says("goal: {goal}")])
    async with _runtime(bench, brain, Desk()) as runtime:
        goals = [f"goal number {number}" for number in range(12)]
        runs = [
            await runtime.start(goal, who=Identity("t", "u", f"s{number % 3}")) for number, goal in enumerate(goals)
        ]
        answers = [(await run.result()).payload for run in runs]
    expect_equal(answers, [f"goal: {goal}" for goal in goals], "answers")
    expect_equal(len(brain.seen), 3 * len(goals), "turns of the model")


async def answers_are_streamed(bench: AdapterBench) -> None:
    """What the model says is passed on as it comes, closed once a turn."""
    brain, pieces = Brain([says("word by word")]), []
    done = 0
    async with _runtime(bench, brain, Desk()) as runtime:
        run = await runtime.start("speak", who=ME)
        async for event in run.events():
            if event.type == EventType.LLM_COMPLETION_CHUNK:
                payload: Any = event.payload
                pieces.append(payload.delta)
                done += payload.done
    expect_equal(("".join(pieces), done), ("word by word", 1), "pieces, and how often they were closed")


async def without_a_listener_nothing_is_streamed(bench: AdapterBench) -> None:
    """A planner that is asked outside a runtime, by an embedder who does not listen, gives the same decisions."""
    brain = Brain([says("quietly")])
    planner = bench.adapt(brain, Desk().functions).planner
    decision = await planner.next(RunContext(quadruple=ME.with_run("run"), goal="speak", trajectory=Trajectory()))
    expect(isinstance(decision, Finish) and decision.payload == "quietly", f"the decision: {decision}")
    expect_equal(sorted(brain.seen[0].tools), ["add", "fail", "hold"], "without a catalog the agent has its own tools")


async def pictures_reach_the_model(bench: AdapterBench) -> None:
    """What the user attached is part of the request, as a picture and not as words."""
    brain = Brain([says("a dot")])
    picture = InputArtifactView(id="a1", mime="image/png", bytes=DOT)
    run = RunContext(
        quadruple=ME.with_run("run"), goal="what is it?", trajectory=Trajectory(), input_artifacts=[picture]
    )
    await bench.adapt(brain, []).planner.next(run)
    (request,) = shown(brain.seen[0].messages, Role.USER)
    expect("what is it?" in request and "image/png" in request, f"the request holds both: {request[:200]}")


async def a_model_that_fails_fails_the_run(bench: AdapterBench) -> None:
    """What the framework's model raises ends the run with its own words."""
    brain = Brain([ConnectionError("the line is dead")])
    async with _runtime(bench, brain, Desk()) as runtime:
        try:
            await (await runtime.start("call", who=ME)).result()
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
    a_run_is_carried_on,
    runs_do_not_mix,
    answers_are_streamed,
    without_a_listener_nothing_is_streamed,
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


def _runtime(bench: AdapterBench, brain: Brain, desk: Desk, **parts: Any) -> Runtime:
    adapted = bench.adapt(brain, desk.functions, desk.options)
    return Runtime(planner=adapted.planner, tools=adapted.tools, approvals=adapted.approvals, **parts)


async def _see_through(
    bench: AdapterBench, brain: Brain, desk: Desk, *, goal: str = "go"
) -> tuple[Finish, Sequence[bytes]]:
    """How a run finished, and its record."""
    async with _runtime(bench, brain, desk) as runtime:
        run = await runtime.start(goal, who=ME)
        finish = await run.result()
        return finish, await run.history()


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():
        await settle()


async def _settled_on_a_pause(run: Run) -> None:
    while not await run.waiting():
        await settle()


def _place(words: Sequence[str], text: str) -> int:
    found = [index for index, word in enumerate(words) if text in word]
    expect(bool(found), f"{text!r} is shown in {words}")
    return found[0]
