"""The nine controls through `RunLoop`: what each does, what it does when it cannot, and what is published and kept of
it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from harborage.events import Event, MemoryEventBus
from harborage.identity import Quadruple
from harborage.planner import (
    AwaitTask,
    CallTool,
    ControlSignals,
    Finish,
    FinishReason,
    PauseReason,
    RequestPause,
    Trajectory,
)
from harborage.runtime.pauses import Coordinator, Pause, PauseDecision, PauseState
from harborage.runtime.steering import (
    ControlType,
    NoOutstandingPauseError,
    PayloadInvalidError,
    RunLoopMisconfiguredError,
)
from harborage.tasks import InProcessTaskRegistry, SpawnRequest, TaskKind
from harborage.testing.clock import settle
from harborage.testing.planners import RecordingPlanner, ScriptedPlanner
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

GOAL = Finish(FinishReason.GOAL, "done")
CALL = CallTool("x")
ASK = RequestPause(PauseReason.EXTERNAL_EVENT, {"q": 1})
Benches = Callable[..., Any]


class Stops:
    """A planner that stops in front of each of its lines until it is let go on."""

    def __init__(self, *lines: Any) -> None:
        self._inner = RecordingPlanner(ScriptedPlanner(lines))
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.was_cut = False

    @property
    def contexts(self) -> list[Any]:
        return self._inner.contexts

    async def next(self, run: Any) -> Any:
        self.is_asked.set()
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.was_cut = True
            raise
        self.may_answer.clear()
        return await self._inner.next(run)

    async def asked(self) -> None:
        """Return when the planner has been asked."""
        await self.is_asked.wait()
        self.is_asked.clear()


class DeafCoordinator(Coordinator):
    """Calls no subscriber when a pause is resolved, as if the notice were lost."""

    def on_resolved(self, token: str, wake: Callable[[Pause], None]) -> Callable[[], None]:
        return lambda: None


async def test_what_arrives_during_a_step_is_seen_at_the_next(bench: Any) -> None:
    """The step under way saw nothing of it, and the one after the next sees it no more."""
    planner = Stops(CALL, CALL, GOAL)
    task = bench.begin(planner)
    await planner.asked()
    bench.send("USER_MESSAGE", {"message": "hello"})
    bench.send("INJECT_CONTEXT", {"k": [1]})
    bench.send("REDIRECT", {"goal": "elsewhere"})
    for _ in range(3):
        planner.may_answer.set()
        await settle()
    assert await bench.end(task) is GOAL
    first, second, third = planner.contexts
    assert (first.control, first.goal) == (ControlSignals(), "g")
    signals = ControlSignals(user_messages=("hello",), injected_context=({"k": [1]},), redirect_goal="elsewhere")
    assert (second.control, second.goal) == (signals, "elsewhere")
    assert (third.control, third.goal) == (ControlSignals(), "elsewhere")
    assert [one.kind for one in third.trajectory.steering_inputs] == ["user_message", "inject_context", "redirect"]


async def test_a_soft_cancel_is_seen_by_the_next_call(bench: Any) -> None:
    """A planner that heeds it ends the run as it likes."""
    bye = Finish(FinishReason.CANCELLED, "cleaned up")
    planner = Stops(CALL, lambda run: bye if run.control.cancelled else CALL)
    task = bench.begin(planner)
    await planner.asked()
    bench.send("CANCEL")
    for _ in range(2):
        planner.may_answer.set()
        await settle()
    assert await bench.end(task) is bye
    assert [one.control.cancelled for one in planner.contexts] == [False, True]


async def test_a_soft_cancel_that_is_not_heeded_ends_the_run_all_the_same(bench: Any) -> None:
    """After the one call in which the planner could have heeded it."""
    planner = Stops(CALL, CALL, CALL)
    task = bench.begin(planner)
    await planner.asked()
    bench.send("CANCEL")
    for _ in range(3):
        planner.may_answer.set()
        await settle()
    finish = await bench.end(task)
    assert finish == Finish(FinishReason.CANCELLED, metadata={"run_id": "r", "steering_reason": "cancel_ignored"})
    assert len(planner.contexts) == 2


HARD = Finish(FinishReason.CANCELLED, metadata={"run_id": "r", "steering_reason": "hard_cancel"})


@pytest.mark.parametrize("control_errors", ["fail", "reject"])
async def test_a_hard_cancel_cuts_the_planners_call(benches: Benches, control_errors: str) -> None:
    """At once; the hook hears of it, with the run's id."""
    hooked: list[str] = []

    async def hook(run_id: str) -> None:
        hooked.append(run_id)

    bench = benches(hard_cancel_hook=hook, control_errors=control_errors)
    planner = Stops(CALL)
    task = bench.begin(planner)
    await planner.asked()
    bench.send("CANCEL", {"hard": True})
    assert await bench.end(task) == HARD
    assert planner.was_cut
    assert hooked == ["r"]
    assert bench.controls == [("CANCEL", "received"), ("CANCEL", "applied")]


