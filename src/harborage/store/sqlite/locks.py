"""One file for each worker, locked while its process lives: the kernel lets go of the lock however the process ends.

The files lie in a folder beside the database. A worker that is gone is known at once, without waiting for anything;
one that is only frozen keeps its lock, which is what signs of life are for. A child made by a bare `fork` shares the
locks of its parent and keeps them alive; a program that is started does not.
"""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from harborage.state.errors import DatabaseUnreachableError
from harborage.store.errors import WorkerKnownError


class WorkerLocks:
    """The locks of this process on one database; safe from any thread."""

    def __init__(self, database: Path) -> None:
        self._folder = database.with_name(f"{database.name}-workers")
        self._held: dict[str, int] = {}
        self._lock = threading.Lock()

    def take(self, worker: str) -> None:
        """Hold the worker's lock until `drop`; holding it already is fine.

        Raises:
            WorkerKnownError: another process lives under this name.
            DatabaseUnreachableError: the file cannot be made.
        """
        if worker in self._held:
            return
        file = self._file(worker)
        with self._lock:
            try:
                self._held[worker] = self._locked(file)
            except BlockingIOError as error:
                raise WorkerKnownError(f"another process is the worker {worker}; choose another name") from error
            except OSError as error:
                raise DatabaseUnreachableError(str(file), error.strerror or str(error)) from error

    def holds(self, worker: str) -> bool:
        """Whether this process holds the worker's lock by this object."""
        return worker in self._held

    def drop(self, worker: str) -> None:
        """Let go of the lock and remove its file; one that is not held is left alone."""
        with self._lock:
            handle = self._held.pop(worker, None)
            if handle is not None:
                self._file(worker).unlink(missing_ok=True)
                os.close(handle)

    def drop_all(self) -> None:
        """Let go of every lock of this process."""
        for worker in list(self._held):
            self.drop(worker)
        with suppress(OSError):  # others still use the folder, or it was never made
            self._folder.rmdir()

    def is_held(self, worker: str) -> bool:
        """Whether a process that lives holds the worker's lock."""
        if worker in self._held:
            return True
        try:
            handle = os.open(self._file(worker), os.O_RDONLY)
        except FileNotFoundError:
            return False
        except PermissionError:
            return True  # another user's; its heartbeat decides
        try:
            return not _try_lock(handle)
        finally:
            os.close(handle)

    def clean_up(self) -> None:
        """Remove the files of workers that are gone."""
        for file in self._folder.glob("*.lock"):
            with suppress(FileNotFoundError, PermissionError):
                handle = os.open(file, os.O_RDONLY)
                try:
                    if _try_lock(handle):
                        file.unlink()
                finally:
                    os.close(handle)

    def _file(self, worker: str) -> Path:
        return self._folder / f"{quote(worker, safe='')}.lock"

    def _locked(self, file: Path) -> int:
        while True:
            self._folder.mkdir(0o700, exist_ok=True)
            with suppress(FileNotFoundError):  # another process removed it as that of a dead worker: again
                handle = os.open(file, os.O_RDONLY | os.O_CREAT, 0o600)
                try:
                    if not _try_lock(handle):
                        raise BlockingIOError
                    if os.fstat(handle).st_ino == file.stat().st_ino:
                        return handle
                except BaseException:
                    os.close(handle)
                    raise
                os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
