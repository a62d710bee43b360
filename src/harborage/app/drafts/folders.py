"""Files below one folder, by relative paths that cannot lead out of it: no step on the way follows a link."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from harborage.errors import HarborageError
from harborage.ids import new_id

MOST_FILE_BYTES: Final = 1024 * 1024
MOST_FILES: Final = 500

_MOST_PATH_CHARS: Final = 512
_MOST_PARTS: Final = 16
"""Each folder on the way is an open file while a draft is read."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class UnsafeDraftPathError(HarborageError):
    """A path is no relative one, or leads through a link."""


class DraftTooLargeError(HarborageError):
    """A file, or the number of files, is beyond its bound."""


def path_parts(text: str) -> tuple[str, ...]:
    """Return the parts of a relative path.

    Raises:
        UnsafeDraftPathError: it is blank, absolute, too long or too deep, or has a part such as `..`.
    """
    parts = tuple(text.split("/"))
    is_short = len(text) <= _MOST_PATH_CHARS and len(parts) <= _MOST_PARTS
    if not is_short or not all(is_part(one) for one in parts):
        raise UnsafeDraftPathError(
            f"a path is relative, of up to {_MOST_PATH_CHARS} characters and {_MOST_PARTS} parts, "
            "and has no part like '..'"
        )
    return parts


def is_part(text: str) -> bool:
    """Whether a text can be the name of one file or folder."""
    is_name = bool(text) and text not in (".", "..") and len(os.fsencode(text)) <= os.pathconf("/", "PC_NAME_MAX")
    return is_name and text.isprintable() and not {"/", "\\"} & set(text)


@contextmanager
def opened(root: Path | int, parts: Sequence[str], *, makes: bool = False) -> Iterator[int]:
    """Open a folder below another; with `makes` what is missing on the way is made.

    Raises:
        UnsafeDraftPathError: there is a link or a file on the way.
        OSError: it is not there, or cannot be opened.
    """
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if isinstance(root, Path) else os.dup(root)
    try:
        for part in parts:
            if makes:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=at)
            inner = _open_folder(part, at)
            os.close(at)
            at = inner
        yield at
    finally:
        os.close(at)


def _open_folder(name: str, at: int) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=at)
    except NotADirectoryError as error:
        raise UnsafeDraftPathError(f"{name} is no folder, or a link") from error
    except OSError as error:
        if _kind(name, at) == stat.S_IFLNK:
            raise UnsafeDraftPathError(f"{name} is a link") from error
        raise


def _kind(name: str, at: int) -> int:
    """The kind of what has a name; 0 if there is nothing."""
    try:
        return stat.S_IFMT(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
    except OSError:
        return 0


def exists(name: str, at: int) -> bool:
    """Whether anything has this name in a folder."""
    return _kind(name, at) != 0


def write_file(root: int, path: Sequence[str], data: bytes) -> None:
    """Write a file whole, in place of the one before.

    Raises:
        UnsafeDraftPathError: there is a link, or something else than a file, in its place or on the way.
    """
    with opened(root, path[:-1], makes=True) as at:
        if _kind(path[-1], at) not in (0, stat.S_IFREG):
            raise UnsafeDraftPathError(f"{'/'.join(path)} is no file")
        apart = f".{new_id()}.part"
        file = os.open(apart, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=at)
        try:
            with open(file, "wb") as out:
                out.write(data)
            os.replace(apart, path[-1], src_dir_fd=at, dst_dir_fd=at)
        except BaseException:
            os.unlink(apart, dir_fd=at)
            raise


def read_file(root: int, path: Sequence[str]) -> bytes:
    """Return the bytes of a file.

    Raises:
        FileNotFoundError: it is not there.
        UnsafeDraftPathError: it is a link.
        DraftTooLargeError: it is above its bound.
    """
    with opened(root, path[:-1]) as at:
        if _kind(path[-1], at) not in (0, stat.S_IFREG):
            raise UnsafeDraftPathError(f"{'/'.join(path)} is no file")
        with open(os.open(path[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at), "rb") as file:
            data = file.read(MOST_FILE_BYTES + 1)
    if len(data) > MOST_FILE_BYTES:
        raise DraftTooLargeError(f"{'/'.join(path)} is larger than {MOST_FILE_BYTES} bytes")
    return data


def list_files(root: int) -> list[tuple[str, ...]]:
    """Return the paths of all files below a folder, sorted.

    Raises:
        UnsafeDraftPathError: there is a link among them.
        DraftTooLargeError: there are too many.
    """
    found = list(_files(root, ()))
    return sorted(found)


def _files(at: int, parts: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    count = 0
    with os.scandir(at) as entries:
        named = [(one.name, one.is_symlink(), one.is_dir(follow_symlinks=False)) for one in entries]
    for name, is_link, is_folder in named:
        if is_link:
            raise UnsafeDraftPathError(f"{'/'.join((*parts, name))} is a link")
        if not is_folder:
            count += 1
            yield (*parts, name)
        else:
            with opened(at, (name,)) as inner:
                for one in _files(inner, (*parts, name)):
                    count += 1
                    yield one
        if count > MOST_FILES:
            raise DraftTooLargeError(f"there are more than {MOST_FILES} files")


def changed_at(root: int) -> float:
    """Return when a file or folder below a folder last changed, in seconds since 1970."""
    latest = os.stat(root).st_mtime
    with os.scandir(root) as entries:
        named = [
            (one.name, one.stat(follow_symlinks=False).st_mtime, one.is_dir(follow_symlinks=False)) for one in entries
        ]
    for name, moment, is_folder in named:
        latest = max(latest, moment)
        if is_folder:
            with opened(root, (name,)) as inner:
                latest = max(latest, changed_at(inner))
    return latest


def remove_folder(name: str, at: int) -> bool:
    """Remove a folder with all that is in it; return False if there is none.

    Raises:
        UnsafeDraftPathError: it is a link, or no folder.
    """
    if _kind(name, at) not in (0, stat.S_IFDIR):
        raise UnsafeDraftPathError(f"{name} is no folder, or a link")
    try:
        shutil.rmtree(name, dir_fd=at)
    except FileNotFoundError:
        return False
    return True
