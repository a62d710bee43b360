"""Atomic and durable files: a file is there whole or not at all, and survives a power cut.

Blocking: call it from a thread. It knows nothing of artifacts.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harborage.artifacts.errors import ArtifactStorageError

_ADVICE = {
    errno.ENOSPC: "free some space on that disk",
    errno.EDQUOT: "raise the quota or free some space",
    errno.EROFS: "it is mounted read-only; choose a folder that can be written",
    errno.EACCES: "give this process the right to use it, or choose another folder",
    errno.EPERM: "give this process the right to use it, or choose another folder",
    errno.ENOTDIR: "a file is in the way where a folder is needed",
    errno.EEXIST: "a file is in the way where a folder is needed",
}


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn an error of the system into one that names the path and what to do.

    Raises:
        ArtifactStorageError: the block raised an OSError; the path in it wins over `path`.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        advice = _ADVICE.get(error.errno or 0, "check that the folder is there and can be written")
        raise ArtifactStorageError(str(error.filename or path), reason, advice) from error


def make_folder(folder: Path) -> None:
    """Make `folder` and its missing parents, each flushed in its parent before the next one."""
    if folder.is_dir():
        return
    if folder.parent != folder:
        make_folder(folder.parent)
    folder.mkdir(0o700, exist_ok=True)
    _sync_folder(folder.parent)


def write_file(path: Path, data: bytes, temp: Path) -> None:
    """Write `data` to `path`: first to `temp`, flushed to the disk, then renamed into place.

    A reader sees the old file or the new one, never a part. Missing folders of `path` are made. Both paths must lie on
    one file system. The file and its folders are their owner's alone.
    """
    file = open(temp, "xb", opener=_private)  # noqa: SIM115 - closed below; what failed to open is not ours to remove
    try:
        with file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        make_folder(path.parent)  # as late as possible: another process may remove it while it is empty
        os.replace(temp, path)
    except BaseException:
        with suppress(OSError):  # the caller must get the first error
            temp.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def remove_file(path: Path) -> None:
    """Remove `path` durably; a missing one is no error."""
    path.unlink(missing_ok=True)
    with suppress(FileNotFoundError):  # the folder may have gone with its last file
        _sync_folder(path.parent)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sync_folder(folder: Path) -> None:
    """A rename is durable only when its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
