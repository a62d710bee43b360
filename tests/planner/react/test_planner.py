"""One step of the planner: what it checks, in which order, what it asks, and what it tells."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from harborage.identity import Identity, IdentityMissingError, Quadruple, bound, current_quadruple
from harborage.llm import ChatMessage, CompleteRequest, Content, Role
from harborage.planner import (
    Budget,
    CallParallel,
    CallTool,
    ChunkKind,
    ControlSignals,
    FactoryDeps,
    Finish,
    FinishReason,
    InvalidConfigError,
    MemoryBlocks,
    MemoryBlockUnserializableError,
    PlannerConfig,
    PlanningNudges,
    RepairCounters,
    Step,
    ToolCallDeferred,
    Trajectory,
    WakeMode,
    resolve,
    resolve_wake_mode,
)
from harborage.planner.react import DEFAULT_SYSTEM_PROMPT, ReActPlanner
from harborage.testing.llm import ScriptedLLM, calls_tools, says
from harborage.tools import Tool
from tests.kit.provider_rules import check_request
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio


def taken(count: int) -> Trajectory:
    """A history of that many steps."""
    return Trajectory(steps=[Step(action=CallTool(f"t{index}"), observation=index) for index in range(count)])


def silent() -> ScriptedLLM:
    """A model that must not be asked."""
    return ScriptedLLM()


async def test_one_call_is_one_decision(make_run):
    """A step asks the model exactly once; its text ends the run with the goal."""
    llm = ScriptedLLM(["done"])
    decision = await ReActPlanner(llm).next(make_run())
    assert decision == Finish(FinishReason.GOAL, "done", {"via": "react.projectResponse", "goal_reach": True})
    assert len(llm.calls) == 1
    check_request(llm.requests[0])


async def test_the_request(make_run, catalog):
    """It carries the declarations and the hint for parallel calls, and leaves the model to the client."""
    llm = ScriptedLLM(["done"] * 2)
    run = make_run(catalog=catalog(Tool("a")))
    await ReActPlanner(llm).next(run)
    await ReActPlanner(llm, parallel_tool_calls=False).next(run)
    first, second = llm.requests
    assert [tool.name for tool in first.tools] == ["_spawn_task", "_await_task", "a"]
    assert (first.model, first.temperature, first.max_tokens, first.stream) == ("", None, None, False)
    assert (first.parallel_tool_calls, second.parallel_tool_calls) == (True, False)


async def test_without_a_catalog_there_are_no_tools(make_run):
    """No catalog, no declarations; the model may still answer."""
    llm = ScriptedLLM(["done"])
    await ReActPlanner(llm).next(make_run(catalog=None))
    assert llm.requests[0].tools == ()


async def test_discovered_tools_are_declared_from_the_next_step_on(make_run, catalog, system_text):
    """What a search found is declared and listed once its result is in the history."""
    llm = ScriptedLLM([calls_tools(("tool_search", {"query": "x"})), "done"])
    planner = ReActPlanner(llm)
    trajectory = Trajectory()
    run = make_run(trajectory=trajectory, catalog=catalog(Tool("tool_search"), hidden=(Tool("hidden", "H."),)))
    trajectory.steps.append(Step(action=await planner.next(run), observation={"tools": [{"name": "hidden"}]}))
    await planner.next(run)
    before, after = llm.requests
    assert "hidden" not in [tool.name for tool in before.tools]
    assert "hidden" in [tool.name for tool in after.tools]
    assert "- hidden: H." in system_text(after)
    assert run.discovered_tools == ()


async def test_a_cancelled_caller_gets_its_cancellation_first(make_run):
    """The cancellation comes before everything, even before a missing identity; the model is not asked."""
    llm = silent()

    async def step():
        asyncio.current_task().cancel()
        return await ReActPlanner(llm).next(make_run(quadruple=Quadruple()))

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(step())
    assert llm.calls == []


@pytest.mark.parametrize("part", ["tenant_id", "user_id", "session_id", "run_id"])
async def test_identity_is_needed(make_run, emitted, part):
    """Each of the four parts is needed, even to be cancelled; the model is not asked."""
    run = make_run(control=ControlSignals(cancelled=True))
    parts = {name: getattr(run.quadruple, name) for name in run.quadruple.__struct_fields__}
    run.quadruple = Quadruple(**{**parts, part: ""})
    with pytest.raises(IdentityMissingError, match=part):
        await ReActPlanner(silent()).next(run)
    assert emitted == []


async def test_the_model_is_asked_under_the_identity_of_the_run(make_run):
    """The ambient identity is the run's while the model is asked, and as before afterwards."""
    asked_as = []

    def note(request: CompleteRequest):
        asked_as.append(current_quadruple())
        return says("done")

    run = make_run("r-7")
    with bound(Identity("x", "y", "z")):
        await ReActPlanner(ScriptedLLM([note])).next(run)
        assert current_quadruple() is None
    with bound(run.quadruple):
        await ReActPlanner(ScriptedLLM([note])).next(run)
    assert asked_as == [run.quadruple] * 2


