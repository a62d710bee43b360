"""The files of a goal, put into the session before its run starts."""

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
