"""Artifacts in a folder, blocking: bytes in one file, their reference in another beside it.

A file lies at `<tenant>/<user>/<session>/<task or _>/<namespace>/<id>`. Every name that a caller can choose is escaped,
so that two different names never share a file and none can leave the folder. The second file is the entry: without it
there is no artifact. A file is there whole or not at all, and survives a power cut. Nothing is held in memory, so
several processes may share a folder. Call everything from a thread; `files.FileArtifactStore` does.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import msgspec

from harborage import codec
from harborage.artifacts.values import (
    ArtifactCorruptError,
    ArtifactNotFoundError,
    ArtifactRef,
    ArtifactScope,
    ArtifactStorageError,
    UnsafePathError,
    candidate_ids,
    covers,
    id_family,
    sha256_hex,
    sort_key,
)
from harborage.ids import new_id

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


META_SUFFIX = ".meta.json"
TEMP_FOLDER = ".tmp"  # no escaped name begins with a dot, so no tenant can be called this
TEMP_PREFIX = "tmp."

_NO_TASK = "_"
_SEPARATORS = re.compile(r"[/\\]")
# File systems allow 255 bytes, of which the suffix needs ten. A shortened name is longer than any other can be, so the
# two kinds never meet.
_LONGEST = 180
_CUT = 160
_HASH_DIGITS = 40


def escape_name(name: str) -> str:
    """Return `name` as one safe path component; different names give different components, only the empty one is empty.

    Raises:
        UnsafePathError: taken as a path, the name would climb (`..`) or stay (`.`).
    """
    if any(part in (".", "..") for part in _SEPARATORS.split(name)):
        raise UnsafePathError(
            f"{name[:80]!r} would lead out of the store's folder; use a name without '.' or '..' parts"
        )
    safe = quote(name, safe="@+=,", errors="surrogatepass")
    if safe == _NO_TASK or safe.startswith("."):
        safe = f"%{ord(safe[0]):02X}{safe[1:]}"
    if len(safe) <= _LONGEST:
        return safe
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{safe[:_CUT]}~{digest[:_HASH_DIGITS]}"


def escape_scope(scope: ArtifactScope) -> tuple[str, str, str, str]:
    """Return the four folder names of a scope: `_` without a task, empty for an empty tenant, user or session.

    Raises:
        UnsafePathError: a part would lead out of the folder.
    """
    task = escape_name(scope.task_id) or _NO_TASK
    return escape_name(scope.tenant_id), escape_name(scope.user_id), escape_name(scope.session_id), task


def parse_namespace(artifact_id: str) -> str:
    """Return the namespace of an id: everything up to its last underscore."""
    return artifact_id.rpartition("_")[0]


_log = logging.getLogger(__name__)

_STRIPES = 64
_ATTEMPTS = 5


class ArtifactFolder:
    """The files below `root`. Safe for many threads; problems of the medium are ArtifactStorageErrors with a path."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._temps = root / TEMP_FOLDER
        # One content's ids are decided under one lock; contents rarely share one.
        self._locks = tuple(threading.Lock() for _ in range(_STRIPES))
        self._opening = threading.Lock()
        self._is_open = False

    def open(self) -> None:
        """Make the folder and remove the files of interrupted writes; only the first call does anything."""
        with self._opening, storage_errors(self.root):
            if self._is_open:
                return
            make_folder(self.root)
            self._remove_temps()
            self._is_open = True

    def put(self, ref: ArtifactRef, data: bytes) -> ArtifactRef:
        """Store `data` and return its reference: the one that exists already, or `ref` under the first free id."""
        folder = self._folder(ref.scope, ref.namespace)
        self._check_inside(folder)
        with self._lock(ref.scope, ref.id), storage_errors(folder):
            return self._retry(lambda: self._put(folder, ref, data))

    def read(self, scope: ArtifactScope, id: str) -> bytes | None:
        """Return the bytes, checked against their hash, or None.

        Raises:
            ArtifactNotFoundError: the entry is there and the bytes are not.
            ArtifactCorruptError: the entry cannot be read, or the bytes are not those that were put.
        """
        path = self._path(scope, id)
        if path is None:
            return None
        with storage_errors(path):
            for _ in range(_ATTEMPTS):
                ref = _find_entry(path, scope, id)
                if ref is None:
                    return None
                with suppress(FileNotFoundError):  # deleted just now, or lost: the entry shows which
                    data = path.read_bytes()
                    if sha256_hex(data) != ref.sha256:
                        raise ArtifactCorruptError(str(path), "its content does not match its hash")
                    return data
        raise ArtifactNotFoundError(
            id, message=f"artifact {id!r} is listed but its bytes are gone; put them again or delete it"
        )

    def ref(self, scope: ArtifactScope, id: str) -> ArtifactRef | None:
        """Return the artifact's reference, or None."""
        path = self._path(scope, id)
        if path is None:
            return None
        with storage_errors(path):
            return _find_entry(path, scope, id)

    def delete(self, scope: ArtifactScope, id: str) -> bool:
        """Remove entry and bytes, in this order; True when there was an entry, damaged or not."""
        path = self._path(scope, id)
        if path is None:
            return False
        with self._lock(scope, id), storage_errors(path):
            try:
                if _find_entry(path, scope, id) is None:
                    return False
            except ArtifactCorruptError:
                _log.warning("deleting an artifact with a damaged entry", extra={"path": str(path)})
            remove_file(_meta_path(path))
            remove_file(path)
            self._prune(path.parent)
            return True

    def holds_nothing(self, scope: ArtifactScope) -> bool:
        """Whether a session has no folder here, so that `refs` would find nothing: one look, for a scope without
        wildcards; False where only `refs` can tell, or say what is wrong."""
        if not (self._is_open and scope.tenant_id and scope.user_id and scope.session_id):
            return False
        try:
            tenant, user, session, _ = escape_scope(scope)
            os.stat(f"{self.root}/{tenant}/{user}/{session}")
        except FileNotFoundError:
            return True
        except (OSError, UnsafePathError):
            return False
        return False

    def refs(self, scope: ArtifactScope) -> list[ArtifactRef]:
        """Return the references that `scope` covers, ordered; damaged entries are left out and logged."""
        try:
            tenant, user, session, task = escape_scope(scope)
        except UnsafePathError:
            return []
        with storage_errors(self.root):
            folders = [self.root]
            for part in (tenant, user, session, task if scope.task_id else "", ""):
                folders = [inner for folder in folders for inner in _list_inner(folder, part)]
            inside = [folder for folder in folders if self._is_inside(folder)]
            found = [ref for folder in inside for ref in _iter_entries(folder) if covers(scope, ref.scope)]
        return sorted(found, key=sort_key)

    def _put(self, folder: Path, ref: ArtifactRef, data: bytes) -> ArtifactRef:
        free = ""
        for candidate in candidate_ids(ref.namespace, ref.sha256):
            path = folder / escape_name(candidate)
            try:
                known = _read_entry(path)
            except ArtifactCorruptError:
                # The bytes show whether it was this content; if it was, the entry is written again.
                if not path.exists() or path.read_bytes() == data:
                    free = free or candidate
                continue
            if known is None:
                free = free or candidate
            elif known.scope == ref.scope and known.sha256 == ref.sha256:
                self._repair(path, data)
                return known
        if not free:
            raise ArtifactStorageError(str(folder), "every id that this content could take is held by another owner")
        stored = ref if ref.id == free else msgspec.structs.replace(ref, id=free)
        entry = codec.encode(stored, "artifact")
        self._write(folder / escape_name(free), data)
        self._write(_meta_path(folder / escape_name(free)), entry)
        return stored

    def _repair(self, path: Path, data: bytes) -> None:
        """Write the bytes again when those at `path` are not the content of its entry."""
        with suppress(FileNotFoundError):
            if path.read_bytes() == data:
                return
        self._write(path, data)

    def _write(self, path: Path, data: bytes) -> None:
        make_folder(self._temps)
        write_file(path, data, self._temps / f"{TEMP_PREFIX}{new_id()}")

    def _retry(self, put: Callable[[], ArtifactRef]) -> ArtifactRef:
        """Put again when a folder or a temporary file vanished meanwhile: another process opened or pruned."""
        for _ in range(_ATTEMPTS - 1):
            with suppress(FileNotFoundError):
                return put()
        return put()

    def _folder(self, scope: ArtifactScope, namespace: str) -> Path:
        """Return the folder of a scope and namespace.

        Raises:
            UnsafePathError: a name would lead out of the root.
        """
        return self.root.joinpath(*escape_scope(scope), escape_name(namespace))

    def _path(self, scope: ArtifactScope, id: str) -> Path | None:
        """Return the path of the artifact's bytes; None for an id or a scope that no put could have made.

        Raises:
            UnsafePathError: a link on the way leads out of the root.
        """
        namespace = parse_namespace(id)
        if not namespace:
            return None
        try:
            path = self._folder(scope, namespace) / escape_name(id)
        except UnsafePathError:
            return None
        self._check_inside(path.parent)
        return path

    def _check_inside(self, folder: Path) -> None:
        if not self._is_inside(folder):
            raise UnsafePathError(f"{folder} leads out of {self.root} by a link; remove the link")

    def _is_inside(self, folder: Path) -> bool:
        return Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(self.root))

    def _lock(self, scope: ArtifactScope, id: str) -> threading.Lock:
        return self._locks[hash((scope, id_family(id))) % _STRIPES]

    def _prune(self, folder: Path) -> None:
        """Remove folders that became empty, so that a deleted session leaves nothing behind."""
        with suppress(OSError):  # the first that is not empty ends it
            while folder != self.root:
                folder.rmdir()
                folder = folder.parent

    def _remove_temps(self) -> None:
        if not self._temps.is_dir():
            return
        for temp in self._temps.iterdir():
            if temp.name.startswith(TEMP_PREFIX):
                temp.unlink(missing_ok=True)


