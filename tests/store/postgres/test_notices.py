"""Stores in Postgres notice each other's changes within milliseconds, and no other ones."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from harborage.state.errors import DatabaseUnreachableError
from harborage.store import Change, Commit, Status
from harborage.store.postgres import PostgresStore, notifier
from harborage.testing.conformance.store_bench import claim, finish, send, start, step

PATIENCE_S = 20.0
# Far above the millisecond it takes, far below anything that polls.
PROMPT_S = 0.1


class Ear:
    """A listener that counts, and can wait."""

    def __init__(self) -> None:
        self.count = 0
        self._heard = asyncio.Event()

    def __call__(self) -> None:
        self.count += 1
        self._heard.set()

    async def hear(self) -> None:
        """Wait until it was called after the last time this returned."""
        async with asyncio.timeout(PATIENCE_S):
            await self._heard.wait()
        self._heard.clear()


async def listening(store: PostgresStore) -> Ear:
    """An ear on a store that listens by now: the first call says so."""
    ear = Ear()
    store.on_change(ear)
    await ear.hear()
    ear.count = 0
    return ear


@pytest.fixture
async def other_place(new_place: Callable[[], Any]) -> AsyncIterator[Any]:
    """Another schema in the same database."""
    async with new_place() as found:
        yield found


async def test_changes_of_others_are_noticed_at_once(place: Any) -> None:
    """The median time from a control's commit by one store to the call of another's listener is milliseconds."""
    mine, theirs = await place.open(), await place.open()
    ear = await listening(mine)
    await start(theirs, "r")
    await ear.hear()
    times = []
    for turn in range(20):
        began = time.monotonic()
        await send(theirs, "r", f"event {turn}")
        await ear.hear()
        times.append(time.monotonic() - began)
    assert statistics.median(times) < PROMPT_S


async def test_each_kind_of_change_reaches_other_processes(place: Any) -> None:
    """New runs, controls, wakes, runs given back, parked or ended under their lease, and unblocked ones are
    notified."""
    mine, theirs = await place.open(), await place.open()
    ear = await listening(mine)
    await start(theirs, "r")
    await ear.hear()
    await theirs.join("worker")
    (claimed,) = await claim(theirs, "worker", "r")
    park = Change(status=Status.PAUSED, release=True)
    await theirs.commit(step(claimed.row.lease, 1, change=park))
    await ear.hear()
    await theirs.commit(Commit(wakes=("r",)))
    await ear.hear()
    (claimed,) = await claim(theirs, "worker", "r")
    await theirs.commit(step(claimed.row.lease, 1, change=Change(blocked="other code", release=True)))
    await ear.hear()
    await theirs.unblock(["r"])
    await ear.hear()
    (claimed,) = await claim(theirs, "worker", "r")
    await send(theirs, "r", "event")
    await ear.hear()
    (control,) = await theirs.controls("r")
    await theirs.commit(step(claimed.row.lease, 1, consumed=(control.number,)))
    await finish(theirs, claimed.row.lease)
    await ear.hear()
    assert ear.count == 7


async def test_steps_send_no_notice(place: Any) -> None:
    """An entry that changes nothing for others costs no notice; the change behind it is heard alone."""
    mine, theirs = await place.open(), await place.open()
    await theirs.join("worker")
    await start(theirs, "r")
    (claimed,) = await claim(theirs, "worker", "r")
    ear = await listening(mine)
    for position in range(1, 6):
        await theirs.commit(step(claimed.row.lease, position, b"x"))
    await send(theirs, "r", "event")
    await ear.hear()
    assert ear.count == 1


async def test_own_changes_call_a_listener_once(place: Any) -> None:
    """A store notifies of its own changes when it returns, and not once more when the notice comes back."""
    mine, theirs = await place.open(), await place.open()
    ear = await listening(mine)
    await start(mine, "r")
    assert ear.count == 1
    await send(theirs, "r", "event")
    await ear.hear()
    async with asyncio.timeout(PATIENCE_S):
        while ear.count < 2:
            await ear.hear()
    assert ear.count == 2


async def test_a_notice_that_fails_is_given_again(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listening store may have kept its connection, and gets the change from no other source."""
    mine, theirs = await place.open(), await place.open()
    ear = await listening(mine)
    give, failures = notifier.fetch, [1, 2]

    async def frail(*args: Any, **values: Any) -> Any:
        if failures:
            failures.pop()
            raise DatabaseUnreachableError("storage", "the connection broke")
        return await give(*args, **values)

    monkeypatch.setattr(notifier, "fetch", frail)
    await start(theirs, "r")
    await ear.hear()
    assert not failures


async def test_notices_of_other_schemas_are_ignored(place: Any, other_place: Any) -> None:
    """Two schemas in one database are strangers."""
    mine, theirs, foreign = await place.open(), await place.open(), await other_place.open()
    ear = await listening(mine)
    await start(foreign, "r")
    await start(theirs, "r")
    await ear.hear()
    assert ear.count == 1


async def test_closing_ends_the_listening(place: Any) -> None:
    """A closed store calls no listener and holds no connection."""
    mine, theirs = await place.open(), await place.open()
    ear = await listening(mine)
    await mine.aclose()
    await theirs.aclose()
    await place.has_come("select count(*) = 0 from pg_stat_activity where application_name = $1", place.schema)
    assert ear.count == 0
