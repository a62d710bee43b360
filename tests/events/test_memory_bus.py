"""The in-memory bus: what publishing checks, how events are numbered, redacted, delivered and replayed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from harborage.errors import InvalidOptionError
from harborage.events import (
    AuditAdminScopeUsedPayload,
    AuditRedactionFailedPayload,
    BusClosedError,
    BusConfig,
    Cursor,
    CursorTooOldError,
    Event,
    EventBus,
    EventType,
    Filter,
    IdentityScopeRequiredError,
    InvalidEventError,
    MemoryEventBus,
    RedactedMap,
    RedactionFailedError,
    ReplayUnavailableError,
    RuntimeErrorPayload,
    SequenceProvidedError,
    SubscriberLimitReachedError,
    Subscription,
    TaskCancelledPayload,
    TaskPausedPayload,
    UnknownEventTypeError,
    register_event_type,
)
from harborage.identity import Identity, IdentityRequiredError, Quadruple, bound
from harborage.testing.clock import FakeClock
from harborage.testing.events import FailingRedactor
from tests.kit.redactors import NoopRedactor
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

WHO = Quadruple("t", "u", "s", "r")
MINE = Filter("t", "u", "s")
ALL = Filter(admin=True)
BODY = TaskPausedPayload("task")
MakeBus = Callable[..., MemoryEventBus]
MakeEvent = Callable[..., Event]


def _sequences(events: list[Event]) -> list[int]:
    return [event.sequence for event in events]


def _error(fields: dict[str, Any] | None = None) -> Event:
    return Event(EventType.RUNTIME_ERROR, WHO, RuntimeErrorPayload("it broke", fields or {}))


def test_the_memory_bus_is_an_event_bus(bus: MemoryEventBus) -> None:
    """The driver fits the port."""
    assert isinstance(bus, EventBus)


async def test_events_are_numbered_from_one_without_gaps(bus: MemoryEventBus, make_event: MakeEvent) -> None:
    """Sequence numbers belong to the bus, for all publishers and both verbs."""
    published = [await bus.publish(make_event()), bus.publish_nowait(make_event(who=Quadruple("x", "y", "z")))]
    assert _sequences([*published, await bus.publish(make_event())]) == [1, 2, 3]


async def test_time_is_filled_in_when_left_open(bus: MemoryEventBus, clock: FakeClock) -> None:
    """An event without a time happened now; a given time stays."""
    given = datetime(2020, 2, 2, tzinfo=UTC)
    assert (await bus.publish(Event(EventType.TASK_PAUSED, WHO, BODY))).occurred_at == clock.now()
    assert (await bus.publish(Event(EventType.TASK_PAUSED, WHO, BODY, given))).occurred_at == given


async def test_a_published_event_keeps_everything_else(bus: MemoryEventBus) -> None:
    """Type, identity, safe payload and extras arrive as they were given."""
    reader = bus.subscribe(MINE)
    sent = await bus.publish(Event(EventType.TASK_PAUSED, WHO, BODY, extra={"producer": "test"}))
    assert reader.drain() == [sent]
    assert (sent.type, sent.identity, sent.extra) == ("task.paused", WHO, {"producer": "test"})
    assert sent.payload is BODY


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (Event("no.such", Quadruple(), None, sequence=1), UnknownEventTypeError),
        (Event(EventType.TASK_PAUSED, Quadruple("t", "u"), None, sequence=1), IdentityRequiredError),
        (Event(EventType.TASK_PAUSED, WHO, None, sequence=1), SequenceProvidedError),
        (Event(EventType.TASK_PAUSED, WHO, None), InvalidEventError),
    ],
)
async def test_publishing_checks_in_order(bus: MemoryEventBus, event: Event, error: type[Exception]) -> None:
    """Type, identity, number, payload: the first that is wrong is the one reported, and nothing is published."""
    reader = bus.subscribe(MINE)
    with pytest.raises(error):
        await bus.publish(event)
    assert len(reader) == 0
    assert (await bus.publish(Event(EventType.TASK_PAUSED, WHO, BODY))).sequence == 1


async def test_a_registered_type_of_a_product_is_published(bus: MemoryEventBus) -> None:
    """A name that was registered travels like a built-in one."""
    with pytest.raises(UnknownEventTypeError):
        await bus.publish(Event("test_bus.order.shipped", WHO, BODY))
    register_event_type("test_bus.order.shipped")
    assert (await bus.publish(Event("test_bus.order.shipped", WHO, BODY))).sequence == 1


async def test_a_closed_bus_refuses_everything(bus: MemoryEventBus) -> None:
    """After closing, publish, subscribe and replay raise, whatever else is wrong with the call."""
    await bus.aclose()
    await bus.aclose()
    with pytest.raises(BusClosedError):
        await bus.publish(Event("no.such", Quadruple(), None))
    with pytest.raises(BusClosedError):
        bus.publish_nowait(Event(EventType.TASK_PAUSED, WHO, BODY))
    with pytest.raises(BusClosedError):
        bus.subscribe(Filter())
    with pytest.raises(BusClosedError):
        await bus.replay(Cursor(), Filter())


# Redaction.


async def test_a_plain_payload_arrives_redacted(bus: MemoryEventBus) -> None:
    """Subscribers get a map in which secrets are masked and keys are in lower case."""
    reader = bus.subscribe(MINE)
    fields = {"password": "hunter2", "note": "use Bearer abc"}
    await bus.publish(_error(fields))
    expected = RedactedMap({"message": "it broke", "fields": {"password": "***", "note": "use Bearer ***"}})
    assert reader.drain()[0].payload == expected
    assert fields["password"] == "hunter2"


async def test_a_publisher_cannot_declare_a_payload_redacted(bus: MemoryEventBus) -> None:
    """A map that says that it was redacted is redacted all the same; one that really was stays as it is."""
    event = Event(EventType.RUNTIME_ERROR, WHO, RedactedMap({"message": "it broke", "token": "hunter2"}))
    once = await bus.publish(event)
    assert once.payload == RedactedMap({"message": "it broke", "token": "***"})
    again = await bus.publish(Event(EventType.RUNTIME_ERROR, WHO, once.payload))
    assert again.payload == once.payload


@pytest.mark.parametrize(
    ("out", "payload"), [({"a": 1}, RedactedMap({"a": 1})), ("text", RedactedMap({"value": "text"})), (BODY, BODY)]
)
async def test_whatever_a_redactor_returns_becomes_a_payload(clock: FakeClock, out: Any, payload: Any) -> None:
    """A dict is wrapped, anything else goes under `value`, a safe payload is taken as it is."""

    class Fixed:
        def redact(self, value: Any) -> Any:
            return out

    assert (await MemoryEventBus(redactor=Fixed(), clock=clock).publish(_error())).payload == payload


async def test_a_plain_payload_never_travels_as_an_object(clock: FakeClock) -> None:
    """Even a redactor that returns the plain payload itself cannot get it to subscribers unwrapped."""
    sent = await MemoryEventBus(redactor=NoopRedactor(), clock=clock).publish(_error())
    assert isinstance(sent.payload, RedactedMap)


async def test_a_failed_redaction_is_published_without_the_payload(clock: FakeClock) -> None:
    """Publishing raises, and subscribers see that it failed for which type, and nothing of what it held."""
    bus = MemoryEventBus(redactor=FailingRedactor(), clock=clock)
    admin, reader = bus.subscribe(ALL), bus.subscribe(MINE)
    with pytest.raises(RedactionFailedError, match="events: publish redaction failed") as caught:
        await bus.publish(_error({"password": "hunter2"}))
    assert isinstance(caught.value.__cause__, RedactionFailedError)
    (sent,) = reader.drain()
    assert sent == admin.drain()[-1]
    assert sent.identity == WHO
    assert isinstance(sent.payload, AuditRedactionFailedPayload)
    assert sent.payload.original_type == "runtime.error"
    assert "hunter2" not in repr(sent)


async def test_a_redactor_that_breaks_leaks_nothing(clock: FakeClock) -> None:
    """The words of a foreign error may quote the secret, so only its type is named."""

    class Broken:
        def redact(self, value: Any) -> Any:
            raise KeyError("hunter2")

    bus = MemoryEventBus(redactor=Broken(), clock=clock)
    reader = bus.subscribe(MINE)
    with pytest.raises(RedactionFailedError) as caught:
        await bus.publish(_error())
    assert "KeyError" in str(caught.value)
    assert "hunter2" not in str(caught.value) + repr(reader.drain())


async def test_what_quotes_nothing_never_meets_the_redactor(clock: FakeClock) -> None:
    """Payloads of ids, codes and numbers are published even when nothing can be redacted; those with texts are not."""
    bus = MemoryEventBus(redactor=FailingRedactor(), clock=clock)
    assert (await bus.publish(Event(EventType.TASK_PAUSED, WHO, BODY))).sequence == 1
    with pytest.raises(RedactionFailedError):
        await bus.publish(Event(EventType.TASK_CANCELLED, WHO, TaskCancelledPayload("task", "because")))


# Subscribing.


async def test_a_subscriber_gets_its_own_session_only(bus: MemoryEventBus, make_event: MakeEvent) -> None:
    """Events of another tenant, user or session never reach a subscriber."""
    reader = bus.subscribe(MINE)
    others = [Quadruple("x", "u", "s"), Quadruple("t", "x", "s"), Quadruple("t", "u", "x")]
    for who in others:
        await bus.publish(make_event(who=who))
    mine = await bus.publish(make_event())
    assert reader.drain() == [mine]


async def test_a_subscriber_narrows_by_run_and_type(bus: MemoryEventBus, make_event: MakeEvent) -> None:
    """A run or a list of types in the filter leaves out everything else."""
    run, types = bus.subscribe(Filter("t", "u", "s", "r2")), bus.subscribe(Filter.of(WHO, ("task.failed",)))
    await bus.publish(make_event())
    other = await bus.publish(make_event(who=Quadruple("t", "u", "s", "r2")))
    assert run.drain() == [other]
    assert types.drain() == []


async def test_a_filter_must_name_a_session(bus: MemoryEventBus) -> None:
    """A filter with only a session is refused."""
    with pytest.raises(IdentityScopeRequiredError):
        bus.subscribe(Filter(session="s"))


async def test_a_session_has_a_limited_number_of_subscribers(make_bus: MakeBus) -> None:
    """The limit counts one session's subscribers; cancelling one frees its place at once."""
    bus = make_bus(max_subscribers_per_session=2)
    first = bus.subscribe(MINE)
    bus.subscribe(Filter("t", "u", "s", "r"))
    with pytest.raises(SubscriberLimitReachedError) as caught:
        bus.subscribe(MINE)
    assert caught.value.limit == 2
    bus.subscribe(Filter("t", "u", "other"))
    first.cancel()
    first.cancel()
    bus.subscribe(MINE)


