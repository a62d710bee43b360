"""`CatalogToolExecutor`: what each decision gives, what goes wrong with it, and what the planner sees of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from harborage import codec
from harborage.artifacts import ArtifactScope, MemoryArtifactStore
from harborage.events import (
    Cursor,
    DurableEventBus,
    Filter,
    MemoryEventBus,
    PatternRedactor,
    ToolCompletedPayload,
    ToolInvokedPayload,
    encode_wire,
)
from harborage.identity import Quadruple
from harborage.planner import (
    AwaitTask,
    CallParallel,
    CallTool,
    Finish,
    FinishReason,
    JoinKind,
    JoinSpec,
    ParallelBranchInvalidArgsError,
    RunContext,
    SpawnSpec,
    SpawnTask,
)
from harborage.runtime.dispatch import (
    CatalogToolExecutor,
    ParallelDispatchError,
    SpawnDepthExceededError,
    ToolInvokeError,
)
from harborage.runtime.durable.steps import Recovery
from harborage.runtime.loop.outcome import OutcomeStatus
from harborage.runtime.steering import DecisionShapeUnsupportedError, ToolExecutor
from harborage.state.storage import open_storage
from harborage.tasks import (
    GroupRequest,
    GroupStatus,
    InProcessTaskRegistry,
    SpawnRequest,
    TaskFailure,
    TaskKind,
    TaskNotFoundError,
    WaitCycleError,
)
from harborage.testing.clock import FakeClock, settle
from harborage.testing.events import EventRecorder
from harborage.tools import (
    CallContext,
    CatalogView,
    OfRun,
    SideEffect,
    ToolCatalog,
    ToolError,
    ToolNotFoundError,
    ToolPolicy,
    ToolRejectedError,
    ToolResult,
    tool,
)
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

WHO = Quadruple("t", "u", "s", "r")
ONCE = ToolPolicy(max_retries=0)


@tool
async def echo(value: Any) -> Any:
    """Give back."""
    return value


@tool(policy=ONCE)
async def boom() -> None:
    """Fail."""
    raise LookupError("boom")


@tool(policy=ONCE)
async def silent() -> None:
    """Fail without a word."""
    raise KeyError


@tool
async def meta() -> Any:
    """Only meta data."""
    return ToolResult(None, {"seen": 3})


@tool
async def unspeakable() -> Any:
    """Something without a JSON form."""
    return {"deep": [object()]}


@tool
async def who_am_i(call: CallContext) -> Any:
    """What the call knows of itself."""
    return [call.who.run_id, call.call_id, call.idempotency_key]


@tool(policy=ONCE)
async def refused() -> None:
    """Refused by its own gate."""
    raise ToolRejectedError("refused", "not today", WHO)


@tool(effects=SideEffect.READ)
async def read() -> None:
    """Read."""


@tool(effects=SideEffect.WRITE)
async def write() -> None:
    """Write."""


@tool(effects=SideEffect.WRITE, idempotent=True)
async def keyed() -> None:
    """Write under a key."""


TOOLS = (echo, boom, silent, meta, unspeakable, who_am_i, refused, read, write, keyed)


@pytest.fixture
def catalog() -> ToolCatalog:
    catalog = ToolCatalog()
    for one in TOOLS:
        catalog.register(one)
    return catalog


@pytest.fixture
async def tasks() -> AsyncIterator[InProcessTaskRegistry]:
    bus = MemoryEventBus()
    registry = InProcessTaskRegistry(bus=bus)
    yield registry
    await registry.aclose()
    await bus.aclose()


@pytest.fixture
async def executor(catalog: ToolCatalog, tasks: InProcessTaskRegistry) -> AsyncIterator[CatalogToolExecutor]:
    executor = CatalogToolExecutor(catalog, MemoryArtifactStore(), tasks, clock=FakeClock())
    yield executor
    await executor.aclose()


def rc(**fields: Any) -> RunContext:
    return RunContext(**{"quadruple": WHO, **fields})


def echoes_json(value: Any) -> CallTool:
    """A call that gives back a value of any kind."""
    return CallTool("echo", msgspec.json.encode({"value": value}))


def echoes(value: str) -> CallTool:
    return CallTool("echo", b'{"value":"%s"}' % value.encode(), value)


async def test_it_is_a_tool_executor(executor: CatalogToolExecutor) -> None:
    """As `RunSpec` wants one."""
    assert isinstance(executor, ToolExecutor)


async def test_a_call_gives_what_the_tool_gave(executor: CatalogToolExecutor) -> None:
    """Meta data alone are a value too; the tool knows for whom it is called."""
    assert await executor.execute_decision(rc(), echoes("x")) == ("x", "x")
    assert await executor.execute_decision(rc(), CallTool("meta")) == ({"meta": {"seen": 3}},) * 2
    assert (await executor.execute_decision(rc(), CallTool("who_am_i", call_id="c")))[0] == ["r", "c", ""]


@pytest.mark.parametrize("name", ["", "nope", "ECHO"])
async def test_a_tool_that_is_not_there_is_named(executor: CatalogToolExecutor, name: str) -> None:
    """Alone, and in the step of an assembled runtime."""
    with pytest.raises(ToolNotFoundError):
        await executor.execute_decision(rc(), CallTool(name))
    outcome = await executor.call(WHO, CallTool(name), None, key="k")
    assert outcome.status is OutcomeStatus.FAILED
    assert repr(name) in outcome.error or not name


async def test_a_tool_that_the_run_may_not_see_is_not_there(catalog: ToolCatalog) -> None:
    """Its view decides, not the catalog."""
    secret = tool(echo.function, name="secret", auth_scopes=("vault",))
    catalog.register(secret)
    executor = CatalogToolExecutor(catalog, clock=FakeClock())
    call = CallTool("secret", b'{"value":1}')
    with pytest.raises(ToolNotFoundError, match="secret"):
        await executor.execute_decision(rc(catalog=CatalogView(catalog)), call)
    granted = CatalogView(catalog, granted_scopes=frozenset({"vault"}))
    assert (await executor.execute_decision(rc(catalog=granted), call))[0] == 1


@pytest.mark.parametrize(
    ("name", "args", "text", "cause"),
    [
        ("boom", b"{}", 'tool "boom" invoke: ', LookupError),
        ("silent", b"{}", 'tool "silent" invoke: ', KeyError),
        ("echo", b"{}", 'tool "echo" invoke: ', Exception),
        ("echo", b"not json", 'tool "echo" invoke: ', Exception),
        ("echo", b'{"value":1,"more":2}', 'tool "echo" invoke: ', Exception),
    ],
)
async def test_a_call_that_fails_names_its_tool(
    executor: CatalogToolExecutor, name: str, args: bytes, text: str, cause: type[Exception]
) -> None:
    """The tool's own error is in its chain of causes, and there is always a reason."""
    with pytest.raises(ToolInvokeError) as caught:
        await executor.execute_decision(rc(), CallTool(name, args))
    assert str(caught.value).startswith(text)
    assert len(str(caught.value)) > len(text)
    assert caught.value.tool == name
    chain, link = [], caught.value.__cause__
    while link is not None:
        chain.append(link)
        link = link.__cause__
    assert any(isinstance(one, cause) for one in chain)


