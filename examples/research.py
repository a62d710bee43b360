"""A research agent: it reads a folder and the web, hands sub-questions to background tasks, and proves what it quotes.

    harborage run examples/research.py "When can a boat that draws 2.5 m leave Sund on 3 May?"

asks the model that this machine has; `--model script:examples/research.json` plays that question offline. The model
decides. What makes it research and not talk are the instructions, and a tool that will not lend its name to a quotation
that is not there.
"""

from __future__ import annotations

import re
from pathlib import Path

from harborage import Agent, HarborageError, RuntimeOptions, SideEffect, tool
from harborage.tools.standard import calculator, file_tools, http_get

INSTRUCTIONS = """\
You research a question in the files of a folder and, where these do not say it, on the web.
- First find out what there is: list and search the files before you read them.
- Where a question has parts that do not need each other, start a background sub-task for each but one, with a query
  that is complete in itself; work on the last part meanwhile; then wait for the sub-tasks and use what they found.
- Every statement in the answer rests on a source. Prove each quotation from a file with `quote` and cite the place it
  returns, as [path:line]; cite a page as [address]. What no source says, say that you did not find.
- The answer is short: what was asked first, then the reasons, each with its source."""


class NotFoundInSourceError(HarborageError):
    """A source does not hold the words that were to be quoted from it."""


def researcher(folder: Path) -> Agent:
    """An agent that researches in the files below `folder` and on the web, and changes nothing."""
    root = folder.resolve()

    @tool(effects=SideEffect.READ)
    def quote(path: str, words: str) -> dict[str, str]:
        """Prove a quotation: the place of these very words in a file, and the line around them.

        Args:
            path: the file, relative to the root
            words: what it says, word for word; how it is broken into lines does not matter
        """
        file = (root / path).resolve()
        if not file.is_relative_to(root) or not file.is_file():
            raise NotFoundInSourceError(f"there is no file {path} in the folder")
        text = file.read_text("utf-8", "replace")
        found = re.search(r"\s+".join(map(re.escape, words.split())), text) if words.strip() else None
        if found is None:
            raise NotFoundInSourceError(f"{path} does not say that; read it again and quote it word for word")
        number = text.count("\n", 0, found.start()) + 1
        return {"source": f"{path}:{number}", "line": text.splitlines()[number - 1].strip()}

    return Agent(
        name="research",
        description="Researches a question in files and on the web, with sources",
        instructions=INSTRUCTIONS,
        tools=[*file_tools(root, can_write=False), http_get(), calculator(), quote],
        options=RuntimeOptions(max_steps=40, max_spawn_depth=1, built_in=("artifact_fetch",)),
    )


def agent() -> Agent:
    """Research in the folder you stand in."""
    return researcher(Path.cwd())