async def test_admins_are_neither_counted_nor_limited(make_bus: MakeBus) -> None:
    """Any number of admins may read, also ones whose filter names a session."""
    bus = make_bus(max_subscribers_per_session=1)
    for _ in range(5):
        bus.subscribe(Filter("t", "u", "s", admin=True))
    bus.subscribe(MINE)


async def test_an_admin_sees_everything_and_its_own_audit_first(bus: MemoryEventBus, make_event: MakeEvent) -> None:
    """Looking across sessions is itself an event, and the looker is the first to see it."""
    admin = bus.subscribe(Filter("x", "y", "z", "run", admin=True))
    await bus.publish(make_event())
    audit, other = admin.drain()
    assert audit.type == EventType.AUDIT_ADMIN_SCOPE_USED
    assert audit.identity == Quadruple("x", "y", "z")
    assert audit.payload == AuditAdminScopeUsedPayload("x", "y", "z", admin.id)
    assert other.identity == WHO


async def test_a_pure_admin_filter_is_audited_without_an_identity(bus: MemoryEventBus) -> None:
    """The audit of a filter without a session has an empty identity, which no other event may have."""
    admin = bus.subscribe(ALL)
    (audit,) = admin.drain()
    assert audit.identity == Quadruple()
    assert audit.sequence == 1


