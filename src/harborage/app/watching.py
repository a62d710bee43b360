"""Which files of some folders have changed: looked at by their times, so that it works on every kind of disk."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harborage.clock import sleep

if TYPE_CHECKING:
    from harborage.clock import Timers

_LOOK_S: Final = 0.25
"""How often the folders are looked at, and how long they must be quiet."""

_MOST_FILES: Final = 5_000
_KINDS: Final = (".py", ".yaml", ".yml", ".json", ".toml", ".md", ".txt")
_LEFT_OUT: Final = frozenset({"__pycache__", "node_modules", "venv", "site-packages"})

Stamp = tuple[int, int]
"""When a file was last written, in nanoseconds, and its size in bytes."""


def snapshot(roots: Iterable[Path]) -> Mapping[Path, Stamp]:
    """Return the files below `roots` that a program is made of; a root may be a file, and one that is missing is none.

    Hidden folders, virtual environments and databases are left out, and whatever comes behind 5,000 files.
    """
    found: dict[Path, Stamp] = {}
    for path in _files(roots):
        try:
            status = path.stat()
        except OSError:
            continue  # it has just been removed
        found[path] = (status.st_mtime_ns, status.st_size)
        if len(found) >= _MOST_FILES:
            break
    return found


def _files(roots: Iterable[Path]) -> Iterator[Path]:
    for root in roots:
        if root.is_file():
            yield root
            continue
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _LEFT_OUT)
            yield from (Path(folder, name) for name in sorted(names) if name.endswith(_KINDS))


def changed(before: Mapping[Path, Stamp], after: Mapping[Path, Stamp]) -> list[Path]:
    """Return the files that were written, added or removed."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


async def changes(roots: Iterable[Path], clock: Timers) -> AsyncIterator[list[Path]]:
    """Yield the files that have changed, each time after nothing more has for a quarter of a second; never ends."""
    roots = tuple(roots)
    seen = await asyncio.to_thread(snapshot, roots)
    while True:
        await sleep(clock, _LOOK_S)
        now = await asyncio.to_thread(snapshot, roots)
        if now == seen:
            continue
        while now != (later := await _later(roots, clock)):
            now = later
        yield changed(seen, now)
        seen = now


async def _later(roots: tuple[Path, ...], clock: Timers) -> Mapping[Path, Stamp]:
    await sleep(clock, _LOOK_S)
    return await asyncio.to_thread(snapshot, roots)
