"""A run's history: its steps, its serialised form, and what is kept beside it."""

from __future__ import annotations

import asyncio
import copy
import json
import threading
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.planner import (
    UNSET_TIME,
    AwaitTask,
    BackgroundMemberOutcome,
    BackgroundResult,
    CallParallel,
    CallTool,
    FailureRecord,
    Finish,
    JoinSpec,
    ProcessLocalHandleRegistry,
    RequestPause,
    ResumeHint,
    Source,
    SourceKind,
    SpawnSpec,
    SpawnTask,
    SteeringInjection,
    Step,
    StreamChunk,
    ToolContext,
    ToolContextLostError,
    Trajectory,
    TrajectoryCorruptError,
    TrajectorySummary,
    UnserializableError,
    default_token_estimator,
)
from harborage.planner.trajectory import StepCursor, memoize_on
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

AT = datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=UTC)
GOLDEN = b'{"query":"what is harbor?","tool_context":{"serializable":{"alpha":"a","beta":"b"},"handles":["h-x"]}}'

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
json_maps = st.dictionaries(st.text(max_size=8), json_values, max_size=4)
decisions = st.one_of(
    st.builds(CallTool, st.text(min_size=1), st.binary(), st.text()),
    st.builds(lambda names: CallParallel([CallTool(name) for name in names], JoinSpec()), st.lists(st.text())),
    st.builds(SpawnTask, spec=st.builds(SpawnSpec, query=st.text())),
    st.builds(AwaitTask, st.text()),
    st.builds(RequestPause, st.just("await_input"), json_maps),
    st.builds(Finish, st.just("goal"), json_values, json_maps),
)
steps = st.builds(
    Step,
    action=st.none() | decisions,
    reasoning_trace=st.text(),
    assistant_preamble=st.text(),
    observation=json_values,
    llm_observation=json_values,
    error=st.text(),
    failure=st.none() | st.builds(FailureRecord, code=st.text(), message=st.text(), attempts=st.integers(0, 9)),
    streams=st.dictionaries(st.text(max_size=4), st.just([StreamChunk(at=AT, data=b"\x00x", final=True)]), max_size=2),
    started_at=st.sampled_from([UNSET_TIME, AT]),
    latency_ms=st.integers(0, 9),
    token_estimate=st.integers(0, 9),
)
trajectories = st.builds(
    Trajectory,
    query=st.text(),
    llm_context=json_maps,
    tool_context=st.builds(ToolContext, serializable=json_maps, handles=st.lists(st.text())),
    steps=st.lists(steps, max_size=4),
    summary=st.none() | st.builds(TrajectorySummary, goals=st.lists(st.text()), note=st.text()),
    sources=st.lists(st.builds(Source, kind=st.sampled_from(SourceKind), ref=st.text()), max_size=2),
    steering_inputs=st.lists(
        st.builds(SteeringInjection, kind=st.text(), payload=json_maps, at_step=st.integers(0, 9)), max_size=2
    ),
    resume_hint=st.none()
    | st.builds(ResumeHint, pause_token=st.text(), resumed_at=st.just(AT), resume_payload=json_maps),
    steps_summarised=st.integers(0, 3),
)


def full() -> Trajectory:
    """A history with something in every field."""
    return Trajectory(
        query="q",
        llm_context={"b": 1, "a": 2},
        tool_context=ToolContext(serializable={"k": "v"}, handles=["h"]),
        steps=[
            Step(
                action=CallTool("search", b'{"q":1}', "c-1"),
                reasoning_trace="why",
                assistant_preamble="so",
                observation={"z": 1, "y": None},
                llm_observation="short",
                error="e",
                failure=FailureRecord(code="c", message="m", attempts=2),
                streams={"out": [StreamChunk(at=AT, data=b"hi"), StreamChunk(at=AT, data=b"", final=True)]},
                started_at=AT,
                latency_ms=5,
                token_estimate=7,
            )
        ],
        summary=TrajectorySummary(goals=["g"], facts=["f"], pending=["p"], last_output_digest="d", note="n"),
        sources=[Source(kind=SourceKind.TOOL, ref="search")],
        steering_inputs=[SteeringInjection(kind="user_message", payload={"message": "hi"}, at_step=0)],
        background={
            "g": BackgroundResult(
                group_id="g",
                status="completed",
                resolved_at=AT,
                members=[BackgroundMemberOutcome(task_id="t", status="complete", result_ref="r")],
                reason="done",
            )
        },
        resume_hint=ResumeHint(pause_token="p", resumed_at=AT, resume_payload={"ok": True}),
        steps_summarised=0,
    )


