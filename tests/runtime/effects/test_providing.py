"""Context providers asked for a run: once, at the same time, each within its time, for that run's owner alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from harborage import codec
from harborage.concurrency import CANCEL_GRACE_S
from harborage.identity import Identity, current_identity, current_quadruple
from harborage.llm import CompleteRequest, CompleteResponse
from harborage.planner import (
    CallParallel,
    CallTool,
    Finish,
    FinishReason,
    MemoryBlocks,
    PauseReason,
    PlanningHints,
    PlanningNudges,
    RequestPause,
    RunContext,
    SpawnSpec,
    SpawnTask,
    ToolContext,
)
from harborage.runtime.durable.engine import RunFailedError
from harborage.runtime.host import Runtime
from harborage.runtime.loop.context import (
    Context,
    ContextProviderError,
    ContextRequest,
    ContextSource,
    ContextUnavailableError,
)
from harborage.runtime.run import Run
from harborage.state.errors import DatabaseError
from harborage.state.storage import Storage, open_storage
from harborage.tasks import TaskStatus
from harborage.testing.clock import settle
from harborage.testing.planners import RecordingPlanner, ScriptedPlanner
from harborage.tools import CallContext

pytestmark = pytest.mark.anyio

Runtimes = Callable[..., Awaitable[Any]]
ME = Identity("t", "u", "s")
GOAL = Finish(FinishReason.GOAL, "done")


class Provider:
    """Gives what a function says, and keeps what it was asked."""

    def __init__(self, give: Callable[[ContextRequest], Any]) -> None:
        self.give = give
        self.asked: list[ContextRequest] = []

    async def provide(self, run: ContextRequest) -> Any:
        self.asked.append(run)
        given = self.give(run)
        return await given if asyncio.iscoroutine(given) else given


def named(name: str, give: Callable[[ContextRequest], Any], **limits: Any) -> ContextSource:
    """A source of that name."""
    return ContextSource(provider=Provider(give), name=name, **limits)


async def waiting(run: Run) -> None:
    """Until the run waits."""
    async with asyncio.timeout(20):
        while not await run.waiting():  # noqa: ASYNC110 - a pause that is kept tells nobody here
            await asyncio.sleep(0)


@pytest.fixture
async def storage() -> AsyncIterator[Storage]:
    """A storage in memory that outlives the runtimes of a test."""
    async with await open_storage("memory:") as opened:
        yield opened


# ── What a run is given ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_run_is_shown_what_its_providers_give_at_every_step(runtimes: Runtimes) -> None:
    """Each is asked once a run, with its whole identity, and the same context comes with every step."""
    provider = Provider(lambda run: Context(llm_context={"who": run.who.user_id}, skills_context=[{"name": "s"}]))
    planner = RecordingPlanner(ScriptedPlanner([CallTool("missing"), CallTool("missing"), GOAL]))
    bench = await runtimes(planner, context=[provider])
    run = await bench.start("look")
    await bench.end(run)
    (asked,) = provider.asked
    assert (asked.who, asked.goal, asked.query, asked.is_child) == (run.who, "look", "look", False)
    assert asked.catalog is not None
    assert [(one.llm_context, one.skills_context) for one in planner.contexts] == [({"who": "u"}, ({"name": "s"},))] * 3
    assert planner.contexts[-1].trajectory.llm_context == {"who": "u"}


async def test_a_planner_is_shown_so_many_skills(runtimes: Runtimes, caplog: pytest.LogCaptureFixture) -> None:
    """The first ones that providers and caller give, five unless the runtime says otherwise; a warning says so once."""
    given = Context(skills_context=["c", "d", "e", "f"])
    provider = Provider(lambda _: Context(skills_context=["a", "b"]))
    seen: list[tuple[dict[str, Any], list[Any], Any, str]] = [
        ({}, [provider], given, "abcde"),
        ({}, [], given, "cdef"),
        ({"max_skills": 3}, [provider], None, "ab"),
        ({"max_skills": 3}, [provider], given, "abc"),
        ({"max_skills": 3}, [], given, "cde"),
        ({"max_skills": 3}, [], [Provider(lambda _: given)], "cde"),
        ({"max_skills": 0}, [provider], None, ""),
    ]
    for options, providers, choice, shown in seen:
        caplog.clear()
        planner = RecordingPlanner(ScriptedPlanner([CallTool("missing"), GOAL]))
        bench = await runtimes(planner, context=providers, **options)
        run = await bench.rt.start("look", who=ME, context=() if choice is None else choice)
        await bench.end(run)
        assert ["".join(one.skills_context) for one in planner.contexts] == [shown] * 2
        count = (2 if providers else 0) + (0 if choice is None else 4)
        reported = [f"of {count} skills the planner is shown the first {len(shown)}"] if count > len(shown) else []
        assert [record.message.partition(": ")[2].partition(";")[0] for record in caplog.records] == reported


async def test_without_providers_a_run_has_no_further_step(runtimes: Runtimes) -> None:
    """Nothing is asked, recorded or written for a run of a runtime that has neither providers nor a memory."""
    bench = await runtimes([GOAL])
    run = await bench.start()
    await bench.end(run)
    record = b"".join(await run.history())
    assert b"context" not in record
    assert b"memory" not in record


async def test_providers_are_asked_at_the_same_time(runtimes: Runtimes) -> None:
    """Two that wait for each other both answer."""
    both = asyncio.Barrier(2)

    async def meet(value: int) -> Context:
        await both.wait()
        return Context(llm_context={f"{value}": value})

    bench = await runtimes(
        [lambda run: Finish(FinishReason.GOAL, dict(run.llm_context))],
        context=[named("one", lambda _: meet(1)), named("two", lambda _: meet(2))],
    )
    assert (await bench.run()).payload == {"1": 1, "2": 2}


async def test_what_is_given_for_one_owner_never_reaches_another(runtimes: Runtimes) -> None:
    """Of many runs at once each sees its own, though one provider hands the very same changed object to all."""
    shared: dict[str, Any] = {}

    async def give(run: ContextRequest) -> Context:
        shared["owner"] = run.who.user_id
        context = Context(memory_blocks=MemoryBlocks(external=shared), handles={"owner": run.who.user_id})
        await asyncio.sleep(0)
        return context if shared["owner"] == run.who.user_id else Context(llm_context={"late": run.who.user_id})

    async def owner(call: CallContext) -> str:
        """Whose the live object is."""
        return call.handle("owner")

    async def ambient(_: ContextRequest) -> Context:
        bound = current_quadruple()
        return Context(tool_context=ToolContext(serializable={"bound": bound.user_id if bound else ""}))

    def decide(run: RunContext) -> Any:
        if not run.trajectory.steps and run.tool_context.handles:
            return CallTool("owner")
        seen = [run.tool_context.serializable["bound"], *(step.observation for step in run.trajectory.steps)]
        seen += [run.memory_blocks.external["owner"]] if run.memory_blocks else [run.llm_context["late"]]
        return Finish(FinishReason.GOAL, seen)

    class Deciding:
        async def next(self, run: RunContext) -> Any:
            return decide(run)

    bench = await runtimes(Deciding(), tools=[owner], context=[Provider(give), named("ambient", ambient)])
    runs = [await bench.start(who=Identity("t", f"u{n}", "s")) for n in range(30)]
    for run in runs:
        assert set((await bench.end(run)).payload) == {run.who.user_id}


# ── Providers that fail ─────────────────────────────────────────────────────────────────────────────────────────────


async def hang() -> Context:
    """Never answers."""
    await asyncio.Event().wait()
    return Context()


async def ignore_cancellation(release: asyncio.Event) -> Context:
    """Does not answer, and does not end when it is asked to."""
    while not release.is_set():
        try:
            await release.wait()
        except asyncio.CancelledError:
            continue
    return Context()


async def cancelled_elsewhere() -> Context:
    """Awaits a task that another task cancels."""
    raise asyncio.CancelledError


def crash(_: ContextRequest) -> Context:
    """Fails, and gives a secret away in doing so."""
    raise RuntimeError("no index: Authorization: Bearer abcdefghijklmnopqrstuvwxyz")


def silent_timeout(_: ContextRequest) -> Context:
    """Times out by itself, without a word."""
    raise TimeoutError


def long_secret(_: ContextRequest) -> Context:
    """Fails with a text whose secret lies where it is cut."""
    raise ValueError("x" * 460 + " Authorization: Bearer abcdefghijklmnopqrstuvwxyz")


_BAD: dict[str, tuple[Callable[[ContextRequest], Any], str]] = {
    "hangs": (lambda _: hang(), "no answer within 5 s"),
    "cancelled": (lambda _: cancelled_elsewhere(), "cancelled elsewhere"),
    "nonsense": (lambda _: {"llm_context": {}}, "it returned a dict, not a Context"),
    "wrong field": (lambda _: Context(hints="two"), "hints"),
    "no JSON": (lambda _: Context(llm_context={"x": object()}), "llm_context.x"),
    "not a number": (lambda _: Context(memory_blocks=MemoryBlocks(external=float("nan"))), "memory_blocks.external"),
    "too much": (lambda _: Context(llm_context={"x": "y" * 70_000}), "bytes of context; at most 65536"),
    "crash": (crash, "RuntimeError: no index"),
    "own timeout": (silent_timeout, "TimeoutError"),
    "long": (long_secret, "ValueError: xxx"),
    "database": (lambda _: (_ for _ in ()).throw(DatabaseError("gone")), "DatabaseError"),
}


async def test_a_provider_that_fails_is_named_and_the_run_goes_on(runtimes: Runtimes) -> None:
    """Whatever it does instead of answering: an event says which one and why, without secrets, and the rest counts."""
    sources = [named(name, give, timeout_s=5) for name, (give, _) in _BAD.items()]
    good = named("good", lambda _: Context(llm_context={"good": 1}))
    nothing = named("nothing", lambda _: None)
    seen = [lambda run: Finish(FinishReason.GOAL, dict(run.llm_context))]
    bench = await runtimes(seen, context=[*sources, good, nothing])
    run = await bench.start()
    await settle()
    await bench.clock.run_for(5)
    assert (await bench.end(run)).payload == {"good": 1}
    payloads = [codec.to_plain(one.payload)["Data"] for one in bench.recorder.events if one.type == "runtime.warning"]
    reported = {one["fields"]["provider"]: one["fields"]["reason"] for one in payloads}
    for name, (_, reason) in _BAD.items():
        assert reason in reported[name], (name, reported[name])
    assert set(reported) == set(_BAD)
    assert "abcdefghijklmnop" not in str(reported)
    assert b"abcdefghijklmnop" not in b"".join(await run.history())


async def test_a_run_fails_clearly_without_a_required_provider(runtimes: Runtimes) -> None:
    """Its task has the code of a run that lacks what it works with, its planner is never asked, and others go on."""
    planner = RecordingPlanner(ScriptedPlanner([GOAL]))
    is_down = True

    def give(_: ContextRequest) -> Context:
        if is_down:
            raise OSError("index is down")
        return Context()

    bench = await runtimes(planner, context=[named("rules", give, is_required=True)])
    run = await bench.start()
    with pytest.raises(RunFailedError, match=r"required context provider 'rules' gave nothing: OSError: index is down"):
        await bench.end(run)
    task = await bench.rt.tasks.get(run.id, who=ME)
    assert (task.status, task.error.code) == (TaskStatus.FAILED, "runtime_fetch_error")
    assert planner.contexts == []
    is_down = False
    assert await bench.run() == GOAL


async def test_a_provider_that_ignores_cancellation_holds_nothing_up(
    runtimes: Runtimes, caplog: pytest.LogCaptureFixture
) -> None:
    """Its run goes on after its time, and the runtime closes without it."""
    release = asyncio.Event()
    bench = await runtimes([GOAL], context=[named("deaf", lambda _: ignore_cancellation(release))])
    run = await bench.start()
    await settle()
    await bench.clock.run_for(10)
    assert await bench.end(run) == GOAL
    await bench.clock.run_for(CANCEL_GRACE_S)
    async with asyncio.timeout(5):
        await bench.rt.aclose()
    assert "context provider deaf was abandoned: it ignored its cancellation for 0.2 s" in caplog.text


async def test_a_cancel_reaches_a_run_that_waits_for_its_context(runtimes: Runtimes) -> None:
    """Soft or hard, it does not wait for the provider's time; the deadline does not either."""
    for ends in ("soft", "hard", "deadline"):
        bench = await runtimes([lambda run: Finish(FinishReason.CANCELLED)], context=[named("slow", lambda _: hang())])
        deadline = bench.clock.now() + timedelta(seconds=2)
        run = await bench.start(deadline=deadline if ends == "deadline" else None)
        await settle()
        if ends == "deadline":
            await bench.clock.run_for(3)
        else:
            await run.cancel(hard=ends == "hard")
        finish = await bench.end(run)
        expected = FinishReason.DEADLINE_EXCEEDED if ends == "deadline" else FinishReason.CANCELLED
        assert finish.reason is expected, ends


