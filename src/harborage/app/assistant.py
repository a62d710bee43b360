"""The assistant that answers when a command line names no agent: a model with the standard tools over one folder.

An agent like any other, and short enough to be copied as the start of one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from harborage.app.agent import Agent, file_preview
from harborage.runtime.approval import AlwaysDeny, ApprovalRequest
from harborage.runtime.effects.options import RuntimeOptions

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
