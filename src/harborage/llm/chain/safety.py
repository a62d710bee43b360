"""The layer that has no switch: a request that is malformed, leaks or does not fit never reaches a provider.

The order of the checks is part of the contract, and none of them calls the provider. Only materialising stores
anything, and it comes after every check that needs no store: heavy images, audio and files are moved from a copy of the
conversation to the artifact store. The same conversation comes back with every step, so content is recognised by its
hash, and is neither decoded nor stored twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from harborage.artifacts import ArtifactScope
from harborage.concurrency import CancelScope, cancellations
from harborage.events import (
    EventType,
    LLMContextLeakPayload,
    LLMContextWindowExceededPayload,
    LLMImageMaterializedPayload,
)
from harborage.llm.chain.conversation import read_conversation, tokens_beside_messages
from harborage.llm.chain.layer import Layer, publish_event, require_caller
from harborage.llm.configure import DEFAULT_RESERVE, DEFAULT_THRESHOLD_BYTES, DEFAULT_TIMEOUT_S
from harborage.llm.content import (
    ArtifactStub,
    AudioPart,
    DataURL,
    FetchHint,
    FilePart,
    ImagePart,
    Part,
    TextPart,
    parse_data_url,
    utf8_size,
)
from harborage.llm.errors import (
    ContextLeakError,
    ContextWindowExceededError,
    InvalidContentError,
    LLMConfigError,
    LLMError,
    ProviderTimeoutError,
    ToolsUnsupportedError,
    UnsupportedModelError,
)

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.llm.chain.conversation import ConversationFacts
    from harborage.llm.client import ChatMessage, CompleteRequest, CompleteResponse, LLMClient
    from harborage.llm.config import ConfigSnapshot, Deps, ModelProfile

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


class Safe(Layer):
    """Checks every request, sends heavy content to the artifact store, and bounds the call in time."""

    def __init__(self, inner: LLMClient, cfg: ConfigSnapshot, deps: Deps) -> None:
        super().__init__(inner, cfg, deps)
        reserve, threshold = cfg.context_window_reserve, cfg.heavy_output_threshold
        self._reserve = DEFAULT_RESERVE if reserve is None else reserve
        self._threshold = DEFAULT_THRESHOLD_BYTES if threshold is None else threshold
        self._timeout_s = DEFAULT_TIMEOUT_S if cfg.timeout_s is None else cfg.timeout_s
        self._materialiser = Materialiser(deps)

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        self._check_open()
        who = require_caller()
        model = request.model or self._cfg.model
        if not model:
            raise LLMConfigError("llm: no model: set llm.model, or name one in the request")
        known = read_conversation(request.messages)
        profile = self._profile(model)
        if request.tools and not profile.supports_tools:
            raise ToolsUnsupportedError.of(self._cfg.provider, model)
        limit = self._threshold if profile.inline_limit_bytes is None else profile.inline_limit_bytes
        messages = request.messages
        if known.data_urls:
            messages = await self._materialiser.rewrite(messages, known.data_urls, limit, who, model)
        self._check_leaks(messages, known, limit, who, model)
        checked = _filled(request, model, messages, profile)
        # A stub counts as much as the medium that it replaces, so the earlier estimate still holds.
        tokens = known.tokens + tokens_beside_messages(checked)
        self._check_window(tokens, profile.context_window_tokens, who, model)
        # A task learns of its cancellation only at its next wait, which may lie behind a call that costs money.
        if cancellations():
            raise asyncio.CancelledError
        return await self._answer(checked)

    def _profile(self, model: str) -> ModelProfile:
        profile = self._cfg.profiles.get(model)
        if profile is None:
            raise UnsupportedModelError(
                model,
                message=f"llm: no profile for the model {model!r}: add llm.profiles[{model!r}] with its "
                "context_window_tokens",
            )
        return profile

    def _check_leaks(
        self, messages: Sequence[ChatMessage], known: ConversationFacts, limit: int, who: Quadruple, model: str
    ) -> None:
        is_heavy = known.longest_text >= self._threshold
        leak = find_leak(messages, self._threshold, limit, where=None if is_heavy else known.data_urls)
        if leak is None:
            return
        payload = LLMContextLeakPayload(
            identity=who,
            model=model,
            leak_site=leak.site,
            size_bytes=leak.size_bytes,
            threshold=leak.threshold,
            occurred_at=self._deps.clock.now(),
        )
        publish_event(self._deps, EventType.LLM_CONTEXT_LEAK, payload, who=who)
        raise ContextLeakError(leak.site, leak.size_bytes, leak.threshold)

    def _check_window(self, estimate: int, window: int, who: Quadruple, model: str) -> None:
        effective = int(window * (1 - self._reserve))
        if estimate < effective:
            return
        payload = LLMContextWindowExceededPayload(
            identity=who,
            model=model,
            estimated_tokens=estimate,
            context_window_tokens=window,
            context_window_reserve=self._reserve,
            occurred_at=self._deps.clock.now(),
        )
        publish_event(self._deps, EventType.LLM_CONTEXT_WINDOW_EXCEEDED, payload, who=who)
        raise ContextWindowExceededError(estimate, window, self._reserve, effective)

    async def _answer(self, request: CompleteRequest) -> CompleteResponse:
        clock = self._deps.clock
        seconds = self._timeout_s
        if request.deadline is not None:
            seconds = (request.deadline - clock.now()).total_seconds()
            if seconds <= 0:
                raise self._too_late(request)
        with CancelScope(clock, seconds):
            return await self._inner.complete(request)
        raise self._too_late(request)

    def _too_late(self, request: CompleteRequest) -> ProviderTimeoutError:
        bound = f"within {self._timeout_s:g} s; llm.timeout_s sets how long that is"
        if request.deadline is not None:
            bound = f"by the caller's deadline of {request.deadline.isoformat()}"
        provider = self._cfg.provider or self._cfg.driver or "llm"
        return ProviderTimeoutError(
            f"{provider}: no answer of {request.model} {bound}", provider=provider, model=request.model
        )


def _filled(
    request: CompleteRequest, model: str, messages: Sequence[ChatMessage], profile: ModelProfile
) -> CompleteRequest:
    """Return the request with the configured model and length, and with its messages as they may be sent."""
    max_tokens = profile.default_max_tokens if request.max_tokens is None else request.max_tokens
    if model == request.model and messages is request.messages and max_tokens == request.max_tokens:
        return request
    return msgspec.structs.replace(request, model=model, messages=messages, max_tokens=max_tokens)


_FIELDS = {ImagePart: "Image", AudioPart: "Audio", FilePart: "File"}


class Leak(msgspec.Struct, frozen=True):
    """The place of heavy content, its decoded size in bytes, and the size from which it is too heavy there."""

    site: str
    size_bytes: int
    threshold: int


def find_leak(
    messages: Sequence[ChatMessage], threshold: int, inline_limit: int, *, where: Iterable[int] | None = None
) -> Leak | None:
    """Return the first text of `threshold` bytes or more, or data URL of `inline_limit` or more; None without one.

    `where` are the indices of the only messages that may have one, where the caller knows them.
    """
    for index in range(len(messages)) if where is None else where:
        content = messages[index].content
        if content.text is not None:
            size = utf8_size(content.text)
            if size >= threshold:
                return Leak(f"Messages[{index}].Content.Text", size, threshold)
        elif content.parts:
            leak = _in_parts(content.parts, index, threshold, inline_limit)
            if leak is not None:
                return leak
    return None


def _in_parts(parts: Sequence[Part], index: int, threshold: int, inline_limit: int) -> Leak | None:
    for at, part in enumerate(parts):
        site = f"Messages[{index}].Parts[{at}]"
        if isinstance(part, TextPart):
            size = utf8_size(part.text)
            if size >= threshold:
                return Leak(f"{site}.Text", size, threshold)
        elif part.data_url:
            size = parse_data_url(part.data_url).size
            if size >= inline_limit:
                return Leak(f"{site}.{_FIELDS[type(part)]}.DataURL", size, inline_limit)
    return None