# ── Recorded ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_run_that_another_process_resumes_has_the_same_context(storage: Storage) -> None:
    """The provider is not asked again, by whichever process goes on with the run, and a fork has the context too."""
    provider = Provider(lambda run: Context(llm_context={"asked": 1}, memory_blocks=MemoryBlocks(external=["m"])))
    script = [
        RequestPause(PauseReason.AWAIT_INPUT, {"q": "?"}),
        lambda run: Finish(FinishReason.GOAL, [run.llm_context["asked"], run.memory_blocks.external]),
    ]
    async with Runtime(planner=ScriptedPlanner(script), storage=storage, context=[provider]) as runtime:
        run = await runtime.start("g", who=ME)
        await waiting(run)
    changed = Provider(lambda run: Context(llm_context={"asked": 2}))
    async with Runtime(planner=ScriptedPlanner(script[1:]), storage=storage, context=[changed]) as runtime:
        again = await runtime.run(run.id, who=ME)
        await again.resume({"a": 1})
        async with asyncio.timeout(10):
            assert (await again.finished()).payload == [1, ["m"]]
        fork = await runtime.fork(run.id, at=1, who=ME)
        async with asyncio.timeout(10):
            assert (await fork.finished()).payload == [1, ["m"]]
    assert (len(provider.asked), changed.asked) == (1, [])