async def test_a_cancelled_run(make_run, emitted):
    """A run that was cancelled finishes so, before its deadline is looked at, without a word."""
    planner = ReActPlanner(silent(), max_steps=6)
    run = make_run(
        control=ControlSignals(cancelled=True),
        trajectory=taken(5),
        budget=Budget(deadline=make_run().now() - timedelta(1)),
        pending_tool_calls=(ToolCallDeferred("a"),),
    )
    decision = await planner.next(run)
    assert decision == Finish(FinishReason.CANCELLED, None, {"steering": "cancelled", "run_id": "r-1"})
    assert emitted == []
    assert planner.steps_taken == 0


async def test_a_stopped_run_without_steps_asks_no_model(make_run, emitted):
    """The step cap is looked at first; a run that is cancelled or past its deadline spends nothing on a last answer."""
    for stop in (
        {"control": ControlSignals(cancelled=True)},
        {"budget": Budget(deadline=make_run().now() - timedelta(1))},
    ):
        decision = await ReActPlanner(silent(), max_steps=3).next(make_run(trajectory=taken(3), **stop))
        assert (decision.reason, decision.payload) == ("no_path", None), stop
    assert [event.type for event in emitted] == ["planner.max_steps_exceeded"] * 2


@pytest.mark.parametrize(("offset_s", "reason"), [(-1, "deadline_exceeded"), (0, "deadline_exceeded"), (1, "goal")])
async def test_the_deadline(make_run, emitted, offset_s, reason):
    """From its deadline on, by the run's own clock, a run finishes without asking the model."""
    llm = ScriptedLLM(["done"])
    run = make_run(budget=Budget(deadline=make_run().now() + timedelta(seconds=offset_s)))
    decision = await ReActPlanner(llm).next(run)
    assert decision.reason == reason
    if offset_s <= 0:
        assert llm.calls == emitted == []
        assert decision.metadata["run_id"] == "r-1"


async def test_too_many_steps(make_run, emitted):
    """At the limit the model may only answer, an event says so, and the run ends; without a positive limit it is 12."""
    for steps, limit in ((12, 0), (12, -4), (3, 3), (4, 3)):
        emitted.clear()
        llm = ScriptedLLM(["as far as I got"])
        planner = ReActPlanner(llm, max_steps=limit)
        decision = await planner.next(make_run(trajectory=taken(steps)))
        cap = limit if limit > 0 else 12
        assert decision == Finish(
            FinishReason.NO_PATH,
            "as far as I got",
            {
                "max_steps_exceeded": True,
                "max_steps": cap,
                "steps_observed": steps,
                "last_tool": f"t{steps - 1}",
                "run_id": "r-1",
                "via": "react.maxStepsExceeded",
            },
        ), (steps, limit)
        (event,) = emitted
        assert event.type == "planner.max_steps_exceeded"
        assert (event.payload.max_steps, event.payload.steps_observed) == (cap, steps)
        assert event.payload.last_tool == f"t{steps - 1}"
        assert planner.steps_taken == 0
        assert len(llm.requests) == 1


