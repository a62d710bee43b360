"""Following runs wherever they are carried."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from harborage.cli.following import Following
from harborage.cli.recording import WatchedStore
from harborage.cli.records import Recorded
from harborage.identity import Quadruple
from harborage.runtime.journal import Begun, Done, Entry, encode_entry
from harborage.store import Change, Commit, Guard, Lease, Status
from harborage.store.memory import MemoryStore
from tests.kit.kept import keep

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WHO = Quadruple("acme", "ada", "s1", "r1")


def begun(name: str, at_s: int = 0) -> Entry:
    """An entry of that name."""
    at = NOW + timedelta(seconds=at_s)
    return Begun(at=at, position="1", name=name, payload=msgspec.Raw(b"1"), key="k")


def spawned(child: str) -> Entry:
    """An entry that tells of a child."""
    result = msgspec.Raw(msgspec.json.encode({"task_id": child, "kind": "background"}))
    return Done(at=NOW, position="1", name="task.spawn", result=result)


def names(news: list[Recorded]) -> list[str]:
    """Which run's entries of which name."""
    return [f"{one.run_id}.{getattr(one.entry, 'name', '')}" for one in news]


async def kept(store: MemoryStore, run_id: str, *entries: Entry) -> None:
    """Keep a run as another process would."""
    await keep(store, WHO.identity.with_run(run_id), [encode_entry(one) for one in entries])


async def claimed(store: MemoryStore, worker: str) -> Lease:
    """The lease of the one run that is ready, taken by this worker."""
    (claim,) = await store.claim(worker)
    return claim.row.lease


def step(lease: Lease, position: int, *entries: Entry) -> Commit:
    """What a worker writes behind so many entries."""
    guard = Guard(lease=lease, position=position)
    return Commit(guard=guard, entries=tuple(map(encode_entry, entries)))


async def test_what_others_record_is_read_once() -> None:
    """A look brings what came since the last one, of all runs of the family by time."""
    inner = MemoryStore()
    following = Following(WatchedStore(inner, lambda *_: None), "r1", WHO.identity)
    await kept(inner, "r1", begun("a", 1), spawned("r2"), begun("c", 3))
    await kept(inner, "r2", begun("b", 2))
    assert names(await following.look()) == ["r1.task.spawn", "r1.a", "r2.b", "r1.c"]
    assert await following.look() == []
    assert following.record is not None
    assert [one.run_id for one in following.unfinished] == ["r1", "r2"]


async def test_what_was_told_is_not_read_again() -> None:
    """Entries that this process wrote are told by their writer, in whatever pieces they come."""
    inner = MemoryStore()
    following = Following(WatchedStore(inner, lambda *_: None), "r1", WHO.identity)
    await kept(inner, "r1", begun("a"), begun("b"))
    assert names(following.heard("r1", 0, [begun("a")])) == ["r1.a"]
    assert names(following.heard("r1", 0, [begun("a"), begun("b")])) == ["r1.b"]
    assert await following.look() == []


async def test_a_gap_is_read_at_the_next_look() -> None:
    """What stands before an entry comes before it, though this process writes the run by now."""
    inner = MemoryStore()
    heard: list[str] = []
    store = WatchedStore(inner, lambda run, place, entries: heard.extend(names(following.heard(run, place, entries))))
    following = Following(store, "r1", WHO.identity)
    await kept(inner, "r1", begun("a"))
    lease = await claimed(inner, "here")
    await store.commit(step(lease, 1, begun("b")))
    assert heard == []
    assert names(await following.look()) == ["r1.a", "r1.b"]
    await store.commit(step(lease, 2, begun("c")))
    assert heard == ["r1.c"]
    assert await following.look() == []


async def test_it_knows_who_carries() -> None:
    """A run is elsewhere while another process has its lease."""
    inner = MemoryStore()
    following = Following(WatchedStore(inner, lambda *_: None), "r1", WHO.identity)
    await kept(inner, "r1", begun("a"))
    lease = await claimed(inner, "elsewhere")
    await following.look()
    assert following.is_elsewhere
    await inner.commit(Commit(guard=Guard(lease=lease, position=1), change=Change(status=Status.COMPLETE)))
    await following.look()
    assert not following.is_elsewhere
    assert following.unfinished == []


async def test_other_runs_of_a_shared_session_are_strangers() -> None:
    """Until the record tells that the run has spawned them."""
    inner = MemoryStore()
    following = Following(WatchedStore(inner, lambda *_: None), "r1", WHO.identity, may_be_shared=True)
    await kept(inner, "r1", begun("a"), spawned("r2"))
    for other in ("r2", "r3", "r4"):
        await kept(inner, other, begun("b"))
    assert names(await following.look()) == ["r1.a", "r1.task.spawn", "r2.b"]
    assert following.strangers == {"r3", "r4"}
    assert following.heard("r4", 0, [begun("b")]) == []
    following.heard("r1", 2, [spawned("r3")])
    assert following.strangers == {"r4"}
    assert names(await following.look()) == ["r3.b"]
