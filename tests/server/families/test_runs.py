"""What happened in a run, step by step, over the wire: rows, one step whole, who may read it, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from harborage.artifacts import ArtifactScope
from harborage.events import EventType
from harborage.identity import Identity
from harborage.llm import CompleteRequest, CompleteResponse
from harborage.planner import (
    CallParallel,
    CallTool,
    Finish,
    FinishReason,
    PauseReason,
    RequestPause,
    RunContext,
    SpawnSpec,
    SpawnTask,
)
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.host import Runtime
from harborage.runtime.loop.limits import Limits
from harborage.runtime.run import Run
from harborage.server.application import Server
from harborage.server.services import ServerOptions
from harborage.store import EventQuery
from harborage.testing.llm import calls_tools, says
from harborage.tools import SideEffect, tool
from tests.kit.tables import each_row
from tests.kit.wire import ADA, BEN, EVE, WITHIN_S, HeaderGate, Wire

pytestmark = pytest.mark.anyio

NO_TIME = "0001-01-01T00:00:00Z"
OTHER_SESSION = Identity(ADA.tenant_id, ADA.user_id, "s-9")
DONE = Finish(FinishReason.GOAL, "ok")


@tool(effects=SideEffect.READ)
async def look(at: int) -> int:
    """Look."""
    return at


@tool(effects=SideEffect.WRITE)
async def write(text: str, key: str = "", api_key: str = "") -> dict[str, str]:
    """Write."""
    return {"text": text, "password": "hunter2"}


@tool(effects=SideEffect.READ)
async def big(size: int) -> str:
    """Give a large result."""
    return "x" * size


@tool(effects=SideEffect.READ)
async def fail() -> str:
    """Fail."""
    raise ValueError("no luck")


TOOLS: list[Any] = [look, write, big, fail]


class Model:
    """Looks, looks twice at once, writes, and answers."""

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        """Decide by how many calls there were."""
        match sum(len(message.tool_calls) for message in request.messages):
            case 0:
                return calls_tools(("look", {"at": 1}))
            case 1:
                return calls_tools(("look", {"at": 2}), ("look", {"at": 3}))
            case 3:
                return calls_tools(("write", {"text": "w", "api_key": "sk-very-secret"}))
            case _:
                return says("done")

    async def close(self) -> None: ...


class Steps:
    """A planner of one's own, which decides by how many steps there are."""

    def __init__(self, *decisions: Any) -> None:
        self.decisions = decisions

    async def next(self, run: RunContext) -> Any:
        """Return the decision of this step."""
        assert run.trajectory is not None
        if run.goal == "child":
            return DONE
        pauses = sum(one.kind == "resumed" for one in run.trajectory.steering_inputs)
        return self.decisions[len(run.trajectory.steps) + pauses]


Serving = Callable[..., Any]


@pytest.fixture(params=["memory", "sqlite"])
def serving(request: pytest.FixtureRequest, tmp_path: Any) -> Serving:
    """Opens a server over a runtime of these parts, in memory and over SQLite."""
    storage = "memory:" if request.param == "memory" else f"sqlite:{tmp_path}/runs.db"

    @asynccontextmanager
    async def serve(*, options: ServerOptions = ServerOptions(), **parts: Any) -> AsyncIterator[tuple[Runtime, Wire]]:  # noqa: B008
        async with Runtime(tools=TOOLS, storage=storage, **parts) as runtime:
            yield runtime, Wire(Server(runtime, gate=HeaderGate(), options=options))

    return serve


async def ended(runtime: Runtime, goal: str = "the goal", who: Identity = ADA, **options: Any) -> Run:
    run = await runtime.start(goal, who=who, **options)
    await run.finished()
    return run


