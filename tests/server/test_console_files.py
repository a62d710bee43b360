"""A console is served beside the protocol: its files, and its page for every other path of pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from harborage.errors import InvalidOptionError
from harborage.runtime.host import Runtime
from harborage.server.application import Server
from harborage.server.console_files import PLACEHOLDER, ConsoleFiles
from tests.kit.wire import HeaderGate, Wire

PAGE = b"<!doctype html><title>console</title>"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The build of a console, and a file beside it that is not its."""
    (tmp_path / "secret.txt").write_text("hush", "utf-8")
    build = tmp_path / "build"
    (build / "app").mkdir(parents=True)
    (build / "index.html").write_bytes(PAGE)
    (build / "app" / "main.js").write_text("1", "utf-8")
    (build / "style.css").write_text("a{}", "utf-8")
    (build / "link.txt").symlink_to(tmp_path / "secret.txt")
    return build


@pytest.fixture
def wire(runtime: Runtime, folder: Path) -> Wire:
    """A client of a server with that console."""
    return Wire(Server(runtime, gate=HeaderGate(), fallback=ConsoleFiles(folder).answer))


@pytest.mark.parametrize(
    ("path", "kind", "body"),
    [
        ("/", "text/html; charset=utf-8", PAGE),
        ("/index.html", "text/html; charset=utf-8", PAGE),
        ("/app/main.js", "text/javascript; charset=utf-8", b"1"),
        ("/style.css", "text/css; charset=utf-8", b"a{}"),
        ("/sessions/dev-seed-session-1", "text/html; charset=utf-8", PAGE),
        ("/favicon.png", "text/html; charset=utf-8", PAGE),
        ("/app", "text/html; charset=utf-8", PAGE),
        ("/v1x", "text/html; charset=utf-8", PAGE),
        ("/artifacts", "text/html; charset=utf-8", PAGE),
    ],
)
async def test_a_file_is_itself_and_any_other_path_the_page(wire: Wire, path: str, kind: str, body: bytes) -> None:
    """No token is asked for; the type is right for a browser that sniffs nothing."""
    reply = await wire.request("GET", path)
    assert (reply.status, reply.headers["content-type"], reply.body) == (200, kind, body)
    assert reply.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("path", ["/v1/nope", "/v1/", "/v1", "/v1/control/nope/more", "/healthz/more"])
async def test_the_paths_of_the_protocol_never_fall_back(wire: Wire, path: str) -> None:
    """A client of the protocol gets no page for an answer."""
    reply = await wire.request("GET", path)
    assert reply.status in (404, 405)
    assert PAGE not in reply.body


@pytest.mark.parametrize(
    "path", ["/../secret.txt", "/app/../../secret.txt", "//etc/passwd", "/link.txt", "/a\0b", "/" + "a" * 5000]
)
async def test_no_path_leads_out_of_the_folder(wire: Wire, path: str) -> None:
    """Neither by dots nor by a link; such a path is the page like any other."""
    reply = await wire.request("GET", path)
    assert (reply.status, reply.body) == (200, PAGE)


@pytest.mark.parametrize("verb", ["POST", "PUT", "DELETE"])
async def test_pages_are_only_read(wire: Wire, verb: str) -> None:
    """Another verb is refused."""
    assert (await wire.request(verb, "/somewhere")).status == 405


@pytest.mark.parametrize(
    ("verb", "path"), [("POST", "/artifacts/a?grant=x"), ("POST", "/v1/openapi.json"), ("OPTIONS", "/readyz")]
)
async def test_what_the_server_has_refuses_other_verbs_itself(wire: Wire, verb: str, path: str) -> None:
    """405, as without a console: such a path is not missing."""
    assert (await wire.request(verb, path)).status == 405


async def test_head_has_no_body(wire: Wire) -> None:
    """It answers as GET does, without what it answers."""
    reply = await wire.request("HEAD", "/style.css")
    assert (reply.status, reply.body) == (200, b"")


async def test_without_a_build_there_is_a_placeholder(runtime: Runtime) -> None:
    """It says which command builds one, and how to name another."""
    wire = Wire(Server(runtime, gate=HeaderGate(), fallback=ConsoleFiles(None).answer))
    reply = await wire.request("GET", "/")
    assert (reply.status, reply.body.decode()) == (200, PLACEHOLDER)


def test_a_folder_that_holds_no_build_is_refused(tmp_path: Path) -> None:
    """When the server starts, not when somebody opens it."""
    with pytest.raises(InvalidOptionError, match=r"index\.html"):
        ConsoleFiles(tmp_path)


OWN = b'<!doctype html><html lang="en"><meta name="generator" content="harborage-console" /></html>'


def client_of_our_own(runtime: Runtime, folder: Path, *, is_development: bool = False) -> Wire:
    """A client of a server with a build of our own console."""
    (folder / "index.html").write_bytes(OWN)
    (folder / "assets").mkdir()
    (folder / "assets" / "main-abc.js").write_text("1", "utf-8")
    files = ConsoleFiles(folder, is_development=is_development)
    return Wire(Server(runtime, gate=HeaderGate(), fallback=files.answer))


async def test_our_own_console_runs_nothing_but_its_own_files(runtime: Runtime, folder: Path) -> None:
    """Its policy allows neither inline scripts nor inline styles, nor frames around it; another console has its own."""
    wire = client_of_our_own(runtime, folder)
    for path in ("/", "/tasks/t-1", "/assets/main-abc.js"):
        policy = (await wire.request("GET", path)).headers["content-security-policy"].split("; ")
        assert {"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"} <= {*policy}
        assert not any("unsafe" in rule or "*" in rule for rule in policy)


async def test_files_named_by_their_content_are_kept_and_the_page_is_asked_for_again(
    runtime: Runtime, folder: Path
) -> None:
    """So that a new version is seen at once and nothing is sent twice."""
    wire = client_of_our_own(runtime, folder)
    assert "immutable" in (await wire.request("GET", "/assets/main-abc.js")).headers["cache-control"]
    assert (await wire.request("GET", "/overview")).headers["cache-control"] == "no-cache"


async def test_the_page_of_a_development_server_says_that_it_gives_tokens(runtime: Runtime, folder: Path) -> None:
    """Only then does the console ask for one by itself."""
    reply = await client_of_our_own(runtime, folder, is_development=True).request("GET", "/")
    assert b'<html data-attach="dev" lang="en">' in reply.body


async def test_the_page_of_another_server_does_not(wire: Wire, runtime: Runtime, folder: Path) -> None:
    """And another console's page is sent as it is."""
    assert (await wire.request("GET", "/")).body == PAGE
    assert "content-security-policy" not in (await wire.request("GET", "/")).headers
    reply = await client_of_our_own(runtime, folder).request("GET", "/")
    assert reply.body == OWN
