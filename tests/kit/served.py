"""A runtime that is served on a real socket, and clients of it with tokens that nobody verifies."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request

from harborage.client import RemoteRuntime
from harborage.client.connection import Connection, Patience
from harborage.identity import Identity
from harborage.protocol.errors import Code, ProtocolError
from harborage.protocol.methods import TokenScope
from harborage.server.application import Server
from harborage.server.services import Caller, ServerOptions
from tests.kit.sockets import serving
from tests.kit.wire import ADA

if TYPE_CHECKING:
    from harborage.runtime.host import Runtime

QUICK = Patience(first_pause=0.002, longest_pause=0.02, total=20, stream_idle=5)


def token_of(who: Identity, *scopes: str) -> str:
    """A token whose claims name a caller."""
    claims = {"tenant": who.tenant_id, "user": who.user_id, "session": who.session_id, "scopes": list(scopes)}
    return f"x.{base64.urlsafe_b64encode(msgspec.json.encode(claims)).decode().rstrip('=')}.x"


class ClaimsGate:
    """Takes the caller from the claims of a token, for tests whose subject is not its signature."""

    async def verify(self, request: Request, *, allows_query: bool = False) -> Caller:
        """Return who sends a request."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or token.count(".") != 2:
            raise ProtocolError(Code.IDENTITY_REQUIRED, "jwt rejected: token_missing")
        middle = token.split(".")[1]
        claims = msgspec.json.decode(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
        session = request.headers.get("x-harbor-session", "").strip() or claims["session"]
        scopes = tuple(claims["scopes"])
        return Caller(Identity(claims["tenant"], claims["user"], session), frozenset(map(TokenScope, scopes)), scopes)


@asynccontextmanager
async def served(runtime: Runtime, **options: Any) -> AsyncIterator[str]:
    """Serve an open runtime; gives the url."""
    async with serving(Server(runtime, gate=ClaimsGate(), options=ServerOptions(**options))) as url:
        yield url


@asynccontextmanager
async def client_of(
    url: str, who: Identity = ADA, *scopes: str, patience: Patience = QUICK
) -> AsyncIterator[RemoteRuntime]:
    """A client of a server, as this caller."""
    async with RemoteRuntime(Connection(url, token=token_of(who, *scopes), patience=patience)) as remote:
        yield remote