def nested(value: object) -> Trajectory:
    """A history whose first step observed `value`."""
    return Trajectory(steps=[Step(observation=value)])


def field_of(trajectory: Trajectory) -> str:
    """The path that refusing to serialise names."""
    with pytest.raises(UnserializableError) as caught:
        trajectory.serialize()
    return caught.value.field


# --- the written form


def test_golden_bytes():
    """The canonical form is exact to the byte."""
    context = ToolContext(serializable={"beta": "b", "alpha": "a"}, handles=["h-x"])
    assert Trajectory(query="what is harbor?", tool_context=context).serialize() == GOLDEN


def test_empty_history():
    """Only the tool context is always there."""
    assert Trajectory().serialize() == b'{"tool_context":{}}'


def test_keys_in_declared_order():
    """Records keep their declared key order, at every level."""
    written = json.loads(full().serialize())
    assert list(written) == [
        "query",
        "llm_context",
        "tool_context",
        "steps",
        "summary",
        "sources",
        "steering_inputs",
        "background",
        "resume_hint",
        "steps_summarised",
    ]
    assert list(written["steps"][0]) == [
        "action",
        "reasoning_trace",
        "assistant_preamble",
        "observation",
        "llm_observation",
        "error",
        "failure",
        "streams",
        "started_at",
        "latency_ms",
        "token_estimate",
    ]
    assert list(written["summary"]) == ["goals", "facts", "pending", "last_output_digest", "note"]
    assert list(written["steps"][0]["failure"]) == ["code", "message", "attempts"]
    assert list(written["sources"][0]) == ["kind", "ref"]
    assert list(written["steering_inputs"][0]) == ["kind", "payload", "at_step"]
    assert list(written["background"]["g"]) == ["group_id", "status", "resolved_at", "members", "reason"]
    assert list(written["background"]["g"]["members"][0]) == ["task_id", "status", "result_ref"]
    assert list(written["resume_hint"]) == ["pause_token", "resumed_at", "resume_payload"]


def test_maps_are_sorted():
    """Keys of free-form maps are sorted, so equal content gives equal bytes."""
    assert b'"llm_context":{"a":2,"b":1}' in full().serialize()
    assert b'"observation":{"y":null,"z":1}' in full().serialize()


def test_a_bare_step_shows_when_it_started():
    """`started_at` is always written; unset is year one."""
    step = b'{"started_at":"0001-01-01T00:00:00Z"}'
    assert nested(None).serialize() == b'{"tool_context":{},"steps":[' + step + b"]}"
    assert Step(started_at=None) == Step()


@each_row("value", [False, 0, "", [], {}, 0.0])
def test_empty_observations_are_observations(value):
    """Only None means that there is no observation; an empty value is kept."""
    again = Trajectory.deserialize(nested(value).serialize())
    assert again.steps[0].observation == value
    assert again.steps[0].observation is not None


def test_markup_is_escaped():
    """`<`, `>`, `&` and the two line separators are written as escapes, in keys too."""
    written = Trajectory(query="<a> & b\u2028\u2029", llm_context={"<": 1}).serialize()
    assert written == (
        b'{"query":"\\u003ca\\u003e \\u0026 b\\u2028\\u2029","llm_context":{"\\u003c":1},"tool_context":{}}'
    )
    assert Trajectory.deserialize(written).query == "<a> & b\u2028\u2029"


def test_times_are_rfc_3339():
    """A datetime anywhere is text in RFC 3339."""
    written = json.loads(Trajectory(llm_context={"at": AT}, steps=[Step(observation=[AT])]).serialize())
    assert written["llm_context"]["at"] == "2026-01-02T03:04:05.000600Z"
    assert written["steps"][0]["observation"] == ["2026-01-02T03:04:05.000600Z"]


