"""What a run publishes is kept with what it records: together, once, in order, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

from harborage import codec
from harborage.concurrency import Crew
from harborage.events import (
    Cursor,
    Event,
    EventType,
    Filter,
    LLMCompletionChunkPayload,
    LLMCost,
    LLMCostRecordedPayload,
    LLMUsage,
    Subscription,
    TaskCompletedPayload,
    ToolInvokedPayload,
)
from harborage.events.durable_bus import DurableEventBus
from harborage.identity import Identity, Quadruple, bound
from harborage.runtime.durable.engine import RecordRefusedError, RunTakenError
from harborage.runtime.durable.inbox import InboxRegistry
from harborage.runtime.durable.journal import Patched
from harborage.runtime.durable.leased_record import LeasedRecord
from harborage.runtime.durable.leased_run import LeasedRun
from harborage.runtime.durable.mailbox import Mailbox
from harborage.runtime.durable.outbox import EVENT_DELAY_S, Outbox
from harborage.runtime.loop.controls import ControlEvent, ControlType, Scope
from harborage.runtime.loop.seam import RunRequest
from harborage.runtime.pauses import Coordinator
from harborage.state.errors import DatabaseLockedError
from harborage.store import Change, Commit, Committed, EventQuery, Lease, NewRun, SendControl, Status
from harborage.store.memory import MemoryStore
from harborage.testing.clock import FakeClock, settle
from tests.kit.stored_runs import row_of

pytestmark = pytest.mark.anyio

ME = Quadruple("t", "u", "s", "r")
AT = datetime(2026, 1, 1, tzinfo=UTC)
READY = Change(release=True, is_ready=True)


class Store(MemoryStore):
    """A store that refuses, or never answers, where the test says so; it remembers how much each commit held."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[tuple[int, int]] = []
        self.refuses = self.is_silent = False

    async def commit(self, commit: Commit) -> Committed:
        if self.refuses:
            raise DatabaseLockedError("the database", "locked")
        self.commits.append((len(commit.entries), len(commit.events)))
        done = await super().commit(commit)
        if self.is_silent:
            await asyncio.Event().wait()
        return done

    async def published(self) -> list[str]:
        """The names of the events that are kept."""
        rows = await self.events(EventQuery())
        return [str(codec.decode(row.data)["payload"]["ToolName"]) for row in rows]


class Bench:
    """One run, carried: its record and outbox, and a reader of its session."""

    def __init__(self, store: Store, clock: FakeClock, crew: Crew, lease: Lease) -> None:
        self.store, self.clock, self.lease = store, clock, lease
        self.bus = DurableEventBus(store, clock=clock)
        self.reader: Subscription = self.bus.subscribe(Filter.of(ME.identity))
        self.run = LeasedRun(request=RunRequest(who=ME, goal="g"), lease=lease, position=1)
        self.record = LeasedRecord(store, self.run, crew, self.bus)
        self.is_long = True
        self.crew = crew

    def open(self) -> Any:
        """Carry the run; afterwards the outbox is there."""
        opened = self.record.opened()
        opened.__enter__()
        self.outbox = Outbox("r", self.record, self.crew, self.clock, lambda: self.is_long)
        return opened

    def tell(self, name: str, who: Quadruple = ME) -> None:
        """Publish something about the run."""
        payload = ToolInvokedPayload(identity=who, tool_name=name, transport="", started_at=AT)
        self.bus.publish_nowait(Event(EventType.TOOL_INVOKED, who, payload))

    def note(self, name: str = "x") -> None:
        """Note an entry."""
        self.outbox.note(Patched(at=AT, change=name))

    def seen(self) -> list[str]:
        """The types of the events that the subscriber got since the last call."""
        return [str(getattr(event.payload, "tool_name", event.type)) for event in self.reader.drain()]


@pytest.fixture
def clock() -> FakeClock:
    """The clock that everything reads."""
    return FakeClock()


