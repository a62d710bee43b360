"""The session's artifacts as a planner is shown them: as of each step, for the price of a number."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from harborage import codec
from harborage.artifacts import (
    ArtifactScope,
    ArtifactStorageError,
    ArtifactStore,
    FileArtifactStore,
    MemoryArtifactStore,
)
from harborage.identity import Identity, Quadruple
from harborage.planner import ArtifactManifestEntry, CallTool, Finish, FinishReason, RunContext
from harborage.runtime.durable.journal import Done, decode_entries
from harborage.runtime.effects.run_resources import SessionArtifacts, recorded_of, tracker_of
from harborage.runtime.host import Runtime
from harborage.runtime.loop.state import Planned
from harborage.state.errors import DatabaseError
from harborage.testing.clock import FakeClock
from harborage.testing.planners import RecordingPlanner, ScriptedPlanner

pytestmark = pytest.mark.anyio

Runtimes = Callable[..., Awaitable[Any]]
ME = Identity("t", "u", "s")
WHO = Quadruple("t", "u", "s", "r")
HERE = ArtifactScope("t", "u", "s")
GOAL = Finish(FinishReason.GOAL)
_log = logging.getLogger("test")


class Counting(MemoryArtifactStore):
    """Counts its listings."""

    def __init__(self) -> None:
        super().__init__()
        self.listings = 0

    async def list(self, scope: ArtifactScope) -> Any:
        self.listings += 1
        return await super().list(scope)


def refs(shown: tuple[ArtifactManifestEntry, ...]) -> set[str]:
    """The ids of what is shown."""
    return {one.ref for one in shown}


async def test_each_step_is_shown_what_the_session_holds_then(runtimes: Runtimes) -> None:
    """A heavy result of a step is in the list of the next one, and so is what anybody else put meanwhile."""
    store = Counting()

    async def big() -> str:
        """Give much."""
        return "z" * 50_000

    async def aside() -> str:
        """Put something without the runtime's help."""
        await store.put_text(HERE, "aside")
        return "ok"

    planner = RecordingPlanner(ScriptedPlanner([CallTool("big"), CallTool("aside"), CallTool("quiet"), GOAL]))

    async def quiet() -> str:
        """Do nothing."""
        return "ok"

    bench = await runtimes(planner, artifacts=store, tools=[big, aside, quiet])
    await bench.run()
    shown = [refs(one.session_artifacts) for one in planner.contexts]
    assert [len(one) for one in shown] == [0, 1, 2, 2]
    assert shown[1] < shown[2] == shown[3]
    assert shown[3] == {ref.id for ref in await store.list(HERE)}


async def test_a_step_lists_only_after_a_change() -> None:
    """The same tuple comes as long as nothing in the session changed; changes of another session do not count."""
    store = Counting()
    listing = SessionArtifacts(store, WHO, tracker=tracker_of(store), clock=FakeClock(), logger=_log)
    first = await store.put_text(HERE, "one")
    shown = await listing.current()
    assert refs(shown) == {first.id}
    for _ in range(100):
        assert await listing.current() is shown
    assert store.listings == 1
    second = await store.put_text(ArtifactScope("t", "u", "s", "task"), "two")
    assert refs(await listing.current()) == {first.id, second.id}
    await store.delete(HERE, first.id)
    assert refs(await listing.current()) == {second.id}
    assert store.listings == 3


async def test_what_another_process_puts_is_shown_within_a_second(tmp_path: Path) -> None:
    """A folder that several processes share is listed at once after a put of this one, and each second otherwise."""
    clock = FakeClock()
    mine, theirs = FileArtifactStore(tmp_path), FileArtifactStore(tmp_path)
    listing = SessionArtifacts(mine, WHO, tracker=tracker_of(mine), clock=clock, logger=_log)
    assert await listing.current() == ()
    foreign = await theirs.put_text(HERE, "theirs")
    assert await listing.current() == ()
    clock.advance(1)
    assert refs(await listing.current()) == {foreign.id}
    own = await mine.put_text(HERE, "mine")
    assert refs(await listing.current()) == {foreign.id, own.id}
    await mine.aclose()
    await theirs.aclose()


