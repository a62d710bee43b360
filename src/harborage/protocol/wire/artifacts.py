"""The messages of `artifacts.*`."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from harborage.protocol.wire.common import NO_TIME, Answer, Request

if TYPE_CHECKING:
    from harborage.artifacts import ArtifactRef, ArtifactScope


class ArtifactSource(StrEnum):
    """Who made an artifact, in lists."""

    TOOL = "tool"
    PLANNER = "planner"
    USER_UPLOAD = "user_upload"
    SYSTEM = "system"


class ScopeParts(msgspec.Struct, frozen=True, kw_only=True):
    """Whose artifacts a request is about; a blank part is not said."""

    tenant: str = ""
    user: str = ""
    session: str = ""
    task: str = ""


class SizeRange(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of a size in bytes, both included."""

    min_bytes: int | None = None
    max_bytes: int | None = None


class CreatedRange(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of a time of creation, both included."""

    after: datetime | None = None
    before: datetime | None = None


class ListArtifacts(Request, frozen=True, kw_only=True):
    """`artifacts.list`; `limit` of 0 or less is 100."""

    scope: ScopeParts = ScopeParts()
    mime_type: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    size_range: SizeRange = SizeRange()
    created_range: CreatedRange = CreatedRange()
    tags: tuple[str, ...] = ()
    limit: int = 0


class PutOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an upload beside its content."""

    mime_type: str = ""
    filename: str = ""
    namespace: str = ""
    source: str = ""
    tags: tuple[str, ...] = ()


class PutArtifact(Request, frozen=True, kw_only=True):
    """`artifacts.put`; `data` is the content in standard base64."""

    scope: ScopeParts = ScopeParts()
    data: str = msgspec.field(default="", name="bytes")
    opts: PutOptions = PutOptions()


class GetArtifactRef(Request, frozen=True, kw_only=True):
    """`artifacts.get_ref`; `expiry` is in nanoseconds, 0 or less is 15 minutes."""

    scope: ScopeParts = ScopeParts()
    id: str = ""
    expiry: int = 0


class WireScope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The owner of an artifact; `task` is absent where it belongs to the session as a whole."""

    tenant: str
    user: str
    session: str
    task: str = ""

    @classmethod
    def of(cls, scope: ArtifactScope) -> WireScope:
        """Return `scope` as it travels."""
        return cls(tenant=scope.tenant_id, user=scope.user_id, session=scope.session_id, task=scope.task_id)


class OwnedReference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A reference to an artifact, with its owner."""

    id: str
    size_bytes: int
    scope: WireScope
    mime_type: str = ""
    filename: str = ""
    sha256: str = ""
    namespace: str = ""

    @classmethod
    def of(cls, ref: ArtifactRef) -> OwnedReference:
        """Return `ref` as it travels."""
        return cls(
            id=ref.id,
            size_bytes=ref.size_bytes,
            scope=WireScope.of(ref.scope),
            mime_type=ref.mime_type,
            filename=ref.filename,
            sha256=ref.sha256,
            namespace=ref.namespace,
        )


class ArtifactRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One row of a list."""

    ref: OwnedReference
    driver: str
    created_at: datetime
    tags: tuple[str, ...] = ()
    source: str = ""

    @property
    def is_dated(self) -> bool:
        """Whether its time of creation is known."""
        return self.created_at != NO_TIME


class ArtifactsListed(Answer, frozen=True, kw_only=True):
    """The answer of `artifacts.list`, newest first; `total_matched` counts what the limit cut off, too."""

    rows: list[ArtifactRow]
    total_matched: int


class ArtifactStored(Answer, frozen=True, kw_only=True):
    """The answer of `artifacts.put`."""

    ref: OwnedReference


class ArtifactLinked(Answer, frozen=True, kw_only=True):
    """The answer of `artifacts.get_ref`; `url` is `presigned_url` once more, under the name that some clients read."""

    ref: OwnedReference
    presigned_url: str
    url: str
    expires_at: datetime