async def test_a_hard_cancel_cuts_the_executor(bench: Any) -> None:
    """The call that was cut has an answer in the history all the same."""
    is_called = asyncio.Event()
    history = Trajectory()

    class Executor:
        async def execute_decision(self, rc: Any, decision: Any) -> Any:
            is_called.set()
            await asyncio.get_running_loop().create_future()

    task = bench.begin(ScriptedPlanner([CALL]), tool_executor=Executor(), base={"trajectory": history})
    await is_called.wait()
    bench.send("CANCEL", {"hard": True})
    assert await bench.end(task) == HARD
    assert [step.observation for step in history.steps] == [{"error": "cancelled: hard_cancel"}]


async def test_a_soft_cancel_does_not_call_the_hook(benches: Benches) -> None:
    """It is for what is in flight, and a soft cancel leaves that alone."""
    hooked: list[str] = []

    async def hook(run_id: str) -> None:
        hooked.append(run_id)

    bench = benches(hard_cancel_hook=hook)
    task = bench.begin(ScriptedPlanner([ASK]))
    await bench.paused()
    bench.send("CANCEL", {"hard": "very"})
    assert (await bench.end(task)).metadata["steering_reason"] == "cancel_while_paused"
    assert hooked == []


async def test_a_hook_that_fails_ends_the_run(benches: Benches) -> None:
    """Where controls that fail do."""

    async def hook(run_id: str) -> None:
        raise OSError("engine gone")

    bench = benches(hard_cancel_hook=hook)
    task = bench.begin(planner := Stops(CALL))
    await planner.asked()
    bench.send("CANCEL", {"hard": True})
    with pytest.raises(OSError, match="engine gone"):
        await bench.end(task)
    assert bench.controls[-1] == ("CANCEL", "failed", "apply_failed")


async def test_a_hook_that_fails_does_not_keep_a_run_alive(benches: Benches, caplog: pytest.LogCaptureFixture) -> None:
    """Where failing controls are recorded, the cancel holds and the failure is logged."""

    async def hook(run_id: str) -> None:
        raise OSError("engine gone")

    bench = benches(hard_cancel_hook=hook, control_errors="reject")
    task = bench.begin(planner := Stops(CALL))
    await planner.asked()
    with caplog.at_level(logging.WARNING):
        bench.send("CANCEL", {"hard": True})
        assert await bench.end(task) == HARD
    assert "hard cancel hook failed: engine gone" in caplog.text


async def test_the_hook_is_called_into_the_call_in_flight(benches: Benches) -> None:
    """Once, and before that call has ended: an executor that is stopped by id alone does not hold the run."""
    stop, is_called = asyncio.Event(), asyncio.Event()
    hooked: list[str] = []

    async def hook(run_id: str) -> None:
        hooked.append(run_id)
        stop.set()

    class Executor:
        async def execute_decision(self, rc: Any, decision: Any) -> Any:
            is_called.set()
            while not stop.is_set():
                with suppress(asyncio.CancelledError):
                    await stop.wait()
            return "torn down", "torn down"

    bench = benches(hard_cancel_hook=hook)
    task = bench.begin(ScriptedPlanner([CALL]), tool_executor=Executor())
    await is_called.wait()
    bench.send("CANCEL", {"hard": True})
    bench.send("CANCEL", {"hard": True})
    assert await bench.end(task) == HARD
    assert hooked == ["r"]
    assert bench.controls == [("CANCEL", "received"), ("CANCEL", "applied")] * 2


