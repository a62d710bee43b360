"""Requests and answers over HTTP: bodies under their cap and in time, JSON answers, refusals."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias
from urllib.parse import urlsplit

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from harborage.concurrency import CancelScope
from harborage.protocol.errors import Code, ProtocolError
from harborage.server.auth.keys import is_loopback

if TYPE_CHECKING:
    from starlette.types import Scope, Send

    from harborage.server.services import Services

JSON: Final = "application/json"
Headers: TypeAlias = Mapping[str, str]
NO_HEADERS: Final[Headers] = {}
CLOSE: Final[Headers] = {"connection": "close"}
"""Ends the connection behind the answer."""

_SESSION: Final = b"x-harbor-session"
_encoder: Final = msgspec.json.Encoder()


ARRIVING: Final = "harborage.arriving"
"""The key of a request's scope under which its `Arriving` is, where the server can be stopped meanwhile."""


class Arrivals:
    """The requests of one server whose bodies are on their way."""

    def __init__(self) -> None:
        self.waits: set[CancelScope] = set()
        self.is_over = False

    def stop(self) -> None:
        """Wait for none of them any longer."""
        self.is_over = True
        for wait in self.waits:
            wait.cancel()


class Arriving:
    """One request of them: `with arriving.counted(scope)` its body is waited for. `was_stopped` says that it was not
    waited for to its end."""

    __slots__ = ("_wait", "all", "was_stopped")

    def __init__(self, arrivals: Arrivals) -> None:
        self.all = arrivals
        self.was_stopped = False
        self._wait: CancelScope | None = None

    def counted(self, wait: CancelScope) -> Self:
        """Interrupt `wait` when the server stops."""
        self._wait = wait
        return self

    def __enter__(self) -> None:
        assert self._wait is not None
        self.all.waits.add(self._wait)
        if self.all.is_over:
            self._wait.cancel()

    def __exit__(self, *_: object) -> None:
        assert self._wait is not None
        self.all.waits.discard(self._wait)


class PeerTooSlowError(Exception):
    """A body did not arrive in time; the connection is closed."""


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return an answer with a JSON body."""
    return Response(_encoder.encode(value), status, headers, JSON)


def refusal(error: ProtocolError) -> Response:
    """Return the answer to a refused request."""
    return json_response(error.body, error.status)


async def send_json(send: Send, value: Any, status: int, headers: Headers) -> None:
    """Send an answer with a JSON body."""
    body = _encoder.encode(value)
    sent = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    sent += [(name.encode("latin-1"), text.encode("latin-1")) for name, text in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": body})


def header_values(scope: Scope, name: bytes) -> list[str]:
    """Return the values of a header of a request, as Latin-1; `name` is in lower case, as ASGI gives names."""
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


async def read_body(request: Request, cap: int, services: Services) -> bytes:
    """Return the body of a request, which arrives within the server's `body_timeout`; `cap` is in bytes.

    A body over its cap is not kept, but read on up to twice the cap, so that its sender reads the refusal.

    Raises:
        ProtocolError: `invalid_request`: it is over its cap.
        PeerTooSlowError: it did not arrive in time.
        ClientDisconnect: the peer is gone, or the server stops; then the edge answers.
    """
    for declared in header_values(request.scope, b"content-length"):
        if declared.isdigit() and int(declared) > 2 * cap:
            raise _too_long(cap)
    kept, seen, more = bytearray(), 0, True
    arriving: Arriving | None = request.scope.get(ARRIVING)
    if arriving is None:
        arriving = Arriving(Arrivals())
    with CancelScope(services.timeouts, services.options.body_timeout) as scope, arriving.counted(scope):
        while more:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect()
            part, more = message.get("body", b""), message.get("more_body", False)
            seen += len(part)
            if seen > 2 * cap:
                raise _too_long(cap)
            if seen <= cap:
                kept += part
    if scope.was_cancelled:
        arriving.was_stopped = arriving.all.is_over
        raise ClientDisconnect() if arriving.was_stopped else PeerTooSlowError()
    if seen > cap:
        raise _too_long(cap)
    return bytes(kept)


def with_session(request: Request, session: str) -> Request:
    """Return a request that names a session in its header, so that a token without one is enough; one that does so is
    left as it is."""
    headers: list[Any] = request.scope["headers"]
    if any(name == _SESSION for name, value in headers if value.strip()):
        return request
    named = [*headers, (_SESSION, session.encode("latin-1"))]
    return Request({**request.scope, "headers": named}, request.receive)


async def until_gone(request: Request) -> None:
    """Return once the peer of a request, whose body was read, has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _too_long(cap: int) -> ProtocolError:
    return ProtocolError(Code.INVALID_REQUEST, f"invalid request: the body is longer than {cap} bytes")


def host_name(host: str) -> str:
    """Return the name in a `Host` header, without its port; '' if it is no plain name and port."""
    try:
        parts = urlsplit(f"//{host}")
        name, _ = parts.hostname or "", parts.port  # a port that is none raises
    except ValueError:
        return ""
    is_plain = not (parts.path or parts.query or parts.fragment or parts.username is not None)
    return name if is_plain else ""


def own_address(request: Request, origins: Collection[str]) -> str:
    """Return where the caller reached this application: scheme, host, and the path under which it is mounted.

    The `Host` header counts where it names this machine, the address that was connected to, or one of `origins`: any
    other could make a link lead to a foreign site. Then it is the address that was connected to.
    """
    scope = request.scope
    hosts, scheme = request.headers.getlist("host"), scope["scheme"]
    connected = _connected(scope.get("server"))
    host = hosts[0] if len(hosts) == 1 else ""
    is_known = bool(name := host_name(host)) and (
        is_loopback(name) or host.lower() == connected or f"{scheme}://{host}".lower() in map(str.lower, origins)
    )
    address = host if is_known else connected
    return f"{scheme}://{address}{scope.get('root_path', '')}" if address else str(scope.get("root_path", ""))


def _connected(server: Any) -> str:
    """Return host and port of a connection's own end; '' where it is none of a network."""
    if not server or server[1] is None:
        return ""
    name, port = server
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
