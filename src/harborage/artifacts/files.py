"""The artifact store on disk: survives the process, and may be shared by several on one machine.

Every operation runs in a thread of the store's own, so that neither a slow disk holds up the event loop nor a slow
tool the store. `folder` lays out and writes the files.
"""

from __future__ import annotations

import asyncio
import builtins
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from harborage.artifacts.folder import ArtifactFolder
from harborage.artifacts.store import ArtifactStore, ChangeCounts
from harborage.artifacts.values import (
    ArtifactRef,
    ArtifactScope,
    ArtifactStoreClosedError,
    make_ref,
    require_scope,
    sha256_hex,
    to_plain_source,
)
from harborage.errors import InvalidOptionError

if TYPE_CHECKING:
    from harborage.artifacts.store import ArtifactConfig

T = TypeVar("T")

_THREADS = 8


class FileArtifactStore(ArtifactStore):
    """Artifacts below `root`, a folder that is made when it is missing.

    Besides what the port names, every method raises ArtifactStorageError when the medium refuses (no space, no right,
    read-only), and reads raise ArtifactCorruptError for damaged files; both name the path.
    """

    is_shared = True

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._changes = ChangeCounts()
        self._folder = ArtifactFolder(Path(root).absolute())
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="harborage-artifacts")
        self._is_closed = False

    @classmethod
    async def open(cls, root: str | os.PathLike[str]) -> Self:
        """Open a store and make its folder; the constructor leaves that to the first call.

        Raises:
            ArtifactStorageError: the folder cannot be made or read.
        """
        store = cls(root)
        try:
            await store._run(lambda: None)
        except BaseException:
            await store.aclose()
            raise
        return store

    async def put_bytes(
        self,
        scope: ArtifactScope,
        data: bytes,
        *,
        mime_type: str = "",
        filename: str = "",
        namespace: str = "",
        source: Mapping[str, Any] | None = None,
    ) -> ArtifactRef:
        """As the port says. Raises UnsafePathError when a part of the scope or the namespace would leave the folder."""
        self._check(scope, "artifacts.put")
        owned, origin = bytes(data), to_plain_source(source)

        def put() -> ArtifactRef:
            ref = make_ref(
                scope,
                sha256_hex(owned),
                len(owned),
                mime_type=mime_type,
                filename=filename,
                namespace=namespace,
                source=origin,
            )
            return self._folder.put(ref, owned)

        try:
            return await self._run(put)
        finally:
            self._changes.note(scope)  # also after a cancellation: the thread may still put it

    async def get(self, scope: ArtifactScope, id: str) -> bytes | None:
        self._check(scope, "artifacts.get")
        return await self._run(lambda: self._folder.read(scope, id))

    async def get_ref(self, scope: ArtifactScope, id: str) -> ArtifactRef | None:
        self._check(scope, "artifacts.get_ref")
        return await self._run(lambda: self._folder.ref(scope, id))

    async def exists(self, scope: ArtifactScope, id: str) -> bool:
        self._check(scope, "artifacts.exists")
        return await self._run(lambda: self._folder.ref(scope, id)) is not None

    async def delete(self, scope: ArtifactScope, id: str) -> bool:
        self._check(scope, "artifacts.delete")
        try:
            return await self._run(lambda: self._folder.delete(scope, id))
        finally:
            self._changes.note(scope)

    async def list(self, scope: ArtifactScope) -> builtins.list[ArtifactRef]:
        self._check_open()
        if self._folder.holds_nothing(scope):
            return []  # every step of a run asks, and a thread costs twenty times the look
        return await self._run(lambda: self._folder.refs(scope))

    def changes(self, scope: ArtifactScope) -> int:
        return self._changes.of(scope)

    async def aclose(self) -> None:
        """Refuse further calls, wait for those under way and end the threads."""
        self._is_closed = True
        await asyncio.to_thread(self._threads.shutdown)

    async def _run(self, work: Callable[[], T]) -> T:
        def opened() -> T:
            self._folder.open()
            return work()

        return await asyncio.get_running_loop().run_in_executor(self._threads, opened)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ArtifactStoreClosedError()

    def _check(self, scope: ArtifactScope, what: str) -> None:
        self._check_open()
        require_scope(scope, what)


async def make(config: ArtifactConfig) -> ArtifactStore:
    """Open the store in the folder that `artifacts.fs_root` names.

    Raises:
        InvalidOptionError: no folder is named.
        ArtifactStorageError: the folder cannot be made or read.
    """
    if not config.fs_root:
        raise InvalidOptionError("artifacts.fs_root", config.fs_root, "the folder that the fs driver shall use")
    return await FileArtifactStore.open(config.fs_root)
