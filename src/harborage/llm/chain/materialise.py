"""Moves heavy images, audio and files from a conversation to the artifact store, and puts stubs in their place.

The caller's messages stay as they are; a copy is rewritten. The same conversation comes back with every step, so
content is recognised by its hash, and is neither decoded nor stored twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from harborage.artifacts import ArtifactScope
from harborage.events import EventType, LLMImageMaterializedPayload
from harborage.llm.chain.layer import publish_event
from harborage.llm.content import ArtifactStub, AudioPart, FetchHint, FilePart, ImagePart, Part, TextPart
from harborage.llm.errors import InvalidContentError, LLMError
from harborage.llm.media import DataURL, parse_data_url

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.llm.client import ChatMessage
    from harborage.llm.config import Deps

FETCH_TOOL: Final = "artifact_fetch"
NAMESPACE: Final = "llm.materialized"
_STAGE: Final = {"stage": "auto_materialize"}
_KNOWN: Final = 1024

_Medium: TypeAlias = ImagePart | AudioPart | FilePart
_Key: TypeAlias = tuple[ArtifactScope, type[_Medium], int, int, str]


class _Found(msgspec.Struct, frozen=True):
    """A data URL in a conversation: its place, and its bytes unless they are known already."""

    message: int
    at: int
    part: _Medium
    url: DataURL
    data: bytes | None
    key: _Key


class Materialiser:
    """Rewrites conversations for one client; it remembers a bounded number of hashes and no content."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        # None for content that is fine where it is.
        self._known: dict[_Key, ArtifactStub | None] = {}

    async def rewrite(
        self, messages: Sequence[ChatMessage], where: Sequence[int], limit: int, who: Quadruple, model: str
    ) -> Sequence[ChatMessage]:
        """Return the conversation with a stub for every inline medium of `limit` decoded bytes or more.

        `where` are the indices of the messages that contain data URLs.

        Raises:
            InvalidContentError: a data URL is malformed; nothing was stored then.
            LLMError: the artifact store failed; the text names the place.
        """
        scope = ArtifactScope.of(who, who.run_id)
        heavy = [found for found in self._inspect(messages, where, scope) if found.url.size >= limit]
        if not heavy:
            return messages
        rewritten = list(messages)
        for found in heavy:
            try:
                stub = await self._stub(found, scope, who, model)
            except Exception as error:
                raise LLMError(
                    f"llm: message {found.message}, part {found.at}: {found.url.size} bytes could not be stored as an "
                    f"artifact: {error}"
                ) from error
            rewritten[found.message] = _with_stub(rewritten[found.message], found, stub)
        return rewritten

    def _inspect(self, messages: Sequence[ChatMessage], where: Sequence[int], scope: ArtifactScope) -> list[_Found]:
        """Return every data URL that has no artifact yet; all are inspected before any is stored."""
        return [
            self._inspect_part(part, scope, index, at)
            for index in where
            for at, part in _media(messages[index])
            if part.data_url and part.artifact is None
        ]

    def _inspect_part(self, part: _Medium, scope: ArtifactScope, index: int, at: int) -> _Found:
        filename = part.filename if isinstance(part, FilePart) else ""
        named = f"{part.mime}\n{filename}"
        # A string keeps its hash, so asking again is free; 64 keyed bits do not meet by chance within one scope.
        key = (scope, type(part), hash(part.data_url), len(part.data_url), named)
        try:
            url = parse_data_url(part.data_url)
            data = None
            if key not in self._known:
                data = url.content()
        except InvalidContentError as error:
            raise InvalidContentError(f"message {index}, part {at}: {error}") from error
        if data is not None:
            self._remember(key, None)
        return _Found(index, at, part, url, data, key)

    async def _stub(self, found: _Found, scope: ArtifactScope, who: Quadruple, model: str) -> ArtifactStub:
        artifacts = self._deps.artifacts
        assert artifacts is not None  # opening refuses to go on without
        known = self._known.get(found.key)
        if known is not None and await artifacts.exists(scope, known.ref):
            return known
        data = found.url.content() if found.data is None else found.data
        mime = found.part.mime or found.url.mime
        filename = found.part.filename if isinstance(found.part, FilePart) else ""
        ref = await artifacts.put_bytes(
            scope, data, mime_type=mime, filename=filename, namespace=NAMESPACE, source=_STAGE
        )
        stub = ArtifactStub(
            ref=ref.id,
            mime=mime or ref.mime_type,
            size_bytes=len(data),
            hash=f"sha256:{ref.sha256}",
            fetch=FetchHint(FETCH_TOOL, ref.id),
        )
        self._remember(found.key, stub)
        payload = LLMImageMaterializedPayload(
            identity=who,
            model=model,
            artifact_ref=ref.id,
            mime=stub.mime,
            size_bytes=stub.size_bytes,
            occurred_at=self._deps.clock.now(),
        )
        publish_event(self._deps, EventType.LLM_IMAGE_MATERIALIZED, payload, who=who)
        return stub

    def _remember(self, key: _Key, stub: ArtifactStub | None) -> None:
        self._known[key] = stub
        if len(self._known) > _KNOWN:
            del self._known[next(iter(self._known))]


def _media(message: ChatMessage) -> Iterator[tuple[int, _Medium]]:
    for at, part in enumerate(message.content.parts or ()):
        if not isinstance(part, TextPart):
            yield at, part


def _with_stub(message: ChatMessage, found: _Found, stub: ArtifactStub) -> ChatMessage:
    parts: list[Part] = list(message.content.parts or ())
    parts[found.at] = msgspec.structs.replace(found.part, data_url="", artifact=stub)
    content = msgspec.structs.replace(message.content, parts=tuple(parts))
    return msgspec.structs.replace(message, content=content)
