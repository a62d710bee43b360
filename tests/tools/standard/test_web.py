"""`http_get`: what it reads, its limits, and that it cannot be turned on the network it runs in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx2
import pytest

from harborage import codec
from harborage.identity import Quadruple
from harborage.testing.clock import FakeClock, settle
from harborage.tools import CallContext, ErrorClass, Invoker, SideEffect, ToolPolicyExhaustedError, ToolTimeoutError
from harborage.tools.addresses import Resolve
from harborage.tools.standard import AddressRefusedError, FetchFailedError, WebLimits, http_get
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

PUBLIC = "93.184.216.34"
USUAL = WebLimits()
Handler = Callable[[httpx2.Request], httpx2.Response]


def answer(status: int = 200, body: str | bytes | httpx2.AsyncByteStream = "", **headers: str) -> httpx2.Response:
    """An answer whose body is still to be read, as one from a network is."""
    data = body.encode() if isinstance(body, str) else body
    stream = httpx2.ByteStream(data) if isinstance(data, bytes) else data
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.Response(status, stream=stream, headers={"content-type": "text/plain"} | named)


class Endless(httpx2.AsyncByteStream):
    """A body without an end."""

    def __init__(self) -> None:
        self.sent = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            self.sent += 1
            yield "漢".encode() * 100


class Net:
    """A network that answers as it is told, and remembers what was looked up and what was asked."""

    def __init__(self, handler: Handler | None = None, names: dict[str, list[list[str]]] | None = None) -> None:
        self.handler = handler or (lambda _request: answer(200, "hello"))
        self.names = names or {}
        self.looked_up: list[tuple[str, int]] = []
        self.asked: list[httpx2.Request] = []

    async def resolve(self, host: str, port: int) -> list[str]:
        """The next answer of the name server for a host; the last one stays."""
        self.looked_up.append((host, port))
        answers = self.names.get(host, [[PUBLIC]])
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def respond(self, request: httpx2.Request) -> httpx2.Response:
        """What a server says."""
        self.asked.append(request)
        return self.handler(request)

    async def get(self, url: str, *, limits: WebLimits = USUAL, allow_private: bool = False, **args: Any) -> Any:
        """What the tool gives."""
        tool = http_get(
            allow_private=allow_private,
            limits=limits,
            resolve=self.resolve,
            transport=httpx2.MockTransport(self.respond),
        )
        # Straight to the body: how often it is tried is the policy's business and has tests of its own.
        return (await tool.body(codec.encode({"url": url, **args}), CALL)).value


CALL = CallContext(Quadruple("t", "u", "s", "r"), "c", "k")


@contextlib.asynccontextmanager
async def server(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """A server on a free loopback port that talks to each connection as told."""
    started = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with started:
        yield f"http://127.0.0.1:{started.sockets[0].getsockname()[1]}"


async def test_a_text_is_read() -> None:
    """With where it was found, its status and type."""
    net = Net()
    assert await net.get("http://example.com/a?b=c#d") == {
        "url": "http://example.com/a?b=c#d",
        "status": 200,
        "content_type": "text/plain",
        "content": "hello",
        "truncated": False,
    }
    (request,) = net.asked
    assert request.headers["accept-encoding"] == "identity"
    assert "cookie" not in request.headers
    assert str(request.url).endswith("/a?b=c")


async def test_the_connection_goes_to_the_address_that_was_judged() -> None:
    """The request is for the address, the Host header and the certificate's name are for the host."""
    net = Net(names={"example.com": [["93.184.216.34", "93.184.216.35"]]})
    await net.get("https://example.com:8443/x")
    (request,) = net.asked
    assert (request.url.host, request.url.port, request.url.scheme) == ("93.184.216.34", 8443, "https")
    assert request.headers["host"] == "example.com:8443"
    assert request.extensions["sni_hostname"] == "example.com"
    assert net.looked_up == [("example.com", 8443)]


async def test_an_address_of_version_6_is_asked_as_well() -> None:
    """In the brackets that a URL needs."""
    net = Net(names={"example.com": [["2606:4700::1111"]]})
    await net.get("http://example.com/")
    assert str(net.asked[0].url) == "http://[2606:4700::1111]/"


async def test_a_name_server_that_changes_its_mind_changes_nothing() -> None:
    """A name that is public when judged and private when asked again is asked only once."""
    net = Net(names={"rebind.example.com": [[PUBLIC], ["127.0.0.1"]]})
    await net.get("http://rebind.example.com/")
    assert net.asked[0].url.host == PUBLIC
    assert len(net.looked_up) == 1


@each_row(
    "addresses", [["127.0.0.1"], ["10.1.2.3"], ["169.254.169.254"], ["::1"], ["::ffff:127.0.0.1"], [PUBLIC, "10.0.0.1"]]
)
async def test_a_name_with_an_inner_address_is_refused(addresses: list[str]) -> None:
    """One inner address among public ones is enough; nothing is asked."""
    net = Net(names={"evil.example.com": [addresses]})
    with pytest.raises(AddressRefusedError):
        await net.get("http://evil.example.com/")
    assert net.asked == []


