"""A pause as a row: what goes in comes out, and what cannot be read says so."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from harborage.identity import Quadruple
from harborage.planner import ToolContext, Trajectory
from harborage.runtime.durable.pauses.rows import decode_row, decode_trajectory, encode_open_pause, encode_resolution
from harborage.runtime.pauses import (
    CheckpointCorruptError,
    Pause,
    PauseDecision,
    PauseReason,
    PauseState,
    UnsupportedFormatVersionError,
)
from harborage.store import Commit, PauseQuery, PauseRow, PauseStatus
from harborage.store.memory import MemoryStore

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ANN = Quadruple("acme", "ann", "s1", "r1")

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)
payloads = st.none() | st.dictionaries(st.text(), json_values, max_size=4)
words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
times = st.datetimes(min_value=datetime(1971, 1, 1), max_value=datetime(9998, 1, 1), timezones=st.just(UTC))
trajectories = st.none() | st.builds(lambda query: Trajectory(query=query).serialize(), st.text())
pauses = st.builds(
    Pause,
    token=words,
    reason=st.sampled_from(PauseReason),
    state=st.just(PauseState.PAUSED),
    identity=st.builds(Quadruple, words, words, words, st.text()),
    paused_at=times,
    payload=payloads,
    deadline=st.none() | times,
    default=st.sampled_from(PauseDecision),
    key=st.text(),
    trajectory=trajectories,
)


def row_of(pause: Pause) -> PauseRow:
    """The row of an open pause."""
    new = encode_open_pause(pause)
    return PauseRow(
        number=1,
        token=new.token,
        run_id=new.run_id,
        who=new.who,
        reason=new.reason,
        opened_at=new.at,
        deadline=new.deadline,
        data=new.data,
    )


def a_pause(**parts: Any) -> Pause:
    """An open pause."""
    whole = {"token": "T", "reason": PauseReason.AWAIT_INPUT, "state": PauseState.PAUSED, "identity": ANN}
    return Pause(**{**whole, "paused_at": NOON, **parts})


@given(pauses)
def test_an_open_pause_comes_back_as_it_was(pause: Pause) -> None:
    """Nothing is lost and nothing drifts, whatever it holds."""
    assert decode_row(row_of(pause)) == pause


@given(pauses, payloads, st.sampled_from(PauseDecision), st.booleans(), times, st.none() | st.binary())
def test_a_resolved_pause_comes_back_as_it_was(
    pause: Pause, answer: Any, decision: PauseDecision, is_due: bool, at: datetime, sealed: bytes | None
) -> None:
    """The answer lies over the question, with its decision, moment, user and sealed part."""
    status = {"approve": "approved", "reject": "rejected", "resume": "answered", "timeout": "expired"}[decision]
    resolved = pause.resolve(decision, answer, at, sealed=sealed, by="bob")
    if is_due:
        status, resolved = "expired", pause.resolve(pause.default, answer, at, sealed=sealed)
    change = encode_resolution(resolved, PauseStatus(status), answer)
    row = replace(row_of(pause), status=change.status, settled_at=change.at, settled_by=change.by, answer=change.answer)
    assert decode_row(row) == resolved


async def test_identity_and_times_are_columns_alone() -> None:
    """What a column holds is not written a second time, and what a pause does not have not at all."""
    assert encode_open_pause(a_pause(deadline=NOON + timedelta(days=1))).data == b'{"format_version":1}'
    assert json.loads(encode_open_pause(a_pause(payload={"ask": "?"}, key="k")).data) == {
        "format_version": 1,
        "payload": {"ask": "?"},
        "key": "k",
    }


async def test_what_the_end_of_its_run_has_cancelled_reads_as_rejected() -> None:
    """Without an answer the row still has the status, and no user."""
    store = MemoryStore()
    await store.commit(Commit(opens=(encode_open_pause(a_pause(payload={"ask": "?"})),)))
    ((row,), _) = await store.pauses(PauseQuery())
    found = decode_row(replace(row, status=PauseStatus.CANCELLED, settled_at=row.opened_at))
    assert (found.state, found.decision, found.resolved_by) == (PauseState.RESUMED, PauseDecision.REJECT, "")
    assert found.payload == {"ask": "?", "rejected": True, "reason": "run ended"}


async def test_a_row_without_a_question_is_read() -> None:
    """A row that another program wrote may lack question and answer."""
    row = PauseRow(number=1, token="T", run_id="r1", who=ANN.identity, reason="await_input", opened_at=0)
    assert decode_row(row).payload is None
    resolved = decode_row(replace(row, status=PauseStatus.APPROVED, settled_at=1))
    assert (resolved.decision, resolved.payload) == (PauseDecision.APPROVE, None)


@pytest.mark.parametrize("part", ["data", "answer"])
@pytest.mark.parametrize("data", [b"{", b"null", b"[]", b'"text"', b"\xff", b'{"format_version":1,"payload":[]}'])
def test_what_is_no_question_or_answer_is_corrupt(part: str, data: bytes) -> None:
    """The error names the pause."""
    row = replace(row_of(a_pause()), status=PauseStatus.APPROVED, settled_at=1, **{part: data})
    with pytest.raises(CheckpointCorruptError) as caught:
        decode_row(row)
    assert caught.value.token == "T"


@pytest.mark.parametrize("version", [0, 2, 999, -1, None, "1", True, 1.0])
def test_another_format_version_is_refused(version: object) -> None:
    """A version this code does not know is no reason to guess."""
    row = replace(row_of(a_pause()), data=json.dumps({"format_version": version}).encode())
    with pytest.raises(UnsupportedFormatVersionError) as caught:
        decode_row(row)
    assert caught.value.version == (version if type(version) is int else None)


def test_a_row_that_cannot_be_read_is_corrupt() -> None:
    """So is one with an unknown reason, or with a time that is none."""
    row = row_of(a_pause())
    with pytest.raises(CheckpointCorruptError, match="its row in harborage_pauses cannot be read"):
        decode_row(replace(row, is_damaged=True))
    with pytest.raises(CheckpointCorruptError):
        decode_row(replace(row, reason="bored"))
    for part in ("opened_at", "deadline"):
        with pytest.raises(CheckpointCorruptError):
            decode_row(replace(row, **{part: 1 << 62}))


@pytest.mark.parametrize("trajectory", [b"", b"{", b'{"steps":7}'])
def test_a_broken_history_is_corrupt(trajectory: bytes) -> None:
    """It is found when a caller needs it; the pause itself can be read."""
    pause = decode_row(row_of(a_pause(trajectory=trajectory)))
    with pytest.raises(CheckpointCorruptError, match="'T'"):
        decode_trajectory(pause)


def test_a_history_comes_back() -> None:
    """With the handles that it names."""
    history = Trajectory(tool_context=ToolContext(handles=("browser",)))
    assert decode_trajectory(decode_row(row_of(a_pause(trajectory=history.serialize())))) == history
    assert decode_trajectory(a_pause()) is None
