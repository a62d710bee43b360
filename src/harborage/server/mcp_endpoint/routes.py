"""`/mcp`: the MCP server over streamable HTTP, for whoever the bearer token names.

Each request stands alone, so that any server over the same storage answers the next one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.routing import Route

from harborage.protocol.errors import Code, ProtocolError
from harborage.server.http import json_response
from harborage.server.mcp_endpoint.speaking import INSTALL, Spoken

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from harborage.server.auth.gate import Gate
    from harborage.server.services import Caller, Services

_SESSION: Final = b"x-harbor-session"
_MAX_BODY: Final = 4 * 1024 * 1024
_REFUSED: Final = -32001
_INTERNAL: Final = -32603


class McpRoutes:
    """Serves `/mcp`; errors are those of JSON-RPC."""

    def __init__(self, services: Services, gate: Gate) -> None:
        self._services = services
        self._gate = gate

    def routes(self) -> list[Route]:
        """The routes, for a server."""
        return [Route("/mcp", self)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            caller = await self._verify(scope)
        except ProtocolError as error:
            headers = {"www-authenticate": "Bearer"} if error.status == 401 else {}
            await _error(error.status, _REFUSED, error.body.message, headers)(scope, receive, send)
            return
        try:
            spoken = Spoken(self._services.runtime, caller.who, self._services.logger)
            module: Any = import_module("mcp.server.streamable_http_manager")
        except ImportError:
            await _error(501, _INTERNAL, INSTALL)(scope, receive, send)
            return
        manager = module.StreamableHTTPSessionManager(spoken.server, stateless=True, max_request_body_size=_MAX_BODY)
        async with manager.run():
            await manager.handle_request(scope, receive, send)

    async def _verify(self, scope: Scope) -> Caller:
        """Return who sends a request.

        Raises:
            ProtocolError: nobody who may.
        """
        request = Request(scope)
        try:
            return await self._gate.verify(request)
        except ProtocolError as error:
            has_token, has_session = "authorization" in request.headers, request.headers.get("x-harbor-session")
            if error.body.code is not Code.IDENTITY_REQUIRED or not has_token or has_session:
                raise
        return await self._gate.verify(Request(_with_session(scope)))


def _error(status: int, code: int, message: str, headers: dict[str, str] | None = None) -> Any:
    return json_response({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}, status, headers)


def _with_session(scope: Scope) -> Scope:
    """Return a request that names a session: a client whose token and headers name none has this one."""
    return {**scope, "headers": [*scope["headers"], (_SESSION, b"mcp")]}