def test_bytes_are_base64():
    """Bytes are base64, in streams and in free-form values."""
    written = json.loads(full().serialize())
    assert written["steps"][0]["streams"] == {
        "out": [
            {"at": "2026-01-02T03:04:05.000600Z", "data": "aGk="},
            {"at": "2026-01-02T03:04:05.000600Z", "data": "", "final": True},
        ]
    }
    assert json.loads(nested({"raw": b"\xff"}).serialize())["steps"][0]["observation"] == {"raw": "/w=="}


@each_row("handles", [None, [], ()])
def test_no_handles_leave_no_key(handles):
    """No handles are written as nothing, whichever way they were given, and stay so."""
    written = Trajectory(tool_context=ToolContext(serializable=None, handles=handles)).serialize()
    assert written == b'{"tool_context":{}}'
    assert Trajectory.deserialize(written).serialize() == written


def test_an_empty_summary_is_still_a_summary():
    """A summary without content is written and read back as a summary, not as none."""
    written = Trajectory(summary=TrajectorySummary()).serialize()
    assert written == b'{"tool_context":{},"summary":{}}'
    assert Trajectory.deserialize(written).summary == TrajectorySummary()


def test_writing_does_not_change_the_history():
    """Serialising leaves no trace on the value."""
    history = full()
    history.serialize()
    history.serialized_size()
    assert history == full()
    assert repr(history) == repr(full())


# --- reading back


def test_round_trip_of_everything():
    """A full history is written, read and written again to the same bytes and the same value."""
    written = full().serialize()
    again = Trajectory.deserialize(written)
    assert again == full()
    assert again.serialize() == written


@given(trajectories)
def test_round_trip_is_byte_identical(history):
    """Whatever JSON data a history holds, reading it back and writing it again gives the same bytes."""
    written = history.serialize()
    again = Trajectory.deserialize(written)
    assert again.serialize() == written
    assert [step.action for step in again.steps] == [step.action for step in history.steps]


@each_row(
    "decision",
    [
        CallTool("t", b"not json \xff", "c"),
        CallParallel([CallTool("a"), CallTool("b", b'{"x": "<"}')], JoinSpec("keyed", ["k"])),
        SpawnTask("foreground", SpawnSpec(description="d", query="q", fail_fast=True), "g", "key"),
        AwaitTask("t"),
        RequestPause("approval_required", {"why": 1}),
        Finish("no_path", [1, None], None),
    ],
)
def test_decisions_come_back_typed(decision):
    """An action that was a decision is that decision again after a restart."""
    again = Trajectory.deserialize(Trajectory(steps=[Step(action=decision)]).serialize())
    assert again.steps[0].action == decision
    assert type(again.steps[0].action) is type(decision)


@each_row(
    "action",
    [
        {"tool": "t", "args": {}},
        {"type": "Teleport", "to": "home"},
        {"type": "Finish", "reason": "bored"},
        {"type": ["CallTool"]},
        "CallTool",
        7,
    ],
)
def test_an_unreadable_action_stays_plain(action):
    """An action of another version, or none of ours, does not keep the history from opening."""
    written = Trajectory(steps=[Step(action=action)]).serialize()
    again = Trajectory.deserialize(written)
    assert again.steps[0].action == action
    assert again.serialize() == written


def test_unknown_keys_are_ignored():
    """Keys of a later version are no error, at any level."""
    data = b'{"tool_context":{"new":1},"steps":[{"started_at":"0001-01-01T00:00:00Z","mood":"good"}],"later":[]}'
    again = Trajectory.deserialize(data)
    assert again == Trajectory(steps=[Step()])


NOT_JSON = [b"", "", b"{", b"\xff", b'{"query":"\xff"}', b'{"llm_context":' + b'{"a":' * 100_000]
NO_HISTORY = [b"[]", b"null", b'{"query":7}', b'{"steps":[{"latency_ms":"x"}]}']


@each_row("data", [*NOT_JSON, *NO_HISTORY], ids=lambda data: str(data[:20]))
def test_broken_bytes_are_an_error(data):
    """Nothing, broken JSON and JSON of another shape are refused, and not as a serialisation error."""
    with pytest.raises(TrajectoryCorruptError):
        Trajectory.deserialize(data)


def test_a_shape_error_names_the_place():
    """The error says where the stored form went wrong."""
    with pytest.raises(TrajectoryCorruptError, match=r"\$\.steps\[0\]\.latency_ms"):
        Trajectory.deserialize(b'{"steps":[{"latency_ms":"x"}]}')


