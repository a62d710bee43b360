"""The routes that belong to no method: health, readiness, and what is nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

import harborage.server
from harborage.runtime.host import Runtime
from harborage.server.application import Server
from harborage.server.auth.gate import GateMissingError
from harborage.server.auth.minting import SigningKey, TokenMint, load_signing_key, write_new_key
from harborage.server.services import ServerOptions
from tests.kit.wire import ADA, HeaderGate, Wire, caller_headers


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


async def test_an_application_of_keys_is_one_call(tmp_path: Path) -> None:
    """It may be made before the runtime is opened, as a web framework does; a token of another key is refused."""
    public = write_new_key(tmp_path / "key.pem")
    runtime = Runtime(model="mock:echo")
    api = harborage.server.app(runtime, keys=str(public), audience="agents")
    mint = TokenMint(key=load_signing_key(tmp_path / "key.pem"), audience="agents")
    token, _ = mint.sign("acme", "ada", "s-1")
    other, _ = TokenMint(key=SigningKey.new(), audience="agents").sign("acme", "ada", "s-1")
    assert (await Wire(api).request("GET", "/readyz")).json == {"status": "starting"}
    refused = await Wire(api).post("runtime.info", {}, who=None, headers={"authorization": f"Bearer {other}"})
    assert refused.code == "auth_rejected"
    async with runtime:
        reply = await Wire(api).post("runtime.info", {}, who=None, headers={"authorization": f"Bearer {token}"})
        assert reply.status == 200


def test_an_application_without_keys_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is made: later, every request would be let in or none."""
    monkeypatch.delenv("HARBORAGE_KEYS", raising=False)
    with pytest.raises(GateMissingError, match="HARBORAGE_KEYS"):
        harborage.server.app(Runtime(model="mock:echo"))


async def test_a_mounted_server_answers_below_its_path(runtime: Runtime) -> None:
    """Methods, the stream and the links that it gives out lie below the mount."""
    mounted = Wire(Starlette(routes=[Mount("/agents", Server(runtime, gate=HeaderGate()))]))
    assert (await mounted.post("", {}, path="/agents/v1/control/runtime.info")).status == 200
    assert (await mounted.post("", {}, path="/v1/control/runtime.info")).status == 404
    async with mounted.open("GET", "/agents/v1/events", caller_headers(ADA)) as stream:
        assert stream.status == 200
    assert (await mounted.request("GET", "/agents/v1/openapi.json")).status == 200
