"""The six decisions: their words, their fields, their JSON form, and what the runtime refuses."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage import codec
from harborage.planner import (
    ABSOLUTE_MAX_PARALLEL,
    DECISION_KINDS,
    AwaitTask,
    CallParallel,
    CallTool,
    ChunkKind,
    Decision,
    Finish,
    FinishReason,
    InvalidDecisionError,
    JoinKind,
    JoinSpec,
    ParallelBranchObservation,
    ParallelObservation,
    PauseReason,
    ReasoningReplayMode,
    RequestPause,
    SourceKind,
    SpawnSpec,
    SpawnTask,
    WakeMode,
    check_decision,
    decision_kind,
    parallel_observation,
)
from tests.kit.tables import each_row

WORDS = {
    JoinKind: ["all", "first_success", "keyed", "n"],
    FinishReason: ["goal", "no_path", "cancelled", "deadline_exceeded", "constraints_conflict"],
    PauseReason: ["approval_required", "await_input", "external_event", "constraints_conflict"],
    WakeMode: ["push", "poll", "hybrid"],
    ReasoningReplayMode: ["never", "text"],
    ChunkKind: ["content", "reasoning", "reset"],
    SourceKind: ["tool", "memory", "skill", "user_message", "artifact"],
}


@each_row("kind", WORDS, ids=lambda kind: kind.__name__)
def test_wire_strings(kind):
    """Each list holds exactly its wire strings, in order."""
    assert [str(word) for word in kind] == WORDS[kind]


@each_row("kind", WORDS, ids=lambda kind: kind.__name__)
def test_membership_is_validity(kind):
    """A wire string and its member are valid; other spellings, types and the empty string are not."""
    for word in WORDS[kind]:
        assert word in kind
        assert kind(word) in kind
        assert kind.is_valid(word)
    for wrong in ("", "nonsense", WORDS[kind][0].upper(), f" {WORDS[kind][0]}", None, 1, ["all"]):
        assert wrong not in kind


@each_row("kind", [kind for kind in WORDS if kind is not ReasoningReplayMode])
def test_empty_is_invalid(kind):
    """The empty string is no word."""
    assert not kind.is_valid("")


@each_row("value", ["Never", "TEXT", "provider_native", "always", "yes", None, 0, b""])
def test_invalid_replay_modes(value):
    """Replay modes are spelled in lower case and there are two of them."""
    assert not ReasoningReplayMode.is_valid(value)


def test_unset_replay_is_valid_configuration():
    """Configuration may leave the replay mode empty, although that is no mode."""
    assert ReasoningReplayMode.is_valid("")
    assert "" not in ReasoningReplayMode


@pytest.mark.parametrize("value", ["", "eager"])
def test_invalid_wake_modes(value):
    """A planner cannot declare a wake mode that does not exist."""
    assert not WakeMode.is_valid(value)


def test_word_is_its_wire_string():
    """A word prints as what travels."""
    assert str(WakeMode.PUSH) == "push"
    assert f"{FinishReason.NO_PATH}" == "no_path"
    assert PauseReason.AWAIT_INPUT == "await_input"


ONE_EACH = {
    "CallTool": CallTool("search", b'{"q": 1}', "call-1"),
    "CallParallel": CallParallel((CallTool("a"), CallTool("b")), JoinSpec(JoinKind.N, n=1)),
    "SpawnTask": SpawnTask("foreground", SpawnSpec(query="q", priority=5, retain_turn=True), "g-1", "key"),
    "AwaitTask": AwaitTask("t-1"),
    "RequestPause": RequestPause(PauseReason.AWAIT_INPUT, {"question": "which?"}),
    "Finish": Finish(FinishReason.GOAL, {"answer": "42"}, {"via": "test"}),
}


def test_there_are_six():
    """The sum is closed: six names, no more."""
    assert tuple(ONE_EACH) == DECISION_KINDS
    assert len(DECISION_KINDS) == 6


@each_row("kind", ONE_EACH)
def test_kind_names_the_decision(kind):
    """A decision's kind is its class name."""
    assert decision_kind(ONE_EACH[kind]) == kind


@each_row("value", [None, "Finish", {"type": "Finish"}, 0, JoinSpec()])
def test_kind_of_anything_else_is_unknown(value):
    """What is not one of the six has no kind."""
    assert decision_kind(value) == "unknown"