@pytest.fixture
async def bench(clock: FakeClock) -> AsyncIterator[Bench]:
    """A run that is carried; what happens in the test is done by the run."""
    store, crew = Store(), Crew(lambda name, error: None)
    await store.commit(Commit(starts=(NewRun(run_id="r", who=ME.identity, entries=(b"started",), worker="w"),)))
    store.commits.clear()
    made = Bench(store, clock, crew, Lease("r", "w", 1))
    opened = made.open()
    yield made
    opened.__exit__(None, None, None)
    made.outbox.close()
    made.record.close()
    await made.bus.aclose()
    await crew.aclose()
    assert clock.armed == 0


async def test_what_a_run_publishes_goes_with_its_entries(bench: Bench) -> None:
    """One commit keeps both; readers get the events after it, and a piece of a streamed answer at once."""
    bench.tell("a")
    bench.tell("b")
    bench.note()
    chunk = LLMCompletionChunkPayload(identity=ME, delta="x", occurred_at=AT)
    bench.bus.publish_nowait(Event(EventType.LLM_COMPLETION_CHUNK, ME, chunk))
    assert bench.seen() == [EventType.LLM_COMPLETION_CHUNK]
    await bench.outbox.flush()
    assert bench.store.commits == [(1, 2)]
    assert bench.seen() == ["a", "b"]


async def test_what_a_model_used_is_added_to_the_row_of_the_run(bench: Bench) -> None:
    """The commit that keeps the event adds its tokens and its price in dollars; another commit adds nothing."""
    for cost, currency in ((0.25, "USD"), (0.000_002, "USD"), (9.0, "EUR")):
        price = LLMCost(total_cost=cost, currency=currency)
        payload = LLMCostRecordedPayload(
            identity=ME, model="m", cost=price, usage=LLMUsage(total_tokens=100), occurred_at=AT
        )
        bench.bus.publish_nowait(Event(EventType.LLM_COST_RECORDED, ME, payload))
        bench.note()
        await bench.outbox.flush()
    bench.note()
    await bench.outbox.flush()
    row = await row_of(bench.store, "r")
    assert (row.tokens, row.cost, row.owner) == (300, 250_002, "w")


async def test_who_waits_for_a_run_of_its_own_is_not_kept_waiting(bench: Bench) -> None:
    """The event is kept with the next entry, which could not be noted before; its task's events name the run inside."""
    published = await bench.bus.publish(
        Event(EventType.TASK_COMPLETED, ME.identity.with_run(""), TaskCompletedPayload("r"))
    )
    assert (published.sequence, bench.store.commits) == (0, [])
    bench.note()
    await bench.outbox.flush()
    assert bench.store.commits == [(1, 1)]


async def test_a_long_step_keeps_no_watcher_waiting(bench: Bench) -> None:
    """What is published in it is kept by itself after a moment, under the lease of the run."""
    bench.tell("a")
    await bench.clock.run_for(EVENT_DELAY_S / 2)
    assert bench.seen() == []
    await bench.clock.run_for(EVENT_DELAY_S)
    assert (bench.store.commits, bench.seen()) == ([(0, 1)], ["a"])
    bench.note()
    bench.tell("b")
    await bench.outbox.flush_all()
    assert bench.store.commits == [(0, 1), (1, 1)]


async def test_what_a_short_step_publishes_is_kept_with_its_outcome(bench: Bench) -> None:
    """However long it takes: if the step is retried, it is published again. Interrupted, it has published nothing."""
    bench.is_long = False
    bench.tell("a")
    await bench.clock.run_for(1)
    await bench.outbox.flush_all()
    assert bench.store.commits == []
    bench.note()
    bench.tell("b")
    await bench.outbox.flush()
    assert (bench.store.commits, bench.seen()) == ([(1, 1)], ["a"])
    await bench.record.release(READY)
    bench.record.close()
    await settle()
    assert await bench.store.published() == ["a"]


async def test_a_lost_lease_takes_its_events_along(bench: Bench) -> None:
    """Another worker has the run: the commit of this one is refused, and no event is published."""
    await bench.store.leave("w")
    bench.store._tables.release_all("w")
    await bench.store.claim("other")
    bench.tell("a")
    bench.note()
    with pytest.raises(RunTakenError):
        await bench.outbox.flush()
    bench.tell("b")
    bench.record.close()
    await settle()
    assert (await bench.store.published(), bench.seen()) == ([], [])


