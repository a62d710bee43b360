"""The journal that tells what is written to it."""

from __future__ import annotations

import pytest

from harborage.cli.recording import WatchedJournal
from harborage.runtime.journal import MemoryJournal

pytestmark = pytest.mark.anyio


async def test_entries_are_kept_and_told() -> None:
    """What is appended is kept by the inner journal before the listener hears of it."""
    inner = MemoryJournal()
    told: list[tuple[str, list[bytes]]] = []
    journal = WatchedJournal(inner, lambda run, entries: told.append((run, list(entries))))
    await journal.append("a", [b"1", b"2"])
    await journal.append("b", [b"3"])
    assert told == [("a", [b"1", b"2"]), ("b", [b"3"])]
    assert await inner.read("a") == await journal.read("a") == [b"1", b"2"]
    assert await journal.runs() == ["a", "b"]
    await journal.forget("a")
    assert await inner.runs() == ["b"]
