"""The order of checks of every POST, and what a failure is answered with."""

from __future__ import annotations

import logging

import msgspec
import pytest

from harborage.protocol.errors import Code, ProtocolError
from harborage.protocol.wire.common import Answer
from harborage.protocol.wire.common import Request as WireRequest
from harborage.runtime.host import Runtime
from harborage.server.application import Server
from harborage.server.dispatch import Dispatcher
from harborage.server.services import Call, Endpoint, ServerOptions
from tests.kit.wire import ADA, HeaderGate, Wire, caller_headers


class Asked(WireRequest, frozen=True, kw_only=True):
    """A request with one field of its own."""

    page: int = 0


class Said(Answer, frozen=True, kw_only=True):
    """Whom the call ran for."""

    user: str
    session: str


async def say(call: Call, asked: Asked) -> Said:
    """Answer who asks; page 7 fails, page 8 is not there."""
    if asked.page == 7:
        raise RuntimeError("the payload said hush")
    if asked.page == 8:
        raise ProtocolError(Code.NOT_FOUND, "no such page")
    return Said(user=call.who.user_id, session=call.who.session_id)


@pytest.fixture
def wire(server: Server) -> Wire:
    """A client of a dispatcher that has three methods."""
    here = Endpoint(Asked, Said, say)
    away = Endpoint(Asked, Said, say, lambda _: False)
    table = {"tasks.list": here, "sessions.list": here, "start": here, "runtime.info": here, "flows.list": away}
    dispatcher = Dispatcher(server.services, HeaderGate(), table)
    return Wire(dispatcher)


TOO_LONG = b'{"page": 1' + b" " * 70_000 + b"}"
OTHER_USER = {"identity": {"tenant": "acme", "user": "ben", "session": "s-1"}}

# Each request breaks the check of its row and every one below it; the answer is the row's.
ORDER = [
    ("nobody", "/v1/tasks/nope", TOO_LONG, 401, "identity_required"),
    ("ada", "/v1/tasks/nope", TOO_LONG, 404, "unknown_method"),
    ("ada", "/v1/sessions/list", TOO_LONG, 400, "invalid_request"),
    ("ada", "/v1/sessions/list", b"{", 400, "invalid_request"),
    ("ada", "/v1/sessions/list", msgspec.json.encode({**OTHER_USER, "page": "x"}), 400, "invalid_request"),
    ("ada", "/v1/sessions/list", msgspec.json.encode({**OTHER_USER, "page": 8}), 401, "identity_required"),
    ("ada", "/v1/sessions/list", msgspec.json.encode({"page": 8}), 404, "not_found"),
]


@pytest.mark.parametrize(("sender", "path", "body", "status", "code"), ORDER)
async def test_the_first_check_that_fails_answers(
    wire: Wire, sender: str, path: str, body: bytes, status: int, code: str
) -> None:
    """Token, method, cap, form, identity, and then the method's own checks."""
    reply = await wire.post("", body, path=path, who=ADA if sender == "ada" else None)
    assert (reply.status, reply.code) == (status, code)


async def test_a_body_over_its_cap_is_named_by_the_cap(wire: Wire) -> None:
    """The status is 400, never 413, and the message says how much is allowed."""
    reply = await wire.post("tasks.list", b'{"page":' + b" " * 200_000 + b"1}")
    assert (reply.status, reply.code) == (400, "invalid_request")
    assert "65536 bytes" in reply.json["message"]


@pytest.mark.parametrize("body", [None, b"", b"  \n", b"{}"])
async def test_an_empty_body_is_a_request_of_defaults(wire: Wire, body: bytes | None) -> None:
    """A client need not send an object that says nothing."""
    assert (await wire.post("tasks.list", body)).status == 200


async def test_start_needs_a_body(wire: Wire) -> None:
    """An empty one is no JSON."""
    reply = await wire.post("start", b"")
    assert (reply.status, reply.code) == (400, "invalid_request")


