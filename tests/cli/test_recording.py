"""The store of runs that tells what is written to it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import pytest

from harborage.cli.recording import WatchedRuns
from harborage.identity import Quadruple
from harborage.runtime.journal import Begun, Entry, encode_entry
from harborage.state.memory_runs import MemoryRuns
from harborage.state.runs import RunFilter, RunRecord, Standing, Write

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WHO = Quadruple("acme", "ada", "s1", "r1")
RECORD = RunRecord(run_id="r1", who=WHO, goal="go", created_at=NOW, updated_at=NOW)


def entry(name: str, payload: bytes = b"1") -> bytes:
    """An entry of that name, as it is stored."""
    return encode_entry(Begun(at=NOW, position="1", name=name, payload=msgspec.Raw(payload), key="r1/1"))


class Listener:
    """Keeps what it is told: the run, the place, and what was begun there."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, list[str]]] = []
        self.entries: list[Entry] = []

    def __call__(self, run_id: str, place: int, entries: Sequence[Entry]) -> None:
        self.entries += entries
        self.told.append((run_id, place, [one.name for one in entries if isinstance(one, Begun)]))


async def test_entries_are_told_with_their_place() -> None:
    """Once they are kept, in the order of the record, whoever wrote what stands before them."""
    inner, listener = MemoryRuns(), Listener()
    runs = WatchedRuns(inner, listener)
    await runs.create(RECORD, Write(entries=[entry("a")]))
    (claim,) = await inner.claim("elsewhere")
    await inner.append(claim.lease, Write(entries=[entry("b")]))
    await inner.release(claim.lease, Standing())
    (claim,) = await inner.claim("here")
    assert len(await runs.read("r1")) == 2
    await runs.append(claim.lease, Write(entries=[entry("c"), entry("d")]))
    await runs.append(claim.lease, Write(entries=[entry("e")]))
    assert listener.told == [("r1", 0, ["a"]), ("r1", 2, ["c", "d"]), ("r1", 4, ["e"])]
    assert len(await runs.read("r1", after=3)) == 2


async def test_it_knows_what_is_written_here() -> None:
    """A run is written here from the first entry under a lease until somebody else has it."""
    inner = MemoryRuns()
    runs = WatchedRuns(inner, Listener())
    await runs.create(RECORD, Write())
    (claim,) = await inner.claim("here")
    assert not runs.is_written_here((await runs.list(RunFilter()))[0])
    await runs.append(claim.lease, Write(entries=[entry("a")]))
    assert runs.is_written_here((await runs.list(RunFilter()))[0])
    await inner.release(claim.lease, Standing())
    await inner.claim("elsewhere")
    assert not runs.is_written_here((await runs.list(RunFilter()))[0])


async def test_a_large_value_is_told_whole() -> None:
    """What is kept apart from its entry is put back in its place."""
    large = b'"' + b"x" * 9000 + b'"'
    digest = hashlib.sha256(large).hexdigest()
    inner, listener = MemoryRuns(), Listener()
    runs = WatchedRuns(inner, listener)
    slim = entry("a", b'{"$body":"' + digest.encode() + b'"}')
    await runs.create(RECORD, Write(entries=[slim], bodies={digest: large}))
    (told,) = listener.entries
    assert isinstance(told, Begun)
    assert bytes(told.payload) == large
    assert await runs.body("r1", digest) == large
    await runs.forget("r1")
    assert await runs.list(RunFilter()) == []
    await runs.aclose()