async def test_a_store_that_tracks_nothing_is_listed_at_each_step() -> None:
    """One of a third party that knows nothing of this shows what it holds all the same."""

    class Foreign:
        def __init__(self) -> None:
            self.inner = MemoryArtifactStore()

        async def list(self, scope: ArtifactScope) -> Any:
            return await self.inner.list(scope)

    store: Any = Foreign()
    listing = SessionArtifacts(store, WHO, tracker=tracker_of(store), clock=FakeClock(), logger=_log)
    assert await listing.current() == ()
    ref = await store.inner.put_text(HERE, "new")
    assert refs(await listing.current()) == {ref.id}


async def test_a_listing_that_fails_leaves_the_list_out(caplog: pytest.LogCaptureFixture) -> None:
    """The step goes on without it, the log says why, the next step tries again; a database's refusal is passed on."""
    faults: list[Exception | None] = [None, ArtifactStorageError("/data", "no such disk"), None, DatabaseError("gone")]

    class Flaky(MemoryArtifactStore):
        def changes(self, scope: ArtifactScope) -> int:
            return len(faults)

        async def list(self, scope: ArtifactScope) -> Any:
            fault = faults.pop(0)
            if fault is not None:
                raise fault
            return await super().list(scope)

    store: ArtifactStore = Flaky()
    await store.put_text(HERE, "one")
    listing = SessionArtifacts(store, WHO, tracker=tracker_of(store), clock=FakeClock(), logger=_log)
    assert [len(await listing.current()) for _ in range(3)] == [1, 0, 1]
    assert "run r: the session's artifacts are not listed" in caplog.text
    with pytest.raises(DatabaseError):
        await listing.current()


def test_a_record_grows_by_what_is_new() -> None:
    """What came in front of the known list is recorded alone, everything else whole, and nothing without a change."""
    one, two, three = (ArtifactManifestEntry(ref=name) for name in "123")
    table: list[tuple[Any, Any, Any]] = [
        ((), (), (None, ())),
        ((), (one,), ((one,), ())),
        ((one,), (one,), (None, ())),
        ((one,), (three, two, one), (None, (three, two))),
        ((one,), (one, two), ((one, two), ())),
        ((two, one), (two,), ((two,), ())),
        ((one,), (), ((), ())),
    ]
    for known, shown, recorded in table:
        assert recorded_of(known, shown) == recorded, (known, shown)
        manifest, new = recorded
        assert Planned(decision=GOAL, manifest=manifest, new_artifacts=new).manifest_after(known) == shown


async def test_a_replay_shows_each_step_the_list_of_then(runtimes: Runtimes) -> None:
    """Also where the list changed at every step, and other artifacts are there by now."""

    async def big(n: int) -> str:
        """Give much."""
        return f"{n}" * 50_000

    class Counting:
        async def next(self, run: RunContext) -> Any:
            count = len(run.session_artifacts)
            return CallTool("big", codec.encode({"n": count})) if count < 4 else Finish(FinishReason.GOAL, count)

    async with Runtime(planner=Counting(), tools=[big]) as runtime:
        run = await runtime.start("g", who=ME)
        assert (await run.finished()).payload == 4
        record = await run.history()
        await runtime.artifacts.put_text(HERE, "later")
        assert (await runtime.replay(record)).is_same
    plans = [
        codec.decode(one.result, Planned)
        for one in decode_entries(record, run.id)
        if isinstance(one, Done) and one.name == "plan"
    ]
    assert [(len(one.manifest or ()), len(one.new_artifacts)) for one in plans] == [
        (0, 0),
        (1, 0),
        (0, 1),
        (0, 1),
        (0, 1),
    ]
