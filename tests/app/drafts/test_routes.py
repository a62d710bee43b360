"""`/v1/dev/drafts`: what a page may do with drafts, how paths are held in, and what is refused."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harborage.app.drafts.folders import MOST_FILE_BYTES
from harborage.app.drafts.routes import MAX_BODY, PATH, Drafts
from harborage.config import read_config
from harborage.identity import Identity
from harborage.runtime.host import Runtime
from harborage.server.application import Server
from tests.kit.serving import Served
from tests.kit.wire import ADA, BEN, EVE, HeaderGate, Reply, Wire, caller_headers

pytestmark = pytest.mark.anyio

SEEDED = ["Makefile", "README.md", "agent.py", "conftest.py", "harborage.yaml", "tests/test_agent.py"]


class Editor:
    """A page that edits drafts."""

    def __init__(self, served: Served, root: Path) -> None:
        self.served = served
        self.root = root

    async def call(self, verb: str, path: str = "", body: Any = None, who: Identity | None = ADA) -> Reply:
        """Send a request."""
        raw = b"" if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
        headers = {} if who is None else caller_headers(who)
        return await self.served.wire.request(verb, PATH + path, raw, headers)

    async def code(self, verb: str, path: str = "", body: Any = None, who: Identity | None = ADA) -> tuple[int, str]:
        """Send a request that is refused; return its status and code."""
        reply = await self.call(verb, path, body, who)
        assert reply.json.keys() <= {"error", "code", "hint"}, reply.json
        assert reply.json["error"]
        return reply.status, reply.code

    async def create(self, name: str = "shop", who: Identity = ADA) -> str:
        """Make a draft and return its id."""
        reply = await self.call("POST", "", {"name": name}, who)
        assert reply.status == 201, reply.body
        return str(reply.json["draft_id"])

    async def files(self, draft: str) -> dict[str, bytes]:
        """The files of a draft."""
        reply = await self.call("GET", f"/{draft}")
        return {one["path"]: base64.b64decode(one["content"]) for one in reply.json["files"]}


@pytest.fixture
async def editor(tmp_path: Path) -> AsyncIterator[Editor]:
    """A page at a development server of a project."""
    async with Runtime(model="mock:echo", storage="memory:") as runtime:
        server = Server(runtime, gate=HeaderGate(), extensions=[Drafts(tmp_path).routes])
        yield Editor(Served(runtime, server, Wire(server)), tmp_path)


async def test_a_draft_is_seeded_from_the_template(editor: Editor) -> None:
    """It lies in the data folder of the project, below its principal, and its configuration is right."""
    reply = await editor.call("POST", "/", {"name": "shop"})
    made = reply.json
    assert reply.status == 201
    assert made == {"draft_id": made["draft_id"], "template": "minimal-react", "files": SEEDED, "file_count": 6}
    assert len(made["draft_id"]) == 26
    place = editor.root / ".harborage" / "drafts" / "acme" / "ada" / "s-1" / made["draft_id"]
    assert sorted(str(one.relative_to(place)) for one in place.rglob("*") if one.is_file()) == SEEDED
    assert read_config((place / "harborage.yaml").read_bytes())
    (event,) = await editor.served.events("dev.draft.created")
    assert event == {"DraftID": made["draft_id"], "Template": "minimal-react", "FileCount": 6}


async def test_drafts_cannot_be_listed(editor: Editor) -> None:
    """The verbs of an address are told; there is nothing on another one."""
    reply = await editor.call("GET")
    assert (reply.status, reply.code, reply.headers["allow"]) == (405, "invalid_request", "POST")
    assert (await editor.call("PUT", "/x")).headers["allow"] == "DELETE, GET"
    for path in ("/x/files", "/x/files/", "/x/other", "x"):
        assert await editor.code("PATCH", path, {}) == (404, "not_found")


async def test_a_draft_is_read_with_all_its_files(editor: Editor) -> None:
    """Sorted by path, as base64; its times are those of its making and of its last change."""
    draft = await editor.create()
    reply = await editor.call("GET", f"/{draft}/")
    shown = reply.json
    assert shown["id"] == draft
    assert shown["created_at"] <= shown["updated_at"]
    assert shown["created_at"].endswith("Z")
    assert [one["path"] for one in shown["files"]] == SEEDED
    assert all(one["size"] == len(base64.b64decode(one["content"])) for one in shown["files"])


async def test_files_are_written_as_text_or_as_bytes(editor: Editor) -> None:
    """Neither makes an empty file, both are refused; folders are made on the way."""
    draft = await editor.create()
    wrote = await editor.call("PATCH", f"/{draft}/files/tools/price.py", {"content": "x = 'ä'\n"})
    assert wrote.json == {"draft_id": draft, "path": "tools/price.py", "size": 9}
    raw = base64.b64encode(b"\x00\x01").decode()
    assert (await editor.call("PATCH", f"/{draft}/files/logo.bin", {"content_base64": raw})).json["size"] == 2
    assert (await editor.call("PATCH", f"/{draft}/files/agent.py", {})).json["size"] == 0
    files = await editor.files(draft)
    assert (files["tools/price.py"], files["logo.bin"], files["agent.py"]) == ("x = 'ä'\n".encode(), b"\x00\x01", b"")
    both = {"content": "", "content_base64": ""}
    for body in (both, {"content_base64": "?"}, {"content": 1}, {"contents": ""}, b"", b"{"):
        assert await editor.code("PATCH", f"/{draft}/files/agent.py", body) == (400, "invalid_request")
    assert len(await editor.served.events("dev.draft.updated")) == 3


async def test_a_preview_checks_the_configuration(editor: Editor) -> None:
    """What is wrong is listed with its line; a draft without a configuration is not right, and no error."""
    draft = await editor.create()
    assert (await editor.call("POST", f"/{draft}/preview")).json == {"draft_id": draft, "ok": True}
    await editor.call("PATCH", f"/{draft}/files/harborage.yaml", {"content": "server:\n  bind: here\n"})
    reply = await editor.call("POST", f"/{draft}/preview", {})
    assert (reply.status, reply.json["ok"]) == (200, False)
    (error, *_) = [one for one in reply.json["errors"] if one.get("line") == 2]
    assert (error["category"], error["file"]) == ("config.parse", "harborage.yaml")
    (editor.root / ".harborage" / "drafts" / "acme" / "ada" / "s-1" / draft / "harborage.yaml").unlink()
    reply = await editor.call("POST", f"/{draft}/preview")
    assert (reply.status, reply.json["ok"], reply.json["errors"][0]["category"]) == (200, False, "io.not_found")
    assert [one["OK"] for one in await editor.served.events("dev.draft.previewed")] == [True, False, False]


async def test_a_configuration_that_is_too_large_is_not_checked(editor: Editor) -> None:
    """The server says so at once; reading it would take it seconds."""
    draft = await editor.create()
    await editor.call("PATCH", f"/{draft}/files/harborage.yaml", {"content": "server: {}\n" * 8_000})
    (error,) = (await editor.call("POST", f"/{draft}/preview")).json["errors"]
    assert error["message"] == "harborage.yaml has 88,000 bytes; a draft's has at most 65,536"


async def test_a_draft_is_saved_into_a_new_folder_of_the_project(editor: Editor) -> None:
    """Once: a folder that is there is not touched. Without a folder its name is taken."""
    draft = await editor.create()
    reply = await editor.call("POST", f"/{draft}/save", {"name": "shop", "output_dir": "agents/shop"})
    assert reply.json == {"draft_id": draft, "output_dir": "agents/shop", "files": SEEDED, "file_count": 6}
    saved = editor.root / "agents" / "shop"
    assert (saved / "agent.py").read_bytes() == (await editor.files(draft))["agent.py"]
    again = {"name": "shop", "output_dir": "agents/shop"}
    assert await editor.code("POST", f"/{draft}/save", again) == (409, "output_dir_exists")
    assert (await editor.call("POST", f"/{draft}/save/", {"name": "stall"})).json["output_dir"] == "stall"
    assert len(await editor.served.events("dev.draft.saved")) == 2


async def test_a_draft_with_a_wrong_configuration_is_not_saved(editor: Editor) -> None:
    """Nothing is written."""
    draft = await editor.create()
    await editor.call("PATCH", f"/{draft}/files/harborage.yaml", {"content": "nonsense: 1\n"})
    body = {"name": "shop", "output_dir": "out"}
    assert await editor.code("POST", f"/{draft}/save", body) == (400, "validation_failed")
    assert not (editor.root / "out").exists()


async def test_a_copy_that_fails_leaves_nothing(editor: Editor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is gone, and the failure is the server's."""
    from harborage.app.drafts import workspace

    draft = await editor.create()
    real, count = workspace.write_file, 0

    def fails(root: int, path: Any, data: bytes) -> None:
        nonlocal count
        count += 1
        if count > 2:
            raise OSError(28, "No space left on device")
        real(root, path, data)

    monkeypatch.setattr(workspace, "write_file", fails)
    body = {"name": "shop", "output_dir": "out"}
    assert await editor.code("POST", f"/{draft}/save", body) == (500, "internal_error")
    assert not (editor.root / "out").exists()


