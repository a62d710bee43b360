"""`GET /v1/events`: who may open it, what comes over it with which numbers, and what a break costs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from harborage.events import (
    DurableEventBus,
    Event,
    EventType,
    TaskResumedPayload,
    TaskSpawnedPayload,
)
from harborage.identity import Identity
from harborage.runtime.host import Runtime
from harborage.server.application import Server
from harborage.server.services import ServerOptions
from harborage.store.memory import MemoryStore
from harborage.store.sqlite import SQLiteStore
from harborage.testing.clock import FakeClock
from tests.kit.sse import Frame, open_page
from tests.kit.streaming import STEP, delta, numbers, paused, publish
from tests.kit.wire import ADA, BEN, EVE, HeaderGate, Wire, caller_headers

pytestmark = pytest.mark.anyio

OpenWire = Callable[..., Awaitable[Wire]]


@pytest.fixture(params=["memory", "sqlite"])
async def bus(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[DurableEventBus]:
    """A bus over a store of record."""
    store = MemoryStore() if request.param == "memory" else await SQLiteStore.open(tmp_path / "runs.db")
    bus = DurableEventBus(store)
    yield bus
    await bus.aclose()
    await store.aclose()


@pytest.fixture
async def open_wire() -> AsyncIterator[OpenWire]:
    """Opens servers over a bus."""
    opened: list[Runtime] = []

    async def make(bus: Any, **options: Any) -> Wire:
        clock = options.pop("clock", None)
        runtime = Runtime(model="mock:echo", bus=bus)
        opened.append(await runtime.__aenter__())
        given = {} if clock is None else {"clock": clock}
        return Wire(Server(runtime, gate=HeaderGate(), options=ServerOptions(**options), **given))

    yield make
    for runtime in opened:
        await runtime.aclose()


# ── Who may open it ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_answer_begins_at_once(bus: DurableEventBus, open_wire: OpenWire) -> None:
    """With the headers that keep proxies from holding it up, and how soon to connect again."""
    wire = await open_wire(bus)
    async with open_page(wire) as page:
        assert page.first == Frame(retry=3000, id=0)
        headers = page.reader.headers
        assert headers["content-type"] == "text/event-stream"
        assert headers["cache-control"] == "no-cache"
        assert headers["x-accel-buffering"] == "no"
        assert headers["connection"] == "keep-alive"


async def test_a_stranger_is_refused_before_all_else(bus: DurableEventBus, open_wire: OpenWire) -> None:
    """Also where the scope is missing, too."""
    wire = await open_wire(bus)
    reply = await wire.request("GET", "/v1/events?admin=1")
    assert (reply.status, reply.code) == (401, "identity_required")


@pytest.mark.parametrize(("query", "scopes", "status"), [
    ("?admin=1", (), 403),
    ("?admin=1", ("console:fleet",), 200),
    ("?admin=1", ("admin",), 200),
    ("?admin=true", (), 200),
    ("?admin=0", (), 200),
])  # fmt: skip
async def test_all_sessions_need_a_scope(
    bus: DurableEventBus, open_wire: OpenWire, query: str, scopes: tuple[str, ...], status: int
) -> None:
    """And exactly `admin=1` asks for them."""
    wire = await open_wire(bus)
    async with wire.open("GET", f"/v1/events{query}", caller_headers(ADA, *scopes)) as reader:
        assert reader.status == status
        if status == 403:
            assert b"identity_scope_required" in (await reader.part() or b"")


async def test_another_verb_is_405_in_plain_text(bus: DurableEventBus, open_wire: OpenWire) -> None:
    """A HEAD, too: it would never end."""
    wire = await open_wire(bus)
    for verb in ("POST", "HEAD", "PUT", "DELETE"):
        reply = await wire.request(verb, "/v1/events", headers=caller_headers(ADA))
        assert (reply.status, reply.headers["allow"]) == (405, "GET")
        assert reply.headers["content-type"].startswith("text/plain")


async def test_a_session_has_sixteen_slots(bus: DurableEventBus, open_wire: OpenWire) -> None:
    """The next is 429 until one closes; another session has its own."""
    wire = await open_wire(bus)
    pages = [open_page(wire) for _ in range(16)]
    for page in pages:
        await page.__aenter__()
    reply = await wire.request("GET", "/v1/events", headers=caller_headers(ADA))
    assert (reply.status, reply.code) == (429, "runtime_error")
    async with open_page(wire, who=BEN):
        pass
    await pages.pop().__aexit__(None, None, None)
    async with open_page(wire):
        pass
    for page in pages:
        await page.__aexit__(None, None, None)


async def test_forty_pages_come_and_go(bus: DurableEventBus, open_wire: OpenWire) -> None:
    """A slot is free the moment its peer is gone, also while the stream has nothing to send."""
    wire = await open_wire(bus)
    for _ in range(40):
        async with open_page(wire) as page:
            assert page.first.retry == 3000
    assert not bus._subscribers.by_session
    assert len(wire.app.streams) == 0


async def test_a_closed_bus_is_503(open_wire: OpenWire) -> None:
    """The stream that is open ends, the next is refused."""
    bus = DurableEventBus(MemoryStore())
    wire = await open_wire(bus)
    async with open_page(wire) as page:
        await bus.aclose()
        assert await page.frame() is None
    reply = await wire.request("GET", "/v1/events", headers=caller_headers(ADA))
    assert (reply.status, reply.code) == (503, "runtime_error")


# ── What comes ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_event_is_one_frame(bus: DurableEventBus, open_wire: OpenWire) -> None:
    """Type, number and the envelope, whose time has nine digits."""
    wire = await open_wire(bus)
    async with open_page(wire) as page:
        await publish(bus, paused())
        frame = await page.event()
    assert (frame.event, frame.id) == ("task.paused", STEP)
    data = frame.data
    at = data.pop("occurred_at")
    assert len(at) == len("2026-01-02T03:04:05.678901000Z")
    assert data == {
        "type": "task.paused", "sequence": STEP, "tenant": "acme", "user": "ada", "session": "s-1", "run": "r",
        "payload": {"TaskID": "r"},
    }  # fmt: skip


async def test_a_page_sees_what_comes_after_it_opened(bus: DurableEventBus, open_wire: OpenWire) -> None:
    """Its first id is the newest number of its session until then."""
    wire = await open_wire(bus)
    await publish(bus, paused(), paused(), paused(who=BEN))
    async with open_page(wire) as page:
        assert page.first.id == 2 * STEP
        await publish(bus, paused())
        assert numbers([await page.event()]) == [4 * STEP]


async def test_a_session_sees_its_own_events_alone(bus: DurableEventBus, open_wire: OpenWire) -> None:
    """Neither those of another session of the same user, nor of the same name under another user or tenant."""
    wire = await open_wire(bus)
    others = [Identity("acme", "ada", "s-9"), Identity("acme", "ben", "s-1"), Identity("rival", "ada", "s-1")]
    async with open_page(wire) as page:
        await publish(bus, *(paused(who=one) for one in others), paused("mine"))
        assert (await page.event()).data["run"] == "mine"
    async with open_page(wire, last_id=0) as page:
        assert [(await page.event()).data["run"]] == ["mine"]
        assert await page.is_silent()


async def test_the_session_header_chooses_the_session(bus: DurableEventBus, open_wire: OpenWire) -> None:
    """Any session of the token's user."""
    wire = await open_wire(bus)
    other = Identity("acme", "ada", "s-9")
    async with open_page(wire, headers={"X-Harbor-Session": "s-9"}) as page:
        await publish(bus, paused("here"), paused("there", other))
        assert (await page.event()).data["session"] == "s-9"


