"""Calls over HTTP: what each answer means, what is sent again, and what is never sent anywhere."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from harborage.artifacts.media import File, Image
from harborage.clock import SYSTEM_CLOCK
from harborage.identity import Identity
from harborage.secrets import secret
from harborage.testing.clock import FakeClock
from harborage.tools import (
    HTTP,
    ApiKey,
    Bearer,
    CallContext,
    CookieAuth,
    ErrorClass,
    Invoker,
    OpenAPI,
    ToolDescriptor,
    ToolInvalidArgsError,
    ToolPolicy,
    ToolPolicyExhaustedError,
    ToolResult,
    ToolTimeoutError,
)
from harborage.tools.errors import AddressRefusedError, AuthMissingError, ToolUnansweredError
from harborage.tools.http.errors import (
    HTTPAnswerError,
    HTTPRateLimitError,
    HTTPStatusError,
    PeerUnreachableError,
)
from harborage.tools.sources import SourceServices, ToolLimits, ToolSource
from tests.kit.http_peer import Cut, Handler, Request, Response, Served, peer

pytestmark = pytest.mark.anyio

WHO = Identity("tenant", "user", "session").with_run("run")
CANARY = "hunter2/canary+token"
USUAL = ToolLimits()
NO_WAIT = ToolPolicy(backoff_base_ms=0)


class Tools:
    """Open tools, called as the runtime does."""

    def __init__(self, tools: Mapping[str, ToolDescriptor[Any]], served: Served) -> None:
        self.tools = tools
        self.served = served

    async def call(self, name: str = "x", args: Any = None, *, clock: Any = SYSTEM_CLOCK) -> ToolResult:
        data = msgspec.json.encode({} if args is None else args)
        return await Invoker(clock=clock, random=lambda: 0.0).invoke(
            self.tools[name], data, CallContext(WHO, idempotency_key="run/1")
        )


@asynccontextmanager
async def opened(
    make: Callable[[str], ToolSource], handler: Handler, *, limits: ToolLimits = USUAL, clock: Any = SYSTEM_CLOCK
) -> AsyncIterator[Tools]:
    """Serve a handler, and open the source that `make` returns for its address."""
    async with peer(handler) as served:
        source = make(served.url).open(SourceServices(limits=limits, clock=clock))
        try:
            tools = {one.tool.name: one for one in await source.list_tools(WHO)}
            async with asyncio.timeout(30):
                yield Tools(tools, served)
        finally:
            await source.aclose()


def get(**options: Any) -> Callable[[str], ToolSource]:
    return lambda url: HTTP("x", f"GET {url}/thing", effects="read", **{"policy": NO_WAIT} | options)


def post(**options: Any) -> Callable[[str], ToolSource]:
    return lambda url: HTTP("x", f"POST {url}/thing", **{"args": {"n": int}} | options)


def answers(*given: Response | Cut) -> Handler:
    left = list(given)
    return lambda _request: left.pop(0) if len(left) > 1 else left[0]


async def test_a_read_is_tried_again_after_a_failure_of_the_server() -> None:
    """500, 500, 200 is a result after two retries, each with the same key."""
    async with opened(get(), answers(Response(500), Response(500), Response(200, {"ok": True}))) as tools:
        result = await tools.call()
    assert (result.value, result.meta) == ({"ok": True}, {"http.status": 200, "http.content_type": "application/json"})
    assert [one.headers["idempotency-key"] for one in tools.served.asked] == ["run/1"] * 3


async def test_a_call_with_effects_is_sent_once() -> None:
    """A server error is an answer, so an error; the arguments are the body."""
    async with opened(post(), answers(Response(500, {"why": "broken"}))) as tools:
        with pytest.raises(HTTPStatusError, match="x: status 500: .*broken") as failed:
            await tools.call(args={"n": 7})
    assert failed.value.error_class is ErrorClass.SERVER
    assert [(one.method, one.json) for one in tools.served.asked] == [("POST", {"n": 7})]


async def test_a_call_that_was_not_answered_is_in_doubt_and_sent_once() -> None:
    """Cut before the answer, in its body, or timed out: nobody knows whether it acted; it is not sent again."""
    for cut in (Cut(), Response(200, {"ok": True}, cut_at=3)):
        async with opened(post(), answers(cut)) as tools:
            with pytest.raises(ToolUnansweredError):
                await tools.call(args={"n": 1})
            assert len(tools.served.asked) == 1

    async def late(_request: Request) -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with opened(post(policy=ToolPolicy(timeout_ms=100)), late) as tools:
        with pytest.raises(ToolTimeoutError):
            await tools.call(args={"n": 1})
        assert len(tools.served.asked) == 1


async def test_a_keyed_call_that_was_not_answered_is_sent_again_with_its_key() -> None:
    """The operator said that the peer acts once for a key."""
    handler = answers(Cut(), Response(200, "done"))
    async with opened(post(idempotent=True, policy=NO_WAIT, key_header="X-Key"), handler) as tools:
        assert (await tools.call(args={"n": 1})).value == "done"
    assert [one.headers["x-key"] for one in tools.served.asked] == ["run/1", "run/1"]
    assert "idempotency-key" not in tools.served.asked[0].headers


async def test_a_neighbour_is_not_harmed_by_a_cut() -> None:
    """Two calls in flight, one connection cut: the other has its result."""
    gate = asyncio.Event()

    async def handler(request: Request) -> Response | Cut:
        if request.json["n"] == 1:
            gate.set()
            return Cut()
        await gate.wait()
        return Response(200, request.json["n"])

    async with opened(post(), handler) as tools:
        first, second = await asyncio.gather(
            tools.call(args={"n": 1}), tools.call(args={"n": 2}), return_exceptions=True
        )
    assert isinstance(first, ToolUnansweredError)
    assert isinstance(second, ToolResult)
    assert second.value == 2
    assert len(tools.served.asked) == 2


async def test_a_peer_that_is_not_there_was_sent_nothing() -> None:
    """Such a call may be made again, whatever it does."""
    async with opened(post(), answers(Response())) as tools:
        pass
    async with opened(lambda _url: HTTP("x", f"POST {tools.served.url}/thing"), answers(Response())) as gone:
        with pytest.raises(PeerUnreachableError) as failed:
            await gone.call()
    assert failed.value.had_no_effect


async def test_what_each_status_means() -> None:
    """The class of an error is by its status alone, whatever its words say."""
    rows: list[tuple[int, type[Exception], ErrorClass]] = [
        (401, HTTPStatusError, ErrorClass.PERMANENT),
        (403, HTTPStatusError, ErrorClass.PERMANENT),
        (404, ToolInvalidArgsError, ErrorClass.PERMANENT),
        (408, HTTPStatusError, ErrorClass.TRANSIENT),
        (422, ToolInvalidArgsError, ErrorClass.PERMANENT),
        (425, HTTPStatusError, ErrorClass.TRANSIENT),
        (429, HTTPRateLimitError, ErrorClass.TRANSIENT),
        (500, HTTPStatusError, ErrorClass.SERVER),
        (503, HTTPRateLimitError, ErrorClass.SERVER),
        (304, HTTPStatusError, ErrorClass.PERMANENT),
    ]
    left = [Response(status, "timeout 503 deadline exceeded") for status, _, _ in rows]
    async with opened(post(), lambda _request: left.pop(0)) as tools:
        for status, kind, error_class in rows:
            with pytest.raises(kind) as failed:
                await tools.call(args={"n": 1})
            assert f"status {status}" in str(failed.value)
            assert getattr(failed.value, "error_class", None) is error_class, status
    assert len(tools.served.asked) == len(rows)


async def test_a_peer_says_when_to_ask_again() -> None:
    """The retry waits as long as the peer asked for; the error of a call that is not repeated says when."""
    clock = FakeClock()
    handler = answers(Response(429, headers={"retry-after": "1"}), Response(200, "now"))
    async with opened(get(), handler, clock=clock) as tools:
        calling = asyncio.create_task(tools.call(clock=clock))
        await tools.served.until(1)
        while not calling.done():
            before = clock.monotonic()
            await asyncio.sleep(0)
            clock.advance(0.25)
            if len(tools.served.asked) > 1:
                assert before >= 1.0
                break
        assert (await calling).value == "now"
    async with opened(post(), answers(Response(429, headers={"retry-after": "120"}))) as tools:
        with pytest.raises(HTTPRateLimitError, match=r"it may be called again in 120 s"):
            await tools.call(args={"n": 1})


async def test_redirects_are_followed_within_the_guard_and_without_the_auth() -> None:
    """A read is led on within its own peer with its auth; to another place it is refused unless it is allowed."""
    async with peer(lambda _request: Response(200, "elsewhere")) as other:

        def handler(request: Request) -> Response:
            leads = {"/thing": "/next", "/next": f"{other.url}/far"}
            return Response(302, headers={"location": leads[request.path]})

        auth = {"auth": Bearer(secret("env:HTTP_TOKEN"))}
        async with opened(get(**auth), handler) as tools:
            with pytest.raises(AddressRefusedError, match="allow_hosts"):
                await tools.call()
            assert other.asked == []
            assert [one.headers["authorization"] for one in tools.served.asked] == [f"Bearer {CANARY}"] * 2
        async with opened(get(allow_hosts=[f"127.0.0.1:{other.port}"], **auth), handler) as tools:
            assert (await tools.call()).value == "elsewhere"
        assert "authorization" not in other.asked[0].headers
        assert "idempotency-key" not in other.asked[0].headers


async def test_redirects_end() -> None:
    """More than three are an error, and a call with effects follows none."""
    circle = answers(Response(302, headers={"location": "/thing"}))
    async with opened(get(), circle) as tools:
        with pytest.raises(HTTPAnswerError, match="more than 3 redirects"):
            await tools.call()
        assert len(tools.served.asked) == 4
    async with opened(post(), answers(Response(307, headers={"location": "/other"}))) as tools:
        with pytest.raises(HTTPStatusError, match="which is not followed"):
            await tools.call(args={"n": 1})


async def test_answers_are_read_up_to_a_limit_also_when_they_are_packed() -> None:
    """A small answer that unpacks into a large one is refused before it is large."""
    bomb = gzip.compress(b"x" * 20_000_000)
    small = ToolLimits(result_bytes=1_000_000)
    for body, packed in ((bomb, "gzip"), (zlib.compress(b"y" * 2_000_000), "deflate"), (b"z" * 1_000_001, "identity")):
        async with opened(get(), answers(Response(200, body, {"content-encoding": packed})), limits=small) as tools:
            with pytest.raises(HTTPAnswerError, match=r"larger than 1\.0 MB"):
                await tools.call()
            assert len(tools.served.asked) == 1
    packed = gzip.compress(b'{"ok": "packed"}')
    async with opened(get(), answers(Response(200, packed, {"content-encoding": "gzip"}))) as tools:
        assert (await tools.call()).value == {"ok": "packed"}
    async with opened(get(), answers(Response(200, b"?", {"content-encoding": "br"}))) as tools:
        with pytest.raises(HTTPAnswerError, match="packed in a way"):
            await tools.call()


async def test_values_of_answers_are_of_their_type() -> None:
    """JSON is parsed, text is text in its own character set, nothing is None, and anything else is a file."""
    png = b"\x89PNG\r\n\x1a\n" + bytes(8)
    given = [
        (Response(200, b'{"a": 1}', {"content-type": "application/vnd.api+json"}), {"a": 1}),
        (Response(200, b"gr\xfc\xdfe", {"content-type": "text/plain; charset=latin-1"}), "grüße"),
        (Response(204, b"", {"content-type": ""}), None),
        (Response(200, b"a,b", {"content-type": "text/csv"}), "a,b"),
        (Response(200, png, {"content-type": "image/png"}), Image(png)),
        (
            Response(
                200, b"\0\1", {"content-type": "application/x-cbor", "content-disposition": 'x; filename="../a/b"'}
            ),
            File(b"\0\1", mime="application/x-cbor"),
        ),
    ]
    left = [one for one, _ in given]
    async with opened(get(), lambda _request: left.pop(0)) as tools:
        for _, wanted in given:
            assert (await tools.call()).value == wanted
    async with opened(get(), answers(Response(200, b'{"a": '))) as tools:
        with pytest.raises(HTTPAnswerError, match="says that it is JSON, and is none"):
            await tools.call()


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_TOKEN", CANARY)


async def test_who_calls_is_shown_where_the_operator_says() -> None:
    """As a bearer, a key in a header or the query, or a cookie; with headers of the operator."""
    key = secret("env:HTTP_TOKEN")
    for auth, seen in (
        (Bearer(key), lambda one: one.headers["authorization"] == f"Bearer {CANARY}"),
        (ApiKey(key, header="X-Key"), lambda one: one.headers["x-key"] == CANARY),
        (ApiKey(key, query="key"), lambda one: one.query["key"] == CANARY),
        (CookieAuth("session", key), lambda one: one.headers["cookie"] == f"session={CANARY}"),
    ):
        async with opened(get(auth=auth, headers={"X-Version": "7", "X-Own": key}), answers(Response(200, 1))) as tools:
            await tools.call()
        [asked] = tools.served.asked
        assert seen(asked)
        assert (asked.headers["x-version"], asked.headers["x-own"]) == ("7", CANARY)


async def test_a_peer_that_repeats_a_secret_is_masked() -> None:
    """In results, in the texts of errors, and in the name of a file: nobody sees the secret."""
    auth = {"auth": Bearer(secret("env:HTTP_TOKEN"))}
    echo = {"said": f"you are {CANARY}", "quoted": "hunter2%2Fcanary%2Btoken"}
    async with opened(get(**auth), answers(Response(200, echo))) as tools:
        assert (await tools.call()).value == {"said": "you are ***", "quoted": "***"}
    async with opened(get(**auth), answers(Response(400, echo))) as tools:
        with pytest.raises(ToolInvalidArgsError) as failed:
            await tools.call()
        assert "hunter2" not in str(failed.value)
        assert "***" in str(failed.value)
    named = {"content-type": "application/x-bin", "content-disposition": f'x; filename="{CANARY}.bin"'}
    async with opened(get(**auth), answers(Response(200, b"\0", named))) as tools:
        file = (await tools.call()).value
        assert "hunter2" not in file.name


async def test_a_secret_that_is_missing_keeps_the_call_from_being_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the reference; nothing is sent."""
    monkeypatch.delenv("HTTP_TOKEN")
    async with opened(get(auth=Bearer(secret("env:HTTP_TOKEN"))), answers(Response())) as tools:
        with pytest.raises(AuthMissingError, match="env:HTTP_TOKEN is missing: the variable is not set"):
            await tools.call()
        assert tools.served.asked == []


