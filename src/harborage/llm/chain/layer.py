"""What the layers of the chain have in common: a client inside, the configuration, an end, and events.

A layer holds nothing of a call: hundreds of calls may be in it at the same time.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from harborage.events import Event, EventType, SafePayload
from harborage.identity import IdentityMissingError, Quadruple, effective_quadruple
from harborage.llm.errors import ClientClosedError, LLMConfigError

if TYPE_CHECKING:
    from harborage.llm.client import CompleteRequest, CompleteResponse, LLMClient
    from harborage.llm.config import ConfigSnapshot, Deps

_log = logging.getLogger(__name__)


class Layer:
    """An `LLMClient` around another one; a subclass adds to a call in its `complete`.

    Closing it closes the client inside, once, however often it is called.

    Raises:
        LLMConfigError: there is no client inside.
    """

    def __init__(self, inner: LLMClient, cfg: ConfigSnapshot, deps: Deps) -> None:
        if inner is None:
            raise LLMConfigError(f"llm: {type(self).__name__} needs a client inside, not None")
        self._inner = inner
        self._cfg = cfg
        self._deps = deps
        self._is_closed = False

    @property
    def inner(self) -> LLMClient:
        """The client inside."""
        return self._inner

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        """Return the answer of the client inside, with what this layer adds.

        Never: changes `request` or keeps anything of it.

        Raises:
            ClientClosedError: the layer is closed; this is checked first.
        """
        self._check_open()
        return await self._inner.complete(request)

    async def close(self) -> None:
        """Refuse further calls and close the client inside. Closing twice does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        await self._inner.close()

    def _check_open(self) -> None:
        """Accept an open layer; every `complete` begins with this.

        Raises:
            ClientClosedError: the layer is closed.
        """
        if self._is_closed:
            raise ClientClosedError()


def publish_event(deps: Deps, type: EventType, payload: SafePayload, *, who: Quadruple) -> None:
    """Publish one event of `who`'s call. A failure is logged and the call goes on; without a bus nothing happens."""
    if deps.bus is None:
        return
    try:
        deps.bus.publish_nowait(Event(type=type, identity=who, payload=payload))
    except Exception as error:  # noqa: BLE001 - a bus that fails must cost no caller its answer
        _log.warning("llm: event %s of run %s was not published: %s", type, who.run_id, error)


def require_caller() -> Quadruple:
    """Return the ambient identity of the call, with the run when it is known.

    Raises:
        IdentityMissingError: none is bound, or a part of it is empty.
    """
    who = effective_quadruple()
    if who is None or not (who.tenant_id and who.user_id and who.session_id):
        raise IdentityMissingError()
    return who


def caller_or_empty() -> Quadruple:
    """Return the ambient identity of the call; an empty one where none is bound."""
    who = effective_quadruple()
    return Quadruple() if who is None else who


def cut(text: str, limit: int) -> str:
    """Return `text`, or its first `limit` bytes of UTF-8 and an ellipsis; never half a character."""
    encoded = text.encode("utf-8", "replace")
    return encoded.decode() if len(encoded) <= limit else encoded[:limit].decode("utf-8", "ignore") + "…"
