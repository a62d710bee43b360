"""The history becomes the conversation it was: legal for every provider, and built once."""

from __future__ import annotations

import json
import logging

import pytest

from harborage.llm import CompleteRequest, Content, Role
from harborage.planner import (
    AwaitTask,
    CallParallel,
    CallTool,
    Finish,
    FinishReason,
    MemoryBlockUnserializableError,
    ParallelBranchObservation,
    ParallelObservation,
    ReasoningReplayMode,
    RequestPause,
    SpawnSpec,
    SpawnTask,
    SteeringInjection,
    Step,
    Trajectory,
    TrajectorySummary,
)
from harborage.planner.react import DefaultPromptBuilder
from harborage.planner.react.blocks import PLACEHOLDER
from harborage.planner.react.transcript import Transcript
from tests.kit.provider_rules import check_request
from tests.kit.tables import each_row


def replayed(*steps: Step, mode: str = "never", **fields) -> list:
    """The messages of a history."""
    return Transcript(ReasoningReplayMode(mode)).messages(Trajectory(steps=list(steps), **fields))


def shape(messages) -> list:
    """What a conversation says, one entry a message."""
    return [
        (str(message.role), *(call.name for call in message.tool_calls)) if message.tool_calls else str(message.role)
        for message in messages
    ]


def test_a_call():
    """A call is the assistant's message, its answer the tool's, under the provider's id."""
    asked, answered = replayed(Step(action=CallTool("a", b'{ "x": 1 }', "id-1"), observation={"n": 1}))
    (call,) = asked.tool_calls
    assert (call.id, call.name, call.args) == ("id-1", "a", b'{ "x": 1 }')
    assert asked.content == Content()
    assert (answered.role, answered.tool_call_id, answered.content.text) == (Role.TOOL, "id-1", '{"n":1}')


def test_ids_of_our_own():
    """A call without an id gets one from its place in the history."""
    messages = replayed(
        Step(action=CallTool("a"), observation=1),
        Step(action=CallParallel((CallTool("b"), CallTool("c", call_id="own"))), observation=1),
        Step(action=CallParallel((CallTool("d"),)), observation=1),
    )
    ids = [call.id for message in messages for call in message.tool_calls]
    assert ids == ["react.callid.0", "react.callid.1.0", "own", "react.callid.2.0"]


def test_ids_that_providers_use_again():
    """Where a provider's ids begin anew with each answer, later calls get ids of ours; the answers follow them."""
    trajectory = Trajectory(
        steps=[
            Step(action=CallTool("a", call_id="call-0"), observation=1),
            Step(action=CallTool("b", call_id="call-0"), observation=2),
            Step(action=CallParallel((CallTool("c", call_id="x"), CallTool("d", call_id="x"))), observation=3),
            Step(action=CallTool("e", call_id="react.callid.5"), observation=4),
            Step(action=AwaitTask("t"), observation=5),
            Step(action=CallTool("f"), observation=6),
        ]
    )
    messages = Transcript(ReasoningReplayMode.NEVER).messages(trajectory)
    ids = [call.id for message in messages for call in message.tool_calls]
    assert ids == [
        "call-0",
        "react.callid.1",
        "x",
        "react.callid.2.1",
        "react.callid.5",
        "react.callid.4",
        "react.callid.5+",
    ]
    assert ids == [message.tool_call_id for message in messages if message.role is Role.TOOL]


@each_row(
    "args, shown",
    [
        (b"", b"{}"),
        (b" ", b"{}"),
        (b'{"a": 1.0}', b'{"a": 1.0}'),
        (b"{oops", b'{"invalid_arguments":"{oops"}'),
        (b"[1]", b'{"invalid_arguments":"[1]"}'),
        (b"\xff", b'{"invalid_arguments":"\xef\xbf\xbd"}'),
    ],
)
def test_arguments(args, shown):
    """Arguments stay as they were; what no provider would take is wrapped, so that the model sees what it wrote."""
    (call,) = replayed(Step(action=CallTool("a", args), observation=1))[0].tool_calls
    assert call.args == shown