async def test_a_refusal_differs_from_a_failure(executor: CatalogToolExecutor) -> None:
    """In the step of an assembled runtime."""
    for name, status in (("refused", OutcomeStatus.REJECTED), ("boom", OutcomeStatus.FAILED)):
        assert (await executor.call(WHO, CallTool(name), None, key="k")).status is status


async def test_a_result_without_a_json_form_says_so(executor: CatalogToolExecutor) -> None:
    """The planner sees the path; the raw value stays in the embedder's history, and out of a journal."""
    raw, seen = await executor.execute_decision(rc(), CallTool("unspeakable"))
    assert isinstance(raw["deep"][0], object)
    assert seen["tool"] == "unspeakable"
    assert "observation.deep[0]" in seen["error"]
    outcome = await executor.call(WHO, CallTool("unspeakable"), None, key="k")
    assert outcome.observation == seen


async def test_a_call_carries_its_key(executor: CatalogToolExecutor) -> None:
    """The same for every attempt at one step."""
    outcome = await executor.call(WHO, CallTool("who_am_i", call_id="c"), None, key="r/7")
    assert outcome.observation == ["r", "c", "r/7"]


@pytest.mark.parametrize(
    ("name", "recovery"), [("read", "retry"), ("keyed", "retry"), ("write", "unknown"), ("nope", "unknown")]
)
async def test_what_may_be_repeated_after_a_crash(executor: CatalogToolExecutor, name: str, recovery: str) -> None:
    """What only reads and what has a key; what is gone may have acted while it was there."""
    assert executor.recovery_of(CallTool(name)) is Recovery(recovery)


