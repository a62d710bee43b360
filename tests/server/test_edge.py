"""Browsers: which pages may call the server, and what they may make of its answers."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from harborage.errors import InvalidOptionError
from harborage.runtime.host import Runtime
from harborage.server.application import Server
from harborage.server.services import ServerOptions
from harborage.testing.clock import settle
from tests.kit.serving import Served, serving
from tests.kit.wire import ADA, WITHIN_S, HeaderGate, Wire, caller_headers

CONSOLE = "https://console.example"
ALLOWED = {
    "access-control-allow-origin": CONSOLE,
    "access-control-allow-credentials": "true",
    "access-control-allow-methods": "GET, POST, PUT, DELETE, PATCH, OPTIONS",
    "access-control-allow-headers": "Authorization, Content-Type, Last-Event-ID, X-Harbor-Tenant, X-Harbor-User, "
    "X-Harbor-Session, X-Harbor-Run, X-Harbor-Event-Type",
    "access-control-max-age": "86400",
}


def over(runtime: Runtime, **options: object) -> Wire:
    """A client of a server with these options."""
    return Wire(Server(runtime, gate=HeaderGate(), options=ServerOptions(**options)))  # type: ignore[arg-type]


def cross_origin(headers: dict[str, str]) -> dict[str, str]:
    """The headers of an answer that a browser reads before it gives the answer to a page."""
    return {name: value for name, value in headers.items() if name.startswith("access-control")}


async def test_a_preflight_of_a_listed_origin_is_allowed(runtime: Runtime) -> None:
    """The answer names the caller's origin, never any; the list's entries are trimmed."""
    wire = over(runtime, origins=(f" {CONSOLE} ",))
    asked = {"origin": CONSOLE, "access-control-request-method": "POST"}
    reply = await wire.request("OPTIONS", "/v1/control/start", b"", asked)
    assert (reply.status, reply.body) == (204, b"")
    assert cross_origin(dict(reply.headers)) == ALLOWED
    assert reply.headers["vary"] == "Origin"


async def test_a_preflight_of_a_stranger_gets_no_permission(runtime: Runtime) -> None:
    """It is 204 all the same, and reaches nothing."""
    wire = over(runtime, origins=(CONSOLE,))
    asked = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    reply = await wire.request("OPTIONS", "/v1/nowhere", b"", asked)
    assert reply.status == 204
    assert not cross_origin(dict(reply.headers))
    assert reply.headers["vary"] == "Origin"


async def test_a_simple_request_of_a_stranger_runs_without_permission(runtime: Runtime) -> None:
    """The browser keeps the answer from the page; the token is what protects the server."""
    reply = await over(runtime).request("GET", "/healthz", b"", {"origin": "https://evil.example"})
    assert reply.status == 200
    assert not cross_origin(dict(reply.headers))
    assert reply.headers["vary"] == "Origin"


async def test_a_development_server_may_allow_every_origin(runtime: Runtime) -> None:
    """The origin of each caller is named."""
    reply = await over(runtime, any_origin=True).request("GET", "/healthz", b"", {"origin": CONSOLE})
    assert cross_origin(dict(reply.headers)) == ALLOWED


async def test_without_an_origin_nothing_is_added(runtime: Runtime) -> None:
    """Requests of no page stay as they are; no answer is sniffed for another type."""
    reply = await over(runtime, origins=(CONSOLE,)).request("GET", "/healthz")
    assert not cross_origin(dict(reply.headers))
    assert "vary" not in reply.headers
    assert reply.headers["x-content-type-options"] == "nosniff"


async def test_the_allowed_origins_change_while_the_server_runs(runtime: Runtime) -> None:
    """Those before are allowed no more."""
    server = Server(runtime, gate=HeaderGate(), options=ServerOptions(origins=(CONSOLE,)))
    server.edge.allow(("https://other.example",))
    assert not cross_origin(dict((await Wire(server).request("GET", "/healthz", b"", {"origin": CONSOLE})).headers))
    reply = await Wire(server).request("GET", "/healthz", b"", {"origin": "https://other.example"})
    assert reply.headers["access-control-allow-origin"] == "https://other.example"


@pytest.mark.parametrize("origins", ["https://console.example", ("",), (" ",), (7,)])
def test_a_list_of_origins_that_cannot_be_meant_is_refused(origins: object) -> None:
    """A single text is not taken for its letters."""
    with pytest.raises(InvalidOptionError, match="origins"):
        ServerOptions(origins=origins)  # type: ignore[arg-type]


BODIED = ["/v1/control/start", "/v1/tasks/list", "/v1/chat/completions", "/v1/ag-ui", "/v1/a2a"]


@pytest.mark.parametrize("path", BODIED)
async def test_a_body_that_is_on_its_way_holds_up_no_stop(path: str) -> None:
    """The request is answered at once, with 503, and its connection is closed; what has come in whole is answered."""
    headers = {**caller_headers(ADA), "origin": "https://console.example"}
    async with serving(options=ServerOptions(origins=("https://console.example",))) as served:
        going = asyncio.create_task(begun(served, path, headers))
        await settle()
        served.server.drain()
        status, sent, body = await asyncio.wait_for(going, WITHIN_S)
        assert (status, body["code"], sent["connection"]) == (503, "runtime_error", "close")
        assert (sent["x-content-type-options"], sent["access-control-allow-origin"]) == ("nosniff", headers["origin"])
        assert (await served.wire.post("tasks.list", {})).status == 200
        status, _, _ = await asyncio.wait_for(begun(served, path, headers), WITHIN_S)
        assert status == 503


async def begun(served: Served, path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], Any]:
    """The answer to a request whose body does not end."""
    async with served.wire.open("POST", path, headers, b'{"pa', is_whole=False) as reader:
        return reader.status, reader.headers, msgspec.json.decode(b"".join([part async for part in reader]))