def _meta_path(path: Path) -> Path:
    return path.with_name(path.name + META_SUFFIX)


def _find_entry(path: Path, scope: ArtifactScope, id: str) -> ArtifactRef | None:
    """Return the entry of exactly this artifact; a file system that ignores case may show another owner's."""
    ref = _read_entry(path)
    return ref if ref is not None and ref.scope == scope and ref.id == id else None


def _read_entry(path: Path) -> ArtifactRef | None:
    meta = _meta_path(path)
    try:
        data = meta.read_bytes()
    except FileNotFoundError:
        return None
    try:
        ref: ArtifactRef = codec.decode(data, ArtifactRef)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ArtifactCorruptError(str(meta), str(error)) from error
    return ref


def _list_inner(folder: Path, name: str) -> list[Path]:
    """Return the folder of that name, or everything in `folder` when the name is empty."""
    return [folder / name] if name else _list_folder(folder)


def _iter_entries(folder: Path) -> Iterator[ArtifactRef]:
    for meta in _list_folder(folder):
        if not meta.name.endswith(META_SUFFIX):
            continue
        try:
            ref = _read_entry(folder / meta.name.removesuffix(META_SUFFIX))
        except ArtifactCorruptError as error:
            _log.warning("left a damaged entry out of a listing: %s", error, extra={"path": error.path})
            continue
        if ref is not None:
            yield ref


def _list_folder(folder: Path) -> list[Path]:
    """Return the content of a folder; empty when it does not exist (any more) or is a file."""
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