async def test_the_hook_is_called_for_a_run_that_waits(benches: Benches) -> None:
    """Parked runs are cancelled as others are."""
    hooked: list[str] = []

    async def hook(run_id: str) -> None:
        hooked.append(run_id)

    bench = benches(hard_cancel_hook=hook)
    task = bench.begin(ScriptedPlanner([ASK]), "parked")
    await bench.paused("parked")
    bench.send("CANCEL", {"hard": True}, run_id="parked")
    assert (await bench.end(task)).metadata["steering_reason"] == "hard_cancel"
    assert hooked == ["parked"]


@pytest.mark.parametrize("control_errors", ["fail", "reject"])
async def test_a_hook_that_does_not_return_holds_no_run(benches: Benches, control_errors: str) -> None:
    """After ten seconds the run ends without it, with an error where controls that fail end the run."""

    async def hook(run_id: str) -> None:
        await asyncio.get_running_loop().create_future()

    bench = benches(hard_cancel_hook=hook, control_errors=control_errors)
    task = bench.begin(planner := Stops(CALL))
    await planner.asked()
    bench.send("CANCEL", {"hard": True})
    await bench.clock.run_for(9.9)
    assert planner.was_cut
    assert not task.done()
    await bench.clock.run_for(0.2)
    if control_errors == "reject":
        assert await bench.end(task) == HARD
        return
    with pytest.raises(TimeoutError, match="hard cancel hook of run r did not return within 10 s"):
        await bench.end(task)


async def test_a_soft_cancel_ends_an_executors_wait_for_a_task(bench: Any) -> None:
    """Waiting has no effect to lose; another call of the same executor is left to end."""
    is_called, may_end = asyncio.Event(), asyncio.Event()

    class Executor:
        async def execute_decision(self, rc: Any, decision: Any) -> Any:
            is_called.set()
            await may_end.wait()
            return "ended", "ended"

    for decision, observed in ((AwaitTask("t"), {"error": "cancelled: soft_cancel"}), (CALL, "ended")):
        is_called.clear()
        may_end.clear()
        planner = RecordingPlanner(ScriptedPlanner([decision, GOAL]))
        task = bench.begin(planner, tool_executor=Executor())
        await is_called.wait()
        bench.send("CANCEL")
        await settle()
        assert task.done() == (decision is not CALL)
        may_end.set()
        assert await bench.end(task) is GOAL
        assert [one.observation for one in planner.contexts[-1].trajectory.steps] == [observed]
        assert planner.contexts[-1].control.cancelled


@pytest.mark.parametrize("payload", [None, {"hard": True}])
async def test_a_cancelled_run_gives_up_its_pause(bench: Any, payload: Any) -> None:
    """It is rejected, so that no person answers it without effect."""
    task = bench.begin(ScriptedPlanner([ASK]))
    pause = await bench.paused()
    bench.send("CANCEL", payload)
    finish = await bench.end(task)
    why = "hard_cancel" if payload else "cancel_while_paused"
    assert finish == Finish(FinishReason.CANCELLED, metadata={"run_id": "r", "steering_reason": why})
    resolved = await bench.pauses.status(pause.token, who=bench.who())
    assert (resolved.state, resolved.decision) == (PauseState.RESUMED, PauseDecision.REJECT)


async def test_a_pause_of_the_planner_carries_its_question(bench: Any) -> None:
    """Reason and payload, under the run's identity; without a deadline where the loop was given none."""
    task = bench.begin(ScriptedPlanner([ASK, GOAL]))
    pause = await bench.paused()
    assert (pause.reason, pause.payload, pause.identity) == (PauseReason.EXTERNAL_EVENT, {"q": 1}, bench.who())
    assert pause.deadline is None
    bench.send("RESUME")
    await bench.end(task)