async def test_a_draft_can_be_discarded_twice(editor: Editor) -> None:
    """The second time there is nothing to do, and nothing to tell."""
    draft = await editor.create()
    for _ in range(2):
        reply = await editor.call("DELETE", f"/{draft}")
        assert (reply.status, reply.json) == (200, {"draft_id": draft, "discarded": True})
    assert await editor.code("GET", f"/{draft}") == (404, "not_found")
    assert len(await editor.served.events("dev.draft.discarded")) == 1
    assert (await editor.call("DELETE", "/never")).json["discarded"]


async def test_nobody_and_others_see_no_draft(editor: Editor) -> None:
    """The token comes before the body; a draft of another session is not found, and is not discarded."""
    draft = await editor.create()
    assert await editor.code("POST", "", b"{", who=None) == (401, "identity_required")
    for who in (BEN, EVE, Identity("acme", "ada", "another")):
        assert await editor.code("GET", f"/{draft}", who=who) == (404, "not_found")
        assert await editor.code("PATCH", f"/{draft}/files/a", {}, who=who) == (404, "not_found")
        assert await editor.code("POST", f"/{draft}/save", {"name": "shop"}, who=who) == (404, "not_found")
        await editor.call("DELETE", f"/{draft}", who=who)
    assert await editor.files(draft)


