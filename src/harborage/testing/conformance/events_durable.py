"""What a durable bus must do besides: continue where it, or another process, left off.

Part of the suite in `events`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from harborage.events import Cursor, EventType, Filter, IdentityScopeRequiredError, RedactedMap
from harborage.testing.conformance.checks import expect, expect_equal, expect_raises
from harborage.testing.conformance.event_bench import ME, MINE, OTHERS, EventBench, a_chunk, an_error, an_event, names

Scenario: TypeAlias = Callable[[EventBench], Awaitable[None]]


async def a_restart_continues_without_a_gap(bench: EventBench) -> None:
    """A new bus replays the events of the old one, and continues its numbers, session by session."""
    first = await bench.open()
    for turn in range(12):
        await first.publish(an_event(str(turn)))
    await first.publish(an_event("theirs", OTHERS[0]))
    await first.aclose()
    second = await bench.open()
    stored = await second.replay(Cursor(), MINE)
    expect_equal([event.sequence for event in stored], list(range(1, 13)), "all of them")
    expect_equal(names(stored), [str(turn) for turn in range(12)], "their names")
    expect_equal([e.sequence for e in await second.replay(Cursor("", 9), MINE)], [10, 11, 12], "behind 9")
    expect_equal((await second.publish(an_event("13"))).sequence, 13, "the next number")
    expect_equal((await second.publish(an_event("2", OTHERS[0]))).sequence, 2, "the next number of another session")


async def a_replay_equals_what_was_published(bench: EventBench) -> None:
    """Type, identity, time, extra and payload come back; the payload as a map with the wire's spelling."""
    bus = await bench.open()
    published = await bus.publish(an_event("x", extra={"node": "a"}))
    await bus.publish(an_error({"note": "plain"}))
    safe, plain = await (await bench.open()).replay(Cursor(), MINE)
    for field in ("type", "identity", "occurred_at", "sequence", "extra"):
        expect_equal(getattr(safe, field), getattr(published, field), field)
    expect_equal(safe.payload, RedactedMap({"TaskID": "x"}), "a typed payload")
    expect_equal(plain.payload, RedactedMap({"message": "failed", "fields": {"note": "plain"}}), "a redacted payload")


async def an_event_is_stored_before_it_is_delivered(bench: EventBench) -> None:
    """Another process can read every event that a subscriber got with a number."""
    bus, other = await bench.open(), await bench.open()
    reader = bus.subscribe(MINE)
    for turn in range(20):
        bus.publish_nowait(an_event(str(turn)))
    for _ in range(20):
        event = await anext(reader)
        stored = await other.replay(Cursor("", event.sequence - 1), MINE)
        expect(bool(stored) and stored[0].sequence == event.sequence, f"event {event.sequence} is stored")


async def unawaited_events_are_stored_at_close(bench: EventBench) -> None:
    """Closing stores and delivers all published events."""
    bus = await bench.open()
    reader = bus.subscribe(MINE)
    for turn in range(50):
        bus.publish_nowait(an_event(str(turn)))
    await bus.aclose()
    expect_equal(len([event async for event in reader]), 50, "delivered")
    expect_equal(len(await (await bench.open()).replay(Cursor(), MINE)), 50, "stored")


async def streamed_chunks_leave_no_gap(bench: EventBench) -> None:
    """Chunks are delivered without a number and are not stored."""
    bus = await bench.open()
    reader = bus.subscribe(MINE)
    for turn in range(3):
        bus.publish_nowait(a_chunk(str(turn)))
        await bus.publish(a_chunk(str(turn)))
        await bus.publish(an_event(str(turn)))
    seen = await bench.drain(bus, reader)
    expect_equal([event.sequence for event in seen], [0, 0, 1, 0, 0, 2, 0, 0, 3], "the numbers")
    expect_equal(names(await bus.replay(Cursor(), MINE)), ["0", "1", "2"], "the replay")