async def until(wire: Wire, run: Run, is_so: Callable[[Any], bool]) -> Any:
    """Read the steps of a run until they are so."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            steps = (await wire.post("runs.steps", {"id": run.id})).json
            if is_so(steps):
                return steps
            await asyncio.sleep(0)


# ── runs.steps ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_steps_of_a_run_over_a_model(serving: Serving) -> None:
    """A header, a row a step, and in it its calls with what they were made with and what they brought."""
    async with serving(model=Model()) as (runtime, wire):
        run = await ended(runtime, limits=Limits(steps=20, cost=None, tokens=1_000_000))
        answer = (await wire.post("runs.steps", {"id": run.id})).json
    header, steps = answer["run"], answer["steps"]
    assert answer["protocol_version"] == "0.1.0"
    assert answer["more"] is False
    assert header["identity"] == {"tenant": "acme", "user": "ada", "session": "s-1", "run": run.id}
    assert (header["goal"], header["status"], header["rehearsal"]) == ("the goal", "complete", False)
    assert header["limits"] == {"steps": 20, "tokens": 1_000_000}
    assert header["ended_at"] > header["started_at"] > NO_TIME
    assert header["active_ms"] >= 0
    assert not header.keys() & {"condition", "error_class", "forked_from", "parent"}
    assert header["totals"] | {"prompt_tokens": 0, "completion_tokens": 0} == {
        "steps": 4,
        "tool_calls": 4,
        "model_calls": 4,
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "reasoning_tokens": 0,
        "cached_tokens": 0,
        "usd": 0.0,
    }
    assert [one["step"] for one in steps] == [1, 2, 3, 4]
    assert [one["decision"] for one in steps] == ["CallTool", "CallParallel", "CallTool", "Finish"]
    assert {one["status"] for one in steps} == {"done"}
    assert steps[0]["preview"] == 'look({"at":1})'
    assert [one["call_id"] for step in steps for one in step["calls"]] == ["1", "2.1", "2.2", "3"]
    assert [one.get("branch") for one in steps[1]["calls"]] == [1, 2]
    (written,) = steps[2]["calls"]
    assert (written["tool"], written["side_effect"], written["status"]) == ("write", "write", "done")
    assert written["attempts"] == 1
    assert written["key"].startswith(run.id)
    assert not written.keys() & {"args", "result", "branch", "error"}
    assert all(one["started_at"] <= one["decided_at"] <= one["ended_at"] for one in steps)
    assert [steps[0][name] for name in ("children", "waits")] == [[], []]


async def test_a_page_of_steps(serving: Serving) -> None:
    """`after` is the step before the first one, `more` says that others follow; past the end there are none."""
    async with serving(planner=Steps(*[CallTool("look", b'{"at":1}')] * 9, DONE)) as (runtime, wire):
        run = await ended(runtime)
        pages = [
            (await wire.post("runs.steps", {"id": run.id, "after": after, "limit": limit})).json
            for after, limit in ((0, 4), (4, 4), (8, 4), (0, 0), (10, 4), (99, 4))
        ]
    assert [[one["step"] for one in page["steps"]] for page in pages] == [
        [1, 2, 3, 4],
        [5, 6, 7, 8],
        [9, 10],
        [*range(1, 11)],
        [],
        [],
    ]
    assert [page["more"] for page in pages] == [True, True, False, False, False, False]


async def test_a_long_run_is_read_in_one_answer() -> None:
    """A thousand steps are one page, and its end is a short one."""
    planner = Steps(*[CallTool("look", b'{"at":1}')] * 999, DONE)
    async with Runtime(planner=planner, tools=TOOLS, storage="memory:") as runtime:
        wire = Wire(Server(runtime, gate=HeaderGate()))
        run = await ended(runtime, max_steps=1000)
        whole = (await wire.post("runs.steps", {"id": run.id, "limit": 1000})).json
        assert (len(whole["steps"]), whole["more"]) == (1000, False)
        last = (await wire.post("runs.steps", {"id": run.id, "after": 990})).json
        assert [one["step"] for one in last["steps"]] == [*range(991, 1001)]
        assert (await wire.post("runs.steps", {"id": run.id, "limit": 1001})).status == 400


async def test_a_call_that_waits_for_approval(serving: Serving) -> None:
    """While it waits its step does, with the token, the deadline and what happens then; after it with who answered."""
    async with serving(model=Model(), approvals={"write": AlwaysDeny()}) as (runtime, wire):
        run = await runtime.start("the goal", who=ADA)
        waiting = await until(wire, run, lambda one: one["steps"] and one["steps"][-1]["waits"])
        (pause,) = await run.waiting()
        last = waiting["steps"][-1]
        assert (last["step"], last["status"], last["decision"]) == (3, "waiting", "CallTool")
        assert last["ended_at"] == NO_TIME
        (wait,) = last["waits"]
        assert (wait["reason"], wait["token"], wait["call_id"]) == ("approval_required", pause.token, "3")
        assert (wait["default"], wait["settled_at"]) == ("reject", NO_TIME)
        assert wait["deadline"] > wait["opened_at"]
        assert last["calls"][0]["status"] == "open"
        await run.approve(pause.token)
        await run.finished()
        after = (await wire.post("runs.steps", {"id": run.id})).json
    (wait,) = after["steps"][2]["waits"]
    assert wait["decision"] == "approve"
    assert wait["by"] == {"tenant": "acme", "user": "ada", "session": "s-1"}
    assert wait["settled_at"] >= wait["opened_at"]
    (control,) = after["controls"]
    assert (control["type"], control["outcome"], control["step"]) == ("APPROVE", "applied", 3)
    assert control["event_id"]
    assert after["steps"][2]["calls"][0]["status"] == "done"


async def test_a_call_that_was_rejected(serving: Serving) -> None:
    """It was not made; its step is done, and says why."""
    async with serving(model=Model(), approvals={"write": AlwaysDeny()}) as (runtime, wire):
        run = await runtime.start("the goal", who=ADA)
        await until(wire, run, lambda one: one["steps"] and one["steps"][-1]["waits"])
        await run.reject("not today")
        await run.finished()
        step = (await wire.post("runs.steps", {"id": run.id})).json["steps"][2]
    (call,) = step["calls"]
    assert (call["status"], call["attempts"], call["error"]["class"]) == ("rejected", 0, "rejected")
    assert "not today" in call["error"]["message"]
    assert step["waits"][0]["decision"] == "reject"


async def test_a_pause_of_the_planner_and_controls(serving: Serving) -> None:
    """Controls say what became of them and before which step; a pause is its step's."""
    planner = Steps(RequestPause(PauseReason.AWAIT_INPUT, {"question": "which?"}), CallTool("look", b'{"at":1}'), DONE)
    async with serving(planner=planner) as (runtime, wire):
        run = await runtime.start("the goal", who=ADA)
        waiting = await until(wire, run, lambda one: one["steps"] and one["steps"][-1]["waits"])
        assert waiting["steps"][0]["status"] == "waiting"
        assert waiting["run"]["active_ms"] >= 0
        await run.answer("this one")
        await run.finished()
        after = (await wire.post("runs.steps", {"id": run.id})).json
    first = after["steps"][0]
    assert (first["decision"], first["status"]) == ("RequestPause", "done")
    assert first["waits"][0]["reason"] == "await_input"
    assert first["waits"][0]["decision"] == "resume"
    (control,) = after["controls"]
    assert (control["type"], control["outcome"]) == ("RESUME", "applied")


