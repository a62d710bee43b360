"""One connection: what is sent again, what a refusal becomes, and that every request ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from harborage.client import Patience, RemoteError, RemoteUnreachableError
from harborage.client.answers import Started
from harborage.client.connection import Connection
from harborage.errors import InvalidOptionError
from harborage.events import IdentityScopeRequiredError, SubscriberLimitReachedError
from harborage.identity import Identity, IdentityRequiredError
from harborage.protocol.errors import STATUS, Code
from harborage.runtime.durable.engine import RunNotFoundError
from harborage.runtime.loop.errors import PayloadInvalidError, ScopeMismatchError
from tests.kit.sockets import answering, http
from tests.kit.tables import each_row

ADA = Identity("t", "ada", "s-1")
QUICK = Patience(first_pause=0.001, longest_pause=0.01, total=5, attempts=4, idle=1, request=1)
STARTED = http(200, b'{"task_id":"r-1","reused":false,"protocol_version":"0.1.0","new":[1]}')


class Answers:
    """Gives its answers one after the other, the last one again and again; keeps the requests. None hangs up."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers = list(answers)
        self.heads: list[str] = []
        self.bodies: list[Any] = []

    async def answer(self, head: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        self.heads.append(head)
        self.bodies.append(msgspec.json.decode(body))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is None:
            writer.transport.abort()
        else:
            writer.write(answer)

    @asynccontextmanager
    async def open(self, **options: Any) -> AsyncIterator[Connection]:
        """A connection to this server."""
        async with answering(self.answer) as url:
            connection = Connection(url, **{"token": "a.b.c", "patience": QUICK, **options})
            try:
                yield connection
            finally:
                await connection.aclose()


def refused(code: Code, status: int = 0) -> bytes:
    """A refusal."""
    return http(status or STATUS[code], msgspec.json.encode({"code": code, "message": "said"}))


async def start(connection: Connection) -> Started:
    """One request."""
    return await connection.ask("start", {"query": "q", "idempotency_key": "k"}, Started, who=ADA, run_id="r-9")


@each_row("lost", [[None], [None, None], [refused(Code.RUNTIME_ERROR, 503)], [http(502, b"<html>bad</html>"), None]])
async def test_a_lost_answer_is_asked_for_again_with_the_same_request(lost: list[bytes | None]) -> None:
    """A request without an answer, or one that a proxy could not pass on, is sent again, its key the same."""
    server = Answers(*lost, STARTED)
    async with server.open() as connection:
        assert (await start(connection)).task_id == "r-1"
    assert len(server.bodies) == len(lost) + 1
    assert {body["idempotency_key"] for body in server.bodies} == {"k"}


@each_row(
    "code, kind",
    [
        (Code.NOT_FOUND, RunNotFoundError),
        (Code.SCOPE_MISMATCH, ScopeMismatchError),
        (Code.PAYLOAD_INVALID, PayloadInvalidError),
        (Code.IDENTITY_REQUIRED, IdentityRequiredError),
        (Code.IDENTITY_SCOPE_REQUIRED, IdentityScopeRequiredError),
        *((code, RemoteError) for code in ("invalid_request", "auth_rejected", "runtime_error", "unknown_method")),
    ],
)
async def test_a_refusal_is_the_local_error(code: Code, kind: type[Exception]) -> None:
    """A code that a local runtime has an error for is that one; its cause has the code. None is sent again."""
    server = Answers(refused(Code(code)))
    async with server.open() as connection:
        with pytest.raises(kind) as caught:
            await start(connection)
    refusal = caught.value if kind is RemoteError else caught.value.__cause__
    assert isinstance(refusal, RemoteError)
    assert (refusal.code, refusal.status, refusal.message) == (code, STATUS[Code(code)], "said")
    assert len(server.bodies) == 1


async def test_a_full_server_is_the_local_error_once_patience_is_over() -> None:
    """429 is asked again, and then the error of a bus with too many subscriptions."""
    server = Answers(http(429, b'{"code":"runtime_error","message":"16 streams"}'))
    async with server.open() as connection:
        with pytest.raises(SubscriberLimitReachedError, match="16 streams"):
            await start(connection)
    assert len(server.bodies) == QUICK.attempts


async def test_an_answer_that_is_no_json_is_shown_cut() -> None:
    """A page of a proxy is an error of the server, with the beginning of its text."""
    async with Answers(http(418, b"<b>teapot</b>" + b"x" * 1000, "text/html")).open() as connection:
        with pytest.raises(RemoteError, match="teapot") as caught:
            await start(connection)
    assert len(caught.value.message) <= 200
    async with Answers(http(200, b'{"task_id":7}')).open() as connection:
        with pytest.raises(RemoteError, match="another shape"):
            await start(connection)


async def test_attempts_end() -> None:
    """A server that never answers is an error that names it and how often it was tried."""
    server = Answers(None)
    async with server.open() as connection:
        with pytest.raises(RemoteUnreachableError, match="4 attempts") as caught:
            await start(connection)
        assert caught.value.url == connection.url
    assert len(server.bodies) == QUICK.attempts


async def test_a_server_that_stalls_is_left() -> None:
    """An answer that does not come in time is a failed attempt, whatever dribbles in."""

    async def dribble(_: str, __: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 X\r\nContent-Length: 100000\r\n\r\n")
        for _ in range(1000):
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.01)

    patience = Patience(attempts=1, request=0.1, idle=0.05)
    async with answering(dribble) as url:
        connection = Connection(url, patience=patience)
        with pytest.raises(RemoteUnreachableError, match="Timeout"):
            await start(connection)
        await connection.aclose()


async def test_a_token_that_expired_is_fetched_anew() -> None:
    """A function is asked for a token at each request, and once more when one was refused; a text is not."""
    tokens = iter(["old", "new"])

    async def fresh() -> str:
        return next(tokens)

    server = Answers(refused(Code.AUTH_REJECTED), STARTED)
    async with server.open(token=fresh) as connection:
        await start(connection)
    assert ["Bearer old" in server.heads[0], "Bearer new" in server.heads[1]] == [True, True]


async def test_a_request_says_for_whom_it_is() -> None:
    """The session is in its header, the token in another, and headers of the caller beside them."""
    server = Answers(STARTED)
    async with server.open(headers={"X-Proxy": "1"}) as connection:
        await start(connection)
    head = server.heads[0].lower()
    assert head.startswith("post /v1/control/start http/1.1")
    assert all(one in head for one in ("x-harbor-session: s-1", "authorization: bearer a.b.c", "x-proxy: 1"))


@each_row("url", ["", "ftp://x", "localhost:1", "http://", "http://u:p@h", "http://h/?q=1", "http://h:0", "http://h:x"])
def test_a_url_that_is_none_is_refused(url: Any) -> None:
    """A server is named by an http or https url without a password; the error says so."""
    with pytest.raises(InvalidOptionError, match="url"):
        Connection(url)


def test_patience_is_checked() -> None:
    """Limits are positive numbers, and pauses stay between half of the longest one and the longest."""
    with pytest.raises(InvalidOptionError, match="attempts"):
        Patience(attempts=0)
    with pytest.raises(InvalidOptionError, match="idle"):
        Patience(idle=0)
    assert all(2.5 <= Patience().pause(50) <= 5 for _ in range(100))
