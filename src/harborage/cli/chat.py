"""`harborage chat`: its options, checked and passed on.

Reading help must stay cheap, so everything that a conversation needs is imported when there is one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from harborage.cli.storage import Debug, ServerUrl, StorageUrl, WrongUseError, flag, local_place

_AGENT = "The agent: a file such as agent.py, or a module such as package.agent, either with :NAME."
_MODEL = "The model, such as openai:gpt-5, ollama:qwen3, or local: for the embedded one."
_SESSION = "The conversation to go on with; a new name begins a new one."


def chat(
    agent: Annotated[str, Parameter(help=_AGENT, show_default="agent.py if it is there, else the assistant")] = "",
    /,
    *,
    session: Annotated[str, Parameter(help=_SESSION, show_default="a new one")] = "",
    go_on: Annotated[bool, Parameter(name="--continue", help="Go on with the last conversation.", negative="")] = False,
    model: Annotated[str, Parameter(help=_MODEL, show_default="what this machine has")] = "",
    yes: Annotated[bool, flag("Approve every call that needs approval.")] = False,
    user: Annotated[str, Parameter(help="The user who talks.", show_default="the one who is signed in")] = "",
    json: Annotated[
        bool, flag("Print events as JSON, one a line; each answer ends with a line of the type result.")
    ] = False,
    quiet: Annotated[bool, flag("Print only the answers.")] = False,
    storage: StorageUrl = "",
    url: ServerUrl = "",
    debug: Debug = False,
) -> int:
    """Talk with an agent, in this terminal.

    Every message is a run of the agent that knows what was said before. What you
    type while it answers is sent to the agent, too. Alt-Enter, or a backslash
    before Enter, breaks the line; /help lists what else you can type. Ctrl-C
    cancels the answer; Ctrl-D leaves, and the conversation is kept.

    Without a terminal every line of standard input is a message, and the answers
    go to standard output.

    Exit codes:
      0  the conversation was left, or its messages are answered
      1  an answer failed, for messages from standard input
      2  wrong use: no such agent, no last conversation
      5  not over: an answer waits for a person or a provider
    """
    if session and go_on:
        sys.stderr.write("harborage: --session and --continue both name a conversation; give one of them\n")
        return 2
    try:
        place = local_place(storage, url, os.environ, command="chat", why="executes the agent in this terminal")
    except WrongUseError as error:
        sys.stderr.write(f"harborage: {error}\n")
        return 2
    from harborage.cli.chat_loop import ChatOptions, hold_chat
    from harborage.cli.output import Style

    options = ChatOptions(
        target=agent.strip() or ("agent.py" if Path("agent.py").is_file() else ""),
        storage=place,
        session=session.strip(),
        goes_on=go_on,
        model=model,
        approves=yes,
        user=user,
    )
    return hold_chat(options, Style(is_json=json, is_quiet=quiet, has_tracebacks=debug))
