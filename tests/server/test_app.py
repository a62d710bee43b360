"""The routes that belong to no method: health, readiness, and what is nowhere."""

from __future__ import annotations

import pytest

from harborage.runtime.host import Runtime
from harborage.server.app import Server
from harborage.server.services import ServerOptions
from tests.kit.wire import HeaderGate, Wire


@pytest.mark.parametrize("verb", ["GET", "POST", "PUT", "DELETE", "OPTIONS"])
async def test_health_names_the_command_that_serves(runtime: Runtime, verb: str) -> None:
    """Any verb, no token."""
    wire = Wire(Server(runtime, gate=HeaderGate(), options=ServerOptions(subcommand="dev")))
    reply = await wire.request(verb, "/healthz")
    assert (reply.status, reply.json) == (200, {"status": "ok", "subcommand": "dev"})


async def test_a_server_is_ready_while_its_store_answers_and_it_does_not_stop() -> None:
    """Before and after, requests should be sent elsewhere."""
    runtime = Runtime(model="mock:echo")
    wire = Wire(server := Server(runtime, gate=HeaderGate()))
    assert (await wire.request("GET", "/readyz")).json == {"status": "starting"}
    async with runtime:
        reply = await wire.request("GET", "/readyz")
        assert (reply.status, reply.json) == (200, {"status": "ready"})
        server.drain()
        reply = await wire.request("GET", "/readyz")
        assert (reply.status, reply.json) == (503, {"status": "draining"})


async def test_a_path_that_is_nowhere_is_404(wire: Wire) -> None:
    """Whoever asks."""
    for path in ("/v1/nope", "/v1", "/v1/nope/list", "/nope"):
        assert (await wire.request("GET", path)).status == 404
        assert (await wire.request("POST", path)).status == 404


@pytest.mark.parametrize("verb", ["GET", "PUT", "DELETE", "PATCH"])
async def test_another_verb_is_405(wire: Wire, verb: str) -> None:
    """Methods are posted."""
    reply = await wire.request(verb, "/v1/control/start")
    assert reply.status == 405
    assert reply.headers["allow"] == "POST"