async def test_an_admin_sees_every_session(bus: DurableEventBus, open_wire: OpenWire) -> None:
    """Live and again, in the order of the installation; a run that is asked for narrows nothing; it is audited."""
    wire = await open_wire(bus)
    async with open_page(wire, "?admin=1&run=r", scopes=("admin",)) as page:
        await publish(bus, paused("a"), paused("b", BEN), paused("c", EVE))
        assert [frame.data["run"] for frame in await page.events(3)] == ["a", "b", "c"]
        seen = list(page.ids)
    async with open_page(wire, "?admin=1", scopes=("admin",), last_id=0) as page:
        audit, *rest = await page.events(5)
        assert (audit.event, audit.payload) == (
            "audit.admin_scope_used",
            {"Actor": {"TenantID": "acme", "UserID": "ada", "SessionID": "s-1"}, "Method": "events.subscribe"},
        )
        assert numbers(rest[:3]) == seen


@pytest.mark.parametrize(("query", "headers"), [
    ("?type=task.resumed&type=task.spawned", {}),
    ("?type=task.resumed&type=nobody.knows&type=", {"X-Harbor-Event-Type": "task.spawned"}),
    ("?type=%20", {"X-Harbor-Event-Type": "task.resumed", "x-harbor-event-type": " task.spawned "}),
])  # fmt: skip
async def test_types_filter_any_of(
    bus: DurableEventBus, open_wire: OpenWire, query: str, headers: dict[str, str]
) -> None:
    """Of header and query together; a blank is none, an unknown one matches nothing."""
    wire = await open_wire(bus)
    who = ADA.with_run("r")
    events = [
        paused(),
        Event(EventType.TASK_RESUMED, who, TaskResumedPayload("r")),
        delta(),
        Event(EventType.TASK_SPAWNED, who, TaskSpawnedPayload("r", "foreground")),
    ]
    async with open_page(wire, query, headers=headers) as page:
        await publish(bus, *events)
        assert numbers(await page.events(2)) == [2 * STEP, 3 * STEP]
    async with open_page(wire, query, headers=headers, last_id=0) as page:
        assert numbers(await page.events(2)) == [2 * STEP, 3 * STEP]
        assert await page.is_silent()