async def test_the_texts_of_errors_are_short_and_plain() -> None:
    """No escape sequence of a peer reaches a terminal, and no long text."""
    body = b"\x1b[31mred\x1b[0m " + b"a" * 1000
    async with opened(post(), answers(Response(500, body, {"content-type": "text/plain"}))) as tools:
        with pytest.raises(HTTPStatusError) as failed:
            await tools.call(args={"n": 1})
    assert "\x1b" not in str(failed.value)
    assert len(str(failed.value)) < 300


async def test_a_server_of_a_document_is_judged_by_the_guard() -> None:
    """An address that a document names is from outside; one that the operator names is not."""
    async with peer(lambda _request: Response(200, "inside")) as inner:
        document = {
            "openapi": "3.0.3",
            "servers": [{"url": inner.url}],
            "paths": {"/thing": {"get": {"operationId": "x"}}},
        }
        async with opened(lambda _url: OpenAPI(document, name="d"), answers(Response())) as tools:
            with pytest.raises(AddressRefusedError, match="allow_hosts"):
                await tools.call("d_x")
        assert inner.asked == []
        allowed = [f"127.0.0.1:{inner.port}"]
        async with opened(lambda _url: OpenAPI(document, name="d", allow_hosts=allowed), answers(Response())) as tools:
            assert (await tools.call("d_x")).value == "inside"


async def test_arguments_that_are_too_long_for_an_address_are_refused() -> None:
    """Nothing is sent, and the model learns why."""
    async with opened(get(args={"q": str}), answers(Response())) as tools:
        with pytest.raises(ToolInvalidArgsError, match="they make no address that can be sent"):
            await tools.call(args={"q": "x" * 70_000})
        assert tools.served.asked == []


async def test_attempts_that_are_used_up_say_so() -> None:
    """A read that never succeeds ends after four attempts."""
    async with opened(get(), answers(Response(500))) as tools:
        with pytest.raises(ToolPolicyExhaustedError, match="gave up after 4 attempts"):
            await tools.call()
    assert len(tools.served.asked) == 4
