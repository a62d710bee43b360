"""Waiting for a provider with an end to it: every piece of an answer has its own time limit, on the runtime's clock.

Nothing here knows a provider. A limit that passes cancels the read, which closes the connection underneath.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from harborage.clock import SharedTimers
from harborage.concurrency import CancelScope
from harborage.llm.errors import ProviderTimeoutError

if TYPE_CHECKING:
    from harborage.llm.config import Deps, TransportPolicy

__all__ = ["Paced", "Waits"]

T = TypeVar("T")


class Waits:
    """The time limits of one client, shared by all its calls; `first_s` and `idle_s` are seconds."""

    __slots__ = ("_provider", "_timers", "first_s", "idle_s")

    def __init__(self, transport: TransportPolicy, deps: Deps, *, provider: str) -> None:
        self._timers = SharedTimers(deps.clock)
        self._provider = provider
        self.first_s = transport.first_byte_timeout_s
        self.idle_s = transport.idle_timeout_s

    def scope(self, seconds: float) -> CancelScope:
        """A block that is interrupted after `seconds`."""
        return CancelScope(self._timers, seconds)

    def too_late(self, what: str, seconds: float, model: str) -> ProviderTimeoutError:
        """The error for a limit that has passed."""
        return ProviderTimeoutError(
            f"{self._provider}: {what} did not come within {seconds:g} s", provider=self._provider, model=model
        )

    async def first(self, answer: Awaitable[T], model: str) -> T:
        """What `answer` gives, which is where the provider begins to answer.

        Raises:
            ProviderTimeoutError: it did not begin in time.
        """
        with self.scope(self.first_s):
            return await answer
        raise self.too_late("an answer", self.first_s, model)


class Paced(Generic[T]):
    """The items of `source`, each of them waited for no longer than the provider may be silent.

    Raises:
        ProviderTimeoutError: the next item did not come in time; the source is finished then.
    """

    __slots__ = ("_model", "_scope", "_source", "_waits")

    def __init__(self, source: AsyncIterator[T], waits: Waits, model: str) -> None:
        self._source = source
        self._waits = waits
        self._model = model
        self._scope = waits.scope(waits.idle_s)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        with self._scope.renew():
            return await self._source.__anext__()
        raise self._waits.too_late("the next piece of the answer", self._waits.idle_s, self._model)
