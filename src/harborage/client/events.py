"""A stream of events that comes back: it resumes where it was cut, without a gap and without a repeat.

The reader's pace is the stream's: until the next event is asked for nothing is read from the socket, and the server
goes on from its log later. In place of what the server no longer has there is a `bus.dropped` event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import msgspec

from harborage.client.connection import PASSING, Connection, reason_of
from harborage.client.errors import RemoteError, RemoteUnreachableError
from harborage.client.frames import Frame, FrameReader, FrameTooLongError, decode_wire
from harborage.concurrency import CancelScope
from harborage.errors import HarborageError
from harborage.events import BusDroppedPayload, Event, EventType, encode_wire
from harborage.identity import Identity, Quadruple
from harborage.store import EVENT_STEP

if TYPE_CHECKING:
    import httpx2

_GAP: Final = "stream.replay_unavailable"
_NOTICES: Final = "bus."
_UNAUTHORIZED: Final = 401
_log = logging.getLogger(__name__)


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which events a stream has. `run` are those of one run, with `children` also of those below it; `types` any of
    these. `admin` are those of all identities, for a token with the scope. `after` is the last number that was read: 0
    for all that the server keeps, None for what comes from now on.
    """

    run: str = ""
    children: bool = False
    types: Sequence[str] = ()
    admin: bool = False
    after: int | None = None

    @property
    def params(self) -> list[tuple[str, str]]:
        """The query of the request."""
        found = [("type", one) for one in self.types]
        if self.run:
            found += [("run", self.run), *([("children", "1")] if self.children else [])]
        return [*found, ("admin", "1")] if self.admin else found


