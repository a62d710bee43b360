"""What every event bus must do. Pass a function that makes an empty place, from which buses are opened:

    await run_conformance(open_place)

or one test a scenario: `@pytest.mark.parametrize("scenario", SCENARIOS)` and `await check(scenario, open_place)`. A
durable bus runs `DURABLE_SCENARIOS` as well: there, several buses are opened from one place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from harborage.events import (
    AuditAdminScopeUsedPayload,
    BusClosedError,
    BusDroppedPayload,
    Cursor,
    Event,
    EventBus,
    EventType,
    Filter,
    IdentityScopeRequiredError,
    InvalidEventError,
    RedactedMap,
    RedactionFailedError,
    SequenceProvidedError,
    SubscriberLimitReachedError,
    Subscription,
    UnknownEventTypeError,
)
from harborage.identity import IdentityRequiredError, Quadruple
from harborage.testing.conformance import events_durable
from harborage.testing.conformance.checks import check_scenario, expect, expect_equal, expect_raises, run_scenarios
from harborage.testing.conformance.event_bench import (
    ME,
    MINE,
    OTHERS,
    EventBench,
    OpenPlace,
    a_chunk,
    an_error,
    an_event,
    names,
)
from harborage.testing.events import FailingRedactor

Scenario: TypeAlias = Callable[[EventBench], Awaitable[None]]

EVERYTHING = Filter(admin=True)


async def events_are_numbered_without_gaps(bench: EventBench) -> None:
    """The events of a session are numbered from 1, one after the other."""
    bus = await bench.open()
    published = [await bus.publish(an_event(str(turn))) for turn in range(20)]
    expect_equal([event.sequence for event in published], list(range(1, 21)), "the numbers")


async def both_ways_of_publishing_share_one_order(bench: EventBench) -> None:
    """Subscribers get events published with and without waiting in the order of publishing."""
    bus = await bench.open()
    reader = bus.subscribe(MINE)
    for turn in range(10):
        bus.publish_nowait(an_event(f"{turn}a"))
        await bus.publish(an_event(f"{turn}b"))
    seen = await bench.drain(bus, reader)
    expect_equal(names(seen), [f"{turn}{part}" for turn in range(10) for part in "ab"], "the order")
    expect_equal([event.sequence for event in seen], list(range(1, 21)), "the numbers")


async def a_published_event_keeps_its_fields(bench: EventBench) -> None:
    """Type, identity, extra and a time of its own stay; a missing time is filled in from the clock."""
    bus = await bench.open()
    own = bench.clock.now().replace(year=2020)
    dated = await bus.publish(an_event("dated", occurred_at=own, extra={"node": "a"}))
    expect_equal((dated.occurred_at, dated.extra, dated.identity), (own, {"node": "a"}, ME), "what was given")
    plain = await bus.publish(an_event("plain"))
    expect_equal(plain.occurred_at, bench.clock.now(), "the time that was left open")


async def publishing_checks_in_order(bench: EventBench) -> None:
    """Unknown type, incomplete identity, a number of its own, no payload: in this order, by both verbs."""
    bus = await bench.open()
    partial = Quadruple("tenant", "", "session", "run")
    wrong: tuple[tuple[Event, type[Exception]], ...] = (
        (Event("no.such.type", partial, None, sequence=3), UnknownEventTypeError),
        (Event(EventType.TASK_PAUSED, partial, None, sequence=3), IdentityRequiredError),
        (Event(EventType.TASK_PAUSED, ME, None, sequence=3), SequenceProvidedError),
        (Event(EventType.TASK_PAUSED, ME, None), InvalidEventError),
    )
    reader = bus.subscribe(MINE)
    for event, error in wrong:
        await expect_raises(error, bus.publish(event), f"publish {event}")
        await expect_raises(error, _nowait(bus, event), f"publish_nowait {event}")
    expect_equal(await bench.drain(bus, reader), [], "what is delivered of refused events")


async def a_closed_bus_refuses_everything(bench: EventBench) -> None:
    """After close every verb is refused, streams end after the queued events, and closing again does nothing."""
    bus = await bench.open()
    reader = bus.subscribe(MINE)
    await bus.publish(an_event("last"))
    await bus.aclose()
    await bus.aclose()
    expect_equal(names([event async for event in reader]), ["last"], "what the stream still holds")
    await expect_raises(BusClosedError, bus.publish(Event("no.such.type", ME, None)), "publish")
    await expect_raises(BusClosedError, _nowait(bus, an_event()), "publish_nowait")
    await expect_raises(BusClosedError, _subscribed(bus, Filter()), "subscribe")
    await expect_raises(BusClosedError, bus.replay(Cursor(), Filter()), "replay")


async def plain_payloads_arrive_redacted(bench: EventBench) -> None:
    """Neither a subscriber nor a replay gets a secret."""
    bus = await bench.open()
    reader = bus.subscribe(MINE)
    await bus.publish(an_error({"token": "abc", "note": "use Bearer abc.def now"}))
    seen = [*await bench.drain(bus, reader), *await bus.replay(Cursor(), MINE)]
    expect_equal(len(seen), 2, "how often it was delivered")
    for event in seen:
        expect(isinstance(event.payload, RedactedMap), "a plain payload arrives as a RedactedMap")
        data = event.payload.data if isinstance(event.payload, RedactedMap) else {}
        expect_equal(data["fields"], {"token": "***", "note": "use Bearer *** now"}, "the fields")


async def a_failed_redaction_is_published_without_the_payload(bench: EventBench) -> None:
    """The publisher gets the error, subscribers the type alone, and the next event has no gap before it."""
    bus = await bench.open(redactor=FailingRedactor())
    reader = bus.subscribe(EVERYTHING)
    first = await bus.publish(an_event("before"))
    await expect_raises(RedactionFailedError, bus.publish(an_error({"x": "hidden-text"})), "publish")
    await bus.publish(an_event("after"))
    seen = await bench.drain(bus, reader)
    expect_equal(sum(event.type == EventType.AUDIT_REDACTION_FAILED for event in seen), 1, "notices")
    expect("hidden-text" not in repr(seen), "the payload is in no event")
    expect(first.sequence > 0 and names(seen) == ["before", "after"], "the others were delivered")


async def subscribers_get_their_own_session(bench: EventBench) -> None:
    """Another tenant, user or session is never seen."""
    bus = await bench.open()
    readers = {who: bus.subscribe(Filter.of(who.identity)) for who in (ME, *OTHERS)}
    for who in readers:
        await bus.publish(an_event(repr(who), who))
    for who, reader in readers.items():
        expect_equal(names(await bench.drain(bus, reader)), [repr(who)], f"what {who} gets")
        expect_equal(names(await bus.replay(Cursor(), Filter.of(who.identity))), [repr(who)], f"replay for {who}")


async def subscribers_narrow_by_run_and_type(bench: EventBench) -> None:
    """A filter may name one run and some types."""
    bus = await bench.open()
    by_run = bus.subscribe(Filter.of(ME))
    by_type = bus.subscribe(Filter.of(ME.identity, (EventType.RUNTIME_ERROR,)))
    await bus.publish(an_event("mine"))
    await bus.publish(an_event("other", ME.identity.with_run("other")))
    await bus.publish(an_error({}))
    seen = await bench.drain(bus, by_run)
    expect_equal((names(seen), len(seen)), (["mine"], 2), "what the run's subscriber gets")
    expect_equal([event.type for event in await bench.drain(bus, by_type)], [EventType.RUNTIME_ERROR], "by type")


async def a_filter_names_a_whole_session(bench: EventBench) -> None:
    """Every caller but an admin must name tenant, user and session, to subscribe and to replay."""
    bus = await bench.open()
    for partly in (Filter(), Filter(session="s"), Filter(tenant="t", user="u"), Filter(user="u", session="s")):
        await expect_raises(IdentityScopeRequiredError, _subscribed(bus, partly), f"subscribe {partly}")
        await expect_raises(IdentityScopeRequiredError, bus.replay(Cursor(), partly), f"replay {partly}")


async def a_session_has_limited_subscribers(bench: EventBench) -> None:
    """One more than allowed is refused until another is cancelled; admins are neither counted nor limited."""
    bus = await bench.open(max_subscribers_per_session=2)
    first, _ = bus.subscribe(MINE), bus.subscribe(MINE)
    for _ in range(3):
        bus.subscribe(EVERYTHING)
    await expect_raises(SubscriberLimitReachedError, _subscribed(bus, MINE), "a third subscriber")
    bus.subscribe(Filter.of(OTHERS[0].identity))
    first.cancel()
    first.cancel()
    bus.subscribe(MINE)


async def an_admin_sees_everything_and_its_own_audit_first(bench: EventBench) -> None:
    """A read across sessions is itself an event, which the admin gets before any other."""
    bus = await bench.open()
    reader = bus.subscribe(EVERYTHING)
    for who in (ME, *OTHERS):
        await bus.publish(an_event(repr(who), who))
    seen = await bench.drain(bus, reader)
    expect(isinstance(seen[0].payload, AuditAdminScopeUsedPayload), "the audit comes first")
    expect_equal(names(seen), [repr(who) for who in (ME, *OTHERS)], "what an admin gets")


async def a_slow_subscriber_gets_a_notice_of_its_loss(bench: EventBench) -> None:
    """The oldest are dropped, the newest stay, the publisher never waits; a notice in their place counts them."""
    bus = await bench.open(subscriber_buffer_size=4)
    reader = bus.subscribe(MINE)
    for turn in range(24):
        await bus.publish(an_event(str(turn)))
    notice, *kept = await bench.drain(bus, reader)
    expect_equal(names(kept), ["20", "21", "22", "23"], "what is left")
    first, last = kept[0].sequence - 20, kept[0].sequence - 1
    expect_equal(notice.payload, BusDroppedPayload(first, last, 20, reader.id), "the notice")
    expect_equal((notice.type, notice.sequence), (EventType.BUS_DROPPED, last), "its place")
    await bus.publish(an_event("late"))
    expect_equal(names(await bench.drain(bus, reader)), ["late"], "what was read is not delivered again")


async def replay_gives_what_follows_the_cursor(bench: EventBench) -> None:
    """Strictly newer, oldest first; a cursor at the end or behind it gives nothing."""
    bus = await bench.open()
    for turn in range(12):
        await bus.publish(an_event(str(turn)))
    for after in (0, 1, 9, 11, 12, 99):
        found = await bus.replay(Cursor(ME.session_id, after), MINE)
        expect_equal([event.sequence for event in found], list(range(after + 1, 13)), f"behind {after}")


async def replay_includes_all_earlier_events(bench: EventBench) -> None:
    """All events published before the call are in it, also by `publish_nowait`."""
    bus = await bench.open()
    for turn in range(5):
        bus.publish_nowait(an_event(str(turn)))
    expect_equal(names(await bus.replay(Cursor(), MINE)), list("01234"), "the replay")


async def an_unknown_session_has_nothing_to_replay(bench: EventBench) -> None:
    """Nothing, rather than an error."""
    bus = await bench.open()
    await bus.publish(an_event())
    expect_equal(await bus.replay(Cursor(), Filter.of(OTHERS[2].identity)), [], "the replay")


async def subscribing_first_and_replaying_after_leaves_no_gap(bench: EventBench) -> None:
    """A subscriber that comes in the middle, replays and skips duplicates has every event once."""
    bus = await bench.open()
    for turn in range(10):
        bus.publish_nowait(an_event(str(turn)))
    reader = bus.subscribe(MINE)
    bus.publish_nowait(an_event("10"))
    joined = await bus.replay(Cursor(), MINE)
    for turn in range(11, 20):
        bus.publish_nowait(an_event(str(turn)))
    joined += [event for event in await bench.drain(bus, reader) if event.sequence > joined[-1].sequence]
    expect_equal(names(joined), [str(turn) for turn in range(20)], "the joined stream")
    kept = await bus.replay(Cursor(), MINE)
    expect_equal([event.sequence for event in joined], [event.sequence for event in kept], "beside the replay")


async def streamed_chunks_are_delivered_in_order(bench: EventBench) -> None:
    """A chunk comes after the events published before it and before those published after it, stored or not."""
    bus = await bench.open()
    reader = bus.subscribe(MINE)
    for turn in range(5):
        bus.publish_nowait(an_event(str(turn)))
        bus.publish_nowait(a_chunk(str(turn)))
    seen = await bench.drain(bus, reader)
    wanted = [EventType.TASK_PAUSED, EventType.LLM_COMPLETION_CHUNK] * 5
    expect_equal([event.type for event in seen], wanted, "the stream")


async def a_subscriber_may_cancel_during_delivery(bench: EventBench) -> None:
    """The others are not affected; its queued events can still be read."""
    bus = await bench.open()
    leaving, staying = bus.subscribe(MINE), bus.subscribe(MINE)
    await bus.publish(an_event("one"))
    leaving.cancel()
    await bus.publish(an_event("two"))
    expect_equal(names([event async for event in leaving]), ["one"], "the cancelled subscription")
    expect_equal(names(await bench.drain(bus, staying)), ["one", "two"], "the other subscription")


async def many_publishers_never_cross(bench: EventBench) -> None:
    """A hundred publishers in four sessions: each session's sequence is whole, in order and without gaps."""
    bus = await bench.open(subscriber_buffer_size=1_000)
    readers = {who: bus.subscribe(Filter.of(who.identity)) for who in (ME, *OTHERS)}
    published: dict[Quadruple, list[str]] = {who: [] for who in readers}

    async def publisher(number: int) -> None:
        who = list(readers)[number % 4]
        for turn in range(5):
            published[who].append(f"{number}.{turn}")
            await bus.publish(an_event(f"{number}.{turn}", who))

    await asyncio.gather(*(publisher(number) for number in range(100)))
    for who, reader in readers.items():
        seen = await bench.drain(bus, reader)
        expect_equal(names(seen), published[who], f"the sequence of {who}")
        numbers = [event.sequence for event in seen]
        expect(numbers == sorted(set(numbers)), f"growing numbers for {who}")