async def test_a_tool_that_awaits_a_cancelled_thing_fails_alone(catalog: ToolCatalog) -> None:
    """The run was not cancelled; a cancel of the run still ends it."""
    victim: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @tool(policy=ONCE)
    async def awaits() -> None:
        """Await something that others may cancel."""
        await victim

    catalog.register(awaits)
    executor = CatalogToolExecutor(catalog, clock=FakeClock())
    task = asyncio.create_task(executor.call(WHO, CallTool("awaits"), None, key="k"))
    await settle()
    victim.cancel()
    assert "cancelled elsewhere" in (await task).error
    victim = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(executor.call(WHO, CallTool("awaits"), None, key="k"))
    await settle()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()


async def test_branches_are_observed_one_by_one(catalog: ToolCatalog) -> None:
    """Bad arguments, a missing tool and a failure are their own branch's; a heavy value is reduced for the planner."""
    store = MemoryArtifactStore()
    executor = CatalogToolExecutor(catalog, store, heavy_threshold=50, clock=FakeClock())
    calls = (echoes("x"), CallTool("boom"), CallTool("nope"), CallTool("echo"), echoes("y" * 60))
    raw, seen = await executor.execute_decision(rc(), CallParallel(calls))
    assert [one.value for one in raw.branches] == ["x", None, None, None, "y" * 60]
    assert [bool(one.error) for one in raw.branches] == [False, True, True, True, False]
    assert seen.branches[:4] == raw.branches[:4]
    (kept,) = await store.list(ArtifactScope("t", "u", "s"))
    assert seen.branches[4].value["artifact_ref"] == kept.id


@pytest.mark.parametrize(
    "decision",
    [
        CallParallel((CallTool("boom"), CallTool("boom")), JoinSpec(JoinKind.FIRST_SUCCESS)),
        CallParallel((CallTool("boom"), echoes("x")), JoinSpec(JoinKind.N, n=2)),
        CallParallel((echoes("x"),), JoinSpec(JoinKind.N, n=9)),
        CallParallel(()),
        CallParallel((echoes("x"),) * 51),
    ],
)
async def test_a_parallel_call_fails_as_a_whole(executor: CatalogToolExecutor, decision: CallParallel) -> None:
    """When its join cannot be met, or makes no sense."""
    with pytest.raises(ParallelDispatchError, match="parallel dispatch: "):
        await executor.execute_decision(rc(), decision)


async def test_a_check_finds_the_first_branch_that_could_not_be_made(executor: CatalogToolExecutor) -> None:
    """By index, with its tool."""
    executor.check((echoes("x"), CallTool("boom")), None)
    for bad, name in ((CallTool("nope"), "nope"), (CallTool("echo"), "echo")):
        with pytest.raises(ParallelBranchInvalidArgsError) as caught:
            executor.check((echoes("x"), bad, CallTool("nope")), None)
        assert (caught.value.index, caught.value.tool) == (1, name)


@each_row("decision", [SpawnTask(), AwaitTask("x"), Finish(FinishReason.GOAL), None, "CallTool"])
async def test_what_it_cannot_carry_out_is_named(catalog: ToolCatalog, decision: Any) -> None:
    """Tasks without a registry, and what is no decision to act."""
    executor = CatalogToolExecutor(catalog, clock=FakeClock())
    with pytest.raises(DecisionShapeUnsupportedError) as caught:
        await executor.execute_decision(rc(), decision)
    assert caught.value.shape in {type(decision).__name__, "unknown"}


async def test_a_spawned_task_is_a_child_of_the_run(
    executor: CatalogToolExecutor, tasks: InProcessTaskRegistry
) -> None:
    """With kind, query, priority and the notice of its end; the handle comes back at once."""
    spawn = SpawnTask("foreground", SpawnSpec(description="d", query="q", priority=3))
    handle, seen = await executor.execute_decision(rc(), spawn)
    assert seen == handle
    assert {name: handle[name] for name in ("kind", "status")} == {"kind": "foreground", "status": "spawned"}
    task = await tasks.get(handle["task_id"], who=WHO)
    assert (task.kind, task.query, task.description, task.priority) == (TaskKind.FOREGROUND, "q", "d", 3)
    assert (task.parent_task_id, task.notify_on_complete, task.identity.run_id) == ("r", True, "")


