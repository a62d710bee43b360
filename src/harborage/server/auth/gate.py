"""Who sends a request: the token in its header, and the session that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from starlette.requests import Request

    from harborage.server.services import Caller


class Gate(Protocol):
    """Verifies requests."""

    async def verify(self, request: Request, *, allows_query: bool = False) -> Caller:
        """Return who sends a request. With `allows_query` a token and a session may stand in its query.

        Raises:
            ProtocolError: `identity_required` or `auth_rejected`.
        """
        ...