@pytest.mark.parametrize(
    "path", ["../x", "a/../../x", "/etc/x", "a//b", "./a", "a/.", "a\\b", "a\x00b", "x" * 300, "a/" * 300 + "b"]
)
async def test_a_path_that_leads_elsewhere_is_refused(editor: Editor, path: str) -> None:
    """Of a file, and of the folder where a draft is saved."""
    draft = await editor.create()
    assert await editor.code("PATCH", f"/{draft}/files/{path}", {"content": "x"}) == (400, "unsafe_path")
    assert await editor.code("POST", f"/{draft}/save", {"name": "shop", "output_dir": path}) == (400, "unsafe_path")
    assert sorted(await editor.files(draft)) == SEEDED


async def test_no_link_is_followed(editor: Editor, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Neither to read nor to write, whether it is the file, a folder on the way, or the place of all drafts."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret").write_text("secret")
    draft = await editor.create()
    place = editor.root / ".harborage" / "drafts" / "acme" / "ada" / "s-1" / draft
    (place / "link").symlink_to(outside)
    for path in ("link/x", "link"):
        assert await editor.code("PATCH", f"/{draft}/files/{path}", {"content": "x"}) == (400, "unsafe_path")
    assert await editor.code("GET", f"/{draft}") == (400, "unsafe_path")
    assert await editor.code("POST", f"/{draft}/save", {"name": "shop"}) == (400, "unsafe_path")
    (place / "link").unlink()
    (editor.root / "out").symlink_to(outside)
    body = {"name": "shop", "output_dir": "out/shop"}
    assert await editor.code("POST", f"/{draft}/save", body) == (400, "unsafe_path")
    assert await editor.code("POST", f"/{draft}/save", {"name": "shop", "output_dir": "out"}) == (
        409,
        "output_dir_exists",
    )
    (editor.root / ".harborage" / "drafts" / "acme" / "ben").symlink_to(outside)
    assert await editor.code("POST", "", {"name": "shop"}, who=BEN) == (400, "unsafe_path")
    place.with_name("other").symlink_to(outside)
    assert await editor.code("DELETE", "/other") == (400, "unsafe_path")
    assert [one.name for one in outside.iterdir()] == ["secret"]