async def test_a_provider_cannot_take_the_name_of_the_memory() -> None:
    """Their answers could not be distinguished, so the runtime does not open."""
    source = named("memory", lambda run: None)
    with pytest.raises(ContextProviderError, match="two context providers are called 'memory'"):
        async with Runtime(planner=ScriptedPlanner([GOAL]), memory="truncation", context=[source]):
            pass


async def test_a_replay_shows_the_planner_the_recorded_context() -> None:
    """A planner whose decision depends on its context decides the same, and no provider is asked."""
    provider = Provider(lambda run: Context(llm_context={"n": len(provider.asked)}))

    class Counting:
        async def next(self, run: RunContext) -> Any:
            return Finish(FinishReason.GOAL, run.llm_context["n"])

    async with Runtime(planner=Counting(), context=[provider]) as runtime:
        run = await runtime.start("g", who=ME)
        assert (await run.finished()).payload == 1
        replayed = await runtime.replay(await run.history())
        assert replayed.is_same, replayed.summary()
        assert replayed.is_whole
    assert len(provider.asked) == 1


# ── Children, and what `start` gives ────────────────────────────────────────────────────────────────────────────────


async def test_a_provider_learns_that_a_run_is_a_child(runtimes: Runtimes) -> None:
    """It may give a spawned task something else than the run that a person started."""
    provider = Provider(lambda run: Context(llm_context={"child": run.is_child}))
    planner = ScriptedPlanner(
        [SpawnTask(spec=SpawnSpec(query="part", retain_turn=True)), GOAL],
        by_query={"part": [lambda run: Finish(FinishReason.GOAL, run.llm_context["child"])]},
    )
    bench = await runtimes(planner, context=[provider])
    await bench.run()
    assert [(one.query, one.is_child) for one in provider.asked] == [("g", False), ("part", True)]


