"""Artifacts in Postgres, beside the runs that name them: one row each, bytes and what is known of them together."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from harborage import codec
from harborage.artifacts import (
    ArtifactCorruptError,
    ArtifactRef,
    ArtifactScope,
    ArtifactStore,
    ArtifactStoreClosedError,
    ChangeCounts,
)
from harborage.artifacts.values import (
    candidate_ids,
    hash_content,
    make_ref,
    require_scope,
    sort_key,
    to_plain_source,
)
from harborage.state.postgres.database import PACKAGE, Database
from harborage.state.sql_files import read_statements

if TYPE_CHECKING:
    from harborage.state.postgres.driver import Connection

_SQL = read_statements(PACKAGE, "statements/artifacts.sql")


class PostgresArtifacts(ArtifactStore):
    """`ArtifactStore` over one database, which stays its owner's to close.

    Besides what the port names, every method raises DatabaseError when the database refuses, and reads raise
    ArtifactCorruptError for what is not what was put.
    """

    is_shared = True

    def __init__(self, database: Database) -> None:
        self._changes = ChangeCounts()
        self._database = database
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
        ref = make_ref(
            scope,
            await hash_content(owned),
            len(owned),
            mime_type=mime_type,
            filename=filename,
            namespace=namespace,
            source=origin,
        )
        self._check_open()  # it may have been closed while a large body was hashed

        async def work(connection: Connection, _: bool) -> ArtifactRef | None:
            return await _put(connection, ref, owned)

        try:
            while (kept := await self._database.run(work)) is None:
                continue
        finally:
            self._changes.note(scope)
        return kept

    async def get(self, scope: ArtifactScope, id: str) -> bytes | None:
        self._check(scope, "artifacts.get")
        row = await self._database.fetchrow(_SQL["data"], *_slot(scope, id))
        if row is None:
            return None
        data: bytes = row["data"]
        if await hash_content(data) != row["sha256"]:
            raise ArtifactCorruptError(self._place(id), "its content does not match its hash")
        return data

    async def get_ref(self, scope: ArtifactScope, id: str) -> ArtifactRef | None:
        self._check(scope, "artifacts.get_ref")
        entry = await self._database.fetchval(_SQL["entry"], *_slot(scope, id))
        return None if entry is None else self._ref(entry, id)

    async def exists(self, scope: ArtifactScope, id: str) -> bool:
        self._check(scope, "artifacts.exists")
        return await self._database.fetchval(_SQL["entry"], *_slot(scope, id)) is not None

    async def delete(self, scope: ArtifactScope, id: str) -> bool:
        self._check(scope, "artifacts.delete")

        async def work(connection: Connection, is_again: bool) -> bool:
            # Of one whose answer was lost it may have been this very call that removed it.
            return bool(await connection.fetchval(_SQL["delete"], *_slot(scope, id))) or is_again

        try:
            return await self._database.run(work)
        finally:
            self._changes.note(scope)

    async def list(self, scope: ArtifactScope) -> builtins.list[ArtifactRef]:
        self._check_open()
        rows = await self._database.fetch(_SQL["list"], *_names(scope))
        return sorted((self._ref(row["entry"], "") for row in rows), key=sort_key)

    def changes(self, scope: ArtifactScope) -> int:
        return self._changes.of(scope)

    async def aclose(self) -> None:
        self._is_closed = True

    def _ref(self, entry: bytes, id: str) -> ArtifactRef:
        try:
            ref: ArtifactRef = codec.decode(entry, ArtifactRef)
        except msgspec.DecodeError as error:
            raise ArtifactCorruptError(self._place(id), str(error)) from error
        return ref

    def _place(self, id: str) -> str:
        return f"artifact {id} in {self._database.address}" if id else f"an artifact in {self._database.address}"

    def _check_open(self) -> None:
        if self._is_closed:
            raise ArtifactStoreClosedError()

    def _check(self, scope: ArtifactScope, what: str) -> None:
        self._check_open()
        require_scope(scope, what)


async def _put(connection: Connection, ref: ArtifactRef, data: bytes) -> ArtifactRef | None:
    """The reference of `data`: the one that is there, or `ref` under the first free id; None when that was taken."""
    names = _names(ref.scope)
    candidates = [*candidate_ids(ref.namespace, ref.sha256)]
    rows = await connection.fetch(_SQL["known"], *names, [_name(one) for one in candidates])
    taken = {row["id"]: row for row in rows}
    for row in rows:
        if row["sha256"] == ref.sha256:
            known: ArtifactRef = codec.decode(row["entry"], ArtifactRef)
            return known
    # The longest candidate is the whole hash, so only the content itself could hold it: one is always free here.
    free = next(one for one in candidates if _name(one) not in taken)
    kept = ref if ref.id == free else msgspec.structs.replace(ref, id=free)
    args = (*names, _name(free), ref.sha256, codec.encode(kept, "artifact"), data)
    return kept if await connection.fetchval(_SQL["put"], *args) else None


def _slot(scope: ArtifactScope, id: str) -> tuple[bytes, ...]:
    return (*_names(scope), _name(id))


def _names(scope: ArtifactScope) -> tuple[bytes, ...]:
    return tuple(_name(one) for one in (scope.tenant_id, scope.user_id, scope.session_id, scope.task_id))


def _name(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
