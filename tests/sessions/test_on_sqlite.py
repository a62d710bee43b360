"""Sessions of two processes over one SQLite file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harborage.events import MemoryEventBus
from harborage.identity import Identity
from harborage.sessions import SessionRegistry
from harborage.state.storage import open_storage
from harborage.testing.events import EventRecorder

pytestmark = pytest.mark.anyio

ME = Identity("acme", "ann", "s1")


async def test_two_processes_agree_on_a_session(tmp_path: Path) -> None:
    """Opened once, closed once, and listed by a third."""
    storages = [await open_storage(f"sqlite:{tmp_path / 'harborage.db'}") for _ in range(3)]
    bus = MemoryEventBus()
    recorder = EventRecorder(bus)
    first, second, third = [SessionRegistry(storage.store, bus) for storage in storages]
    try:
        await asyncio.gather(*(one.ensure_open(ME) for one in (first, second) * 3))
        await asyncio.gather(
            first.close(ME, "one"), second.close(ME, "other"), first.ensure_open(Identity("acme", "ann", "s2"))
        )
        assert recorder.types.count("session.opened") == 2
        assert recorder.types.count("session.closed") == 1
        assert [session.id for session in await third.list(who=ME)] == ["s2"]
    finally:
        for storage in storages:
            await storage.aclose()