async def test_the_last_turn_may_call_nothing(make_run, catalog):
    """Tools stay declared, because providers want them beside a history of calls, and are forbidden."""
    llm = ScriptedLLM([calls_tools(("a", {}))])
    notes = []
    run = make_run(trajectory=taken(3), catalog=catalog(Tool("a")), on_reasoning=notes.append)
    decision = await ReActPlanner(llm, max_steps=3).next(run)
    assert (decision.reason, decision.payload) == ("no_path", None)
    assert decision.metadata["calls_not_made"] == ["a"]
    (request,) = llm.requests
    assert request.tool_choice == "none"
    assert [one.name for one in request.tools][-1] == "a"
    assert not request.parallel_tool_calls
    assert "no tool is called any more" in request.messages[-1].content.text
    assert notes == [""]


async def test_the_runs_own_limit_counts_too(make_run, emitted):
    """Without steps left the run ends, whatever the planner's own cap; with some it goes on."""
    planner = ReActPlanner(ScriptedLLM(["one", "two"]), max_steps=99)
    assert (await planner.next(make_run(trajectory=taken(3), steps_left=1))).reason == "goal"
    decision = await planner.next(make_run(trajectory=taken(3), steps_left=0))
    assert (decision.reason, decision.payload, decision.metadata["max_steps"]) == ("no_path", "two", 3)
    assert planner.ends_at_step_limit


async def test_one_step_below_the_limit(make_run):
    """The last step that fits is asked for."""
    assert (
        await ReActPlanner(ScriptedLLM(["done"]), max_steps=3).next(make_run(trajectory=taken(2)))
    ).payload == "done"


async def test_too_many_steps_without_a_tool_or_a_listener(make_run):
    """Where the last step called no single tool there is none to name; without a listener the finish is the same."""
    trajectory = taken(3)
    trajectory.steps[-1] = Step(action=CallParallel((CallTool("a"),)))
    decision = await ReActPlanner(ScriptedLLM(["x"]), max_steps=3).next(make_run(trajectory=trajectory, emit=None))
    assert "last_tool" not in decision.metadata
    assert decision.metadata["max_steps_exceeded"] is True


async def test_calls_that_will_not_be_made_are_named(make_run):
    """Where the limit ends a run with calls still waiting, the finish says which."""
    run = make_run(trajectory=taken(3), pending_tool_calls=(ToolCallDeferred("a"), ToolCallDeferred("b")))
    decision = await ReActPlanner(ScriptedLLM(["x"]), max_steps=3).next(run)
    assert decision.metadata["calls_not_made"] == ["a", "b"]


async def test_waiting_calls_come_first(make_run, emitted):
    """A call that waits is made with its own id, without asking the model and without new notes; the rest goes on."""
    notes = []
    planner = ReActPlanner(silent(), parallel_tool_calls=False)
    run = make_run(
        pending_tool_calls=(ToolCallDeferred("a", b'{"n":1}', "id-1"), ToolCallDeferred("b")),
        on_pending_tool_calls=notes.append,
        on_reasoning=notes.append,
        on_assistant_content=notes.append,
        repair_counters=RepairCounters(1, 2, 3),
    )
    assert await planner.next(run) == CallTool("a", b'{"n":1}', "id-1")
    assert notes == [(ToolCallDeferred("b"),)]
    assert run.repair_counters == RepairCounters(1, 0, 0)
    (event,) = emitted
    assert (event.type, event.payload.decision_kind, event.payload.tool) == ("planner.decision", "CallTool", "a")
    assert (event.payload.reasoning_chars, event.payload.reasoning_trace) == (0, "")
    assert planner.steps_taken == 1


