"""Whatever makes no sense is refused by name, and neither the run nor the runtime is worse for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from harborage.identity import Identity, IdentityRequiredError, Quadruple
from harborage.planner import (
    AwaitTask,
    CallParallel,
    CallTool,
    Finish,
    FinishReason,
    JoinKind,
    JoinSpec,
    ParallelObservation,
    PauseReason,
    RequestPause,
    SpawnSpec,
    SpawnTask,
)
from harborage.runtime.durable.engine import RunFailedError, RunNotFoundError
from harborage.runtime.steering import (
    ControlEvent,
    ControlType,
    InvalidScopeError,
    PayloadInvalidError,
    Scope,
    ScopeMismatchError,
    UnknownControlTypeError,
    UnsupportedPayloadValueError,
)
from harborage.testing.clock import settle
from harborage.testing.planners import RecordingPlanner, ScriptedPlanner
from harborage.tools import SideEffect, ToolPolicy, tool
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
GOAL = Finish(FinishReason.GOAL, "done")
ASK = RequestPause(PauseReason.AWAIT_INPUT)
ONCE = ToolPolicy(max_retries=0)
Runtimes = Callable[..., Awaitable[Any]]


@tool(effects=SideEffect.WRITE, policy=ONCE)
async def write(text: str) -> str:
    """Write."""
    return text


@tool(policy=ONCE)
async def unspeakable() -> Any:
    """Something without a JSON form."""
    return {"deep": [object()]}


@tool(policy=ONCE)
async def endless() -> Any:
    """Something that contains itself."""
    value: list[Any] = []
    value.append(value)
    return value


@tool(policy=ONCE)
async def quits() -> None:
    """End the process."""
    raise SystemExit(3)


TOOLS = (write, unspeakable, endless, quits)


def last(run: Any) -> Finish:
    """Finish with the last observation."""
    return Finish(FinishReason.GOAL, run.trajectory.steps[-1].observation)


@each_row(
    "decision, words",
    [
        (CallTool("nope"), ["no tool 'nope'"]),
        (CallTool("WRITE", b'{"text":"a"}'), ["no tool 'WRITE'"]),
        (CallTool("write"), ["write", "text"]),
        (CallTool("write", b'{"text":1}'), ["write", "text"]),
        (CallTool("write", b'{"text":"a","more":1}'), ["write", "more"]),
        (CallTool("write", b"[]"), ["write"]),
        (CallTool("write", b""), ["write"]),
        (CallTool("write", b"{"), ["write"]),
        (CallTool("write", b"\xff"), ["write"]),
        (CallTool("unspeakable"), ["could not be JSON-encoded", "observation.deep[0]"]),
        (CallTool("endless"), ["could not be JSON-encoded"]),
        (CallTool("quits"), ["quits"]),
        (CallParallel((CallTool("write", b'{"text":"a"}'),) * 51), ["parallel dispatch", "50"]),
        (CallParallel((CallTool("write"),), JoinSpec(JoinKind.N, n=0)), ["parallel dispatch", "join n"]),
        (CallParallel((CallTool("write"),), JoinSpec("sideways")), ["parallel dispatch", "unknown join"]),
        (CallParallel((CallTool("nope"),), JoinSpec(JoinKind.FIRST_SUCCESS)), ["parallel dispatch", "nope"]),
        (AwaitTask("nobody"), ["nobody"]),
    ],
    ids=repr,
)
async def test_a_decision_that_cannot_be_carried_out_is_an_observation(
    runtimes: Runtimes, decision: Any, words: list[str]
) -> None:
    """It names what is wrong; the planner is asked again, and the run goes on."""
    planner = RecordingPlanner(ScriptedPlanner([decision, last]))
    bench = await runtimes(planner, tools=TOOLS)
    observed = (await bench.run()).payload
    error = observed.error if isinstance(observed, ParallelObservation) else observed["error"]
    assert all(word in error for word in words), observed
    assert [step.action for step in planner.contexts[1].trajectory.steps] == [decision]
    assert await bench.run() is not None


@each_row(
    "answer, words",
    [
        (None, ["InvalidDecisionError", "None is not a decision"]),
        ("CallTool", ["InvalidDecisionError", "a str is not a decision"]),
        ({"type": "CallTool", "tool": "write"}, ["InvalidDecisionError", "a dict"]),
        (CallTool(""), ["InvalidDecisionError", "names no tool"]),
        (CallParallel(()), ["InvalidDecisionError", "no branches"]),
        (CallParallel((CallTool("write"), CallTool(""))), ["InvalidDecisionError", "branch 1 names no tool"]),
        (CallParallel(("write",)), ["InvalidDecisionError", "branch 0 is a str"]),
        (SpawnTask("sideways"), ["InvalidDecisionError", "'sideways'"]),
        (SpawnTask(spec=SpawnSpec(priority=1001)), ["InvalidDecisionError", "1001"]),
        (AwaitTask(""), ["InvalidDecisionError", "no task id"]),
        (RequestPause("tea time"), ["InvalidDecisionError", "'tea time'"]),
        (Finish("maybe"), ["InvalidDecisionError", "'maybe'"]),
        (Finish(FinishReason.GOAL, {"a": {1: object()}}), ["UnserializableError", "plan.result.decision.payload.a"]),
        (RequestPause(PauseReason.AWAIT_INPUT, {"a": object()}), ["UnserializableError", "payload.a"]),
        (RequestPause(PauseReason.AWAIT_INPUT, {"a": "x" * 5000}), ["PayloadInvalidError", "4096"]),
        (RequestPause(PauseReason.AWAIT_INPUT, {str(n): n for n in range(65)}), ["PayloadInvalidError", "64"]),
        (CallTool("half a pair \ud800"), ["UnserializableError", "plan.result.decision.tool"]),
    ],
)
async def test_an_answer_that_is_no_decision_ends_its_run_alone(
    runtimes: Runtimes, answer: Any, words: list[str]
) -> None:
    """The error names it, the task fails with it, nothing was done or is waited for, and other runs are fine."""
    planner = ScriptedPlanner([lambda run: answer], by_query={"fine": [GOAL]})
    bench = await runtimes(planner, tools=TOOLS)
    other = await bench.start("fine")
    run = await bench.start()
    with pytest.raises(RunFailedError) as caught:
        await bench.end(run)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert (await bench.rt.tasks.get(run.id, who=ME)).error.code == "runloop_error"
    assert bench.types("tool.") == []
    assert await run.waiting() == []
    assert await bench.end(other) == GOAL


def control(who: Quadruple, **fields: Any) -> ControlEvent:
    parts = {"type": ControlType.USER_MESSAGE, "identity": who, "caller_scope": Scope.ADMIN, "caller_tenant": "t"}
    return ControlEvent(**{**parts, "payload": {"message": "x"}, **fields})


MINE = Quadruple("t", "u", "s", "MINE")
CONTROLS: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "unknown type": ({"type": "DANCE"}, UnknownControlTypeError),
    "empty type": ({"type": ""}, UnknownControlTypeError),
    "unknown scope": ({"caller_scope": "god"}, InvalidScopeError),
    "low scope": ({"type": ControlType.PRIORITIZE, "caller_scope": Scope.OWNER_USER}, ScopeMismatchError),
    "foreign tenant": ({"caller_tenant": "t2", "caller_scope": Scope.OWNER_USER}, ScopeMismatchError),
    "no tenant": ({"caller_tenant": "", "caller_scope": Scope.OWNER_USER}, ScopeMismatchError),
    "another run": ({"identity": Quadruple("t", "u", "s", "other")}, IdentityRequiredError),
    "another session": ({"identity": msgspec.structs.replace(MINE, session_id="s2")}, IdentityRequiredError),
    "no identity": ({"identity": Quadruple()}, IdentityRequiredError),
    "no run": ({"identity": Quadruple("t", "u", "s", "")}, IdentityRequiredError),
    "stamped": ({"enqueued_at": "now"}, PayloadInvalidError),
    "too large": ({"payload": {str(n): "x" * 4000 for n in range(5)}}, PayloadInvalidError),
    "too deep": ({"payload": {"a": {"b": {"c": {"d": {"e": {"f": {}}}}}}}}, PayloadInvalidError),
    "bytes": ({"payload": {"a": b"x"}}, UnsupportedPayloadValueError),
    "an object": ({"payload": {"a": object()}}, UnsupportedPayloadValueError),
    "a number as key": ({"payload": {1: "x"}}, UnsupportedPayloadValueError),
}


@each_row("case", CONTROLS)
async def test_a_control_that_makes_no_sense_does_not_reach_its_run(runtimes: Runtimes, case: str) -> None:
    """It is refused where it is sent, and never reaches the run; the next valid one does."""
    fields, error = CONTROLS[case]
    planner = RecordingPlanner(ScriptedPlanner([ASK, GOAL]))
    bench = await runtimes(planner)
    run = await bench.start()
    await bench.paused(run)
    wrong = dict(fields)
    if "identity" in wrong and wrong["identity"].run_id == "MINE":
        wrong["identity"] = msgspec.structs.replace(wrong["identity"], run_id=run.id)
    with pytest.raises(error):
        await bench.rt.parts.engine.send(run.id, control(run.who, **wrong))
    await settle()
    assert bench.controls == []
    assert await run.message("hello")
    await run.resume()
    assert await bench.end(run) == GOAL
    assert planner.contexts[1].control.user_messages == ("hello",)


async def test_a_foreign_admin_may_steer(runtimes: Runtimes) -> None:
    """Across tenants it takes the admin scope, and nothing less."""
    bench = await runtimes([ASK, GOAL])
    run = await bench.start()
    await bench.paused(run)
    far = control(run.who, type=ControlType.RESUME, caller_tenant="t2", payload=None)
    assert await bench.rt.parts.engine.send(run.id, far)
    assert await bench.end(run) == GOAL


async def test_a_run_that_is_not_there_takes_nothing(runtimes: Runtimes) -> None:
    """Neither looks nor controls."""
    bench = await runtimes([GOAL])
    engine = bench.rt.parts.engine
    for attempt in (
        engine.send("nobody", control(Quadruple("t", "u", "s", "nobody"))),
        engine.result("nobody"),
        engine.status("nobody"),
        engine.history("nobody"),
        engine.cancel("nobody"),
    ):
        with pytest.raises(RunNotFoundError, match="nobody"):
            await attempt


async def test_the_question_of_another_user_cannot_be_answered(runtimes: Runtimes) -> None:
    """A pause belongs to its owner; others are refused by the coordinator, and it stays open."""
    bench = await runtimes([ASK, GOAL])
    run = await bench.start()
    pause = await bench.paused(run)
    for who in (Identity("t2", "u", "s"), Identity("t", "u2", "s"), Identity("t", "u", "s2")):
        with pytest.raises(Exception, match=r".+"):
            await bench.rt.pauses.resume(pause.token, "approve", who=who)
    assert [one.token for one in await run.waiting()] == [pause.token]
    await run.resume()
    assert await bench.end(run) == GOAL