@pytest.mark.parametrize("type", ["RESUME", "APPROVE"])
async def test_the_planner_sees_how_its_pause_was_resolved(bench: Any, type: str) -> None:
    """In its next call, and in no later one; messages of the meantime are there too, once."""
    planner = RecordingPlanner(ScriptedPlanner([ASK, CALL, GOAL]))
    task = bench.begin(planner)
    pause = await bench.paused()
    bench.send("USER_MESSAGE", {"message": "wait for it"})
    await bench.paused()
    bench.send(type, {"answer": 42})
    await bench.end(task)
    _, second, third = planner.contexts
    hint = second.trajectory.resume_hint
    decision = "resume" if type == "RESUME" else "approve"
    assert hint.pause_token == pause.token
    assert hint.resume_payload == {"q": 1, "answer": 42, "decision": decision}
    assert second.control == ControlSignals(user_messages=("wait for it",))
    assert (third.trajectory.resume_hint, third.control) == (None, ControlSignals())
    assert (await bench.pauses.status(pause.token, who=bench.who())).decision == decision


async def test_a_rejected_run_ends(bench: Any) -> None:
    """The pause says by whom, the finish why."""
    task = bench.begin(ScriptedPlanner([ASK]))
    pause = await bench.paused()
    bench.send("REJECT", {"reason": "no"})
    metadata = {"run_id": "r", "rejected_by": "steering", "steering_reason": "control_reject"}
    assert await bench.end(task) == Finish(FinishReason.CONSTRAINTS_CONFLICT, metadata=metadata)
    resolved = await bench.pauses.status(pause.token, who=bench.who())
    assert (resolved.decision, resolved.payload) == ("reject", {"q": 1, "reason": "no", "rejected": True})


@each_row(
    "decision, reason",
    [
        (PauseDecision.APPROVE, FinishReason.GOAL),
        (PauseDecision.RESUME, FinishReason.GOAL),
        (PauseDecision.REJECT, FinishReason.CONSTRAINTS_CONFLICT),
        (PauseDecision.TIMEOUT, FinishReason.DEADLINE_EXCEEDED),
    ],
)
@each_row("way", ["told", "deaf", "deaf and without a bus"])
async def test_a_pause_resolved_elsewhere_moves_the_run(
    benches: Benches, decision: PauseDecision, reason: FinishReason, way: str
) -> None:
    """Told at once; or found when the coordinator is next asked, with or without a bus. A timeout is an end."""
    options: dict[str, Any] = {"pause_status_recheck_interval": timedelta(seconds=7)}
    if way == "deaf and without a bus":
        options["bus"] = None
    bench = benches(coordinator=Coordinator if way == "told" else DeafCoordinator, **options)
    planner = RecordingPlanner(ScriptedPlanner([ASK, CALL, GOAL]))
    task = bench.begin(planner)
    pause = await bench.paused()
    await bench.pauses.resume(pause.token, decision, {"by": "bob"}, who=bench.who())
    if way != "told":
        await settle()
        assert not task.done()
        await bench.clock.run_for(7)
    assert (await bench.end(task)).reason is reason
    if reason is FinishReason.GOAL:
        hints = [one.trajectory.resume_hint for one in planner.contexts]
        assert [hint is not None for hint in hints] == [False, True, False]
        assert hints[1].resume_payload == {"q": 1, "by": "bob", "decision": str(decision)}


@pytest.mark.parametrize("interval", [timedelta(0), timedelta(seconds=-1)])
async def test_asking_again_has_a_sensible_interval(benches: Benches, interval: timedelta) -> None:
    """One that is not positive means 30 seconds."""
    bench = benches(coordinator=DeafCoordinator, pause_status_recheck_interval=interval)
    task = bench.begin(ScriptedPlanner([ASK, GOAL]))
    pause = await bench.paused()
    await bench.pauses.resume(pause.token, PauseDecision.RESUME, who=bench.who())
    await bench.clock.run_for(29.9)
    assert not task.done()
    await bench.clock.run_for(0.2)
    assert await bench.end(task) is GOAL


async def test_pause_is_binding(bench: Any) -> None:
    """The planner is not asked until a RESUME; a second PAUSE adds nothing."""
    planner = Stops(CALL, GOAL)
    task = bench.begin(planner)
    await planner.asked()
    bench.send("PAUSE", {"why": "lunch"})
    bench.send("PAUSE")
    planner.may_answer.set()
    pause = await bench.paused()
    assert (pause.reason, pause.payload) == ("external_event", {"why": "lunch", "requested_by": "steering"})
    assert not planner.is_asked.is_set()
    bench.send("PAUSE")
    assert (await bench.paused()).token == pause.token
    bench.send("RESUME")
    await planner.asked()
    planner.may_answer.set()
    assert await bench.end(task) is GOAL


