"""`auth.rotate_token`: an admin gets a new token of the same principal and scopes."""

from __future__ import annotations

from typing import Final

from harborage.protocol.errors import Code, ProtocolError
from harborage.protocol.methods import TokenScope
from harborage.protocol.wire.common import Request
from harborage.protocol.wire.tokens import RotateTokenAnswer
from harborage.server.services import Call, Endpoint, Endpoints, Services


async def rotate_token(call: Call, asked: Request) -> RotateTokenAnswer:
    """Return a new token, once the audit of it is published."""
    call.require(TokenScope.ADMIN, code=Code.IDENTITY_SCOPE_REQUIRED)
    issuer = call.services.issuer
    if issuer is None:
        raise ProtocolError(Code.UNKNOWN_METHOD, "this server has no such method")
    await call.audit()
    token, expires_at = issuer.issue(call.caller)
    return RotateTokenAnswer(new_token=token, expires_at=expires_at)


def _has_issuer(services: Services) -> bool:
    return services.issuer is not None


ENDPOINTS: Final[Endpoints] = {
    "auth.rotate_token": Endpoint(
        Request, RotateTokenAnswer, rotate_token, _has_issuer, headers={"Cache-Control": "no-store"}
    )
}
