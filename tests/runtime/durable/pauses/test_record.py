"""The stored form of a pause: exact, versioned, and loud about what it cannot read."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.codec import UnserializableError
from harborage.identity import Quadruple
from harborage.planner import ToolContext, Trajectory
from harborage.runtime.durable.pauses.record import plain_payload
from harborage.runtime.pauses import (
    CheckpointCorruptError,
    Pause,
    PauseDecision,
    PauseReason,
    PauseState,
    UnsupportedFormatVersionError,
    decode_pause,
    encode_pause,
)
from tests.kit.pauses import NOON, make_pause
from tests.kit.tables import each_row

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)
zones = st.integers(-23, 23).map(lambda hours: timezone(timedelta(hours=hours)))
times = st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1), timezones=zones)
words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
trajectories = st.none() | st.builds(
    lambda query, handles: Trajectory(query=query, tool_context=ToolContext(handles=tuple(handles))).serialize(),
    st.text(),
    st.lists(words, max_size=2),
)
pauses = st.builds(
    Pause,
    token=words,
    reason=st.sampled_from(PauseReason),
    state=st.sampled_from(PauseState),
    identity=st.builds(Quadruple, words, words, words, st.text()),
    paused_at=times,
    payload=st.none() | st.dictionaries(st.text(), json_values, max_size=4),
    resumed_at=st.none() | times,
    decision=st.none() | st.sampled_from(PauseDecision),
    deadline=st.none() | times,
    default=st.sampled_from(PauseDecision),
    key=st.text(),
    trajectory=trajectories,
)


def edited(pause: Pause, change: Callable[[dict[str, Any]], Any]) -> bytes:
    """The bytes of a checkpoint with changed JSON."""
    found = json.loads(encode_pause(pause))
    change(found)
    return json.dumps(found).encode()


@given(pauses)
def test_writing_reading_and_writing_again_gives_the_same_bytes(pause: Pause) -> None:
    """Nothing is lost and nothing drifts, whatever a pause holds."""
    written = encode_pause(pause)
    assert decode_pause(written) == pause
    assert encode_pause(decode_pause(written)) == written


def test_an_open_pause_has_this_form() -> None:
    """The keys of the format, in order; what is optional is left out, what is not set yet is null."""
    pause = make_pause(payload={"ask": "city?"}, trajectory=b'{"tool_context":{}}')
    assert encode_pause(pause).decode() == (
        '{"format_version":1,"token":"T","reason":"await_input","state":"paused",'
        '"identity":{"tenant_id":"acme","user_id":"ann","session_id":"s1"},"run_id":"r1","payload":{"ask":"city?"},'
        '"paused_at":"2026-01-01T12:00:00Z","resumed_at":null,'
        '"trajectory_bytes":"eyJ0b29sX2NvbnRleHQiOnt9fQ=="}'
    )


def test_what_a_pause_does_not_have_is_not_written() -> None:
    """No payload, no run, no deadline and the usual default leave no key behind."""
    keys = json.loads(encode_pause(make_pause(identity=Quadruple("acme", "ann", "s1")))).keys()
    assert [*keys] == ["format_version", "token", "reason", "state", "identity", "paused_at", "resumed_at"]


def test_an_empty_payload_is_not_no_payload() -> None:
    """Both come back as they were."""
    assert decode_pause(encode_pause(make_pause(payload={}))).payload == {}
    assert decode_pause(encode_pause(make_pause())).payload is None


def test_deadline_and_default_are_optional_keys() -> None:
    """They are there when they were asked for."""
    found = json.loads(encode_pause(make_pause(deadline=NOON, default=PauseDecision.REJECT)))
    assert (found["deadline"], found["default"]) == ("2026-01-01T12:00:00Z", "reject")


@each_row("data", [b"", b"{", b"null", b"[]", b'"text"', b"\xff"])
def test_what_is_no_json_object_is_corrupt(data: bytes) -> None:
    """Empty and malformed checkpoints name the pause they belong to."""
    with pytest.raises(CheckpointCorruptError) as caught:
        decode_pause(data, "T")
    assert caught.value.token == "T"


@each_row("version", [0, 2, 999, -1, None, "1", True, 1.0])
def test_another_format_version_is_refused(version: object) -> None:
    """A version this code does not know is no reason to guess."""
    with pytest.raises(UnsupportedFormatVersionError):
        decode_pause(edited(make_pause(), lambda found: found.update(format_version=version)))


def test_the_refusal_names_the_version() -> None:
    """An operator sees what was found."""
    with pytest.raises(UnsupportedFormatVersionError, match="version 999") as caught:
        decode_pause(edited(make_pause(), lambda found: found.update(format_version=999)), "T")
    assert (caught.value.version, caught.value.token) == (999, "T")


def test_a_missing_format_version_is_refused() -> None:
    """Bytes from before there were versions are not guessed at."""
    with pytest.raises(UnsupportedFormatVersionError):
        decode_pause(edited(make_pause(), lambda found: found.pop("format_version")))


@each_row("key", ["token", "reason", "state", "identity", "paused_at", "resumed_at"])
def test_a_missing_key_is_corrupt(key: str) -> None:
    """What is always written must be there."""
    with pytest.raises(CheckpointCorruptError):
        decode_pause(edited(make_pause(), lambda found: found.pop(key)))


@each_row("key, value", [("state", "asleep"), ("reason", ""), ("payload", []), ("paused_at", "soon")])
def test_a_wrong_value_is_corrupt(key: str, value: object) -> None:
    """A word or a shape that the format does not have is not read as something else."""
    with pytest.raises(CheckpointCorruptError):
        decode_pause(edited(make_pause(), lambda found: found.update({key: value})))


@each_row("trajectory", [b"", b"{", b'{"steps":7}'])
def test_a_broken_trajectory_is_corrupt(trajectory: bytes) -> None:
    """A run that could not be rebuilt is found out when its pause is read."""
    text = base64.b64encode(trajectory).decode()
    with pytest.raises(CheckpointCorruptError):
        decode_pause(edited(make_pause(), lambda found: found.update(trajectory_bytes=text)))


def test_unknown_keys_are_ignored() -> None:
    """A later writer of the same version may say more."""
    assert decode_pause(edited(make_pause(), lambda found: found.update(colour="blue"))) == make_pause()


def test_an_older_format_is_lifted_step_by_step() -> None:
    """Each step makes the next version of what the one before it made."""

    def from_minus_one(found: dict[str, Any]) -> dict[str, Any]:
        return {**found, "format_version": 0, "why": found["because"]}

    def from_zero(found: dict[str, Any]) -> dict[str, Any]:
        return {**found, "format_version": 1, "reason": found["why"]}

    old = edited(make_pause(), lambda found: found.update(format_version=-1, because=found.pop("reason")))
    assert decode_pause(old, upcasts={-1: from_minus_one, 0: from_zero}) == make_pause()


def test_a_payload_is_copied_as_plain_data() -> None:
    """Later changes by the caller do not reach the pause, and it reads the same before and after a restart."""
    payload = {"at": NOON, "deep": {"list": (1, 2)}}
    plain = plain_payload(payload)
    payload["deep"]["list"] = ()  # type: ignore[index]
    assert plain == {"at": "2026-01-01T12:00:00Z", "deep": {"list": [1, 2]}}


def test_no_payload_stays_none() -> None:
    """Absent is not empty."""
    assert plain_payload(None) is None
    assert plain_payload({}) == {}


@each_row(
    "payload, field",
    [
        ({"ok": 1, "callback": print}, "PauseRecord.payload.callback"),
        ({"rows": [{"n": 1}, {"n": object()}]}, "PauseRecord.payload.rows[1].n"),
        ({"ratio": float("nan")}, "PauseRecord.payload.ratio"),
        ({"inner": {3: "three"}}, "PauseRecord.payload.inner <non-string-map-key>"),
    ],
)
def test_a_payload_that_is_no_json_names_its_place(payload: dict[str, Any], field: str) -> None:
    """The first offender is named by its path."""
    with pytest.raises(UnserializableError) as caught:
        plain_payload(payload)
    assert caught.value.field == field


def test_a_payload_that_contains_itself_is_refused() -> None:
    """A cycle is named, not followed."""
    payload: dict[str, Any] = {}
    payload["self"] = payload
    with pytest.raises(UnserializableError, match=r"PauseRecord\.payload\.self <cycle>"):
        plain_payload(payload)
