"""Files are there whole or not at all, and the order of the system calls makes them last."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from harborage.artifacts import ArtifactStorageError, atomic
from harborage.artifacts.atomic import make_folder, remove_file, storage_errors, write_file


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was flushed and renamed, in order; a folder or a file is named by its kind and content."""
    seen: list[str] = []
    fsync, replace = os.fsync, os.replace

    def note_fsync(handle: int) -> None:
        seen.append(f"flush {names[os.fstat(handle).st_ino]}")
        fsync(handle)

    def note_replace(source: Path, target: Path) -> None:
        seen.append(f"rename to {target.name}")
        replace(source, target)

    class Names(dict[int, str]):
        def __missing__(self, inode: int) -> str:
            return "file"

    names = Names()
    monkeypatch.setattr(atomic.os, "fsync", note_fsync)
    monkeypatch.setattr(atomic.os, "replace", note_replace)
    monkeypatch.setattr(atomic, "_sync_folder", _noting(names, atomic._sync_folder))
    return seen


def _noting(names: dict[int, str], sync: object) -> object:
    def note(folder: Path) -> None:
        names[folder.stat().st_ino] = f"folder {folder.name}"
        sync(folder)  # type: ignore[operator]

    return note


def test_a_write_is_flushed_before_it_is_renamed_and_its_folder_after(tmp_path: Path, calls: list[str]) -> None:
    """Content first, then the name, then the folder that holds the name: after a power cut there is no half."""
    (tmp_path / "place").mkdir()
    write_file(tmp_path / "place" / "a", b"x", tmp_path / "temp")
    assert calls == ["flush file", "rename to a", "flush folder place"]
    assert (tmp_path / "place" / "a").read_bytes() == b"x"
    assert not (tmp_path / "temp").exists()


def test_a_removal_flushes_the_folder(tmp_path: Path, calls: list[str]) -> None:
    """What was removed does not come back after a power cut; removing what is not there is fine."""
    place = tmp_path / "place"
    place.mkdir()
    (place / "a").write_bytes(b"x")
    remove_file(place / "a")
    assert calls == ["flush folder place"]
    remove_file(place / "a")
    remove_file(tmp_path / "nowhere" / "a")


def test_each_new_folder_is_recorded_in_its_parent(tmp_path: Path, calls: list[str]) -> None:
    """From the outside in; folders that are there already cost nothing."""
    make_folder(tmp_path / "a" / "b")
    assert calls == [f"flush folder {tmp_path.name}", "flush folder a"]
    calls.clear()
    make_folder(tmp_path / "a" / "b")
    assert calls == []


def test_a_write_replaces_what_was_there(tmp_path: Path) -> None:
    """The old content is gone whole, however long it was."""
    (tmp_path / "a").write_bytes(b"a long old content")
    write_file(tmp_path / "a", b"new", tmp_path / "temp")
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_failed_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old content stays, the temporary file goes, and the first error is the one that is heard."""

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    (tmp_path / "a").write_bytes(b"old")
    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_file(tmp_path / "a", b"new", tmp_path / "temp")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_temporary_file_of_another_process_is_not_written_into(tmp_path: Path) -> None:
    """A name that is taken is an error, and what lies there stays."""
    (tmp_path / "temp").write_bytes(b"theirs")
    with pytest.raises(FileExistsError):
        write_file(tmp_path / "a", b"x", tmp_path / "temp")
    assert (tmp_path / "temp").read_bytes() == b"theirs"
    assert not (tmp_path / "a").exists()


def test_the_file_that_failed_is_named_before_the_one_that_was_meant(tmp_path: Path) -> None:
    """The system's own path wins; without one it is the caller's."""
    with pytest.raises(ArtifactStorageError) as caught, storage_errors(tmp_path):
        (tmp_path / "nowhere" / "a").read_bytes()
    assert caught.value.path == str(tmp_path / "nowhere" / "a")
    with pytest.raises(ArtifactStorageError) as caught, storage_errors(tmp_path):
        raise OSError("strange")
    assert (caught.value.path, caught.value.reason) == (str(tmp_path), "strange")
    assert str(caught.value).startswith(f"cannot use {tmp_path}: strange; ")
