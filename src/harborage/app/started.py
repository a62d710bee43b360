"""Which agents this user has started, and in which folder: kept in the user's own state folder, not with the runs.

A database may come from anywhere, with runs that name an agent's file beside it. Before such a file is executed, the
commands that read runs ask, unless this user has started that agent in that folder before.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

__all__ = ["agent_place", "is_started", "remember_started"]

_FILE: Final = "started-agents.jsonl"
_MOST: Final = 1000
_ASSISTANT: Final = "the standard assistant"


def agent_place(target: str, folder: Path) -> str:
    """What `target` names when it is given in `folder`: a whole path, a module, or the standard assistant for ""."""
    place = target.rpartition(":")[0] or target
    if place.endswith(".py"):
        return str((folder / place).resolve())
    return place or _ASSISTANT


def is_started(target: str, folder: Path, *, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this user has started that agent in that folder."""
    return _entry(target, folder) in _entries(_path(environ))


def remember_started(target: str, folder: Path, *, environ: Mapping[str, str] = os.environ) -> None:
    """Note that this user has started that agent in that folder. Where that cannot be noted, the user is asked later.

    The newest 1,000 are kept.
    """
    path, entry = _path(environ), _entry(target, folder)
    known = _entries(path)
    if entry in known:
        return
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.touch(mode=0o600)
        fresh.write_bytes(b"".join(one + b"\n" for one in [*known, entry][-_MOST:]))
        fresh.replace(path)


def _path(environ: Mapping[str, str]) -> Path:
    state = environ.get("XDG_STATE_HOME", "")
    return (Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state") / "harborage" / _FILE


def _entry(target: str, folder: Path) -> bytes:
    return msgspec.json.encode([agent_place(target, folder), str(folder.resolve())])


def _entries(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines()
    except OSError:
        return []