def test_a_parallel_call():
    """All calls are one message; each is answered by its own branch, though the outcomes come in reverse."""
    branches = (CallTool("a", call_id="1"), CallTool("b", call_id="2"), CallTool("c", call_id="3"))
    seen = ParallelObservation([ParallelBranchObservation(index=index, value=f"of {index}") for index in (2, 1, 0)])
    messages = replayed(Step(action=CallParallel(branches), observation=seen, assistant_preamble="now"))
    assert shape(messages) == [("assistant", "a", "b", "c"), "tool", "tool", "tool"]
    assert messages[0].content.text == "now"
    assert [(one.tool_call_id, one.content.text) for one in messages[1:]] == [
        ("1", "of 0"),
        ("2", "of 1"),
        ("3", "of 2"),
    ]


def test_a_parallel_call_without_branches():
    """A parallel call without branches is rendered as text: a message without calls is no call."""
    messages = replayed(Step(action=CallParallel(()), observation="no"))
    assert [message.content.text for message in messages] == ['{"action":"CallParallel"}', "no"]


def test_a_spawn_and_an_await():
    """They are calls of the reserved names with the arguments that would make them again."""
    spawn = SpawnTask("background", SpawnSpec("d", "q", 3, True, False), "g")
    messages = replayed(
        Step(action=spawn, observation={"task_id": "t"}),
        Step(action=AwaitTask("t"), observation={"status": "complete"}),
        Step(action=SpawnTask(), observation={"task_id": "u"}),
    )
    first, second, third = [call for message in messages for call in message.tool_calls]
    assert (first.name, first.id) == ("_spawn_task", "react.callid.0")
    spec = {"description": "d", "query": "q", "priority": 3, "retain_turn": True, "fail_fast": False}
    assert json.loads(first.args) == {"kind": "background", "spec": spec, "group_id": "g"}
    assert (second.name, second.id, second.args) == ("_await_task", "react.callid.1", b'{"task_id":"t"}')
    assert set(json.loads(third.args)) == {"kind", "spec"}
    assert len(json.loads(third.args)["spec"]) == 5


@each_row(
    "action, text",
    [
        (Finish(FinishReason.NO_PATH), '{"action":"finish","reason":"no_path"}'),
        (RequestPause("await_input"), '{"action":"RequestPause"}'),
        ({"type": "Dance", "x": 1}, '{"action":"Dance"}'),
        (["odd"], '{"action":"list"}'),
    ],
)
def test_other_decisions(action, text):
    """A decision that is no call is rendered as text, and its outcome as a message of the user."""
    asked, answered = replayed(Step(action=action, observation="ok", reasoning_trace="why"))
    assert (asked.role, asked.content.text) == (Role.ASSISTANT, text)
    assert (answered.role, answered.content.text) == (Role.USER, "ok")
    asked, _ = replayed(Step(action=action, observation="ok", reasoning_trace="why"), mode="text")
    assert asked.content.text == f"Reasoning:\nwhy\n\n{text}"


def test_no_decision():
    """A step without a decision is its observation alone, if it has any."""
    (only,) = replayed(Step(observation="seen"), Step())
    assert (only.role, only.content.text) == (Role.USER, "seen")


@each_row(
    "mode, preamble, trace, text",
    [
        ("never", "", "", None),
        ("never", "", "why", None),
        ("never", "let me", "why", "let me"),
        ("text", "let me", "why\nso", "let me\n\nReasoning:\nwhy\nso"),
        ("text", "", "why", "Reasoning:\nwhy"),
        ("text", "let me", " ", "let me"),
        ("text", " ", "", None),
    ],
)
def test_what_the_assistant_said(mode, preamble, trace, text):
    """The prose beside a call, then the reasoning where it is replayed; silence is no content at all."""
    step = Step(action=CallTool("a"), observation=1, assistant_preamble=preamble, reasoning_trace=trace)
    assert replayed(step, mode=mode)[0].content == Content(text=text)


