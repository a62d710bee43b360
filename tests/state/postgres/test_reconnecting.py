"""A database in Postgres outlives its connections and its server, and repeats no change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from harborage.clock import SYSTEM_CLOCK
from harborage.identity import Identity, Quadruple
from harborage.state import StateRecord
from harborage.state.errors import DatabaseUnreachableError, StoreClosedError
from harborage.state.postgres import open_postgres
from harborage.state.storage import Storage
from harborage.store import Commit, EventQuery, Lease, NewEvent
from harborage.store.port import keep_alive
from harborage.testing.conformance.store_bench import claim, living, start, step

WHO = Quadruple("tenant", "user", "session", "run")
PATIENCE_S = 20.0
# More answers than any call here needs: what is cut later is not cut at all.
ANSWERS = 7


async def heard_by(wanted: asyncio.Event) -> None:
    """Wait for it, but not for ever."""
    async with asyncio.timeout(PATIENCE_S):
        await wanted.wait()


@pytest.fixture
async def frail(place: Any, proxy: Any) -> Storage:
    """A storage whose way to the server is `proxy`."""
    url = place.url.replace(f":{place.server.port}/", f":{proxy.port}/")
    storage: Storage = place.keep(await open_postgres(url, SYSTEM_CLOCK))
    return storage


@pytest.mark.parametrize("answers", range(ANSWERS))
async def test_other_changes_whose_answer_is_lost_are_made_once(frail: Storage, proxy: Any, answers: int) -> None:
    """Records and events are kept once wherever the way breaks, and are not refused."""
    who = Identity("tenant", "user", "session")
    record = StateRecord("event", WHO, "kind", b"data")
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: frail.state.save(record),
        lambda: frail.store.commit(Commit(who=who, events=(NewEvent(type="x", data=b"{}"),) * 2)),
    ]
    for call in calls:
        proxy.cut_after(answers)
        await call()
    assert (await frail.state.load(WHO, "kind")).data == b"data"
    assert [event.place for event in await frail.store.events(EventQuery())] == [1, 2]


async def test_listeners_outlive_a_broken_connection(place: Any) -> None:
    """The connection that listens comes back; who listens is called once, and hears what others do from then on."""
    mine, theirs = await place.open(), await place.open()
    received = asyncio.Event()
    mine.store.on_change(received.set)
    await heard_by(received)
    received.clear()
    await place.break_connections()
    await heard_by(received)
    received.clear()
    await start(theirs.store, "r")
    await heard_by(received)


async def test_a_stopped_server_is_named_and_waited_for(place: Any) -> None:
    """While the server is down calls fail at once and say which it is, without the password; then all goes on.

    Signs of life outlast it, what was acknowledged before it crashed is there, and listeners hear again.
    """
    storage, other = await place.open(), await place.open()
    received = asyncio.Event()
    storage.store.on_change(received.set)
    await heard_by(received)
    async with living(storage.store, "worker"):
        lease = await start(storage.store, "r", worker="worker")
        await storage.store.commit(step(lease, 1, b"2"))
        await outlast(place, storage, other, received, lease)


async def outlast(place: Any, storage: Storage, other: Storage, received: asyncio.Event, lease: Lease) -> None:
    """Stop the server, look at what is said, start it, and go on."""
    await asyncio.to_thread(place.server.stop, at_once=True)
    calls = (
        storage.store.entries("r"),
        storage.store.claim("worker"),
        storage.state.load(WHO, "kind"),
        storage.store.events(EventQuery()),
    )
    for call in calls:
        with pytest.raises(DatabaseUnreachableError) as caught:
            await call
        assert f"postgres://harborage@127.0.0.1:{place.server.port}/postgres" in str(caught.value)
        assert place.server.password not in str(caught.value)
    received.clear()
    await asyncio.to_thread(place.server.start)
    await place.connect()

    assert await storage.store.entries("r") == [b"started", b"2"]
    await storage.store.commit(step(lease, 2, b"3"))
    await heard_by(received)
    received.clear()
    await claim(other.store, "other")
    await start(other.store, "s")
    await heard_by(received)


async def test_calls_that_wait_for_a_closed_storage_fail(place: Any) -> None:
    """Closing ends signs of life with StoreClosedError and frees the runs at once."""
    storage, other, joined = await place.open(), await place.open(), asyncio.Event()
    await other.store.join("other")
    async with asyncio.TaskGroup() as group:
        sign = group.create_task(_refused(keep_alive(storage.store, "worker", SYSTEM_CLOCK, joined=joined)))
        await joined.wait()
        await start(storage.store, "r", worker="worker")
        await other.store.look("other")
        await claim(other.store, "other")
        await storage.aclose()
    assert isinstance(sign.result(), StoreClosedError)
    async with asyncio.timeout(PATIENCE_S):
        while not await other.store.claim("other"):
            await other.store.look("other")


async def _refused(call: Awaitable[object]) -> Exception | None:
    try:
        await call
    except StoreClosedError as error:
        return error
    return None
