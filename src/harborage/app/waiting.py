"""What waits in a storage, on whom and until when, and the end of what nobody would ever end.

For whoever shows it: nothing is rendered here, and no runtime is needed. Any number of processes may work on the
storage meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.events import DurableEventBus
from harborage.runtime.pauses import Coordinator
from harborage.runtime.survey import Places, Settled, settle, survey
from harborage.runtime.waits import Party, Wait, WaitKind
from harborage.sessions import SessionPolicy, SessionRegistry
from harborage.tasks import InProcessTaskRegistry

if TYPE_CHECKING:
    from harborage.state.storage import Storage

__all__ = ["Party", "Settled", "Wait", "WaitKind", "settle_orphans", "waiting"]


async def waiting(
    storage: Storage,
    *,
    clock: Timers = SYSTEM_CLOCK,
    sessions: SessionPolicy = SessionPolicy(),  # noqa: B008 - a frozen value
) -> list[Wait]:
    """Everything that waits in the storage, of all owners: runs, pauses, approvals, tasks, groups and open sessions.

    Each says on whom and until when; those with `orphan` set wait for nobody. `sessions` says when one is left.

    Raises:
        StateError: the storage cannot be read.
    """
    async with _places(storage, clock, sessions) as places:
        return await survey(places)


async def settle_orphans(storage: Storage, *, clock: Timers = SYSTEM_CLOCK) -> list[Settled]:
    """End what nobody else would, and let overdue pauses take their default; returns each with what was done.

    Safe beside living processes: what has found an owner meanwhile is left alone.

    Raises:
        StateError: the storage cannot be read or written.
    """
    async with _places(storage, clock, SessionPolicy()) as places:
        return await settle(places)


@asynccontextmanager
async def _places(storage: Storage, clock: Timers, policy: SessionPolicy) -> AsyncIterator[Places]:
    """The parts that read a storage, opened for one look and closed after it."""

    bus = DurableEventBus(storage.store, clock=clock)
    tasks = InProcessTaskRegistry(bus=bus, store=storage.state, clock=clock)
    sessions = SessionRegistry(storage.state, bus, policy=policy, clock=clock)
    try:
        yield Places(
            store=storage.store,
            pauses=Coordinator(bus=bus, store=storage.store, clock=clock),
            tasks=tasks,
            sessions=sessions,
            clock=clock,
        )
    finally:
        await sessions.aclose()
        await tasks.aclose()
        await bus.aclose()
