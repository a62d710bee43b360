"""What a call would change, for the person who is asked to allow it: the text as it is, and as it would be.

A preview looks and touches nothing; it is a help for the eye, and what is allowed is the call with its arguments.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

__all__ = ["Change", "Preview", "file_preview"]

_MOST_BYTES: Final = 256 * 1024


class Change(msgspec.Struct, frozen=True):
    """One text before and after a call. `field` is the argument that `after` is, `objection` why the call will fail."""

    field: str
    before: str
    after: str
    objection: str = ""


Preview: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[Change | None]]
"""From a call's arguments to what it would change; None where there is nothing to compare with."""


def file_preview(root: Path) -> Preview:
    """The preview of the standard tool `write_file` below `root`, for files that are there and are text."""

    async def preview(args: Mapping[str, Any]) -> Change | None:
        path, after = args.get("path"), args.get("content")
        if not isinstance(path, str) or not isinstance(after, str):
            return None
        before = await asyncio.to_thread(_text_of, root, path)
        if before is None:
            return None
        objection = "" if args.get("overwrite") is True else "the file is there, and `overwrite` is not set"
        return Change("content", before, after, objection)

    return preview


def _text_of(root: Path, path: str) -> str | None:
    from harborage.tools.standard import StandardToolError
    from harborage.tools.standard.root import Root

    try:
        with Root(root).file(path) as (handle, size):
            return os.pread(handle, size, 0).decode() if size <= _MOST_BYTES else None
    except (StandardToolError, UnicodeDecodeError):
        return None
