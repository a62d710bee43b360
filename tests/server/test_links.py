"""Links under which the server gives out artifacts: what one is bound to, and what a browser is told of its content."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from harborage.artifacts import ArtifactScope
from harborage.identity import Identity
from harborage.server.application import Server
from harborage.server.links import sign_path
from harborage.server.services import ServerOptions
from harborage.testing.clock import FakeClock
from tests.kit.serving import Served, serving
from tests.kit.wire import ADA, BEN, EVE, HeaderGate, Reply, Wire

pytestmark = pytest.mark.anyio

PAGE = "https://console.example"


@pytest.fixture
def clock() -> FakeClock:
    """The clock by which links end."""
    return FakeClock()


@pytest.fixture
async def served(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Served]:
    """A server whose artifacts are on disk."""
    options = ServerOptions(origins=(PAGE,))
    async with serving(storage="sqlite", folder=tmp_path, options=options, clock=clock) as one:
        yield one


async def link(served: Served, data: bytes = b"hello", *, expiry: int = 0, **about: str) -> str:
    """Store something and return the path of a link to it."""
    kept = await served.rt.artifacts.put_bytes(ArtifactScope.of(ADA), data, **about)
    reply = await served.wire.post("artifacts.get_ref", {"id": kept.id, "expiry": expiry})
    assert reply.status == 200, reply.body
    url: str = reply.json["url"]
    return url.removeprefix("http://127.0.0.1:8000")


async def get(served: Served, path: str, verb: str = "GET", **headers: str) -> Reply:
    """Follow a link as a browser does, without a token."""
    return await served.wire.request(verb, path, headers=headers)


async def test_a_link_gives_out_the_content(served: Served) -> None:
    """No token is needed, nothing in it may run, and nobody keeps it."""
    reply = await get(served, await link(served, b"<svg/>", mime_type="image/svg+xml", filename="ein Bild ü.svg"))
    assert (reply.status, reply.body) == (200, b"<svg/>")
    assert reply.headers["content-type"] == "image/svg+xml"
    assert reply.headers["content-security-policy"] == "sandbox"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["content-disposition"] == "inline; filename*=UTF-8''ein%20Bild%20%C3%BC.svg"
    assert reply.headers["content-length"] == "6"
    assert reply.headers["cache-control"] == "private, no-store"


@pytest.mark.parametrize(
    ("mime", "type", "way"),
    [
        ("", "application/octet-stream", "attachment"),
        ("text/html", "text/html", "attachment"),
        ("text/plain; charset=utf-8", "text/plain; charset=utf-8", "inline"),
        ("text/plain\r\nset-cookie: a=b", "application/octet-stream", "attachment"),
        ("téxt/plain", "application/octet-stream", "attachment"),
    ],
)
async def test_what_a_browser_is_told_of_the_content(served: Served, mime: str, type: str, way: str) -> None:
    """It has the type of the upload, unless that is no header; only what browsers show by themselves is shown."""
    reply = await get(served, await link(served, mime_type=mime))
    assert (reply.headers["content-type"], reply.headers["content-disposition"]) == (type, way)
    assert "set-cookie" not in reply.headers


async def test_a_large_artifact_comes_in_parts(served: Served) -> None:
    """No part is larger than 64 KiB, so a slow reader holds up nobody."""
    data = bytes(range(256)) * 1_000
    async with served.wire.open("GET", await link(served, data)) as reader:
        parts = [part async for part in reader]
    assert b"".join(parts) == data
    assert max(map(len, parts)) <= 64 * 1024


async def test_head_says_how_large_it_is(served: Served) -> None:
    """The headers are those of GET."""
    path = await link(served, b"hello", mime_type="text/plain")
    head, whole = await get(served, path, "HEAD"), await get(served, path)
    assert (head.status, head.body) == (200, b"")
    assert head.headers == whole.headers


@pytest.mark.parametrize("verb", ["POST", "PUT", "DELETE", "PATCH"])
async def test_a_link_is_for_reading(served: Served, verb: str) -> None:
    """Any other verb is refused."""
    assert (await get(served, await link(served), verb)).status == 405


async def test_a_link_ends(served: Served, clock: FakeClock) -> None:
    """At the moment that the answer named it is over."""
    path = await link(served, expiry=60 * 10**9)
    clock.advance(59.999)
    assert (await get(served, path)).status == 200
    clock.advance(0.001)
    reply = await get(served, path)
    assert (reply.status, reply.code) == (403, "scope_mismatch")


async def test_a_link_that_was_changed_is_refused(served: Served) -> None:
    """Every character of it counts."""
    path = await link(served)
    place, _, grant = path.partition("=")
    other = await link(served, b"other")
    bad = [
        place,
        f"{place}=",
        f"{place}=AAAA",
        f"{place}=%00",
        f"{place}=ä".replace("ä", "%C3%A4"),
        f"{place}={grant[:-2]}",
        f"{place}={grant}AA",
        *(f"{place}={grant[:n]}{'A' if grant[n] != 'A' else 'B'}{grant[n + 1 :]}" for n in range(0, len(grant), 7)),
        other.partition("=")[0] + f"={grant}",
    ]
    for one in bad:
        assert (await get(served, one)).status == 403, one


@pytest.mark.parametrize("who", [BEN, EVE, Identity("acme", "ada", "s-9")])
async def test_a_link_is_bound_to_its_owner(served: Served, who: Identity, clock: FakeClock) -> None:
    """A grant for one session finds nothing of another, whatever its id."""
    kept = await served.rt.artifacts.put_text(ArtifactScope.of(ADA), "x")
    until = clock.now() + timedelta(minutes=1)
    path = sign_path(await served.server.services.keys.current(), ArtifactScope.of(who), kept.id, until)
    assert (await get(served, path)).status == 404


async def test_what_was_deleted_is_not_found(served: Served) -> None:
    """The link outlives it."""
    path = await link(served)
    kept = (await served.rt.artifacts.list(ArtifactScope.of(ADA)))[0]
    await served.rt.artifacts.delete(ArtifactScope.of(ADA), kept.id)
    assert (await get(served, path)).status == 404
    assert (await get(served, path, "HEAD")).status == 404


async def test_a_page_of_another_origin_may_read_it(served: Served) -> None:
    """A page that is allowed reads the content with plain fetch; for any other the browser keeps it back."""
    path = await link(served)
    allowed = await get(served, path, origin=PAGE)
    assert allowed.headers["access-control-allow-origin"] == PAGE
    other = await get(served, path, origin="https://other.example")
    assert "access-control-allow-origin" not in other.headers


async def test_a_store_that_makes_links_itself_is_asked(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its link is passed on as it is."""
    asked: list[Any] = []

    async def presign(scope: ArtifactScope, id: str, *, expires_in: timedelta) -> str:
        asked.append((scope, expires_in))
        return f"https://bucket.example/{id}"

    monkeypatch.setattr(served.rt.artifacts, "presign", presign, raising=False)
    kept = await served.rt.artifacts.put_text(ArtifactScope.of(ADA), "x")
    reply = await served.wire.post("artifacts.get_ref", {"id": kept.id})
    assert reply.json["url"] == f"https://bucket.example/{kept.id}"
    assert asked == [(ArtifactScope.of(ADA), timedelta(minutes=15))]