async def test_a_refused_entry_takes_its_events_along(bench: Bench) -> None:
    """The run is released and its step retried, which publishes it again."""
    bench.tell("a")
    bench.note()
    bench.store.refuses = True
    with pytest.raises(RecordRefusedError):
        await bench.outbox.flush()
    bench.store.refuses = False
    await bench.record.release(READY)
    bench.record.close()
    await settle()
    assert (await bench.store.published(), bench.seen()) == ([], [])


async def test_what_was_refused_by_itself_is_kept_later(bench: Bench) -> None:
    """No entry was refused with it, so it is true: it goes with the next commit, be that the one that parks the run."""
    bench.tell("a")
    bench.store.refuses = True
    await bench.clock.run_for(2 * EVENT_DELAY_S)
    bench.store.refuses = False
    await bench.record.release(READY)
    assert (await bench.store.published(), bench.seen()) == (["a"], ["a"])


async def test_an_append_that_is_cut_short_is_reported_once(bench: Bench) -> None:
    """It was kept all the same, so what is appended after it begins with it; readers hear of both."""
    await bench.bus.replay(Cursor(), Filter.of(ME.identity))
    bench.tell("a")
    bench.note("one")
    bench.store.is_silent = True
    cut = asyncio.create_task(bench.outbox.flush())
    await settle()
    cut.cancel()
    await asyncio.wait([cut])
    bench.store.is_silent = False
    bench.tell("b")
    bench.note("two")
    await bench.outbox.flush()
    await settle()
    assert await bench.store.published() == ["a", "b"]
    assert [event.sequence for event in bench.reader.drain()] == [1, 2]
    assert len(await bench.store.entries("r")) == 3


async def test_what_is_kept_by_itself_is_not_cut_short(bench: Bench) -> None:
    """A run that stops meanwhile is given back behind it."""
    bench.tell("a")
    bench.store.is_silent = True
    cut = asyncio.create_task(bench.outbox.flush_all())
    await settle()
    cut.cancel()
    await asyncio.wait([cut])
    bench.store.is_silent = False
    giving = asyncio.create_task(bench.record.release(READY))
    await settle()
    assert not giving.done()
    giving.cancel()
    await asyncio.wait([giving])
    assert await bench.store.published() == ["a"]


async def test_what_others_publish_about_a_run_waits_for_nothing(bench: Bench) -> None:
    """It is kept at once, behind what the run published before it, whatever becomes of the run."""
    bench.tell("mine")
    with bound(Identity("t", "u", "s")):
        bench.tell("theirs")
        published = await bench.bus.publish(
            Event(EventType.TOOL_INVOKED, ME, ToolInvokedPayload(ME, "awaited", "", started_at=AT))
        )
    assert published.sequence == 3
    assert bench.seen() == ["mine", "theirs", "awaited"]


async def test_the_end_of_a_run_takes_what_is_left(bench: Bench) -> None:
    """And what is published after it is kept by itself."""
    bench.tell("a")
    await bench.record.end(b'{"entry":"patched","at":"2026-01-01T00:00:00Z"}', Change(status=Status.COMPLETE), None)
    assert bench.store.commits == [(1, 1)]
    bench.tell("b")
    await settle()
    assert (bench.store.commits, bench.seen()) == ([(1, 1), (0, 1)], ["a", "b"])


async def test_a_bus_over_another_store_keeps_its_own(clock: FakeClock) -> None:
    """What is in two places cannot be kept together."""
    bus, crew = DurableEventBus(MemoryStore(), clock=clock), Crew(lambda name, error: None)
    run = LeasedRun(request=RunRequest(who=ME, goal="g"), lease=Lease("r", "w", 1))
    record = LeasedRecord(MemoryStore(), run, crew, bus)
    with record.opened():
        assert record.event_buffer is None
    record.close()
    await bus.aclose()


