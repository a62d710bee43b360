"""Every method of the protocol is answered, and nothing else is served under a method's name."""

from __future__ import annotations

import msgspec

from harborage.protocol.methods import ALL_METHODS, METHODS
from harborage.server.application import Server
from harborage.server.families.table import ENDPOINTS
from tests.kit.tables import each_row
from tests.kit.wire import Wire

STREAM = "events.subscribe"
NOT_OFFERED = {"topology.snapshot", "auth.rotate_token"}
"""What a server without an engine, and without a key of its own, does not have."""
OFFERED = sorted(set(ENDPOINTS) - NOT_OFFERED)


def test_every_method_has_its_endpoint() -> None:
    """All but the stream, which is no request and answer."""
    assert set(ENDPOINTS) <= set(ALL_METHODS)
    assert set(METHODS) - set(ENDPOINTS) == {STREAM}


async def test_a_method_that_a_server_lacks_is_not_offered(server: Server) -> None:
    """It answers as an unknown one."""
    offered = {name for name, one in ENDPOINTS.items() if one.is_offered(server.services)}
    assert set(METHODS) - offered == NOT_OFFERED | {STREAM}


@each_row("name", sorted(ENDPOINTS))
def test_requests_and_answers_have_the_keys_of_the_wire(name: str) -> None:
    """Keys are in snake case, and every request takes an identity."""
    endpoint = ENDPOINTS[name]
    request = {field.encode_name for field in msgspec.structs.fields(endpoint.request)}
    assert "identity" in request
    for key in request | {field.encode_name for field in msgspec.structs.fields(endpoint.answer)}:
        assert key == key.lower(), key


MALFORMED = [b"{", b"[]", b'{"identity": 7}', b'{"identity": {"tenant": 7}}', b"\xff", b'{"a":' + b"[" * 500]


async def test_no_method_answers_without_a_token_or_to_a_malformed_body(wire: Wire) -> None:
    """The first is known by nobody, the second is refused before anything is done."""
    for name in OFFERED:
        reply = await wire.post(name, {}, who=None)
        assert (reply.status, reply.code) == (401, "identity_required"), name
        for body in MALFORMED:
            reply = await wire.post(name, body)
            assert (reply.status, reply.code) == (400, "invalid_request"), (name, body)


async def test_neither_an_empty_object_nor_nulls_are_a_failure_of_the_server(wire: Wire) -> None:
    """Clients of other languages send whatever is unset: it is a request of defaults, or one that lacks something."""
    for name in OFFERED:
        nulls = {field.encode_name: None for field in msgspec.structs.fields(ENDPOINTS[name].request)}
        for body in ({}, nulls):
            reply = await wire.post(name, body, scopes=("admin", "console:fleet"))
            assert reply.status in (200, 400, 401, 404), (name, reply.body)
            assert b'"runtime_error"' not in reply.body
