"""Entries on their way to a run's record: in order, one batch at a time, none lost whatever is cut short."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

import pytest

from harborage.concurrency import Crew
from harborage.runtime.durable.engine import RecordRefusedError
from harborage.runtime.durable.journal import Patched, decode_entry
from harborage.runtime.durable.outbox import Outbox
from harborage.testing.clock import settle

pytestmark = pytest.mark.anyio

AT = datetime(2026, 1, 1, tzinfo=UTC)


class SlowRecord:
    """A record whose writes end when they are let through; `refuses` makes them fail."""

    append_now = None

    def __init__(self) -> None:
        self.batches: list[str] = []
        self.asked = 0
        self.may_end = asyncio.Event()
        self.refuses = False

    async def append(self, run_id: str, entries: Sequence[bytes]) -> None:
        self.asked += 1
        await self.may_end.wait()
        if self.refuses:
            raise RecordRefusedError(run_id, "the disk is full")
        found = [decode_entry(data, run_id, 0) for data in entries]
        self.batches.append("".join(entry.change for entry in found if isinstance(entry, Patched)))


@pytest.fixture
def record() -> SlowRecord:
    return SlowRecord()


@pytest.fixture
async def crew() -> AsyncIterator[Crew]:
    errors: list[BaseException] = []
    crew = Crew(lambda name, error: errors.append(error))
    yield crew
    await crew.aclose()
    assert errors == []


@pytest.fixture
def outbox(record: SlowRecord, crew: Crew) -> Outbox:
    return Outbox("r", record, crew)


def note(outbox: Outbox, name: str) -> None:
    outbox.note(Patched(at=AT, change=name))


async def test_what_is_kept_soon_goes_with_what_comes_next(record: SlowRecord, outbox: Outbox) -> None:
    """A run that does not give way in between has both written at once."""
    record.may_end.set()
    note(outbox, "a")
    outbox.flush_soon()
    assert outbox.is_behind
    note(outbox, "b")
    await outbox.flush()
    assert record.batches == ["ab"]
    assert not outbox.is_behind
    await settle()
    assert record.batches == ["ab"]


async def test_what_is_kept_soon_is_written_once_the_run_gives_way(record: SlowRecord, outbox: Outbox) -> None:
    """No caller has to wait for it."""
    record.may_end.set()
    note(outbox, "a")
    outbox.flush_soon()
    assert record.asked == 0
    await settle()
    assert record.batches == ["a"]
    assert not outbox.is_behind


async def test_a_flush_waits_for_what_is_on_its_way(record: SlowRecord, outbox: Outbox) -> None:
    """The record gets everything in the order it was noted, one batch after the other."""
    note(outbox, "a")
    outbox.flush_soon()
    await settle()
    note(outbox, "b")
    flush = asyncio.ensure_future(outbox.flush())
    await settle()
    assert record.asked == 1
    assert outbox.is_behind
    assert not flush.done()
    record.may_end.set()
    await flush
    assert record.batches == ["a", "b"]


async def test_branches_share_a_batch(record: SlowRecord, outbox: Outbox) -> None:
    """Those that wait while a batch is under way are kept together by the next."""
    flushes = []
    for name in "abc":
        note(outbox, name)
        flushes.append(asyncio.ensure_future(outbox.flush()))
        await settle()
    record.may_end.set()
    await asyncio.gather(*flushes)
    assert record.batches == ["a", "bc"]


async def test_a_refusal_meanwhile_is_raised_by_the_next_flush(record: SlowRecord, outbox: Outbox) -> None:
    """Nothing is lost: it is kept once the record takes it."""
    record.may_end.set()
    record.refuses = True
    note(outbox, "a")
    outbox.flush_soon()
    await settle()
    assert record.asked == 1
    assert outbox.is_behind
    note(outbox, "b")
    with pytest.raises(RecordRefusedError):
        await outbox.flush()
    record.refuses = False
    await outbox.flush()
    assert record.batches == ["ab"]
    assert not outbox.is_behind


async def test_a_branch_that_is_cut_short_loses_nothing_of_its_sisters(record: SlowRecord, outbox: Outbox) -> None:
    """What it was writing is written by who comes next."""
    note(outbox, "a")
    first = asyncio.ensure_future(outbox.flush())
    await settle()
    note(outbox, "b")
    second = asyncio.ensure_future(outbox.flush())
    await settle()
    first.cancel()
    record.may_end.set()
    await second
    assert first.cancelled()
    assert record.batches == ["ab"]


async def test_a_run_that_is_left_settles_what_it_noted(record: SlowRecord, outbox: Outbox) -> None:
    """A record that refuses is not waited for; one that takes it has everything."""
    record.may_end.set()
    record.refuses = True
    note(outbox, "a")
    await outbox.try_flush()
    record.refuses = False
    await outbox.try_flush()
    assert record.batches == ["a"]


async def test_what_may_have_been_kept_is_not_written_again_when_a_run_is_left(
    record: SlowRecord, outbox: Outbox
) -> None:
    """It is not known whether an interrupted write has arrived."""
    note(outbox, "a")
    flush = asyncio.ensure_future(outbox.flush())
    await settle()
    flush.cancel()
    record.may_end.set()
    await settle()
    await outbox.try_flush()
    assert record.batches == []


async def test_nothing_is_begun_for_a_run_that_is_over(record: SlowRecord, outbox: Outbox, crew: Crew) -> None:
    """Its crew is closed by then."""
    note(outbox, "a")
    outbox.flush_soon()
    await crew.aclose()
    await settle()
    assert record.asked == 0


async def test_without_a_record_nothing_is_kept(crew: Crew) -> None:
    """And nothing has to be waited for."""
    outbox = Outbox("r", None, crew)
    note(outbox, "a")
    outbox.flush_soon()
    assert not outbox.is_behind
    await outbox.flush()
    assert len(crew) == 0
