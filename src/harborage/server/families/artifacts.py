"""`artifacts.*`: lists, uploads, and links to what was stored."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from harborage.artifacts import ArtifactScope
from harborage.artifacts.values import UnsafePathError
from harborage.events import ArtifactsUploadedPayload, Event, EventType
from harborage.protocol.errors import Code, ProtocolError
from harborage.protocol.methods import TokenScope
from harborage.protocol.wire.artifacts import (
    ArtifactLinked,
    ArtifactRow,
    ArtifactsListed,
    ArtifactSource,
    ArtifactStored,
    GetArtifactRef,
    ListArtifacts,
    OwnedReference,
    PutArtifact,
    ScopeParts,
)
from harborage.protocol.wire.common import time_or_none
from harborage.server.families.drivers import driver_name
from harborage.server.links import link_to
from harborage.server.services import Endpoint

if TYPE_CHECKING:
    from harborage.artifacts import ArtifactRef, ArtifactStore
    from harborage.server.services import Call

DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1_000
DEFAULT_EXPIRY: Final = timedelta(minutes=15)
SHORTEST_EXPIRY: Final = timedelta(minutes=1)
LONGEST_EXPIRY: Final = timedelta(days=7)

_SOURCES: Final = frozenset(map(str, ArtifactSource))


async def list_artifacts(call: Call, asked: ListArtifacts) -> ArtifactsListed:
    """Return the artifacts that a scope covers and a filter finds."""
    scope = _owner(call, asked.scope)
    if not scope.tenant_id:
        raise ProtocolError(Code.IDENTITY_REQUIRED, "artifacts.list: scope.tenant is empty")
    is_foreign = scope.tenant_id != call.who.tenant_id
    if is_foreign:
        call.require(TokenScope.ADMIN, TokenScope.CONSOLE_FLEET)
    if not scope.user_id and not call.is_scoped:
        scope = ArtifactScope(scope.tenant_id, call.who.user_id, scope.session_id, scope.task_id)
    _check_sources(asked.source)
    if is_foreign:
        await call.audit()
    store = call.parts.artifacts
    driver = driver_name(store)
    rows = [row for row in (_row(ref, driver) for ref in await store.list(scope)) if _is_found(row, asked)]
    rows.sort(key=lambda row: row.ref.id)
    rows.sort(key=lambda row: row.created_at, reverse=True)
    limit = min(asked.limit, MAX_LIMIT) if asked.limit > 0 else DEFAULT_LIMIT
    return ArtifactsListed(rows=rows[:limit], total_matched=len(rows))


async def put_artifact(call: Call, asked: PutArtifact) -> ArtifactStored:
    """Store an upload and return its reference."""
    scope = _whole(call, asked.scope)
    is_foreign = scope.tenant_id != call.who.tenant_id
    if is_foreign:
        call.require(TokenScope.ADMIN)
    data = _content(asked.data, call.services.options.max_artifact_bytes)
    source = asked.opts.source or ArtifactSource.USER_UPLOAD
    _check_sources((source,))
    about = _without_secrets(call, asked)
    if is_foreign:
        await call.audit()
    try:
        ref = await call.parts.artifacts.put_bytes(
            scope,
            data,
            mime_type=about["mime_type"],
            filename=about["filename"],
            namespace=about["namespace"],
            source={
                "source": str(source),
                "created_at": _text(call.services.clock.now()),
                **({"tags": about["tags"]} if about["tags"] else {}),
            },
        )
    except UnsafePathError as error:
        raise ProtocolError(Code.INVALID_REQUEST, f"artifacts.put: {error}") from error
    payload = ArtifactsUploadedPayload(ref.id, ref.size_bytes, ref.mime_type, str(source), ref.namespace)
    await call.parts.bus.publish(Event(EventType.ARTIFACTS_UPLOADED, scope.identity.with_run(""), payload))
    return ArtifactStored(ref=OwnedReference.of(ref))


async def link_artifact(call: Call, asked: GetArtifactRef) -> ArtifactLinked:
    """Return the reference of an artifact, and a link to its content that ends by itself."""
    scope = _whole(call, asked.scope)
    is_foreign = scope.tenant_id != call.who.tenant_id
    if is_foreign:
        call.require(TokenScope.ADMIN)
    if not asked.id.strip():
        raise ProtocolError(Code.INVALID_REQUEST, "artifacts.get_ref: id is empty")
    expiry = _expiry(asked.expiry)
    if is_foreign:
        await call.audit()
    store = call.parts.artifacts
    ref = await _find(store, scope, asked.id)
    if ref is None:
        raise ProtocolError(Code.NOT_FOUND, f"no artifact {asked.id!r} in this session")
    until = call.services.clock.now() + expiry
    url = await link_to(call.services, call.base_url, ref, expiry)
    if url is None:
        text = "artifacts in memory have no links; use a storage, or the artifact driver fs"
        raise ProtocolError(Code.PRESIGN_UNSUPPORTED, text)
    return ArtifactLinked(ref=OwnedReference.of(ref), presigned_url=url, url=url, expires_at=until)


async def _find(store: ArtifactStore, scope: ArtifactScope, id: str) -> ArtifactRef | None:
    """Return the artifact of this scope; without a task in it, also one of the session's tasks."""
    found = await store.get_ref(scope, id)
    if found is not None or scope.task_id:
        return found
    return next((ref for ref in await store.list(scope) if ref.id == id), None)


