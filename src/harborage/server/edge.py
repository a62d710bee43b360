"""What every answer has, whatever gave it: the headers that browsers obey, and cross-origin answers.

It also answers requests that have not come in whole when the server stops.

A plain ASGI middleware, so that streams pass through it frame by frame.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, Final

from harborage.protocol.errors import Code, ErrorBody
from harborage.server.http import ARRIVING, CLOSE, Arrivals, Arriving, send_json

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from harborage.server.services import ServerOptions

_ALLOWED: Final = (
    (b"access-control-allow-credentials", b"true"),
    (b"access-control-allow-methods", b"GET, POST, PUT, DELETE, PATCH, OPTIONS"),
    (
        b"access-control-allow-headers",
        b"Authorization, Content-Type, Last-Event-ID, X-Harbor-Tenant, X-Harbor-User, X-Harbor-Session,"
        b" X-Harbor-Run, X-Harbor-Event-Type",
    ),
    (b"access-control-max-age", b"86400"),
)
_STOPPING: Final = ErrorBody(Code.RUNTIME_ERROR, "the server is stopping; send the request again")
_NOSNIFF: Final = (b"x-content-type-options", b"nosniff")


class Edge:
    """Wraps an application: adds the headers, and answers preflights itself."""

    def __init__(self, inner: ASGIApp, options: ServerOptions) -> None:
        self._inner = inner
        self._any = options.any_origin
        self._origins = frozenset(origin.strip() for origin in options.origins)
        self._arrivals = Arrivals()

    def drain(self) -> None:
        """Answer requests whose body is still on its way with 503, and close their connections."""
        self._arrivals.stop()

    def allow(self, origins: tuple[str, ...]) -> None:
        """Allow these origins from now on, in place of those before."""
        self._origins = frozenset(origin.strip() for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        headers = dict(scope["headers"])
        extra = [_NOSNIFF, *self._cross_origin(headers.get(b"origin"))]
        if scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
            await send({"type": "http.response.start", "status": 204, "headers": extra})
            await send({"type": "http.response.body", "body": b""})
            return

        arriving = scope[ARRIVING] = Arriving(self._arrivals)

        async def with_headers(message: Message) -> None:
            if arriving.was_stopped:
                return  # whatever it is, it answers a request that has not come
            if message["type"] == "http.response.start":
                _add(message, extra)
            await send(message)

        await self._inner(scope, receive, with_headers)
        if arriving.was_stopped:
            headers = {name.decode(): value.decode("latin-1") for name, value in extra}
            await send_json(send, _STOPPING, 503, {**CLOSE, **headers})

    def _cross_origin(self, origin: bytes | None) -> list[tuple[bytes, bytes]]:
        if origin is None:
            return []
        vary = (b"vary", b"Origin")
        if not self._any and origin.decode("latin-1") not in self._origins:
            return [vary]
        return [vary, (b"access-control-allow-origin", origin), *_ALLOWED]


def _add(message: MutableMapping[str, Any], extra: list[tuple[bytes, bytes]]) -> None:
    given = list(message.get("headers", ()))
    names = {name.lower() for name, _ in given}
    message["headers"] = [*given, *((name, value) for name, value in extra if name == b"vary" or name not in names)]