async def test_a_failed_call_and_a_refused_control(serving: Serving) -> None:
    """A call that failed makes its step a failed one; a control that could not be applied says its code."""
    planner = Steps(CallTool("fail", b"{}"), RequestPause(PauseReason.AWAIT_INPUT), DONE)
    async with serving(planner=planner) as (runtime, wire):
        run = await runtime.start("the goal", who=ADA)
        await until(wire, run, lambda one: len(one["steps"]) == 2 and one["steps"][-1]["waits"])
        await run.resume()
        await run.finished()
        answer = (await wire.post("runs.steps", {"id": run.id})).json
    failed = answer["steps"][0]
    assert failed["status"] == "failed"
    assert failed["calls"][0]["status"] == "failed"
    assert "no luck" in failed["calls"][0]["error"]["message"]
    assert "result_preview" not in failed["calls"][0]


async def test_a_run_that_started_another(serving: Serving) -> None:
    """The step names the child and waits for it; the child names its parent and the step that started it."""
    planner = Steps(SpawnTask(spec=SpawnSpec(query="child", description="help", retain_turn=True)), DONE)
    async with serving(planner=planner) as (runtime, wire):
        run = await ended(runtime)
        step = (await wire.post("runs.steps", {"id": run.id})).json["steps"][0]
        (child,) = step["children"]
        assert child["description"] == "help"
        assert [one["reason"] for one in step["waits"]] == ["child"]
        below = (await wire.post("runs.steps", {"id": child["id"]})).json["run"]
    assert below["parent"] == {"id": run.id, "step": 1}


