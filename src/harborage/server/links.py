"""Links under which the server itself gives out artifacts: signed, ending by themselves, and bound to one owner.

A link needs no token, because browsers send none with `<img src>` and downloads. What it gives out was uploaded by
anybody, and is shown by a browser that holds a console's token: so nothing in it may run.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from harborage.artifacts import ArtifactNotFoundError, ArtifactScope
from harborage.artifacts.store import Presigns, TracksChanges
from harborage.artifacts.values import DEFAULT_MIME_TYPE
from harborage.events import unix_ns
from harborage.protocol.errors import Code, ProtocolError
from harborage.server.http import refusal

if TYPE_CHECKING:
    from starlette.requests import Request

    from harborage.artifacts import ArtifactRef, ArtifactStore
    from harborage.server.services import Services
    from harborage.server.signing import Key, SigningKeys

PREFIX: Final = "/artifacts/"

_PART_BYTES: Final = 64 * 1024
_GRANT: Final = "grant"
_PURPOSE: Final = "harborage artifact link"
_MAC_BYTES: Final = 32
_SHOWN: Final = ("image/", "audio/", "video/", "text/plain", "application/json", "application/pdf")
"""What a browser shows in place; it is asked to save everything else."""


class _Grant(msgspec.Struct, frozen=True, array_like=True):
    """What a link is signed for; `until` is in nanoseconds since 1970."""

    id: str
    scope: ArtifactScope
    until: int


def can_link(store: ArtifactStore) -> bool:
    """Whether the server gives out links to what a store holds: not to what ends with this process."""
    return not (isinstance(store, TracksChanges) and not store.is_shared)


def sign_path(key: Key, scope: ArtifactScope, id: str, until: datetime) -> str:
    """Return path and query of a link to an artifact, which is good until then."""
    grant = msgspec.msgpack.encode(_Grant(id, scope, unix_ns(until)))
    return f"{PREFIX}{quote(id, safe='')}?{_GRANT}={key.id}.{_spell(key.sign(grant, _PURPOSE) + grant)}"


def _spell(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


async def link_to(services: Services, base_url: str, ref: ArtifactRef, expiry: timedelta) -> str | None:
    """Return a link to the content of an artifact that ends by itself; None where its store has none."""
    store = services.parts.artifacts
    if isinstance(store, Presigns):
        return await store.presign(ref.scope, ref.id, expires_in=expiry)
    if not can_link(store):
        return None
    until = services.clock.now() + expiry
    return base_url.rstrip("/") + sign_path(await services.keys.current(), ref.scope, ref.id, until)


async def read_grant(keys: SigningKeys, id: str, text: str, now: datetime) -> ArtifactScope:
    """Return the scope for which a link to `id` was signed.

    Raises:
        ProtocolError: 403: it was not signed by a server over this store, is for another artifact, or is over.
        StateError: the store refused.
    """
    key_id, _, signed = text.partition(".")
    try:
        raw = base64.b64decode(signed + "=" * (-len(signed) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise _refused() from error
    mac, packed = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
    if not packed or _spell(raw) != signed:
        raise _refused()
    key = await keys.find(key_id)
    if key is None or not key.has_signed(packed, _PURPOSE, mac):
        raise _refused()
    grant = msgspec.msgpack.decode(packed, type=_Grant)
    if grant.id != id or unix_ns(now) >= grant.until:
        raise _refused()
    return grant.scope


def _refused() -> ProtocolError:
    return ProtocolError(
        Code.SCOPE_MISMATCH, "this link is not valid, or no longer; ask artifacts.get_ref for a new one"
    )


class Links:
    """Answers the links of one server."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def route(self) -> Route:
        """Return the route of all links; it takes GET and HEAD alone."""
        return Route(f"{PREFIX}{{id:path}}", self.answer, methods=["GET"])

    async def answer(self, request: Request) -> Response:
        """Return the content that a link gives out."""
        try:
            return await self._content(request)
        except ProtocolError as error:
            return refusal(error)
        except Exception as error:
            self._services.logger.error("an artifact was not given out: %s", type(error).__name__, exc_info=error)
            return refusal(ProtocolError(Code.RUNTIME_ERROR, "the server failed; its log says why"))

    async def _content(self, request: Request) -> Response:
        name = request.path_params["id"]
        now = self._services.clock.now()
        scope = await read_grant(self._services.keys, name, request.query_params.get(_GRANT, ""), now)
        store = self._services.parts.artifacts
        ref = await store.get_ref(scope, name)
        if ref is None:
            raise _gone(name)
        headers = _headers(ref)
        if request.method == "HEAD":
            return Response(headers={**headers, "content-length": str(ref.size_bytes)})
        try:
            data = await store.get(scope, name)
        except ArtifactNotFoundError as error:
            raise _gone(name) from error
        if data is None:
            raise _gone(name)
        return StreamingResponse(_parts(data), headers={**headers, "content-length": str(len(data))})


def _gone(id: str) -> ProtocolError:
    return ProtocolError(Code.NOT_FOUND, f"no artifact {id!r} any more")


async def _parts(data: bytes) -> AsyncIterator[memoryview]:
    whole = memoryview(data)
    for start in range(0, len(whole), _PART_BYTES):
        yield whole[start : start + _PART_BYTES]


def _headers(ref: ArtifactRef) -> dict[str, str]:
    mime = ref.mime_type if _is_header(ref.mime_type) else DEFAULT_MIME_TYPE
    way = "inline" if mime.lower().startswith(_SHOWN) else "attachment"
    name = f"; filename*=UTF-8''{quote(ref.filename, safe='')}" if ref.filename else ""
    return {
        "content-type": mime,
        "content-disposition": f"{way}{name}",
        "content-security-policy": "sandbox",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "private, no-store",
    }


def _is_header(text: str) -> bool:
    return bool(text.strip()) and text.isascii() and text.isprintable()
