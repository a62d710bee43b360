"""Lists over a store that can list nothing."""

from __future__ import annotations

import asyncio
import random

import pytest

from harborage.identity import Quadruple
from harborage.ids import new_id
from harborage.state import MemoryStateStore, RecordNotFoundError, StateRecord, StoreClosedError
from harborage.state.directory import CHUNK, Directory, DirectoryCorruptError

PLACE = Quadruple("t", "u", "s", "r")


class CountingStore(MemoryStateStore):
    """A store that counts what it is asked and gives others their turn, as a real one does."""

    def __init__(self) -> None:
        super().__init__()
        self.saves: list[int] = []
        self.loads = 0
        self.random = random.Random(7)

    async def save(self, record: StateRecord) -> None:
        self.saves.append(len(record.data))
        for _ in range(self.random.randrange(3)):
            await asyncio.sleep(0)
        await super().save(record)
        await asyncio.sleep(0)

    async def load(self, identity: Quadruple, kind: str) -> StateRecord:
        self.loads += 1
        await asyncio.sleep(0)
        return await super().load(identity, kind)


@pytest.fixture
def store() -> CountingStore:
    """The store under the directories."""
    return CountingStore()


async def test_entries_come_back_in_order(store: CountingStore) -> None:
    """Over many chunks, in another process too; the first one says that it is the first."""
    first = Directory(store, PLACE, "list")
    added = [await first.add((f"n{number}", "x")) for number in range(3 * CHUNK + 5)]
    assert added == [True] + [False] * (3 * CHUNK + 4)
    wanted = [(f"n{number}", "x") for number in range(3 * CHUNK + 5)]
    assert await first.entries() == wanted
    assert await Directory(store, PLACE, "list").entries() == wanted
    assert [len(chunk) for chunk in await first.chunks()] == [CHUNK, CHUNK, CHUNK, 5]


async def test_an_empty_directory_has_no_entries(store: CountingStore) -> None:
    """Nothing is written by looking."""
    assert await Directory(store, PLACE, "list").entries() == []
    assert not store.saves


@pytest.mark.parametrize("chunks", [0, 1, 2, 3, 4, 7, 8, 9, 31, 33, 64])
async def test_a_new_writer_goes_on_behind_all_others(store: CountingStore, chunks: int) -> None:
    """However many chunks there are, it finds their end in few steps."""
    for number in range(chunks):
        await Directory(store, PLACE, "list").add((str(number),))
    store.loads = 0
    assert await Directory(store, PLACE, "list").add(("last",)) is (chunks == 0)
    assert store.loads <= 15
    assert await Directory(store, PLACE, "list").entries() == [*((str(number),) for number in range(chunks)), ("last",)]


async def test_adding_costs_the_same_however_many_there_are(store: CountingStore) -> None:
    """One record a time, never larger than a chunk; nothing is read."""
    directory = Directory(store, PLACE, "list")
    await directory.add((new_id(),))
    store.loads, store.saves = 0, []
    for _ in range(10 * CHUNK):
        await directory.add((new_id(),))
    assert len(store.saves) == 10 * CHUNK
    assert max(store.saves) < CHUNK * 40
    assert store.loads <= 2 * 10


async def test_places_and_kinds_do_not_meet(store: CountingStore) -> None:
    """Another run of the same session, and another kind, are lists of their own."""
    places = [(PLACE, "a"), (PLACE, "b"), (PLACE.identity.with_run(""), "a"), (Quadruple("t", "u", "o", "r"), "a")]
    for place, kind in places:
        await Directory(store, place, kind).add((repr(place), kind))
    for place, kind in places:
        assert await Directory(store, place, kind).entries() == [(repr(place), kind)]