@pytest.mark.parametrize(("retain", "fast"), [(False, False), (True, True), (False, True)])
async def test_a_spawned_task_is_alone_in_a_sealed_group(
    executor: CatalogToolExecutor, tasks: InProcessTaskRegistry, retain: bool, fast: bool
) -> None:
    """With the habits that the decision asks for; one that names a group joins that."""
    spawn = SpawnTask(spec=SpawnSpec(retain_turn=retain, fail_fast=fast, description="d"))
    handle = await executor.spawn(WHO, spawn, key="k")
    group = await tasks.resolve_or_create_group(GroupRequest(session=WHO.identity, id=handle.group_id), who=WHO)
    assert (group.retain_turn, group.fail_fast, group.description, group.owner_task_id) == (retain, fast, "d", "r")
    assert (group.status, group.members) == (GroupStatus.SEALED, (handle.task_id,))
    named = await tasks.resolve_or_create_group(GroupRequest(session=WHO.identity), who=WHO)
    for _ in range(2):
        joined = await executor.spawn(WHO, SpawnTask(group_id=named.id), key="")
        assert joined.handle["group_id"] == named.id
    again = await tasks.resolve_or_create_group(GroupRequest(session=WHO.identity, id=named.id), who=WHO)
    assert (again.status, len(again.members)) == (GroupStatus.OPEN, 2)


async def test_a_retained_turn_gives_the_childs_outcome(
    executor: CatalogToolExecutor, tasks: InProcessTaskRegistry
) -> None:
    """Once it has ended."""
    waiting = asyncio.create_task(executor.execute_decision(rc(), SpawnTask(spec=SpawnSpec(retain_turn=True))))
    await settle()
    assert not waiting.done()
    [child] = [one.id for one in await tasks.list(WHO.identity)]
    await tasks.mark_running(child, who=WHO)
    await tasks.mark_complete(child, b'{"answer":1}', who=WHO)
    observed, _ = await waiting
    assert observed == {"task_id": child, "status": "complete", "result": {"answer": 1}}


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        ("complete", {"status": "complete", "result": [1]}),
        ("garbled", {"status": "complete", "result": "not json"}),
        ("failed", {"status": "failed", "error": {"code": "boom", "message": "it broke"}}),
        ("silent", {"status": "failed", "error": {"code": "boom"}}),
        ("cancelled", {"status": "cancelled"}),
    ],
)
async def test_an_awaited_task_says_how_it_ended(
    executor: CatalogToolExecutor, tasks: InProcessTaskRegistry, end: str, outcome: dict[str, Any]
) -> None:
    """Result parsed where it is JSON, error by code and message; already ended or not."""
    handle = await tasks.spawn(SpawnRequest(identity=WHO, kind=TaskKind.BACKGROUND))
    await tasks.mark_running(handle.id, who=WHO)
    early = asyncio.create_task(executor.execute_decision(rc(), AwaitTask(handle.id)))
    await settle()
    assert not early.done()
    match end:
        case "complete":
            await tasks.mark_complete(handle.id, b"[1]", who=WHO)
        case "garbled":
            await tasks.mark_complete(handle.id, b"not json", who=WHO)
        case "failed":
            await tasks.mark_failed(handle.id, TaskFailure("boom", "it broke"), who=WHO)
        case "silent":
            await tasks.mark_failed(handle.id, TaskFailure("boom"), who=WHO)
        case "cancelled":
            await tasks.cancel(handle.id, who=WHO)
    late = await executor.execute_decision(rc(), AwaitTask(handle.id))
    assert await early == late == ({"task_id": handle.id, **outcome},) * 2


async def test_a_task_that_cannot_end_is_not_awaited(
    executor: CatalogToolExecutor, tasks: InProcessTaskRegistry
) -> None:
    """Unknown, another's, and the caller's own."""
    foreign = await tasks.spawn(SpawnRequest(identity=Quadruple("t2", "u", "s"), kind=TaskKind.BACKGROUND))
    for task_id, error in (("nobody", TaskNotFoundError), (foreign.id, TaskNotFoundError), ("r", WaitCycleError)):
        with pytest.raises(error):
            await executor.execute_decision(rc(), AwaitTask(task_id))


async def test_tasks_spawn_only_so_deep(executor: CatalogToolExecutor, tasks: InProcessTaskRegistry) -> None:
    """Four levels below a run that is no task; the fifth names the limit."""
    who = WHO
    for _ in range(4):
        handle, _ = await executor.execute_decision(rc(quadruple=who), SpawnTask())
        who = Quadruple("t", "u", "s", handle["task_id"])
    with pytest.raises(SpawnDepthExceededError, match=r"depth 5: planner\.absolute_max_spawn_depth is 4"):
        await executor.execute_decision(rc(quadruple=who), SpawnTask())
    assert len(await tasks.list(WHO.identity)) == 4


