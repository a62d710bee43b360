"""`harborage acp`: its options, and the two streams on which an editor talks with the agents.

Reading help must stay cheap, so everything that an editor needs is imported when there is one.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import stat
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from harborage.cli.storage import Debug, StorageUrl, WrongUseError, prepare_storage, run_command, storage_url
from harborage.errors import MissingExtraError

if TYPE_CHECKING:
    from harborage.runtime.host import Runtime
    from harborage.state.storage import Storage

_AGENTS = "The file or module with the agents, such as service.py; its Runtime([…]) if it has one, else all its agents."
_MODEL = "The model of agents that name none, such as openai:gpt-5."
_USER = "The user whose sessions these are."
_GRACE_S: Final = 1.0
_MOST_LINE: Final = 64 * 1024 * 1024


def acp(
    agents: Annotated[str, Parameter(help=_AGENTS, show_default="agent.py, else the standard assistant")] = "",
    /,
    *,
    model: Annotated[str, Parameter(help=_MODEL, show_default="what this machine has")] = "",
    user: Annotated[str, Parameter(help=_USER, show_default="the one who is signed in")] = "",
    storage: StorageUrl = "",
    debug: Debug = False,
) -> int:
    """Serve agents to an editor, over standard input and output.

    The editor starts this command, and speaks the Agent Client Protocol with it:
    every prompt is a run, calls that need approval are asked about in the editor,
    and a session that was closed can be opened again. Logs, and what agents print,
    go to standard error. When the editor closes the streams, or on SIGTERM, runs
    that have not ended are kept.

    Exit codes:
      0  the editor has closed the streams, or it was stopped
      1  it failed
      2  wrong use: no such agent, no pipes to talk over
    """
    return run_command(lambda: _serve(agents.strip(), model=model, user=user, storage=storage), debug=debug)


async def _serve(agents: str, *, model: str, user: str, storage: str) -> int:
    """Answer the editor until it closes the streams, or a signal comes."""
    from harborage.app.served import Program, default_target
    from harborage.cli.editor.agent import EditorAgent
    from harborage.cli.execution import signed_in_user
    from harborage.concurrency import Crew

    library = _library()
    reader, writer = await _streams()
    stopping = _stopped_by_signal()
    program = Program(agents or default_target(Path.cwd()), Path.cwd(), model=model, reads_attachments=True)
    await program.open(os.environ)
    async with AsyncExitStack() as stack:
        runtime = await _open(program.load(), storage, stack)
        crew = Crew(lambda name, error: _log.error("%s stopped", name, exc_info=error))
        stack.push_async_callback(runtime.aclose, grace=_GRACE_S)
        stack.push_async_callback(crew.aclose)
        editor = EditorAgent(runtime, library, user=user or signed_in_user())
        talking = crew.start(library.run_agent(editor, writer, reader), "the connection")
        waiting = crew.start(stopping.wait(), "stop")
        await asyncio.wait({talking, waiting}, return_when=asyncio.FIRST_COMPLETED)
    return 0


async def _open(runtime: Runtime, option: str, stack: AsyncExitStack) -> Runtime:
    """Open the runtime over the storage that the option names, else its own, else that of the folder."""
    from harborage.events import BUS_DRIVERS, REDACTOR_DRIVERS
    from harborage.state.storage import open_storage

    place: Storage | str = storage_url(option, os.environ)
    if not option.strip() and runtime.storage is not None:
        place = runtime.storage
    if isinstance(place, str):
        prepare_storage(place)
        place = await stack.enter_async_context(await open_storage(place))
    redactor = REDACTOR_DRIVERS.factory(runtime.options.redactor)()
    bus = BUS_DRIVERS.factory("durable")(store=place.store, redactor=redactor)
    stack.push_async_callback(bus.aclose)
    runtime.keep_in(place, bus)
    await runtime.__aenter__()
    return runtime


def _library() -> Any:
    """The library of the protocol.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        importlib.import_module("acp.schema")
        return importlib.import_module("acp")
    except ModuleNotFoundError as error:
        # A dependency that the library itself lacks is its own error, not a missing extra.
        if error.name is None or error.name.partition(".")[0] != "acp":
            raise
        raise MissingExtraError("acp", "harborage acp") from error


async def _streams() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Take standard input and output for the protocol alone: what else reads has no input, and prints go to stderr.

    Raises:
        WrongUseError: they are no pipes.
    """
    if not all(os.isatty(number) or _is_pipe(number) for number in (0, 1)):
        raise WrongUseError("standard input and output are no pipes; an editor starts this command")
    loop = asyncio.get_running_loop()
    sys.stdout.flush()
    taken, given = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    reader = asyncio.StreamReader(limit=_MOST_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), taken)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, given)
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)


def _is_pipe(number: int) -> bool:
    mode = os.fstat(number).st_mode
    return any(is_so(mode) for is_so in (stat.S_ISFIFO, stat.S_ISSOCK))


def _stopped_by_signal() -> asyncio.Event:
    """An event that is set by the first SIGINT or SIGTERM; the second ends the process at once."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    return stopping


_log = logging.getLogger("harborage.acp")