@each_row("kind", ONE_EACH)
def test_a_good_decision_passes_unchanged(kind):
    """The check hands back the very decision it was given."""
    assert check_decision(ONE_EACH[kind]) is ONE_EACH[kind]


@each_row("kind", ONE_EACH)
def test_json_round_trip_is_tagged_and_typed(kind):
    """A decision's JSON names its type, and reading it gives the same value back."""
    data = msgspec.json.encode(ONE_EACH[kind])
    assert msgspec.json.decode(data)["type"] == kind
    assert msgspec.json.decode(data, type=Decision) == ONE_EACH[kind]


@given(st.binary())
def test_args_travel_byte_for_byte(args):
    """Arguments keep their exact bytes through JSON, also when they are no JSON themselves."""
    call = CallTool("t", args)
    assert msgspec.json.decode(msgspec.json.encode(call), type=Decision) == call


def test_defaults():
    """What a planner leaves out has the documented default."""
    assert CallTool("t") == CallTool("t", b"{}", "")
    assert CallParallel((CallTool("t"),)).join is None
    assert (JoinSpec().kind, JoinSpec().merge_keys, JoinSpec().n) == (JoinKind.ALL, (), 0)
    assert SpawnTask() == SpawnTask("background", SpawnSpec("", "", 0, False, False), "", "")
    assert RequestPause(PauseReason.AWAIT_INPUT).payload == {}
    assert (Finish(FinishReason.GOAL).payload, Finish(FinishReason.GOAL).metadata) == (None, {})
    assert ABSOLUTE_MAX_PARALLEL == 50


def test_default_dicts_are_not_shared():
    """Two decisions never share a payload they were not given."""
    assert Finish(FinishReason.GOAL).metadata is not Finish(FinishReason.GOAL).metadata
    assert RequestPause(PauseReason.AWAIT_INPUT).payload is not RequestPause(PauseReason.AWAIT_INPUT).payload


def test_lists_and_plain_words_are_taken_over():
    """Lists become tuples and wire strings become members, so that decisions stay frozen and comparable."""
    assert CallParallel([CallTool("a")]).branches == (CallTool("a"),)
    assert JoinSpec("keyed", ["x"]) == JoinSpec(JoinKind.KEYED, ("x",))
    assert JoinSpec("keyed").kind is JoinKind.KEYED
    assert Finish("goal").reason is FinishReason.GOAL
    assert RequestPause("external_event", None) == RequestPause(PauseReason.EXTERNAL_EVENT, {})


@each_row("kind", ONE_EACH)
def test_decisions_are_frozen(kind):
    """A decision cannot be changed after it was made."""
    with pytest.raises(AttributeError):
        setattr(ONE_EACH[kind], ONE_EACH[kind].__struct_fields__[0], "other")


@each_row(
    "decision, said",
    [
        (None, "None is not a decision"),
        ("Finish", "a str is not a decision"),
        ({"type": "Finish", "reason": "goal"}, "a dict is not a decision"),
        (JoinSpec(), "a JoinSpec is not a decision"),
        (CallTool(""), "CallTool names no tool"),
        (CallParallel(()), "no branches"),
        (CallParallel((CallTool("a"), CallTool(""))), "CallParallel branch 1 names no tool"),
        (CallParallel((CallTool("a"), Finish("goal"))), "CallParallel branch 1 is a Finish"),
        (SpawnTask("sideways"), "SpawnTask kind 'sideways'"),
        (SpawnTask(spec=SpawnSpec(priority=1001)), "priority 1001"),
        (SpawnTask(spec=SpawnSpec(priority=-1001)), "priority -1001"),
        (AwaitTask(""), "AwaitTask has no task id"),
        (RequestPause("coffee"), "RequestPause reason 'coffee'"),
        (RequestPause(""), "RequestPause reason ''"),
        (Finish("done"), "Finish reason 'done'"),
        (Finish("GOAL"), "Finish reason 'GOAL'"),
        (Finish(None), "Finish reason None"),
    ],
)
def test_what_the_runtime_cannot_act_on_is_refused(decision, said):
    """A malformed decision is an error that says what is wrong with it."""
    with pytest.raises(InvalidDecisionError, match=f"(?s).*{said}"):
        check_decision(decision)


