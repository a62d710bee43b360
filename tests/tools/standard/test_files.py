"""File tools below a root: what they do, what they refuse, and what cannot lead them out."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.tools import SideEffect, ToolDescriptor
from harborage.tools.standard import FileLimits, FileRefusedError, PathRefusedError, file_tools
from harborage.tools.standard import root as root_module
from harborage.tools.standard.root import may_hold_secrets, split_path
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

SECRET = "the secret outside"


class Files:
    """The tools by name over a root that stands beside a secret."""

    def __init__(self, home: Path, invoke: Any, limits: FileLimits) -> None:
        self.root = home / "root"
        self.outside = home / "outside"
        self.outside.mkdir()
        (self.outside / "secret.txt").write_text(SECRET)
        self.root.mkdir()
        self.tools: dict[str, ToolDescriptor] = {one.tool.name: one for one in file_tools(self.root, limits=limits)}
        self._invoke = invoke

    async def list(self, path: str = "", **args: Any) -> Any:
        """A listing."""
        return await self._invoke(self.tools["list_files"], path=path, **args)

    async def read(self, path: str, **args: Any) -> Any:
        """A piece of a file."""
        return await self._invoke(self.tools["read_file"], path=path, **args)

    async def search(self, text: str, **args: Any) -> Any:
        """The matches of a search."""
        return await self._invoke(self.tools["search_files"], text=text, **args)

    async def write(self, path: str, content: str, **args: Any) -> Any:
        """What was written."""
        return await self._invoke(self.tools["write_file"], path=path, content=content, **args)

    async def refused(self, path: str) -> list[Exception]:
        """What every tool says to a path that it must not follow."""
        errors: list[Exception] = []
        calls = [
            lambda: self.list(path),
            lambda: self.read(path),
            lambda: self.search("secret", path=path),
            lambda: self.write(path, "x", overwrite=True),
        ]
        for call in calls:
            with pytest.raises((PathRefusedError, FileRefusedError)) as caught:
                await call()
            errors.append(caught.value)
        return errors


@pytest.fixture
def files(tmp_path: Path, invoke: Any) -> Files:
    """File tools with small limits."""
    return Files(tmp_path, invoke, FileLimits(read_bytes=64, write_bytes=1000, entries=5, matches=3, search_files=6))


class TestPaths:
    """Texts that are no path below the root."""

    @pytest.mark.parametrize(
        "path",
        [
            "/etc/passwd",
            "//etc/passwd",
            "~/x",
            "~root",
            "C:/x",
            "..",
            "../outside/secret.txt",
            "a/../../outside/secret.txt",
            "./../outside/secret.txt",
            "a/b/..",
            "..\\outside\\secret.txt",
            "a\0b",
            "a\nb",
            "x" * 2000,
            "\ud800",
        ],
    )
    async def test_a_path_that_is_none_is_refused_by_every_tool(self, files: Files, path: str) -> None:
        """Absolute paths, steps up, drives, backslashes, control characters and broken Unicode get nowhere."""
        if path == "\ud800":
            with pytest.raises(PathRefusedError, match="Unicode"):
                split_path(path)
            return
        assert all(SECRET not in str(error) for error in await files.refused(path))
        assert (files.outside / "secret.txt").read_text() == SECRET

    @given(path=st.text(max_size=40))
    def test_no_text_gives_a_step_up_or_an_absolute_path(self, path: str) -> None:
        """Whatever is accepted consists of plain names."""
        try:
            parts = split_path(path)
        except PathRefusedError:
            return
        assert all(part not in ("", ".", "..") and "/" not in part and "\0" not in part for part in parts)
        assert not os.path.isabs("/".join(parts))

    @each_row("path", ["", ".", "./", "a", "a/", "./a//."])
    def test_harmless_spellings_are_understood(self, path: str) -> None:
        """Dots, doubled and trailing slashes mean what they mean everywhere."""
        assert split_path(path) == (("a",) if "a" in path else ())

    def test_the_root_must_be_a_folder(self, tmp_path: Path) -> None:
        """A root that is not there is refused when the tools are made, not when they are called."""
        with pytest.raises(PathRefusedError, match="must be a folder"):
            file_tools(tmp_path / "nowhere")

    def test_a_system_without_folder_handles_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where paths cannot be opened step by step, there are no file tools rather than unsafe ones."""
        monkeypatch.setattr(root_module.os, "supports_dir_fd", set())
        with pytest.raises(PathRefusedError, match="folder handles"):
            file_tools(tmp_path)

    async def test_a_root_that_is_a_link_is_followed_once(self, files: Files, tmp_path: Path, invoke: Any) -> None:
        """The operator may name the root by a link; what the link is pointed to later changes nothing."""
        link = tmp_path / "link"
        link.symlink_to(files.root)
        tools = file_tools(link)
        link.unlink()
        link.symlink_to(files.outside)
        assert (await invoke(tools[0]))["entries"] == []


