"""`Run`: watching a run, steering it with every control, and what the handle refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from harborage.errors import InvalidOptionError
from harborage.events import BusConfig, MemoryEventBus, ToolApprovalRequestedPayload
from harborage.identity import Identity
from harborage.planner import (
    CallTool,
    ControlSignals,
    Finish,
    FinishReason,
    PauseReason,
    RequestPause,
    RunContext,
    SpawnSpec,
    SpawnTask,
)
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.durable.engine import RunEndedError, RunNotFoundError, RunPhase
from harborage.runtime.durable.journal import Ended, Started, decode_entries
from harborage.runtime.steering import (
    NoOutstandingPauseError,
    PayloadInvalidError,
    Scope,
    ScopeMismatchError,
    SteeringError,
    UnsupportedPayloadValueError,
)
from harborage.testing.clock import settle
from harborage.testing.planners import RecordingPlanner, ScriptedPlanner
from harborage.tools import tool
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
GOAL = Finish(FinishReason.GOAL, "done")
ASK = RequestPause(PauseReason.AWAIT_INPUT, {"q": 1})
CALL = CallTool("note", b'{"text":"a"}')
Runtimes = Callable[..., Awaitable[Any]]


@tool
async def note(text: str) -> str:
    """Note."""
    return text


async def begun(runtimes: Runtimes, *lines: Any, **parts: Any) -> tuple[Any, Any, RecordingPlanner]:
    """A run of this script that is parked on its first question, and its planner."""
    planner = RecordingPlanner(ScriptedPlanner([ASK, *lines]))
    bench = await runtimes(planner, tools=[note], **parts)
    run = await bench.start()
    await bench.paused(run)
    return bench, run, planner


async def test_the_planner_sees_the_messages(runtimes: Runtimes) -> None:
    """Messages, context and a new goal wait for the next step; the answer to the pause is there with them."""
    bench, run, planner = await begun(runtimes, GOAL)
    assert await run.message("hello")
    assert await run.inject({"k": 1})
    assert await run.redirect("elsewhere")
    assert await run.resume({"answer": 42})
    await bench.end(run)
    seen = planner.contexts[1]
    assert seen.control == ControlSignals(
        user_messages=("hello",), injected_context=({"k": 1},), redirect_goal="elsewhere"
    )
    assert seen.goal == "elsewhere"
    assert seen.trajectory.resume_hint.resume_payload == {"q": 1, "answer": 42, "decision": "resume"}
    assert [one for one in bench.controls if one[1] == "applied"] == [
        ("USER_MESSAGE", "applied"),
        ("INJECT_CONTEXT", "applied"),
        ("REDIRECT", "applied"),
        ("RESUME", "applied"),
    ]


async def test_its_pause_is_answered_by_approve_and_reject_too(runtimes: Runtimes) -> None:
    """With or without the token that `waiting` shows; a rejection ends the run."""
    for is_named in (False, True):
        bench, run, _ = await begun(runtimes, GOAL)
        pause = await bench.paused(run)
        await run.approve(pause.token if is_named else "", reason="fine")
        assert await bench.end(run) == GOAL
        bench, run, _ = await begun(runtimes)
        pause = await bench.paused(run)
        await run.reject("no", token=pause.token if is_named else "")
        assert (await bench.end(run)).reason is FinishReason.CONSTRAINTS_CONFLICT
        assert await run.waiting() == []


async def test_a_call_that_waits_is_answered_by_its_token(runtimes: Runtimes) -> None:
    """With other arguments if the approver says so; what waits shows what is asked."""
    bench = await runtimes([CALL, CALL, GOAL], tools=[note], approvals=AlwaysDeny("ask first"))
    run = await bench.start()
    pause = await bench.paused(run)
    assert (pause.reason, pause.payload["tool"], pause.payload["args_summary"]) == (
        "approval_required",
        "note",
        {"args": {"text": "a"}, "tool": "note"},
    )
    asked = bench.recorder.payloads(ToolApprovalRequestedPayload)[0]
    assert asked.args_summary == pause.payload["args_summary"], "the event and the pause show the same"
    assert (await run.status()).phase is RunPhase.RUNNING
    await run.approve(pause.token, args={"text": "b"})
    second = await bench.paused(run)
    await run.reject("enough", token=second.token)
    await bench.end(run)
    observed = [event.payload for event in bench.recorder.events if event.type.startswith("tool.re")]
    assert [payload.reason for payload in observed] == ["enough"]


async def test_pausing_parks_it_at_the_next_boundary(runtimes: Runtimes) -> None:
    """The planner is not called again until a caller resumes the run."""
    gate = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        await gate.wait()
        return "waited"

    planner = RecordingPlanner(ScriptedPlanner([CallTool("wait"), GOAL]))
    bench = await runtimes(planner, tools=[wait])
    run = await bench.start()
    await settle()
    await run.pause()
    gate.set()
    pause = await bench.paused(run)
    assert pause.payload == {"requested_by": "steering"}
    assert (await run.status()).phase is RunPhase.PARKED
    assert len(planner.calls) == 1
    await run.resume()
    assert await bench.end(run) == GOAL


async def test_its_priority_is_its_tasks(runtimes: Runtimes) -> None:
    """An admin may change it; one outside the range of priorities is refused where it is written."""
    bench, run, _ = await begun(runtimes, GOAL)
    admin = await bench.rt.run(run.id, who=ME, scope=Scope.ADMIN)
    await admin.prioritize(9)
    await settle()
    assert (await bench.rt.tasks.get(run.id, who=ME)).priority == 9
    for wrong in (1001, -1001, 1e300, float("inf"), True, "9"):
        with pytest.raises(InvalidOptionError, match="from -1000 to 1000"):
            await admin.prioritize(wrong)
        with pytest.raises(InvalidOptionError, match="from -1000 to 1000"):
            await bench.rt.tasks.prioritize(run.id, wrong, who=ME)
        with pytest.raises(InvalidOptionError, match="from -1000 to 1000"):
            await bench.rt.start("g", who=ME, priority=wrong)
    assert (await bench.rt.tasks.get(run.id, who=ME)).priority == 9
    await run.resume()
    await bench.end(run)


@pytest.mark.parametrize(("hard", "why"), [(False, "cancel_while_paused"), (True, "hard_cancel")])
async def test_it_is_cancelled_while_it_waits(runtimes: Runtimes, hard: bool, why: str) -> None:
    """Its open pause is withdrawn, and its task has ended."""
    bench, run, _ = await begun(runtimes)
    await run.cancel(hard=hard)
    assert (await bench.end(run)).metadata["steering_reason"] == why
    assert await run.waiting() == []
    assert (await bench.rt.tasks.get(run.id, who=ME)).error.code == "cancelled"


async def test_a_handle_is_an_owners_unless_more_is_asked_for(runtimes: Runtimes) -> None:
    """Of a run that was started, found or forked; what takes an admin is refused, and says what it takes."""
    bench, run, _ = await begun(runtimes, GOAL)
    found = await bench.rt.run(run.id, who=ME)
    forked = await bench.rt.fork(run.id, at=1, who=ME)
    for one in (run, found, forked):
        assert one.scope is Scope.OWNER_USER
        with pytest.raises(ScopeMismatchError, match="PRIORITIZE takes scope admin; the caller has owner_user"):
            await one.prioritize(1)
    admins = [
        await bench.rt.start("g", who=ME, scope=Scope.ADMIN),
        await bench.rt.run(run.id, who=ME, scope=Scope.ADMIN),
        await bench.rt.fork(run.id, at=1, who=ME, scope=Scope.ADMIN),
    ]
    assert [await one.prioritize(1) for one in admins] == [True] * 3


VERBS: dict[str, tuple[Callable[[Any], Awaitable[Any]], str]] = {
    "inject": (lambda run: run.inject({}), "session_user"),
    "message": (lambda run: run.message("x"), "session_user"),
    "redirect": (lambda run: run.redirect("x"), "owner_user"),
    "cancel": (lambda run: run.cancel(), "owner_user"),
    "pause": (lambda run: run.pause(), "owner_user"),
    "resume": (lambda run: run.resume(), "owner_user"),
    "approve": (lambda run: run.approve(), "owner_user"),
    "reject": (lambda run: run.reject(), "owner_user"),
    "prioritize": (lambda run: run.prioritize(1), "admin"),
}


@each_row("scope", Scope)
@each_row("verb", VERBS)
async def test_a_handle_may_do_what_its_scope_allows(runtimes: Runtimes, verb: str, scope: Scope) -> None:
    """What it may not do raises, is announced as rejected, and does not reach the run."""
    ask, needed = VERBS[verb]
    bench, run, _ = await begun(runtimes, GOAL)
    weak = await bench.rt.run(run.id, who=ME, scope=scope)
    if scope >= Scope(needed):
        assert await ask(weak)
        return
    with pytest.raises(ScopeMismatchError):
        await ask(weak)
    (rejected,) = [event.payload for event in bench.recorder.events if event.type == "control.rejected"]
    assert (rejected.reason, rejected.caller_scope) == ("scope_mismatch", str(scope))
    assert bench.controls == []


@each_row(
    "payload, error",
    [
        ({"text": "x" * 5000}, PayloadInvalidError),
        ({"a": {"b": {"c": {"d": {"e": {"f": {}}}}}}}, PayloadInvalidError),
        ({"list": list(range(51))}, PayloadInvalidError),
        ({f"k{index}": index for index in range(65)}, PayloadInvalidError),
        ({"blob": b"bytes"}, UnsupportedPayloadValueError),
        ({"x": float("nan")}, SteeringError),
        ({"x": {1, 2}}, UnsupportedPayloadValueError),
    ],
    ids=["long", "deep", "many items", "many keys", "bytes", "nan", "set"],
)
async def test_a_payload_out_of_bounds_is_refused(
    runtimes: Runtimes, payload: dict[str, Any], error: type[Exception]
) -> None:
    """It is announced as rejected, quotes nothing of it, and the run goes on as if nothing had been sent."""
    bench, run, planner = await begun(runtimes, GOAL)
    with pytest.raises(error):
        await run.inject(payload)
    (rejected,) = [event.payload for event in bench.recorder.events if event.type == "control.rejected"]
    assert (rejected.type, rejected.reason) == ("INJECT_CONTEXT", "payload_invalid")
    await run.resume()
    assert await bench.end(run) == GOAL
    assert planner.contexts[1].control == ControlSignals()


async def test_an_empty_goal_is_no_goal(runtimes: Runtimes) -> None:
    """Nothing is sent."""
    bench, run, _ = await begun(runtimes)
    with pytest.raises(ValueError, match="goal"):
        await run.redirect("")
    await settle()
    assert bench.controls == []


async def test_a_control_that_cannot_be_applied_fails_alone(runtimes: Runtimes) -> None:
    """It is published and recorded as failed; the rest of its batch and the run continue."""
    bench, run, planner = await begun(runtimes, lambda run: CALL, GOAL)
    await run.resume()
    await run.resume()
    await run.message("still here")
    assert await bench.end(run) == GOAL
    assert ("RESUME", "failed", "already_resumed") in bench.controls
    messages = [one.control.user_messages for one in planner.contexts]
    assert ("still here",) in messages
    lines = bench.rt.control_history(who=ME)
    assert [(line.type, type(line.err).__name__) for line in lines] == [
        ("RESUME", "NoneType"),
        ("RESUME", "AlreadyResumedError"),
        ("USER_MESSAGE", "NoneType"),
    ]


@each_row("verb", VERBS)
async def test_a_run_that_is_over_takes_no_controls(runtimes: Runtimes, verb: str) -> None:
    """Each says that it has ended; result and status stay."""
    bench = await runtimes([GOAL])
    run = await bench.start()
    await bench.end(run)
    with pytest.raises(RunNotFoundError, match="has ended"):
        await VERBS[verb][0](run)
    assert (await run.status()).phase is RunPhase.FINISHED
    assert await run.finished() == GOAL


async def test_its_history_is_its_journal(runtimes: Runtimes) -> None:
    """From its beginning to its end."""
    bench = await runtimes([CALL, GOAL], tools=[note])
    run = await bench.start()
    await bench.end(run)
    entries = decode_entries(await run.history(), run.id)
    assert (type(entries[0]), type(entries[-1])) == (Started, Ended)
    assert [entry.name for entry in entries[1:-1]] == [
        "task.begin",
        "plan",
        "tool.note",
        "tool.note",
        "plan",
        "task.end",
    ]


def spawns_one(run: RunContext) -> Any:
    return SpawnTask(spec=SpawnSpec(query="child", retain_turn=True))


@each_row("is_late", [False, True])
@each_row("children", [True, False])
async def test_its_events_are_the_same_for_early_and_late_readers(
    runtimes: Runtimes, is_late: bool, children: bool
) -> None:
    """From spawn to end, with those of its children or without; never another run's."""
    script = ScriptedPlanner([CALL, spawns_one, GOAL], by_query={"child": [CALL, GOAL], "other": [CALL] * 5 + [GOAL]})
    bench = await runtimes(script, tools=[note])
    other = await bench.start("other")
    run = await bench.start()
    if is_late:
        await bench.end(run)
        await bench.end(other)
    events = [event async for event in run.events(children=children)]
    assert (events[0].type, events[-1].type) == ("task.spawned", "task.completed")
    assert [event.sequence for event in events] == sorted({event.sequence for event in events})
    runs = {event.identity.run_id or event.payload.task_id for event in events}
    assert other.id not in runs
    assert (len(runs) > 1) == children
    assert [event.type for event in events].count("tool.completed") == (2 if children else 1)