@each_row(
    "url",
    [
        "http://127.0.0.1/",
        "http://127.0.0.1:8080/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]:80/",
        "http://[fe80::1]/",
        "http://169.254.169.254/latest/meta-data/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0177.0.0.1/",
        "http://0x7f.0.0.1/",
        "http://127.1/",
        "http://0/",
        "http://localhost/",
        "http://LOCALHOST./",
        "http://a.localhost:3000/",
        "http://metadata.google.internal/",
        "http://①②⑦.⓪.⓪.①/",
        "http://127。0。0。1/",
        "http://user:pass@example.com/",
        "http://example.com@127.0.0.1/",
        "http://127.0.0.1#@example.com/",
        "http://example.com\\@127.0.0.1/",
        "http://exa%6dple.com/",
        "http://127.0.0.1%2f@example.com/",
        "http:///x",
        "http://",
        "example.com",
        "file:///etc/passwd",
        "ftp://example.com/",
        "gopher://example.com/",
        "data:text/plain,hello",
        "javascript:alert(1)",
        " http://example.com/",
        "http://example.com/\r\nX: y",
        "http://example.com/a b",
        "http://example.com:99999/",
        "http://[::1/",
        "http://example.com/" + "x" * 3000,
    ],
)
async def test_a_url_that_is_a_trick_is_refused(url: str) -> None:
    """Inner addresses in every notation, credentials, other schemes and broken URLs: nothing is asked."""

    async def as_the_system_would(host: str, port: int) -> list[str]:
        # What a C library makes of such a text; the refusal must not depend on it.
        is_name = host[:1].isalpha() and ":" not in host and "localhost" not in host.lower()
        return [PUBLIC] if is_name else [host]

    net = Net()
    net.resolve = as_the_system_would  # type: ignore[method-assign]
    with pytest.raises(AddressRefusedError) as caught:
        await net.get(url)
    assert net.asked == []
    assert "user:pass" not in str(caught.value)


@each_row(
    "location",
    [
        "http://127.0.0.1/",
        "//169.254.169.254/latest",
        "http://inner.example.com/",
        "http://2130706433/",
        "file:///etc/passwd",
        "http://user:pass@example.com/",
    ],
)
async def test_a_redirect_is_judged_like_a_first_address(location: str) -> None:
    """A public server cannot send the tool where it could not have been sent at first."""
    net = Net(
        lambda _request: answer(302, location=location),
        names={"inner.example.com": [["10.0.0.1"]]},
    )
    with pytest.raises(AddressRefusedError):
        await net.get("http://example.com/")
    assert len(net.asked) == 1


async def test_redirects_are_followed_up_to_the_limit() -> None:
    """Relative ones too; the page says where it was found in the end."""
    net = Net(
        lambda request: (
            answer(200, "found")
            if request.url.path == "/3"
            else answer(301, location=str(int(request.url.path[1:] or 0) + 1))
        )
    )
    assert (await net.get("http://example.com/", limits=WebLimits(max_redirects=3)))["url"] == "http://example.com/3"
    with pytest.raises(FetchFailedError, match="more than 2 redirects"):
        await net.get("http://example.com/", limits=WebLimits(max_redirects=2))


async def test_html_becomes_text_unless_it_is_wanted_raw() -> None:
    """With the title beside it, and links completed by the page's address."""
    source = "<title>T</title><p>Hi <a href='x'>there</a></p>"
    net = Net(lambda _request: answer(200, source, content_type="text/html; charset=utf-8"))
    page = await net.get("http://example.com/a/")
    assert (page["title"], page["content"]) == ("T", "Hi there (http://example.com/a/x)")
    assert (await net.get("http://example.com/", raw=True))["content"] == source


async def test_a_body_is_cut_at_the_limit_and_says_so() -> None:
    """The rest is not even read, and no character is cut; exactly the limit is whole."""
    endless = Endless()
    net = Net(lambda _request: answer(200, endless))
    page = await net.get("http://example.com/", limits=WebLimits(max_bytes=1000))
    assert (page["truncated"], page["content"]) == (True, "漢" * 333)
    assert endless.sent < 10
    whole = Net(lambda _request: answer(200, "x" * 1000))
    assert (await whole.get("http://example.com/", limits=WebLimits(max_bytes=1000)))["truncated"] is False


@each_row("kind", ["image/png", "application/octet-stream", "application/pdf", "video/mp4"])
async def test_what_is_no_text_is_not_read(kind: str) -> None:
    """The type is in the message."""
    net = Net(lambda _request: answer(200, "x", content_type=kind))
    with pytest.raises(FetchFailedError, match=kind):
        await net.get("http://example.com/")


