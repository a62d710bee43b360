"""Whether a storage is in order: can it be opened and written, is what is in it whole, is there room for more.

It changes nothing but what opening a database changes: missing migrations are applied.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Final

import msgspec

from harborage.state.errors import DatabaseError
from harborage.state.storage import open_storage

__all__ = ["Finding", "check_storage"]

_MOST_FLAWS: Final = 5
_LITTLE_ROOM: Final = 100 * 1024 * 1024


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at: `what` is its name, `told` what was found, `is_well` whether that is in order."""

    what: str
    told: str
    is_well: bool = True


async def check_storage(url: str, path: Path | None) -> list[Finding]:
    """What is found of the storage that `url` names, a file at `path` if it is one; what is wrong says what to do."""
    try:
        storage = await open_storage(url)  # which checks place, file system, right to write, and migrations
    except DatabaseError as error:
        return [Finding(what="database", told=str(error), is_well=False)]
    await storage.aclose()
    if path is None:
        return [Finding(what="database", told="it answers, and its tables are those of this version")]
    return [*await _integrity(path), *_place(path)]


async def _integrity(path: Path) -> list[Finding]:
    """Whether what SQLite keeps is whole, by its own check of every page and index."""
    from harborage.state.sqlite import Database

    database = await Database.open(path)
    try:
        flaws: list[Any] = await database.read(lambda tx: tx.execute("PRAGMA integrity_check").fetchall())
    except DatabaseError as error:
        return [Finding(what="database", told=str(error), is_well=False)]
    finally:
        await database.aclose()
    said = [str(flaw[0]) for flaw in flaws]
    if said == ["ok"]:
        return [Finding(what="database", told=f"{path}: whole, its tables are those of this version")]
    shown = "; ".join(said[:_MOST_FLAWS])
    advice = "keep the file, and bring back a copy that is whole"
    return [Finding(what="database", told=f"{path}: damaged: {shown}; {advice}", is_well=False)]


def _place(path: Path) -> list[Finding]:
    folder = path.absolute().parent
    found = []
    room = shutil.disk_usage(folder).free
    if room < _LITTLE_ROOM:
        told = f"{room:,} bytes are left on the disk of {folder}; free some space"
        found.append(Finding(what="disk", told=told, is_well=False))
    if not os.access(folder, os.W_OK):
        told = f"{folder} may not be written, and SQLite needs that beside its file; give this user the right to"
        found.append(Finding(what="folder", told=told, is_well=False))
    return found
