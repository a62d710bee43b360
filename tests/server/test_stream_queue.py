"""What waits on one stream: its order, its numbers and its bounds, however slow the reader is."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from harborage.events import Event
from harborage.server.event_log import Logged, Page, Wanted
from harborage.server.stream_queue import MANY, MAX_DELTAS, MAX_STORED, MAX_TEXT, StreamQueue
from harborage.testing.clock import FakeClock
from tests.kit.streaming import STEP, delta, paused

CLOCK = FakeClock()


def stored(place: int, run: str = "r") -> Event:
    """A stored event with its number."""
    return replace(paused(run), sequence=place, store_sequence=place * STEP, occurred_at=CLOCK.now())


def queue(wanted: Wanted | None = None, *, at: int = 0, newest: int = 0) -> StreamQueue:
    """A queue that has begun."""
    made = StreamQueue(Wanted() if wanted is None else wanted, lambda event: event.store_sequence)
    made.start(at, newest)
    return made


def take_all(one: StreamQueue, now: float = 0.0) -> list[tuple[int, Event]]:
    """All that may be sent at this moment."""
    found: list[tuple[int, Event]] = []
    while True:
        some, wait = one.take(now, CLOCK.now)
        found += some
        if not some and wait != 0:
            return found


def texts(found: list[tuple[int, Event]]) -> list[tuple[int, str]]:
    """The numbers with the text of each delta, "" for stored events."""
    return [(number, getattr(event.payload, "delta", "")) for number, event in found]


def test_deltas_count_on_from_the_last_stored_number() -> None:
    """And begin anew behind the next."""
    one = queue(at=2 * STEP, newest=2 * STEP)
    for event in (delta("a"), delta("b"), stored(3), delta("c")):
        one.offer(event)
    assert texts(take_all(one)) == [(8193, "a"), (8194, "b"), (12288, ""), (12289, "c")]


def test_nothing_is_sent_before_the_beginning_is_known() -> None:
    """What comes meanwhile is sent then, unless it was stored before."""
    one = StreamQueue(Wanted(), lambda event: event.store_sequence)
    one.offer(stored(1))
    one.offer(delta("a"))
    assert one.take(0, CLOCK.now) == ([], None)
    one.start(STEP, STEP)
    assert not one.is_behind
    assert texts(take_all(one)) == [(STEP + 1, "a")]


def test_a_slow_reader_gets_joined_deltas_and_the_log() -> None:
    """Deltas are joined within their place among the stored events; those are read again, and none comes twice."""
    one = queue()
    log = []
    for place in range(1, MAX_STORED + 50):
        log.append(stored(place))
        one.offer(log[-1])
        one.offer(delta(f"{place} "))
    assert one.is_behind
    assert len(one) <= MAX_STORED + MAX_DELTAS
    found: list[tuple[int, Event]] = []
    while one.is_behind:
        after, upto = one.next_read()
        assert upto == log[-1].store_sequence
        rows = [Logged(event.store_sequence, event) for event in log if event.store_sequence > after][:256]
        one.fill(Page(rows, len(rows) < 256))
        found += take_all(one)
    numbers = [number for number, _ in found]
    assert numbers == sorted(set(numbers))
    assert [number for number in numbers if number % STEP == 0] == [event.store_sequence for event in log]
    assert "".join(text for _, text in texts(found)) == "".join(f"{place} " for place in range(1, MAX_STORED + 50))
    assert texts(found)[:2] == [(STEP, ""), (STEP + 1, "1 ")]


def test_deltas_of_a_slow_reader_are_joined_by_run_and_kind() -> None:
    """The end of an answer stays the last of its frame."""
    one = queue()
    for index in range(MANY):
        one.offer(delta(f"{index}.", "other"))
    for text in "abc":
        one.offer(delta(text))
        one.offer(delta(text.upper(), kind="reasoning"))
    one.offer(delta("", done=True))
    one.offer(delta("next"))
    found = take_all(one)[MANY:]
    assert [(event.payload.delta, event.payload.kind, event.payload.done) for _, event in found] == [  # type: ignore[union-attr]
        ("abc", "content", True),
        ("ABC", "reasoning", False),
        ("next", "content", False),
    ]


def test_numbers_never_run_out() -> None:
    """Ten thousand deltas behind one stored event: all text comes, at most twenty frames a second from 2,048 on."""
    one, sent, now = queue(), [], 0.0
    found: list[tuple[int, Event]] = []
    for index in range(10_000):
        one.offer(delta(f"{index} "))
        sent.append(f"{index} ")
        now += 0.01
        some, _ = one.take(now, CLOCK.now)
        found += some
        assert len(some) <= 1
    free = [number for number, _ in found if number < 2_048]
    assert len(free) == 2_047
    paced = len(found) - len(free)
    assert 0 < paced <= (10_000 - 2_047) * 0.01 * 20 + 1
    one.offer(stored(1))
    found += take_all(one, now)
    assert found[-1][0] == STEP
    numbers = [number for number, _ in found]
    assert numbers == sorted(set(numbers))
    assert "".join(text for _, text in texts(found)) == "".join(sent)


def test_the_last_numbers_are_kept_for_what_waits() -> None:
    """Until the next stored event comes, nothing more is sent; text of many runs goes on behind it if it must."""
    one, now = queue(), 0.0
    for _ in range(5_000):
        one.offer(delta("x"))
        now += 0.1
        one.take(now, CLOCK.now)
    assert one.take(now + 1, CLOCK.now) == ([], None)
    for index in range(400):
        one.offer(delta(f"{index}", f"run {index}"))
    one.offer(stored(1))
    found = take_all(one, now)
    numbers = [number for number, _ in found]
    assert numbers == sorted(set(numbers))
    assert STEP in numbers
    assert {text for _, text in texts(found)} >= {str(index) for index in range(400)}


def test_what_is_too_much_is_given_up_with_a_notice() -> None:
    """At the place of what was lost; the memory of a stream stays bounded."""
    one = queue()
    for index in range(MAX_DELTAS + 500):
        one.offer(delta("x", f"run {index}"))
        assert len(one) <= MAX_DELTAS
    one.offer(delta("y" * (MAX_TEXT + 1)))
    one.offer(delta("z"))
    (number, notice), *rest = take_all(one)
    assert (number, str(notice.type)) == (1, "bus.dropped")
    payload: Any = notice.payload
    assert (payload.from_seq, payload.to_seq, payload.dropped_count) == (1, 1, MAX_DELTAS + 501)
    assert texts(rest) == [(2, "z")]


def test_events_that_cannot_be_read_are_one_notice() -> None:
    """Where they stood; what a filter leaves out is not reported."""
    one = queue(Wanted(("task.paused",)), newest=9 * STEP)
    gone = replace(stored(2), payload=None)
    other = replace(gone, type="task.resumed")
    rows = [
        Logged(STEP, stored(1)),
        Logged(2 * STEP, gone, 2 * STEP, 1),
        Logged(3 * STEP, gone, 3 * STEP, 1),
        Logged(4 * STEP, stored(4)),
        Logged(5 * STEP, other, 5 * STEP, 1),
        Logged(6 * STEP, gone, 6 * STEP, 1),
    ]
    one.next_read()
    one.fill(Page(rows, True))
    found = take_all(one)
    assert [number for number, _ in found] == [STEP, 3 * STEP, 4 * STEP, 6 * STEP]
    notices: list[Any] = [event.payload for _, event in found if event.type == "bus.dropped"]
    assert [(one.from_seq, one.to_seq, one.dropped_count) for one in notices] == [
        (2 * STEP, 3 * STEP, 2),
        (6 * STEP, 6 * STEP, 1),
    ]


ACTIONS = st.lists(st.sampled_from(["stored", "delta", "other", "take", "read", "wait"]), max_size=200)


@settings(max_examples=200, deadline=None)
@given(ACTIONS, st.integers(1, 6), st.integers(0, 5))
def test_whatever_happens_numbers_grow_and_nothing_is_lost(actions: list[str], page: int, begun: int) -> None:
    """The stored events are those of the log behind the cursor, in order, with all text of the deltas between them."""
    log = [stored(place) for place in range(1, begun + 1)]
    one = queue(newest=begun * STEP)
    found: list[tuple[int, Event]] = []
    said, now = "", 0.0

    for action in actions:
        match action:
            case "stored":
                log.append(stored(len(log) + 1))
                one.offer(log[-1])
            case "delta" | "other":
                said += action[0]
                one.offer(delta(action[0], kind="content" if action == "delta" else "reasoning"))
            case "take":
                found += one.take(now, CLOCK.now)[0]
            case "read":
                if not len(one):
                    read_behind(one, log, page)
            case _:
                now += 0.05
    for _ in range(len(log) * 2 + 4):
        found += take_all(one, now)
        read_behind(one, log, page)
    numbers = [number for number, _ in found]
    assert numbers == sorted(set(numbers))
    assert [number for number in numbers if number % STEP == 0] == [event.store_sequence for event in log]
    assert sorted("".join(text for _, text in texts(found))) == sorted(said)


def read_behind(one: StreamQueue, log: list[Event], page: int) -> None:
    """Read the next page, if the queue is behind."""
    if one.is_behind:
        after, _ = one.next_read()
        rows = [Logged(event.store_sequence, event) for event in log if event.store_sequence > after][:page]
        one.fill(Page(rows, len(rows) < page))