async def test_a_planner_sees_once_that_a_pause_was_requested(bench: Any) -> None:
    """In its first context after a PAUSE was applied, and in no other."""
    for sent in (["PAUSE", "RESUME"], ["PAUSE"], []):
        planner = Stops(CALL, CALL, GOAL)
        task = bench.begin(planner)
        await planner.asked()
        for kind in sent:
            bench.send(kind)
        planner.may_answer.set()
        if sent == ["PAUSE"]:
            await bench.paused()
            bench.send("APPROVE")
        for _ in range(2):
            await planner.asked()
            planner.may_answer.set()
        assert await bench.end(task) is GOAL
        assert [one.control.pause_requested for one in planner.contexts] == [False, bool(sent), False], sent


async def test_pause_and_resume_at_one_boundary_leave_nothing_behind(bench: Any) -> None:
    """They are applied in order."""
    planner = Stops(CALL, GOAL)
    task = bench.begin(planner)
    await planner.asked()
    for kind in ("PAUSE", "RESUME", "PAUSE", "APPROVE"):
        bench.send(kind)
    planner.may_answer.set()
    await planner.asked()
    planner.may_answer.set()
    assert await bench.end(task) is GOAL
    assert (await bench.pauses.list(who=bench.who())).rows == ()


@pytest.mark.parametrize("type", ["RESUME", "APPROVE", "REJECT"])
async def test_an_answer_without_a_question_ends_the_run(bench: Any, type: str) -> None:
    """The rest of its batch is lost with the run."""
    task = bench.begin(planner := Stops(CALL))
    await planner.asked()
    bench.send("USER_MESSAGE", {"message": "before"})
    bench.send(type)
    bench.send("USER_MESSAGE", {"message": "after"})
    planner.may_answer.set()
    with pytest.raises(NoOutstandingPauseError, match="run r is not paused"):
        await bench.end(task)
    assert bench.controls == [
        ("USER_MESSAGE", "received"),
        ("USER_MESSAGE", "applied"),
        (type, "received"),
        (type, "failed", "no_outstanding_pause"),
    ]
    assert bench.history == [("USER_MESSAGE", ""), (type, "NoOutstandingPauseError")]


@each_row("type", ["RESUME", "APPROVE", "REJECT"])
async def test_an_answer_without_a_question_may_be_rejected_alone(benches: Benches, type: str) -> None:
    """The rest of its batch and the run go on."""
    bench = benches(control_errors="reject")
    planner = Stops(CALL, GOAL)
    task = bench.begin(planner)
    await planner.asked()
    bench.send(type)
    bench.send("USER_MESSAGE", {"message": "after"})
    for _ in range(2):
        planner.may_answer.set()
        await settle()
    assert await bench.end(task) is GOAL
    assert planner.contexts[1].control.user_messages == ("after",)
    assert bench.history == [(type, "NoOutstandingPauseError"), ("USER_MESSAGE", "")]


async def test_a_run_that_a_bad_control_ends_gives_up_its_pause(bench: Any) -> None:
    """The run has ended, so an answer would have no effect."""
    task = bench.begin(ScriptedPlanner([ASK]))
    pause = await bench.paused()
    bench.send("PRIORITIZE", {"priority": 1})
    with pytest.raises(RunLoopMisconfiguredError):
        await bench.end(task)
    assert (await bench.pauses.status(pause.token, who=bench.who())).decision == "reject"


@each_row("priority", [900, 900.0, 0, -1000])
async def test_prioritize_reaches_the_task(benches: Benches, priority: float) -> None:
    """Whole numbers, however they are written; the last of a batch counts."""
    bus = MemoryEventBus()
    tasks = InProcessTaskRegistry(bus=bus)
    who = Quadruple("t", "u", "s")
    handle = await tasks.spawn(SpawnRequest(identity=who, kind=TaskKind.FOREGROUND, priority=5))
    bench = benches(task_registry=tasks)
    planner = Stops(CALL, GOAL)
    task = bench.begin(planner, task_id=handle.id)
    await planner.asked()
    bench.send("PRIORITIZE", {"priority": 7})
    bench.send("PRIORITIZE", {"priority": priority})
    for _ in range(2):
        planner.may_answer.set()
        await settle()
    await bench.end(task)
    assert (await tasks.get(handle.id, who=who)).priority == priority
    await tasks.aclose()
    await bus.aclose()


