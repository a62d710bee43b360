"""HTTP as the drivers use it: connections, a time limit for every piece of an answer, and server-sent events.

Nothing here knows a provider. A limit that passes cancels the read, which closes the connection underneath.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar
from urllib.parse import urlsplit

from harborage.clock import SharedTimers
from harborage.concurrency import CancelScope
from harborage.llm.errors import ProviderTimeoutError

if TYPE_CHECKING:
    import httpx2

    from harborage.llm.config import Deps, TransportPolicy

T = TypeVar("T")

_LONGEST_DRAIN_S: Final = 0.1
_LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_KEPT_ALIVE: Final = 64
_KEPT_ALIVE_S: Final = 60.0


def open_connections(base_url: str, *, connect_timeout_s: float) -> httpx2.AsyncClient:
    """Return connections to a server: as many as there are calls, some of them kept for later.

    They have no time limit but for connecting: `Timeouts` limits the answer, on the runtime's clock.
    """
    import httpx2

    # Reading the system's certificates takes longer than a whole call to a server that needs none of them.
    verify = not base_url.startswith("http://")
    # A proxy that the environment names cannot reach a server on this machine.
    is_local = urlsplit(base_url).hostname in _LOCAL_HOSTS
    return httpx2.AsyncClient(
        timeout=httpx2.Timeout(None, connect=connect_timeout_s),
        limits=httpx2.Limits(
            max_connections=None, max_keepalive_connections=_KEPT_ALIVE, keepalive_expiry=_KEPT_ALIVE_S
        ),
        verify=verify,
        trust_env=not is_local,
    )


class Timeouts:
    """The time limits of one client, shared by all its calls; `first_s` and `idle_s` are seconds."""

    __slots__ = ("_provider", "_timers", "first_s", "idle_s")

    def __init__(self, transport: TransportPolicy, deps: Deps, *, provider: str) -> None:
        self._timers = SharedTimers(deps.clock)
        self._provider = provider
        self.first_s = transport.first_byte_timeout_s
        self.idle_s = transport.idle_timeout_s

    def scope(self, seconds: float) -> CancelScope:
        """Return a block that is interrupted after `seconds`."""
        return CancelScope(self._timers, seconds)

    def expired(self, what: str, seconds: float, model: str) -> ProviderTimeoutError:
        """Return the error for a limit that has passed."""
        return ProviderTimeoutError(
            f"{self._provider}: {what} did not come within {seconds:g} s", provider=self._provider, model=model
        )

    async def wait_first(self, answer: Awaitable[T], model: str) -> T:
        """Return the result of `answer`, with which the provider begins to answer.

        Raises:
            ProviderTimeoutError: it did not begin in time.
        """
        with self.scope(self.first_s):
            return await answer
        raise self.expired("an answer", self.first_s, model)

    async def timed_body(self, body: AsyncIterator[bytes], model: str) -> AsyncGenerator[bytes, None]:
        """Yield the pieces of a body: the first within `first_s`, each other within `idle_s` after the one before.

        Raises:
            ProviderTimeoutError: a piece did not come in time.
        """
        yield await self.wait_first(anext(body, b""), model)
        async for piece in Timed(body, self, model):
            yield piece

    async def drain(self, body: AsyncIterator[bytes]) -> None:
        """Read the rest of a body, so that its connection can be used again; give up on a body that goes on."""
        import httpx2

        with suppress(httpx2.HTTPError, httpx2.StreamError), self.scope(_LONGEST_DRAIN_S):
            async for _ in body:
                pass


class Timed(Generic[T]):
    """The items of `source`, each of which must come within the idle limit.

    Raises:
        ProviderTimeoutError: the next item did not come in time; the source is finished then.
    """

    __slots__ = ("_model", "_scope", "_source", "_timeouts")

    def __init__(self, source: AsyncIterator[T], timeouts: Timeouts, model: str) -> None:
        self._source = source
        self._timeouts = timeouts
        self._model = model
        self._scope = timeouts.scope(timeouts.idle_s)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        with self._scope.renew():
            return await self._source.__anext__()
        raise self._timeouts.expired("the next piece of the answer", self._timeouts.idle_s, self._model)


_DATA: Final = b"data: "


class EventSplitter:
    """Splits server-sent events out of bytes that the network cut anywhere; gives the data of each whole event.

    Comments, event names and ids are left out: everything that matters here is in the data.
    """

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def __len__(self) -> int:
        """The number of bytes that wait for the end of their event."""
        return len(self._rest)

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the events that `piece` completes, in order."""
        text = self._rest + piece if self._rest else piece
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n")
        *events, self._rest = text.split(b"\n\n")
        # Most events are one line of data; the others are worth a closer look.
        return [
            event[6:] if event.startswith(_DATA) and b"\n" not in event else _data(event) for event in events if event
        ]

    def rest(self) -> bytes:
        """Return the data of the last event, where the body ended without its blank line; empty without one."""
        rest, self._rest = self._rest, b""
        return _data(rest)


def _data(event: bytes) -> bytes:
    """Return the data lines of an event, joined; empty for a comment."""
    lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines)