async def test_the_caller_of_start_adds_to_the_context(runtimes: Runtimes) -> None:
    """As a value or through providers that are asked before the run begins; where both give a value, the caller's."""
    seen = [lambda run: Finish(FinishReason.GOAL, dict(run.llm_context))]
    bench = await runtimes(seen, context=[named("own", lambda _: Context(llm_context={"a": 1, "b": 1}))])
    given = Context(llm_context={"b": 2})
    assert (await bench.run(context=given)).payload == {"a": 1, "b": 2}
    bound_to: list[Identity | None] = []
    provider = Provider(lambda run: bound_to.append(current_identity()) or given)
    assert (await bench.run("later", context=[provider])).payload == {"a": 1, "b": 2}
    assert [(one.who, one.goal) for one in provider.asked] == [(ME.with_run(""), "later")]
    assert bound_to == [ME]
    assert (await bench.run()).payload == {"a": 1, "b": 1}
    plain = await runtimes(seen)
    run = await plain.start(context=given)
    assert (await plain.end(run)).payload == {"b": 2}
    assert b"context.provide" not in b"".join(await run.history())


def fail(_: ContextRequest) -> Context:
    """Has none."""
    raise ValueError("none")


async def test_start_refuses_a_context_that_cannot_be_used(runtimes: Runtimes) -> None:
    """Nothing is started with a value that has no JSON form, with what is no provider, or without a required one."""
    bench = await runtimes([GOAL])
    bad: Any = 3
    for context in (Context(llm_context={"x": object()}), Context(llm_context={"x": "y" * 70_000}), bad, [bad]):
        with pytest.raises(ContextProviderError):
            await bench.start(context=context)
    with pytest.raises(ContextUnavailableError, match="'rules' gave nothing: ValueError: none"):
        await bench.start(context=[named("rules", fail, is_required=True)])
    assert not await bench.rt.runs(who=ME)