def _owner(call: Call, parts: ScopeParts) -> ArtifactScope:
    """Return the scope that a request means: with none of tenant, user and session, the caller's own.

    Raises:
        ProtocolError: `identity_required`: it names another user or session than the verified ones.
    """
    who = call.who
    if not (parts.tenant or parts.user or parts.session):
        return ArtifactScope.of(who, parts.task)
    for name, given, verified in (("user", parts.user, who.user_id), ("session", parts.session, who.session_id)):
        if given and given != verified:
            text = f"scope.{name} is not that of the token and the request's headers; leave it out"
            raise ProtocolError(Code.IDENTITY_REQUIRED, f"{call.method.name}: {text}")
    return ArtifactScope(parts.tenant, parts.user, parts.session, parts.task)


def _whole(call: Call, parts: ScopeParts) -> ArtifactScope:
    """Return the same, where no part of it may be blank.

    Raises:
        ProtocolError: `identity_required`.
    """
    scope = _owner(call, parts)
    if not (scope.tenant_id and scope.user_id and scope.session_id):
        text = "scope needs a tenant, a user and a session, or none of the three"
        raise ProtocolError(Code.IDENTITY_REQUIRED, f"{call.method.name}: {text}")
    return scope


def _check_sources(sources: Iterable[str]) -> None:
    if not _SOURCES.issuperset(sources):
        raise ProtocolError(Code.INVALID_REQUEST, f"source: no such value; there are {', '.join(sorted(_SOURCES))}")


def _content(text: str, most: int) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ProtocolError(Code.INVALID_REQUEST, "artifacts.put: bytes is not standard base64") from error
    if len(data) > most:
        raise ProtocolError(Code.REQUEST_TOO_LARGE, f"artifacts.put: {len(data)} bytes; at most {most} are taken")
    return data


def _without_secrets(call: Call, asked: PutArtifact) -> dict[str, Any]:
    """Return what is stored beside the content, redacted: it is shown in lists, and to models."""
    opts = asked.opts
    about = {
        "mime_type": opts.mime_type,
        "filename": opts.filename,
        "namespace": opts.namespace,
        "tags": list(opts.tags),
    }
    redacted: dict[str, Any] = call.parts.redactor.redact(about)
    return redacted


def _expiry(ns: int) -> timedelta:
    if ns <= 0:
        return DEFAULT_EXPIRY
    shortest, longest = (int(one.total_seconds()) * 10**9 for one in (SHORTEST_EXPIRY, LONGEST_EXPIRY))
    if not shortest <= ns <= longest:
        text = f"artifacts.get_ref: expiry is in nanoseconds, from {shortest} (1 minute) to {longest} (7 days)"
        raise ProtocolError(Code.INVALID_REQUEST, text)
    return timedelta(microseconds=ns // 1_000)


def _row(ref: ArtifactRef, driver: str) -> ArtifactRow:
    tags = ref.source.get("tags")
    return ArtifactRow(
        ref=OwnedReference.of(ref),
        driver=driver,
        created_at=time_or_none(created_at(ref)),
        tags=tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else (),
        source=source_of(ref),
    )


def source_of(ref: ArtifactRef) -> str:
    """Return who made an artifact, as far as its maker has said; "" where that is not known."""
    said = ref.source.get("source")
    if said in _SOURCES:
        return str(said)
    if said == "flow":
        return ArtifactSource.SYSTEM
    if "tool" in ref.source:
        return ArtifactSource.TOOL
    return ArtifactSource.SYSTEM if {"flow", "producer"} & ref.source.keys() else ""


def created_at(ref: ArtifactRef) -> datetime | None:
    """Return when an artifact was made, if its maker has said so: as RFC 3339, or in seconds since 1970."""
    said = ref.source.get("created_at")
    try:
        if isinstance(said, str):
            found = datetime.fromisoformat(said)
            return found.astimezone(UTC) if found.tzinfo is not None else found.replace(tzinfo=UTC)
        if isinstance(said, int | float) and not isinstance(said, bool):
            return datetime.fromtimestamp(said, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _is_found(row: ArtifactRow, asked: ListArtifacts) -> bool:
    sizes, times = asked.size_range, asked.created_range
    return (
        (not asked.mime_type or row.ref.mime_type in asked.mime_type)
        and (not asked.source or row.source in asked.source)
        and (not asked.tags or not set(asked.tags).isdisjoint(row.tags))
        and (sizes.min_bytes is None or row.ref.size_bytes >= sizes.min_bytes)
        and (sizes.max_bytes is None or row.ref.size_bytes <= sizes.max_bytes)
        and (times.after is None or (row.is_dated and row.created_at >= _aware(times.after)))
        and (times.before is None or (row.is_dated and row.created_at <= _aware(times.before)))
    )


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


ENDPOINTS: Final = {
    "artifacts.list": Endpoint(ListArtifacts, ArtifactsListed, list_artifacts),
    "artifacts.put": Endpoint(PutArtifact, ArtifactStored, put_artifact),
    "artifacts.get_ref": Endpoint(GetArtifactRef, ArtifactLinked, link_artifact),
}
