"""`Server`: the routes of the protocol over one open runtime, as an ASGI application."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from starlette._utils import get_route_path
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, request_response

from harborage.clock import SYSTEM_CLOCK, SharedTimers, Timers
from harborage.events import REDACTOR_DRIVERS, BusClosedError
from harborage.ids import new_id
from harborage.protocol.methods import ALL_METHODS, METHODS
from harborage.runtime.durable.engine import RuntimeClosedError
from harborage.server.a2a.routes import A2ARoutes
from harborage.server.ag_ui.routes import AgUiRoutes
from harborage.server.auth.gate import Gate, GateMissingError, TokenGate, mask_access_logs
from harborage.server.dispatch import Dispatcher
from harborage.server.edge import Edge
from harborage.server.families.table import ENDPOINTS
from harborage.server.flows import Flows, NoFlows
from harborage.server.http import json_response
from harborage.server.links import Links
from harborage.server.mcp_endpoint.routes import McpRoutes
from harborage.server.mcp_sources import SourceServers
from harborage.server.openai.routes import OpenAIRoutes
from harborage.server.services import Issuer, ServerOptions, Services
from harborage.server.signing import SigningKeys
from harborage.server.stream import Streams
from harborage.store import RunQuery

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from starlette.types import ASGIApp, Receive, Scope, Send

    from harborage.events import Event
    from harborage.runtime.effects.assembly import Assembly
    from harborage.runtime.host import Runtime
    from harborage.server.auth.keys import KeySet
    from harborage.server.mcp_servers import McpServers
    from harborage.state import StateStore

_NO_KEYS: Final = (
    'a server needs keys="keys.json", or HARBORAGE_KEYS: the public keys of those who sign tokens; '
    "for development: harborage token --new-key key.pem"
)
_FAMILIES: Final = sorted({method.path.split("/")[2] for method in ALL_METHODS.values()})
_VERBS: Final = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
_READY_WITHIN_S: Final = 5.0


def app(
    runtime: Runtime,
    *,
    keys: str | Path | KeySet = "",
    issuer: str = "",
    audience: str | Iterable[str] = (),
    options: ServerOptions = ServerOptions(),  # noqa: B008 - a frozen value
) -> Server:
    """Return a server over a runtime, as an ASGI application; the runtime must be open when requests come.

    `keys` are the public keys that tokens are signed with: a file or an address of a JWKS, or an open set; without them
    `HARBORAGE_KEYS` names them. `issuer` and `audience` are those that tokens must name, where they are given. A server
    with another way to know its callers is made as `Server(runtime, gate=…)`.

    Raises:
        GateMissingError: there are no keys, so no request could be let in.
        KeySetError: the address of the keys cannot be used.
    """
    from harborage.server.auth.keys import FileKeys, UrlKeys  # with the library of signatures, which only this needs
    from harborage.server.auth.tokens import TokenVerifier

    source = keys or os.environ.get("HARBORAGE_KEYS", "").strip()
    if not source:
        raise GateMissingError(_NO_KEYS)
    if isinstance(source, str | Path):
        source = UrlKeys(str(source)) if "://" in str(source) else FileKeys(source)
    redactor = REDACTOR_DRIVERS.factory(runtime.options.redactor)()
    verifier = TokenVerifier(source, issuer=issuer, audience=audience)
    return Server(runtime, gate=TokenGate(verifier, redactor=redactor, bus=_BusOf(runtime)), options=options)


Extension: TypeAlias = Callable[[Services, Gate], Iterable[BaseRoute]]
"""Makes routes of its own over the parts of a server, whose gate says who sends each request."""


class _BusOf:
    """The bus of a runtime that may not be open yet."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def publish_nowait(self, event: Event) -> Event:
        """Publish an event.

        Raises:
            BusClosedError: the runtime is not open.
        """
        try:
            return self._runtime.bus.publish_nowait(event)
        except RuntimeClosedError as error:
            raise BusClosedError() from error


