"""What the suites over a store of record share: a fresh store, a second way into it, and commits to begin with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol, TypeAlias

from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.concurrency import Crew
from harborage.identity import Identity
from harborage.store import Change, Claimed, Commit, Guard, Lease, NewRun, RunQuery, RunRow, SendControl, Status, Store
from harborage.store.port import keep_alive
from harborage.testing.conformance.checks import expect_equal

ME = Identity("tenant", "user", "session")
OTHERS = (
    Identity("tenant2", "user", "session"),
    Identity("tenant", "user2", "session"),
    Identity("tenant", "user", "session2"),
)
"""Identities that differ from `ME` in one part each."""


class StoreBench(Protocol):
    """A fresh, empty store, a second connection to it, and its clock."""

    store: Store

    async def another(self) -> Store:
        """Return the store as another process has it; the same object for a store of one process."""
        ...

    def later(self, seconds: float) -> None:
        """Let this much time pass."""
        ...

    async def aclose(self) -> None:
        """Close everything that was opened."""
        ...


OpenStoreBench: TypeAlias = Callable[[], Awaitable[StoreBench]]


async def start(store: Store, run_id: str, *, who: Identity = ME, worker: str = "", **more: Any) -> Lease:
    """Start a run with one entry; its lease is valid if a worker is named."""
    new = NewRun(run_id=run_id, who=who, entries=(b"started",), worker=worker, **more)
    await store.commit(Commit(starts=(new,)))
    return Lease(run_id, worker, 1)


async def row(store: Store, run_id: str) -> RunRow:
    """Return the row of a run that exists."""
    page = await store.runs(RunQuery(run_ids=(run_id,)))
    expect_equal([found.run_id for found in page.rows], [run_id], f"the row of run {run_id}")
    return page.rows[0]


async def claim(store: Store, worker: str, *run_ids: str) -> list[Claimed]:
    """Claim what is ready, which must be exactly these runs."""
    claimed = await store.claim(worker)
    expect_equal([one.row.run_id for one in claimed], list(run_ids), f"what {worker} claims")
    return claimed


def step(lease: Lease, position: int, *entries: bytes, **more: Any) -> Commit:
    """Return the commit of a worker's step."""
    return Commit(guard=Guard(lease=lease, position=position), entries=entries, **more)


async def finish(store: Store, lease: Lease, position: int = 1, status: Status = Status.COMPLETE) -> None:
    """End a run."""
    await store.commit(step(lease, position, b"ended", change=Change(status=status)))


@asynccontextmanager
async def living(store: Store, *workers: str, clock: Timers = SYSTEM_CLOCK) -> AsyncIterator[None]:
    """Keep these workers alive inside the block; each leaves at its end."""
    failures: list[BaseException] = []
    async with AsyncExitStack() as stack:
        for worker in workers:
            crew, joined = Crew(lambda _, error: failures.append(error)), asyncio.Event()
            stack.push_async_callback(crew.aclose)
            crew.start(keep_alive(store, worker, clock, joined=joined), f"heartbeat of {worker}")
            await joined.wait()
        yield
    expect_equal(failures, [], "errors of heartbeats")


async def send(store: Store, run_id: str, event_id: str, *, limit: int = 0, take: str = "") -> bool:
    """Send a control to a run; return whether it is new."""
    control = SendControl(run_id=run_id, event_id=event_id, type="USER_MESSAGE", data=b"{}", limit=limit)
    return (await store.commit(Commit(sends=(control,), take=take))).sent[0]