async def test_many_writers_lose_nothing(store: CountingStore) -> None:
    """Ten processes, each with many callers, add at once; equal entries of two of them are two entries."""
    writers = [Directory(store, PLACE, "list") for _ in range(10)]
    entries = [(index, (f"e{number % 50}",)) for number in range(500) for index in [number % 10]]
    added = await asyncio.gather(*(writers[index].add(entry) for index, entry in entries))
    assert sum(added) == 1
    assert sorted(await Directory(store, PLACE, "list").entries()) == sorted(entry for _, entry in entries)


async def test_an_entry_that_could_not_be_kept_may_be_added_again(store: CountingStore) -> None:
    """A store that fails now and then loses nothing that was acknowledged."""
    directory = Directory(store, PLACE, "list")
    save, kept = store.save, []

    async def failing(record: StateRecord) -> None:
        if store.random.random() < 0.3:
            raise StoreClosedError()
        await save(record)

    store.save = failing  # type: ignore[method-assign]
    for number in range(300):
        try:
            await directory.add((str(number),))
        except StoreClosedError:
            continue
        kept.append((str(number),))
    assert set(kept) <= set(await directory.entries())
    assert len(kept) > 100


async def test_a_broken_chunk_is_named(store: CountingStore) -> None:
    """The error says which record it is."""
    await Directory(store, PLACE, "list").add(("x",))
    await store.save(StateRecord("other", PLACE, "list/0+", b"{"))
    with pytest.raises(DirectoryCorruptError, match="'list/0\\+'"):
        await Directory(store, PLACE, "list").entries()


async def test_the_oldest_entries_can_be_dropped(store: CountingStore) -> None:
    """A chunk at a time; what is left stays in order, and new entries come behind it, in every process."""
    directory = Directory(store, PLACE, "list")
    assert await directory.oldest() == []
    await directory.drop_oldest()
    for number in range(2 * CHUNK + 3):
        await directory.add((str(number),))
    assert await directory.oldest() == [(str(number),) for number in range(CHUNK)]
    await directory.drop_oldest()
    assert await Directory(store, PLACE, "list").entries() == [(str(n),) for n in range(CHUNK, 2 * CHUNK + 3)]
    await Directory(store, PLACE, "list").drop_oldest()
    assert await directory.entries() == [(str(n),) for n in range(2 * CHUNK, 2 * CHUNK + 3)]
    assert not await Directory(store, PLACE, "list").add(("new",))
    assert (await directory.entries())[-1] == ("new",)
    for _ in range(4):
        await directory.drop_oldest()
    assert await directory.entries() == []
    assert not await Directory(store, PLACE, "list").add(("newer",))
    assert await directory.entries() == [("newer",)]


async def test_a_damaged_beginning_is_an_error_and_can_be_cleared() -> None:
    """A number beyond all chunks hides no entries in silence, and clearing the list ends."""
    for low in (10**15, -1):
        store = CountingStore()
        directory = Directory(store, PLACE, "names")
        for number in range(CHUNK * 3):
            await directory.add((str(number),))
        await store.save(StateRecord(new_id(), PLACE, "names/low", b'{"low":%d}' % low))
        with pytest.raises(DirectoryCorruptError, match="names/low"):
            await directory.entries()
        store.loads = 0
        await directory.clear()
        assert store.loads <= 4
        assert await Directory(store, PLACE, "names").entries() == []


async def test_clearing_goes_on_after_a_crash() -> None:
    """What was left is found by the next call, also after chunks were dropped."""
    store = CountingStore()
    directory = Directory(store, PLACE, "names")
    for number in range(CHUNK * 4):
        await directory.add((str(number),))
    await directory.drop_oldest()
    calls = 0
    delete = store.delete

    async def failing(identity: Quadruple, kind: str) -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise StoreClosedError()
        await delete(identity, kind)

    store.delete = failing  # type: ignore[method-assign]
    with pytest.raises(StoreClosedError):
        await directory.clear()
    await directory.clear()
    for number in range(4):
        for kind in (f"names/{number}", f"names/{number}+"):
            with pytest.raises(RecordNotFoundError):
                await store.load(PLACE, kind)
