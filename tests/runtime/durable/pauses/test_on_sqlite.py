"""Pauses of several processes over one SQLite file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from harborage.identity import Quadruple
from harborage.runtime.pauses import AlreadyResumedError, Coordinator, Pause, PauseDecision, PauseRequest
from harborage.state.storage import Storage, open_storage
from harborage.testing.clock import FakeClock

pytestmark = pytest.mark.anyio

Asking = Callable[..., PauseRequest]


@pytest.fixture
async def storages(tmp_path: Path) -> AsyncIterator[list[Storage]]:
    """The same file opened twice, as two processes do."""
    opened = [await open_storage(f"sqlite:{tmp_path / 'harborage.db'}") for _ in range(2)]
    yield opened
    for storage in opened:
        await storage.aclose()


async def test_of_two_processes_one_resolves(
    storages: list[Storage], asking: Asking, owner: Quadruple, clock: FakeClock
) -> None:
    """Each pause by one of them, whichever was first; both then know how."""
    processes = [Coordinator(store=storage.store, clock=clock) for storage in storages]
    pauses = await asyncio.gather(*(processes[n % 2].request(asking(key=f"k{n}")) for n in range(20)))
    tries: list[Any] = [
        process.resume(pause.token, PauseDecision.APPROVE, {"n": index}, who=owner)
        for pause in pauses
        for index, process in enumerate(processes)
    ]
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(result, Pause) for result in results) == 20
    assert sum(isinstance(result, AlreadyResumedError) for result in results) == 20
    for pause in pauses:
        first, second = [await process.status(pause.token) for process in processes]
        assert first == second
    for process in processes:
        assert (await process.list(who=owner)).total == 0


async def test_one_key_is_one_pause(
    storages: list[Storage], asking: Asking, owner: Quadruple, clock: FakeClock
) -> None:
    """Asked by both processes at once, ten times over."""
    processes = [Coordinator(store=storage.store, clock=clock) for storage in storages]
    for turn in range(10):
        pauses = await asyncio.gather(*(process.request(asking(key=f"k{turn}")) for process in processes * 2))
        assert len({pause.token for pause in pauses}) == 1
    assert (await processes[0].list(who=owner)).total == 10


async def test_a_start_resolves_what_fell_due(storages: list[Storage], asking: Asking, clock: FakeClock) -> None:
    """A week later another process applies the default of every pause without an answer."""
    first, second = [Coordinator(store=storage.store, clock=clock) for storage in storages]
    for number in range(30):
        who = Quadruple(f"t{number % 3}", "u", f"s{number}", "r")
        await first.request(asking(identity=who, deadline=clock.now() + timedelta(days=number % 10)))
    clock.advance(5 * 24 * 3600)
    assert len(await second.expire_due()) == 18
    assert await second.expire_due() == ()
