"""A recorded run replays byte for byte, whatever happened in it; what has changed since is shown where it begins."""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from harborage import codec
from harborage.artifacts import ArtifactScope
from harborage.identity import Identity
from harborage.llm import CompleteRequest, CompleteResponse, RateLimitedError, ToolCallStructured, Usage
from harborage.planner import (
    AwaitTask,
    CallParallel,
    CallTool,
    Finish,
    FinishReason,
    JoinKind,
    JoinSpec,
    PauseReason,
    PlannerConfig,
    RequestPause,
    RunContext,
    SpawnSpec,
    SpawnTask,
    ToolCallDeferred,
)
from harborage.planner.config import PLANNERS
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.durable.engine import RunFailedError
from harborage.runtime.durable.journal import Ended, JournalCorruptError, decode_entry, encode_entry, raw
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.history import DifferenceKind, Replayed, ReplayError, build_history
from harborage.runtime.host import Runtime
from harborage.runtime.loop.errors import RunCancelledError
from harborage.runtime.run import Run
from harborage.runtime.steering import ControlType, Scope
from harborage.state.storage import open_storage
from harborage.testing.clock import FakeClock, settle
from harborage.testing.llm import ScriptedLLM, calls_tools, says
from harborage.testing.planners import ScriptedPlanner
from harborage.tools import SideEffect, ToolPolicy, tool
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
ONCE = ToolPolicy(max_retries=0)


@tool(effects=SideEffect.READ, policy=ONCE)
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(effects=SideEffect.READ, policy=ONCE)
async def fails() -> str:
    """Fail."""
    raise PermissionError("no")


@tool(policy=ONCE)
async def gated(text: str = "") -> dict[str, str]:
    """Need approval."""
    return {"said": text}


# ── Planners: whatever a planner says depends on everything it is shown ────────────────────────────────────────────


def shown(run: RunContext) -> str:
    """A digest of everything that a planner can see of its run."""
    assert run.trajectory is not None
    parts = [
        run.trajectory.serialize(),
        codec.encode([run.goal, run.query, run.control, run.budget, run.now(), run.session_artifacts]),
        codec.encode(list(run.pending_tool_calls)),
        codec.encode(sorted(one.name for one in run.catalog.list()) if run.catalog is not None else []),
    ]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


def call(text: str) -> CallTool:
    return CallTool("gated", codec.encode({"text": text}), f"id-{text}")


WORDS: dict[str, Callable[[str], Any]] = {
    "call": lambda seen: CallTool("add", b'{"a": 1, "b": 2}', f"id-{seen}"),
    "gated": call,
    "fails": lambda seen: CallTool("fails"),
    "nope": lambda seen: CallTool(f"nope-{seen}"),
    "bad": lambda seen: CallTool("add", b'{"a": '),
    "all": lambda seen: CallParallel((call(seen), CallTool("fails"), CallTool("nope"))),
    "first": lambda seen: CallParallel((CallTool("fails"), call(seen)), JoinSpec(JoinKind.FIRST_SUCCESS)),
    "keyed": lambda seen: CallParallel((call(seen), call(seen[:3])), JoinSpec(JoinKind.KEYED, merge_keys=("b", "a"))),
    "two": lambda seen: CallParallel((call(seen), CallTool("fails")), JoinSpec(JoinKind.N, n=2)),
    "ask": lambda seen: RequestPause(PauseReason.AWAIT_INPUT, {"seen": seen}),
    "child": lambda seen: SpawnTask(spec=SpawnSpec(query="child", description=seen)),
    "wait": lambda seen: SpawnTask(spec=SpawnSpec(query="child", retain_turn=True)),
    "await": lambda seen: AwaitTask(f"no-such-task-{seen}"),
    "nothing": lambda seen: None,
    "done": lambda seen: Finish(FinishReason.GOAL, {"seen": seen}),
    "give up": lambda seen: Finish(FinishReason.NO_PATH),
}
CONTROLS = ("message", "inject", "redirect", "pause", "prioritize", "nonsense", "cancel")