async def test_a_run_that_failed(serving: Serving) -> None:
    """The step in which the planner failed says with what, and the header the class of the error."""
    async with serving(planner=Steps(CallTool("look", b'{"at":1}'))) as (runtime, wire):
        run = await runtime.start("the goal", who=ADA)
        with pytest.raises(Exception, match="failed"):
            await run.finished()
        answer = (await wire.post("runs.steps", {"id": run.id})).json
    assert answer["run"]["status"] == "failed"
    assert answer["run"]["error_class"]
    last = answer["steps"][-1]
    assert (last["status"], "decision" in last) == ("failed", False)
    assert last["error"]["class"]
    assert last["error"]["message"]


# ── runs.step ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_one_step_shows_what_the_planner_saw_and_said(serving: Serving) -> None:
    """The messages that are new since the call before, the tools where they changed, the settings and the answer."""
    async with serving(model=Model()) as (runtime, wire):
        run = await ended(runtime)
        first, second, full = [
            (await wire.post("runs.step", {"id": run.id, "step": step, "full": full})).json
            for step, full in ((1, False), (2, False), (2, True))
        ]
    (ask,) = first["saw"]["asks"]
    assert ask["unchanged"] == 0
    assert [one["role"] for one in ask["messages"]] == ["system", "user"]
    assert {one["name"] for one in ask["tools"]} >= {"look", "write"}
    assert ask["answer"]["tool_calls"][0]["args"] == {"at": 1}
    assert first["said"]["decision"] == "CallTool"
    assert first["said"]["value"]["args"] == {"at": 1}
    (ask,) = second["saw"]["asks"]
    assert (ask["unchanged"], "tools" in ask) == (2, False)
    assert [one["role"] for one in ask["messages"]] == ["assistant", "tool"]
    assert ask["messages"][0]["tool_calls"][0]["name"] == "look"
    assert ask["messages"][1]["parts"] == [{"type": "text", "text": "1"}]
    (ask,) = full["saw"]["asks"]
    assert (ask["unchanged"], len(ask["messages"]), "tools" in ask) == (0, 4, True)
    calls = second["step"]["calls"]
    assert [(one["args"], one["result"]) for one in calls] == [({"at": 2}, 2), ({"at": 3}, 3)]


async def test_a_planner_without_a_model_saw_no_prompts(serving: Serving) -> None:
    """Then `saw` is absent; what it decided is there."""
    decision = CallParallel((CallTool("look", b'{"at":1}'), CallTool("look", b'{"at":2}')))
    async with serving(planner=Steps(decision, DONE)) as (runtime, wire):
        run = await ended(runtime)
        one = (await wire.post("runs.step", {"id": run.id, "step": 1})).json
        last = (await wire.post("runs.step", {"id": run.id, "step": 2})).json
    assert "saw" not in one
    assert [branch["args"] for branch in one["said"]["value"]["branches"]] == [{"at": 1}, {"at": 2}]
    assert last["said"] == {"decision": "Finish", "value": {"reason": "goal", "payload": "ok"}}


