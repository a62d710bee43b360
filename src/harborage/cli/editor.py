"""Editing a text in the person's own editor, as `$VISUAL` or `$EDITOR` names it."""

from __future__ import annotations

import asyncio
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path

from harborage.errors import HarborageError

__all__ = ["EditorError", "edit_text", "editor_command"]


class EditorError(HarborageError):
    """The editor did not run, or said that it failed."""


def editor_command(environment: Mapping[str, str]) -> list[str]:
    """The words of the editor's command; empty when none is set."""
    for name in ("VISUAL", "EDITOR"):
        if environment.get(name, "").strip():
            return shlex.split(environment[name])
    return []


async def edit_text(command: list[str], text: str, *, suffix: str, stdin: int) -> str:
    """The text after it was edited; the editor reads its keys from `stdin`.

    Raises:
        EditorError: there is no such editor, or it ended with an error.
    """
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="harborage-", suffix=suffix) as draft:
        draft.write(f"{text}\n")
        draft.flush()
        await _run([*command, draft.name], stdin)
        return _read(draft.name)


def _read(name: str) -> str:
    # Opened anew: an editor may have put another file in the place of the one it was given.
    return Path(name).read_text("utf-8", "replace")


async def _run(command: list[str], stdin: int) -> None:
    try:
        process = await asyncio.create_subprocess_exec(*command, stdin=stdin)
    except OSError as error:
        raise EditorError(f"the editor {command[0]!r} did not start: {error.strerror or error}") from error
    code = await process.wait()
    if code:
        raise EditorError(f"the editor {command[0]!r} ended with code {code}; nothing was changed")