class Speaker:
    """A planner that says one word a step; `beside` are the controls that a caller sends while it decides."""

    def __init__(self, words: Sequence[str], beside: Sequence[tuple[int, str]] = ()) -> None:
        self.words = words
        self.beside = beside
        self.run: Run | None = None
        self._calls: dict[str, int] = {}

    async def next(self, run: RunContext) -> Any:
        if run.query == "child":
            return Finish(FinishReason.GOAL, "from the child")
        number = self._calls.get(run.quadruple.run_id, 0)
        self._calls[run.quadruple.run_id] = number + 1
        for at, control in self.beside:
            if at == number and self.run is not None:
                with suppress(
                    RunCancelledError
                ):  # an answer after a cancel is refused to who sends it, here the planner
                    await send(self.run, control)
        seen = shown(run)
        if run.on_reasoning and run.on_assistant_content and run.on_pending_tool_calls:
            run.on_reasoning(f"because {seen}")
            run.on_assistant_content(f"so {seen}")
            run.on_pending_tool_calls([ToolCallDeferred("later", b"{}", seen)] if number % 2 else [])
        word = self.words[number] if number < len(self.words) else "done"
        if word == "error":
            raise LookupError(f"lost at {seen}")
        return WORDS[word](seen)


async def send(run: Run, control: str) -> None:
    match control:
        case "message":
            await run.message("hello")
        case "inject":
            await run.inject({"k": [1, 2]})
        case "redirect":
            await run.redirect("another goal")
        case "pause":
            await run.pause()
        case "prioritize":
            await run.prioritize(3)
        case "nonsense":
            await run._send(ControlType.APPROVE, {"token": "no-such-token"})
        case "cancel":
            await run.cancel()


def speaking(words: Sequence[str], beside: Sequence[tuple[int, str]] = ()) -> tuple[Runtime, Speaker]:
    speaker = Speaker(words, beside)
    tools = [add, fails, gated]
    options = RuntimeOptions(max_steps=8, pause_ttl=timedelta(seconds=60), approval_ttl=timedelta(seconds=60))
    clock = FakeClock()
    return Runtime(
        planner=speaker, tools=tools, approvals={"gated": AlwaysDeny()}, options=options, clock=clock
    ), speaker


async def lived(words: Sequence[str], beside: Sequence[tuple[int, str]], answers: Sequence[str]) -> list[bytes]:
    """The record of a run that said these words; what waits is answered in turn."""
    runtime, speaker = speaking(words, beside)
    async with asyncio.timeout(60), runtime:
        speaker.run = run = await runtime.start("the goal", who=ME, scope=Scope.ADMIN)
        left = list(answers)
        while not (await run.status()).phase.is_final:
            for pause in await run.waiting():
                await answer(run, pause.token, left.pop(0) if left else "approve")
            await settle()
        return await run.history()


async def answer(run: Run, token: str, how: str) -> None:
    match how:
        case "approve":
            await run.approve(token, reason="fine")
        case "edit":
            await run.approve(token, args={"text": "edited"})
        case "reject":
            await run.reject("no", token=token)


@given(
    st.lists(st.sampled_from([*WORDS, "error"]), max_size=7),
    st.lists(st.tuples(st.integers(0, 6), st.sampled_from(CONTROLS)), max_size=4),
    st.lists(st.sampled_from(["approve", "edit", "reject"]), max_size=6),
)
@settings(deadline=None, max_examples=150)
def test_every_run_replays(words: list[str], beside: list[tuple[int, str]], answers: list[str]) -> None:
    """Calls of every kind, failures, branches, pauses, controls, children: the same planner decides the same, given the
    same; and however short the record is, what there is of it replays."""

    async def tell() -> None:
        record = await lived(words, beside, answers)
        replayed = await speaking(words)[0].replay(record)
        assert replayed.difference is None, str(replayed.difference)
        assert replayed.is_whole
        history = build_history(record)
        assert replayed.steps == len([step for step in history.steps if not step.cut])
        for length in range(1, len(record), 3):
            part = await speaking(words)[0].replay(record[:length])
            assert part.difference is None, f"{length} of {len(record)}: {part.difference}"
            assert not part.is_whole

    asyncio.run(tell())


