"""Format versions: what an older one becomes, what a newer one does to its run, and to no other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from harborage import codec
from harborage.concurrency import Crew
from harborage.identity import Identity
from harborage.planner import Finish, FinishReason
from harborage.runtime.durable import journal
from harborage.runtime.durable.bodies import extract_bodies, read_whole
from harborage.runtime.durable.engine import RunBlockedError, RunPhase
from harborage.runtime.durable.journal import (
    FORMAT_VERSION,
    UPCASTS,
    Done,
    JournalCorruptError,
    JournalVersionError,
    Started,
    decode_entry,
    encode_entry,
    is_outdated,
    raw,
)
from harborage.runtime.durable.steps import EffectTable, Note, StepCall
from harborage.runtime.durable.stored import StoredEngine
from harborage.runtime.loop.seam import Durable, RunRequest
from harborage.runtime.pauses import Coordinator
from harborage.state.storage import Storage, open_storage
from tests.kit.stored_runs import keep
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

AT = datetime(2026, 1, 1, tzinfo=UTC)
ME = Identity("t", "u", "s")


def newer(entry: dict[str, Any]) -> dict[str, Any]:
    """What the format after today's would make of an entry: here, results are wrapped."""
    return {**entry, "result": {"wrapped": entry["result"]}} if entry["entry"] == "done" else entry


@pytest.fixture
def next_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of the next format version."""
    monkeypatch.setattr(journal, "FORMAT_VERSION", FORMAT_VERSION + 1)
    monkeypatch.setattr(journal, "UPCASTS", {**UPCASTS, FORMAT_VERSION: newer})


def done(result: Any) -> bytes:
    """A step's outcome in today's format."""
    return encode_entry(Done(at=AT, position="1", name="look", result=raw(result)))


def test_every_older_version_has_an_upcast() -> None:
    """None may be forgotten: what was released once is read for ever."""
    assert set(UPCASTS) == set(range(1, FORMAT_VERSION))


@pytest.mark.usefixtures("next_version")
class TestAnOlderEntry:
    """An entry of today as the code of tomorrow reads it."""

    stored = b'{"entry":"done","at":"2026-01-01T00:00:00Z","position":"1","name":"look","result":[1,2.50]}'

    def test_it_is_brought_up_to_date(self) -> None:
        """By the table's function, each time that it is read; it says the new version when it is written again."""
        entry = decode_entry(self.stored, "r", 0)
        assert isinstance(entry, Done)
        assert codec.decode(bytes(entry.result)) == {"wrapped": [1, 2.5]}
        assert entry.v == FORMAT_VERSION + 1
        assert decode_entry(encode_entry(entry), "r", 0) == entry

    def test_it_is_known_from_a_new_one(self) -> None:
        """A new entry says its version, and is left as it is."""
        assert is_outdated(self.stored)
        assert not is_outdated(done(1))
        assert codec.decode(done(1))["v"] == FORMAT_VERSION + 1
        assert bytes(decode_entry(done(1), "r", 0).result) == b"1"  # type: ignore[union-attr]

    def test_what_cannot_be_read_afterwards_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """By run and entry, like any other that is damaged."""
        monkeypatch.setattr(journal, "UPCASTS", {FORMAT_VERSION: lambda entry: {"entry": "done"}})
        with pytest.raises(JournalCorruptError, match="run r, entry 3: "):
            decode_entry(self.stored, "r", 3)

    async def test_a_body_is_put_back_first(self) -> None:
        """No upcast meets a digest in the place of a value."""
        whole = b'{"entry":"done","at":"2026-01-01T00:00:00Z","position":"1","name":"look","result":{"a":1}}'
        slim = whole.replace(b'{"a":1}', b'{"$body":"digest"}')

        async def fetch(digest: str) -> bytes:
            return {"digest": b'{"a":1}'}[digest]

        assert await read_whole("r", [slim], fetch) == [decode_entry(whole, "r", 0)]