# ── Live objects ────────────────────────────────────────────────────────────────────────────────────────────────────


class Connection:
    """Cannot be written down."""

    def __init__(self, name: str) -> None:
        self.name = name


async def test_tools_reach_the_live_objects_of_their_run(runtimes: Runtimes) -> None:
    """A call has the very object and its own copy of the data, in branches too; the planner sees the names alone."""
    made: dict[str, Connection] = {}

    def give(run: ContextRequest) -> Context:
        made[run.who.run_id] = Connection("db")
        data = ToolContext(serializable={"shop": ["porto"]}, handles=("shared",))
        return Context(tool_context=data, handles={"db": made[run.who.run_id]})

    async def use(call: CallContext, name: str) -> bool:
        """Use a connection."""
        found = call.handle(name)
        call.tool_context["shop"].append("spoilt")
        is_right = found is (made[call.who.run_id] if name == "db" else shared)
        return is_right and call.tool_context["shop"] == ["porto", "spoilt"]

    shared = Connection("shared")
    calls = tuple(CallTool("use", f'{{"name":"{name}"}}'.encode(), f"c{n}") for n, name in enumerate(("db", "shared")))

    def finished(run: RunContext) -> Finish:
        steps = [step.observation for step in run.trajectory.steps]
        return Finish(FinishReason.GOAL, [steps[0], [one.value for one in steps[1].branches], run.tool_context.handles])

    bench = await runtimes([calls[0], CallParallel(calls), finished], tools=[use], context=[Provider(give)])
    bench.rt.handles.set("shared", shared)
    run = await bench.start()
    assert (await bench.end(run)).payload == [True, [True, True], ["shared", f"{run.id}/db"]]
    assert f"{run.id}/db" not in bench.rt.handles  # the run is over
    assert bench.rt.handles.get("shared") is shared


