"""Forks, replays, frozen runs and comparisons over the wire: what they give, who may ask, and what is refused."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from harborage.app.agent import Agent
from harborage.events import EventType
from harborage.identity import Identity
from harborage.llm import CompleteRequest, CompleteResponse
from harborage.planner import (
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
from harborage.runtime.history.freezing import FrozenRun
from harborage.runtime.host import Runtime
from harborage.runtime.run import Run
from harborage.server.application import Server
from harborage.store import EventQuery
from harborage.testing.llm import calls_tools, says
from tests.kit.tables import each_row
from tests.kit.wire import ADA, BEN, EVE, WITHIN_S, HeaderGate, Reader, Reply, Wire, caller_headers
from tests.server.families.test_runs import OTHER_SESSION, TOOLS, Steps, audits, ended, until

pytestmark = pytest.mark.anyio

DONE = Finish(FinishReason.GOAL, "ok")


class Model:
    """Looks, writes, looks again and answers with its instructions."""

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        """Decide by how many calls there were."""
        text = "\n".join(message.content.text or "" for message in request.messages)
        match sum(len(message.tool_calls) for message in request.messages):
            case 0:
                return calls_tools(("look", {"at": 1}))
            case 1:
                return calls_tools(("write", {"text": "w"}))
            case 2:
                return calls_tools(("look", {"at": 2}))
            case _:
                return says("brief" if "Be brief" in text else "done")

    async def close(self) -> None: ...


Serving = Callable[..., Any]


@pytest.fixture(params=["memory", "sqlite"])
def serving(request: pytest.FixtureRequest, tmp_path: Any) -> Serving:
    """Opens a server over a runtime of these parts, in memory and over SQLite."""
    storage = "memory:" if request.param == "memory" else f"sqlite:{tmp_path}/runs.db"

    @asynccontextmanager
    async def serve(*agents: Any, **parts: Any) -> AsyncIterator[tuple[Runtime, Wire]]:
        made = Runtime(list(agents), storage=storage) if agents else Runtime(tools=TOOLS, storage=storage, **parts)
        async with made as runtime:
            yield runtime, Wire(Server(runtime, gate=HeaderGate()))

    return serve


async def fork_of(runtime: Runtime, wire: Wire, run: Run, **body: Any) -> tuple[Reply, Run]:
    """Fork a run and wait for the end of the fork."""
    reply = await wire.post("runs.fork", {"id": run.id, **body})
    assert reply.status == 200, reply.body
    forked = await runtime.run(reply.json["task_id"], who=ADA)
    await forked.finished()
    return reply, forked


async def types_of(runtime: Runtime, run: Run) -> list[str]:
    """The types of the events of a run."""
    return [one.type for one in await runtime.parts.store.events(EventQuery(run_ids=(run.id,)))]


# ── runs.fork ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_fork_holds_back_what_has_effects(serving: Serving) -> None:
    """The steps before are the other run's, the call of a tool with effects is not made, and nobody is asked."""
    async with serving(model=Model(), approvals={"write": AlwaysDeny()}) as (runtime, wire):
        run = await runtime.start("the goal", who=ADA)
        await until(wire, run, lambda one: one["steps"] and one["steps"][-1]["waits"])
        await run.approve()
        await run.finished()
        before = hashlib.sha256(b"".join(await run.history())).hexdigest()
        reply, fork = await fork_of(runtime, wire, run, step=2)
        assert reply.json["forked_from"] == {"id": run.id, "step": 2}
        assert reply.json["reused"] is False
        listed = (await wire.post("runs.steps", {"id": fork.id})).json
        types = await types_of(runtime, fork)
        assert hashlib.sha256(b"".join(await run.history())).hexdigest() == before
    assert listed["run"]["rehearsal"] is True
    assert listed["run"]["forked_from"] == {"id": run.id, "step": 2}
    (call,) = listed["steps"][1]["calls"]
    assert (call["tool"], call["status"]) == ("write", "held_back")
    assert "rehearsal" in call["error"]["message"]
    assert listed["steps"][1]["waits"] == []
    assert types.count(str(EventType.TOOL_INVOKED)) == 1
    assert str(EventType.PAUSE_REQUESTED) not in types
    assert str(EventType.TOOL_APPROVAL_REQUESTED) not in types


async def test_a_live_fork_acts(serving: Serving) -> None:
    """Then calls with effects are made."""
    async with serving(model=Model()) as (runtime, wire):
        run = await ended(runtime)
        _, fork = await fork_of(runtime, wire, run, step=2, live=True)
        listed = (await wire.post("runs.steps", {"id": fork.id})).json
    assert listed["run"]["rehearsal"] is False
    assert listed["steps"][1]["calls"][0]["status"] == "done"