def test_the_run_chooses_the_mode(make_run, conversation):
    """The run's own mode wins over the builder's, and both can look at the same history."""
    trajectory = Trajectory(steps=[Step(action=CallTool("a"), observation=1, reasoning_trace="why")])
    builder = DefaultPromptBuilder(reasoning_replay=ReasoningReplayMode.TEXT)
    for override, text in ((None, "Reasoning:\nwhy"), ("never", None), ("junk", None), ("text", "Reasoning:\nwhy")):
        request = builder.build(make_run(trajectory=trajectory, reasoning_replay=override), "")
        assert conversation(request)[0].content.text == text


def test_a_missing_observation(caplog):
    """A call without an outcome is answered by a placeholder, and a warning says at which step."""
    with caplog.at_level(logging.WARNING):
        messages = replayed(Step(action=CallTool("a"), observation=1), Step(action=CallTool("b")))
    assert messages[3].content.text == PLACEHOLDER
    (record,) = caplog.records
    assert "step 1" in record.getMessage()


def injection(kind: str, at_step: int, **payload) -> SteeringInjection:
    """Something that steering brought."""
    return SteeringInjection(kind=kind, payload=payload, at_step=at_step)


def test_steering_stands_where_it_came():
    """Each message stands before the step it preceded, never between a call and its answers; the latest stands last."""
    messages = replayed(
        Step(action=CallTool("a"), observation=1),
        Step(action=CallParallel((CallTool("b"), CallTool("c"))), observation=1),
        steering_inputs=[
            injection("user_message", 0, message="first"),
            injection("user_message", 1, message=" a\nb "),
            injection("inject_context", 1, n=1),
            injection("redirect", 2, goal="elsewhere"),
            injection("user_message", 2, message="last"),
        ],
    )
    assert shape(messages) == [
        "user",
        ("assistant", "a"),
        "tool",
        "user",
        "user",
        ("assistant", "b", "c"),
        "tool",
        "tool",
        "user",
        "user",
    ]
    said = [message.content.text for message in messages if message.role is Role.USER]
    assert said[0] == "first"
    assert said[1] == " a\nb "
    assert said[2].startswith("<injected_context>")
    assert said[3].endswith("\nelsewhere")
    assert said[4] == "last"


@each_row("kind", ["user_message", "redirect", "something_new"])
def test_steering_of_an_unknown_shape(kind):
    """What is not understood is shown as data instead of being lost."""
    (message,) = replayed(steering_inputs=[injection(kind, 0, other=1)])
    assert '{"other":1}' in message.content.text


def test_an_empty_message():
    """An empty message of the user is replaced by a note: providers refuse empty messages."""
    (message,) = replayed(steering_inputs=[injection("user_message", 0, message=" ")])
    assert message.content.text.strip()


def test_injected_context_that_has_no_json_form():
    """It fails loudly, each time it is asked for, and does not take the step's messages along."""
    trajectory = Trajectory(
        steps=[Step(action=CallTool("a"), observation=1)],
        steering_inputs=[injection("inject_context", 0, f=print)],
    )
    replay = Transcript(ReasoningReplayMode.NEVER)
    for _ in range(2):
        with pytest.raises(MemoryBlockUnserializableError, match="injected_context"):
            replay.messages(trajectory)
    trajectory.steering_inputs[0] = injection("inject_context", 0, f=1)
    assert shape(replay.messages(trajectory)) == ["user", ("assistant", "a"), "tool"]


