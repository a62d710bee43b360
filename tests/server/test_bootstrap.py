"""The token for pages on this machine: who gets one, and who does not."""

from __future__ import annotations

import logging

import msgspec
import pytest
from starlette.requests import Request

from harborage.events import PatternRedactor
from harborage.runtime.host import Runtime
from harborage.server.application import Server
from harborage.server.auth.gate import TokenGate
from harborage.server.auth.minting import TokenMint, development_mint, verifier_of
from harborage.server.bootstrap import BOOTSTRAP_PATH, bootstrap_route, stranger
from harborage.server.services import ServerOptions
from tests.kit.tables import each_row
from tests.kit.wire import Wire


@pytest.fixture
def mint() -> TokenMint:
    """What signs the tokens of a development server."""
    return development_mint()


@pytest.fixture
def wire(runtime: Runtime, mint: TokenMint) -> Wire:
    """A client of a development server, whose pages may be of any origin."""
    gate = TokenGate(verifier_of(mint), redactor=PatternRedactor())
    options = ServerOptions(any_origin=True, base_url="https://elsewhere.example")
    return Wire(Server(runtime, gate=gate, issuer=mint, options=options, routes=[bootstrap_route(mint)]))


async def test_a_page_of_this_machine_gets_a_token_that_works(wire: Wire) -> None:
    """With the origin that its browser used, the principal, its scopes and the version; nobody stores the answer."""
    reply = await wire.request("POST", BOOTSTRAP_PATH, b"", {"origin": "http://127.0.0.1:8000"})
    assert reply.status == 200
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["content-type"] == "application/json"
    token = reply.json["token"]
    assert {**reply.json, "token": ""} == {
        "base_url": "http://127.0.0.1:8000",
        "token": "",
        "identity": {"tenant": "dev", "user": "dev", "session": "dev"},
        "scopes": ["admin", "console:fleet"],
        "protocol_version": "0.1.0",
    }
    rotated = await wire.post("auth.rotate_token", {}, who=None, headers={"authorization": f"Bearer {token}"})
    assert rotated.status == 200


async def test_a_client_without_an_origin_gets_one(wire: Wire) -> None:
    """As a command on this machine."""
    assert (await wire.request("POST", BOOTSTRAP_PATH)).status == 200


@pytest.mark.parametrize("verb", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_another_verb_is_refused(wire: Wire, verb: str) -> None:
    """The code is that of this route."""
    reply = await wire.request(verb, BOOTSTRAP_PATH)
    assert (reply.status, reply.headers["allow"]) == (405, "POST")
    if verb != "HEAD":
        assert reply.code == "method_not_allowed"


@pytest.mark.parametrize(
    "header",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:8000"},
        {"origin": "http://127.0.0.1:5173"},
        {"x-forwarded-for": "127.0.0.1"},
        {"forwarded": "for=127.0.0.1"},
        {"host": "evil.example"},
    ],
)
async def test_a_stranger_is_refused(wire: Wire, header: dict[str, str]) -> None:
    """Also where pages of any origin may call the server, and with a reason for people."""
    reply = await wire.request("POST", BOOTSTRAP_PATH, b"", header)
    assert (reply.status, reply.code) == (403, "forbidden")
    assert set(reply.json) == {"code", "message"}
    assert reply.headers["cache-control"] == "no-store"
    assert b"eyJ" not in reply.body


LOCAL = ("127.0.0.1", 5000)


def sent(peer: tuple[str, int] | None, *headers: tuple[str, str], scheme: str = "http") -> Request:
    """A request to the route."""
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    scope = {"type": "http", "method": "POST", "path": BOOTSTRAP_PATH, "query_string": b"", "headers": raw}
    return Request({**scope, "client": peer, "scheme": scheme})


def host(value: str) -> tuple[str, str]:
    """The header with the name by which the server was called."""
    return ("host", value)


@each_row(
    "request_",
    [
        sent(LOCAL, host("127.0.0.1:18080")),
        sent(("::1", 1), host("[::1]:18080")),
        sent(("::ffff:127.0.0.1", 1), host("localhost")),
        sent(LOCAL, host("LocalHost:1"), ("origin", "http://localhost:1")),
        sent(LOCAL, host("localhost"), ("origin", "http://localhost")),
        sent(LOCAL, host("localhost:1"), ("origin", "https://localhost:1"), scheme="https"),
    ],
)
def test_this_machine_is_no_stranger(request_: Request) -> None:
    """By each of its names."""
    assert stranger(request_) == ""


@each_row(
    "request_, why",
    [
        (sent(None, host("localhost")), "this machine alone"),
        (sent(("10.0.0.7", 1), host("localhost")), "this machine alone"),
        (sent(("::ffff:10.0.0.7", 1), host("localhost")), "this machine alone"),
        (sent(("testclient", 1), host("localhost")), "this machine alone"),
        (sent(LOCAL, host("localhost"), ("forwarded", "for=1.2.3.4")), "proxy"),
        (sent(LOCAL, host("localhost"), ("x-forwarded-for", "")), "proxy"),
        (sent(LOCAL, host("localhost"), ("x-forwarded-host", "a")), "proxy"),
        (sent(LOCAL, host("localhost"), ("x-real-ip", "1.2.3.4")), "proxy"),
        (sent(LOCAL, host("localhost"), ("via", "1.1 cache")), "proxy"),
        (sent(LOCAL), "not called by the name"),
        (sent(LOCAL, host("")), "not called by the name"),
        (sent(LOCAL, host("localhost"), host("localhost")), "not called by the name"),
        (sent(LOCAL, host("rebound.example:18080")), "not called by the name"),
        (sent(LOCAL, host("localhost.evil.example")), "not called by the name"),
        (sent(LOCAL, host("127.0.0.1.nip.example")), "not called by the name"),
        (sent(LOCAL, host("evil@localhost")), "not called by the name"),
        (sent(LOCAL, host("localhost/evil")), "not called by the name"),
        (sent(LOCAL, host("localhost:x")), "not called by the name"),
        (sent(LOCAL, host("[::1")), "not called by the name"),
        (sent(LOCAL, host("192.168.1.5:18080")), "not called by the name"),
        (sent(LOCAL, host("localhost:1"), ("origin", "http://localhost:2")), "another origin"),
        (sent(LOCAL, host("localhost:1"), ("origin", "https://localhost:1")), "another origin"),
        (sent(LOCAL, host("localhost:1"), ("origin", "http://127.0.0.1:1")), "another origin"),
        (sent(LOCAL, host("localhost:1"), ("origin", "")), "another origin"),
        (sent(LOCAL, host("a"), ("origin", "http://a")), "not called by the name"),
        (
            sent(LOCAL, host("localhost"), ("origin", "http://localhost"), ("origin", "http://evil")),
            "another origin",
        ),
    ],
)
def test_every_sign_of_a_stranger_is_a_refusal(request_: Request, why: str) -> None:
    """A peer elsewhere, a proxy, a rebound name, another origin."""
    assert why in stranger(request_)


async def test_a_key_that_does_not_sign_is_a_failure(
    runtime: Runtime, mint: TokenMint, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer says no more than that."""
    broken = msgspec.structs.replace(mint, key=msgspec.structs.replace(mint.key, private=None))
    gate = TokenGate(verifier_of(mint), redactor=PatternRedactor())
    wire = Wire(Server(runtime, gate=gate, routes=[bootstrap_route(broken)]))
    with caplog.at_level(logging.ERROR):
        reply = await wire.request("POST", BOOTSTRAP_PATH)
    assert (reply.status, reply.code) == (500, "internal")
    assert "a development token could not be signed" in caplog.text
