"""`auth.rotate_token`: who gets a new token, and what it is worth."""

from __future__ import annotations

from datetime import datetime

import pytest

from harborage.events import AdminActionPayload, EventType, Filter
from harborage.runtime.host import Runtime
from harborage.server.application import Server
from harborage.server.auth.minting import TokenMint, development_mint, verifier_of
from tests.kit.wire import ADA, HeaderGate, Wire


@pytest.fixture
def mint() -> TokenMint:
    """What signs rotated tokens."""
    return development_mint()


@pytest.fixture
def wire(runtime: Runtime, mint: TokenMint) -> Wire:
    """A client of a server that can sign tokens."""
    return Wire(Server(runtime, gate=HeaderGate(), issuer=mint))


async def test_an_admin_gets_a_token_of_the_same_principal_and_scopes(wire: Wire, mint: TokenMint) -> None:
    """The answer has it and its end, and is stored nowhere."""
    reply = await wire.post("auth.rotate_token", {}, scopes=("admin", "console:fleet"))
    assert reply.status == 200
    assert set(reply.json) == {"new_token", "expires_at"}
    assert reply.headers["cache-control"] == "no-store"
    found = await verifier_of(mint).verify(reply.json["new_token"])
    assert (found.tenant, found.user, found.session) == (ADA.tenant_id, ADA.user_id, ADA.session_id)
    assert found.scopes == ("admin", "console:fleet")
    assert datetime.fromisoformat(reply.json["expires_at"]).timestamp() == found.expires_at


async def test_a_rotation_is_audited(wire: Wire, runtime: Runtime) -> None:
    """Under the admin's own principal, and before the token is signed."""
    bus = runtime.parts.bus
    subscription = bus.subscribe(Filter(tenant="acme", user="ada", session="s-1"))
    await wire.post("auth.rotate_token", {}, scopes=("admin",))
    event = await anext(aiter(subscription))
    assert event.type == EventType.AUDIT_ADMIN_SCOPE_USED
    assert isinstance(event.payload, AdminActionPayload)
    assert (event.payload.method, event.payload.actor.user_id) == ("auth.rotate_token", "ada")
    subscription.close()


@pytest.mark.parametrize("scopes", [(), ("console:fleet",)])
async def test_without_the_scope_admin_there_is_no_rotation(wire: Wire, scopes: tuple[str, ...]) -> None:
    """The code is that of scopes that are missing."""
    reply = await wire.post("auth.rotate_token", {}, scopes=scopes)
    assert (reply.status, reply.code) == (403, "identity_scope_required")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"identity": {"user": "ben"}}, 401, "identity_required"),
        ({"identity": {"tenant": "rival"}}, 401, "identity_required"),
        ({"what": 1}, 400, "invalid_request"),
        (b"{" + b" " * 20_000 + b"}", 400, "invalid_request"),
    ],
)
async def test_a_body_may_not_contradict(wire: Wire, body: object, status: int, code: str) -> None:
    """As in every family."""
    reply = await wire.post("auth.rotate_token", body, scopes=("admin",))
    assert (reply.status, reply.code) == (status, code)


async def test_a_server_that_cannot_sign_has_no_such_method(server: Server) -> None:
    """It knows public keys alone."""
    reply = await Wire(server).post("auth.rotate_token", {}, scopes=("admin",))
    assert (reply.status, reply.code) == (404, "unknown_method")