async def test_leaving_the_stream_frees_its_place(runtimes: Runtimes) -> None:
    """A reader that stops early is forgotten; a session has only so many."""
    _, run, _ = await begun(runtimes, GOAL, bus=MemoryEventBus(config=BusConfig(max_subscribers_per_session=2)))
    for _ in range(5):
        stream = run.events()
        assert (await anext(stream)).type == "task.spawned"
        await stream.aclose()


async def test_events_of_a_forgotten_run_come_to_an_end(runtimes: Runtimes) -> None:
    """A subscriber that comes after the bus has dropped all events gets a notice, and does not wait for ever."""
    bench = await runtimes([GOAL], bus=MemoryEventBus(config=BusConfig(replay_buffer_size=4)))
    run = await bench.start()
    await bench.end(run)
    for _ in range(3):
        await bench.run("other")
    assert [event.type async for event in run.events()] == ["bus.dropped"]


async def test_what_a_run_asks_is_answered_where_it_is_listed(runtimes: Runtimes) -> None:
    """Each open question has its tool, arguments and deadline, and the methods that answer it."""
    script = [CALL, CALL, GOAL]
    bench = await runtimes(ScriptedPlanner(script), tools=[note], approvals={"note": AlwaysDeny()})
    run = await bench.start()
    asked = await run.wait_pending()
    assert (asked.tool, asked.args, asked.run_id) == ("note", {"text": "a"}, run.id)
    assert asked.reason is PauseReason.APPROVAL_REQUIRED
    assert [one.token for one in await run.pending()] == [asked.token]
    await asked.reject("not today")
    again = await run.wait_pending()
    assert again.token != asked.token
    await again.approve(args={"text": "b"})
    assert (await bench.end(run)) == GOAL
    said = [message.text for message in (await run.result()).messages if message.role == "tool"]
    assert said == ["the call of 'note' was rejected: not today", "b"]
    with pytest.raises(NoOutstandingPauseError, match="ended without asking"):
        await run.wait_pending()


async def test_a_question_is_answered_with_a_value(runtimes: Runtimes) -> None:
    """The planner sees it as `answer`; a run that asks nothing takes none."""
    bench, run, planner = await begun(runtimes, GOAL)
    (asked,) = await run.pending()
    assert asked.reason is PauseReason.AWAIT_INPUT
    assert await run.answer(3)
    assert (await bench.end(run)) == GOAL
    with pytest.raises(RunEndedError):
        await run.answer(4)
    assert "3" in str(planner.calls[-1].context.trajectory)
