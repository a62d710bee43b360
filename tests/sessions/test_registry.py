"""Sessions are opened once, seen, closed for good, listed after a restart, and swept up when they were left."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from harborage.clock import SYSTEM_CLOCK, Clock
from harborage.errors import InvalidOptionError
from harborage.events import BusClosedError, Event, EventType, Filter, MemoryEventBus, unix_ns
from harborage.events.durable_bus import DurableEventBus
from harborage.identity import AdminScopeRequiredError, Identity, IdentityRequiredError, bound
from harborage.sessions import (
    Session,
    SessionAlreadyOpenError,
    SessionClosedError,
    SessionCorruptError,
    SessionFilter,
    SessionMismatchError,
    SessionNotFoundError,
    SessionPolicy,
    SessionRegistry,
    SessionRegistryClosedError,
    Sweep,
)
from harborage.state.errors import DatabaseError, DatabaseLockedError
from harborage.store import Commit, NewEvent, NewRun, Page, SessionChange, SessionQuery, SessionRow
from harborage.store.errors import SessionOverError
from harborage.store.memory import MemoryStore
from harborage.testing.clock import FakeClock, settle
from harborage.testing.events import EventRecorder

ME = Identity("acme", "ann", "s1")
DAY = 24 * 3600.0
ADMIN = frozenset({"admin"})


class SlowStore(MemoryStore):
    """A store that takes its time, counts what it is asked of sessions, and can refuse or show a row as damaged."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK, seed: int = 0) -> None:
        super().__init__(clock=clock)
        self._random = random.Random(seed)
        self.refuses = ""
        self.damaged = ""
        self.asked: list[str] = []

    async def open_session(
        self, who: Identity, *, context: bytes = b"{}", at: int | None = None, events: Sequence[NewEvent] = ()
    ) -> SessionChange:
        await self._wander("open", who.session_id)
        return await super().open_session(who, context=context, at=at, events=events)

    async def touch_session(self, who: Identity, *, before: int | None = None) -> SessionChange:
        await self._wander("touch", who.session_id)
        return await super().touch_session(who, before=before)

    async def close_session(self, who: Identity, reason: str, *, seen_at: int | None = None) -> SessionChange:
        await self._wander("close", who.session_id)
        return await super().close_session(who, reason, seen_at=seen_at)

    async def sessions(self, query: SessionQuery) -> Page[SessionRow]:
        await self._wander("find", query.session)
        page = await super().sessions(query)
        rows = [replace(row, is_damaged=row.who.session_id == self.damaged) for row in page.rows]
        return Page(rows, page.cursor)

    async def _wander(self, verb: str, session_id: str) -> None:
        self.asked.append(verb)
        for _ in range(self._random.randrange(4)):
            await asyncio.sleep(0)
        if self.refuses and f"{verb} {session_id}".startswith(self.refuses):
            raise DatabaseLockedError("here", "refused")


@pytest.fixture
def clock() -> FakeClock:
    """A clock that moves by hand."""
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> SlowStore:
    """What outlives the registries of a test."""
    return SlowStore(clock)


@pytest.fixture
def bus() -> MemoryEventBus:
    """A bus on real time."""
    return MemoryEventBus()


@pytest.fixture
def recorder(bus: MemoryEventBus) -> EventRecorder:
    """The events of the bus."""
    return EventRecorder(bus)


@pytest.fixture
def starting(store: SlowStore, bus: MemoryEventBus, clock: FakeClock) -> Callable[..., SessionRegistry]:
    """Makes another registry over the store, as a process does when it starts."""
    return lambda **options: SessionRegistry(store, bus, **{"clock": clock, **options})


@pytest.fixture
def registry(starting: Callable[..., SessionRegistry]) -> SessionRegistry:
    """A registry."""
    return starting()


Starting = Callable[..., SessionRegistry]


def named(session_id: str, user: str = "ann", tenant: str = "acme") -> Identity:
    """A session's identity."""
    return Identity(tenant, user, session_id)


def ids(sessions: list[Session]) -> set[str]:
    """The ids of these sessions."""
    return {session.id for session in sessions}


