"""Runs are found by a few characters, and read whole."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from harborage.identity import Identity
from harborage.llm import RateLimitedError
from harborage.planner import CallTool, Finish, FinishReason
from harborage.runtime.durable.engine import RunFailedError, RunNotFoundError
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.history import RunPrefixError, all_runs, build_history, find_run, read_run
from harborage.runtime.host import Runtime
from harborage.store import RunQuery
from harborage.store.memory import MemoryStore
from harborage.testing.llm import ScriptedLLM
from harborage.testing.planners import ScriptedPlanner
from tests.kit.slow_store import AwaitedStore, storage_over
from tests.kit.stored_runs import keep

pytestmark = pytest.mark.anyio

T0 = datetime(2026, 1, 1, tzinfo=UTC)


async def stored(*ids: str) -> MemoryStore:
    store = MemoryStore()
    for run_id in ids:
        who = Identity("t", "u", "s").with_run(run_id)
        await keep(store, who, [])
    return store


async def test_a_beginning_is_enough() -> None:
    """As much of the id as no other has; the case of letters does not matter."""
    store = await stored("01ABC", "01ABD", "02X")
    assert (await find_run(store, "02")).run_id == "02X"
    assert (await find_run(store, "01abd")).run_id == "01ABD"


async def test_a_whole_id_wins() -> None:
    """Even where it is the beginning of another."""
    assert (await find_run(await stored("01A", "01AB"), "01A")).run_id == "01A"


async def test_a_run_is_named_by_the_end_of_its_id() -> None:
    """Ids of one moment begin alike; four characters at the end are enough, fewer are a beginning or nothing."""
    store = await stored("01M84NR7FMZ99545ZP8FVGVBVD", "01M84NR7QV68ZHM470PQP93VQG", "01M84NR7QV68ZHM470PQP9VBVD")
    assert (await find_run(store, "3vqg")).run_id == "01M84NR7QV68ZHM470PQP93VQG"
    assert (await find_run(store, "FVGVBVD")).run_id == "01M84NR7FMZ99545ZP8FVGVBVD"
    with pytest.raises(RunPrefixError, match="'VBVD' could be any of 2 runs"):
        await find_run(store, "VBVD")
    with pytest.raises(RunNotFoundError):
        await find_run(store, "VQG")


async def test_an_unclear_beginning_is_an_error() -> None:
    """It lists some of those it could mean."""
    store = await stored(*(f"01{n:02}" for n in range(9)))
    with pytest.raises(
        RunPrefixError, match=r"'01' could be any of 9 runs: 0100, .* and 4 more; give the last characters"
    ) as caught:
        await find_run(store, "01")
    assert len(caught.value.found) == 9


async def test_an_unknown_run_is_an_error() -> None:
    """It says where was looked, and what shows those there are; nothing is no run."""
    store = await stored("01A")
    with pytest.raises(RunNotFoundError, match="no run 'ZZ' in sqlite:x; 'harborage runs list' shows"):
        await find_run(store, "ZZ", where="sqlite:x")
    with pytest.raises(RunNotFoundError):
        await find_run(store, "")


async def test_all_runs_are_all() -> None:
    """However many pages of them there are."""
    store = await stored(*(f"{n:05}" for n in range(1200)))
    found = await all_runs(store, RunQuery())
    assert [one.run_id for one in found] == [f"{n:05}" for n in range(1200)]
    assert await all_runs(store, RunQuery(user="other")) == []


async def test_a_record_is_read_with_its_large_values() -> None:
    """They are kept apart, and are in their places again."""

    async def long() -> str:
        """A page."""
        return "word " * 4_000

    planner: Any = ScriptedPlanner([CallTool("long"), Finish(FinishReason.GOAL)])
    async with storage_over(AwaitedStore()) as storage:
        async with Runtime(planner=planner, tools=[long], storage=storage) as runtime:
            run = await runtime.start("g", who=Identity("t", "u", "s"))
            await run.finished()
            assert await read_run(storage.store, run.id) == await run.history()
        assert any(b'"$body"' in entry for entry in await storage.store.entries(run.id))
        record = await read_run(storage.store, run.id)
        assert await read_run(storage.store, "no-such-run") == []
    assert build_history(record).steps[0].calls[0].observation == "word " * 4_000


async def test_the_model_calls_of_a_failed_step_are_read_too() -> None:
    """A long prompt whose model failed is kept apart like any large value, and replays."""
    async with storage_over(AwaitedStore()) as storage:
        model = ScriptedLLM([RateLimitedError("slow down")])
        options = RuntimeOptions(provider_patience=timedelta())
        async with Runtime(model=model, instructions="word " * 3_000, storage=storage, options=options) as runtime:
            run = await runtime.start("g", who=Identity("t", "u", "s"))
            with pytest.raises(RunFailedError):
                await run.finished()
            (failed,) = [entry for entry in await storage.store.entries(run.id) if b'"notes":{"$body"' in entry]
            record = await read_run(storage.store, run.id)
            replayed = await runtime.replay(record)
    assert len(failed) < 1_000
    assert (replayed.is_same, replayed.is_whole, replayed.model_calls) == (True, True, 1)
