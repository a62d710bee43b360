"""The artifact store's port: bytes named after their content, inside the scope of whoever put them.

Heavy content goes here and travels by reference everywhere else. Absence is an answer, not an error.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any, Final, Protocol, runtime_checkable

from harborage.artifacts.values import TEXT_MIME_TYPE, ArtifactRef, ArtifactScope

__all__ = ["ArtifactStore", "ChangeCounts", "TracksChanges"]

_STRIPES: Final = 1024


@runtime_checkable
class ArtifactStore(Protocol):
    """Keeps bytes by scope and content. Every call checks closed first, then the scope's identity.

    A scope is matched exactly, task included: a read for the session does not see a task's artifacts.

    Raises, from every method but aclose:
        StoreClosedError: the store is closed.
        IdentityRequiredError: tenant, user or session is empty (`list` alone takes them as wildcards).

    Never: returns content other than what was put under that id, or one scope's artifact to another.
    """

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
        """The reference under which `data` is stored; the same bytes again in a namespace give the first reference.

        `mime_type` falls back to `application/octet-stream`, `namespace` to `default`; `filename` is only told, never
        used as a path.

        Raises:
            UnserializableError: `source` has no JSON form.
        """
        ...

    async def put_text(
        self,
        scope: ArtifactScope,
        text: str,
        *,
        mime_type: str = "",
        filename: str = "",
        namespace: str = "",
        source: Mapping[str, Any] | None = None,
    ) -> ArtifactRef:
        """As `put_bytes` with the UTF-8 form of `text`; `mime_type` falls back to `text/plain; charset=utf-8`.

        A driver that inherits from this protocol has it from here.
        """
        return await self.put_bytes(
            scope,
            text.encode(),
            mime_type=mime_type or TEXT_MIME_TYPE,
            filename=filename,
            namespace=namespace,
            source=source,
        )

    async def get(self, scope: ArtifactScope, id: str) -> bytes | None:
        """The bytes, or None when there is no such artifact in exactly this scope.

        Raises:
            NotFoundError: the artifact is listed but its bytes are gone.
        """
        ...

    async def get_ref(self, scope: ArtifactScope, id: str) -> ArtifactRef | None:
        """What is known of the artifact, or None."""
        ...

    async def exists(self, scope: ArtifactScope, id: str) -> bool:
        """Whether exactly this scope holds the artifact."""
        ...

    async def delete(self, scope: ArtifactScope, id: str) -> bool:
        """Remove the artifact; True when there was one."""
        ...

    async def list(self, scope: ArtifactScope) -> builtins.list[ArtifactRef]:
        """The references that `scope` covers, ordered by scope and id; an empty part of it matches anything."""
        ...

    async def aclose(self) -> None:
        """Release what the store holds; closing twice does nothing."""
        ...


@runtime_checkable
class TracksChanges(Protocol):
    """A store that says at no cost whether a listing of it is still right; a store that does not is listed again.

    `is_shared` says that others than this object may change what it holds, such as other processes.
    """

    is_shared: bool

    def changes(self, scope: ArtifactScope) -> int:
        """A number that is another one after something in the session of `scope` was put or deleted through this
        object; read it before the listing that it stands for."""
        ...


class ChangeCounts:
    """Counts changes by session, for a driver that tracks them. Sessions may share a count, which costs a listing."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts = [0] * _STRIPES

    def note(self, scope: ArtifactScope) -> None:
        """Something in the session of `scope` has changed."""
        self._counts[_stripe(scope)] += 1

    def of(self, scope: ArtifactScope) -> int:
        """The count of the session of `scope`."""
        return self._counts[_stripe(scope)]


def _stripe(scope: ArtifactScope) -> int:
    """The place of a session's count."""
    return hash((scope.tenant_id, scope.user_id, scope.session_id)) % _STRIPES
