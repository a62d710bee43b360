"""A server for tests of programs that speak the protocol: `async with serve(runtime) as served: …`.

It is the whole server on a real socket of this machine, with tokens of a key that it makes; needs no configuration.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from harborage.concurrency import Crew
from harborage.events.redaction import default_redactor
from harborage.server.application import Server
from harborage.server.auth.gate import TokenGate
from harborage.server.auth.minting import TokenMint, development_mint, verifier_of
from harborage.server.listening import Address, Listener, bound_address, listen
from harborage.server.services import ServerOptions
from harborage.testing.runs import TEST_IDENTITY

if TYPE_CHECKING:
    from harborage.client import RemoteRuntime
    from harborage.identity import Identity
    from harborage.runtime.host import Runtime

_FREE: Final = Address("127.0.0.1", 0)
_GRACE_S: Final = 1.0
logger = logging.getLogger(__name__)


class TestServer(msgspec.Struct, frozen=True):
    """A server that listens at `url`."""

    __test__ = False  # its name is no sign of a test for pytest

    url: str
    mint: TokenMint

    def token(self, who: Identity = TEST_IDENTITY, scopes: Iterable[str] = ()) -> str:
        """Return a token of a principal, with these scopes beside those of an owner."""
        token, _ = self.mint.sign(who.tenant_id, who.user_id, who.session_id, scopes)
        return token

    def connect(self, who: Identity = TEST_IDENTITY, scopes: Iterable[str] = ()) -> RemoteRuntime:
        """Return a client that sends the requests of a principal: `async with served.connect(ADA) as remote: …`."""
        from harborage.client import connect

        return connect(self.url, token=self.token(who, scopes))


@asynccontextmanager
async def serve(
    runtime: Runtime,
    *,
    options: ServerOptions = ServerOptions(),  # noqa: B008 - a frozen value
) -> AsyncIterator[TestServer]:
    """Serve an open runtime at a free port of this machine until the block ends.

    Streams that are open then have a second to end. The runtime stays open.
    """
    mint = development_mint()
    gate = TokenGate(verifier_of(mint), redactor=default_redactor(), bus=runtime.bus)
    server = Server(runtime, gate=gate, issuer=mint, options=options)
    opened = listen(_FREE)
    listener = Listener(server, opened, grace=_GRACE_S)
    crew = Crew(_failed)
    crew.start(listener.serve(), "test server")
    try:
        yield TestServer(f"http://{bound_address(opened)}", mint)
    finally:
        listener.stop()
        await crew.join()
        opened.close()


def _failed(name: str, error: BaseException) -> None:
    logger.error("%s: %s", name, error, exc_info=error)
