"""What every layer of the chain has in common: a client inside, the configuration, and an end.

Closing lives here once. A layer holds nothing of a call: hundreds of them may be in it at the same time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.llm.errors import ClientClosedError, InvalidConfigError

if TYPE_CHECKING:
    from harborage.llm.client import CompleteRequest, CompleteResponse, LLMClient
    from harborage.llm.config import ConfigSnapshot, Deps

__all__ = ["Layer"]


class Layer:
    """An `LLMClient` around another one; a subclass adds to a call in its `complete`.

    Closing it closes the client inside, once, however often and by however many it is asked.

    Raises:
        InvalidConfigError: there is no client inside.
    """

    def __init__(self, inner: LLMClient, cfg: ConfigSnapshot, deps: Deps) -> None:
        if inner is None:
            raise InvalidConfigError(f"llm: {type(self).__name__} needs a client to stand around, not None")
        self._inner = inner
        self._cfg = cfg
        self._deps = deps
        self._is_closed = False

    @property
    def inner(self) -> LLMClient:
        """The client inside."""
        return self._inner

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        """The answer of the client inside, with what this layer adds. Never: changes `request` or keeps anything of it.

        Raises:
            ClientClosedError: the layer is closed; nothing else is looked at before.
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
        """What every `complete` begins with.

        Raises:
            ClientClosedError: the layer is closed.
        """
        if self._is_closed:
            raise ClientClosedError()
