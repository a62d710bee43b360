"""What serves a request: the options of a server, the parts that all families share, and one verified call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from starlette.requests import Request

from harborage.errors import InvalidOptionError, at_least, names_of
from harborage.events import AdminActionPayload, Event, EventType, Triple
from harborage.identity import Identity
from harborage.protocol.errors import Code, ProtocolError
from harborage.protocol.methods import Method, TokenScope
from harborage.protocol.wire.common import IdentityScope
from harborage.server.flows import Flows, NoFlows
from harborage.server.http import own_address, until_gone
from harborage.server.mcp_servers import McpServers, NoMcpServers

if TYPE_CHECKING:
    from datetime import datetime

    from harborage.clock import Timers
    from harborage.runtime.effects.assembly import Assembly
    from harborage.runtime.host import Runtime
    from harborage.server.signing import SigningKeys

MAX_REPLAYS: Final = 2
MAX_ARTIFACT_BYTES: Final = 4 * 1024 * 1024


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a server behaves. Sizes are in bytes, intervals and timeouts in seconds.

    `origins` are those whose pages may call it from a browser; `any_origin` is for development alone. `base_url` is
    where clients reach it; empty takes the address of each request. `is_mock` says that no real model answers.
    `answer_timeout` is how long a request on the paths of OpenAI waits for a run; a stream, for each next thing of it.
    """

    origins: tuple[str, ...] = ()
    any_origin: bool = False
    base_url: str = ""
    display_name: str = ""
    subcommand: str = "serve"
    max_artifact_bytes: int = MAX_ARTIFACT_BYTES
    keepalive: float = 15
    body_timeout: float = 60
    answer_timeout: float = 570
    heavy_bytes: int = 32_768
    is_mock: bool = False

    def __post_init__(self) -> None:
        at_least(1, self.max_artifact_bytes, "max_artifact_bytes", is_whole=True)
        at_least(1, self.heavy_bytes, "heavy_bytes", is_whole=True)
        at_least(0.001, self.body_timeout, "body_timeout")
        at_least(0.001, self.answer_timeout, "answer_timeout")
        if not all(one.strip() for one in names_of(self.origins, "origins")):
            raise InvalidOptionError("origins", self.origins, "origins such as 'https://console.example'")


class Caller(msgspec.Struct, frozen=True):
    """Who sends a request, as a token proved it, and in which session: tenant, user, session, and the token's scopes.

    `raw_scopes` are the token's own words, which a rotated token copies. `trusts_body` says that nothing was verified,
    as in tests: then the identity of a body counts where a body may name one.
    """

    who: Identity
    scopes: frozenset[TokenScope] = frozenset()
    raw_scopes: tuple[str, ...] = ()
    trusts_body: bool = False

    def has(self, *scopes: TokenScope) -> bool:
        """Whether the token holds one of `scopes`."""
        return not self.scopes.isdisjoint(scopes)


class Issuer(Protocol):
    """Signs tokens; a server that knows only public keys has none."""

    def issue(self, caller: Caller) -> tuple[str, datetime]:
        """Return a new token of the same principal and scopes, and when it expires."""
        ...


class Services(msgspec.Struct, kw_only=True):
    """What all families of one server share. `runtime` is replaced when the served code is."""

    runtime: Runtime
    options: ServerOptions
    clock: Timers
    timeouts: Timers
    """For waits of one length that are nearly always called off, such as for the body of a request."""
    started_at: datetime
    instance_id: str
    issuer: Issuer | None = None
    keys: SigningKeys
    """Sign what the server gives out and takes back: links to artifacts, and questions in a chat."""
    mcp: McpServers = NoMcpServers()
    flows: Flows = NoFlows()
    replays: asyncio.Semaphore = msgspec.field(default_factory=lambda: asyncio.Semaphore(MAX_REPLAYS))
    """Lets a few runs be replayed at a time; the others wait."""
    logger: logging.Logger = logging.getLogger("harborage.server")

    @property
    def parts(self) -> Assembly:
        """The open parts of the runtime.

        Raises:
            RuntimeClosedError: it is not open.
        """
        return self.runtime.parts


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request whose sender and form were checked.

    `who` is the principal for whom it runs; `asked` is the identity that the body names, whose tenant may be a foreign
    one where the method's rule lets it pass on to a scope check. `actor` is the principal who impersonates `who`, None
    without impersonation. `request` is what was sent, its body already read; None for a call that no request made.
    """

    method: Method
    caller: Caller
    who: Identity
    services: Services
    asked: IdentityScope = IdentityScope()
    actor: Identity | None = None
    request: Request | None = None

    @property
    def base_url(self) -> str:
        """Where clients reach the server: as its options say, else scheme, host and path of this request."""
        if self.services.options.base_url or self.request is None:
            return self.services.options.base_url
        return own_address(self.request, self.services.options.origins)

    async def gone(self) -> None:
        """Return once the peer has closed its connection; it is awaited by one task at a time."""
        if self.request is None:
            await asyncio.Event().wait()
        else:
            await until_gone(self.request)

    @property
    def parts(self) -> Assembly:
        """The open parts of the runtime."""
        return self.services.parts

    @property
    def is_scoped(self) -> bool:
        """Whether the token may read beyond its own user."""
        return self.caller.has(TokenScope.ADMIN, TokenScope.CONSOLE_FLEET)

    @property
    def is_admin(self) -> bool:
        """Whether the token holds the scope `admin`."""
        return self.caller.has(TokenScope.ADMIN)

    def require(self, *scopes: TokenScope, code: Code = Code.SCOPE_MISMATCH) -> None:
        """Accept a token that holds one of `scopes`.

        Raises:
            ProtocolError: it holds none of them.
        """
        if not self.caller.has(*scopes):
            listed = " or ".join(map(str, scopes))
            raise ProtocolError(code, f"{self.method.name} needs a token with the scope {listed} for this")

    async def audit(self) -> None:
        """Publish that a scope was used to read beyond the caller's own tenant.

        Raises:
            EventError: the bus refused; a read that cannot be audited is not made.
        """
        payload = AdminActionPayload(Triple.of(self.caller.who), self.method.name)
        await self.parts.bus.publish(Event(EventType.AUDIT_ADMIN_SCOPE_USED, self.caller.who.with_run(""), payload))


Handler = Callable[[Call, Any], Awaitable[Any]]


class Endpoint(msgspec.Struct, frozen=True):
    """How one method is answered: the shape of its request, that of its answer, and what gives it.

    `run` checks in this order: scope, values, whether the thing is there, what the driver can. It raises ProtocolError.
    `is_offered` says whether this server has the method at all. `headers` are added to its answers.
    """

    request: type[msgspec.Struct]
    answer: type[msgspec.Struct]
    run: Handler
    is_offered: Callable[[Services], bool] = lambda _: True
    headers: Mapping[str, str] = {}


Endpoints = Mapping[str, Endpoint]
