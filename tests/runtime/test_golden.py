"""Runs that every released version has written: they load, fold, replay and are resumed by the code of today."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harborage import codec
from harborage.concurrency import Crew
from harborage.planner import Finish, RunContext
from harborage.runtime.durable.bodies import LARGE, read_whole
from harborage.runtime.durable.engine import RunFailedError, RunPhase
from harborage.runtime.durable.journal import FORMAT_VERSION, Ended, Entry, Started, encode_entry
from harborage.runtime.durable.stored import StoredEngine
from harborage.runtime.history.builder import build_history
from harborage.runtime.loop.seam import RunRequest
from harborage.runtime.pauses import Coordinator
from harborage.state.storage import Storage, open_storage
from harborage.store import Change, Status
from harborage.testing.clock import FakeClock
from tests.kit.planners import StepPlanner
from tests.kit.stored_runs import keep
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

FOLDER = Path(__file__).resolve().parents[1] / "data" / "journal"
NAMES = sorted(str(path.relative_to(FOLDER)).removesuffix(".jsonl") for path in FOLDER.glob("v*/*.jsonl"))
AGENTS = [name for name in NAMES if not name.endswith("/two_histories")]
UNDRIVEN = ("single_tool", "parallel", "compression", "large_body", "failed")
"""Scenes without controls: they can be resumed from anywhere by their script alone."""


def _recorder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("golden_record", FOLDER / "record.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


RECORD = _recorder()


class Golden:
    """A recorded run, read."""

    def __init__(self, name: str) -> None:
        folder, _, self.scene = name.partition("/")
        self.stored, self._bodies = RECORD.load(FOLDER / folder, self.scene)
        self.bodies = {digest: body.encode() for digest, body in self._bodies.items()}
        self.entries: Sequence[Entry] = ()

    async def read(self) -> Golden:
        """The run, with its entries as the code of today knows them."""

        async def fetch(digest: str) -> bytes:
            return self.bodies[digest]

        self.entries = await read_whole("golden", self.stored, fetch)
        return self

    @property
    def run_id(self) -> str:
        return self.request.who.run_id

    @property
    def request(self) -> Any:
        assert isinstance(self.entries[0], Started)
        return _decoded(self.entries[0].request, RunRequest)

    @property
    def ended(self) -> Ended:
        last = self.entries[-1]
        assert isinstance(last, Ended)
        return last

    async def lay_into(self, storage: Storage, count: int, *, is_over: bool = False) -> None:
        """Keep the first entries of the run, as the storage of its time did."""
        ending = Status.FAILED if self.ended.finish is None else Status.COMPLETE
        change = Change(status=ending) if is_over else None
        await keep(storage.store, self.request.who, self.stored[:count], bodies=self.bodies, change=change)


def _decoded(value: Any, type: Any) -> Any:
    return codec.decode(bytes(value), type)


class Silent:
    """A planner that must not be asked."""

    async def next(self, run: RunContext) -> Any:
        raise AssertionError("everything is recorded, and the planner was asked")


async def how_it_ends(engine: Any, golden: Golden) -> Finish | tuple[str, str]:
    """How a run ends, in the form in which it is recorded."""
    try:
        async with asyncio.timeout(20):
            found: Finish = await engine.result(golden.run_id)
            return found
    except RunFailedError as error:
        return error.error, str(error)


def check_end(golden: Golden, end: Finish | tuple[str, str]) -> None:
    """It is the end that is on record."""
    if isinstance(end, Finish):
        assert golden.ended.finish is not None
        assert end == _decoded(golden.ended.finish, Finish)
    else:
        assert end[0] == golden.ended.error
        assert golden.ended.message in end[1]


def test_every_version_and_scene_is_there() -> None:
    """A folder for each version up to today's, and in today's a run for each scene."""
    assert {name.partition("/")[0] for name in NAMES} == {f"v{version}" for version in range(1, FORMAT_VERSION + 1)}
    today = {name.partition("/")[2] for name in NAMES if name.startswith(f"v{FORMAT_VERSION}/")}
    assert today == {*RECORD.SCENES, "two_histories"}


async def test_every_kind_of_entry_is_among_them() -> None:
    """What an entry of some kind looked like is not forgotten."""
    kinds = {type(entry) for name in NAMES for entry in (await Golden(name).read()).entries}
    assert kinds == set(Entry.__args__)


async def test_a_large_body_lies_apart() -> None:
    """One of them is kept by reference, and comes back whole."""
    golden = await Golden("v1/large_body").read()
    assert all(len(stored) < LARGE for stored in golden.stored)
    assert max(len(encode_entry(entry)) for entry in golden.entries) > LARGE


@each_row("name", AGENTS)
async def test_it_loads_and_folds(name: str) -> None:
    """Its steps and its end can be shown; asked for in a storage, it ends as it did."""
    golden = await Golden(name).read()
    shown = build_history([encode_entry(entry) for entry in golden.entries])
    assert shown.run_id == golden.run_id
    assert len(shown.steps) >= 1
    async with await open_storage("memory:", clock=FakeClock()) as storage:
        await golden.lay_into(storage, len(golden.stored), is_over=True)
        engine = StoredEngine(storage.store, Coordinator())
        assert await engine.history(golden.run_id) == [encode_entry(entry) for entry in golden.entries]
        assert (await engine.status(golden.run_id)).phase.is_final
        check_end(golden, await how_it_ends(engine, golden))
        await engine.aclose()


@each_row("name", AGENTS)
async def test_it_is_carried_to_its_end(name: str) -> None:
    """With only its last entry missing it ends the same way, though neither planner nor tool is there any more."""
    golden, clock = await Golden(name).read(), FakeClock()
    async with await open_storage("memory:", clock=clock) as storage:
        await golden.lay_into(storage, len(golden.stored) - 1)
        stage = RECORD.Stage(RECORD.SCENES[golden.scene])
        stage.planner = Silent()
        async with stage.runtime(storage, clock) as rt:
            run = await rt.run(golden.run_id, who=RECORD.ME)
            check_end(golden, await how_it_ends(run._engine, golden))
            assert (await run.status()).phase in {RunPhase.FINISHED, RunPhase.FAILED}
        kept = await storage.store.entries(golden.run_id)
        assert kept[:-1] == golden.stored[:-1]


@each_row("name", [name for name in AGENTS if name.partition("/")[2] in UNDRIVEN])
async def test_it_is_carried_on_from_anywhere(name: str) -> None:
    """Cut off behind each of its entries, it goes on with what its planner says now, to the same end."""
    golden = await Golden(name).read()
    for count in range(1, len(golden.stored)):
        clock = FakeClock()
        async with await open_storage("memory:", clock=clock) as storage:
            await golden.lay_into(storage, count)
            stage = RECORD.Stage(RECORD.SCENES[golden.scene])
            stage.planner = StepPlanner(*RECORD.SCENES[golden.scene].lines)
            async with stage.runtime(storage, clock) as rt:
                run = await rt.run(golden.run_id, who=RECORD.ME)
                check_end(golden, await how_it_ends(run._engine, golden))


@each_row("name", AGENTS)
async def test_it_replays(name: str) -> None:
    """The planner, asked again with what it was shown, decides the same."""
    golden = await Golden(name).read()
    runtime = RECORD.Stage(RECORD.SCENES[golden.scene]).runtime(None, FakeClock())
    (await runtime.replay([encode_entry(entry) for entry in golden.entries])).check()


@pytest.mark.parametrize("name", [name for name in NAMES if name not in AGENTS])
async def test_histories_and_code_changes_are_carried_on(name: str) -> None:
    """A run that rolled over and met a change of its code goes on in the right history, on the right path."""
    golden = await Golden(name).read()
    for count in range(1, len(golden.stored)):
        async with await open_storage("memory:", clock=FakeClock()) as storage:
            await golden.lay_into(storage, count)
            engine = StoredEngine(storage.store, Coordinator())
            crew = Crew(partial(pytest.fail))
            crew.start(engine.serve(RECORD.two_histories, RECORD.LOOK), "worker")
            check_end(golden, await how_it_ends(engine, golden))
            await crew.aclose()
            await engine.aclose()


@pytest.mark.parametrize("scene", ["single_tool", "pause_and_approve"])
async def test_recording_twice_writes_the_same(scene: str) -> None:
    """Neither ids nor times of the day of recording are in it."""
    assert await RECORD.record(RECORD.SCENES[scene]) == await RECORD.record(RECORD.SCENES[scene])