async def test_a_control_is_consumed_with_the_outcome_of_the_step_that_took_it(bench: Bench) -> None:
    """Not before: should the step be taken again, it takes the control again, and says again what came of it."""
    bench.run.inbox = InboxRegistry().open(ME)
    await send(bench, ControlType.USER_MESSAGE)
    bench.note("before")
    bench.is_long = False
    bench.run.inbox.drain()
    bench.tell("rejected")
    await bench.outbox.flush()
    assert [one.event_id for one in await bench.store.controls("r")] == ["event"]
    bench.note("outcome")
    await bench.outbox.flush()
    assert await bench.store.controls("r") == []
    assert bench.seen() == ["rejected"]


async def send(bench: Bench, kind: ControlType) -> None:
    """Send the run a control, and hand it over."""
    control = ControlEvent(kind, ME, Scope.OWNER_USER, "t", {"text": "x"}, "event")
    sent = SendControl(run_id="r", event_id="event", type=str(kind), data=codec.encode(control))
    await bench.store.commit(Commit(sends=(sent,)))
    await bench.run.fetch(bench.store)


async def hand_over(bench: Bench) -> None:
    """Send the run an answer that a call in flight waits for; it is published as applied, and no commit has it yet."""
    bench.run.inbox = InboxRegistry(clock=bench.clock).open(ME)
    mailbox = Mailbox(bench.run.inbox, Coordinator(clock=bench.clock), bench.crew, clock=bench.clock)
    mailbox.outbox = bench.outbox

    async def apply() -> None:
        bench.tell("applied")

    def route(control: ControlEvent) -> Coroutine[Any, Any, None]:
        return apply()

    mailbox.connect(route)
    await send(bench, ControlType.APPROVE)
    await mailbox.wait_for_answers()
    mailbox.outbox = None
    mailbox.close()


async def unconsumed(store: Store) -> list[str]:
    """The ids of the controls that the next worker is handed."""
    return [one.event_id for one in await store.controls("r")]


async def test_an_answer_is_consumed_with_its_outcome_when_its_run_is_given_back(bench: Bench) -> None:
    """A branch beside its call failed before anything was recorded: the next worker publishes no second one."""
    await hand_over(bench)
    bench.is_long = False
    bench.tell("of a step that is taken again")
    await bench.record.release(READY)
    assert await bench.store.published() == ["applied"]
    assert await unconsumed(bench.store) == []


async def test_an_answer_stays_where_its_outcome_is_not_kept(bench: Bench) -> None:
    """It was published in a step without an outcome: the worker that retries the step publishes it."""
    bench.is_long = False
    await hand_over(bench)
    await bench.record.release(READY)
    assert await bench.store.published() == []
    assert await unconsumed(bench.store) == ["event"]


async def test_an_answer_stays_where_its_run_could_not_be_given_back(bench: Bench) -> None:
    """Nothing could be written while the run was carried, so its outcome is not kept by itself afterwards, either."""
    await hand_over(bench)
    bench.store.refuses = True
    with pytest.raises(DatabaseLockedError):
        await bench.record.release(READY)
    bench.store.refuses = False
    bench.record.close()
    await settle()
    assert await bench.store.published() == []
    assert await unconsumed(bench.store) == ["event"]


async def test_an_answer_is_consumed_with_its_outcome_though_a_step_goes_on(bench: Bench) -> None:
    """Events that wait for another step's outcome do not keep the answer out of its commit."""
    await hand_over(bench)
    bench.is_long = False
    bench.tell("of a step that goes on")
    await bench.record.flush_events()
    assert await bench.store.published() == ["applied"]
    assert await unconsumed(bench.store) == []


async def test_a_control_is_not_consumed_before_the_entry_that_has_it(bench: Bench) -> None:
    """Events that are on their way when the run takes a control do not consume it: a kill before the entry is written
    would lose it."""
    inbox = bench.run.inbox = InboxRegistry(clock=bench.clock).open(ME)
    await send(bench, ControlType.USER_MESSAGE)
    bench.tell("a")
    flushing = bench.record.flush_events()
    assert [control.event_id for control in inbox.drain()] == ["event"]  # a boundary, which notes it in an entry
    await flushing
    assert (await bench.store.published(), await unconsumed(bench.store)) == (["a"], ["event"])
    bench.note("arrived")
    await bench.outbox.flush()
    assert await unconsumed(bench.store) == []
