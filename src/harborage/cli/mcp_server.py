"""`harborage mcp-server`: agents as the tools of the MCP client that starts it, over standard input and output.

Reading help must stay cheap, so everything that runs agents is imported when there is a client.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from harborage.cli.storage import Debug, WrongUseError, prepare_storage, run_command, storage_url

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from harborage.state.storage import Storage

_AGENTS: Final = "The file or module with the agents, such as service.py; its Runtime([…]) if it has one."
_SESSION: Final = "The session that the runs belong to."
_STORAGE: Final = "Where runs are kept: sqlite:FILE, postgres://…, or memory: for as long as the client stays."
_GRACE_S: Final = 0.2


def mcp_server(
    agents: Annotated[str, Parameter(help=_AGENTS, show_default="agent.py, else the standard assistant")] = "",
    /,
    *,
    session: Annotated[str, Parameter(help=_SESSION)] = "mcp",
    storage: Annotated[
        str, Parameter(help=_STORAGE, show_default="HARBORAGE_STORAGE, else .harborage/harborage.db")
    ] = "",
    model: Annotated[
        str, Parameter(help="The model of agents that name none.", show_default="what this machine has")
    ] = "",
    debug: Debug = False,
) -> int:
    """Offer agents to the MCP client that starts this command.

    It speaks over standard input and output, and ends when the client closes
    them. Runs belong to the user whose process this is; those that have not
    ended go on at the next start. It needs: pip install 'harborage[mcp]'.

    Exit codes:
      0    the client has left
      1    it failed
      2    wrong use: no such agent, the library is missing
    """

    def work() -> Coroutine[Any, Any, int]:
        return _speak(agents, session=session, storage=storage, model=model)

    return run_command(work, debug=debug)


async def _speak(agents: str, *, session: str, storage: str, model: str) -> int:
    from harborage.server.mcp_endpoint.speaking import INSTALL

    if not session.strip():
        raise WrongUseError("--session is empty; name the session that the runs belong to")
    try:
        stdio: Any = import_module("mcp.server.stdio")
    except ImportError as error:
        raise WrongUseError(INSTALL) from error
    # From here on the protocol alone has standard output; what the agents' file prints goes to standard error.
    async with stdio.stdio_server() as (reading, writing):
        await _serve(agents, session, storage, model, reading, writing)
    return 0


async def _serve(agents: str, session: str, storage: str, model: str, reading: Any, writing: Any) -> None:
    import logging

    from harborage.app.served import Program, default_target
    from harborage.app.site import Site
    from harborage.cli.execution import signed_in_user
    from harborage.identity import Identity
    from harborage.server.auth.gate import NoAuthGate
    from harborage.server.mcp_endpoint.speaking import Spoken
    from harborage.server.services import ServerOptions

    program = Program(agents or default_target(Path.cwd()), Path.cwd(), model=model)
    await program.open(os.environ)
    site = Site(
        program.load,
        storage_of=lambda runtime: _storage_for(storage, runtime.storage),
        make_gate=lambda redactor, bus: NoAuthGate(),  # nothing listens: there is no request to verify
        options=ServerOptions(subcommand="mcp-server"),
        grace=_GRACE_S,
    )
    async with site:
        who = Identity("local", signed_in_user(), session)
        server = Spoken(site.server.services.runtime, who, logging.getLogger("harborage.server")).server
        await server.run(reading, writing, server.create_initialization_options())


def _storage_for(option: str, of_runtime: Storage | str | None) -> Storage | str:
    """The storage that the option names, else that of the file's runtime, else the project's."""
    if not option.strip() and of_runtime is not None:
        return of_runtime
    url = storage_url(option, os.environ)
    prepare_storage(url)
    return url