@given(st.lists(st.sampled_from(["call", "gated", "fails", "all", "ask"]), min_size=1, max_size=5), st.data())
@settings(deadline=None, max_examples=50)
def test_a_changed_decision_is_found_where_it_is(words: list[str], data: st.DataObject) -> None:
    """A planner that says another word at one step differs at that step, in its decision."""
    at = data.draw(st.integers(0, len(words) - 1))

    async def tell() -> None:
        record = await lived(words, (), ())
        replayed = await speaking([*words[:at], "give up", *words[at + 1 :]])[0].replay(record)
        assert replayed.difference is not None
        assert (replayed.difference.kind, replayed.difference.step) == (DifferenceKind.DECISION, at + 1)
        assert '+  "type": "Finish"' in replayed.difference.diff
        assert replayed.steps == at + 1

    asyncio.run(tell())


# ── Models: every answer is on record, and every prompt is compared ────────────────────────────────────────────────


class Wild:
    """A model with a mind of its own: answers are taken in turn, summaries are made when they are asked for."""

    def __init__(self, answers: Sequence[Any]) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        self.asked += 1
        if request.response_format is not None:
            return says('{"goals":["g"],"facts":["f"],"pending":[],"last_output_digest":"","note":""}')
        said = self.answers.pop(0) if self.answers else says("done")
        if isinstance(said, Exception):
            raise said
        return said  # type: ignore[no-any-return]

    async def close(self) -> None: ...


CALLS = st.sampled_from(
    [("add", {"a": 1, "b": 2}), ("add", {"a": "x"}), ("fails", {}), ("nope", {}), ("add", b"{oops")]
)
ANSWERS = st.one_of(
    st.builds(
        lambda calls, content, reasoning: calls_tools(*calls, content=content, reasoning=reasoning),
        st.lists(CALLS, min_size=1, max_size=3),
        st.sampled_from(["", "let me see"]),
        st.sampled_from(["", "hm"]),
    ),
    st.just(CompleteResponse("", (ToolCallStructured("", "_spawn_task", b'{"spec":{"query":"x"}}'),))),
    st.just(CompleteResponse("", usage=Usage(prompt_tokens=10, completion_tokens=1))),
    st.just(RateLimitedError("slow down")),
)


@given(st.lists(ANSWERS, max_size=6), st.sampled_from([0, 150]), st.booleans())
@settings(deadline=None, max_examples=120)
def test_every_run_over_a_model_replays(answers: list[Any], token_budget: int, has_instructions: bool) -> None:
    """Whatever the model answers, its failures, repairs and summaries included; each recorded answer is served once."""
    words = "Be brief." if has_instructions else ""
    options = RuntimeOptions(max_steps=8, token_budget=token_budget, provider_patience=timedelta())

    async def tell() -> None:
        model = Wild(answers)
        async with Runtime(model=model, tools=[add, fails], options=options, instructions=words) as runtime:
            run = await runtime.start("the goal", who=ME)
            with suppress(RunFailedError):
                await run.finished()
            record = await run.history()
        replayed = await Runtime(model="openai:gpt-5", tools=[add, fails], options=options, instructions=words).replay(
            record
        )
        assert replayed.difference is None, str(replayed.difference)
        assert replayed.is_whole
        assert replayed.model_calls == build_history(record).totals.model_calls > 0
        changed = await Runtime(model="mock:", tools=[add, fails], options=options, instructions="No.").replay(record)
        assert changed.difference is not None
        assert (changed.difference.kind, changed.difference.step) == (DifferenceKind.PROMPT, 1)
        assert "+    No." in changed.difference.diff

    asyncio.run(tell())


async def recorded(model: Any, *, goal: str = "add them", **fields: Any) -> list[bytes]:
    """The record of a run over a model with one tool."""
    async with Runtime(model=model, tools=[add], **fields) as runtime:
        run = await runtime.start(goal, who=ME)
        with suppress(RunFailedError):
            await run.finished()
        return await run.history()


def summing() -> ScriptedLLM:
    return ScriptedLLM([calls_tools(("add", {"a": 1, "b": 2}), content="let me see"), says("3")])


