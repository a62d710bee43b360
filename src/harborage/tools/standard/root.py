"""A folder that paths cannot leave: every step of a path is opened from the folder before it, and no link is followed.

Names are checked as text first, then each folder is opened by its handle (`openat` with `O_NOFOLLOW`), so that a link
put in the way between the check and the use is refused as well. Blocking: call it from a thread.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path

import msgspec

from harborage.tools.standard.errors import FileRefusedError, PathRefusedError

_MAX_PATH_CHARS = 1024
_FOLDER = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FILE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_NOT_THERE = "there is no such file or folder; list_files shows what there is"
_LINK = "a symbolic link is in the way, and links are not followed"
_REASONS = {
    errno.ENOENT: _NOT_THERE,
    errno.ELOOP: _LINK,
    errno.ENOTDIR: "a part of it is not a folder, or is a symbolic link, and links are not followed",
    errno.EACCES: "this process may not use it",
    errno.EPERM: "this process may not use it",
    errno.ENAMETOOLONG: "a name in it is too long",
    errno.ENOSPC: "the disk is full",
    errno.EROFS: "the disk is read-only",
    errno.EISDIR: "it is a folder, not a file",
    errno.EEXIST: "it exists already; pass overwrite to replace it",
}


class Entry(msgspec.Struct, frozen=True):
    """One entry of a folder: its name as text, its kind, and its size when it is a file."""

    name: str
    kind: str
    size_bytes: int = 0


class Root:
    """The folder that no path leaves; links on the way to it are followed once, now.

    Raises:
        PathRefusedError: it is no folder, or this system cannot open files by folder handles.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        if os.open not in os.supports_dir_fd or not hasattr(os, "O_NOFOLLOW"):
            raise PathRefusedError(str(path), "file tools need a system that opens files by folder handles")
        self.path = Path(os.path.realpath(path))
        if not self.path.is_dir():
            raise PathRefusedError(str(path), "the root of the file tools must be a folder that exists")

    @contextmanager
    def folder(self, path: str, *, make: bool = False) -> Iterator[int]:
        """A handle of the folder at `path`; with `make`, missing folders are made.

        Raises:
            PathRefusedError: it is not there, or not below the root.
        """
        with self._walk(split_path(path), path, make=make) as handle:
            yield handle

    @contextmanager
    def file(self, path: str) -> Iterator[tuple[int, int]]:
        """A handle of the regular file at `path`, open for reading, and its size.

        Raises:
            PathRefusedError: it is not there, or not below the root.
            FileRefusedError: it is no regular file.
        """
        *above, name = _split_file_path(path)
        with self._walk(tuple(above), path) as folder, _convert_errors(path):
            _require_regular(os.stat(name, dir_fd=folder, follow_symlinks=False), path)
            # Checked again after opening, in case it was replaced since; opening does not block, so it does no harm.
            handle = os.open(name, os.O_RDONLY | _FILE, dir_fd=folder)
            try:
                found = os.fstat(handle)
                _require_regular(found, path)
                yield handle, found.st_size
            finally:
                os.close(handle)

    def write(self, path: str, data: bytes, *, overwrite: bool) -> bool:
        """Write `data` to the file at `path`; True when there was none before. A reader sees the old or the new one.

        Raises:
            PathRefusedError: it is not below the root.
            FileRefusedError: it is there and `overwrite` is off, it is no regular file, or the system refuses.
        """
        *above, name = _split_file_path(path)
        with self._walk(tuple(above), path, make=True) as folder, _convert_errors(path):
            mode = _read_mode(name, folder, path)
            if mode is not None and not overwrite:
                raise FileRefusedError(path, _REASONS[errno.EEXIST])
            if mode is None and not overwrite:
                _create(name, folder, data)
            else:
                _replace(name, folder, data, mode)
            return mode is None

    @contextmanager
    def _walk(self, parts: tuple[str, ...], path: str, *, make: bool = False) -> Iterator[int]:
        with _convert_errors(path):
            handle = os.open(self.path, os.O_RDONLY | _FOLDER)
            try:
                for part in parts:
                    handle = _step_into(handle, part, make=make)
            except BaseException:
                os.close(handle)
                raise
        try:
            yield handle
        finally:
            os.close(handle)


def list_entries(folder: int) -> Iterator[Entry]:
    """Yield the entries of an open folder, as the system lists them; links are listed, never followed."""
    with os.scandir(folder) as found:
        for one in found:
            with suppress(FileNotFoundError):  # gone since it was listed
                yield _make_entry(one)


def may_hold_secrets(path: str) -> bool:
    """Whether a file's name is one that usually holds keys and passwords, such as `.env` or `id_rsa`.

    Examples and templates, which are meant to be read, are not counted.
    """
    names = [name.casefold() for name in path.split("/") if name not in ("", ".")]
    if not names or names[-1].endswith(_TEMPLATES):
        return False
    return any(name in _SECRET_FOLDERS for name in names[:-1]) or any(
        fnmatch.fnmatchcase(names[-1], pattern) for pattern in _SECRET_NAMES
    )


