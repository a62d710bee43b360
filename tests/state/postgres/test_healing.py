"""A database in Postgres outlives its connections and its server, and does nothing twice on the way."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from harborage.clock import SYSTEM_CLOCK
from harborage.concurrency import Crew
from harborage.events.log import Logged
from harborage.identity import Identity, Quadruple
from harborage.state import StateRecord
from harborage.state.errors import DatabaseUnreachableError, StoreClosedError
from harborage.state.postgres import open_postgres
from harborage.state.runs import RunFilter, RunRecord, Stand, Standing, Write
from harborage.state.storage import Storage

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WHO = Quadruple("tenant", "user", "session", "run")
BODY = b"a body"
PATIENCE_S = 20.0
# More answers than any call here needs: what is cut later is not cut at all.
ANSWERS = 7


def a_record(run_id: str) -> RunRecord:
    """A run as it is asked for."""
    return RunRecord(run_id=run_id, who=WHO, goal="goal", created_at=NOW, updated_at=NOW)


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


async def test_broken_connections_are_replaced(place: Any) -> None:
    """After every connection was ended by the server, calls go on as if nothing had happened."""
    storage = await place.open()
    await storage.runs.create(a_record("r"), Write(entries=[b"1"]))
    (claim,) = await storage.queue.claim("worker")
    for entry in (b"2", b"3"):
        await asyncio.gather(*(storage.runs.list(RunFilter()) for _ in range(8)))
        assert await place.break_connections() >= 1
        await storage.runs.append(claim.lease, Write(entries=[entry]))
        await place.break_connections()
        await asyncio.gather(*(storage.runs.list(RunFilter()) for _ in range(8)))
    assert await storage.runs.read("r") == [b"1", b"2", b"3"]


@pytest.mark.parametrize("answers", range(ANSWERS))
async def test_an_append_whose_answer_is_lost_is_made_once(frail: Storage, proxy: Any, answers: int) -> None:
    """Wherever the way breaks, the entries and the body are kept, once."""
    await frail.runs.create(a_record("r"), Write(entries=[b"1"]))
    (claim,) = await frail.queue.claim("worker")
    await frail.runs.append(claim.lease, Write(entries=[b"2"]))
    proxy.cut_after(answers)
    write = Write(entries=[b"3", b"4"], bodies={hashlib.sha256(BODY).hexdigest(): BODY})
    await frail.runs.append(claim.lease, write)
    assert await frail.runs.read("r") == [b"1", b"2", b"3", b"4"]
    assert await frail.runs.body("r", hashlib.sha256(BODY).hexdigest()) == BODY
    await frail.runs.append(claim.lease, Write(entries=[b"5"]))
    assert len(await frail.runs.read("r")) == 5


@pytest.mark.parametrize("answers", range(ANSWERS))
async def test_an_end_whose_answer_is_lost_is_made_once(frail: Storage, proxy: Any, answers: int) -> None:
    """The last entry of a run gives the lease back; that it was kept is noticed all the same."""
    await frail.runs.create(a_record("r"), Write(entries=[b"1"]))
    (claim,) = await frail.queue.claim("worker")
    waits = Standing(stand=Stand.PARKED, waits_for="r")
    await frail.runs.create(a_record("waiting"), Write(standing=waits))
    proxy.cut_after(answers)
    await frail.runs.append(claim.lease, Write(entries=[b"2"], standing=Standing(stand=Stand.FINISHED)))
    assert await frail.runs.read("r") == [b"1", b"2"]
    assert [one.record.run_id for one in await frail.queue.claim("worker")] == ["waiting"]


@pytest.mark.parametrize("answers", range(ANSWERS))
async def test_a_claim_whose_answer_is_lost_is_not(frail: Storage, proxy: Any, answers: int) -> None:
    """What a claim took before the way broke is what the caller gets, with a fence that holds."""
    await frail.queue.claim("worker")
    for name in ("a", "b"):
        await frail.runs.create(a_record(name), Write())
    proxy.cut_after(answers)
    claims = await frail.queue.claim("worker")
    assert [claim.record.run_id for claim in claims] == ["a", "b"]
    for claim in claims:
        await frail.runs.append(claim.lease, Write(entries=[b"mine"]))


async def test_a_claim_that_failed_is_made_up_for_by_the_next(frail: Storage, proxy: Any) -> None:
    """A claim that took runs and then could not reach the server again leaves them to the worker's next claim."""
    await frail.queue.claim("worker")
    await frail.runs.create(a_record("r"), Write())
    proxy.cut_after(0)
    proxy.is_open = False
    with pytest.raises(DatabaseUnreachableError, match="not known"):
        await frail.queue.claim("worker")
    proxy.is_open = True
    assert [claim.record.run_id for claim in await frail.queue.claim("worker")] == ["r"]