def test_steering_and_a_summary():
    """What came before the summary is the summary's; what came with it or later is shown."""
    trajectory = Trajectory(
        steps=[Step(action=CallTool("a"), observation=1), Step(action=CallTool("b"), observation=1)],
        steering_inputs=[injection("user_message", 1, message="old"), injection("user_message", 2, message="new")],
    )
    trajectory.summarise(TrajectorySummary(note="n"))
    replay = Transcript(ReasoningReplayMode.NEVER)
    assert [message.content.text for message in replay.messages(trajectory)] == ["new"]
    trajectory.steps.append(Step(action=CallTool("c"), observation=1))
    trajectory.steering_inputs.append(injection("user_message", 3, message="newer"))
    assert shape(replay.messages(trajectory)) == ["user", ("assistant", "c"), "tool", "user"]


def test_a_history_that_grows_is_a_longer_conversation():
    """Each step's messages are appended to the same beginning: the very same objects, in the same order."""
    trajectory = Trajectory()
    replay = Transcript(ReasoningReplayMode.NEVER)
    before: list = []
    for number in range(5):
        trajectory.steering_inputs.append(injection("user_message", number, message=f"m{number}"))
        trajectory.steps.append(Step(action=CallTool("a"), observation=number))
        now = replay.messages(trajectory)
        assert all(one is other for one, other in zip(before, now, strict=False))
        before = now
    assert len(before) == 15


def test_steering_is_never_lost():
    """An input that is noted late, for a step that was replayed already, is shown at the next place there is."""
    trajectory = Trajectory(steps=[Step(action=CallTool("a"), observation=1)])
    replay = Transcript(ReasoningReplayMode.NEVER)
    replay.messages(trajectory)
    trajectory.steering_inputs.append(injection("user_message", 0, message="late"))
    trajectory.steps.append(Step(action=CallTool("b"), observation=1))
    assert shape(replay.messages(trajectory)) == [("assistant", "a"), "tool", "user", ("assistant", "b"), "tool"]


def test_a_summary_shortens_the_conversation():
    """After a summary the conversation begins anew, and again after the next one."""
    trajectory = Trajectory(steps=[Step(action=CallTool("a"), observation=1)])
    replay = Transcript(ReasoningReplayMode.NEVER)
    for number in range(3):
        assert len(replay.messages(trajectory)) == 2
        trajectory.summarise(TrajectorySummary(note=str(number)))
        assert replay.messages(trajectory) == []
        trajectory.steps.append(Step(action=CallTool("b"), observation=number))


def test_a_history_that_was_read_back():
    """After a restart the conversation is the same, byte for byte."""
    trajectory = Trajectory(
        steps=[
            Step(action=CallTool("a", b"{}", "call-0"), observation={"b": 1, "a": 2}, assistant_preamble="p"),
            Step(
                action=CallParallel((CallTool("b", b"{}", "call-0"), CallTool("c"))),
                observation=ParallelObservation([ParallelBranchObservation(index=1, value=[1])]),
            ),
            Step(action=SpawnTask(spec=SpawnSpec(query="q")), observation={"task_id": "t"}),
            Step(action=AwaitTask("t"), observation={"status": "complete"}),
        ],
        steering_inputs=[injection("user_message", 2, message="hi")],
    )
    again = Trajectory.deserialize(trajectory.serialize())
    assert Transcript(ReasoningReplayMode.NEVER).messages(again) == Transcript(ReasoningReplayMode.NEVER).messages(
        trajectory
    )


def test_it_is_legal(make_run):
    """A history of everything is a request that every provider takes."""
    trajectory = Trajectory(
        steps=[
            Step(action=CallTool("a", b"[", "x"), observation=None),
            Step(action=CallParallel((CallTool("b", call_id="x"), CallTool("c", call_id="x")))),
            Step(action=SpawnTask(), error="no"),
            Step(action=AwaitTask("t"), observation=b""),
            Step(action=Finish(FinishReason.GOAL)),
            Step(observation="loose"),
        ],
        steering_inputs=[injection("user_message", number, message="m") for number in range(7)],
    )
    request: CompleteRequest = DefaultPromptBuilder().build(make_run(trajectory=trajectory), "")
    check_request(request)