@pytest.mark.parametrize("number", [0, -1])
async def test_numbers_that_are_not_positive_mean_the_defaults(catalog: ToolCatalog, number: int) -> None:
    """A threshold of 32 KiB, and a depth of 4."""
    executor = CatalogToolExecutor(catalog, heavy_threshold=number, max_spawn_depth=number, clock=FakeClock())
    assert (executor._threshold, executor._max_depth) == (32 * 1024, 4)


async def test_calls_are_published_under_the_runs_identity(catalog: ToolCatalog) -> None:
    """On the bus it was given; without one nothing is published."""
    bus = MemoryEventBus()
    recorder = EventRecorder(bus)
    await CatalogToolExecutor(catalog, bus=bus, clock=FakeClock()).execute_decision(rc(), echoes("x"))
    (done,) = recorder.payloads(ToolCompletedPayload)
    assert (done.identity, done.tool_name) == (WHO, "echo")


async def shown(catalog: ToolCatalog, call: CallTool, **options: Any) -> tuple[Any, Any]:
    """What the events of one call show: when it began, and when it completed."""
    bus = MemoryEventBus()
    recorder = EventRecorder(bus)
    executor = CatalogToolExecutor(catalog, bus=bus, clock=FakeClock(), redactor=PatternRedactor(), **options)
    await executor.call(WHO, call, None, key="k", of_run=OfRun(step=2, call_id="2.0"))
    return recorder.payloads(ToolInvokedPayload)[0], recorder.payloads(ToolCompletedPayload)[0]


async def test_events_show_arguments_and_result(catalog: ToolCatalog) -> None:
    """Without secrets, and under the same id."""
    begun, done = await shown(catalog, echoes("Bearer abc.def"))
    assert (begun.args, begun.masked) == (msgspec.Raw(b'{"value":"Bearer ***"}'), True)
    assert (done.result, done.masked) == (msgspec.Raw(b'"Bearer ***"'), True)
    assert (begun.step, begun.call_id) == (done.step, done.call_id) == (2, "2.0")
    begun, done = await shown(catalog, echoes_json(None))
    assert (begun.args, done.result) == (msgspec.Raw(b'{"value":null}'), msgspec.Raw(b"null"))
    assert (begun.masked, done.masked) == (UNSET, UNSET)


async def test_the_event_of_a_result_that_is_kept_names_its_artifact(catalog: ToolCatalog) -> None:
    """It has how the result begins and its size; without a store it names none."""
    store = MemoryArtifactStore()
    for artifacts in (store, None):
        begun, done = await shown(catalog, echoes("x" * 5000), artifacts=artifacts, heavy_threshold=50)
        assert (begun.args, done.result) == (UNSET, UNSET)
        assert (begun.args_cut.bytes, begun.args_cut.artifact_id, done.result_cut.bytes) == (5012, UNSET, 5002)
        assert done.result_cut.preview.startswith('"xxx')
        if artifacts is None:
            assert done.result_cut.artifact_id is UNSET
        else:
            (kept,) = await store.list(ArtifactScope.of(WHO))
            assert done.result_cut.artifact_id == kept.id


async def test_a_result_without_a_json_form_is_not_shown(catalog: ToolCatalog) -> None:
    """The event has no key for it."""
    _, done = await shown(catalog, CallTool("unspeakable"))
    assert (done.result, done.result_cut, done.masked) == (UNSET, UNSET, UNSET)


def bytes_below(folder: Path) -> bytes:
    """Whatever the files of a folder hold."""
    return b"".join(file.read_bytes() for file in folder.iterdir())


async def test_no_secret_of_a_call_reaches_the_record_of_its_events(tmp_path: Path, catalog: ToolCatalog) -> None:
    """Neither one by its key nor one in a text: not in the events, and in no byte of the database."""
    path, secrets = tmp_path / "runs.db", ("hunter2-by-its-key", "Bearer s3cret.in.a.text")
    redactor = PatternRedactor()
    async with await open_storage(f"sqlite:{path}") as storage:
        bus = DurableEventBus(storage.store, redactor=redactor)
        executor = CatalogToolExecutor(catalog, bus=bus, clock=FakeClock(), redactor=redactor)
        for filling in ("", "x" * 5000):
            said = {"password": secrets[0], "note": secrets[1], "x": filling}
            await executor.call(WHO, echoes_json(said), None, key="k")
        events = await bus.replay(Cursor("s", 0), Filter.of(WHO.identity))
        assert [event.type for event in events] == ["tool.invoked", "tool.completed"] * 2
        text = b"".join(encode_wire(event) for event in events)
        await bus.aclose()
    found = text + bytes_below(tmp_path)
    assert not any(secret.removeprefix("Bearer ").encode() in found for secret in secrets)
    assert text.count(b'"Masked":true') == 4


