"""The commands that ask a server and nothing else: where it is, whose token, and their errors in a fixed form.

Scripts know these commands by the codes of their errors: on stderr one line, or with --json an object with `error`,
`code` and `hint`. Every error is exit code 1.
"""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec
from cyclopts import Parameter

from harborage.cli.pinned import Json as Json
from harborage.cli.pinned import Quiet as Quiet
from harborage.cli.pinned import fail
from harborage.cli.storage import URL_VARIABLE, flag, run_interruptible
from harborage.errors import HarborageError

if TYPE_CHECKING:
    from harborage.cli.event_lines import WireEvent
    from harborage.client import RemoteRuntime
    from harborage.client.events import EventStream
    from harborage.identity import Identity

PATIENCE_S: Final = 3.0
DEFAULT_BIND: Final = "127.0.0.1:18080"
_IDENTITY: Final = "--tenant T --user U --session S"
_INTERRUPTED: Final = 130

Bind: TypeAlias = Annotated[
    str, Parameter(help="The server, as HOST:PORT or url.", show_default=f"{URL_VARIABLE}, else {DEFAULT_BIND}")
]
Tenant: TypeAlias = Annotated[str, Parameter(help="The tenant.", show_default="as the token says")]
User: TypeAlias = Annotated[str, Parameter(help="The user.", show_default="as the token says")]
Session: TypeAlias = Annotated[str, Parameter(help="The session.", show_default="as the token says")]
DebugErrors: TypeAlias = Annotated[bool, flag("Show the traceback of an error.")]


class PinnedError(HarborageError):
    """A command failed. `code` names the kind of failure for scripts, `hint` says what to do."""

    def __init__(self, code: str = "", message: str = "", hint: str = "") -> None:
        self.code = code
        self.hint = hint
        super().__init__(message)


class Codes(msgspec.Struct, frozen=True, kw_only=True):
    """The codes with which one command says what every such command may meet."""

    bind: str = "bind_invalid"
    token: str = "auth_required"
    identity: str = "identity_incomplete"
    connection: str = "stream_failed"
    refusal: str = "stream_failed"
    run: str = "run_not_found"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of a command: the server, and whose events; blank parts are those of the token."""

    bind: str = ""
    tenant: str = ""
    user: str = ""
    session: str = ""
    needs_identity: bool = False


def run_pinned(
    name: str, work: Callable[[], Coroutine[Any, Any, int]], codes: Codes, *, is_json: bool, debug: bool
) -> int:
    """Run a command's coroutine and return its exit code; an error is printed in the fixed form."""
    try:
        return run_interruptible(work)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:  # noqa: BLE001 - every error becomes one line
        if debug:
            sys.stderr.write("".join(traceback.format_exception(error)))
        found = _pinned(error, codes)
        return fail(name, " ".join(str(found).split()), found.code, hint=found.hint, is_json=is_json)


def _pinned(error: Exception, codes: Codes) -> PinnedError:
    from harborage.client import RemoteError, RemoteUnreachableError
    from harborage.runtime.durable.engine import RunNotFoundError

    if isinstance(error, PinnedError):
        return error
    if isinstance(error, RemoteUnreachableError):
        return PinnedError(codes.connection, str(error), "is a server running there? harborage serve")
    if isinstance(error, RunNotFoundError):
        return PinnedError(codes.run, str(error), "'harborage tasks' lists those there are")
    if isinstance(error, RemoteError) or isinstance(error.__cause__, RemoteError):
        return PinnedError(codes.refusal, str(error))
    text = str(error) if isinstance(error, HarborageError) else f"{type(error).__name__}: {error}"
    return PinnedError("internal_error", text)


def server_url(bind: str, code: str) -> str:
    """Return the url of a server that is named by HOST:PORT or by a url; "" is `HARBORAGE_URL`, else the usual port.

    Raises:
        PinnedError: it is neither.
    """
    from harborage.client.connection import checked_url
    from harborage.errors import InvalidOptionError

    asked = bind.strip() or os.environ.get(URL_VARIABLE, "").strip() or DEFAULT_BIND
    url = asked if "://" in asked else f"http://{asked}"
    try:
        if "://" not in asked and not asked.rpartition(":")[2].isdigit():
            raise InvalidOptionError("url", asked, "HOST:PORT")
        return checked_url(url)
    except InvalidOptionError as error:
        raise PinnedError(code, f"{asked!r} is no HOST:PORT and no url", f"example: --bind {DEFAULT_BIND}") from error


@asynccontextmanager
async def open_asked(
    asked: Asked, codes: Codes, *, patience_s: float = PATIENCE_S
) -> AsyncIterator[tuple[RemoteRuntime, Identity]]:
    """The server that was asked for, and whose events: those of the token where nothing else was said.

    A server that is gone is waited for up to `patience_s`.

    Raises:
        PinnedError: the server or the identity is incomplete, or there is no token.
    """
    from harborage.cli.server import TokenMissingError, read_token
    from harborage.client import Patience, connect
    from harborage.identity import Identity, IdentityRequiredError

    url = server_url(asked.bind, codes.bind)
    given = (asked.tenant.strip(), asked.user.strip(), asked.session.strip())
    if asked.needs_identity and not all(given):
        raise PinnedError(codes.identity, "a tenant, a user and a session are needed", _IDENTITY)
    try:
        token = read_token(os.environ, url)
    except TokenMissingError as error:
        raise PinnedError(
            codes.token, f"no token for {url}", "set HARBORAGE_TOKEN, or write ~/.harborage/token"
        ) from error
    names = zip(("X-Harbor-Tenant", "X-Harbor-User"), given, strict=False)
    async with connect(
        url, token=token, headers={name: value for name, value in names if value}, patience=Patience(total=patience_s)
    ) as remote:
        try:
            mine = await remote.identity(default_session="default")
        except IdentityRequiredError as error:
            if not all(given):
                raise PinnedError(codes.identity, str(error), _IDENTITY) from error
            mine = Identity(*given)
        tenant, user, session = given
        yield remote, Identity(tenant or mine.tenant_id, user or mine.user_id, session or mine.session_id)


async def watch(
    stream: EventStream, accept: Callable[[WireEvent, bytes], bool | None], *, idle_s: float | None, most_s: float
) -> None:
    """Give each event to `accept`, with the bytes of its JSON, until that returns True or the server is silent for
    `idle_s`; without, until the caller is interrupted. It ends after `most_s` in any case where `idle_s` is given."""
    from contextlib import aclosing

    from harborage.cli.event_lines import WireEvent
    from harborage.concurrency import Crew

    decoder = msgspec.json.Decoder(WireEvent)
    crew = Crew(lambda name, error: stream.end())
    if idle_s is not None:
        crew.start(_end_after(stream, idle_s, most_s), "end of the events")
    try:
        async with aclosing(stream.read()) as events:
            async for _ in events:
                if accept(decoder.decode(stream.data), stream.data):
                    return
    finally:
        await crew.aclose()


async def _end_after(stream: EventStream, idle_s: float, most_s: float) -> None:
    try:
        async with asyncio.timeout(most_s):
            await stream.opened.wait()
            await stream.end_when_quiet(idle_s)
    except TimeoutError:
        stream.end()
