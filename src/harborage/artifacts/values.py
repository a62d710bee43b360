"""The values of artifacts: scope, id, reference and content hash, the rules that every driver shares, and the errors.

Pure, but for hashing large content in a thread. No driver decides for itself what an id or a default looks like.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

import msgspec

from harborage import codec
from harborage.errors import HarborageError, NotFoundError
from harborage.identity import Identity, Quadruple, missing_parts, require_triple


class ArtifactError(HarborageError):
    """The artifact store failed."""


class ArtifactNotFoundError(ArtifactError, NotFoundError):
    """An artifact is not in its scope, or is listed there but its bytes are gone. `id` names it."""

    what = "artifact"
    fix = "put it first, in the same scope"


class ArtifactCorruptError(ArtifactError):
    """A stored artifact is damaged; put it again or delete it. `path` is the damaged file."""

    def __init__(self, path: str = "", reason: str = "") -> None:
        self.path = path
        super().__init__(f"{path} is damaged ({reason}); put the artifact again or delete it" if path else "")


class ArtifactStorageError(ArtifactError):
    """The medium below the store refused to read or write. `path` is where, `reason` the system's own text."""

    def __init__(self, path: str = "", reason: str = "", advice: str = "") -> None:
        self.path = path
        self.reason = reason
        text = f"cannot use {path}: {reason}" if path else ""
        super().__init__(f"{text}; {advice}" if text and advice else text)


class ArtifactStoreClosedError(ArtifactError):
    """The artifact store is closed; open a new one."""


class ArtifactScopeError(ArtifactError):
    """An artifact belongs to another scope than the given one. `id` names it."""

    def __init__(self, id: str = "") -> None:
        self.id = id
        super().__init__(f"artifact {id!r} belongs to another scope; ask for it in its own" if id else "")


class UnsafePathError(ArtifactError):
    """A name would lead out of the store's folder; use names without `.` or `..` between separators."""


DEFAULT_NAMESPACE = "default"
DEFAULT_MIME_TYPE = "application/octet-stream"
TEXT_MIME_TYPE = "text/plain; charset=utf-8"

_ID_DIGITS = (12, 16, 24, 32, 64)


class ArtifactScope(msgspec.Struct, frozen=True):
    """The owner of an artifact; with an empty task it belongs to the session as a whole."""

    tenant_id: str
    user_id: str
    session_id: str
    task_id: str = ""

    @classmethod
    def of(cls, who: Identity | Quadruple, task_id: str = "") -> Self:
        """Return the scope of `who`: the session's, or one task's. The run of a quadruple is ignored."""
        return cls(who.tenant_id, who.user_id, who.session_id, task_id)

    @property
    def identity(self) -> Identity:
        """The triple without the task."""
        return Identity(self.tenant_id, self.user_id, self.session_id)


class ArtifactRef(msgspec.Struct, frozen=True):
    """A stored artifact without its bytes: safe to log, to show to a model and to keep in a trajectory.

    `id` is unique within `scope`; `sha256` is the whole hash of the content (64 hex digits); `source` is its
    maker's description of its origin, as plain JSON data.
    """

    # Marks a reference for the redactor, which lets it pass even under a key that looks secret.
    __harborage_reference__: ClassVar[bool] = True

    id: str
    mime_type: str
    size_bytes: int
    filename: str
    sha256: str
    scope: ArtifactScope
    namespace: str
    source: dict[str, Any] = {}


def to_plain_source(source: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a maker's description of an artifact's origin as a copy in plain JSON data.

    Raises:
        UnserializableError: it has no JSON form; the path below `source` is named.
    """
    if not source:
        return {}
    codec.validate_encodable(source, "source")
    plain: dict[str, Any] = codec.to_plain(dict(source), "source")
    return plain


def make_ref(
    scope: ArtifactScope,
    sha256: str,
    size_bytes: int,
    *,
    mime_type: str,
    filename: str,
    namespace: str,
    source: dict[str, Any],
) -> ArtifactRef:
    """Make the reference for new content, with every default filled in and the shortest id."""
    space = namespace or DEFAULT_NAMESPACE
    return ArtifactRef(
        id=next(candidate_ids(space, sha256)),
        mime_type=mime_type or DEFAULT_MIME_TYPE,
        size_bytes=size_bytes,
        filename=filename,
        sha256=sha256,
        scope=scope,
        namespace=space,
        source=source,
    )


def candidate_ids(namespace: str, sha256: str) -> Iterator[str]:
    """Yield the ids that content may take, shortest first: a longer one only where other content has the shorter."""
    return (f"{namespace}_{sha256[:digits]}" for digits in _ID_DIGITS)


def id_family(artifact_id: str) -> str:
    """Return the part that all candidate ids of one content share; ids of one family must be chosen one at a time."""
    namespace, _, digits = artifact_id.rpartition("_")
    return f"{namespace}_{digits[: _ID_DIGITS[0]]}"


def covers(asked: ArtifactScope, stored: ArtifactScope) -> bool:
    """Whether a listing of `asked` includes artifacts of `stored`: equal parts, empty ones matching anything."""
    return (
        asked.tenant_id in ("", stored.tenant_id)
        and asked.user_id in ("", stored.user_id)
        and asked.session_id in ("", stored.session_id)
        and asked.task_id in ("", stored.task_id)
    )


def is_session(scope: ArtifactScope) -> bool:
    """Whether a listing for `scope` stays within one session: tenant, user and session are all set."""
    return not missing_parts(scope.identity)


def sort_key(ref: ArtifactRef) -> tuple[str, ...]:
    """The order of every listing: by scope, then by id."""
    scope = ref.scope
    return (scope.tenant_id, scope.user_id, scope.session_id, scope.task_id, ref.id)


def require_scope(scope: ArtifactScope, what: str) -> None:
    """Check that tenant, user and session of a scope are set, for the operation named by `what`.

    Raises:
        IdentityRequiredError: one of them is empty; the message names it.
    """
    require_triple(scope.identity, what)


# About a quarter of a millisecond of hashing; a thread hop costs a good part of that.
_INLINE_BYTES = 256 * 1024


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 of `data` in 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


async def hash_content(data: bytes) -> str:
    """Return the SHA-256 of `data` in 64 hex digits; large data is hashed in a thread."""
    if len(data) <= _INLINE_BYTES:
        return sha256_hex(data)
    return await asyncio.to_thread(sha256_hex, data)