async def test_a_fork_that_is_no_live_one_starts_no_run(serving: Serving) -> None:
    """A child would be no rehearsal."""
    planner = Steps(CallTool("look", b'{"at":1}'), SpawnTask(spec=SpawnSpec(query="child")), DONE)
    async with serving(planner=planner) as (runtime, wire):
        run = await ended(runtime)
        _, fork = await fork_of(runtime, wire, run, step=2)
        step = (await wire.post("runs.steps", {"id": fork.id})).json["steps"][1]
    assert step["children"] == []


async def test_a_fork_with_another_goal(serving: Serving) -> None:
    """It holds from that step on."""
    async with serving(model=Model()) as (runtime, wire):
        run = await ended(runtime)
        _, fork = await fork_of(runtime, wire, run, step=4, goal="Be brief")
        assert (await fork.finished()).payload == "brief"
        assert (await wire.post("runs.replay", {"id": fork.id})).json["is_same"]


async def test_a_fork_with_other_instructions(serving: Serving) -> None:
    """They hold from that step on, and the fork replays: its first steps were decided without them."""
    async with serving(model=Model()) as (runtime, wire):
        run = await ended(runtime)
        _, fork = await fork_of(runtime, wire, run, step=4, instructions="Be brief")
        assert (await fork.finished()).payload == "brief"
        replay = (await wire.post("runs.replay", {"id": fork.id})).json
        assert replay["is_same"], replay
        assert replay["steps"] == 1
        _, again = await fork_of(runtime, wire, fork, step=4)
        assert (await again.finished()).payload == "brief"


async def test_a_fork_over_another_model(serving: Serving) -> None:
    """Its header names the model; the steps before are the first one's."""
    async with serving(model=Model()) as (runtime, wire):
        run = await ended(runtime)
        _, fork = await fork_of(runtime, wire, run, step=4, model="mock:echo")
        listed = (await wire.post("runs.steps", {"id": fork.id})).json
        assert (await fork.finished()).payload != "done"
        assert (await wire.post("runs.replay", {"id": fork.id})).json["is_same"]
    assert listed["run"]["model"] == "mock:echo"
    assert [one["decision"] for one in listed["steps"]] == ["CallTool", "CallTool", "CallTool", "Finish"]


async def test_a_fork_by_another_agent(serving: Serving) -> None:
    """It decides from that step on; the fork is that agent's run."""
    one = Agent("one", model=Model(), tools=TOOLS)
    other = Agent("other", planner=Steps(*[DONE] * 9), tools=TOOLS)
    async with serving(one, other) as (runtime, wire):
        run = await runtime.start(one, "the goal", who=ADA)
        await run.finished()
        for step in (1, 3):
            _, fork = await fork_of(runtime, wire, run, step=step, agent="other")
            listed = (await wire.post("runs.steps", {"id": fork.id})).json
            assert listed["run"]["agent_name"] == "other"
            assert len(listed["steps"]) == step
            assert (await fork.finished()) == DONE
            assert (await wire.post("runs.replay", {"id": fork.id})).json["is_same"]


async def test_a_fork_is_started_once_by_its_key(serving: Serving) -> None:
    """The same request gives the same run; another one with the key is refused."""
    async with serving(model=Model()) as (runtime, wire):
        run = await ended(runtime)
        body = {"id": run.id, "step": 2, "idempotency_key": "k-1"}
        first = (await wire.post("runs.fork", body)).json
        again = (await wire.post("runs.fork", body)).json
        assert (first["reused"], again["reused"]) == (False, True)
        assert first["task_id"] == again["task_id"]
        for other in ({"step": 3}, {"goal": "another"}, {"model": "mock:echo"}, {"instructions": "x"}, {"live": True}):
            reply = await wire.post("runs.fork", {**body, **other})
            assert (reply.status, reply.code) == (400, "invalid_request"), other


# ── runs.replay ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_unchanged_agent_replays(serving: Serving) -> None:
    """Each decision is made again, with the answers of the record; nothing is written."""
    async with serving(model=Model()) as (runtime, wire):
        run = await ended(runtime)
        before = await types_of(runtime, run)
        replay = (await wire.post("runs.replay", {"id": run.id})).json
        assert await types_of(runtime, run) == before
    assert replay == {
        "protocol_version": "0.1.0",
        "id": run.id,
        "is_same": True,
        "is_whole": True,
        "steps": 4,
        "model_calls": 4,
    }