@pytest.mark.parametrize("answers", range(ANSWERS))
async def test_other_changes_whose_answer_is_lost_are_made_once(frail: Storage, proxy: Any, answers: int) -> None:
    """New runs, controls, releases, records and events are kept once wherever the way breaks, and are not refused."""
    who = Identity("tenant", "user", "session")
    record = StateRecord("event", WHO, "kind", b"data")
    calls: list[tuple[Callable[[], Awaitable[object]], object]] = [
        (lambda: frail.runs.create(a_record("r"), Write(entries=[b"1"])), True),
        (lambda: frail.queue.send("r", "event", b"control"), True),
        (lambda: frail.state.save(record), None),
        (lambda: frail.events.append([Logged(who, 1, b"x"), Logged(who, 2, b"y")]), None),
    ]
    for call, answer in calls:
        proxy.cut_after(answers)
        assert await call() == answer
    (claim,) = await frail.queue.claim("worker")
    assert len(await frail.queue.arrived("worker")) == 1
    proxy.cut_after(answers)
    await frail.queue.release(claim.lease, Standing(stand=Stand.PARKED, reason="waits"))
    (found,) = await frail.runs.list(RunFilter(run_id="r"))
    assert (found.owner, found.standing.reason, found.entries) == ("", "waits", 1)
    assert (await frail.state.load(WHO, "kind")).data == b"data"
    assert [event.sequence for event in await frail.events.read(who)] == [1, 2]


async def test_a_change_of_unknown_outcome_says_so(frail: Storage, proxy: Any) -> None:
    """When the server cannot be asked again, the error does not claim that nothing was written."""
    await frail.runs.create(a_record("r"), Write(entries=[b"1"]))
    (claim,) = await frail.queue.claim("worker")
    await frail.runs.append(claim.lease, Write(entries=[b"2"]))
    proxy.cut_after(0)
    proxy.is_open = False
    with pytest.raises(DatabaseUnreachableError, match=r"run r.*|not known") as caught:
        await frail.runs.append(claim.lease, Write(entries=[b"3"]))
    assert "whether the change was kept is not known" in str(caught.value)
    assert caught.value.run_id == "r"
    proxy.is_open = True
    assert await frail.runs.read("r") == [b"1", b"2", b"3"]


async def test_listeners_outlive_a_broken_connection(place: Any) -> None:
    """The connection that listens comes back; who listens is called once, and hears what others do from then on."""
    mine, theirs = await place.open(), await place.open()
    heard = asyncio.Event()
    mine.queue.on_change(heard.set)
    await heard_by(heard)
    heard.clear()
    await place.break_connections()
    await heard_by(heard)
    heard.clear()
    await theirs.runs.create(a_record("r"), Write())
    await heard_by(heard)


async def test_a_stopped_server_is_named_and_waited_for(place: Any) -> None:
    """While the server is down calls fail at once and say which it is, without the password; then all goes on.

    Signs of life outlast it, what was acknowledged before it crashed is there, and listeners hear again.
    """
    storage, other = await place.open(), await place.open()
    failures: list[BaseException] = []
    alive = Crew(lambda _, error: failures.append(error))
    alive.start(storage.queue.keep_alive("worker"), "sign of life")
    heard = asyncio.Event()
    storage.queue.on_change(heard.set)
    await heard_by(heard)
    await storage.runs.create(a_record("r"), Write(entries=[b"1"]))
    (claim,) = await storage.queue.claim("worker")
    await storage.runs.append(claim.lease, Write(entries=[b"2"]))

    await asyncio.to_thread(place.server.stop, at_once=True)
    calls = (
        storage.runs.append(claim.lease, Write(entries=[b"3"])),
        storage.runs.read("r"),
        storage.state.load(WHO, "kind"),
        storage.events.last(Identity("tenant", "user", "session")),
    )
    for call in calls:
        with pytest.raises(DatabaseUnreachableError) as caught:
            await call
        assert f"postgres://harborage@127.0.0.1:{place.server.port}/postgres" in str(caught.value)
        assert place.server.password not in str(caught.value)
    heard.clear()
    await asyncio.to_thread(place.server.start)
    await place.connect()

    assert await storage.runs.read("r") == [b"1", b"2"]
    await storage.runs.append(claim.lease, Write(entries=[b"3"]))
    await heard_by(heard)
    heard.clear()
    assert await other.queue.claim("other") == []
    await other.runs.create(a_record("s"), Write())
    await heard_by(heard)
    await alive.aclose()
    assert not failures


async def test_what_waits_for_a_closed_storage_is_told(place: Any) -> None:
    """Closing ends signs of life with StoreClosedError and frees the runs at once."""
    storage, other = await place.open(), await place.open()
    await storage.runs.create(a_record("r"), Write())
    async with asyncio.TaskGroup() as group:
        sign = group.create_task(_refused(storage.queue.keep_alive("worker")))
        await asyncio.sleep(0)
        assert len(await storage.queue.claim("worker")) == 1
        assert await other.queue.claim("other") == []
        await storage.aclose()
    assert isinstance(sign.result(), StoreClosedError)
    assert len(await other.queue.claim("other")) == 1


async def _refused(call: Awaitable[object]) -> Exception | None:
    try:
        await call
    except StoreClosedError as error:
        return error
    return None