async def replayed_with(record: list[bytes], **fields: Any) -> Replayed:
    return await Runtime(model="openai:gpt-5", **{"tools": [add], **fields}).replay(record)


async def test_a_replay_needs_no_key_and_calls_no_tool() -> None:
    """The model is not opened, and neither a tool nor the runtime itself has anything to do."""
    calls = 0

    @tool(name="add", effects=SideEffect.READ)
    async def counted(a: int, b: int) -> int:
        """Add."""
        nonlocal calls
        calls += 1
        return a + b

    record = await recorded(summing())
    replayed = await replayed_with(record, tools=[counted])
    assert (replayed.is_same, replayed.steps, replayed.model_calls, calls) == (True, 2, 2, 0)
    assert replayed.summary() == "2 decisions are the same as recorded, with 2 answers of the model"
    replayed.check()


async def test_a_changed_tool_is_a_changed_prompt() -> None:
    """What a tool says of itself is part of what the model is asked; the diff shows the words."""

    @tool(name="add", effects=SideEffect.READ)
    async def other(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    difference = (await replayed_with(await recorded(summing()), tools=[other])).difference
    assert difference is not None
    assert difference.kind is DifferenceKind.PROMPT
    assert "-    - add: Add." in difference.diff
    assert "+    - add: Add two numbers." in difference.diff


async def test_a_difference_can_be_raised() -> None:
    """`check` raises what was found, with the run and the diff in its text."""
    record = await recorded(summing())
    replayed = await replayed_with(record, instructions="Shout.")
    with pytest.raises(ReplayError, match="does not replay: step 1: the model is asked something else") as caught:
        replayed.check()
    assert caught.value.difference is replayed.difference
    assert codec.decode(replayed.to_json())["is_same"] is False


async def test_the_second_step_is_where_a_tools_result_is_seen() -> None:
    """A record whose result was changed differs where that result is put before the model."""
    record = [entry.replace(b'"observation":3', b'"observation":4') for entry in await recorded(summing())]
    difference = (await replayed_with(record)).difference
    assert difference is not None
    assert (difference.kind, difference.step) == (DifferenceKind.PROMPT, 2)
    assert "-    3" in difference.diff
    assert "+    4" in difference.diff


async def test_changed_arguments_are_shown() -> None:
    """A call that would be made with something else than was recorded before it was made."""
    record = await recorded(summing())
    at = next(at for at, entry in enumerate(record) if b'"begun"' in entry)
    record[at] = record[at].replace(b'"call_id":"call-0"', b'"call_id":"call-9"')
    difference = (await replayed_with(record)).difference
    assert difference is not None
    assert (difference.kind, difference.step) == (DifferenceKind.ARGUMENTS, 1)
    assert '-  "call_id": "call-9"' in difference.diff


async def test_another_ending_is_shown() -> None:
    """A finish that is not the recorded one."""
    record = await recorded(summing())
    ended = decode_entry(record[-1], "", 0)
    finish = Finish(FinishReason.GOAL, "4")
    record[-1] = encode_entry(Ended(at=ended.at, finish=raw(finish)))
    difference = (await replayed_with(record)).difference
    assert difference is not None
    assert difference.kind is DifferenceKind.ENDING
    assert '+  "payload": "3"' in difference.diff


async def test_a_step_that_is_not_there_any_more_is_shown() -> None:
    """Approvals are part of the loop: a call that was not gated then and is now asks for another step."""
    record = await recorded(summing())
    difference = (await replayed_with(record, approvals={"add": AlwaysDeny()})).difference
    assert difference is not None
    assert (difference.kind, difference.step) == (DifferenceKind.STEP, 1)
    assert "'approve.add' is requested" in difference.what


@each_row(
    "before, now, what",
    [
        ([ValueError("one")], [ValueError("other")], "fails with another error"),
        ([ValueError("one")], [Finish(FinishReason.GOAL)], "the planner failed here, and now it decides"),
        ([Finish(FinishReason.GOAL)], [ValueError("one")], "the planner fails: PlannerStepError"),
    ],
)
async def test_failures_are_compared(before: list[Any], now: list[Any], what: str) -> None:
    """A planner that fails where it did not, or otherwise than it did."""
    async with Runtime(planner=ScriptedPlanner(before)) as runtime:
        run = await runtime.start("g", who=ME)
        with suppress(RunFailedError):
            await run.finished()
        record = await run.history()
    difference = (await Runtime(planner=ScriptedPlanner(now)).replay(record)).difference
    assert difference is not None
    assert difference.kind is DifferenceKind.FAILURE
    assert what in difference.what
    assert (await Runtime(planner=ScriptedPlanner(before)).replay(record)).is_same


async def test_what_is_noted_beside_a_decision_counts() -> None:
    """Reasoning and prose go into later prompts, so they are compared, too."""

    class Thinker:
        def __init__(self, thought: str) -> None:
            self.thought = thought

        async def next(self, run: RunContext) -> Finish:
            if run.on_reasoning:
                run.on_reasoning(self.thought)
            return Finish(FinishReason.GOAL)

    async with Runtime(planner=Thinker("this")) as runtime:
        run = await runtime.start("g", who=ME)
        await run.finished()
        record = await run.history()
    difference = (await Runtime(planner=Thinker("that")).replay(record)).difference
    assert difference is not None
    assert difference.kind is DifferenceKind.NOTES
    assert '-  "reasoning": "this"' in difference.diff


class Asking:
    """A planner that calls the model's client a given number of times."""

    def __init__(self, client: Any, times: int) -> None:
        self.client = client
        self.times = times

    async def next(self, run: RunContext) -> Finish:
        said = [(await self.client.complete(CompleteRequest(messages=[]))).content for _ in range(self.times)]
        return Finish(FinishReason.GOAL, said[:1])


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], PlannerConfig]:
    """Configures a planner that asks its model this many times a step."""

    def configured(times: int) -> PlannerConfig:
        name = f"asking-{times}"
        monkeypatch.setitem(PLANNERS._targets, name, lambda config, deps: Asking(deps.llm, times))
        return PlannerConfig(driver=name)

    return configured