async def test_other_instructions_are_the_first_difference(tmp_path: Any) -> None:
    """The replay says at which step, and shows the prompts."""
    storage = f"sqlite:{tmp_path}/runs.db"
    async with Runtime(model=Model(), tools=TOOLS, storage=storage) as runtime:
        run = await ended(runtime)
    async with Runtime(model=Model(), tools=TOOLS, storage=storage, instructions="Be brief") as runtime:
        wire = Wire(Server(runtime, gate=HeaderGate()))
        replay = (await wire.post("runs.replay", {"id": run.id})).json
        frozen = await wire.post("runs.freeze", {"id": run.id})
    assert replay["is_same"] is False
    assert (replay["difference"]["kind"], replay["difference"]["step"]) == ("prompt", 1)
    assert "+    Be brief" in replay["difference"]["diff"]
    assert (frozen.status, frozen.code) == (400, "invalid_request")
    assert "does not replay: at step 1" in frozen.json["message"]


async def test_a_replay_by_another_agent(serving: Serving) -> None:
    """Its decisions are compared with those of the record."""
    one = Agent("one", planner=Steps(CallTool("look", b'{"at":1}'), DONE), tools=TOOLS)
    other = Agent("other", planner=Steps(CallTool("look", b'{"at":2}'), DONE), tools=TOOLS)
    async with serving(one, other) as (runtime, wire):
        run = await runtime.start(one, "the goal", who=ADA)
        await run.finished()
        assert (await wire.post("runs.replay", {"id": run.id})).json["is_same"]
        replay = (await wire.post("runs.replay", {"id": run.id, "agent": "other"})).json
    assert (replay["difference"]["kind"], replay["difference"]["step"]) == ("decision", 1)


async def test_a_run_that_goes_on_replays_as_far_as_its_record_goes(serving: Serving) -> None:
    """`is_whole` says that its end is not on record."""
    planner = Steps(CallTool("look", b'{"at":1}'), RequestPause(PauseReason.AWAIT_INPUT), DONE)
    async with serving(planner=planner) as (runtime, wire):
        run = await runtime.start("the goal", who=ADA)
        await until(wire, run, lambda one: len(one["steps"]) == 2 and one["steps"][-1]["waits"])
        replay = (await wire.post("runs.replay", {"id": run.id})).json
        frozen = await wire.post("runs.freeze", {"id": run.id})
    assert (replay["is_same"], replay["is_whole"], replay["steps"]) == (True, False, 2)
    assert (frozen.status, frozen.code) == (400, "invalid_request")
    assert "goes on" in frozen.json["message"]


class Slow:
    """A planner that decides at once, and in a replay not before it may."""

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.may.set()
        self.asked = 0
        self.ended = 0

    async def next(self, run: Any) -> Any:
        """Return the end once it may."""
        self.asked += 1
        try:
            await self.may.wait()
        finally:
            self.ended += 1
        return DONE


