"""A file is one database, whatever path leads to it: one log, one set of locks, or it is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harborage.state.errors import DatabasePlaceError
from harborage.store.sqlite import Database, SQLiteStore, connection
from harborage.store.sqlite.connection import check_place
from harborage.testing.conformance.store_bench import claim, living, start

pytestmark = pytest.mark.anyio


def linked_file(path: Path) -> Path:
    link = path.with_name("link.db")
    link.symlink_to(path)
    return link


def chain(path: Path) -> Path:
    link = path.parent / "other" / "chain.db"
    link.parent.mkdir()
    link.symlink_to(linked_file(path))
    return link


def linked_folder(path: Path) -> Path:
    link = path.parent.with_name(f"{path.parent.name}-link")
    link.symlink_to(path.parent)
    return link / path.name


def dots(path: Path) -> Path:
    (path.parent / "sub").mkdir()
    return path.parent / "sub" / ".." / "." / path.name


def relative(path: Path) -> Path:
    return Path(os.path.relpath(path))


WAYS: list[Callable[[Path], Path]] = [linked_file, chain, linked_folder, dots, relative]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_a_run_has_one_worker_whatever_path_it_was_opened_by(way: Callable[[Path], Path], tmp_path: Path) -> None:
    """Who opens a database by another path sees the same workers alive, and takes no run from them."""
    path = tmp_path / "real" / "a.db"
    path.parent.mkdir()
    first = SQLiteStore(await Database.open(path))
    second_database = await Database.open(way(path))
    second = SQLiteStore(second_database)
    assert second_database.path == path
    await start(first, "r")
    async with living(first, "one"), living(second, "two"):
        await claim(first, "one", "r")
        await second.look("two")
        await claim(second, "two")
    for store in (first, second):
        await store.aclose()


async def test_a_link_to_no_file_yet_makes_the_file_it_names(tmp_path: Path) -> None:
    """The database is made where the link leads, and the link stays one."""
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "later.db")
    database = await Database.open(link)
    await database.aclose()
    assert (tmp_path / "later.db").is_file()
    assert link.is_symlink()


async def test_a_file_with_two_names_is_refused_under_both(tmp_path: Path) -> None:
    """A hard link has a log of its own: the text says so, and how to have two databases."""
    path, other = tmp_path / "a.db", tmp_path / "b.db"
    await (await Database.open(path)).aclose()
    os.link(path, other)
    for name in (path, other):
        with pytest.raises(DatabasePlaceError, match=r"2 names \(hard links\); keep one name \(copy"):
            await Database.open(name)
    other.unlink()
    await (await Database.open(path)).aclose()


def test_a_file_that_is_mounted_alone_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bind mount of the file has its log elsewhere than the file; one of its folder is fine."""
    path, mounts = tmp_path / "a file.db", tmp_path / "mountinfo"
    path.touch()
    escaped = str(path).replace(" ", "\\040")
    monkeypatch.setattr(connection, "_MOUNTS", mounts)
    for point, is_refused in ((escaped, True), (str(tmp_path), False)):
        mounts.write_text(f"22 1 0:1 / / rw - ext4 device rw\n23 22 0:1 /x {point} rw - ext4 device rw\n")
        if is_refused:
            with pytest.raises(DatabasePlaceError, match="mounted here, without the folder"):
                check_place(path)
        else:
            check_place(path)
