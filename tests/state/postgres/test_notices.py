"""Stores in Postgres hear of each other within milliseconds, and of nobody else."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from harborage.identity import Quadruple
from harborage.state.runs import RunRecord, Stand, Standing, Write
from harborage.state.storage import Storage

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WHO = Quadruple("tenant", "user", "session", "run")
PATIENCE_S = 20.0
# Far above the millisecond it takes, far below anything that polls.
PROMPT_S = 0.1


def a_record(run_id: str) -> RunRecord:
    """A run as it is asked for."""
    return RunRecord(run_id=run_id, who=WHO, goal="goal", created_at=NOW, updated_at=NOW)


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


async def listening(storage: Storage) -> Ear:
    """An ear on a storage that listens by now: the first call says so."""
    ear = Ear()
    storage.queue.on_change(ear)
    await ear.hear()
    ear.count = 0
    return ear


@pytest.fixture
async def other_place(new_place: Callable[[], Any]) -> AsyncIterator[Any]:
    """Another schema in the same database."""
    async with new_place() as found:
        yield found


async def test_what_others_do_is_heard_at_once(place: Any) -> None:
    """The median time from a control's commit by one store to the call of another's listener is milliseconds."""
    mine, theirs = await place.open(), await place.open()
    ear = await listening(mine)
    await theirs.runs.create(a_record("r"), Write())
    await ear.hear()
    times = []
    for turn in range(20):
        began = time.monotonic()
        await theirs.queue.send("r", f"event {turn}", b"")
        await ear.hear()
        times.append(time.monotonic() - began)
    assert statistics.median(times) < PROMPT_S


async def test_each_kind_of_change_is_heard_by_others(place: Any) -> None:
    """New runs, controls, wakes, runs given back, parked or ended under their lease, and forgotten ones are told."""
    mine, theirs = await place.open(), await place.open()
    ear = await listening(mine)
    parked = Standing(stand=Stand.PARKED)
    await theirs.runs.create(a_record("r"), Write())
    await ear.hear()
    (claim,) = await theirs.queue.claim("worker")
    for call in (
        lambda: theirs.queue.send("r", "event", b""),
        lambda: theirs.runs.append(claim.lease, Write(standing=parked)),
        lambda: theirs.queue.wake("r"),
        lambda: theirs.queue.release(claim.lease, parked),
    ):
        await call()
        await ear.hear()
    (claim,) = await theirs.queue.claim("worker")
    await theirs.runs.append(claim.lease, Write(standing=Standing(stand=Stand.FINISHED)))
    await ear.hear()
    await theirs.runs.forget("r")
    await ear.hear()
    assert ear.count == 7


async def test_steps_are_not_told(place: Any) -> None:
    """An entry that changes nothing for others costs no notice; the change behind it is heard alone."""
    mine, theirs = await place.open(), await place.open()
    await theirs.runs.create(a_record("r"), Write())
    (claim,) = await theirs.queue.claim("worker")
    ear = await listening(mine)
    for _ in range(5):
        await theirs.runs.append(claim.lease, Write(entries=[b"x"]))
    await theirs.queue.send("r", "event", b"")
    await ear.hear()
    assert ear.count == 1


async def test_ones_own_changes_are_heard_once(place: Any) -> None:
    """What a store does itself is told when it returns, and not once more when the notice comes back."""
    mine, theirs = await place.open(), await place.open()
    ear = await listening(mine)
    await mine.runs.create(a_record("r"), Write())
    assert ear.count == 1
    await theirs.queue.send("r", "event", b"")
    await ear.hear()
    async with asyncio.timeout(PATIENCE_S):
        while ear.count < 2:
            await ear.hear()
    assert ear.count == 2


async def test_other_schemas_are_not_heard(place: Any, other_place: Any) -> None:
    """Two schemas in one database are strangers."""
    mine, theirs, foreign = await place.open(), await place.open(), await other_place.open()
    ear = await listening(mine)
    await foreign.runs.create(a_record("r"), Write())
    await theirs.runs.create(a_record("r"), Write())
    await ear.hear()
    assert ear.count == 1


async def test_closing_ends_the_listening(place: Any) -> None:
    """A closed store calls nobody and holds no connection."""
    mine, theirs = await place.open(), await place.open()
    ear = await listening(mine)
    await mine.aclose()
    await theirs.aclose()
    await place.has_come("select count(*) = 0 from pg_stat_activity where application_name = $1", place.schema)
    assert ear.count == 0