class Server:
    """Serves an open runtime: `uvicorn.run(Server(runtime, gate=…))`, or mounted in another application.

    `gate` verifies who sends each request; there is no default. `issuer` signs rotated tokens; without one there is no
    rotation. `mcp` answers for MCP connections, by default those of the runtime's agents, `flows` for flows, by default
    none. `routes` are added
    before the server's own, and so are those that `extensions` make; `fallback` answers whatever is on no route.

    Raises:
        GateMissingError: there is no gate.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        gate: Gate | None = None,
        options: ServerOptions = ServerOptions(),  # noqa: B008 - a frozen value
        issuer: Issuer | None = None,
        mcp: McpServers | None = None,
        flows: Flows | None = None,
        routes: Iterable[BaseRoute] = (),
        extensions: Iterable[Extension] = (),
        fallback: Callable[[Request], Awaitable[Response]] | None = None,
        clock: Timers = SYSTEM_CLOCK,
        logger: logging.Logger | None = None,
    ) -> None:
        if gate is None:
            raise GateMissingError()
        mask_access_logs()
        self.services = Services(
            runtime=runtime,
            options=options,
            clock=clock,
            timeouts=SharedTimers(clock),
            started_at=clock.now(),
            instance_id=new_id(),
            issuer=issuer,
            keys=SigningKeys(self._state, clock),
            mcp=SourceServers(self._parts, clock) if mcp is None else mcp,
            flows=NoFlows() if flows is None else flows,
            logger=logging.getLogger("harborage.server") if logger is None else logger,
        )
        self.gate = gate
        self._is_draining = False
        self.streams = Streams(self.services, gate)
        self.openai = OpenAIRoutes(self.services, gate)
        self.ag_ui = AgUiRoutes(self.services, gate)
        self.a2a = A2ARoutes(self.services, gate)
        self._document: Response | None = None
        self._dispatcher = Dispatcher(self.services, gate, ENDPOINTS)
        extended = [route for make in extensions for route in make(self.services, gate)]
        self._others = Starlette(routes=[*routes, *extended, *self._routes()])
        if fallback is not None:
            # Not a last route: that would answer the wrong verbs of the others, too, which are theirs to refuse.
            self._others.router.default = request_response(fallback)
            self._others.router.redirect_slashes = False
        self.edge = Edge(self._route, options)

    def _state(self) -> StateStore:
        return self.services.parts.state

    def _parts(self) -> Assembly:
        return self.services.parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.edge(scope, receive, send)

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Give the methods to the dispatcher at once: most requests are theirs, and a table finds them faster."""
        is_method = (
            scope["type"] == "http" and scope["method"] == "POST" and self._dispatcher.knows(get_route_path(scope))
        )
        await (self._dispatcher if is_method else self._others)(scope, receive, send)

    def drain(self) -> None:
        """Say on `/readyz` that the server is stopping, and end the open streams, each with a whole frame, and requests
        that wait for a run.

        So no new work is sent to it; running work goes on, and clients connect again to its successor.
        """
        self._is_draining = True
        self.edge.drain()
        self.streams.drain()
        self.openai.drain()
        self.ag_ui.drain()
        self.a2a.drain()

    def _routes(self) -> list[BaseRoute]:
        families = [Route(f"/v1/{family}/{{verb:path}}", _Posted(self._dispatcher)) for family in _FAMILIES]
        return [
            Route("/healthz", self._health, methods=[*_VERBS, "OPTIONS", "TRACE"]),
            Route("/readyz", self._ready, methods=_VERBS),
            Route(METHODS["events.subscribe"].path, self.streams),
            Route("/v1/openapi.json", self._openapi, methods=["GET"]),
            *self.openai.routes(),
            *self.ag_ui.routes(),
            *self.a2a.routes(),
            *McpRoutes(self.services, self.gate).routes(),
            *families,
            Links(self.services).route(),
        ]

    async def _health(self, _: Request) -> Response:
        return json_response({"status": "ok", "subcommand": self.services.options.subcommand})

    async def _openapi(self, _: Request) -> Response:
        """Answer the document of the methods that this server offers, with the shapes of their messages."""
        if self._document is None:
            from harborage import __version__
            from harborage.protocol.openapi import Shapes, document
            from harborage.server.a2a import description as a2a
            from harborage.server.ag_ui import description as ag_ui
            from harborage.server.mcp_endpoint import description as mcp
            from harborage.server.openai import description as openai

            shapes = {
                name: Shapes(endpoint.request, endpoint.answer)
                for name, endpoint in ENDPOINTS.items()
                if endpoint.is_offered(self.services)
            }
            title = self.services.options.display_name or "Harborage"
            others = {**openai.PATHS, **ag_ui.PATHS, **mcp.PATHS, **a2a.PATHS}
            made = document(shapes, ALL_METHODS.values(), title=title, version=__version__, others=others)
            self._document = json_response(made)
        return self._document

    async def _ready(self, _: Request) -> Response:
        """Answer whether requests may be sent here: not before the store answers, not while the server stops."""
        if self._is_draining:
            return json_response({"status": "draining"}, 503)
        try:
            async with asyncio.timeout(_READY_WITHIN_S):
                await self.services.parts.store.runs(RunQuery(tenant=self.services.instance_id, limit=1))
        except Exception as error:  # noqa: BLE001 - whatever the store raises, it does not answer
            self.services.logger.warning("the store does not answer: %s", type(error).__name__)
            return json_response({"status": "starting"}, 503)
        return json_response({"status": "ready"})


class _Posted:
    """Gives a POST to an application, and refuses every other verb."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            await self._app(scope, receive, send)
        else:
            await PlainTextResponse("Method Not Allowed", 405, {"Allow": "POST"})(scope, receive, send)