async def _nowait(bus: EventBus, event: Event) -> Event:
    return bus.publish_nowait(event)


async def _subscribed(bus: EventBus, filter: Filter) -> Subscription:
    return bus.subscribe(filter)


SCENARIOS: tuple[Scenario, ...] = (
    events_are_numbered_without_gaps,
    both_ways_of_publishing_share_one_order,
    a_published_event_keeps_its_fields,
    publishing_checks_in_order,
    a_closed_bus_refuses_everything,
    plain_payloads_arrive_redacted,
    a_failed_redaction_is_published_without_the_payload,
    subscribers_get_their_own_session,
    subscribers_narrow_by_run_and_type,
    a_filter_names_a_whole_session,
    a_session_has_limited_subscribers,
    an_admin_sees_everything_and_its_own_audit_first,
    a_slow_subscriber_gets_a_notice_of_its_loss,
    replay_gives_what_follows_the_cursor,
    replay_includes_all_earlier_events,
    an_unknown_session_has_nothing_to_replay,
    subscribing_first_and_replaying_after_leaves_no_gap,
    streamed_chunks_are_delivered_in_order,
    a_subscriber_may_cancel_during_delivery,
    many_publishers_never_cross,
)
DURABLE_SCENARIOS: tuple[Scenario, ...] = (*SCENARIOS, *events_durable.SCENARIOS)


async def check(scenario: Scenario, open_place: OpenPlace) -> None:
    """Run one scenario in a fresh place.

    Raises:
        ConformanceError: the bus breaks a promise.
    """
    await check_scenario(scenario, _opener(open_place))


async def run_conformance(open_place: OpenPlace, scenarios: tuple[Scenario, ...] = SCENARIOS) -> None:
    """Run every scenario, each in a fresh, empty place.

    Raises:
        ExceptionGroup: the broken promises, one error a scenario.
    """
    await run_scenarios(scenarios, _opener(open_place))


def _opener(open_place: OpenPlace) -> Callable[[], Any]:
    async def opened() -> EventBench:
        return EventBench(await open_place())

    return opened
