"""What the guard lets through, and that a connection is made to the address that was judged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest

from harborage.tools.errors import AddressRefusedError, AuthMissingError
from harborage.tools.guard import AddressGuard, GuardedTransport, Place, place_of

pytestmark = pytest.mark.anyio

PUBLIC = "93.184.216.34"


class Names:
    """A name server whose answers change."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[Place] = []

    async def resolve(self, host: str, port: int) -> list[str]:
        self.asked.append(Place(host, port))
        return self.answers.pop(0)


@asynccontextmanager
async def server() -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that answers every request with 200; the requests that reached it."""
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")
        await writer.drain()
        writer.close()

    opened = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with opened:
        yield opened.sockets[0].getsockname()[1], seen


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1/", "it is an address of this machine"),
        ("http://localhost/", "its host is a name of this machine"),
        ("http://169.254.169.254/", "it is a link-local or metadata address"),
        ("http://0x7f.1/", "its host is a number in disguise"),
        ("http://[::ffff:127.0.0.1]/", "it is an address of this machine"),
        ("https://api.example:8443/", "its port is neither 80 nor 443"),
        ("ftp://api.example/", "only http:// and https:// are visited"),
        ("https://user:hunter2@api.example/", "it has a user name or password"),
    ],
)
async def test_urls_from_outside_that_are_refused(url: str, reason: str) -> None:
    """Nothing is looked up or visited, and the error names the host and the setting."""
    names = Names()
    async with httpx2.AsyncClient(transport=GuardedTransport(AddressGuard(resolve=names.resolve))) as client:
        with pytest.raises(AddressRefusedError, match=reason) as refused:
            await client.get(url)
    assert "hunter2" not in str(refused.value)
    assert names.asked == []


async def test_a_name_that_leads_inside_is_refused_without_its_address() -> None:
    """One private address among those of a name is enough; the error does not say which it was."""
    names = Names([PUBLIC, "10.1.2.3"])
    async with httpx2.AsyncClient(transport=GuardedTransport(AddressGuard(resolve=names.resolve))) as client:
        with pytest.raises(AddressRefusedError, match=r'allow_hosts=\["rebind.example:80"\]') as refused:
            await client.get("http://rebind.example/")
    assert "10.1.2.3" not in str(refused.value)


async def test_the_address_that_was_judged_is_the_one_that_is_visited() -> None:
    """A name server that answers otherwise the second time is not asked a second time."""
    async with server() as (port, seen):
        names = Names(["127.0.0.1"], ["10.9.9.9"])
        guard = AddressGuard(allow_hosts=[f"*.corp.example:{port}"], resolve=names.resolve)
        async with httpx2.AsyncClient(transport=GuardedTransport(guard)) as client:
            answer = await client.get(f"http://api.corp.example:{port}/path")
        assert (answer.status_code, answer.text) == (200, "ok")
        assert b"host: api.corp.example" in seen[0].lower()
        assert names.asked == [Place("api.corp.example", port)]


async def test_what_the_operator_wrote_is_visited_as_it_is() -> None:
    """The place of a trusted URL is visited with any path; another port of the same host is not."""
    async with server() as (port, seen):
        guard = AddressGuard([f"http://127.0.0.1:{port}/base"])
        async with httpx2.AsyncClient(transport=GuardedTransport(guard, keeps=False)) as client:
            assert (await client.get(f"http://127.0.0.1:{port}/other")).status_code == 200
            with pytest.raises(AddressRefusedError):
                await client.get(f"http://127.0.0.1:{port + 1}/")
        assert len(seen) == 1


async def test_an_exception_never_leads_to_where_clouds_keep_credentials() -> None:
    """A name that is allowed may lead to private networks, not to link-local addresses."""
    names = Names(["169.254.169.254"])
    guard = AddressGuard(allow_hosts=["api.corp.example"], resolve=names.resolve)
    with pytest.raises(AddressRefusedError, match="link-local or metadata"):
        await guard.choose(Place("api.corp.example", 443))
    assert await guard.choose(Place("93.184.216.34", 443)) == [PUBLIC]


async def test_a_connection_that_does_not_open_is_an_error_of_the_client() -> None:
    """A name that is not known, and one without an address, are connections that never opened."""

    async def unknown(_host: str, _port: int) -> list[str]:
        raise OSError("no such name")

    for resolve in (unknown, Names([]).resolve):
        async with httpx2.AsyncClient(transport=GuardedTransport(AddressGuard(resolve=resolve))) as client:
            with pytest.raises(httpx2.ConnectError, match=r"the name api\.example"):
                await client.get("http://api.example/")


def test_places_are_compared_by_host_and_port() -> None:
    """Case, a dot at the end and a usual port make no other place."""
    assert place_of("HTTPS://Api.Example./x") == place_of("https://api.example:443") == Place("api.example", 443)
    assert str(place_of("http://[::1]:8080/")) == "[::1]:8080"


def test_a_missing_secret_is_named_by_its_reference() -> None:
    """The error says where the secret was looked for."""
    assert str(AuthMissingError("env:KEY", "the variable is not set")) == (
        "the secret env:KEY is missing: the variable is not set"
    )
