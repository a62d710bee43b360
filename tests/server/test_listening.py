"""Sockets and connections: addresses, and peers who stall or never end their headers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from harborage.errors import InvalidOptionError
from harborage.server import listening
from harborage.server.listening import Address, BindError, Listener, bound_address, listen, parse_address

WITHIN_S = 20


async def hello(scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    """Answer every request with a word, once its body is there."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


@asynccontextmanager
async def serving() -> AsyncIterator[Address]:
    """A listener on a free port of this machine."""
    opened = listen(Address("127.0.0.1", 0))
    listener = Listener(hello, opened, grace=1)
    task = asyncio.create_task(listener.serve())
    try:
        yield bound_address(opened)
    finally:
        listener.stop()
        async with asyncio.timeout(WITHIN_S):
            await task


async def exchange(address: Address, *parts: bytes) -> bytes:
    """Send parts over one connection and return what comes until the server closes it."""
    reader, writer = await asyncio.open_connection(*address)
    read = bytearray()
    try:
        for part in parts:
            writer.write(part)
        with suppress(ConnectionResetError):  # the server closed with something of ours unread
            async with asyncio.timeout(WITHIN_S):
                while part := await reader.read(1024):
                    read += part
        return bytes(read)
    finally:
        writer.close()


async def test_an_answer_waits_for_no_acknowledgement() -> None:
    """Connections send at once what is written: head and body of an answer are two writes."""
    at_once = asyncio.get_running_loop().create_future()

    def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        at_once.set_result(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    opened = listen(Address("127.0.0.1", 0))
    async with await asyncio.start_server(connected, sock=opened):
        await exchange(bound_address(opened))
    assert at_once.result()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        ("localhost:18080", Address("localhost", 18080)),
        ("[::1]:80", Address("::1", 80)),
    ],
)
def test_an_address_is_host_and_port(text: str, expected: Address) -> None:
    """It is spelled again as it was read."""
    assert parse_address(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize("text", ["", "18080", "host", ":80", "host:", "host:70000", "::1:80", "a b:80", "host:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    """The text says what one looks like."""
    with pytest.raises(InvalidOptionError, match="HOST:PORT"):
        parse_address(text)


def test_a_taken_address_is_named_with_the_fix() -> None:
    """Another process, or this one, listens there."""
    taken = listen(Address("127.0.0.1", 0))
    try:
        with pytest.raises(BindError, match="name another with --bind"):
            listen(bound_address(taken))
    finally:
        taken.close()


async def test_requests_of_one_connection_are_answered_in_turn() -> None:
    """The connection stays until the client closes it; no header names the software."""
    async with serving() as address:
        request = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"
        answer = await exchange(address, request, request.replace(b"host: x", b"host: x\r\nconnection: close"))
        assert answer.count(b"200 OK") == 2
        assert b"uvicorn" not in answer.lower()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nhost: x\r\n"])
async def test_a_peer_whose_headers_do_not_come_is_cut_off(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    """It holds a connection no longer than ten seconds, here less."""
    monkeypatch.setattr(listening, "_HEADERS_WITHIN_S", 0.05)
    async with serving() as address:
        assert await exchange(address, sent) == b""


async def test_headers_that_do_not_end_are_refused() -> None:
    """Their length is bounded."""
    async with serving() as address:
        answer = await exchange(address, b"GET / HTTP/1.1\r\n", *([b"x-long: " + b"a" * 60_000 + b"\r\n"] * 3))
        assert answer.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("size", [60_000, 70_000, 1_000_000])
async def test_a_body_in_one_piece_with_its_headers_is_no_header(size: int) -> None:
    """However long it is, and also behind another request of the same connection."""
    async with serving() as address:
        request = b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size
        last = request.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1)
        answer = await exchange(address, request + last)
    assert answer.count(b"HTTP/1.1 200") == 2


async def test_a_second_request_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that stalls in the headers of its second request is cut off, too."""
    monkeypatch.setattr(listening, "_HEADERS_WITHIN_S", 0.1)
    async with serving() as address:
        whole = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
        assert (await exchange(address, whole, b"GET / HTTP/1.1\r\nhost:")).count(b"200 OK") == 1