async def test_an_admin_audit_says_who_looked_and_for_what(bus: MemoryEventBus) -> None:
    """The audit names the identity bound in the context and the types of the filter."""
    with bound(Identity("ops", "ann", "console")):
        admin = bus.subscribe(Filter(admin=True, types=("audit.admin_scope_used",)))
    payload = admin.drain()[0].payload
    assert isinstance(payload, AuditAdminScopeUsedPayload)
    assert payload.actor == Quadruple("ops", "ann", "console")
    assert payload.types == ("audit.admin_scope_used",)


async def test_an_ordinary_subscriber_is_not_audited(bus: MemoryEventBus) -> None:
    """A read of the caller's own session is not audited."""
    reader = bus.subscribe(MINE)
    assert reader.drain() == []
    assert await bus.replay(Cursor(), MINE) == []


async def test_a_cancelled_subscriber_is_forgotten_at_once(bus: MemoryEventBus, make_event: MakeEvent) -> None:
    """After cancelling, nothing is queued for the subscriber any more."""
    reader, admin = bus.subscribe(MINE), bus.subscribe(ALL)
    admin.drain()
    reader.cancel()
    admin.cancel()
    await bus.publish(make_event())
    assert len(reader) == len(admin) == 0


async def test_closing_ends_every_stream_after_what_is_queued(bus: MemoryEventBus, make_event: MakeEvent) -> None:
    """Subscribers of a closing bus still get earlier events, and then their streams end."""
    reader, admin = bus.subscribe(MINE), bus.subscribe(ALL)
    sent = await bus.publish(make_event())
    await bus.aclose()
    assert [event async for event in reader.events()] == [sent]
    assert [event.sequence async for event in admin] == [1, 2]