async def test_a_step_without_a_call_shows_what_it_brought(serving: Serving) -> None:
    """Such as the end of a run that it started and waited for."""
    planner = Steps(SpawnTask(spec=SpawnSpec(query="child", retain_turn=True)), DONE)
    async with serving(planner=planner) as (runtime, wire):
        run = await ended(runtime)
        step = (await wire.post("runs.step", {"id": run.id, "step": 1})).json
    assert step["observation"]["status"] == "complete"


async def test_masked_values_stay_masked(serving: Serving) -> None:
    """In previews, in whole values, in prompts and in answers; `masked` says that something was."""
    async with serving(model=Model()) as (runtime, wire):
        run = await ended(runtime, goal="use Bearer abc.def.ghi")
        listed = await wire.post("runs.steps", {"id": run.id})
        steps = [await wire.post("runs.step", {"id": run.id, "step": at, "full": True}) for at in (1, 2, 3, 4)]
    (call,) = steps[2].json["step"]["calls"]
    assert call["masked"] is True
    assert call["args"] == {"text": "w", "api_key": "***"}
    assert call["result"] == {"text": "w", "password": "***"}
    assert "masked" not in steps[0].json["step"]["calls"][0]
    for reply in (listed, *steps):
        assert b"sk-very-secret" not in reply.body
        assert b"abc.def.ghi" not in reply.body
    assert b"hunter2" not in listed.body + b"".join(one.body for one in steps[:3])


async def test_heavy_values_are_cut(serving: Serving) -> None:
    """A result that the artifact store has names it, one that it does not have its size; a preview is short."""
    planner = Steps(CallTool("big", b'{"size":40000}'), CallTool("big", b'{"size":600}'), DONE)
    async with serving(planner=planner, options=ServerOptions(heavy_bytes=500)) as (runtime, wire):
        run = await ended(runtime)
        stored, large = [
            (await wire.post("runs.step", {"id": run.id, "step": at})).json["step"]["calls"][0] for at in (1, 2)
        ]
        cut = stored["result_cut"]
        reference = cut["artifact_ref"]
        kept = await runtime.artifacts.get(ArtifactScope.of(ADA), reference["id"])
    assert "result" not in stored
    assert (cut["bytes"], reference["size"], reference["mime"]) == (40002, 40002, "application/json")
    assert len(cut["preview"]) <= 256
    assert kept is not None
    assert len(kept) == 40002
    assert large["result_cut"] == {"preview": "x" * 256, "bytes": 602}
    assert stored["args"] == {"size": 40000}
    assert len(stored["result_preview"]) <= 160


# ── Who, and what is refused ──────────────────────────────────────────────────────────────────────────────────────────


async def audits(runtime: Runtime) -> int:
    found = await runtime.parts.store.events(EventQuery(types=(str(EventType.AUDIT_ADMIN_SCOPE_USED),)))
    return len(found)


@each_row(
    "owner, scopes, status",
    [
        (ADA, (), 200),
        (OTHER_SESSION, (), 404),
        (OTHER_SESSION, ("console:fleet",), 200),
        (OTHER_SESSION, ("admin",), 200),
        (BEN, (), 404),
        (BEN, ("console:fleet",), 200),
        (BEN, ("admin",), 200),
        (EVE, (), 404),
        (EVE, ("console:fleet",), 404),
        (EVE, ("admin",), 200),
    ],
)
async def test_who_may_read_a_run(owner: Identity, scopes: tuple[str, ...], status: int) -> None:
    """One's own needs no scope; a read beyond it needs one, is audited, and without it there is no such run."""
    async with Runtime(planner=Steps(DONE), storage="memory:") as runtime:
        wire = Wire(Server(runtime, gate=HeaderGate()))
        run = await ended(runtime, who=owner)
        for number, method in enumerate(("runs.steps", "runs.step"), 1):
            body = {"id": run.id, **({"step": 1} if method == "runs.step" else {})}
            reply = await wire.post(method, body, scopes=scopes)
            assert reply.status == status, method
            if status == 404:
                assert reply.code == "not_found"
                assert reply.json["message"] == f"no run {run.id!r} here"
            assert await audits(runtime) == (number if status == 200 and owner != ADA else 0)