async def test_it_needs_a_store_and_a_bus(store: SlowStore, bus: MemoryEventBus) -> None:
    """Each is asked for by name."""
    with pytest.raises(InvalidOptionError):
        SessionRegistry(None, None)
    with pytest.raises(InvalidOptionError):
        SessionRegistry(store, None)


async def test_opening_makes_a_session(registry: SessionRegistry, recorder: EventRecorder, clock: FakeClock) -> None:
    """Open, seen now, kept, and published once with times in nanoseconds."""
    session = await registry.open("s1", ME.with_run("r"), context={"agent": "a"})
    assert session == Session(
        id="s1", identity=ME, opened_at=clock.now(), last_seen=clock.now(), context={"agent": "a"}
    )
    assert await registry.get("s1", who=ME) == session
    (event,) = recorder.events
    assert (event.type, event.identity) == (EventType.SESSION_OPENED, ME.with_run(""))
    assert (event.payload.session_id, event.payload.opened_at) == ("s1", unix_ns(clock.now()))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("session_id", "who", "error"),
    [
        ("s1", Identity("acme", "", "s2"), IdentityRequiredError),
        ("s1", named("s2"), SessionMismatchError),
        ("s1", ME, SessionAlreadyOpenError),
    ],
)
async def test_what_cannot_be_opened(
    registry: SessionRegistry,
    recorder: EventRecorder,
    store: SlowStore,
    session_id: str,
    who: Identity,
    error: type[Exception],
) -> None:
    """The id must be the identity's own, and not open; no new row, and nothing is published."""
    await registry.open("s1", ME)
    recorder.clear()
    with pytest.raises(error):
        await registry.open(session_id, who)
    assert recorder.events == []
    assert len((await store.sessions(SessionQuery())).rows) == 1


async def test_the_same_id_of_another_owner_is_another_session(
    registry: SessionRegistry, recorder: EventRecorder
) -> None:
    """Of another user, and of another tenant: each sees its own, and closes it alone."""
    owners = (ME, named("s1", user="bob"), named("s1", tenant="other"))
    for number, who in enumerate(owners):
        await registry.open("s1", who, context={"number": number})
    assert recorder.types == ["session.opened"] * 3
    await registry.close(owners[1])
    for number, who in enumerate(owners):
        session = await registry.get("s1", who=who)
        assert (session.identity, session.context, session.closed) == (who, {"number": number}, number == 1)


async def test_events_and_runs_of_a_session_do_not_open_it(
    registry: SessionRegistry, store: SlowStore, recorder: EventRecorder
) -> None:
    """It is neither listed nor shown nor swept before it is opened, and that is published."""
    await store.commit(Commit(who=ME, events=(NewEvent(type="e", data=b"{}"),)))
    await store.commit(Commit(starts=(NewRun(run_id="r", who=ME),)))
    assert await registry.list(who=ME) == await registry.list_all_open() == []
    for call in (registry.get("s1", who=ME), registry.touch(ME), registry.close(ME)):
        with pytest.raises(SessionNotFoundError):
            await call
    await registry.open("s1", ME)
    assert recorder.types == ["session.opened"]
    assert ids(await registry.list(who=ME)) == {"s1"}


async def test_a_closed_session_never_opens_again(
    registry: SessionRegistry, starting: Starting, clock: FakeClock
) -> None:
    """The error says when and why, in later processes too."""
    await registry.ensure_open(ME)
    clock.advance(60)
    await registry.close(ME, "done")
    for process in (registry, starting()):
        for verb in (lambda process=process: process.open("s1", ME), lambda process=process: process.ensure_open(ME)):
            with pytest.raises(SessionClosedError, match=r"2026-01-01T00:01:00.*done"):
                await verb()
    assert (await registry.ensure_open(named("s2"))).id == "s2"