@pytest.mark.parametrize(
    ("query", "headers"), [("?run=b", {}), ("", {"X-Harbor-Run": "b"}), ("?run=a", {"X-Harbor-Run": "b"})]
)
async def test_a_run_filters_exactly(
    bus: DurableEventBus, open_wire: OpenWire, query: str, headers: dict[str, str]
) -> None:
    """Its own events and deltas; not those of its children."""
    wire = await open_wire(bus)
    child = Event(EventType.TASK_SPAWNED, ADA.with_run("c"), TaskSpawnedPayload("c", "background", "b"))
    async with open_page(wire, query, headers=headers) as page:
        await publish(bus, paused("a"), delta(run="a"), child, paused("b"), delta(run="b"))
        assert numbers(await page.events(2)) == [3 * STEP, 3 * STEP + 1]
    async with open_page(wire, query, headers=headers, last_id=0) as page:
        assert numbers([await page.event()]) == [3 * STEP]
        assert await page.is_silent()


# ── Numbers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_deltas_lie_between_two_stored_numbers(bus: DurableEventBus, open_wire: OpenWire) -> None:
    """And count on from the cursor after a break, until a stored event has passed."""
    wire = await open_wire(bus)
    await publish(bus, paused(), paused())
    async with open_page(wire) as page, open_page(wire, "?type=task.paused") as other:
        await publish(bus, delta("a"), delta("b"), delta("c"), paused())
        assert numbers(await page.events(4)) == [8193, 8194, 8195, 12288]
        assert numbers([await other.event()]) == [12288]
    async with open_page(wire) as page:
        await publish(bus, delta("d"), delta("e"))
        assert numbers(await page.events(2)) == [12289, 12290]
    async with open_page(wire, last_id=12290) as page:
        assert page.first.id == 12290
        await publish(bus, delta("f"), paused(), delta("g"))
        assert numbers(await page.events(3)) == [12291, 16384, 16385]