@each_row(
    "method, body, status, code, said",
    [
        ("runs.steps", {}, 400, "invalid_request", "id"),
        ("runs.steps", {"id": " "}, 400, "invalid_request", "id"),
        ("runs.steps", {"id": "RUN", "after": -1}, 400, "invalid_request", "after"),
        ("runs.steps", {"id": "RUN", "limit": -1}, 400, "invalid_request", "limit"),
        ("runs.steps", {"id": "RUN", "limit": 1001}, 400, "invalid_request", "1000"),
        ("runs.steps", {"id": "RUN", "limit": "x"}, 400, "invalid_request", "limit"),
        ("runs.steps", {"id": "RUN", "more": 1}, 400, "invalid_request", "unknown field"),
        ("runs.steps", {"id": "gone"}, 404, "not_found", "gone"),
        ("runs.step", {"id": "", "step": 1}, 400, "invalid_request", "id"),
        ("runs.step", {"id": "RUN"}, 400, "invalid_request", "from 1"),
        ("runs.step", {"id": "RUN", "step": -1}, 400, "invalid_request", "from 1"),
        ("runs.step", {"id": "RUN", "step": 4}, 400, "invalid_request", "steps 1 to 3"),
        ("runs.step", {"id": "gone", "step": 1}, 404, "not_found", "gone"),
        ("runs.step", {"id": "RUN", "step": 1, "identity": {"user": "eve"}}, 401, "identity_required", "user"),
    ],
)
async def test_what_is_refused(method: str, body: dict[str, Any], status: int, code: str, said: str) -> None:
    """Each with its status, its code, and words that name what is wrong."""
    async with Runtime(planner=Steps(*[CallTool("look", b'{"at":1}')] * 2, DONE), tools=TOOLS) as runtime:
        wire = Wire(Server(runtime, gate=HeaderGate()))
        run = await ended(runtime)
        asked = {name: run.id if value == "RUN" else value for name, value in body.items()}
        reply = await wire.post(method, asked)
    assert (reply.status, reply.code) == (status, code), reply.body
    assert said in reply.json["message"]


async def test_a_record_that_cannot_be_read_is_named_and_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run and the entry are said, nothing of what the entry holds."""
    async with Runtime(planner=Steps(DONE), storage="memory:") as runtime:
        wire = Wire(Server(runtime, gate=HeaderGate()))
        run = await ended(runtime)
        store = runtime.parts.store
        entries = await store.entries(run.id)
        damaged = [one.replace(b'"type":"Finish"', b'"type":"sk-secret"') for one in entries]

        async def give(run_id: str, *, after: int = 0) -> list[bytes]:
            return damaged[after:]

        monkeypatch.setattr(store, "entries", give)
        at = next(index for index, one in enumerate(damaged) if b"sk-secret" in one)
        for method in ("runs.steps", "runs.step"):
            reply = await wire.post(method, {"id": run.id, **({"step": 1} if method == "runs.step" else {})})
            assert (reply.status, reply.code) == (500, "runtime_error")
            assert reply.json["message"] == f"the record of run {run.id!r} cannot be read at entry {at}"


async def test_a_task_without_a_record_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose record is not kept any more is as one that never was."""
    async with Runtime(planner=Steps(DONE), storage="memory:") as runtime:
        wire = Wire(Server(runtime, gate=HeaderGate()))
        run = await ended(runtime)

        async def give(run_id: str, *, after: int = 0) -> list[bytes]:
            return []

        monkeypatch.setattr(runtime.parts.store, "entries", give)
        reply = await wire.post("runs.steps", {"id": run.id})
    assert (reply.status, reply.code) == (404, "not_found")