async def test_calls_one_at_a_time(make_run):
    """The calls of one answer are made in order, one a step, and then the model is asked again."""
    llm = ScriptedLLM([calls_tools(("a", {}), ("b", {}), ("c", {}), content="three"), "done"])
    planner = ReActPlanner(llm, parallel_tool_calls=False)
    trajectory = Trajectory()
    run = make_run(trajectory=trajectory)

    def keep(calls):
        run.pending_tool_calls = calls

    run.on_pending_tool_calls = keep
    for name in "abc":
        decision = await planner.next(run)
        assert decision.tool == name
        trajectory.steps.append(Step(action=decision, observation="ok"))
    assert run.pending_tool_calls == ()
    assert len(llm.calls) == 1
    assert (await planner.next(run)).payload == "done"
    check_request(llm.requests[-1])


@each_row("most, at_once, waiting", [(0, 3, 0), (2, 2, 1), (1, 1, 2)])
async def test_the_caller_may_wish_for_fewer_calls_at_once(make_run, most, at_once, waiting):
    """`hints.max_parallel` bounds a turn's branches; the model is asked for one at a time, too."""
    pending = []
    llm = ScriptedLLM([calls_tools(("a", {}), ("b", {}), ("c", {}))])
    run = make_run(hints=PlanningNudges(max_parallel=most), on_pending_tool_calls=pending.extend)
    decision = await ReActPlanner(llm).next(run)
    assert len(decision.branches if isinstance(decision, CallParallel) else [decision]) == at_once
    assert len(pending) == waiting
    assert llm.requests[0].parallel_tool_calls is (most != 1)


async def test_what_is_reported(make_run, emitted):
    """After a decision: the calls that wait, the event, the reasoning and the prose, each even when it is empty."""
    order = []
    run = make_run(
        on_pending_tool_calls=lambda calls: order.append(("pending", calls)),
        on_reasoning=lambda text: order.append(("reasoning", text)),
        on_assistant_content=lambda text: order.append(("content", text)),
        emit=lambda event: order.append(("event", event.payload)),
    )
    await ReActPlanner(ScriptedLLM([calls_tools(("a", {}))])).next(run)
    assert [name for name, _ in order] == ["pending", "event", "reasoning", "content"]
    assert [value for name, value in order if name != "event"] == [(), "", ""]
    order.clear()
    await ReActPlanner(ScriptedLLM([calls_tools(("a", {}), content="let me", reasoning="wäre gut")])).next(run)
    _, (_, payload), reasoning, content = order
    assert (reasoning[1], content[1]) == ("wäre gut", "let me")
    assert (payload.reasoning_chars, payload.reasoning_trace, payload.tool) == (8, "wäre gut", "a")
    assert (payload.identity, payload.occurred_at) == (run.quadruple, run.now())


@pytest.mark.parametrize(
    ("answer", "kind"), [("done", "Finish"), (calls_tools(("a", {}), ("b", {})), "CallParallel"), ("", "Finish")]
)
async def test_a_decision_names_a_tool_only_for_one_call(make_run, emitted, answer, kind):
    """The event says which kind of decision it was; only a single call names its tool."""
    await ReActPlanner(ScriptedLLM([answer])).next(make_run())
    assert (emitted[-1].payload.decision_kind, emitted[-1].payload.tool) == (kind, "")


async def test_a_listener_that_fails_changes_nothing(make_run, caplog):
    """An event that cannot be published is logged; the decision is the same."""

    def fail(event):
        raise RuntimeError("no bus")

    assert (await ReActPlanner(ScriptedLLM(["done"])).next(make_run(emit=fail))).payload == "done"


async def test_a_failing_model(make_run, emitted):
    """What the client raises passes through, the very same object; no decision is published and nothing counted."""
    failure = ConnectionError("gone")
    llm = ScriptedLLM([failure])
    planner = ReActPlanner(llm)
    notes = []
    run = make_run(
        on_reasoning=notes.append, on_pending_tool_calls=notes.append, repair_counters=RepairCounters(1, 1, 1)
    )
    with pytest.raises(ConnectionError) as caught:
        await planner.next(run)
    assert caught.value is failure
    assert notes == []
    assert not [event for event in emitted if event.type == "planner.decision"]
    assert planner.steps_taken == 0
    assert run.repair_counters == RepairCounters(1, 1, 1)