class TestLinksAndDevices:
    """What stands in the file system and is no file below the root."""

    async def test_links_are_listed_and_never_followed(self, files: Files) -> None:
        """To a file or a folder, absolute or relative, inside or outside, last or on the way: all are refused."""
        (files.root / "real").mkdir()
        (files.root / "real" / "a.txt").write_text("a")
        (files.root / "to_file").symlink_to(files.outside / "secret.txt")
        (files.root / "to_folder").symlink_to("../outside")
        (files.root / "inner").symlink_to("real")
        (files.root / "dangling").symlink_to(files.outside / "new.txt")
        for path in ("to_file", "to_folder", "to_folder/secret.txt", "inner/a.txt", "dangling", "to_folder/new.txt"):
            errors = await files.refused(path)
            assert all(SECRET not in str(error) for error in errors)
        assert "links are not followed" in str(errors[0])
        assert {one["path"]: one["kind"] for one in (await files.list())["entries"]} == {
            "dangling": "link",
            "inner": "link",
            "real": "folder",
            "to_file": "link",
            "to_folder": "link",
        }
        found = await files.search("secret")
        assert (found["matches"], found["searched"]) == ([], 1)
        assert sorted(os.listdir(files.outside)) == ["secret.txt"]

    async def test_a_link_put_in_the_way_after_the_check_is_refused(
        self, files: Files, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Between looking at a file and opening it, the file is swapped for a link: the open itself refuses."""
        (files.root / "a.txt").write_text("a")
        looked = root_module._require_regular

        def swap(found: os.stat_result, path: str) -> None:
            looked(found, path)
            if not (files.root / "a.txt").is_symlink():
                (files.root / "a.txt").unlink()
                (files.root / "a.txt").symlink_to(files.outside / "secret.txt")

        monkeypatch.setattr(root_module, "_require_regular", swap)
        with pytest.raises(PathRefusedError, match="link"):
            await files.read("a.txt")

    async def test_a_folder_swapped_for_a_link_is_not_entered(
        self, files: Files, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The folder is swapped just before it is opened; neither a read nor a write gets through."""
        (files.root / "sub").mkdir()
        opened = os.open

        def swap(path: Any, flags: int, *rest: Any, **named: Any) -> int:
            if path == "sub" and not (files.root / "sub").is_symlink():
                (files.root / "sub").rmdir()
                (files.root / "sub").symlink_to(files.outside)
            return opened(path, flags, *rest, **named)

        monkeypatch.setattr(root_module.os, "open", swap)
        with pytest.raises(PathRefusedError, match="link"):
            await files.write("sub/new.txt", "x")
        with pytest.raises(PathRefusedError, match="link"):
            await files.read("sub/secret.txt")
        assert os.listdir(files.outside) == ["secret.txt"]

    async def test_devices_pipes_and_sockets_are_refused_without_waiting(
        self, files: Files, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A pipe that nobody writes to does not hold up the call; it is not even opened."""
        os.mkfifo(files.root / "pipe")
        with socket.socket(socket.AF_UNIX) as listener:
            monkeypatch.chdir(files.root)  # the path of a socket must be short
            listener.bind("sock")
            for name in ("pipe", "sock"):
                for error in (await files.refused(name))[1:2] + (await files.refused(name))[3:]:
                    assert "not a file" in str(error)
        assert {one["kind"] for one in (await files.list())["entries"]} == {"other"}
        assert (await files.search("x"))["matches"] == []

    async def test_a_folder_is_no_file_and_a_file_no_folder(self, files: Files) -> None:
        """Each says what it is and what to use instead."""
        (files.root / "sub").mkdir()
        (files.root / "a.txt").write_text("a")
        with pytest.raises(FileRefusedError, match="list_files"):
            await files.read("sub")
        with pytest.raises(FileRefusedError, match="names a folder"):
            await files.read("")
        with pytest.raises(FileRefusedError, match="folder"):
            await files.write("sub", "x", overwrite=True)
        with pytest.raises(PathRefusedError, match="not a folder"):
            await files.list("a.txt")
        with pytest.raises(PathRefusedError, match="no such file"):
            await files.read("b.txt")


class TestReading:
    """`read_file`."""

    async def test_a_file_comes_in_pieces_of_whole_characters(self, files: Files) -> None:
        """Read on from each `next_offset`, and the pieces are the file."""
        text = "漢字かな🌍" * 20
        (files.root / "a.txt").write_text(text, "utf-8")
        offset, pieces = 0, []
        while True:
            piece = await files.read("a.txt", offset=offset, max_bytes=10)
            pieces.append(piece["content"])
            if not piece["truncated"]:
                break
            offset = piece["next_offset"]
        assert "".join(pieces) == text
        assert piece["size_bytes"] == len(text.encode())

    async def test_no_piece_is_larger_than_the_limit(self, files: Files) -> None:
        """However much is asked for; nothing asked means the limit."""
        (files.root / "a.txt").write_text("x" * 100)
        for asked in (0, -1, 1000):
            piece = await files.read("a.txt", max_bytes=asked)
            assert (len(piece["content"]), piece["next_offset"]) == (64, 64)

    async def test_a_huge_file_costs_only_what_is_shown(self, files: Files) -> None:
        """A file of a hundred gigabytes is read near its end without being read."""
        with (files.root / "huge").open("wb") as file:
            file.truncate(100 << 30)
            file.seek((100 << 30) - 4)
            file.write(b"end!")
        piece = await files.read("huge", offset=(100 << 30) - 4)
        assert (piece["content"], piece["truncated"]) == ("end!", False)
        assert (await files.search("end"))["skipped"] == 1

    @pytest.mark.parametrize("offset", [-1, 4])
    async def test_an_offset_outside_the_file_is_refused(self, files: Files, offset: int) -> None:
        """With the size in the message; the very end is inside."""
        (files.root / "a.txt").write_text("abc")
        with pytest.raises(FileRefusedError, match="3 bytes"):
            await files.read("a.txt", offset=offset)
        assert (await files.read("a.txt", offset=3))["content"] == ""

    @pytest.mark.parametrize(("data", "says"), [(b"gr\xfcn", "UTF-8"), (b"a\0b", "binary"), (b"\xff" * 90, "UTF-8")])
    async def test_what_is_no_text_is_refused_clearly(self, files: Files, data: bytes, says: str) -> None:
        """Another encoding and binary files are named for what they are not."""
        (files.root / "a.bin").write_bytes(data)
        with pytest.raises(FileRefusedError, match=says):
            await files.read("a.bin")


class TestListing:
    """`list_files`."""

    async def test_a_folder_is_listed_in_order(self, files: Files) -> None:
        """With what each thing is, and the size of files; below it only when asked."""
        (files.root / "b").mkdir()
        (files.root / "b" / "c.py").write_text("xyz")
        (files.root / "a.py").write_text("x")
        assert await files.list() == {
            "entries": [{"path": "a.py", "kind": "file", "size_bytes": 1}, {"path": "b", "kind": "folder"}],
            "truncated": False,
        }
        deep = await files.list(recursive=True, pattern="*.py")
        assert [one["path"] for one in deep["entries"]] == ["a.py", "b/c.py"]
        assert [one["path"] for one in (await files.list("b/"))["entries"]] == ["b/c.py"]
        by_path = await files.list(recursive=True, pattern="b/*")
        assert [one["path"] for one in by_path["entries"]] == ["b/c.py"]

    async def test_a_long_listing_is_cut_and_says_so(self, files: Files) -> None:
        """Exactly the limit is not cut."""
        for at in range(5):
            (files.root / f"{at}").write_text("")
        assert (await files.list())["truncated"] is False
        (files.root / "6").write_text("")
        listed = await files.list()
        assert (len(listed["entries"]), listed["truncated"]) == (5, True)

    async def test_folders_of_tools_are_named_and_not_entered(self, files: Files) -> None:
        """What version control and package managers keep is no part of a walk; asked for by name it is listed."""
        (files.root / ".git").mkdir()
        (files.root / ".git" / "config").write_text("secret")
        assert [one["path"] for one in (await files.list(recursive=True))["entries"]] == [".git"]
        assert [one["path"] for one in (await files.list(".git"))["entries"]] == [".git/config"]

    async def test_a_name_that_is_no_text_can_be_listed(self, files: Files) -> None:
        """It is shown with a mark in place of what cannot be written."""
        os.close(os.open(os.fsencode(files.root) + b"/a\xff", os.O_CREAT | os.O_WRONLY))
        assert [one["path"] for one in (await files.list())["entries"]] == ["a\ufffd"]


class TestSearching:
    """`search_files`."""

    async def test_matches_say_where_to_read_on(self, files: Files) -> None:
        """Path, line, text, and the offset that `read_file` takes."""
        (files.root / "a.txt").write_text("één\nTwo two\nthree\n", "utf-8")
        found = await files.search("two")
        assert found["matches"] == [{"path": "a.txt", "line": 2, "offset": 6, "text": "Two two"}]
        assert (await files.read("a.txt", offset=6))["content"].startswith("Two")
        assert (await files.search("TWO", ignore_case=False))["matches"] == []

    async def test_what_is_searched_is_bounded(self, files: Files) -> None:
        """The search stops at its limits of matches and of files, and says so."""
        for at in range(8):
            (files.root / f"{at}.txt").write_text("x" if at > 6 else "y\ny")
        assert (await files.search("y"))["truncated"] is True
        assert len((await files.search("y"))["matches"]) == 3
        last = await files.search("x")
        assert (last["matches"], last["searched"], last["truncated"]) == ([], 6, True)

    async def test_only_files_that_fit_are_looked_into(self, files: Files) -> None:
        """By pattern; what is no text is counted as skipped."""
        (files.root / "a.py").write_text("x")
        (files.root / "a.md").write_text("x")
        (files.root / "a.bin").write_bytes(b"x\0\xff")
        found = await files.search("x", pattern="*.py")
        assert [one["path"] for one in found["matches"]] == ["a.py"]
        assert (await files.search("x"))["skipped"] == 1

    async def test_the_text_is_no_pattern(self, files: Files) -> None:
        """Signs stand for themselves, so no text can make a search run for ever; one line is what is looked for."""
        (files.root / "a.txt").write_text("(a+)+$\naaaa")
        assert [one["line"] for one in (await files.search("(a+)+$"))["matches"]] == [1]
        for text in ("", "a\nb"):
            with pytest.raises(FileRefusedError, match="one line"):
                await files.search(text)


class TestWriting:
    """`write_file`."""

    async def test_a_new_file_and_its_folders_are_made(self, files: Files) -> None:
        """And what was written can be read."""
        assert await files.write("a/b/c.txt", "grün") == {"path": "a/b/c.txt", "size_bytes": 5, "created": True}
        assert (files.root / "a/b/c.txt").read_text("utf-8") == "grün"

    async def test_a_file_is_replaced_only_on_purpose(self, files: Files) -> None:
        """Whole, in one step, with the permissions it had, and without leaving anything behind."""
        await files.write("a.sh", "old")
        (files.root / "a.sh").chmod(0o750)
        with pytest.raises(FileRefusedError, match="overwrite"):
            await files.write("a.sh", "new")
        assert (files.root / "a.sh").read_text() == "old"
        assert (await files.write("a.sh", "new", overwrite=True))["created"] is False
        assert (files.root / "a.sh").read_text() == "new"
        assert stat.S_IMODE((files.root / "a.sh").stat().st_mode) == 0o750
        assert os.listdir(files.root) == ["a.sh"]

    async def test_another_name_of_a_file_keeps_the_old_text(self, files: Files) -> None:
        """A hard link to a file outside is not written through."""
        os.link(files.outside / "secret.txt", files.root / "hard")
        await files.write("hard", "new", overwrite=True)
        assert (files.outside / "secret.txt").read_text() == SECRET

    async def test_too_much_is_refused_before_anything_is_made(self, files: Files) -> None:
        """With both sizes in the message; exactly the limit is written."""
        with pytest.raises(FileRefusedError, match="1002 bytes; at most 1000"):
            await files.write("new/a.txt", "é" * 501)
        assert os.listdir(files.root) == []
        await files.write("a.txt", "x" * 1000)

    async def test_a_failed_write_leaves_nothing_behind(self, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
        """When the disk is full, the old file stays and the new one is gone."""
        await files.write("a.txt", "old")

        def full(_handle: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(root_module.os, "fsync", full)
        for path in ("a.txt", "b.txt"):
            with pytest.raises(FileRefusedError, match="disk is full"):
                await files.write(path, "new", overwrite=path == "a.txt")
        assert {name: (files.root / name).read_text() for name in os.listdir(files.root)} == {"a.txt": "old"}

    def test_only_writing_changes_anything(self, files: Files, tmp_path: Path) -> None:
        """The classes say so, and a set without the writer can be asked for."""
        effects = {name: one.tool.side_effects for name, one in files.tools.items()}
        assert effects.pop("write_file") is SideEffect.WRITE
        assert set(effects.values()) == {SideEffect.READ}
        assert files.tools["write_file"].is_guarded
        assert "write_file" not in [one.tool.name for one in file_tools(tmp_path, can_write=False)]


def test_a_name_says_whether_a_file_may_hold_secrets() -> None:
    """Files of keys and passwords, in any spelling and folder; templates and ordinary files are not counted."""
    secret = """.env .env.local prod.env config/.ENV ./.env id_rsa .ssh/config a/.aws/credentials server.pem x.key
        .netrc .npmrc credentials.json secrets.yaml secrets/anything.txt terraform.tfstate service-account-7.json"""
    plain = (
        """.env.example .env.sample env.py README.md id_rsa.pub keys.md environment.txt src/secretary.py keyboard ."""
    )
    assert [path for path in secret.split() if not may_hold_secrets(path)] == []
    assert [path for path in plain.split() if may_hold_secrets(path)] == []


async def test_a_search_passes_over_files_of_secrets(files: Files) -> None:
    """What a person would be asked about is not found by the way; it counts as skipped."""
    (files.root / ".env").write_text("TOKEN=hunter2")
    (files.root / "notes.txt").write_text("the TOKEN is in the other file")
    found = await files.search("token")
    assert [match["path"] for match in found["matches"]] == ["notes.txt"]
    assert found["skipped"] == 1
    assert (await files.search("token", pattern=".env"))["matches"] == []
