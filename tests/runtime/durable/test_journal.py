"""Entries: their stored form, what cannot be read, and what they mean for their run."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from harborage.codec import UnserializableError
from harborage.errors import error_text
from harborage.identity import Quadruple
from harborage.planner import Finish, FinishReason
from harborage.runtime.durable.histories import latest_history, steps_of
from harborage.runtime.durable.journal import (
    Arrived,
    Begun,
    Cut,
    Done,
    Ended,
    Entry,
    Failed,
    Joined,
    JournalCorruptError,
    Patched,
    Rolled,
    Started,
    Waited,
    decode_entries,
    decode_entry,
    encode_entry,
    raw,
)
from harborage.runtime.loop.arrivals import Arrivals, Woken
from harborage.runtime.loop.seam import RunRequest
from tests.kit.tables import each_row

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
REQUEST = RunRequest(who=Quadruple("t", "u", "s", "r"), goal="g")

ENTRIES: dict[str, Entry] = {
    '{"entry":"started","at":"2026-01-02T03:04:05Z","request":1}': Started(at=AT, request=raw(1)),
    '{"entry":"begun","at":"2026-01-02T03:04:05Z","position":"7.0.1","name":"tool.x","key":"r/7.0.1","payload":[]}': (
        Begun(at=AT, position="7.0.1", name="tool.x", key="r/7.0.1", payload=raw([]))
    ),
    '{"entry":"done","at":"2026-01-02T03:04:05Z","position":"3","name":"plan","result":{"a":null}}': (
        Done(at=AT, position="3", name="plan", result=raw({"a": None}))
    ),
    '{"entry":"failed","at":"2026-01-02T03:04:05Z","position":"3","name":"plan","error":"E","message":"m"}': (
        Failed(at=AT, position="3", name="plan", error="E", message="m")
    ),
    '{"entry":"cut","at":"2026-01-02T03:04:05Z","position":"3","name":"plan","reason":"deadline"}': (
        Cut(at=AT, position="3", name="plan", reason="deadline")
    ),
    '{"entry":"joined","at":"2026-01-02T03:04:05Z","position":"3","outcomes":["done","failed"]}': (
        Joined(at=AT, position="3", outcomes=["done", "failed"])
    ),
    '{"entry":"arrived","at":"2026-01-02T03:04:05Z","position":"3","arrivals":{"is_past_deadline":true}}': (
        Arrived(at=AT, position="3", arrivals=raw(Arrivals(is_past_deadline=True)))
    ),
    '{"entry":"patched","at":"2026-01-02T03:04:05Z","change":"c"}': Patched(at=AT, change="c"),
    '{"entry":"rolled","at":"2026-01-02T03:04:05Z","carry":{}}': Rolled(at=AT, carry=raw({})),
    '{"entry":"waited","at":"2026-01-02T03:04:05Z","position":"3","woken":{}}': (
        Waited(at=AT, position="3", woken=raw(Woken()))
    ),
    '{"entry":"ended","at":"2026-01-02T03:04:05Z","finish":{"type":"Finish","reason":"goal"}}': (
        Ended(at=AT, finish=raw(Finish(FinishReason.GOAL)))
    ),
    '{"entry":"ended","at":"2026-01-02T03:04:05Z","error":"E","message":"m"}': Ended(at=AT, error="E", message="m"),
}


@each_row("stored", ENTRIES)
def test_an_entry_has_one_stored_form(stored: str) -> None:
    """It is the one that other versions of this code and other tools read; reading it back changes nothing."""
    assert encode_entry(ENTRIES[stored]) == stored.encode()
    again = decode_entry(stored.encode(), "r", 0)
    assert type(again) is type(ENTRIES[stored])
    assert encode_entry(again) == stored.encode()


def test_every_kind_of_entry_is_among_them() -> None:
    """A new kind needs its stored form above."""
    assert {type(entry) for entry in ENTRIES.values()} == set(Entry.__args__)


def test_an_end_without_a_finish_says_so() -> None:
    """The finish is there as it was written, or is None."""
    finished, failed = (decode_entry(stored.encode(), "r", 0) for stored in list(ENTRIES)[-2:])
    assert bytes(finished.finish) == b'{"type":"Finish","reason":"goal"}'
    assert failed.finish is None


@each_row(
    "stored, word",
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"\xff", "invalid"),
        (b"[]", "array"),
        (b'{"entry":"dreamt","at":"2026-01-02T03:04:05Z"}', "dreamt"),
        (b'{"entry":"cut","at":"2026-01-02T03:04:05Z","name":"x"}', "reason"),
        (b'{"entry":"cut","at":"noon","name":"x","reason":"y"}', "datetime"),
        (b'{"entry":"patched","at":"2026-01-02T03:04:05Z","change":"c","v":2}', "version 2, this code reads 1"),
    ],
)
def test_what_is_no_entry_is_named_by_its_place(stored: bytes, word: str) -> None:
    """Run, place and reason; never a guess."""
    with pytest.raises(JournalCorruptError, match=r"run r, entry 7: ") as caught:
        decode_entry(stored, "r", 7)
    assert word in str(caught.value)


def test_what_cannot_be_stored_is_named_by_its_path() -> None:
    """The path begins with the step's name, so that a person finds the culprit."""
    with pytest.raises(UnserializableError) as caught:
        encode_entry(Done(at=AT, position="1", name="tool.x", result=raw({"deep": [object()]})))
    assert caught.value.field == "tool.x.result.deep[0]"


def test_the_text_of_any_error_can_be_stored() -> None:
    """Half a surrogate pair, which an error may quote, is escaped."""
    text = error_text(ValueError("bad \ud800 text"))
    assert text == "bad \\ud800 text"
    encode_entry(Ended(at=AT, error="E", message=text))


def stored(*entries: Entry) -> list[bytes]:
    return [encode_entry(entry) for entry in entries]


def done(position: str) -> Done:
    return Done(at=AT, position=position, name="x", result=raw(1))


def test_only_what_follows_the_last_rollover_counts() -> None:
    """Request, entries and number of the history; without a rollover it is all of them."""
    carry = RunRequest(who=REQUEST.who, goal="later")
    entries = decode_entries(
        stored(Started(at=AT, request=raw(REQUEST)), done("1"), Rolled(at=AT, carry=raw(carry)), done("1~1")), "r"
    )
    assert latest_history(REQUEST, entries[:2]) == (REQUEST, entries[:2], 0)
    assert latest_history(REQUEST, entries) == (carry, entries[3:], 1)


def test_a_rollover_that_cannot_be_read_is_named() -> None:
    """The place is that of its entry."""
    entries = decode_entries(stored(Started(at=AT, request=raw(REQUEST)), Rolled(at=AT, carry=raw({"goal": 1}))), "r")
    with pytest.raises(JournalCorruptError, match="run r, entry 1: "):
        latest_history(REQUEST, entries)


def test_a_seed_gives_its_steps_alone() -> None:
    """Neither what its run was asked for nor how it ended; a later history starts from the beginning again."""
    head, tail = Started(at=AT, request=raw(REQUEST)), Ended(at=AT, finish=raw(Finish(FinishReason.GOAL)))
    assert steps_of(stored(head, done("1"), done("2.0.1"), tail), "r") == stored(done("1"), done("2.0.1"))
    rolled = Rolled(at=AT, carry=raw(REQUEST))
    late, patch = done("9"), Patched(at=AT, change="c")
    seed = stored(head, done("1"), rolled, late, patch, done("1~1"), rolled, patch, done("1~2"), done("2~1"), tail)
    assert steps_of(seed, "r") == stored(patch, done("1"))
