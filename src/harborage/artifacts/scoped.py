"""An artifact store seen through one scope: what is handed to code that must not reach beyond it."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harborage.artifacts.errors import ArtifactError, ScopeMismatchError
from harborage.artifacts.values import ArtifactRef, ArtifactScope, covers, require_scope

if TYPE_CHECKING:
    from harborage.artifacts.store import ArtifactStore

__all__ = ["ScopedArtifacts"]


class ScopedArtifacts:
    """The artifacts of one scope. Where an id is asked for, a reference will do.

    Raises, from every method that meets a reference:
        ScopeMismatchError: the reference belongs to another scope.
    """

    def __init__(self, store: ArtifactStore | None, scope: ArtifactScope) -> None:
        if store is None:
            raise ArtifactError("ScopedArtifacts needs a store; none was given")
        require_scope(scope, "ScopedArtifacts")
        self._store = store
        self.scope = scope

    async def put_bytes(
        self,
        data: bytes,
        *,
        mime_type: str = "",
        filename: str = "",
        namespace: str = "",
        source: Mapping[str, Any] | None = None,
    ) -> ArtifactRef:
        """The reference under which `data` is stored in this scope."""
        return self._checked(
            await self._store.put_bytes(
                self.scope, data, mime_type=mime_type, filename=filename, namespace=namespace, source=source
            )
        )

    async def put_text(
        self,
        text: str,
        *,
        mime_type: str = "",
        filename: str = "",
        namespace: str = "",
        source: Mapping[str, Any] | None = None,
    ) -> ArtifactRef:
        """The reference under which `text` is stored in this scope."""
        return self._checked(
            await self._store.put_text(
                self.scope, text, mime_type=mime_type, filename=filename, namespace=namespace, source=source
            )
        )

    async def get(self, artifact: ArtifactRef | str) -> bytes | None:
        """The bytes, or None."""
        return await self._store.get(self.scope, self._id(artifact))

    async def get_ref(self, artifact: ArtifactRef | str) -> ArtifactRef | None:
        """What is known of the artifact, or None."""
        ref = await self._store.get_ref(self.scope, self._id(artifact))
        return None if ref is None else self._checked(ref)

    async def exists(self, artifact: ArtifactRef | str) -> bool:
        """Whether this scope holds the artifact."""
        return await self._store.exists(self.scope, self._id(artifact))

    async def delete(self, artifact: ArtifactRef | str) -> bool:
        """Remove the artifact; True when there was one."""
        return await self._store.delete(self.scope, self._id(artifact))

    async def list(self) -> builtins.list[ArtifactRef]:
        """The references of this scope; a scope without a task lists the artifacts of the session's tasks too."""
        refs = await self._store.list(self.scope)
        for ref in refs:
            if not covers(self.scope, ref.scope):
                raise ScopeMismatchError(ref.id)
        return refs

    def _id(self, artifact: ArtifactRef | str) -> str:
        return artifact if isinstance(artifact, str) else self._checked(artifact).id

    def _checked(self, ref: ArtifactRef) -> ArtifactRef:
        if ref.scope != self.scope:
            raise ScopeMismatchError(ref.id)
        return ref