class EventStream:
    """One reader of the events of a session; read it once. `end` ends it from another task."""

    def __init__(
        self,
        connection: Connection,
        who: Identity | None,
        options: StreamOptions,
        *,
        on_comment: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._on_comment = on_comment
        self._connection = connection
        self._who = who
        self._options = options
        # The number from which the next connection goes on; None as long as no server said one.
        self._last = options.after
        self._gap_from: int | None = None
        self._is_ended = False
        self._scope = CancelScope()
        self._failures = 0
        # Since when the reader waits for the server; None while it is busy with what came.
        self._waits_since: float | None = None
        self.reconnects = 0
        """How often the stream was opened again."""
        self.data = b""
        """The event that was yielded last, as the server spelled it."""
        self.opened = asyncio.Event()
        """Set once the server has begun to answer."""

    async def end_when_quiet(self, seconds: float) -> None:
        """End the stream once its reader has waited so long for the server, and nothing came."""
        while True:
            since, now = self._waits_since, self._connection.clock.monotonic()
            if since is not None and now - since >= seconds:
                return self.end()
            await asyncio.sleep(seconds if since is None else max(seconds - (now - since), 0.001))

    def end(self) -> None:
        """End the stream; its reader gets no further event."""
        self._is_ended = True
        self._scope.cancel()

    async def read(self) -> AsyncGenerator[Event, None]:
        """Yield the events as they come, until `end`.

        Raises:
            RemoteUnreachableError: the server did not come back in time.
            HarborageError: it refused the stream.
        """
        import httpx2

        since = self._connection.clock.monotonic()
        while not self._is_ended:
            try:
                async with aclosing(self._connect()) as events:
                    async for event in events:
                        yield event
                        since = self._connection.clock.monotonic()
                failed = RemoteUnreachableError(self._connection.url, "the stream ended", 1)
            except RemoteUnreachableError as error:
                failed = error
            except (httpx2.HTTPError, httpx2.StreamError, FrameTooLongError) as error:
                failed = RemoteUnreachableError(self._connection.url, reason_of(error), 1)
                failed.__cause__ = error
            except HarborageError as error:
                if not self._may_pass(error):
                    raise
                failed = RemoteUnreachableError(self._connection.url, str(error), 1)
                failed.__cause__ = error
            if not self._is_ended:
                since = await self._wait(failed, since)

    def _may_pass(self, error: HarborageError) -> bool:
        """Whether a refusal may be over in a moment."""
        refused = error if isinstance(error, RemoteError) else error.__cause__
        status = refused.status if isinstance(refused, RemoteError) else 0
        is_stale = status == _UNAUTHORIZED and self._connection.has_fresh_tokens and self._failures == 0
        return status in PASSING or is_stale

    async def _wait(self, failed: RemoteUnreachableError, since: float) -> float:
        """Wait before the next connection; return since when nothing came.

        Raises:
            RemoteUnreachableError: it has taken too long already.
        """
        now = self._connection.clock.monotonic()
        if self._failures == 0:
            since = now
        self._failures += 1
        self.reconnects += 1
        pause = self._connection.patience.pause(self._failures)
        if now + pause - since > self._connection.patience.total:
            why = str(failed.__cause__ or failed)
            raise RemoteUnreachableError(self._connection.url, why, self._failures) from failed
        _log.debug("events of %s: %s; again in %.1f s", self._connection.url, failed, pause)
        self._connection.turn()
        with self._scope.renew():
            if not self._is_ended:
                await asyncio.sleep(pause)
        return since

    async def _connect(self) -> AsyncGenerator[Event, None]:
        last = "" if self._last is None else str(self._last)
        async with self._connection.stream(self._options.params, who=self._who, last_event_id=last) as response:
            self.opened.set()
            async with aclosing(self._frames(response)) as frames:
                async for frame in frames:
                    for event in self._accept(frame):
                        yield event

    async def _frames(self, response: httpx2.Response) -> AsyncGenerator[Frame, None]:
        reader, pieces = FrameReader(), response.aiter_bytes()
        while not self._is_ended:
            piece: bytes | None = None
            self._waits_since = self._connection.clock.monotonic()
            with self._scope.renew():
                if not self._is_ended:
                    piece = await anext(pieces, None)
            self._waits_since = None
            if piece is None:
                return
            self._failures = 0
            for frame in reader.feed(piece):
                yield frame

    def _accept(self, frame: Frame) -> Iterator[Event]:
        """The events of the stream that one frame leads to; each number is yielded once."""
        number = _number(frame.id)
        if frame.comment:
            self._on_comment(frame.comment)
        if frame.comment.startswith(_GAP):
            # What is missing ends where the connection begins, else before the next event.
            self._gap_from = self._gap_from if self._gap_from is not None else self._last
        if not frame.data:
            if number is not None:
                self._begin(number)
            return
        try:
            event = decode_wire(frame.data)
        except msgspec.DecodeError as error:
            _log.warning("an event of %s cannot be read: %s", self._connection.url, error)
            return
        if event.type.startswith(_NOTICES):
            self.data = frame.data.encode()
            yield event
            return
        if self._last is not None and event.sequence <= self._last:
            return
        yield from self._notice_before(event)
        self._last, self.data = event.sequence, frame.data.encode()
        yield event

    def _begin(self, number: int) -> None:
        """Take the number with which a connection begins: the one it was resumed with, or the newest there is."""
        if self._last is None:
            self._last = number
        elif number > self._last:
            self._gap_from, self._last = self._last, number
        elif number // EVENT_STEP < self._last // EVENT_STEP:
            _log.warning("the events of %s begin anew: another log is there", self._connection.url)
            self._last = number

    def _notice_before(self, event: Event) -> Iterator[Event]:
        """The notice of what is missing before an event."""
        first, self._gap_from = self._gap_from, None
        if first is None:
            return
        last = max(self._last or 0, first)
        to = last if last > first else event.sequence - 1
        lost = max(to // EVENT_STEP - first // EVENT_STEP, 0)
        if lost:
            body = BusDroppedPayload(first + 1, to, lost, 0)
            who = Quadruple(event.identity.tenant_id, event.identity.user_id, event.identity.session_id)
            notice = Event(EventType.BUS_DROPPED, who, body, event.occurred_at, to)
            self.data = encode_wire(notice)
            yield notice


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 20 else None
