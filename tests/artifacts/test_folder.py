"""Where artifacts lie below the store's folder, and the files there: durable because the order of calls makes them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harborage.artifacts import ArtifactScope, ArtifactStorageError, UnsafePathError
from harborage.artifacts import folder as written
from harborage.artifacts.folder import (
    META_SUFFIX,
    TEMP_FOLDER,
    escape_name,
    escape_scope,
    make_folder,
    parse_namespace,
    remove_file,
    storage_errors,
    write_file,
)
from tests.kit.tables import each_row


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
    monkeypatch.setattr(written.os, "fsync", note_fsync)
    monkeypatch.setattr(written.os, "replace", note_replace)
    monkeypatch.setattr(written, "_sync_folder", _noting(names, written._sync_folder))
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
    monkeypatch.setattr(written.os, "fsync", full)
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


names = st.one_of(
    st.text(max_size=12),
    st.text(alphabet="._-/%~\\ aA\0é5F", max_size=12),
    st.text(alphabet="ab", min_size=170, max_size=400),
).filter(lambda name: not {".", ".."} & set(name.replace("\\", "/").split("/")))


@given(names)
@example("x" * 5000)
@example("\ud800")
def test_a_component_is_safe_for_any_file_system(name: str) -> None:
    """Only letters, digits and a few marks, short enough with its suffix, no hidden file and nothing that climbs."""
    component = escape_name(name)
    assert component.isascii()
    assert not set(component) & set('/\\\0:*?"<>| ')
    assert len(component + META_SUFFIX) <= 255
    assert not component.startswith(".")
    assert component not in ("_", TEMP_FOLDER)
    assert (component == "") == (name == "")


@given(names, names)
@example("_", "%5F")
@example("a/b", "a%2Fb")
@example("x" * 181, "x" * 182)
def test_different_names_give_different_components(one: str, other: str) -> None:
    """Nothing is folded, cut or escaped onto something else."""
    assert (escape_name(one) == escape_name(other)) == (one == other)


def test_a_name_cannot_imitate_a_shortened_one() -> None:
    """A name that spells the shortened form of another gets a component of its own."""
    long = "x" * 400
    assert escape_name(escape_name(long)) != escape_name(long)


@each_row("name", ["..", ".", "../a", "a/..", "a/../b", "a\\..\\b", "./a", "/..", "..\\"])
def test_a_name_that_climbs_is_refused(name: str) -> None:
    """The error shows the name and says which ones will do."""
    with pytest.raises(UnsafePathError, match="would lead out"):
        escape_name(name)


@each_row("name", ["...", "a..b", "..a", "a.", "~", "/etc/passwd", "C:\\x"])
def test_a_name_that_only_looks_odd_is_taken(name: str) -> None:
    """Dots and separators are fine as long as they do not spell a way up."""
    assert "/" not in escape_name(name)


def test_ordinary_names_stay_readable() -> None:
    """Ids, addresses and words are their own file names."""
    for name in ("01JABCDEF", "ada@example.org", "team-a_b.c", "a+b=c,d"):
        assert escape_name(name) == name


def test_no_task_has_a_folder_of_its_own() -> None:
    """The session's own level is `_`, which no task can be called."""
    assert escape_scope(ArtifactScope("t", "u", "s")) == ("t", "u", "s", "_")
    assert escape_scope(ArtifactScope("t", "u", "s", "_")) == ("t", "u", "s", "%5F")


def test_an_id_names_its_namespace() -> None:
    """Everything up to the last underscore; an id without one has none."""
    assert parse_namespace("a_b_0123") == "a_b"
    assert parse_namespace("plain") == ""
