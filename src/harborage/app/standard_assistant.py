"""The assistant that answers when a command line names no agent.

A model with the standard tools over one folder, and short enough to be copied as the start of another agent.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from harborage.app.agent import Agent, Change, Preview
from harborage.runtime.approval import AlwaysDeny, ApprovalRequest
from harborage.runtime.effects.options import RuntimeOptions

_MOST_BYTES: Final = 256 * 1024


def file_preview(root: Path) -> Preview:
    """Return the preview of the standard tool `write_file` below `root`, for existing text files."""

    async def preview(args: Mapping[str, Any]) -> Change | None:
        path, after = args.get("path"), args.get("content")
        if not isinstance(path, str) or not isinstance(after, str):
            return None
        before = await asyncio.to_thread(_text_of, root, path)
        if before is None:
            return None
        objection = "" if args.get("overwrite") is True else "the file exists, and `overwrite` is not set"
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


_INSTRUCTIONS: Final = (
    "Answer the question. Use a tool when it gives you a fact that you would otherwise have to guess; "
    "say so when the tools do not give it. Name the files and pages that an answer rests on."
)
_BEFORE_WRITING: Final = AlwaysDeny("it changes a file")
_BEFORE_SENDING: Final = AlwaysDeny("it sends this address, and any data in it, to another machine")


def assistant(root: Path) -> Agent:
    """An agent that reads, searches and writes files below `root`, calculates, tells the time and fetches web pages.

    It has no model of its own. A person is asked before it writes a file, reads one whose name says that it holds
    secrets, or fetches a page: the content of a file may have misled it.
    """
    from harborage.tools.standard import standard_tools

    return Agent(
        name="assistant",
        description="Answers questions with the standard tools",
        instructions=_INSTRUCTIONS,
        tools=standard_tools(root=root),
        approvals={"write_file": _BEFORE_WRITING, "read_file": _before_secrets, "http_get": _BEFORE_SENDING},
        previews={"write_file": file_preview(root)},
        options=RuntimeOptions(built_in=("artifact_fetch",)),
    )


class _Path(msgspec.Struct):
    path: str = ""


def _before_secrets(request: ApprovalRequest) -> tuple[bool, str]:
    """Ask before a file of secrets is read; arguments that cannot be read are refused by the tool itself."""
    from harborage.tools.standard import may_hold_secrets

    try:
        path = msgspec.json.decode(request.args, type=_Path).path
    except msgspec.DecodeError:
        return False, ""
    is_secret = may_hold_secrets(path)
    return is_secret, "files of this name usually hold secrets, and what is read goes to the model" if is_secret else ""