def test_text_is_read_like_bytes():
    """The canonical form may be given as text."""
    assert Trajectory.deserialize(GOLDEN.decode()) == Trajectory.deserialize(GOLDEN)


# --- failing loudly


def a_generator():
    """Something alive."""
    yield 1


LIVE = {
    "function": test_golden_bytes,
    "lambda": lambda: None,
    "lock": threading.Lock(),
    "generator": a_generator(),
    "complex": 1j,
    "object": object(),
    "class": dict,
}


@each_row("name", LIVE)
def test_a_live_object_is_refused_with_its_path(name):
    """What cannot become JSON is named by its path; no bytes come out."""
    assert field_of(Trajectory(llm_context={"callback": LIVE[name]})) == "Trajectory.llm_context.callback"
    assert field_of(nested({"inner": LIVE[name]})) == "Trajectory.steps[0].observation.inner"


def test_paths_reach_everywhere():
    """The path leads through records, maps and lists alike."""
    live = object()
    context = ToolContext(serializable={"live_callback": live})
    assert field_of(Trajectory(tool_context=context)) == "Trajectory.tool_context.serializable.live_callback"
    assert field_of(Trajectory(steps=[Step(), Step(llm_observation=[1, {"a": live}])])) == (
        "Trajectory.steps[1].llm_observation[1].a"
    )
    assert field_of(Trajectory(llm_context={"x": [live]})) == "Trajectory.llm_context.x[0]"
    injection = SteeringInjection(kind="inject_context", payload={"p": live}, at_step=0)
    assert field_of(Trajectory(steering_inputs=[injection])) == "Trajectory.steering_inputs[0].payload.p"
    hint = ResumeHint(pause_token="t", resumed_at=AT, resume_payload={"p": live})
    assert field_of(Trajectory(resume_hint=hint)) == "Trajectory.resume_hint.resume_payload.p"
    assert field_of(Trajectory(steps=[Step(action=Finish("goal", {"x": live}))])) == (
        "Trajectory.steps[0].action.payload.x"
    )


def test_a_callable_deep_in_a_list_of_maps():
    """The path names both the index and the key."""
    assert field_of(nested([{"ok": 1}, {"fine": 2, "bad": len}])) == "Trajectory.steps[0].observation[1].bad"


def test_the_first_offender_is_named():
    """With several offenders, the first in document order is the one reported."""
    history = Trajectory(llm_context={"a": 1, "b": object()}, steps=[Step(observation=object())])
    assert field_of(history) == "Trajectory.llm_context.b"


def test_non_string_keys():
    """A map needs text for keys; the path says where it has not."""
    assert field_of(nested({"m": {1: "x"}})) == "Trajectory.steps[0].observation.m <non-string-map-key>"


def test_cycles():
    """A map or a list that contains itself is refused, not followed for ever."""
    knot: dict = {}
    knot["self"] = knot
    assert field_of(Trajectory(llm_context=knot)) == "Trajectory.llm_context.self <cycle>"
    loop: list = [0]
    loop.append(loop)
    assert field_of(nested(loop)) == "Trajectory.steps[0].observation[1] <cycle>"


def test_the_same_value_twice_is_no_cycle():
    """A value may appear in several places."""
    shared = {"k": [1]}
    assert nested([shared, shared, {"again": shared}]).serialize()