@each_row(
    "kind, body, expected",
    [
        ("text/plain; charset=iso-8859-1", b"gr\xfcn", "grün"),
        ('text/plain; charset="UTF-16"', "grün".encode("utf-16"), "grün"),
        ("text/plain", "\ufeffgrün".encode(), "grün"),
        ("text/plain", b"gr\xfcn", "gr\ufffdn"),
        ("text/plain; charset=nonsense", "grün".encode(), "grün"),
        ("text/plain; charset=rot13", b"abc", "abc"),
        ("text/plain; charset=punycode", b"abc", "abc"),
        ("application/json", b"{}", "{}"),
        ("", b"abc", "abc"),
    ],
)
async def test_a_text_is_decoded_as_its_server_says(kind: str, body: bytes, expected: str) -> None:
    """Unknown sets and those that are no sets of characters are UTF-8."""
    net = Net(lambda _request: answer(200, body, content_type=kind))
    assert (await net.get("http://example.com/"))["content"] == expected


async def test_a_packed_answer_is_refused() -> None:
    """It was asked for as it is, so a small body that unpacks to a huge one is never unpacked."""
    net = Net(lambda _request: answer(200, b"\x1f\x8b", content_encoding="gzip"))
    with pytest.raises(FetchFailedError, match="packed"):
        await net.get("http://example.com/")


@each_row(
    "status, kind",
    [(404, ErrorClass.PERMANENT), (403, ErrorClass.PERMANENT), (429, ErrorClass.TRANSIENT), (503, ErrorClass.SERVER)],
)
async def test_a_status_that_is_no_success_is_an_error(status: int, kind: ErrorClass) -> None:
    """It tells the status and the beginning of the answer, without the query, and whether to try again."""
    net = Net(lambda _request: answer(status, "no\nsuch thing" + "x" * 999))
    with pytest.raises(FetchFailedError, match=f"example.com/a: status {status}: no such thing") as caught:
        await net.get("http://example.com/a?key=secret")
    assert (caught.value.status, caught.value.error_class) == (status, kind)
    assert "secret" not in str(caught.value)
    assert len(str(caught.value)) < 400


async def test_an_unknown_host_name_is_reported() -> None:
    """It may be known in a moment."""

    async def unknown(_host: str, _port: int) -> list[str]:
        raise OSError(-2, "Name or service not known")

    async def none(_host: str, _port: int) -> list[str]:
        return []

    for resolve in (unknown, none):
        net = Net()
        net.resolve = resolve  # type: ignore[method-assign]
        with pytest.raises(FetchFailedError, match=r"nowhere\.example"):
            await net.get("http://nowhere.example/")


async def test_the_whole_call_has_a_deadline() -> None:
    """A server that lets its visitors wait is left after the limit, twice."""
    clock = FakeClock()

    async def never(_host: str, _port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    tool = http_get(limits=WebLimits(timeout_s=5), resolve=never)
    call = asyncio.ensure_future(Invoker(clock=clock).invoke(tool, codec.encode({"url": "http://example.com/"}), CALL))
    await clock.run_for(4.9)
    assert not call.done()
    await clock.run_for(6)
    await settle()
    with pytest.raises((ToolTimeoutError, ToolPolicyExhaustedError)):
        await call


async def test_a_real_server_is_read_where_private_networks_are_allowed() -> None:
    """And refused where they are not, before a connection is made."""
    connections = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        request = await reader.readuntil(b"\r\n\r\n")
        assert b"host: 127.0.0.1:" in request.lower()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi")
        await writer.drain()
        writer.close()

    async with server(talk) as url:
        with pytest.raises(AddressRefusedError, match="private network"):
            await Invoker().invoke(http_get(), codec.encode({"url": url}), CALL)
        assert connections == 0
        result = await Invoker().invoke(http_get(allow_private=True), codec.encode({"url": url}), CALL)
        assert result.value["content"] == "hi"
        by_name = codec.encode({"url": url.replace("127.0.0.1", "localhost")})
        with pytest.raises(AddressRefusedError):
            await Invoker().invoke(http_get(), by_name, CALL)


async def test_a_connection_that_breaks_is_an_error_and_is_closed() -> None:
    """A body that ends too early is no answer; leaving in the middle closes the connection."""
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 99999\r\n\r\nhi")
        await writer.drain()
        if b"/wait" in request:
            arrived.set()
            await reader.read()
            gone.set()
        writer.close()

    async with server(talk) as url:
        tool = http_get(allow_private=True)
        with pytest.raises(FetchFailedError) as caught:
            await tool.body(codec.encode({"url": url}), CALL)
        assert caught.value.error_class is ErrorClass.TRANSIENT
        call = asyncio.ensure_future(tool.body(codec.encode({"url": f"{url}/wait"}), CALL))
        await arrived.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        async with asyncio.timeout(5):
            await gone.wait()


def test_it_reads_and_says_where_what_is_written_goes() -> None:
    """It changes nothing, yet an address is also a message; the tag lets a policy ask first."""
    described = http_get().tool
    assert described.side_effects is SideEffect.READ
    assert "network" in described.tags
    assert "server" in described.safety_notes


def test_a_resolver_is_a_plain_function() -> None:
    """Anything that answers with addresses will do."""
    resolve: Resolve = Net().resolve
    assert callable(resolve)