async def test_unknown_fields_are_refused_by_families_and_ignored_by_controls(wire: Wire) -> None:
    """As the table of methods says."""
    assert (await wire.post("tasks.list", {"what": 1})).code == "invalid_request"
    assert (await wire.post("start", {"what": 1})).status == 200


@pytest.mark.parametrize(
    ("method", "identity", "expected"),
    [
        ("sessions.list", {}, 200),
        ("sessions.list", {"tenant": "acme"}, 200),
        ("sessions.list", {"tenant": "rival"}, 401),
        ("sessions.list", {"session": "s-9"}, 401),
        ("tasks.list", {"tenant": "rival", "user": "eve", "session": "x"}, 200),
        ("start", {}, 200),
        ("start", {"tenant": "acme", "user": "ada", "session": "s-1"}, 200),
        ("start", {"tenant": "acme", "user": "ada"}, 401),
        ("start", {"tenant": "acme", "user": "ben", "session": "s-1"}, 401),
        ("runtime.info", {"tenant": "rival"}, 200),
        ("runtime.info", {"user": "ben"}, 401),
        ("runtime.info", {"session": "s-9"}, 401),
    ],
)
async def test_the_identity_of_a_body_is_held_against_the_verified_one(
    wire: Wire, method: str, identity: dict[str, str], expected: int
) -> None:
    """Each family has its rule; the call runs as the verified principal."""
    reply = await wire.post(method, {"identity": identity})
    assert reply.status == expected
    if expected == 200:
        assert reply.json == {"protocol_version": "0.1.0", "user": "ada", "session": "s-1"}
    else:
        assert reply.code == "identity_required"


async def test_the_session_of_the_header_is_the_verified_one(wire: Wire) -> None:
    """The body agrees with the header, whatever session the token has."""
    header = {"x-harbor-session": "s-9"}
    assert (await wire.post("sessions.list", {"identity": {"session": "s-9"}}, headers=header)).json["session"] == "s-9"
    assert (await wire.post("sessions.list", {"identity": {"session": "s-1"}}, headers=header)).status == 401
    assert (await wire.post("sessions.list", {}, headers={"x-harbor-session": "  "})).json["session"] == "s-1"


@pytest.mark.parametrize("name", ["tasks.list", "pause.list", "events.aggregate", "runs.steps", "events.subscribe"])
async def test_a_method_of_another_path_is_named_with_it(wire: Wire, name: str) -> None:
    """A name that is posted to the control path never becomes a control."""
    reply = await wire.post("", {}, path=f"/v1/control/{name}")
    assert (reply.status, reply.code) == (400, "invalid_request")
    assert f"{name} is served at" in reply.json["message"]


@pytest.mark.parametrize(
    "path", ["/v1/control/nope", "/v1/flows/list", "/v1/tasks/", "/v1/tasks/list/", "/v1/runs/step"]
)
async def test_what_is_not_offered_is_an_unknown_method(wire: Wire, path: str) -> None:
    """So is one whose family this server lacks."""
    reply = await wire.post("", {}, path=path)
    assert (reply.status, reply.code) == (404, "unknown_method")


async def test_a_failure_is_answered_without_its_text(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    """It may quote the payload; the server's log names its class."""
    with caplog.at_level(logging.ERROR, "harborage.server"):
        reply = await wire.post("tasks.list", {"page": 7})
    assert (reply.status, reply.code) == (500, "runtime_error")
    assert "hush" not in reply.body.decode()
    assert [record.getMessage() for record in caplog.records] == ["/v1/tasks/list failed: RuntimeError"]


async def test_a_body_that_does_not_arrive_closes_the_connection(runtime: Runtime) -> None:
    """A sender who stalls holds nothing for longer than the timeout."""
    server = Server(runtime, gate=HeaderGate(), options=ServerOptions(body_timeout=0.05))
    wire = Wire(Dispatcher(server.services, HeaderGate(), {"start": Endpoint(Asked, Said, say)}))
    async with wire.open("POST", "/v1/control/start", caller_headers(ADA), b'{"pa', is_whole=False) as reader:
        assert reader.status == 400
        assert reader.headers["connection"] == "close"
