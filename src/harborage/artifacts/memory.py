"""The artifact store in memory: the default, and gone with the process."""

from __future__ import annotations

import builtins
import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from harborage.artifacts.store import ArtifactStore, ChangeCounts
from harborage.artifacts.values import (
    ArtifactRef,
    ArtifactScope,
    ArtifactStoreClosedError,
    candidate_ids,
    covers,
    hash_content,
    is_session,
    make_ref,
    require_scope,
    sort_key,
    to_plain_source,
)

if TYPE_CHECKING:
    from harborage.artifacts.store import ArtifactConfig
    from harborage.identity import Identity


class _Stored(msgspec.Struct, frozen=True):
    ref: ArtifactRef
    data: bytes


class MemoryArtifactStore(ArtifactStore):
    """Artifacts in dictionaries by session, scope and id, for one event loop."""

    is_shared = False

    def __init__(self) -> None:
        self._changes = ChangeCounts()
        # By session first, so that listing one does not walk the others.
        self._sessions: dict[Identity, dict[ArtifactScope, dict[str, _Stored]]] = {}
        self._is_closed = False

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
        self._check(scope, "artifacts.put")
        owned, origin = bytes(data), to_plain_source(source)
        digest = await hash_content(owned)
        ref = make_ref(
            scope,
            digest,
            len(owned),
            mime_type=mime_type,
            filename=filename,
            namespace=namespace,
            source=origin,
        )
        self._check(scope, "artifacts.put")  # it may have been closed while a large body was hashed
        return self._insert(ref, owned)

    async def get(self, scope: ArtifactScope, id: str) -> bytes | None:
        self._check(scope, "artifacts.get")
        stored = self._find(scope, id)
        return None if stored is None else stored.data

    async def get_ref(self, scope: ArtifactScope, id: str) -> ArtifactRef | None:
        self._check(scope, "artifacts.get_ref")
        stored = self._find(scope, id)
        return None if stored is None else _copy_ref(stored.ref)

    async def exists(self, scope: ArtifactScope, id: str) -> bool:
        self._check(scope, "artifacts.exists")
        return self._find(scope, id) is not None

    async def delete(self, scope: ArtifactScope, id: str) -> bool:
        self._check(scope, "artifacts.delete")
        session = self._sessions.get(scope.identity, {})
        stored = session.get(scope, {})
        if stored.pop(id, None) is None:
            return False
        if not stored:
            del session[scope]
        if not session:
            del self._sessions[scope.identity]
        self._changes.note(scope)
        return True

    async def list(self, scope: ArtifactScope) -> builtins.list[ArtifactRef]:
        self._check_open()
        sessions = [self._sessions.get(scope.identity, {})] if is_session(scope) else self._sessions.values()
        stored = [held for session in sessions for of, held in session.items() if covers(scope, of)]
        return sorted((_copy_ref(one.ref) for held in stored for one in held.values()), key=sort_key)

    def changes(self, scope: ArtifactScope) -> int:
        return self._changes.of(scope)

    async def aclose(self) -> None:
        self._is_closed = True
        self._sessions.clear()

    def _insert(self, ref: ArtifactRef, data: bytes) -> ArtifactRef:
        stored = self._sessions.setdefault(ref.scope.identity, {}).setdefault(ref.scope, {})
        free = ""
        for candidate in candidate_ids(ref.namespace, ref.sha256):
            known = stored.get(candidate)
            if known is None:
                free = free or candidate
            elif known.ref.sha256 == ref.sha256:
                return _copy_ref(known.ref)
        # The longest candidate is the whole hash, so only the content itself could hold it: one is always free here.
        named = ref if ref.id == free else msgspec.structs.replace(ref, id=free)
        stored[free] = _Stored(named, data)
        self._changes.note(ref.scope)
        return _copy_ref(named)

    def _find(self, scope: ArtifactScope, id: str) -> _Stored | None:
        return self._sessions.get(scope.identity, {}).get(scope, {}).get(id)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ArtifactStoreClosedError()

    def _check(self, scope: ArtifactScope, what: str) -> None:
        self._check_open()
        require_scope(scope, what)


async def make(config: ArtifactConfig) -> ArtifactStore:
    """Make an empty store in memory; it ignores `config`."""
    return MemoryArtifactStore()


def _copy_ref(ref: ArtifactRef) -> ArtifactRef:
    """Return a copy for the caller, who may change its source."""
    return msgspec.structs.replace(ref, source=copy.deepcopy(ref.source)) if ref.source else ref
