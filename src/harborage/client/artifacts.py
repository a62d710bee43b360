"""Files of a session: those of a goal, put there before its run starts, and answers that are too large for a list."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import msgspec

from harborage.client.answers import ArtifactRef

if TYPE_CHECKING:
    from harborage.artifacts.media import Media
    from harborage.client.connection import Connection
    from harborage.identity import Identity


class _Put(msgspec.Struct, frozen=True):
    ref: ArtifactRef


class _Link(msgspec.Struct, frozen=True):
    presigned_url: str


async def upload(connection: Connection, who: Identity, media: Media) -> str:
    """Put a picture, sound or file into the session of `who`; return the id of its artifact.

    Raises:
        RemoteError: the server refused it: it is too large (`request_too_large`).
    """
    if media.artifact:
        return str(media.artifact)
    body = {
        "scope": {"tenant": who.tenant_id, "user": who.user_id, "session": who.session_id},
        "bytes": base64.b64encode(media.data).decode("ascii"),
        "opts": {"mime_type": media.mime, "filename": media.name, "source": "user_upload"},
    }
    return (await connection.ask("artifacts.put", body, _Put, who=who)).ref.id


async def download(connection: Connection, who: Identity, artifact: str) -> bytes:
    """Return the bytes of an artifact in the session of `who`.

    Raises:
        RemoteError: there is no such artifact (`not_found`), or the server gives no links (`presign_unsupported`).
    """
    scope = {"tenant": who.tenant_id, "user": who.user_id, "session": who.session_id}
    link = await connection.ask("artifacts.get_ref", {"scope": scope, "id": artifact}, _Link, who=who)
    return await connection.fetch(link.presigned_url)
