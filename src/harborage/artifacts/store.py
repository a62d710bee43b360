"""The artifact store: its port, its view of one scope, and the way from a configured driver's name to an open store.

Heavy content goes here and travels by reference everywhere else. Bytes are named after their content, inside the scope
of the caller that put them. Absence is an answer, not an error.
"""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import msgspec

from harborage.artifacts.values import (
    TEXT_MIME_TYPE,
    ArtifactError,
    ArtifactRef,
    ArtifactScope,
    ArtifactScopeError,
    covers,
    require_scope,
)
from harborage.drivers import DriverTable
from harborage.errors import InvalidOptionError

_STRIPES: Final = 1024


@runtime_checkable
class ArtifactStore(Protocol):
    """Stores bytes by scope and content. Every call checks that the store is open, then the scope's identity.

    A scope is matched exactly, task included: a read for the session does not see a task's artifacts.

    Raises, from every method but aclose:
        ArtifactStoreClosedError: the store is closed.
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
        """Store `data` and return its reference; the same bytes again in a namespace return the first reference.

        `mime_type` falls back to `application/octet-stream`, `namespace` to `default`; `filename` is metadata, never a
        path.

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
        """Return the bytes, or None when there is no such artifact in exactly this scope.

        Raises:
            ArtifactNotFoundError: the artifact is listed but its bytes are gone.
        """
        ...

    async def get_ref(self, scope: ArtifactScope, id: str) -> ArtifactRef | None:
        """Return the artifact's reference, or None."""
        ...

    async def exists(self, scope: ArtifactScope, id: str) -> bool:
        """Whether exactly this scope holds the artifact."""
        ...

    async def delete(self, scope: ArtifactScope, id: str) -> bool:
        """Remove the artifact; True when there was one."""
        ...

    async def list(self, scope: ArtifactScope) -> builtins.list[ArtifactRef]:
        """Return the references that `scope` covers, ordered by scope and id; an empty part of it matches anything."""
        ...

    async def aclose(self) -> None:
        """Release the store's resources; closing twice does nothing."""
        ...


@runtime_checkable
class TracksChanges(Protocol):
    """A store that knows at no cost whether a listing is still valid; any other store is listed again.

    `is_shared` says that others than this object may change its content, such as other processes.
    """

    is_shared: bool

    def changes(self, scope: ArtifactScope) -> int:
        """Return a number that changes when an artifact in the session of `scope` is put or deleted through this
        object; read it before the listing that it is compared for."""
        ...


@runtime_checkable
class Presigns(Protocol):
    """A store whose medium gives out content itself, at links that need no other right."""

    async def presign(self, scope: ArtifactScope, id: str, *, expires_in: timedelta) -> str:
        """Return a link to the content of an artifact that is there; it ends by itself."""
        ...


class ChangeCounts:
    """Counts changes by session, for a driver that tracks them. Sessions may share a count, which costs a listing."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts = [0] * _STRIPES

    def note(self, scope: ArtifactScope) -> None:
        """Count a change in the session of `scope`."""
        self._counts[_stripe_index(scope)] += 1

    def of(self, scope: ArtifactScope) -> int:
        """Return the count of the session of `scope`."""
        return self._counts[_stripe_index(scope)]


def _stripe_index(scope: ArtifactScope) -> int:
    """Return the index of a session's count."""
    return hash((scope.tenant_id, scope.user_id, scope.session_id)) % _STRIPES


class ScopedArtifacts:
    """The artifacts of one scope. Every `artifact` may be an id or a reference.

    Raises, from every method with a reference:
        ArtifactScopeError: the reference belongs to another scope.
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
        """Store `data` in this scope and return its reference."""
        return self._require_own(
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
        """Store `text` in this scope and return its reference."""
        return self._require_own(
            await self._store.put_text(
                self.scope, text, mime_type=mime_type, filename=filename, namespace=namespace, source=source
            )
        )

    async def get(self, artifact: ArtifactRef | str) -> bytes | None:
        """Return the bytes, or None."""
        return await self._store.get(self.scope, self._to_id(artifact))

    async def get_ref(self, artifact: ArtifactRef | str) -> ArtifactRef | None:
        """Return the artifact's reference, or None."""
        ref = await self._store.get_ref(self.scope, self._to_id(artifact))
        return None if ref is None else self._require_own(ref)

    async def exists(self, artifact: ArtifactRef | str) -> bool:
        """Whether this scope holds the artifact."""
        return await self._store.exists(self.scope, self._to_id(artifact))

    async def delete(self, artifact: ArtifactRef | str) -> bool:
        """Remove the artifact; True when there was one."""
        return await self._store.delete(self.scope, self._to_id(artifact))

    async def list(self) -> builtins.list[ArtifactRef]:
        """Return the references of this scope; a scope without a task includes those of the session's tasks."""
        refs = await self._store.list(self.scope)
        for ref in refs:
            if not covers(self.scope, ref.scope):
                raise ArtifactScopeError(ref.id)
        return refs

    def _to_id(self, artifact: ArtifactRef | str) -> str:
        return artifact if isinstance(artifact, str) else self._require_own(artifact).id

    def _require_own(self, ref: ArtifactRef) -> ArtifactRef:
        if ref.scope != self.scope:
            raise ArtifactScopeError(ref.id)
        return ref


DEFAULT_HEAVY_OUTPUT_THRESHOLD_BYTES = 32768


class ArtifactConfig(msgspec.Struct, frozen=True):
    """The driver to open, the folder of its data, and the bytes from which a tool's result becomes an artifact."""

    driver: str = "inmem"
    fs_root: str = ""
    heavy_output_threshold_bytes: int = DEFAULT_HEAVY_OUTPUT_THRESHOLD_BYTES


ArtifactFactory: TypeAlias = Callable[[ArtifactConfig], Awaitable[ArtifactStore]]

ARTIFACT_DRIVERS: DriverTable[ArtifactFactory] = DriverTable(
    "artifacts", {"inmem": "harborage.artifacts.memory:make", "fs": "harborage.artifacts.files:make"}
)


async def open_artifacts(
    config: ArtifactConfig, *, drivers: DriverTable[ArtifactFactory] = ARTIFACT_DRIVERS
) -> ArtifactStore:
    """Open the store that `config` names; a blank driver name means `inmem`.

    Raises:
        InvalidOptionError: the threshold is negative, or the driver misses a setting it needs.
        DriverUnknownError: no such driver; the message lists the known ones.
    """
    if config.heavy_output_threshold_bytes < 0:
        raise InvalidOptionError(
            "artifacts.heavy_output_threshold_bytes",
            config.heavy_output_threshold_bytes,
            "a number that is not negative",
        )
    return await drivers.factory(config.driver or "inmem")(config)