_TEMPLATES = (".example", ".sample", ".template", ".dist", ".pub")
_SECRET_FOLDERS = frozenset({".ssh", ".aws", ".gnupg", ".kube", ".docker", ".azure", "gcloud", "secrets", ".secrets"})
_SECRET_NAMES = (
    ".env",
    ".env.*",
    "*.env",
    ".envrc",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.kdbx",
    "*.keystore",
    "*.jks",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    ".netrc",
    "_netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".git-credentials",
    ".htpasswd",
    "credentials",
    "credentials.*",
    "secret.*",
    "secrets.*",
    "*.tfstate",
    "*.tfvars",
    "service-account*.json",
)


def split_path(path: str) -> tuple[str, ...]:
    """Split a relative path into its names; empty for the root itself.

    Raises:
        PathRefusedError: it is absolute, goes up, or holds what no file name may.
    """
    if len(path) > _MAX_PATH_CHARS:
        raise PathRefusedError(path[:64] + "…", f"a path has at most {_MAX_PATH_CHARS} characters")
    if path.startswith(("/", "~")) or path[1:2] == ":":
        raise PathRefusedError(path, "give a path relative to the root, without a leading / or ~ or a drive")
    if "\\" in path or any(ord(character) < 32 for character in path):
        raise PathRefusedError(path, "a path has no backslashes and no control characters; separate names by /")
    try:
        os.fsencode(path)
    except UnicodeEncodeError as error:
        raise PathRefusedError(path.encode("utf-8", "replace").decode(), "it is not valid Unicode") from error
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise PathRefusedError(path, "'..' is not followed; give the path from the root")
    return parts


def _split_file_path(path: str) -> tuple[str, ...]:
    parts = split_path(path)
    if not parts or path.endswith("/"):
        raise FileRefusedError(path, "it names a folder, not a file")
    return parts


def _step_into(handle: int, part: str, *, make: bool) -> int:
    """Return the handle of the folder below; the given handle is closed, unless this fails."""
    try:
        below = os.open(part, os.O_RDONLY | _FOLDER, dir_fd=handle)
    except FileNotFoundError:
        if not make:
            raise
        with suppress(FileExistsError):  # another process made it just now
            os.mkdir(part, dir_fd=handle)
        below = os.open(part, os.O_RDONLY | _FOLDER, dir_fd=handle)
    os.close(handle)
    return below


def _make_entry(found: os.DirEntry[str]) -> Entry:
    # A name that is no UTF-8 can be shown, though not asked for.
    name = os.fsencode(found.name).decode("utf-8", "replace")
    if found.is_symlink():
        return Entry(name, "link")
    if found.is_dir(follow_symlinks=False):
        return Entry(name, "folder")
    if found.is_file(follow_symlinks=False):
        return Entry(name, "file", found.stat(follow_symlinks=False).st_size)
    return Entry(name, "other")


def _require_regular(found: os.stat_result, path: str) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise PathRefusedError(path, _LINK)
    if stat.S_ISDIR(found.st_mode):
        raise FileRefusedError(path, "it is a folder; list_files shows what is in it")
    if not stat.S_ISREG(found.st_mode):
        raise FileRefusedError(path, "it is a device, a pipe or a socket, not a file")


def _read_mode(name: str, folder: int, path: str) -> int | None:
    """Return the permissions of the file that is there, or None when there is none."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    _require_regular(found, path)
    return stat.S_IMODE(found.st_mode)


def _create(name: str, folder: int, data: bytes) -> None:
    """Create a new file under its own name; a file that another process made meanwhile stays."""
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o666, dir_fd=folder)
    _write_all(handle, data, lambda: os.unlink(name, dir_fd=folder))


def _replace(name: str, folder: int, data: bytes, mode: int | None) -> None:
    """Replace the file that is there in one step, with its permissions."""
    temp = f".{secrets.token_hex(8)}.tmp"
    handle = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o666, dir_fd=folder)
    _write_all(handle, data, lambda: os.unlink(temp, dir_fd=folder), mode)
    try:
        os.rename(temp, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        os.unlink(temp, dir_fd=folder)
        raise


def _write_all(handle: int, data: bytes, discard: Callable[[], None], mode: int | None = None) -> None:
    try:
        with open(handle, "wb") as file:
            if mode is not None:
                os.fchmod(handle, mode)
            file.write(data)
            file.flush()
            os.fsync(handle)
    except OSError:
        discard()
        raise


@contextmanager
def _convert_errors(path: str) -> Iterator[None]:
    """Turn an error of the system into a refusal that names the path as it was given."""
    try:
        yield
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror or type(error).__name__)
        kind = PathRefusedError if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR) else FileRefusedError
        raise kind(path, reason) from error