async def reached(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not is_so():  # noqa: ASYNC110 - what the server does next is seen in the planner alone
            await asyncio.sleep(0)


async def test_two_replays_run_at_a_time_and_a_peer_that_goes_ends_its_own() -> None:
    """The third waits for its turn, which it gets when the first peer has gone."""
    planner = Slow()
    async with Runtime(planner=planner, storage="memory:") as runtime:
        wire = Wire(Server(runtime, gate=HeaderGate()))
        run = await ended(runtime)
        planner.may.clear()
        body, headers = msgspec.json.encode({"id": run.id}), caller_headers(ADA)
        going = Reader(wire.app, "POST", "/v1/runs/replay", headers, body, is_whole=True)
        opening = asyncio.create_task(going.begin())
        await reached(lambda: planner.asked == 2)
        others = [asyncio.create_task(wire.post("runs.replay", {"id": run.id})) for _ in range(2)]
        await reached(lambda: planner.asked == 3)
        for _ in range(50):
            await asyncio.sleep(0)
        assert (planner.asked, planner.ended) == (3, 1)
        await going.aclose()
        await opening
        await reached(lambda: planner.asked == 4)
        assert planner.ended == 2
        planner.may.set()
        replies = await asyncio.gather(*others)
        assert [one.json["is_same"] for one in replies] == [True, True]


# ── runs.freeze ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_frozen_run_is_a_test_and_its_record(serving: Serving) -> None:
    """The same run gives the same files, secrets are hidden, and the record can be read."""
    async with serving(model=Model()) as (runtime, wire):
        run = await ended(runtime, goal="Read it, Bearer abc.def.ghi")
        first = (await wire.post("runs.freeze", {"id": run.id})).json
        again = (await wire.post("runs.freeze", {"id": run.id})).json
    assert first == again
    name = first["name"]
    test, record = first["files"]
    assert (test["path"], record["path"]) == (f"test_{name}.py", f"runs/{name}.json")
    assert f"def test_{name}()" in test["content"]
    compile(test["content"], test["path"], "exec")
    frozen = msgspec.json.decode(record["content"], type=FrozenRun)
    assert frozen.run_id == run.id
    assert "abc.def.ghi" not in record["content"] + test["content"]


# ── runs.compare ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_run_beside_its_fork(serving: Serving) -> None:
    """They share the steps before the fork; rows begin at the first that they do not share."""
    async with serving(
        planner=Steps(
            CallTool("look", b'{"at":1}'), CallTool("look", b'{"at":2}'), CallTool("write", b'{"text":"w"}'), DONE
        )
    ) as (
        runtime,
        wire,
    ):
        run = await ended(runtime)
        _, fork = await fork_of(runtime, wire, run, step=3)
        compared = (await wire.post("runs.compare", {"id": run.id, "other": fork.id})).json
        page = (await wire.post("runs.compare", {"id": run.id, "other": fork.id, "limit": 1})).json
        rest = (await wire.post("runs.compare", {"id": run.id, "other": fork.id, "after": 3})).json
    assert compared["shared_steps"] == 2
    assert [one["id"] for one in compared["runs"]] == [run.id, fork.id]
    assert [(one["left"]["step"], one["right"]["step"], one["same"]) for one in compared["rows"]] == [
        (3, 3, False),
        (4, 4, True),
    ]
    changes = {one["path"]: (one.get("left"), one.get("right")) for one in compared["rows"][0]["changes"]}
    assert changes["calls[0].status"] == ("done", "held_back")
    assert compared["rows"][1]["changes"] == []
    assert (compared["difference"]["kind"], compared["difference"]["step"]) == ("step", 3)
    assert compared["difference"]["path"].startswith("calls[0]")
    assert "held back" in compared["diff"]
    assert compared["more"] is False
    assert (len(page["rows"]), page["more"]) == (1, True)
    assert [one["left"]["step"] for one in rest["rows"]] == [4]


async def test_runs_that_are_alike_have_no_difference(serving: Serving) -> None:
    """Two runs of the same steps share all of them; one that is longer has rows with one side."""
    async with serving(planner=Steps(CallTool("look", b'{"at":1}'), DONE)) as (runtime, wire):
        one, other = await ended(runtime), await ended(runtime)
        compared = (await wire.post("runs.compare", {"id": one.id, "other": other.id})).json
    assert (compared["shared_steps"], compared["rows"], compared["diff"]) == (2, [], "")
    assert "difference" not in compared


class KeyOfGoal(Steps):
    """Writes once, with the goal as the key."""

    async def next(self, run: RunContext) -> Any:
        """Return the decision of this step."""
        assert run.trajectory is not None
        call = CallTool("write", msgspec.json.encode({"text": "w", "api_key": run.goal}))
        return self.decisions[0] if run.trajectory.steps else call


async def test_a_comparison_masks_what_the_steps_mask(serving: Serving) -> None:
    """A secret that is known by its name stands neither in the first difference, nor in a change, nor in the text."""
    async with serving(planner=KeyOfGoal(DONE)) as (runtime, wire):
        one, other = await ended(runtime, "opal-1"), await ended(runtime, "opal-2")
        compared = (await wire.post("runs.compare", {"id": one.id, "other": other.id})).json
    del compared["runs"]  # their goals
    assert compared["difference"]["path"] == "decision.args.api_key"
    assert compared["rows"][0]["changes"][0]["path"] == "decision.args.api_key"
    assert "opal" not in msgspec.json.encode(compared).decode()


# ── Who, and what is refused ──────────────────────────────────────────────────────────────────────────────────────────


@each_row(
    "owner, scopes, reads, acts",
    [
        (ADA, (), 200, 200),
        (OTHER_SESSION, (), 404, 404),
        (OTHER_SESSION, ("console:fleet",), 200, 404),
        (OTHER_SESSION, ("admin",), 200, 404),
        (BEN, (), 404, 404),
        (BEN, ("console:fleet",), 200, 404),
        (BEN, ("admin",), 200, 404),
        (EVE, (), 404, 404),
        (EVE, ("console:fleet",), 404, 404),
        (EVE, ("admin",), 200, 404),
    ],
)
async def test_who_may_do_what(owner: Identity, scopes: tuple[str, ...], reads: int, acts: int) -> None:
    """Comparing and freezing are reads, by scope and audited; a fork or replay of another's run is never made."""
    async with Runtime(planner=Steps(DONE), storage="memory:") as runtime:
        wire = Wire(Server(runtime, gate=HeaderGate()))
        own, run = await ended(runtime), await ended(runtime, who=owner)
        bodies = {
            "runs.compare": {"id": own.id, "other": run.id},
            "runs.freeze": {"id": run.id},
            "runs.fork": {"id": run.id, "step": 1},
            "runs.replay": {"id": run.id},
        }
        for method, body in bodies.items():
            wanted = acts if method in ("runs.fork", "runs.replay") else reads
            before = await audits(runtime)
            reply = await wire.post(method, body, scopes=scopes)
            assert reply.status == wanted, (method, reply.body)
            if wanted == 404:
                assert (reply.code, reply.json["message"]) == ("not_found", f"no run {run.id!r} here")
            is_audited = wanted == 200 and owner != ADA
            assert await audits(runtime) - before == (1 if is_audited else 0), method


REFUSED: list[tuple[str, dict[str, Any], int, str, str]] = [
    ("runs.fork", {"step": 1}, 400, "invalid_request", "id"),
    ("runs.fork", {"id": "RUN"}, 400, "invalid_request", "from 1"),
    ("runs.fork", {"id": "RUN", "step": 7}, 400, "invalid_request", "1 to 6"),
    ("runs.fork", {"id": "RUN", "step": 2, "model": "nobody"}, 400, "invalid_request", "model"),
    ("runs.fork", {"id": "RUN", "step": 2, "instructions": "x"}, 400, "invalid_request", "instructions"),
    ("runs.fork", {"id": "RUN", "step": 2, "agent": "nobody"}, 404, "not_found", "nobody"),
    ("runs.fork", {"id": "RUN", "step": 2, "max_steps": -1}, 400, "invalid_request", "max_steps"),
    ("runs.fork", {"id": "RUN", "step": 2, "others": 1}, 400, "invalid_request", "unknown field"),
    ("runs.fork", {"id": "gone", "step": 2}, 404, "not_found", "gone"),
    ("runs.replay", {"id": " "}, 400, "invalid_request", "id"),
    ("runs.replay", {"id": "gone"}, 404, "not_found", "gone"),
    ("runs.replay", {"id": "RUN", "agent": "nobody"}, 404, "not_found", "nobody"),
    ("runs.freeze", {}, 400, "invalid_request", "id"),
    ("runs.freeze", {"id": "gone"}, 404, "not_found", "gone"),
    ("runs.freeze", {"id": "RUN", "agent": "nobody"}, 404, "not_found", "nobody"),
    ("runs.compare", {"id": "RUN"}, 400, "invalid_request", "id"),
    ("runs.compare", {"other": "RUN"}, 400, "invalid_request", "id"),
    ("runs.compare", {"id": "RUN", "other": "RUN"}, 400, "invalid_request", "not itself"),
    ("runs.compare", {"id": "RUN", "other": "gone"}, 404, "not_found", "gone"),
    ("runs.compare", {"id": "RUN", "other": "gone", "limit": 1001}, 400, "invalid_request", "limit"),
    ("runs.compare", {"id": "RUN", "other": "gone", "after": -1}, 400, "invalid_request", "after"),
]


@each_row("method, body, status, code, said", REFUSED)
async def test_what_is_refused(method: str, body: dict[str, Any], status: int, code: str, said: str) -> None:
    """Each with its status, its code, and words that name what is wrong; no run is started."""
    async with Runtime(planner=Steps(*[CallTool("look", b'{"at":1}')] * 5, DONE), tools=TOOLS) as runtime:
        wire = Wire(Server(runtime, gate=HeaderGate()))
        run = await ended(runtime)
        asked = {name: run.id if value == "RUN" else value for name, value in body.items()}
        reply = await wire.post(method, asked)
        assert (reply.status, reply.code) == (status, code), reply.body
        assert said in reply.json["message"]
        assert len(await runtime.runs(who=ADA)) == 1


async def test_a_model_that_there_is_none_of_is_refused() -> None:
    """Where the agent does have a model, another one must exist."""
    async with Runtime(model=Model(), tools=TOOLS) as runtime:
        wire = Wire(Server(runtime, gate=HeaderGate()))
        run = await ended(runtime)
        for model in ("nobody", "nobody:nothing"):
            reply = await wire.post("runs.fork", {"id": run.id, "step": 2, "model": model})
            assert (reply.status, reply.code) == (400, "invalid_request"), reply.body