@pytest.mark.parametrize(
    ("times", "what"), [(3, "the model is called once more"), (1, "the model is called 1 time(s) less")]
)
async def test_the_model_is_asked_as_often_as_it_was(
    times: int, what: str, asking: Callable[[int], PlannerConfig]
) -> None:
    """Once more has no answer on record, and once less is not what was recorded."""
    async with Runtime(model=ScriptedLLM(["a", "a"]), planner=asking(2)) as runtime:
        run = await runtime.start("g", who=ME)
        await run.finished()
        record = await run.history()
    difference = (await Runtime(model="mock:", planner=asking(times)).replay(record)).difference
    assert difference is not None
    assert difference.kind is DifferenceKind.MODEL
    assert what in difference.what


async def test_a_record_without_a_model_says_so() -> None:
    """`records_model=False` keeps a record small; then the planner has nothing to answer it."""
    record = await recorded(summing(), options=RuntimeOptions(records_model=False))
    difference = (await replayed_with(record)).difference
    assert difference is not None
    assert difference.kind is DifferenceKind.MODEL
    assert "records_model=False" in difference.what
    assert b"heard" not in b"".join(record)


async def test_whatever_reaches_out_is_named() -> None:
    """A planner with a connection of its own is refused it, and the difference says who it was."""

    class Curious:
        async def next(self, run: RunContext) -> Finish:
            with suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", 9))
            return Finish(FinishReason.GOAL)

    async with Runtime(planner=Curious()) as runtime:
        run = await runtime.start("g", who=ME)
        await run.finished()
        record = await run.history()
    difference = (await Runtime(planner=Curious()).replay(record)).difference
    assert difference is not None
    assert difference.kind is DifferenceKind.NETWORK
    assert "test_replaying.py" in difference.what


async def test_what_the_user_had_attached_is_shown_again() -> None:
    """A picture is part of the prompt; it is read from where artifacts are kept, and another one is another prompt."""
    model = ScriptedLLM([says("a cat")])
    runtime = Runtime(model=model)
    async with runtime:
        scope = ArtifactScope("t", "u", "s")
        image = await runtime.artifacts.put_bytes(scope, b"\x89PNG" + bytes(500), mime_type="image/png")
        run = await runtime.start("what is it?", who=ME, input_artifacts=[image.id])
        await run.finished()
        record = await run.history()
        await runtime.artifacts.put_bytes(scope, b"more", filename="more.txt")
        assert (await runtime.replay(record)).is_same
    assert b"sha256:" in b"".join(record)
    difference = (await Runtime(model=model).replay(record)).difference
    assert difference is not None
    assert difference.kind is DifferenceKind.PROMPT