async def notices_are_not_stored(bench: EventBench) -> None:
    """An admin's audit has no number, a drop notice that of the last dropped event; neither is replayed."""
    bus = await bench.open(subscriber_buffer_size=2)
    admin, slow = bus.subscribe(Filter(admin=True)), bus.subscribe(MINE)
    for turn in range(5):
        await bus.publish(an_event(str(turn)))
    audit = (await bench.drain(bus, admin))[0]
    expect(audit.type != EventType.AUDIT_ADMIN_SCOPE_USED or audit.sequence == 0, "the audit has no number")
    await bus.publish(an_event("5"))
    notices = [event for event in await bench.drain(bus, slow) if event.type == EventType.BUS_DROPPED]
    expect_equal([event.sequence for event in notices], [4], "the drop notice")
    whole = Filter(tenant=ME.tenant_id, user=ME.user_id, session=ME.session_id, admin=True)
    expect_equal(names(await bus.replay(Cursor(), whole)), list("012345"), "an admin's replay")
    expect_equal(len(await bus.replay(Cursor(), MINE)), 6, "the replay")


async def an_admin_names_a_whole_session_too(bench: EventBench) -> None:
    """There is no replay of everything: tenant, user and session are needed; the cursor may name the session."""
    bus = await bench.open()
    await bus.publish(an_event("x"))
    await expect_raises(IdentityScopeRequiredError, bus.replay(Cursor(), Filter(admin=True)), "everything")
    partly = Filter(tenant=ME.tenant_id, user=ME.user_id, admin=True)
    await expect_raises(IdentityScopeRequiredError, bus.replay(Cursor(), partly), "no session")
    expect_equal(names(await bus.replay(Cursor(ME.session_id), partly)), ["x"], "the cursor's session")


async def a_cursor_opens_no_other_session(bench: EventBench) -> None:
    """A cursor that names another session than the filter gives a subscriber without admin rights nothing."""
    bus = await bench.open()
    await bus.publish(an_event("theirs", OTHERS[2]))
    expect_equal(await bus.replay(Cursor(OTHERS[2].session_id), MINE), [], "the replay")


async def two_processes_share_one_sequence(bench: EventBench) -> None:
    """Two buses publish in one session at once: every event is stored once, without gaps, those of a bus in order."""
    buses = [await bench.open(), await bench.open()]

    async def publish(index: int, turn: int) -> None:
        if turn % 3:
            await buses[index].publish(an_event(f"{index}.{turn}"))
        else:
            buses[index].publish_nowait(an_event(f"{index}.{turn}"))

    for turn in range(20):
        await asyncio.gather(publish(0, turn), publish(1, turn))
    for bus in buses:
        await bus.aclose()
    stored = await (await bench.open()).replay(Cursor(), MINE)
    expect_equal([event.sequence for event in stored], list(range(1, 41)), "the numbers")
    for index in range(2):
        mine = [name for name in names(stored) if name.startswith(f"{index}.")]
        expect_equal(mine, [f"{index}.{turn}" for turn in range(20)], f"the order of bus {index}")


async def subscribers_get_events_of_other_processes_in_order(bench: EventBench) -> None:
    """A bus delivers events that another process stored before its own first: the stream is the log."""
    bus, other = await bench.open(), await bench.open()
    reader = bus.subscribe(MINE)
    await bus.publish(an_event("one"))
    await other.publish(an_event("two"))
    await other.publish(an_event("three"))
    await bus.publish(an_event("four"))
    seen = await bench.drain(bus, reader)
    expect_equal(names(seen), ["one", "two", "three", "four"], "the stream")
    expect_equal([event.sequence for event in seen], [1, 2, 3, 4], "the numbers")


async def a_long_session_is_replayed_whole(bench: EventBench) -> None:
    """A replay is not cut at any page."""
    bus = await bench.open()
    for turn in range(2_500):
        bus.publish_nowait(an_event(str(turn)))
    found = await bus.replay(Cursor(), MINE)
    expect_equal([event.sequence for event in found], list(range(1, 2_501)), "the numbers")


SCENARIOS: tuple[Scenario, ...] = (
    a_restart_continues_without_a_gap,
    a_replay_equals_what_was_published,
    an_event_is_stored_before_it_is_delivered,
    unawaited_events_are_stored_at_close,
    streamed_chunks_leave_no_gap,
    notices_are_not_stored,
    an_admin_names_a_whole_session_too,
    a_cursor_opens_no_other_session,
    two_processes_share_one_sequence,
    subscribers_get_events_of_other_processes_in_order,
    a_long_session_is_replayed_whole,
)