@each_row(
    "decision, field",
    [
        (CallTool(5), "CallTool tool is an int"),
        (CallTool("t", [1]), "CallTool args is a list"),
        (CallTool("t", None), "CallTool args is None"),
        (CallTool("t", b"{}", 7), "CallTool call_id is an int"),
        (CallParallel((CallTool("t", 3),)), "CallParallel branch 0 args is an int"),
        (CallParallel((CallTool("t"),), "all"), "CallParallel join is a str"),
        (SpawnTask(spec=None), "SpawnTask spec is None"),
        (SpawnTask(spec=SpawnSpec(priority="high")), "SpawnTask priority is a str"),
        (SpawnTask(spec=SpawnSpec(query=3)), "SpawnTask query is an int"),
        (SpawnTask(spec=SpawnSpec(retain_turn="no")), "SpawnTask retain_turn is a str"),
        (SpawnTask(group_id=5), "SpawnTask group_id is an int"),
        (SpawnTask(idempotency_key=None), "SpawnTask idempotency_key is None"),
        (AwaitTask(5), "AwaitTask task_id is an int"),
        (RequestPause("await_input", "why"), "RequestPause payload is a str"),
        (Finish("goal", metadata="x"), "Finish metadata is a str"),
    ],
)
def test_a_field_of_another_type_is_refused_by_name(decision: Any, field: str):
    """A decision whose fields hold other types than they declare is refused, and the field is named."""
    with pytest.raises(InvalidDecisionError, match=f"^{field}; it must be "):
        check_decision(decision)


@each_row("decision", [SpawnTask(""), SpawnTask(spec=SpawnSpec(priority=-1000)), CallTool("t", b"")])
def test_edges_that_are_fine(decision):
    """An empty task kind, the lowest priority and empty arguments are left to those who act on them."""
    assert check_decision(decision) is decision


def test_join_and_cap_are_not_judged_here():
    """A wrong join and too many branches have errors of their own, raised by the parallel executor."""
    check_decision(CallParallel((CallTool("a"),), JoinSpec("nonsense")))
    check_decision(CallParallel(tuple(CallTool("a") for _ in range(ABSOLUTE_MAX_PARALLEL + 1))))


def test_parallel_observation_json():
    """A branch always shows its index and otherwise only what it has."""
    seen = ParallelObservation(
        [
            ParallelBranchObservation(call_id="c", tool="a", index=0, value={"n": 1}),
            ParallelBranchObservation(index=1, error="boom"),
        ]
    )
    assert msgspec.json.encode(seen) == (
        b'{"branches":[{"call_id":"c","tool":"a","index":0,"value":{"n":1}},{"index":1,"error":"boom"}]}'
    )


def test_parallel_observation_is_read_back_from_plain_json():
    """After a restart an observation is plain JSON, and is still recognised as that of a parallel call."""
    seen = ParallelObservation((ParallelBranchObservation(index=0, value=[1]),))
    plain = msgspec.json.decode(msgspec.json.encode(seen))
    assert parallel_observation(plain) == seen
    assert parallel_observation(seen) is seen


@each_row("value", [None, "x", {"rows": []}, {"branches": "none"}, {"branches": [{"value": 1}]}])
def test_other_observations_are_not_parallel(value):
    """What does not spell a parallel observation is none."""
    assert parallel_observation(value) is None


def test_a_call_takes_its_arguments_as_values() -> None:
    """By name, as a dict, as text or as the very bytes; all of them are the same call."""
    made = CallTool("x", b'{"a":1}')
    assert (
        CallTool("x", a=1)
        == CallTool("x", {"a": 1})
        == CallTool("x", '{"a":1}')
        == CallTool("x", args={"a": 1})
        == made
    )
    assert CallTool("x", {"tool": 1, "args": 2, "call_id": 3}).args == b'{"tool":1,"args":2,"call_id":3}'
    assert CallTool("x", call_id="c", a=1) == CallTool("x", b'{"a":1}', "c")
    assert codec.decode(codec.encode(CallTool("x", a=1)), CallTool) == made
    assert msgspec.structs.replace(made, call_id="c") == CallTool("x", b'{"a":1}', "c")
    assert CallTool("x").args == b"{}"


def test_a_call_whose_arguments_make_no_sense_is_refused() -> None:
    """Where it is written, by the name of its tool."""
    with pytest.raises(TypeError, match="'x'.*not both"):
        CallTool("x", {"a": 1}, b=2)
    for wrong in ([1], None, 3):
        with pytest.raises(InvalidDecisionError):
            check_decision(CallTool("x", wrong))  # type: ignore[arg-type]
    with pytest.raises(codec.UnserializableError, match=r"x\.args"):
        CallTool("x", a=object())