async def test_a_delta_follows_the_stored_event_that_its_filter_left_out(
    bus: DurableEventBus, open_wire: OpenWire
) -> None:
    """What passed counts, sent or not."""
    wire = await open_wire(bus)
    async with open_page(wire, "?type=llm.completion.chunk") as page:
        await publish(bus, delta(), paused(), delta())
        assert numbers(await page.events(2)) == [1, STEP + 1]


async def test_text_flows_on_when_numbers_become_few(open_wire: OpenWire) -> None:
    """From the 2,048th delta behind one stored event on they are joined, twenty a second; no text is lost."""
    bus, clock = DurableEventBus(MemoryStore()), FakeClock()
    wire = await open_wire(bus, clock=clock)
    async with open_page(wire) as page:
        sent = 0
        while sent < 2_047:
            for _ in range(23):
                bus.publish_nowait(delta(f"{sent} "))
                sent += 1
            await page.events(23)
        assert page.ids == list(range(1, 2_048))
        for _ in range(50):
            bus.publish_nowait(delta(f"{sent} "))
            sent += 1
        first = await page.event()
        assert first.sequence == 2_048
        got = first.payload["Delta"]
        assert await page.is_silent()
        clock.advance(0.05)
        if got.count(" ") < 50:
            second = await page.event()
            got += second.payload["Delta"]
        assert got == "".join(f"{one} " for one in range(2_047, sent))
        bus.publish_nowait(delta("end", done=True))
        await publish(bus, paused())
        last, stored = await page.events(2)
        assert (last.payload["Delta"], last.payload["Done"], stored.sequence) == ("end", True, STEP)
    await bus.aclose()


@pytest.mark.parametrize(("last_id", "first", "replayed"), [
    (4096, 4096, [8192, 12288]),
    (4099, 4099, [8192, 12288]),
    (0, 0, [4096, 8192, 12288]),
    (12288, 12288, []),
    (12299, 12299, []),
    (99999999, 12288, []),
    ("9" * 40, 12288, []),
    ("007", 7, [4096, 8192, 12288]),
    ("abc", 12288, []),
    ("-1", 12288, []),
    ("", 12288, []),
])  # fmt: skip
async def test_a_resume_begins_behind_its_cursor(
    bus: DurableEventBus, open_wire: OpenWire, last_id: int | str, first: int, replayed: list[int]
) -> None:
    """Or behind the stored event that a delta's number stands for; what is no number begins with what comes."""
    wire = await open_wire(bus)
    await publish(bus, paused(), paused(), paused())
    async with open_page(wire, last_id=last_id) as page:
        assert page.first == Frame(retry=3000, id=first)
        assert numbers(await page.events(len(replayed))) == replayed
        assert await page.is_silent()


async def test_after_is_a_cursor_where_the_header_is_absent(bus: DurableEventBus, open_wire: OpenWire) -> None:
    """The header wins, also one that is no number."""
    wire = await open_wire(bus)
    await publish(bus, paused(), paused(), paused())
    async with open_page(wire, "?after=4096") as page:
        assert numbers(await page.events(2)) == [8192, 12288]
    async with open_page(wire, "?after=4096", last_id=8192) as page:
        assert numbers(await page.events(1)) == [12288]
    async with open_page(wire, "?after=4096", last_id="abc") as page:
        assert page.first.id == 12288


async def test_live_and_replayed_are_the_same_bytes(bus: DurableEventBus, open_wire: OpenWire) -> None:
    """Whatever a run publishes, from the stream and again from the log."""
    wire = await open_wire(bus)
    async with open_page(wire) as page:
        run = await wire.app.services.runtime.start("hello", who=ADA)
        live = await page.until("task.completed", TaskID=run.id)
    async with open_page(wire, last_id=0) as page:
        stored = await page.until("task.completed", TaskID=run.id)
    assert stored == [frame for frame in live if frame.event != "llm.completion.chunk"]
    assert {frame.event for frame in stored} >= {"task.spawned", "session.opened", "planner.decision"}