async def test_readers_of_other_sessions_cost_nothing(
    bus: MemoryEventBus, make_event: MakeEvent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delivering an event looks only at the subscribers of its session, however many others there are."""
    asked: list[int] = []
    wants = Subscription.wants
    monkeypatch.setattr(Subscription, "wants", lambda self, event: asked.append(self.id) or wants(self, event))
    for n in range(256):
        bus.subscribe(Filter("t", "u", f"s{n}"))
    reader = bus.subscribe(MINE)
    await bus.publish(make_event())
    assert asked == [reader.id]


async def test_a_subscriber_may_cancel_another_during_a_delivery(make_bus: MakeBus, make_event: MakeEvent) -> None:
    """Subscribers come and go between events without an effect on each other."""
    bus = make_bus()
    readers = [bus.subscribe(MINE) for _ in range(3)]
    await bus.publish(make_event("one"))
    readers[1].cancel()
    await bus.publish(make_event("two"))
    assert [len(reader) for reader in readers] == [2, 1, 2]


# Replay.


async def test_replay_keeps_the_last_events(make_bus: MakeBus, make_event: MakeEvent) -> None:
    """A window of four after ten events: too old, the whole, the rest, nothing."""
    bus = make_bus(replay_buffer_size=4)
    for _ in range(10):
        await bus.publish(make_event())
    with pytest.raises(CursorTooOldError, match="oldest=7 requested=1"):
        await bus.replay(Cursor("s", 1), MINE)
    assert _sequences(await bus.replay(Cursor("s", 6), MINE)) == [7, 8, 9, 10]
    assert _sequences(await bus.replay(Cursor("s", 0), MINE)) == [7, 8, 9, 10]
    assert await bus.replay(Cursor("s", 10), MINE) == []


async def test_replay_gives_only_what_the_filter_asks_for(bus: MemoryEventBus, make_event: MakeEvent) -> None:
    """Another session's events are not replayed, nor other runs or types."""
    await bus.publish(make_event(who=Quadruple("x", "y", "z")))
    mine = await bus.publish(make_event())
    assert await bus.replay(Cursor(), MINE) == [mine]
    assert await bus.replay(Cursor(), Filter("t", "u", "s", "other")) == []
    assert await bus.replay(Cursor(), Filter.of(WHO, ("task.failed",))) == []


async def test_replay_off_comes_before_the_filter(make_bus: MakeBus) -> None:
    """A bus without a window says so even to a filter it would refuse."""
    with pytest.raises(ReplayUnavailableError):
        await make_bus(replay_buffer_size=0).replay(Cursor(), Filter())


async def test_replay_checks_the_filter(bus: MemoryEventBus) -> None:
    """A filter that names less than a session cannot replay."""
    with pytest.raises(IdentityScopeRequiredError):
        await bus.replay(Cursor(), Filter(session="s"))


async def test_an_admin_replay_contains_its_own_audit(bus: MemoryEventBus, make_event: MakeEvent) -> None:
    """The audit of an admin replay is published first, without a subscriber, and is part of the answer."""
    await bus.publish(make_event())
    events = await bus.replay(Cursor(), Filter("x", admin=True))
    assert [event.type for event in events] == ["task.paused", "audit.admin_scope_used"]
    assert events[-1].payload == AuditAdminScopeUsedPayload("x", "", "", 0)


async def test_subscribing_first_and_replaying_after_leaves_no_gap(bus: MemoryEventBus, make_event: MakeEvent) -> None:
    """A subscriber that comes back gets every event once, when it skips what it gets twice."""
    seen = [await bus.publish(make_event(str(n))) for n in range(3)]
    missed = [await bus.publish(make_event(str(n))) for n in range(3)]
    reader = bus.subscribe(MINE)
    live = [await bus.publish(make_event(str(n))) for n in range(3)]
    replayed = await bus.replay(Cursor("s", seen[-1].sequence), MINE)
    joined = {event.sequence: event for event in [*replayed, *reader.drain()]}
    assert [joined[n] for n in sorted(joined)] == missed + live


# Many at once.


async def test_many_subscribers_and_publishers_never_cross(bus: MemoryEventBus) -> None:
    """128 sessions publish and read at once; each reads its own events, all of them, in order."""

    async def one(n: int) -> list[str]:
        who = Quadruple(f"t{n % 7}", f"u{n}", "s", "r")
        with bus.subscribe(Filter.of(who)) as reader:
            for index in range(5):
                await bus.publish(Event(EventType.TASK_PAUSED, who, TaskPausedPayload(f"{n}/{index}")))
                await asyncio.sleep(0)
            return [event.payload.task_id for event in reader.drain() if isinstance(event.payload, TaskPausedPayload)]

    results = await asyncio.gather(*(one(n) for n in range(128)))
    assert results == [[f"{n}/{index}" for index in range(5)] for n in range(128)]
    assert _sequences(await bus.replay(Cursor(), ALL)) == list(range(1, 642))


def test_a_bus_works_without_a_running_loop(make_event: MakeEvent) -> None:
    """Code outside the loop may publish and look at what is queued, also on the system clock."""
    bus = MemoryEventBus()
    reader = bus.subscribe(MINE)
    bus.publish_nowait(make_event())
    assert _sequences(reader.drain()) == [1]


# Bounds.


def test_bounds_have_these_defaults() -> None:
    """The defaults are the documented ones."""
    config = BusConfig()
    assert (config.max_subscribers_per_session, config.subscriber_buffer_size) == (16, 256)
    assert (config.idle_timeout_s, config.replay_buffer_size) == (60.0, 10_000)


@each_row("field", ["max_subscribers_per_session", "subscriber_buffer_size", "idle_timeout_s"])
@each_row("value", [0, -1])
def test_bounds_must_be_positive(field: str, value: int) -> None:
    """Zero or less is refused by name."""
    with pytest.raises(InvalidOptionError, match=field) as caught:
        BusConfig(**{field: value})
    assert (caught.value.option, caught.value.value) == (field, value)


def test_the_window_may_be_zero_but_not_less() -> None:
    """Zero turns replay off; a negative window makes no sense."""
    assert BusConfig(replay_buffer_size=0).replay_buffer_size == 0
    with pytest.raises(InvalidOptionError, match="replay_buffer_size"):
        BusConfig(replay_buffer_size=-1)
