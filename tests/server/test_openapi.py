"""The document of a server: what it offers, with the shapes of every message, readable without a token."""

from __future__ import annotations

from typing import Any

import msgspec

from harborage.protocol.methods import ALL_METHODS
from harborage.server.a2a import description as a2a
from harborage.server.ag_ui import description as ag_ui
from harborage.server.application import Server
from harborage.server.families.table import ENDPOINTS
from harborage.server.mcp_endpoint import description as mcp
from harborage.server.openai import description as openai
from tests.kit.wire import Wire

OTHERS = {**openai.PATHS, **ag_ui.PATHS, **mcp.PATHS, **a2a.PATHS}


async def document_of(wire: Wire) -> Any:
    """The document as a client reads it."""
    reply = await wire.request("GET", "/v1/openapi.json")
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    return reply.json


async def test_every_method_that_is_offered_has_its_path(server: Server, wire: Wire) -> None:
    """And no other, beside those of other protocols; the stream of events is among them."""
    paths = (await document_of(wire))["paths"]
    assert paths.keys() >= OTHERS.keys()
    paths = {path: item for path, item in paths.items() if path not in OTHERS}
    offered = {ALL_METHODS[name].path for name, one in ENDPOINTS.items() if one.is_offered(server.services)}
    assert paths.keys() == offered | {"/v1/events"}
    assert all(list(item) == (["get"] if path == "/v1/events" else ["post"]) for path, item in paths.items())


async def test_every_route_of_a_way_in_is_described(server: Server) -> None:
    """With its verbs, and no other is."""
    ways = (server.openai, server.ag_ui, server.a2a)
    routes = [route for way in ways for route in way.routes()]
    served = {(route.path.replace(":path}", "}"), verb) for route in routes for verb in route.methods or ()}
    described = {(path, verb.upper()) for path, item in OTHERS.items() for verb in item}
    names = {path.replace("{name}", "{model}") for path, _ in served}
    assert names | {"/mcp"} == OTHERS.keys()
    verbs = {(path.replace("{name}", "{model}"), verb) for path, verb in served if verb != "HEAD"}
    assert verbs | {("/mcp", "POST")} == described


async def test_every_reference_leads_to_a_shape(wire: Wire) -> None:
    """No two shapes share a name, and none is left out."""
    document = await document_of(wire)
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(_references(document)) <= known


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [found for inner in value.values() for found in _references(inner)]
    return [found for inner in value for found in _references(inner)] if isinstance(value, list) else []


async def test_the_version_of_the_protocol_is_in_it(wire: Wire) -> None:
    """Beside that of the software."""
    info = (await document_of(wire))["info"]
    assert info["x-harbor-protocol-version"] == "0.1.0"
    assert info["version"]


async def test_the_document_is_made_once(server: Server, wire: Wire) -> None:
    """A second reader gets the same bytes."""
    first = await wire.request("GET", "/v1/openapi.json")
    second = await wire.request("GET", "/v1/openapi.json")
    assert first.body == second.body
    assert msgspec.json.decode(first.body)["openapi"] == "3.1.0"