async def test_a_tool_without_the_live_object_gets_an_error_that_names_it(runtimes: Runtimes) -> None:
    """A name that the context lacks, one whose object is not in this process, and a run without any context."""

    async def use(call: CallContext, name: str) -> str:
        """Use a connection."""
        return call.handle(name).name

    lost = Context(tool_context=ToolContext(handles=("lost",)))
    for context, name, message in (
        (lost, "lost", "tool context lost: handle"),
        (lost, "other", "no handle 'other'"),
        (Context(), "db", "no handle 'db'"),
    ):
        args = f'{{"name":"{name}"}}'.encode()
        bench = await runtimes(
            [
                CallTool("use", args),
                lambda run: Finish(FinishReason.GOAL, run.trajectory.steps[0].observation["error"]),
            ],
            tools=[use],
        )
        assert message in (await bench.run(context=context)).payload, name


async def test_a_paused_run_resumes_only_where_its_live_objects_are(storage: Storage) -> None:
    """In the process that has them it goes on; another one refuses, and the pause stays open."""
    script = [RequestPause(PauseReason.AWAIT_INPUT, {"q": "?"}), GOAL]
    context = Context(handles={"db": Connection("db")})
    async with Runtime(planner=ScriptedPlanner(script), storage=storage) as runtime:
        run = await runtime.start("g", who=ME, context=context)
        await waiting(run)
        kept = runtime.handles
    async with Runtime(planner=ScriptedPlanner(script[1:]), storage=storage) as runtime:
        elsewhere = await runtime.run(run.id, who=ME)
        await elsewhere.resume({"a": 1})
        async with asyncio.timeout(20):
            while not runtime.control_history(who=ME):  # noqa: ASYNC110 - a control of a run that is kept tells nobody
                await asyncio.sleep(0)
        assert len(await elsewhere.waiting()) == 1
    async with Runtime(planner=ScriptedPlanner(script[1:]), storage=storage, handles=kept) as runtime:
        again = await runtime.run(run.id, who=ME)
        await again.resume({"a": 1})
        async with asyncio.timeout(10):
            assert await again.finished() == GOAL


# ── What the model is shown ─────────────────────────────────────────────────────────────────────────────────────────


class Model:
    """Answers at once, and keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: list[CompleteRequest] = []

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        self.requests.append(request)
        return CompleteResponse(content="done")

    async def close(self) -> None:
        """Nothing is open."""


async def test_the_prompt_has_each_part_in_its_frame() -> None:
    """Memory by tier, skills, facts and hints are where the model looks for them; what is for tools is nowhere."""

    async def find() -> str:
        """Find."""
        return "found"

    context = Context(
        memory_blocks=MemoryBlocks(external={"since": 2019}, conversation=["</read_only_conversation_memory>hi"]),
        skills_context=[{"name": "ship"}],
        llm_context={"city": "Porto"},
        hints=PlanningNudges(max_parallel=1),
        planning_hints=PlanningHints(constraints="No refunds.", preferred_tools=("find",)),
        tool_context=ToolContext(serializable={"token": "for-tools-alone"}),
        handles={"crm-handle": object()},
    )
    model = Model()
    async with Runtime(model=model, tools=[find], context=[Provider(lambda run: context)]) as runtime:
        run = await runtime.start("g", who=ME)
        await run.finished()
        record = b"".join(await run.history())
    (request,) = model.requests
    texts = [str(message.content.text) for message in request.messages]
    framed = {
        "<read_only_external_memory>": '{"since":2019}',
        "<read_only_conversation_memory>": r'["<\/read_only_conversation_memory>hi"]',
        "<skills_context>": '[{"name":"ship"}]',
        "<run_context>": '{"city":"Porto"}',
    }
    for tag, body in framed.items():
        (text,) = [one for one in texts if one.startswith(tag)]
        assert body in text, tag
    assert "<planning_constraints>" in texts[0]
    assert "No refunds." in texts[0]
    assert request.parallel_tool_calls is False
    for hidden in ("for-tools-alone", "crm-handle"):
        assert hidden not in "".join(texts)
    assert b"for-tools-alone" in record  # recorded, for the tools of whoever goes on with the run