@pytest.mark.parametrize("seed", range(20))
async def test_of_callers_at_once_one_opens(bus: MemoryEventBus, recorder: EventRecorder, seed: int) -> None:
    """In two processes, whatever the store does: one row, one event, and everybody has the session."""
    store = SlowStore(seed=seed)
    processes = [SessionRegistry(store, bus) for _ in range(2)]
    sessions = await asyncio.gather(*(process.ensure_open(ME) for process in processes * 3))
    assert len({session.opened_at for session in sessions}) == 1
    assert recorder.types == ["session.opened"]
    assert ids(await processes[0].list(who=ME)) == {"s1"}


async def test_touching_moves_last_seen(registry: SessionRegistry, recorder: EventRecorder, clock: FakeClock) -> None:
    """Only that, and an event is published; a session that is not there, or closed, cannot be touched."""
    opened = await registry.ensure_open(ME)
    clock.advance(60)
    touched = await registry.touch(ME)
    assert (touched.opened_at, touched.last_seen) == (opened.opened_at, clock.now())
    assert recorder.types == ["session.opened", "session.touched"]
    with pytest.raises(SessionNotFoundError):
        await registry.touch(named("s2"))
    await registry.close(ME)
    with pytest.raises(SessionClosedError):
        await registry.touch(ME)
    assert recorder.types.count("session.touched") == 1


async def test_closing_twice_keeps_the_first_reason(
    registry: SessionRegistry, recorder: EventRecorder, clock: FakeClock
) -> None:
    """The second close succeeds, changes nothing and is not published."""
    await registry.ensure_open(ME)
    first = await registry.close(ME, "done")
    clock.advance(60)
    assert await registry.close(ME, "again") == first
    assert (first.closed, first.closed_reason) == (True, "done")
    assert recorder.types == ["session.opened", "session.closed"]
    with pytest.raises(SessionNotFoundError):
        await registry.close(named("s2"))


async def test_only_its_own_session_is_shown(registry: SessionRegistry) -> None:
    """The caller's session must be the one that is asked for; the ambient identity is the fallback."""
    await registry.ensure_open(ME)
    with pytest.raises(SessionMismatchError):
        await registry.get("s1", who=named("s2"))
    with pytest.raises(SessionNotFoundError):
        await registry.get("s1", who=named("s1", user="bob"))
    with pytest.raises(IdentityRequiredError):
        await registry.get("s1")
    with bound(ME.with_run("r")):
        assert (await registry.get("s1")).id == "s1"
        assert (await registry.inspect("s1")).session.id == "s1"


async def test_inspecting_says_how_it_is(starting: Starting, clock: FakeClock) -> None:
    """Age and idleness in seconds, and what the probe says; a closed session ages no more."""

    async def probe(who: Identity) -> bool:
        return who == ME

    registry = starting(is_running=probe)
    await registry.ensure_open(ME)
    clock.advance(60)
    await registry.touch(ME)
    clock.advance(30)
    seen = await registry.inspect("s1", who=ME)
    assert (seen.age_s, seen.idle_s, seen.is_running) == (90.0, 30.0, True)
    await registry.close(ME)
    clock.advance(3600)
    assert (await registry.inspect("s1", who=ME)).age_s == 90.0


async def test_after_a_restart_all_of_an_owners_sessions_are_there(
    registry: SessionRegistry, starting: Starting
) -> None:
    """More than one page of them, those that two processes opened, and no one else's."""
    for number in range(550):
        await registry.ensure_open(named(f"s{number}"))
    second = starting()
    await second.ensure_open(named("late"))
    await second.ensure_open(named("hers", user="bob"))
    third = starting()
    assert ids(await third.list(who=ME)) == {f"s{number}" for number in range(550)} | {"late"}
    mine = SessionFilter(tenants=("acme",), users=("ann",), sessions=("s7", "late", " "))
    assert ids(await third.list(mine, who=ME)) == {"s7", "late"}


