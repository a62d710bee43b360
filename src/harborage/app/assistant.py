"""The assistant that answers when a command line names no agent: a model with the standard tools over one folder.

An agent like any other, and short enough to be copied as the start of one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harborage.app.agent import Agent
from harborage.app.preview import file_preview
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.options import RuntimeOptions

__all__ = ["assistant"]

_INSTRUCTIONS: Final = (
    "Answer the question. Use a tool when it gives you a fact that you would otherwise have to guess; "
    "say so when the tools do not give it. Name the files and pages that an answer rests on."
)
_ASKS_FIRST: Final = AlwaysDeny("it changes a file")


def assistant(root: Path) -> Agent:
    """An agent that reads, searches and writes files below `root`, calculates, tells the time and fetches web pages.

    It has no model of its own; each file that it would write is put to a person first.
    """
    from harborage.tools.standard import standard_tools

    return Agent(
        name="assistant",
        description="Answers questions with the standard tools",
        instructions=_INSTRUCTIONS,
        tools=standard_tools(root=root),
        approvals={"write_file": _ASKS_FIRST},
        previews={"write_file": file_preview(root)},
        options=RuntimeOptions(built_in=("artifact_fetch",)),
    )