@each_row("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_lacks(number):
    """NaN and the infinities are refused instead of becoming null."""
    assert field_of(nested({"rate": [1.0, number]})) == "Trajectory.steps[0].observation.rate[1]"


def test_text_that_is_no_unicode():
    """Half a surrogate pair cannot be written; the step is named."""
    assert field_of(nested({"text": "\ud800"})).startswith("Trajectory.steps[0]")


def test_no_history_at_all():
    """Serialising nothing is an error that names the whole."""
    with pytest.raises(UnserializableError) as caught:
        Trajectory.serialize(None)
    assert caught.value.field == "Trajectory"


class Pydantically:
    """Says how it becomes JSON, and may fail at it."""

    def __init__(self, given):
        self.given = given

    def model_dump(self, mode):
        """The JSON form."""
        if isinstance(self.given, Exception):
            raise self.given
        return {"mode": mode, "given": self.given}


def test_own_conversion_is_used():
    """An object that knows its JSON form is written in it."""
    written = json.loads(nested([Pydantically(1)]).serialize())
    assert written["steps"][0]["observation"] == [{"mode": "json", "given": 1}]


def test_own_conversion_that_fails():
    """An object whose conversion fails is refused with its path and the reason."""
    with pytest.raises(UnserializableError) as caught:
        nested({"thing": Pydantically(ValueError("not today"))}).serialize()
    assert caught.value.field == "Trajectory.steps[0].observation.thing"
    assert "not today" in caught.value.reason


# --- measuring


edits = st.lists(
    st.tuples(st.sampled_from(["append", "replace_last", "pop", "new_list", "truncate", "query"]), steps), max_size=12
)


@given(trajectories, edits)
def test_the_measure_is_exact(history, changes):
    """The size is that of the serialised form, after every change to the history."""
    for kind, step in [("append", Step()), *changes]:
        match kind:
            case "append":
                history.steps.append(step)
            case "replace_last" if history.steps:
                history.steps[-1] = step
            case "pop" if history.steps:
                history.steps.pop()
            case "new_list":
                history.steps = [*history.steps, step]
            case "truncate":
                del history.steps[1:]
            case "query":
                history.query += step.reasoning_trace
        assert history.serialized_size() == len(history.serialize())
        assert history.recent_size() == len(history.recent().serialize())
        assert default_token_estimator(history) == len(history.serialize()) // 4 + 1


class Counted:
    """Counts how often it is written."""

    def __init__(self):
        self.written = 0

    def to_json(self):
        """The JSON form."""
        self.written += 1
        return "x"


def test_a_finished_step_is_measured_once():
    """Measuring again after an append writes the new step alone."""
    observations = [Counted() for _ in range(20)]
    history = Trajectory()
    for counted in observations:
        history.steps.append(Step(observation=counted))
        history.serialized_size()
        history.recent_size()
    assert {counted.written for counted in observations} == {1}


def test_a_copy_measures_for_itself():
    """A copied history that goes another way is measured rightly, and so is the original."""
    history = Trajectory(steps=[Step(observation="a"), Step(observation="bb")])
    history.serialized_size()
    other = copy.copy(history)
    other.steps = [*history.steps[:1], Step(observation="c" * 50)]
    for one in (other, history, other):
        assert one.serialized_size() == len(one.serialize())


def test_measuring_refuses_what_writing_refuses():
    """The measure fails with the same path, and is right again once the step is gone."""
    history = Trajectory(steps=[Step(observation=1)])
    history.serialized_size()
    history.steps.append(Step(observation={"inner": object()}))
    with pytest.raises(UnserializableError) as caught:
        history.serialized_size()
    assert caught.value.field == "Trajectory.steps[1].observation.inner"
    history.steps.pop()
    assert history.serialized_size() == len(history.serialize())


def test_summarising_marks_the_steps_it_stands_for():
    """After a summary only later steps are recent; the old ones stay in the history."""
    history = Trajectory(steps=[Step(observation=1), Step(observation=2)])
    history.summarise(TrajectorySummary(note="n"))
    history.steps.append(Step(observation=3))
    assert (history.steps_summarised, len(history.steps)) == (2, 3)
    assert history.recent() == Trajectory(steps=[Step(observation=3)])
    assert Trajectory.deserialize(history.serialize()).steps_summarised == 2


def test_a_summary_that_says_nothing_of_its_steps_stands_for_all():
    """Made so or read so: histories written elsewhere know only the summary."""
    summary = TrajectorySummary(note="n")
    history = Trajectory(steps=[Step(observation=1), Step(observation=2)], summary=summary)
    assert history.steps_summarised == 2
    assert b"steps_summarised" not in history.serialize()
    assert Trajectory.deserialize(history.serialize()) == history
    assert Trajectory.deserialize(b'{"steps":[{"observation":1}],"summary":{}}').steps_summarised == 1
    assert Trajectory.deserialize(b'{"steps":[{"observation":1}]}').steps_summarised == 0


def test_a_summary_of_no_steps_stands_for_none():
    """What came after it is recent, also when the history was read back."""
    history = Trajectory(query="long")
    history.summarise(TrajectorySummary(note="n"))
    history.steps.append(Step(observation=1))
    again = Trajectory.deserialize(history.serialize())
    assert (again, again.steps_summarised) == (history, 0)


# --- many at once


async def test_a_shared_history_serialises_alike_for_all():
    """128 concurrent writers of one history get the same bytes."""
    history = full()
    written = await asyncio.gather(*(asyncio.to_thread(history.serialize) for _ in range(128)))
    assert set(written) == {full().serialize()}


async def test_histories_do_not_mix():
    """128 runs that build, measure and write their own history at once see nothing of one another."""

    async def one(number: int) -> tuple[bytes, int]:
        history = Trajectory(query=f"run-{number}")
        for index in range(5):
            history.steps.append(Step(observation={"run": number, "step": index}))
            history.serialized_size()
            await asyncio.sleep(0)
        return history.serialize(), history.serialized_size()

    for number, (written, size) in enumerate(await asyncio.gather(*(one(number) for number in range(128)))):
        read = json.loads(written)
        assert read["query"] == f"run-{number}"
        assert {step["observation"]["run"] for step in read["steps"]} == {number}
        assert size == len(written)


async def test_handles_stay_with_their_run():
    """128 runs with a registry each never see another run's handle."""

    async def one(number: int) -> None:
        registry = ProcessLocalHandleRegistry()
        handle = f"h-{number}"
        history = Trajectory(tool_context=ToolContext(handles=[handle]))
        registry.set(handle, number)
        await asyncio.sleep(0)
        (read,) = Trajectory.deserialize(history.serialize()).tool_context.handles
        assert registry.get(read) == number
        with pytest.raises(ToolContextLostError):
            registry.get(f"h-{number + 1}")

    await asyncio.gather(*(one(number) for number in range(128)))


def some_steps(count: int) -> list[Step]:
    """That many steps."""
    return [Step(action=CallTool(f"t{index}")) for index in range(count)]


def test_an_object_is_made_once_for_each_trajectory():
    """The same name beside the same trajectory is the same object; other trajectories have their own."""
    first, second = Trajectory(), Trajectory()
    kept = memoize_on(first, "a", list)
    assert memoize_on(first, "a", list) is kept
    assert memoize_on(first, "b", list) is not kept
    assert memoize_on(second, "a", list) is not kept


def test_without_a_trajectory_nothing_is_kept():
    """Every call makes its own."""
    assert memoize_on(None, "a", list) is not memoize_on(None, "a", list)


def test_it_is_no_part_of_the_history():
    """What is kept is neither compared nor serialised."""
    plain, used = Trajectory(query="q"), Trajectory(query="q")
    before = used.serialize()
    memoize_on(used, "a", object)
    assert used == plain
    assert used.serialize() == before
    assert Trajectory.deserialize(used.serialize()) == plain


def read(cursor: StepCursor, of: list[Step], first: int = 0) -> None:
    """Read to the end."""
    if not cursor.follows(of, first):
        cursor.restart(of, first)
    for _ in range(cursor.count, len(of)):
        cursor.advance()


def test_a_cursor_follows_a_list_that_grows():
    """What was appended is all that is left to read."""
    cursor, growing = StepCursor(), some_steps(2)
    assert not cursor.follows(growing)
    read(cursor, growing)
    growing += some_steps(1)
    assert cursor.follows(growing)
    assert cursor.count == 2


def test_a_cursor_notices_another_list():
    """A copy, a list that lost steps or got others, and another beginning are read anew."""
    cursor, growing = StepCursor(), some_steps(3)
    read(cursor, growing)
    assert not cursor.follows(copy.copy(growing))
    assert not cursor.follows(growing, 1)
    removed = growing.pop()
    assert not cursor.follows(growing)
    growing += some_steps(1)
    assert not cursor.follows(growing)
    growing[-1] = removed
    assert cursor.follows(growing)


def test_a_cursor_begins_in_the_middle():
    """Reading from a later step on leaves out those before it; beyond the end there is nothing to read yet."""
    cursor, growing = StepCursor(), some_steps(3)
    read(cursor, growing, 2)
    assert (cursor.first, cursor.count) == (2, 3)
    assert cursor.follows(growing, 2)
    cursor.restart(growing, 9)
    assert (cursor.first, cursor.count) == (3, 3)
    assert cursor.follows(growing, 3)
