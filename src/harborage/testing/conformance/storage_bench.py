"""What the suites over a storage share: a fresh storage, a second way into it, and hands that may damage it.

Part of the suites in `runs` and `event_log`; a driver's author hands in a `StorageBench` of their own.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol, TypeAlias

from harborage.clock import SYSTEM_CLOCK
from harborage.concurrency import Crew
from harborage.identity import Quadruple
from harborage.state.memory_runs import MemoryRuns
from harborage.state.memory_storage import open_memory
from harborage.state.runs import Claim, Lease, RunFilter, RunQueue, RunRecord, Standing, Write
from harborage.testing.conformance.checks import expect, expect_equal

if TYPE_CHECKING:
    from harborage.state.storage import Storage

__all__ = [
    "ME",
    "MemoryStorageBench",
    "OpenStorageBench",
    "StorageBench",
    "a_record",
    "begin",
    "digest",
    "find",
    "ids",
    "living",
    "open_memory_bench",
    "take",
]

ME = Quadruple("tenant", "user", "session", "run")
_MADE = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


class StorageBench(Protocol):
    """A fresh, empty storage and what a test needs around it. The storage reads the system's clock."""

    storage: Storage

    async def another(self) -> Storage:
        """A second connection to the same data, as another process would have it; the same one where there is none."""
        ...

    async def lose_entry(self, run_id: str, entry: int) -> bool:
        """Remove the entry at this place, counted from 0, as damage would; False where nothing can be lost."""
        ...

    async def spoil_body(self, digest: str, data: bytes | None) -> None:
        """Put `data` in the place of the body, or nothing, as damage would."""
        ...

    async def count_bodies(self) -> int:
        """How many bodies are kept, over all runs."""
        ...

    async def aclose(self) -> None:
        """Close every connection that was handed out, and remove the data."""
        ...


OpenStorageBench: TypeAlias = Callable[[], Awaitable[StorageBench]]


class MemoryStorageBench:
    """The bench of the storage in memory, which has one connection."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        assert isinstance(storage.runs, MemoryRuns)
        self._runs = storage.runs

    async def another(self) -> Storage:
        return self.storage

    async def lose_entry(self, run_id: str, entry: int) -> bool:
        return False

    async def spoil_body(self, digest: str, data: bytes | None) -> None:
        if data is None:
            del self._runs._bodies[digest]
        else:
            self._runs._bodies[digest] = data

    async def count_bodies(self) -> int:
        return len(self._runs._bodies)

    async def aclose(self) -> None:
        await self.storage.aclose()


async def open_memory_bench() -> StorageBench:
    """The bench of a fresh storage in memory."""
    return MemoryStorageBench(await open_memory("memory:", SYSTEM_CLOCK))


def a_record(run_id: str, who: Quadruple = ME, *, agent: str = "", goal: str = "goal") -> RunRecord:
    """A run as it is asked for."""
    return RunRecord(run_id=run_id, who=who, goal=goal, agent=agent, created_at=_MADE, updated_at=_MADE)


def digest(data: bytes) -> str:
    """The name of a body."""
    return hashlib.sha256(data).hexdigest()


async def begin(storage: Storage, run_id: str, *entries: bytes, standing: Standing | None = None) -> None:
    """Keep a new run with these entries."""
    is_new = await storage.runs.create(a_record(run_id), Write(entries=entries or (b"started",), standing=standing))
    expect(is_new, f"the run {run_id} is new")


async def take(storage: Storage, run_id: str, worker: str = "worker", *, blocked: bool = False) -> Lease:
    """Claim what is ready as `worker`, and return the lease of this run, which must be all there is to claim."""
    claims = await storage.queue.claim(worker, blocked=blocked)
    expect_equal([claim.record.run_id for claim in claims], [run_id], "the runs that could be claimed")
    return claims[0].lease


async def find(storage: Storage, run_id: str) -> RunRecord:
    """The run as it stands."""
    found: Sequence[RunRecord] = await storage.runs.list(RunFilter(run_id=run_id))
    expect_equal([record.run_id for record in found], [run_id], "the run, asked for by its id")
    return found[0]


def ids(claims: Sequence[Claim]) -> list[str]:
    """The ids of claimed runs, in order."""
    return [claim.record.run_id for claim in claims]


@asynccontextmanager
async def living(queue: RunQueue, *workers: str) -> AsyncIterator[None]:
    """A block in which these workers give their signs of life."""
    failures: list[BaseException] = []
    crew = Crew(lambda _, error: failures.append(error))
    for worker in workers:
        crew.start(queue.keep_alive(worker), f"sign of life of {worker}")
    try:
        await asyncio.sleep(0)  # a sign that is called off before it began was none
        yield
    finally:
        await crew.aclose()
    expect_equal(failures, [], "what ended a sign of life")