@each_row("payload", [None, {}, {"priority": 1.5}, {"priority": "9"}, {"priority": True}, {"prio": 9}])
async def test_prioritize_needs_a_whole_number(benches: Benches, payload: Any) -> None:
    """Anything else ends the run, and names what is missing."""
    bus = MemoryEventBus()
    bench = benches(task_registry=InProcessTaskRegistry(bus=bus))
    task = bench.begin(planner := Stops(CALL), task_id="t")
    await planner.asked()
    bench.send("PRIORITIZE", payload)
    planner.may_answer.set()
    with pytest.raises(PayloadInvalidError, match=r"payload\.priority") as caught:
        await bench.end(task)
    assert caught.value.bound == "priority"
    assert bench.controls[-1] == ("PRIORITIZE", "failed", "payload_invalid")
    await bus.aclose()


@each_row(
    "has_tasks, task_id, error, code",
    [
        (False, "t", RunLoopMisconfiguredError, "misconfigured"),
        (True, "", PayloadInvalidError, "payload_invalid"),
        (True, "nobody", Exception, "apply_failed"),
    ],
)
async def test_prioritize_needs_a_registry_and_a_task(
    benches: Benches, has_tasks: bool, task_id: str, error: type[Exception], code: str
) -> None:
    """Each is named by a code of its own."""
    bus = MemoryEventBus()
    bench = benches(task_registry=InProcessTaskRegistry(bus=bus) if has_tasks else None)
    task = bench.begin(planner := Stops(CALL), task_id=task_id)
    await planner.asked()
    bench.send("PRIORITIZE", {"priority": 1})
    planner.may_answer.set()
    with pytest.raises(error):
        await bench.end(task)
    assert bench.controls[-1] == ("PRIORITIZE", "failed", code)
    await bus.aclose()


async def test_controls_are_published_and_kept_in_order(bench: Any) -> None:
    """Received, then applied, one after the other, in the order in which they were sent."""
    planner = Stops(CALL, GOAL)
    task = bench.begin(planner)
    await planner.asked()
    sent = ["USER_MESSAGE", "PAUSE", "INJECT_CONTEXT", "RESUME", "REDIRECT"]
    for kind in sent:
        bench.send(kind, {"goal": "x", "message": "y"})
    for _ in range(2):
        planner.may_answer.set()
        await settle()
    await bench.end(task)
    assert bench.controls == [pair for kind in sent for pair in ((kind, "received"), (kind, "applied"))]
    assert bench.history == [(kind, "") for kind in sent]


async def test_the_history_is_bounded_and_stamped(benches: Benches) -> None:
    """The newest lines stay, each with its time on the loop's clock."""
    bench = benches(max_control_history=3)
    task = bench.begin(ScriptedPlanner([ASK, GOAL]))
    await settle()
    for index in range(5):
        bench.clock.advance(1)
        bench.send("USER_MESSAGE", {"message": str(index)})
        await settle()
    bench.send("RESUME")
    await bench.end(task)
    lines = bench.loop.control_history("s", who=bench.who().identity)
    assert [(line.type, line.run_id) for line in lines] == [
        (ControlType.USER_MESSAGE, "r"),
        (ControlType.USER_MESSAGE, "r"),
        (ControlType.RESUME, "r"),
    ]
    assert [(line.applied_at - bench.clock.now()).total_seconds() for line in lines] == [-1, 0, 0]


class BrokenBus(MemoryEventBus):
    """Refuses everything."""

    def publish_nowait(self, event: Event) -> Event:
        raise OSError("no wire")


async def test_a_bus_that_refuses_does_not_stop_a_run(benches: Benches, caplog: pytest.LogCaptureFixture) -> None:
    """Publishing is best effort: it is logged, and controls are applied and kept."""
    bench = benches(bus=BrokenBus())
    task = bench.begin(ScriptedPlanner([ASK, GOAL]))
    await bench.paused()
    with caplog.at_level(logging.WARNING):
        bench.send("RESUME")
        assert await bench.end(task) is GOAL
    assert "run r: control.applied was not published: no wire" in caplog.text
    assert bench.history == [("RESUME", "")]