async def test_a_large_body_of_today_is_found_tomorrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was taken out of an entry in one format is put back and brought up to date in the next."""
    slim, bodies = extract_bodies([done("x" * 10_000)], "r")
    monkeypatch.setattr(journal, "FORMAT_VERSION", FORMAT_VERSION + 1)
    monkeypatch.setattr(journal, "UPCASTS", {**UPCASTS, FORMAT_VERSION: newer})

    async def fetch(digest: str) -> bytes:
        return bodies[digest]

    (entry,) = await read_whole("r", slim, fetch)
    assert isinstance(entry, Done)
    assert codec.decode(bytes(entry.result)) == {"wrapped": "x" * 10_000}


@each_row(
    "stored, version",
    [
        (b'{"entry":"patched","at":"2026-01-02T03:04:05Z","change":"c","v":9}', 9),
        (b'{"entry":"dreamt","v":9}', 9),
        (b'{"entry":"done","at":{"day":1},"v":2}', 2),
        (b'{"entry":"patched","at":"2026-01-02T03:04:05Z","change":"c","v":0}', 0),
        (b'{"entry":"patched","at":"2026-01-02T03:04:05Z","change":"c","v":-1}', -1),
    ],
)
def test_an_unknown_version_is_said_to_be_one(stored: bytes, version: int) -> None:
    """Whatever else is new in it: the error names run, entry and version."""
    with pytest.raises(JournalVersionError, match=f"run r, entry 7: format version {version}, ") as caught:
        decode_entry(stored, "r", 7)
    assert (caught.value.run_id, caught.value.entry, caught.value.version) == ("r", 7, version)


async def look(call: StepCall) -> Any:
    return call.payload


async def program(io: Durable, _: RunRequest) -> Finish:
    """A run of two steps."""
    return Finish(FinishReason.GOAL, [await io.step("look", 1), await io.step("look", 2)])


EFFECTS = EffectTable({"look": Note(run=look)})


def entries_of(run_id: str, *more: bytes) -> list[bytes]:
    """The record of a run as far as its first step."""
    return [encode_entry(Started(at=AT, request=raw(RunRequest(who=ME.with_run(run_id), goal="g")))), *more]


NEWER = b'{"entry":"done","at":"2026-01-01T00:00:00Z","position":"1","name":"look","result":{"wrapped":1},"v":2}'


@pytest.fixture(params=["memory", "sqlite"])
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Storage]:
    """A storage that holds a run of today, and one that newer code has carried."""
    url = "memory:" if request.param == "memory" else f"sqlite:{tmp_path}/runs.db"
    async with await open_storage(url) as opened:
        for run_id, entries in (("new", entries_of("new", NEWER)), ("old", entries_of("old", done(1)))):
            await keep(opened.store, ME.with_run(run_id), entries)
        yield opened


async def ended(engine: StoredEngine, run_id: str) -> Any:
    """What a run's finish holds."""
    async with asyncio.timeout(20):
        return (await engine.result(run_id)).payload


async def test_a_newer_format_blocks_its_run_alone_until_newer_code_is_there(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The run is blocked with the reason, unchanged, and the others continue; with the right code it ends."""
    caplog.set_level(logging.CRITICAL)
    before = await storage.store.entries("new")
    for is_newer in (False, True):
        if is_newer:
            monkeypatch.setattr(journal, "FORMAT_VERSION", 2)
            monkeypatch.setattr(journal, "UPCASTS", {1: newer})
        engine = StoredEngine(storage.store, Coordinator(), linger=timedelta(0))
        crew = Crew(lambda name, error: pytest.fail(f"{name}: {error}"))
        crew.start(engine.serve(program, EFFECTS), "worker")
        if not is_newer:
            assert await ended(engine, "old") == [1, 2]
            async with asyncio.timeout(20):
                while (status := await engine.status("new")).phase is not RunPhase.BLOCKED:  # noqa: ASYNC110
                    await asyncio.sleep(0)
            assert status.reason.startswith("run new, entry 1: format version 2, this code reads 1")
            with pytest.raises(RunBlockedError, match="run new, entry 1: format version 2"):
                await engine.result("new")
            with pytest.raises(JournalVersionError, match="run new, entry 1: format version 2"):
                await engine.history("new")
            assert await storage.store.entries("new") == before
        else:
            assert await ended(engine, "new") == [{"wrapped": 1}, 2]
        await crew.aclose()
        await engine.aclose()