async def test_a_tool_says_something_to_the_model_with_a_tool_error(catalog: ToolCatalog) -> None:
    """Exactly its text reaches the planner, after one attempt, whatever the policy allows."""
    calls = []

    @tool(effects="read", retries=3)
    async def find(order: str) -> str:
        """Find an order."""
        calls.append(order)
        raise ToolError(f"no such order: {order}")

    catalog.register(find)
    executor = CatalogToolExecutor(catalog, clock=FakeClock())
    outcome = await executor.call(WHO, CallTool("find", b'{"order":"7"}'), None, key="k")
    assert (outcome.status, outcome.error) == (OutcomeStatus.FAILED, "no such order: 7")
    assert calls == ["7"]


async def test_a_tool_that_cancels_by_itself_has_failed(catalog: ToolCatalog) -> None:
    """Nobody has cancelled the run, so that its call has an error like any other."""

    @tool
    async def gives_up() -> str:
        """Give up."""
        raise asyncio.CancelledError

    catalog.register(gives_up)
    outcome = await CatalogToolExecutor(catalog, clock=FakeClock()).call(WHO, CallTool("gives_up"), None, key="k")
    assert outcome.status is OutcomeStatus.FAILED
    assert "cancelled elsewhere" in outcome.error


async def test_the_text_of_an_error_names_its_class(catalog: ToolCatalog) -> None:
    """A planner reads `KeyError: 'zz'`, not `'zz'`."""
    errors = {
        "KeyError: 'zz'": KeyError("zz"),
        "LookupError": LookupError(),
        "ValueError: 7": ValueError(7),
        "LookupError: no such city": LookupError("no such city"),
    }

    @tool(policy=ONCE)
    async def fails(which: str) -> None:
        """Fail so."""
        raise errors[which]

    catalog.register(fails)
    executor = CatalogToolExecutor(catalog, clock=FakeClock())
    for text in errors:
        outcome = await executor.call(WHO, CallTool("fails", codec.encode({"which": text})), None, key="k")
        assert outcome.error == f'tool "fails" invoke: {text}'


async def test_whatever_a_tool_raises_is_a_failed_call(catalog: ToolCatalog) -> None:
    """Also what Python does not count as an error: it would end the run, or the process."""
    raised = [GeneratorExit(), SystemExit(3), BaseExceptionGroup("several", [GeneratorExit()])]

    async def raises(which: int) -> None:
        """Raise."""
        raise raised[which]

    def raises_in_a_thread(which: int) -> None:
        """Raise in a thread."""
        raise raised[which]

    catalog.register(tool(raises))
    catalog.register(tool(raises_in_a_thread))
    executor = CatalogToolExecutor(catalog, clock=FakeClock())
    for name in ("raises", "raises_in_a_thread"):
        for which in range(len(raised)):
            call = CallTool(name, b'{"which":%d}' % which)
            outcome = await executor.call(WHO, call, None, key="k")
            assert outcome.status is OutcomeStatus.FAILED, (name, which)
            branches, _ = await executor.execute_decision(rc(), CallParallel((call, echoes("x"))))
            assert [bool(one.error) for one in branches.branches] == [True, False], (name, which)


async def test_a_result_that_no_store_keeps_is_kept_in_the_record(catalog: ToolCatalog) -> None:
    """Whole for an audit, cut for the planner; where a store has it, the record holds its reference alone."""
    call = echoes("y" * 60)
    executor = CatalogToolExecutor(catalog, heavy_threshold=50, clock=FakeClock())
    outcome = await executor.call(WHO, call, None, key="k")
    assert (outcome.observation, outcome.seen["truncated"]) == ("y" * 60, True)
    kept = CatalogToolExecutor(catalog, MemoryArtifactStore(), heavy_threshold=50, clock=FakeClock())
    outcome = await kept.call(WHO, call, None, key="k")
    assert outcome.observation == outcome.seen
    assert outcome.seen["artifact_ref"]