async def test_lists_narrow_by_time_and_state(registry: SessionRegistry, clock: FakeClock) -> None:
    """Both bounds on last_seen are inclusive; closed ones are left out unless asked for."""
    seen = []
    for number in range(4):
        await registry.ensure_open(named(f"s{number}"))
        seen.append(clock.now())
        clock.advance(60)
    await registry.close(named("s3"))
    between = SessionFilter(seen_since=seen[1], seen_until=seen[2])
    assert ids(await registry.list(between, who=ME)) == {"s1", "s2"}
    assert ids(await registry.list(who=ME)) == {"s0", "s1", "s2"}
    assert ids(await registry.list(SessionFilter(include_closed=True), who=ME)) == {"s0", "s1", "s2", "s3"}


async def test_looking_at_others_needs_a_scope_and_is_audited(
    registry: SessionRegistry, starting: Starting, recorder: EventRecorder
) -> None:
    """An admin sees whole tenants, after a restart too; a blank name matches no one."""
    for who in (ME, named("s2", user="bob"), named("s3", tenant="other")):
        await registry.ensure_open(who)
    recorder.clear()
    for wanted in (
        SessionFilter(tenants=("other",)),
        SessionFilter(users=("bob",)),
        SessionFilter(tenants=("acme",)),
        SessionFilter(tenants=("acme", "other"), users=("ann",)),
    ):
        with pytest.raises(AdminScopeRequiredError):
            await starting().list(wanted, who=ME)
    assert recorder.events == []
    assert ids(await starting().list(SessionFilter(tenants=("acme",)), who=ME, scopes=ADMIN)) == {"s1", "s2"}
    with bound(ME, scopes=frozenset({"console:fleet"})):
        assert ids(await starting().list(SessionFilter(tenants=("other",)))) == {"s3"}
    assert recorder.types == ["audit.admin_scope_used"] * 2
    assert ids(await registry.list(SessionFilter(tenants=("", " ")), who=ME)) == {"s1"}
    with pytest.raises(IdentityRequiredError):
        await registry.list()