async def test_another_server_over_the_same_store_accepts_a_link(tmp_path: Path, clock: FakeClock) -> None:
    """Also one that is started later, and one that made a key of its own at the same time; a foreign store does not."""
    async with serving(storage="sqlite", folder=tmp_path, clock=clock) as one:
        beside = Server(one.rt, gate=HeaderGate(), clock=clock)
        mine, theirs = await link(one), await link(Served(one.rt, beside, Wire(beside)))
        assert (await get(one, theirs)).status == 200
        clock.advance(1.0)  # a key that is not known is looked for once a second
        assert (await get(Served(one.rt, beside, Wire(beside)), mine)).status == 200
    async with serving(storage="sqlite", folder=tmp_path, clock=clock) as later:
        assert (await get(later, mine)).status == 200
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    async with serving(storage="sqlite", folder=elsewhere, clock=clock) as foreign:
        assert (await get(foreign, mine)).status == 403


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("localhost:8000", "http://localhost:8000"),
        ("console.example", "http://127.0.0.1:8000"),
        ("evil.example", "http://127.0.0.1:8000"),
        ("localhost@evil.example", "http://127.0.0.1:8000"),
        ("localhost/../evil.example", "http://127.0.0.1:8000"),
        ("", "http://127.0.0.1:8000"),
    ],
)
async def test_a_host_header_leads_to_no_foreign_site(served: Served, host: str, address: str) -> None:
    """A link is under a name that the server knows for its own, else under the address that was called."""
    kept = await served.rt.artifacts.put_text(ArtifactScope.of(ADA), "x")
    reply = await served.wire.post("artifacts.get_ref", {"id": kept.id}, headers={"host": host})
    url: str = reply.json["url"]
    assert url.startswith(f"{address}/artifacts/")
    assert reply.json["presigned_url"] == url


async def test_a_link_is_under_the_url_that_is_configured(tmp_path: Path) -> None:
    """Or under an allowed origin by which the caller reached the server."""
    for options, host, address in (
        (ServerOptions(base_url="https://agents.example/x/"), "evil.example", "https://agents.example/x/artifacts/"),
        (ServerOptions(origins=("http://agents.example",)), "agents.example", "http://agents.example/artifacts/"),
    ):
        async with serving(storage="sqlite", folder=tmp_path, options=options) as one:
            kept = await one.rt.artifacts.put_text(ArtifactScope.of(ADA), "x")
            reply = await one.wire.post("artifacts.get_ref", {"id": kept.id}, headers={"host": host})
        assert reply.json["url"].startswith(address)