async def test_the_sessions_artifacts_are_those_of_then() -> None:
    """What the planner was shown of the session is on record, whatever is there by now."""
    runtime = Runtime(model=ScriptedLLM([calls_tools(("add", {"a": 1, "b": 2})), says("3")]), tools=[add])
    async with runtime:
        await runtime.artifacts.put_bytes(ArtifactScope("t", "u", "s"), b"old", filename="old.txt")
        run = await runtime.start("g", who=ME)
        await run.finished()
        record = await run.history()
    assert sum(b'"manifest"' in entry for entry in record) == 1
    assert (await replayed_with(record)).is_same


async def test_a_hard_cancel_is_replayed() -> None:
    """A call that was cut short is cut short again, without being made."""
    started = asyncio.Event()

    @tool(name="add")
    async def slow(a: int, b: int) -> int:
        """Add."""
        started.set()
        return await asyncio.Event().wait() or 0

    async with Runtime(model=summing(), tools=[slow]) as runtime:
        run = await runtime.start("g", who=ME)
        await started.wait()
        await run.cancel(hard=True)
        assert (await run.finished()).reason is FinishReason.CANCELLED
        record = await run.history()
    replayed = await Runtime(model="mock:", tools=[slow]).replay(record)
    assert (replayed.is_same, replayed.is_whole, replayed.steps) == (True, True, 1)


async def test_runs_go_on_beside_a_replay() -> None:
    """Only the replay is kept from the network: a run of the same process reaches its server meanwhile."""
    reached = asyncio.Event()

    class Slow:
        async def next(self, run: RunContext) -> Finish:
            await reached.wait()
            return Finish(FinishReason.GOAL)

    async def ring() -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        async with server:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.close()
            await writer.wait_closed()
        reached.set()

    planner = ScriptedPlanner([Finish(FinishReason.GOAL)])
    async with Runtime(planner=planner) as runtime:
        run = await runtime.start("g", who=ME)
        await run.finished()
        record = await run.history()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        replaying = group.create_task(Runtime(planner=Slow()).replay(record))
        group.create_task(ring())
    assert replaying.result().is_same


async def test_a_record_that_is_none_is_an_error() -> None:
    """Nothing, or something that does not begin as a run does."""
    with pytest.raises(JournalCorruptError, match="there is no record"):
        await Runtime(planner=ScriptedPlanner([])).replay([])
    record = await recorded(summing())
    with pytest.raises(JournalCorruptError, match="entry 0: a run begins with `started`, not Done"):
        await Runtime(planner=ScriptedPlanner([])).replay(record[1:])


async def test_a_run_that_was_carried_on_replays() -> None:
    """Another process continues at the last recorded step, and appends only new entries."""
    runs: list[Run] = []

    @tool(name="add", effects=SideEffect.READ)
    async def pausing(a: int, b: int) -> int:
        """Add."""
        await runs[0].pause()
        return a + b

    async with await open_storage("memory:") as storage:
        async with Runtime(model=summing(), tools=[pausing], storage=storage, instructions="Be brief. " * 99) as first:
            runs.append(await first.start("g", who=ME))
            while not await runs[0].waiting():
                await settle()
        second = Runtime(
            model=ScriptedLLM([says("3")]), tools=[pausing], storage=storage, instructions="Be brief. " * 99
        )
        async with second:
            run = await second.run(runs[0].id, who=ME)
            await run.resume()
            assert (await run.finished()).payload == "3"
            record = await run.history()
            replayed = await second.replay(record)
    assert (replayed.is_same, replayed.is_whole, replayed.model_calls) == (True, True, 2)
    assert [b"".join(record).count(text) for text in (b"<identity>", b'"kept":[[0,2]]')] == [1, 1]
