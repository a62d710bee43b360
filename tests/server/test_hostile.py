"""Hostile peers on a real socket: bad tokens, bodies, paths and methods, and senders who drip.

Whatever they send has its status and code, and neither token nor payload is in an answer or in any line of a log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import msgspec
import pytest

from harborage.events import PatternRedactor
from harborage.runtime.host import Runtime
from harborage.server.application import Server
from harborage.server.auth.gate import TokenGate
from harborage.server.auth.keys import StaticKeys
from harborage.server.auth.tokens import TokenVerifier
from harborage.server.families.table import ENDPOINTS
from harborage.server.listening import Address, Listener, bound_address, listen
from harborage.server.services import ServerOptions
from harborage.testing.clock import FakeClock
from tests.kit.signing import BAD_TOKENS, GOOD, NOW, key_set, token
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

WITHIN_S = 20
SECRET = "hush-4711-hush"
BODY_TIMEOUT_S = 0.3


class Answer(NamedTuple):
    """One answer, or none where the server only closed the connection."""

    status: int
    head: str
    body: bytes

    @property
    def code(self) -> str:
        """The code of a refusal; "" where it has none."""
        with suppress(msgspec.DecodeError):
            return str(msgspec.json.decode(self.body).get("code", ""))
        return ""


class Peer:
    """Sends bytes to a server, and reads what it says until it closes the connection."""

    def __init__(self, address: Address) -> None:
        self._address = address

    async def send(self, raw: bytes, *, drip_s: float = 0) -> Answer:
        """Send all of it at once, or byte by byte with a pause after each."""
        reader, writer = await asyncio.open_connection(*self._address)
        try:
            dripping = asyncio.create_task(self._drip(writer, raw, drip_s))
            try:
                async with asyncio.timeout(WITHIN_S):
                    with suppress(ConnectionResetError):  # it closed with something of ours unread
                        return _answer(await reader.read(-1))
            finally:
                dripping.cancel()
            return Answer(0, "", b"")
        finally:
            writer.close()

    async def _drip(self, writer: asyncio.StreamWriter, raw: bytes, drip_s: float) -> None:
        if not drip_s:
            writer.write(raw)
            return
        head, _, body = raw.partition(b"\r\n\r\n")
        writer.write(head + b"\r\n\r\n")
        for byte in body:
            writer.write(bytes([byte]))
            await asyncio.sleep(drip_s)

    async def post(self, path: str, body: bytes, *, bearer: str | None = None, verb: str = "POST") -> Answer:
        """Send one request as a caller with a good token, or with this one."""
        return await self.send(request(path, body, bearer=bearer, verb=verb))


def request(path: str, body: bytes = b"", *, bearer: str | None = None, verb: str = "POST") -> bytes:
    """The bytes of a request."""
    bearer = token(GOOD) if bearer is None else bearer
    head = f"{verb} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {bearer}\r\n"
    return head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body


def _answer(raw: bytes) -> Answer:
    head, _, body = raw.partition(b"\r\n\r\n")
    return Answer(int(head.split()[1]) if head else 0, head.decode("latin-1"), body)


@pytest.fixture
async def peer(runtime: Runtime, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Peer]:
    """A peer of a server that verifies tokens; every logger says all it has to say."""
    caplog.set_level(logging.DEBUG)
    async with serving(runtime) as address:
        yield Peer(address)


@asynccontextmanager
async def serving(runtime: Runtime) -> AsyncIterator[Address]:
    """A server on a free port, whose senders must not stall."""
    clock = FakeClock(NOW)
    checked = TokenVerifier(StaticKeys(key_set()), issuer="us", audience="harbor", clock=clock)
    gate = TokenGate(checked, redactor=PatternRedactor(), bus=runtime.bus, clock=clock)
    server = Server(runtime, gate=gate, options=ServerOptions(body_timeout=BODY_TIMEOUT_S))
    opened = listen(Address("127.0.0.1", 0))
    listener = Listener(server, opened, grace=1)
    task = asyncio.create_task(listener.serve())
    try:
        yield bound_address(opened)
    finally:
        server.drain()
        listener.stop()
        async with asyncio.timeout(WITHIN_S):
            await task


def assert_silent(caplog: pytest.LogCaptureFixture, answers: list[Answer], *secrets: str) -> None:
    """Neither in an answer nor in a line of a log is any of these."""
    told = caplog.text + "".join(f"{answer.head}{answer.body.decode('latin-1')}" for answer in answers)
    for secret in secrets:
        assert secret not in told, secret


# ── Tokens ────────────────────────────────────────────────────────────────────────────────────────────────────────────

SENDABLE = {name: bad for name, (bad, _) in BAD_TOKENS.items() if bad.isascii()}


async def test_a_bad_token_opens_nothing(peer: Peer, caplog: pytest.LogCaptureFixture) -> None:
    """Neither a method, nor a stream, nor the paths of other protocols; none of it is shown."""
    for name, bad in SENDABLE.items():
        answers = [
            await peer.post("/v1/tasks/list", b"{}", bearer=bad),
            await peer.post("/v1/events", bearer=bad, body=b"", verb="GET"),
            await peer.send(
                f"GET /v1/events?access_token={bad.strip()} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode()
            ),
            await peer.post("/v1/responses", b"{}", bearer=bad),
        ]
        assert {answer.status for answer in answers} == {401}, name
        assert {answers[0].code, answers[1].code} <= {"identity_required", "auth_rejected"}, name
        parts = [part for part in bad.split(".") if len(part) > 8]
        assert_silent(caplog, answers, *parts)
        caplog.clear()


async def test_the_access_log_of_any_server_shows_no_token(runtime: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    """A program may serve the application with a server of its own, which logs each address."""
    caplog.set_level(logging.INFO)
    clock = FakeClock(NOW)
    checked = TokenVerifier(StaticKeys(key_set()), issuer="us", audience="harbor", clock=clock)
    Server(runtime, gate=TokenGate(checked, redactor=PatternRedactor(), bus=runtime.bus, clock=clock))
    line = f"GET /v1/events?access_token={token(GOOD)}&session=B"
    for name in ("uvicorn.access", "hypercorn.access", "gunicorn.access"):
        logger = logging.getLogger(name)
        logger.addHandler(caplog.handler)
        try:
            logger.warning('%s - "%s" %d', "127.0.0.1", line, 200)
        finally:
            logger.removeHandler(caplog.handler)
    assert caplog.text.count("access_token=***&session=B") >= 3
    assert token(GOOD).split(".")[2] not in caplog.text


# ── Bodies ────────────────────────────────────────────────────────────────────────────────────────────────────────────

BODIES: dict[str, bytes] = {
    "not closed": b'{"query": "%s"',
    "no object": b'["%s"]',
    "two objects": b'{"query": "x"} {"query": "%s"}',
    "not UTF-8": b'{"query": "\xff%s"}',
    "half a surrogate": b'{"query": "\\ud800%s"}',
    "NaN": b'{"query": "%s", "priority": NaN}',
    "a number of 100 digits": b'{"query": "%s", "priority": ' + b"9" * 100 + b"}",
    "deep lists": b'{"query": "%s", "x": ' + b"[" * 100_0 + b"]" * 100_0 + b"}",
    "deep objects": b'{"query": "%s", "x": ' + b'{"a":' * 100_0 + b"1" + b"}" * 100_0 + b"}",
    "a wrong type": b'{"identity": {"tenant": ["%s"]}}',
    "a null byte": b'{"query": "%s"}\x00',
    "too long": b'{"query": "%s", "x": "' + b"x" * 8_500_000 + b'"}',
}


METHODS = ("control/start", "control/user_message", "control/artifacts.put", "tasks/list", "runs/set_overrides")


@each_row("name", list(BODIES))
async def test_a_malformed_body_is_refused_and_not_shown(
    peer: Peer, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """By a few methods of each kind, with 400 `invalid_request`; the server goes on."""
    body = BODIES[name].replace(b"%s", SECRET.encode())
    answers = []
    for method in (
        "control/start",
        "control/user_message",
        "control/artifacts.put",
        "tasks/list",
        "runs/set_overrides",
    ):
        answers.append(await peer.post(f"/v1/{method}", body))
        # A body that is far too long may be cut off before the answer is read.
        assert answers[-1].status in ((400, 0) if name == "too long" else (400,)), (method, answers[-1])
        assert answers[-1].code in ("invalid_request", "") if name == "too long" else "invalid_request"
    assert (await peer.post("/v1/tasks/list", b"{}")).status == 200
    assert_silent(caplog, answers, SECRET, token(GOOD).split(".")[2])


PAYLOADS: dict[str, Any] = {
    "too deep": {"a": {"a": {"a": {"a": {"a": {"a": {"a": SECRET}}}}}}},
    "too many keys": {f"k{number}": SECRET for number in range(65)},
    "too many items": {"a": [SECRET] * 51},
    "too long a text": {"a": SECRET + "x" * 4_096},
    "too much": {f"k{number}": SECRET + "x" * 4_000 for number in range(5)},
}


@each_row("name", list(PAYLOADS))
async def test_a_payload_over_its_bounds_is_refused_and_not_shown(
    peer: Peer, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """With 422 `payload_invalid`, whether there is such a run or not."""
    body = {"identity": {"run": "r", "scope": "owner_user"}, "payload": PAYLOADS[name]}
    answer = await peer.post("/v1/control/inject_context", msgspec.json.encode(body))
    assert (answer.status, answer.code) == (422, "payload_invalid")
    assert_silent(caplog, [answer], SECRET)


@each_row("drip_s", [0.02, 10])
async def test_a_sender_who_drips_is_cut_off(peer: Peer, caplog: pytest.LogCaptureFixture, drip_s: float) -> None:
    """A body must be there in time, however busily its bytes come."""
    body = msgspec.json.encode({"query": SECRET + "x" * 5_000})
    answer = await peer.send(request("/v1/control/start", body), drip_s=drip_s)
    assert (answer.status, answer.code) in ((400, "invalid_request"), (0, ""))
    assert "connection: close" in answer.head.lower() or not answer.status
    assert_silent(caplog, [answer], SECRET)


# ── Paths and methods ─────────────────────────────────────────────────────────────────────────────────────────────────

PATHS: dict[str, int] = {
    "/v1/../v1/tasks/list": 404,
    "/v1/tasks/../tasks/list": 404,
    "/v1/tasks/%2e%2e/tasks/list": 404,
    "/v1//tasks/list": 404,
    "//v1/tasks/list": 404,
    "/v1/tasks/list/": 404,
    "/v1/tasks//list": 404,
    "/V1/TASKS/LIST": 404,
    "/v1/tasks/list%00": 404,
    "/v1/tasks/list;x=1": 404,
    "/v1/tasks%2flist%2f..": 404,
    "/v1/control/": 404,
    "/v1/control/%2e%2e/tasks/list": 404,
    "/v1/control/nope": 404,
    "/v1/control/CANCEL": 404,
    "/v1/control/tasks.list": 400,
    "/v1/control/events.subscribe": 400,
    "/v1/tasks/nope": 404,
    "/v1/runs/delete": 404,
    "/v1/auth/rotate_token/x": 404,
    "/artifacts/../../etc/passwd": 405,
    "/etc/passwd": 404,
}


@each_row("path", list(PATHS))
async def test_a_path_that_is_none_is_no_method(peer: Peer, caplog: pytest.LogCaptureFixture, path: str) -> None:
    """Nothing is cleaned up or guessed; without a token even that is not told."""
    body = msgspec.json.encode({"query": SECRET})
    answer, stranger = await peer.post(path, body), await peer.post(path, body, bearer="")
    assert answer.status == PATHS[path], answer
    if path.startswith("/v1/") and answer.code:
        assert answer.code in ("unknown_method", "invalid_request")
        assert stranger.status == 401
    assert stranger.status in (401, 404, 405)
    assert_silent(caplog, [answer, stranger], SECRET, "root:")


@each_row("path", ["/artifacts/..%2f..%2fetc%2fpasswd?grant=x", "/artifacts/%2e%2e/x", "/artifacts/a?grant=%00"])
async def test_a_link_that_nobody_signed_reads_nothing(peer: Peer, path: str) -> None:
    """Whatever its path spells."""
    answer = await peer.post(path, b"", verb="GET")
    assert answer.status == 403
    assert b"root:" not in answer.body


async def test_the_target_of_a_request_may_be_a_whole_address(peer: Peer) -> None:
    """Its host is no other server's, and its path is read as any other."""
    answer = await peer.post("http://evil.example/v1/tasks/list", b"{}")
    assert answer.status in (200, 400, 404)
    assert (await peer.post("http://evil.example/v1/tasks/list", b"{}", bearer="")).status in (400, 401, 404)


async def test_every_method_is_posted(peer: Peer) -> None:
    """Any other verb is refused by the router, and does nothing."""
    for name in ENDPOINTS:
        family, _, verb = name.partition(".")
        for path in (f"/v1/control/{name}", f"/v1/{family}/{verb.replace('.', '/')}"):
            answer = await peer.post(path, b"{}", verb="GET")
            assert answer.status in (404, 405), (path, answer)
