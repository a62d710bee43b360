"""`POST /v1/dev/bootstrap.json`: an admin token for a page on this machine alone.

A token is given away without a password here, so every sign of a stranger is a refusal: a peer on another machine, a
page of another origin, a name that was rebound to this machine, a proxy in between.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from harborage.protocol.errors import ErrorBody
from harborage.protocol.methods import PROTOCOL_VERSION
from harborage.server.auth.keys import is_loopback
from harborage.server.auth.minting import DEV_IDENTITY, DEV_SCOPES, sign_development_token
from harborage.server.http import host_name, json_response

if TYPE_CHECKING:
    from harborage.server.auth.minting import TokenMint

BOOTSTRAP_PATH: Final = "/v1/dev/bootstrap.json"

_VERBS: Final = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_OF_PROXIES: Final = frozenset({"forwarded", "via", "x-real-ip"})
_NOT_KEPT: Final = {"Cache-Control": "no-store"}
_log: Final = logging.getLogger("harborage.server.auth")


class _Identity(msgspec.Struct, frozen=True):
    tenant: str = DEV_IDENTITY.tenant_id
    user: str = DEV_IDENTITY.user_id
    session: str = DEV_IDENTITY.session_id


class BootstrapAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a page needs to connect. `base_url` is the origin under which its browser reached the server."""

    base_url: str
    token: str
    identity: _Identity = _Identity()
    scopes: tuple[str, ...] = DEV_SCOPES
    protocol_version: str = PROTOCOL_VERSION


def bootstrap_route(mint: TokenMint) -> Route:
    """Return the route that gives out tokens of `mint`, for a development server."""

    async def answer(request: Request) -> Response:
        if request.method != "POST":
            return _refused(405, "method_not_allowed", "use POST", {"Allow": "POST"})
        if why := stranger(request):
            return _refused(403, "forbidden", why)
        try:
            token = sign_development_token(mint)
        except Exception as error:  # noqa: BLE001 - whatever a key raises is answered, and nothing of it shown
            _log.error("a development token could not be signed: %s", type(error).__name__)
            return _refused(500, "internal", "the token could not be signed; the server's log says why")
        base_url = f"{request.url.scheme}://{request.headers['host']}"
        return json_response(BootstrapAnswer(base_url=base_url, token=token), headers=_NOT_KEPT)

    return Route(BOOTSTRAP_PATH, answer, methods=_VERBS)


def stranger(request: Request) -> str:
    """Return why a request is not from a page of this server on this machine; '' if it is."""
    if request.client is None or not is_loopback(request.client.host):
        return "a development token is for clients on this machine alone"
    if any(name in _OF_PROXIES or name.startswith("x-forwarded-") for name in request.headers):
        return "the request came through a proxy; call the server itself"
    hosts = request.headers.getlist("host")
    if len(hosts) != 1 or not is_loopback(host_name(hosts[0])):
        return "the server was not called by the name localhost or a loopback address"
    origins = request.headers.getlist("origin")
    if any(origin.lower() != f"{request.url.scheme}://{hosts[0]}".lower() for origin in origins):
        return "the request came from a page of another origin"
    return ""


def _refused(status: int, code: str, message: str, headers: dict[str, str] = {}) -> Response:  # noqa: B006 - not changed
    return json_response(ErrorBody(code, message), status, {**_NOT_KEPT, **headers})
