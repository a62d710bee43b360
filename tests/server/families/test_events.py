"""`events.aggregate`: counts by type in slices of time, of whose events, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from harborage.events import (
    BusConfig,
    Event,
    EventType,
    Filter,
    MemoryEventBus,
    TaskPausedPayload,
    TaskResumedPayload,
)
from harborage.identity import Identity
from harborage.runtime.host import Runtime
from harborage.server.application import Server
from harborage.testing.clock import FakeClock
from tests.kit.serving import Served, serving
from tests.kit.wire import ADA, BEN, EVE, HeaderGate, Wire

pytestmark = pytest.mark.anyio

SECOND = 10**9
HOUR = 3_600 * SECOND
ADA_TOO = Identity("acme", "ada", "s-9")


@pytest.fixture(params=["memory", "sqlite", "no storage"])
async def served(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Served]:
    """A server whose clock is moved by hand, over each kind of log."""
    clock = FakeClock()
    async with AsyncExitStack() as stack:
        if request.param == "no storage":
            bus = MemoryEventBus(clock=clock)
            runtime = await stack.enter_async_context(Runtime(model="mock:echo", bus=bus, clock=clock))
            server = Server(runtime, gate=HeaderGate(), clock=clock)
            yield Served(runtime, server, Wire(server))
            await bus.aclose()
        else:
            one = serving(storage=request.param, folder=tmp_path, clock=clock)
            yield await stack.enter_async_context(one)


async def happened(
    served: Served, ago: float, *, who: Identity = ADA, run: str = "r", resumed: bool = False, of: str | None = None
) -> None:
    """Publish an event that happened so many seconds ago; `of` is the run that it is under, if not that of its task."""
    at = served.server.services.clock.now() - timedelta(seconds=ago)
    kind, payload = (
        (EventType.TASK_RESUMED, TaskResumedPayload(run))
        if resumed
        else (EventType.TASK_PAUSED, TaskPausedPayload(run))
    )
    await served.rt.bus.publish(Event(kind, who.with_run(run if of is None else of), payload, at))


async def counts(served: Served, window: int = 10, bucket: int = 10, **options: Any) -> list[dict[str, int]]:
    """The counts of each bucket; window and bucket are in seconds."""
    asked = {name: options.pop(name) for name in list(options) if name not in {"who", "scopes"}}
    body = {"filter": asked, "window": window * SECOND, "bucket": bucket * SECOND}
    reply = await served.wire.post("events.aggregate", body, **options)
    assert reply.status == 200, reply.body
    return [bucket["counts"] for bucket in reply.json["buckets"]]


async def test_each_slice_counts_by_type(served: Served) -> None:
    """Oldest first, empty ones included; the beginning of a slice belongs to it, the present to none."""
    for ago in (10, 9.999999, 5, 4, 0.000001, 0, 11, -1):
        await happened(served, ago)
    await happened(served, 5, resumed=True)
    assert await counts(served, 10, 5) == [{"task.paused": 2}, {"task.paused": 3, "task.resumed": 1}]
    assert await counts(served, 30, 10) == [{}, {"task.paused": 1}, {"task.paused": 5, "task.resumed": 1}]


async def test_the_answer_names_its_slices(served: Served) -> None:
    """In RFC 3339; the window ends now."""
    reply = await served.wire.post("events.aggregate", {"window": 2, "bucket": 1})
    now = served.server.services.clock.now().replace(tzinfo=None).isoformat(timespec="seconds")
    before = (served.server.services.clock.now() - timedelta(seconds=1)).replace(tzinfo=None).isoformat()
    assert reply.json == {
        "buckets": [
            {"bucket_start": f"{before}.999999998Z", "bucket_end": f"{before}.999999999Z", "counts": {}},
            {"bucket_start": f"{before}.999999999Z", "bucket_end": f"{now}.000000000Z", "counts": {}},
        ],
        "protocol_version": "0.1.0",
    }


async def test_thirty_days_in_one_slice(served: Served) -> None:
    """As a list of sessions asks; also of a session that has nothing."""
    await happened(served, 29 * 86_400)
    await happened(served, 31 * 86_400)
    month = 30 * 86_400
    assert await counts(served, month, month) == [{"task.paused": 1}]
    assert await counts(served, month, month, who=ADA_TOO) == [{}]
    assert await counts(served, month, month, session_ids=["never"]) == [{}]


async def test_the_events_of_a_task_count_for_its_run(served: Served) -> None:
    """They are under the run that spawned it, or under none, and name the task in their payload."""
    odd = 'r"\\é%'
    await happened(served, 5, run="r", of="")
    await happened(served, 5, run="r1", of="")
    await happened(served, 5, run="child", of="r", resumed=True)
    await happened(served, 5, run=odd, of="")
    assert await counts(served, run_ids=["r"]) == [{"task.paused": 1, "task.resumed": 1}]
    assert await counts(served, run_ids=["child"]) == [{"task.resumed": 1}]
    assert await counts(served, run_ids=["r", "child"], event_types=["task.resumed"]) == [{"task.resumed": 1}]
    assert await counts(served, run_ids=[odd]) == [{"task.paused": 1}]
    assert await counts(served, run_ids=["r", "r1"], session_ids=["never"]) == [{}]


async def test_a_run_is_counted_from_its_start_to_its_end(tmp_path: Path) -> None:
    """What happens to its task is among its events."""
    async with serving(storage="sqlite", folder=tmp_path) as one:
        run = await one.rt.start("hello", who=ADA)
        await run.finished()
        body = {"filter": {"run_ids": [run.id]}, "window": HOUR, "bucket": HOUR}
        (bucket,) = (await one.wire.post("events.aggregate", body)).json["buckets"]
    assert {kind: n for kind, n in bucket["counts"].items() if kind.startswith("task.")} == {
        "task.spawned": 1,
        "task.started": 1,
        "task.completed": 1,
    }


async def test_filters_narrow(served: Served) -> None:
    """By type, run and a time that ends before its end; blank names are none."""
    for ago in (8, 5, 2):
        await happened(served, ago)
        await happened(served, ago, run="other", resumed=True)
    now = served.server.services.clock.now()
    at = {ago: (now - timedelta(seconds=ago)).isoformat().replace("+00:00", "Z") for ago in (8, 5, 2)}
    assert await counts(served, event_types=["task.paused", ""]) == [{"task.paused": 3}]
    assert await counts(served, event_types=["nobody.knows"]) == [{}]
    assert await counts(served, run_ids=["other", ""]) == [{"task.resumed": 3}]
    assert await counts(served, run_ids=["other", "r"], since=at[5]) == [{"task.paused": 2, "task.resumed": 2}]
    assert await counts(served, since=at[5], until=at[2], event_types=["task.paused"]) == [{"task.paused": 1}]
    assert await counts(served, until="0001-01-01T00:00:00Z", event_types=["task.paused"]) == [{"task.paused": 3}]
    assert await counts(served, tenant_ids=[""], user_ids=[], session_ids=None, run_ids=["r"]) == [{"task.paused": 3}]


@pytest.mark.parametrize(("window", "bucket"), [
    (HOUR, 7 * 60 * SECOND), (0, 0), (HOUR, 0), (0, SECOND), (-HOUR, -HOUR), (SECOND, HOUR),
    (2_001 * SECOND, SECOND), (30 * 24 * HOUR, 1), (2**63, 2**63), (2**64 - 1, 2**64 - 1), ("1h", "1m"),
])  # fmt: skip
async def test_a_window_that_is_not_made_of_slices_is_400(served: Served, window: Any, bucket: Any) -> None:
    """Nor of more than 2,000 of them."""
    reply = await served.wire.post("events.aggregate", {"window": window, "bucket": bucket})
    assert (reply.status, reply.code) == (400, "invalid_request")


async def test_two_thousand_slices_are_answered(served: Served) -> None:
    """The most there may be."""
    assert len(await counts(served, 2_000, 1)) == 2_000


@pytest.mark.parametrize("body", [
    {"window": HOUR, "bucket": HOUR, "filter": {"since": "2026-01-01T00:00:00"}},
    {"window": HOUR, "bucket": HOUR, "filter": {"since": "yesterday"}},
    {"window": HOUR, "bucket": HOUR, "filter": {"tenants": []}},
    {"window": HOUR, "bucket": HOUR, "buckets": 1},
    b"[]",
    {},
])  # fmt: skip
async def test_a_body_of_another_form_is_400(served: Served, body: Any) -> None:
    """A time without a zone, an unknown field, no window."""
    reply = await served.wire.post("events.aggregate", body)
    assert (reply.status, reply.code) == (400, "invalid_request")


async def test_a_client_counts_its_own(served: Served) -> None:
    """Whatever identity the body names; another session of the same user may be named."""
    await happened(served, 1)
    await happened(served, 1, who=ADA_TOO)
    await happened(served, 1, who=BEN)
    body = {"identity": {"tenant": "rival", "user": "eve", "session": "s-3"}, "window": HOUR, "bucket": HOUR}
    reply = await served.wire.post("events.aggregate", body)
    assert reply.json["buckets"][0]["counts"] == {"task.paused": 1}
    assert await counts(served, session_ids=["s-9"]) == [{"task.paused": 1}]


@pytest.mark.parametrize("wanted", [
    {"tenant_ids": ["rival"]},
    {"tenant_ids": ["acme", "rival"]},
    {"user_ids": ["ben"]},
    {"user_ids": ["ada", "ben"]},
    {"session_ids": ["s-1", "s-2"]},
])  # fmt: skip
async def test_more_than_ones_own_needs_a_scope(served: Served, wanted: dict[str, list[str]]) -> None:
    """Another tenant or user, or several sessions; it is checked before the window.

    Other servers count a single other user's events of the tenant for everybody; here nobody counts another's work.
    """
    reply = await served.wire.post("events.aggregate", {"filter": wanted, "window": 1})
    assert (reply.status, reply.code) == (403, "identity_scope_required")
    for scope in ("admin", "console:fleet"):
        reply = await served.wire.post(
            "events.aggregate", {"filter": wanted, "window": 1, "bucket": 1}, scopes=(scope,)
        )
        assert reply.status == 200


async def test_a_scope_counts_across_and_is_audited(served: Served) -> None:
    """Every combination of the tenants, users and sessions that are named."""
    for who in (ADA, BEN, EVE, ADA_TOO):
        await happened(served, 1, who=who)
    wide = {
        "tenant_ids": ["acme", "rival"], "user_ids": ["ada", "eve", "ben"], "session_ids": ["s-1", "s-3"],
        "event_types": ["task.paused"],
    }  # fmt: skip
    audits = served.rt.bus.subscribe(Filter.of(ADA, ("audit.admin_scope_used",)))
    assert await counts(served, scopes=("admin",), **wide) == [{"task.paused": 2}]
    found = [event for event in audits.drain() if getattr(event.payload, "method", "") == "events.aggregate"]
    assert [event.identity.user_id for event in found] == ["ada"]


async def test_a_bus_without_any_log_is_500() -> None:
    """And the answer says why."""
    bus = MemoryEventBus(config=BusConfig(replay_buffer_size=0))
    async with Runtime(model="mock:echo", bus=bus) as runtime:
        reply = await Wire(Server(runtime, gate=HeaderGate())).post("events.aggregate", {"window": 1, "bucket": 1})
    await bus.aclose()
    assert (reply.status, reply.code) == (500, "runtime_error")
    assert "keeps no events" in reply.json["message"]