async def test_a_prompt_that_cannot_be_built(make_run):
    """A block without a JSON form fails the step before the model is asked."""
    llm = silent()
    with pytest.raises(MemoryBlockUnserializableError, match="external"):
        await ReActPlanner(llm).next(make_run(memory_blocks=MemoryBlocks(external=object())))
    assert llm.calls == []


async def test_streaming(make_run):
    """Where the run listens the answer is streamed by kind; where it does not, it is not."""
    pieces = []
    llm = ScriptedLLM([says("abc", reasoning="hm")], piece=2)
    await ReActPlanner(llm).next(make_run(on_chunk=lambda *piece: pieces.append(piece)))
    assert llm.requests[0].stream
    assert pieces == [
        ("hm", False, ChunkKind.REASONING),
        ("", True, ChunkKind.REASONING),
        ("ab", False, ChunkKind.CONTENT),
        ("c", False, ChunkKind.CONTENT),
        ("", True, ChunkKind.CONTENT),
    ]


class OwnBuilder:
    """A builder that says only what it was given."""

    def __init__(self):
        self.given = []

    def build(self, run, system_prompt):
        """One message."""
        self.given.append(system_prompt)
        return CompleteRequest(model="mine", messages=[ChatMessage(Role.USER, Content(text=run.goal))])


@pytest.mark.parametrize(("prompt", "given"), [("", DEFAULT_SYSTEM_PROMPT), ("Be Bob.", "Be Bob.")])
async def test_a_builder_of_ones_own(make_run, catalog, prompt, given):
    """It gets the system prompt as it is and decides what is said; tools are added all the same."""
    llm = ScriptedLLM(["done"])
    builder = OwnBuilder()
    planner = ReActPlanner(
        llm, prompt_builder=builder, system_prompt=prompt, system_prompt_extra="ignored", reasoning_replay="text"
    )
    await planner.next(make_run(catalog=catalog(Tool("a"))))
    assert builder.given == [given]
    assert llm.requests[0].model == "mine"
    assert [message.content.text for message in llm.requests[0].messages] == ["the goal"]
    assert len(llm.requests[0].tools) == 3


async def test_options(make_run, system_text):
    """The prompt's options reach the built-in prompt; an empty prompt and an empty mode mean the defaults."""
    step = Step(action=CallTool("a"), observation=1, reasoning_trace="why")
    for mode, text in (("text", "Reasoning:\nwhy"), ("never", None), ("", None)):
        llm = ScriptedLLM(["done"])
        planner = ReActPlanner(llm, reasoning_replay=mode, system_prompt="", system_prompt_extra="Be kind.")
        await planner.next(make_run(trajectory=Trajectory(steps=[step])))
        assert system_text(llm.requests[0]).startswith("<identity>")
        assert "Be kind." in system_text(llm.requests[0])
        assert llm.requests[0].messages[2].content.text == text
    llm = ScriptedLLM(["done"])
    await ReActPlanner(llm, system_prompt="You are Bob.").next(make_run())
    assert system_text(llm.requests[0]).startswith("You are Bob.\n\n<available_tools>")


def test_an_unknown_replay_mode_is_refused():
    """Where the planner is made, by name."""
    for mode in ("Text", "txet", "always"):
        with pytest.raises(InvalidConfigError, match=f"{mode}.*never or text"):
            ReActPlanner(silent(), reasoning_replay=mode)


async def test_an_answer_resets_what_was_wrong(make_run):
    """A clean call resets two counters, a goal the third."""
    planner = ReActPlanner(ScriptedLLM([calls_tools(("a", {})), "done"]))
    run = make_run(repair_counters=RepairCounters(2, 2, 2))
    await planner.next(run)
    assert run.repair_counters == RepairCounters(2, 0, 0)
    await planner.next(run)
    assert run.repair_counters == RepairCounters()