async def test_a_path_that_is_too_deep_is_refused(editor: Editor) -> None:
    """Each folder on the way to a file is open while a draft is read: a few deep drafts could use up what the server
    may open."""
    draft = await editor.create()
    assert (await editor.call("PATCH", f"/{draft}/files/{'a/' * 15}b", {"content": "x"})).status == 200
    assert await editor.code("PATCH", f"/{draft}/files/{'a/' * 16}b", {"content": "x"}) == (400, "unsafe_path")


async def test_an_identity_that_is_no_folder_is_refused(editor: Editor) -> None:
    """Its parts are names, not paths; so is the id of a draft."""
    for session in ("..", "a\\b", "x" * 300):
        assert await editor.code("POST", "", {"name": "shop"}, Identity("acme", "ada", session)) == (400, "unsafe_path")
    for draft in ("..", "a.b", "x" * 65, "ä"):
        assert await editor.code("GET", f"/{draft}") == (400, "unsafe_path")


async def test_a_draft_is_not_saved_into_a_hidden_folder(editor: Editor) -> None:
    """Least of all among the drafts of others."""
    draft = await editor.create()
    for place in (".harborage/drafts/acme/ben/s-2/x", ".git/hooks/x"):
        body = {"name": "shop", "output_dir": place}
        assert await editor.code("POST", f"/{draft}/save", body) == (400, "unsafe_path")


async def test_what_cannot_be_made_is_refused(editor: Editor) -> None:
    """A name, a template, a body."""
    for body in ({"name": "Bad/Name"}, {}, {"name": "shop", "more": 1}, {"name": 1}, b"", b"[]"):
        assert await editor.code("POST", "", body) == (400, "invalid_request")
    assert await editor.code("POST", "", {"name": "shop", "template": "other"}) == (400, "unknown_template")
    draft = await editor.create()
    for body in ({}, {"name": "Bad/Name"}, {"name": "a", "to": "b"}, b""):
        assert await editor.code("POST", f"/{draft}/save", body) == (400, "invalid_request")


async def test_files_and_bodies_have_a_bound(editor: Editor) -> None:
    """A file of the bound is taken."""
    draft = await editor.create()
    path = f"/{draft}/files/big.txt"
    assert (await editor.call("PATCH", path, {"content": "x" * MOST_FILE_BYTES})).status == 200
    assert await editor.code("PATCH", path, {"content": "x" * (MOST_FILE_BYTES + 1)}) == (400, "invalid_request")
    assert await editor.code("PATCH", path, b" " * (MAX_BODY + 1)) == (400, "invalid_request")
    assert len((await editor.files(draft))["big.txt"]) == MOST_FILE_BYTES


async def test_only_a_development_server_has_drafts() -> None:
    """Any other answers that there is nothing."""
    async with Runtime(model="mock:echo", storage="memory:") as runtime:
        wire = Wire(Server(runtime, gate=HeaderGate()))
        reply = await wire.request("POST", PATH, msgspec.json.encode({"name": "shop"}), caller_headers(ADA))
        assert reply.status == 404