async def test_a_row_that_cannot_be_read_is_named_and_skipped(
    registry: SessionRegistry, store: SlowStore, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The list goes on without it, and so does the sweep; asked for by name it is an error."""
    await registry.ensure_open(ME)
    await registry.ensure_open(named("s2"))
    store.damaged = "s1"
    assert ids(await registry.list(who=ME)) == ids(await registry.list_all_open()) == {"s2"}
    assert "session 's1' cannot be read" in caplog.text
    with pytest.raises(SessionCorruptError, match="'s1'"):
        await registry.get("s1", who=ME)
    clock.advance(2 * DAY)
    done = await registry.sweep()
    assert done.reaped == (named("s2"),)
    assert isinstance(done.error, SessionCorruptError)


async def test_a_context_that_cannot_be_read_is_named(registry: SessionRegistry, store: SlowStore) -> None:
    """A foreign row there does not hide other sessions."""
    await store.open_session(ME, context=b"{")
    await registry.ensure_open(named("s2"))
    with pytest.raises(SessionCorruptError, match="'s1'"):
        await registry.get("s1", who=ME)
    assert ids(await registry.list(who=ME)) == {"s2"}


async def test_a_session_that_could_not_be_kept_was_not_opened(
    registry: SessionRegistry, store: SlowStore, recorder: EventRecorder
) -> None:
    """The store's error reaches the caller, nothing is published, and the next try works."""
    store.refuses = "open"
    with pytest.raises(DatabaseError):
        await registry.open("s1", ME)
    store.refuses = ""
    assert recorder.events == []
    assert await registry.list(who=ME) == []
    await registry.open("s1", ME)
    assert ids(await registry.list(who=ME)) == {"s1"}


async def test_a_bus_that_refuses_is_only_logged(
    store: SlowStore, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The store is the truth."""

    class Refusing(MemoryEventBus):
        def publish_nowait(self, event: Event) -> Event:
            raise RuntimeError("refused")

    registry = SessionRegistry(store, Refusing(), clock=clock)
    await registry.ensure_open(ME)
    assert (await registry.get("s1", who=ME)).id == "s1"
    assert "session.opened was not published" in caplog.text


async def test_the_event_of_an_opening_precedes_whatever_a_run_of_the_session_commits(
    store: SlowStore, clock: FakeClock
) -> None:
    """It is stored with the session, so its number is lower, and a subscriber gets it first."""
    bus = DurableEventBus(store, clock=clock)
    reader = bus.subscribe(Filter.of(ME))
    registry = SessionRegistry(store, bus, clock=clock)
    session = await registry.visit(ME)
    done = await store.commit(Commit(who=ME, events=(NewEvent(type="x", data=b"{}"),)))
    (event,) = reader.drain()
    assert (event.type, event.sequence, done.place) == (EventType.SESSION_OPENED, 1, 2)
    assert event.payload.opened_at == unix_ns(session.opened_at)  # type: ignore[union-attr]
    await bus.aclose()


async def test_a_session_whose_event_is_refused_was_not_opened(store: SlowStore, clock: FakeClock) -> None:
    """A bus over the same store that is closed takes nothing any more."""
    bus = DurableEventBus(store, clock=clock)
    registry = SessionRegistry(store, bus, clock=clock)
    await bus.aclose()
    with pytest.raises(BusClosedError):
        await registry.ensure_open(ME)
    assert await registry.list(who=ME) == []


async def test_the_sweep_closes_what_was_left(
    registry: SessionRegistry, starting: Starting, recorder: EventRecorder, clock: FakeClock
) -> None:
    """Idle for longer than a day, or there for longer than thirty: strictly longer, and the cap is looked at first."""
    await registry.ensure_open(named("idle"))
    clock.advance(DAY)
    assert (await registry.sweep()).reaped == ()
    clock.advance(0.001)
    await registry.ensure_open(named("fresh"))
    recorder.clear()
    assert (await registry.sweep()).reaped == (named("idle"),)
    idle = await registry.get("idle", who=named("idle"))
    assert (idle.closed, idle.closed_reason, idle.closed_at) == (True, "gc:idle", clock.now())
    (event,) = recorder.events
    assert (event.type, event.payload.reaped_at) == (EventType.SESSION_GC_REAPED, unix_ns(clock.now()))  # type: ignore[union-attr]
    for _ in range(60):
        clock.advance(DAY / 2)
        await registry.touch(named("fresh"))
    assert (await registry.sweep()).reaped == ()
    clock.advance(0.001)
    assert (await registry.sweep()).reaped == (named("fresh"),)
    assert (await registry.get("fresh", who=named("fresh"))).closed_reason == "gc:hard_cap"
    assert (await starting().sweep()).reaped == ()


async def test_the_sweep_finds_what_earlier_processes_left(
    registry: SessionRegistry, starting: Starting, clock: FakeClock
) -> None:
    """Of every owner; and it heeds that another process has seen the session since."""
    for who in (ME, named("s2", user="bob"), named("s3", tenant="other")):
        await registry.ensure_open(who)
    second = starting()
    assert (await second.sweep()).reaped == ()
    clock.advance(DAY + 1)
    await registry.touch(ME)
    assert set((await second.sweep()).reaped) == {named("s2", user="bob"), named("s3", tenant="other")}


async def test_what_runs_is_left_alone(starting: Starting, clock: FakeClock) -> None:
    """However old it is; once it has ended it is swept."""
    running = {ME}
    registry = starting(is_running=lambda who: who in running)
    await registry.ensure_open(ME)
    clock.advance(40 * DAY)
    assert (await registry.sweep()).reaped == ()
    running.clear()
    assert (await registry.sweep()).reaped == (ME,)


async def test_an_error_does_not_spare_the_others(starting: Starting, store: SlowStore, clock: FakeClock) -> None:
    """The first one is published with the sweep: a probe that fails, a row that cannot be written, no list."""

    def probe(who: Identity) -> bool:
        if who.session_id == "s1":
            raise RuntimeError("probe")
        return False

    registry = starting(is_running=probe)
    for number in range(1, 4):
        await registry.ensure_open(named(f"s{number}"))
    clock.advance(2 * DAY)
    await registry.sweep()
    for number in range(4, 7):
        await registry.ensure_open(named(f"s{number}"))
    clock.advance(2 * DAY)
    store.refuses = "close s5"
    done = await registry.sweep()
    assert set(done.reaped) == {named("s4"), named("s6")}
    assert isinstance(done.error, DatabaseError)
    store.refuses = ""
    done = await registry.sweep()
    assert done.reaped == (named("s5"),)
    assert isinstance(done.error, RuntimeError)
    store.refuses = "find"
    assert isinstance((await registry.sweep()).error, DatabaseError)


async def test_a_sweep_looks_only_at_what_was_left(starting: Starting, store: SlowStore, clock: FakeClock) -> None:
    """Neither at what is in use nor at what another process closed, however many there are."""
    probed: list[str] = []

    def probe(who: Identity) -> bool:
        probed.append(who.session_id)
        return False

    registry = starting(is_running=probe)
    for number in range(3):
        await registry.ensure_open(named(f"s{number}"))
    clock.advance(DAY + 1)
    await registry.ensure_open(named("fresh"))
    await starting().close(named("s0"))
    await registry.touch(named("s1"))
    store.asked.clear()
    assert (await registry.sweep()).reaped == (named("s2"),)
    assert (probed, store.asked) == (["s2"], ["find", "close"])


async def test_a_sweep_goes_through_more_than_a_page(registry: SessionRegistry, clock: FakeClock) -> None:
    """Closing what is on one page moves nothing of the next one."""
    for number in range(1_100):
        await registry.ensure_open(named(f"s{number}"))
    clock.advance(DAY + 1)
    assert len((await registry.sweep()).reaped) == 1_100
    assert await registry.list_all_open() == []


async def test_a_session_in_which_a_run_starts_meanwhile_is_not_swept(
    starting: Starting, store: SlowStore, clock: FakeClock
) -> None:
    """Between the look at what runs and the close there is room for a start; the close heeds it."""

    async def probe(who: Identity) -> bool:
        await store.commit(Commit(starts=(NewRun(run_id="r", who=who),)))
        return False

    registry = starting(is_running=probe)
    await registry.ensure_open(ME)
    clock.advance(DAY + 1)
    assert await registry.sweep() == Sweep()
    assert not (await registry.get("s1", who=ME)).closed


async def test_a_sweep_takes_no_longer_than_its_interval(starting: Starting, clock: FakeClock) -> None:
    """A probe that hangs is cut off; the rest waits for the next sweep."""
    hold = asyncio.Event()

    async def probe(who: Identity) -> bool:
        await hold.wait()
        return False

    registry = starting(is_running=probe)
    await registry.ensure_open(ME)
    clock.advance(2 * DAY)
    sweeping = asyncio.create_task(registry.sweep())
    await clock.run_for(15 * 60)
    done = await sweeping
    assert done.reaped == ()
    assert isinstance(done.error, TimeoutError)
    hold.set()
    assert (await registry.sweep()).reaped == (ME,)


async def test_it_sweeps_by_itself_until_it_is_closed(
    starting: Starting, clock: FakeClock, recorder: EventRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    """Every interval; an error of one sweep is logged and the next one comes."""

    def probe(who: Identity) -> bool:
        if who.session_id == "bad":
            raise RuntimeError("probe")
        return False

    registry = starting(is_running=probe, policy=SessionPolicy(idle_ttl=timedelta(hours=1)))
    await registry.ensure_open(ME)
    await registry.ensure_open(named("bad"))
    registry.start()
    registry.start()
    await settle()
    assert clock.armed == 1
    await clock.run_for(3600)
    assert recorder.types.count("session.gc_reaped") == 0
    await clock.run_for(900)
    assert recorder.types.count("session.gc_reaped") == 1
    assert "error in a sweep" in caplog.text
    await registry.aclose()
    assert clock.armed == 0


async def test_policies_that_make_no_sense_mean_the_defaults() -> None:
    """Nothing lives for ever because of a zero."""
    zero = timedelta()
    assert SessionPolicy(idle_ttl=zero, hard_cap=-timedelta(1), sweep_interval=zero).effective() == SessionPolicy()


async def test_a_closed_registry_says_so(registry: SessionRegistry) -> None:
    """Every verb; closing twice is fine."""
    await registry.ensure_open(ME)
    await registry.aclose()
    await registry.aclose()
    nobody = Identity("", "", "")
    for call in (
        registry.open("s", nobody),
        registry.ensure_open(nobody),
        registry.touch(nobody),
        registry.close(nobody),
        registry.get("s", who=nobody),
        registry.inspect("s", who=nobody),
        registry.list(who=nobody),
        registry.sweep(),
    ):
        with pytest.raises(SessionRegistryClosedError):
            await call
    with pytest.raises(SessionRegistryClosedError):
        registry.start()


async def test_many_callers_of_one_process_never_get_a_conflict(
    registry: SessionRegistry, clock: FakeClock, recorder: EventRecorder
) -> None:
    """Fifty runs that begin in one session at once see it once, and fifty that touch it take turns."""
    await registry.visit(ME)
    clock.advance(120)
    seen = await asyncio.gather(*(registry.visit(ME) for _ in range(50)))
    assert {session.last_seen for session in seen} == {clock.now()}
    assert [event.type for event in recorder.events].count(EventType.SESSION_TOUCHED) == 1
    await asyncio.gather(*(registry.touch(ME) for _ in range(50)))
    assert [event.type for event in recorder.events].count(EventType.SESSION_TOUCHED) == 51


async def test_what_was_visited_a_moment_ago_is_not_asked_for_again(
    registry: SessionRegistry, store: SlowStore, clock: FakeClock
) -> None:
    """A start within a minute costs nothing; a minute later it is one look, and a write only if it is unseen."""
    opened = await registry.visit(ME)
    clock.advance(59)
    assert await registry.visit(ME) == opened
    assert store.asked == ["open"]
    await store.commit(Commit(starts=(NewRun(run_id="r", who=ME),)))
    clock.advance(59)
    assert (await registry.visit(ME)).last_seen == clock.now() - timedelta(seconds=59)
    clock.advance(60)
    assert (await registry.visit(ME)).last_seen == clock.now()
    assert store.asked == ["open", "open", "open", "touch"]


async def test_a_visit_forgets_sessions_that_are_closed(
    registry: SessionRegistry, starting: Starting, store: SlowStore
) -> None:
    """At once where it was closed here; where another process did, once the store has refused a run in it."""
    await registry.visit(ME)
    await registry.close(ME, "done")
    with pytest.raises(SessionClosedError, match="done"):
        await registry.visit(ME)
    hers = named("s2")
    await registry.visit(hers)
    await starting().close(hers, "elsewhere")
    assert (await registry.visit(hers)).id == "s2"
    with pytest.raises(SessionOverError) as refused:
        await store.commit(Commit(starts=(NewRun(run_id="r", who=hers),)))
    assert "elsewhere" in str(registry.session_closed_error(refused.value.row))
    with pytest.raises(SessionClosedError, match="elsewhere"):
        await registry.visit(hers)


async def test_only_so_many_visits_are_remembered(registry: SessionRegistry, store: SlowStore) -> None:
    """The oldest are forgotten, and asked for again."""
    for number in range(1_025):
        await registry.visit(named(f"s{number}"))
    store.asked.clear()
    await registry.visit(named("s1"))
    assert store.asked == []
    await registry.visit(named("s0"))
    assert store.asked == ["open"]


@pytest.mark.parametrize("seed", range(10))
async def test_many_changes_at_once_all_count(bus: MemoryEventBus, recorder: EventRecorder, seed: int) -> None:
    """Two processes touch and close at the same time: it is closed once, and nothing opens it again."""
    store = SlowStore(seed=seed)
    processes = [SessionRegistry(store, bus) for _ in range(2)]
    await processes[0].ensure_open(ME)
    calls: list[Any] = [process.touch(ME) for process in processes for _ in range(2)]
    calls += [process.close(ME, f"p{index}") for index, process in enumerate(processes)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert not [one for one in results if isinstance(one, Exception) and not isinstance(one, SessionClosedError)]
    assert recorder.types.count("session.closed") == 1
    assert (await processes[0].get("s1", who=ME)).closed