async def test_steps_are_counted(make_run):
    """Every decision from the model counts, over all runs."""
    planner = ReActPlanner(ScriptedLLM(["done"]))
    for run_id in ("r-1", "r-2"):
        await planner.next(make_run(run_id))
    assert planner.steps_taken == 2


def test_it_is_woken_by_push():
    """The runtime asks again when background work has ended."""
    assert resolve_wake_mode(ReActPlanner(ScriptedLLM())) is WakeMode.PUSH


def test_a_client_is_needed():
    """A planner without a model is refused when it is built."""
    with pytest.raises(InvalidConfigError):
        ReActPlanner(None)


async def test_the_driver(make_run, system_text):
    """Configuration names it `react`; what is not set keeps the default, what is set arrives."""
    llm = ScriptedLLM(["done"] * 2)
    planner = await resolve(PlannerConfig(driver="react"), FactoryDeps(llm=llm))
    assert isinstance(planner, ReActPlanner)
    await planner.next(make_run())
    config = PlannerConfig(driver="react", max_steps=2, extra_guidance="Be kind.", parallel_tool_calls=False)
    planner = await resolve(config, FactoryDeps(llm=llm))
    await planner.next(make_run("r-2"))
    first, second = llm.requests
    assert (first.parallel_tool_calls, second.parallel_tool_calls) == (True, False)
    assert "Be kind." in system_text(second)
    assert (await planner.next(make_run(trajectory=taken(2)))).reason is FinishReason.NO_PATH


async def test_the_driver_needs_a_model():
    """Without a model the factory refuses, and says what to configure."""
    with pytest.raises(InvalidConfigError, match="llm"):
        await resolve(PlannerConfig(driver="react"), FactoryDeps())


async def test_background_work_that_ended_is_shown(make_run):
    """A spawn is a decision, and the result that is pushed later is in the next prompt."""
    llm = ScriptedLLM([calls_tools(("_spawn_task", {"spec": {"query": "q"}})), "done"])
    planner = ReActPlanner(llm)
    trajectory = Trajectory()
    run = make_run(trajectory=trajectory)
    spawn = await planner.next(run)
    assert (spawn.kind, spawn.spec.query) == ("background", "q")
    trajectory.steps.append(Step(action=spawn, observation={"task_id": "t-1"}))
    assert isinstance(await planner.next(run), Finish)
    check_request(llm.requests[-1])


async def test_one_instance_serves_128_runs(make_run, emitted):
    """Each run's request holds its own words and no other's; each gets its own answer and its own counters."""
    arrived = 0
    everybody = asyncio.Event()

    class Echo:
        async def complete(self, request):
            nonlocal arrived
            arrived += 1
            if arrived == 128:
                everybody.set()
            await everybody.wait()
            text = "\n".join(message.content.text for message in request.messages)
            (goal,) = {word for word in text.split() if word.startswith("goal-")}
            (memory,) = {word for word in text.split('"') if word.startswith("memory-")}
            (skill,) = {word for word in text.split('"') if word.startswith("skill-")}
            has_guidance = "additional_guidance" in text
            return calls_tools((f"{goal} {memory} {skill} {has_guidance} {current_quadruple().run_id}", {}))

        async def close(self): ...

    planner = ReActPlanner(Echo())

    async def one(number: int) -> None:
        run = make_run(
            f"r-{number}",
            goal=f"goal-{number}",
            memory_blocks=MemoryBlocks(external={"m": f"memory-{number}"}),
            skills_context=[{"s": f"skill-{number}"}],
            repair_counters=RepairCounters(finish_repair=number % 2),
        )
        decision = await planner.next(run)
        has_guidance = bool(number % 2)
        assert decision.tool == f"goal-{number} memory-{number} skill-{number} {has_guidance} r-{number}"
        assert run.repair_counters == RepairCounters(finish_repair=number % 2)

    await asyncio.gather(*(one(number) for number in range(128)))
    assert planner.steps_taken == 128
