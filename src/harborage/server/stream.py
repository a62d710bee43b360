"""`GET /v1/events`: the events of a session, or for an admin of all, as a stream of server-sent events.

One subscription, one queue and two tasks a connection: one sends, one watches for the peer to go. The subscription is
opened before anything is read from the log, so that nothing is lost between the two; what comes twice is sent once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from harborage.concurrency import CancelScope, Crew
from harborage.errors import HarborageError, error_reason
from harborage.events import (
    AdminActionPayload,
    BusClosedError,
    Event,
    EventType,
    Filter,
    IdentityScopeRequiredError,
    SubscriberLimitReachedError,
    Triple,
)
from harborage.events.wire import KEEPALIVE_FRAME, comment_frame, numbered_frame, retry_frame
from harborage.protocol.errors import Code, ProtocolError
from harborage.protocol.methods import TokenScope
from harborage.runtime.durable.engine import RuntimeClosedError
from harborage.server.event_log import EventLog, Wanted, open_log
from harborage.server.http import refusal
from harborage.server.stream_queue import StreamQueue
from harborage.store import EVENT_STEP

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from harborage.events import Subscription
    from harborage.server.auth.gate import Gate
    from harborage.server.services import Caller, Services

RETRY_MS: Final = 3_000
"""How long clients wait before they connect again, in milliseconds."""

_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]
_DEFAULT_KEEPALIVE_S: Final = 15.0
_LEAST_KEEPALIVE_S: Final = 0.001
_READ_AGAIN_S: Final = 1.0
_KEPT_FRAMES: Final = 256
_LARGEST: Final = 2**63 - 1


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a request asks for. `cursor` is the number behind which it begins, None to begin with what comes now."""

    types: tuple[str, ...] = ()
    run: str = ""
    children: bool = False
    is_admin: bool = False
    cursor: int | None = None


def read_asked(request: Request) -> Asked:
    """Return what the headers and the query of a request ask for; they add up, and a header wins over the query."""
    headers, query = request.headers, request.query_params
    types = [*headers.getlist("x-harbor-event-type"), *query.getlist("type")]
    cursor = headers.get("last-event-id", "").strip()
    return Asked(
        types=tuple(dict.fromkeys(one.strip() for one in types if one.strip())),
        run=headers.get("x-harbor-run", "").strip() or query.get("run", "").strip(),
        children=query.get("children") == "1",
        is_admin=query.get("admin") == "1",
        cursor=_number(cursor or query.get("after", "").strip()),
    )


def _number(text: str) -> int | None:
    """Return the number that a cursor spells, None for anything else."""
    if not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0") or "0"
    return int(digits) if len(digits) < len(str(_LARGEST)) else _LARGEST


class Streams:
    """Serves the streams of a server; an ASGI application for its one path."""

    def __init__(self, services: Services, gate: Gate) -> None:
        self._services = services
        self._gate = gate
        self._open: set[_Stream] = set()
        self._frames = _Frames(services)
        self._is_draining = False

    def __len__(self) -> int:
        """How many streams are open."""
        return len(self._open)

    def drain(self) -> None:
        """End every stream behind the frame that it is sending; one that is opened later ends with its first frame.

        The clients connect again after a while, to the server's successor.
        """
        self._is_draining = True
        for stream in self._open:
            stream.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method != "GET":
            await PlainTextResponse("Method Not Allowed", 405, {"allow": "GET"})(scope, receive, send)
            return
        try:
            stream = await self._opened(request)
        except ProtocolError as error:
            await refusal(error)(scope, receive, send)
            return
        except Exception as error:
            self._services.logger.error("a stream of events did not open: %s", type(error).__name__, exc_info=error)
            failed = ProtocolError(Code.RUNTIME_ERROR, "the server failed; its log says why")
            await refusal(failed)(scope, receive, send)
            return
        self._open.add(stream)
        try:
            await stream.serve(receive, send)
        finally:
            self._open.discard(stream)

    async def _opened(self, request: Request) -> _Stream:
        """Return the stream of a request, with its subscription open.

        Raises:
            ProtocolError: why it is refused; the first check that fails.
        """
        caller = await self._gate.verify(request, allows_query=True)
        asked = read_asked(request)
        if asked.is_admin and not caller.has(TokenScope.ADMIN, TokenScope.CONSOLE_FLEET):
            raise ProtocolError(
                Code.IDENTITY_SCOPE_REQUIRED, "admin=1 needs a token with the scope admin or console:fleet"
            )
        subscription = self._subscribed(caller, asked)
        try:
            stream = _Stream(self._services, self._frames, subscription, asked)
            if asked.is_admin:
                await self._audit(caller)
        except BaseException:
            subscription.cancel()
            raise
        if self._is_draining:
            stream.end()
        return stream

    def _subscribed(self, caller: Caller, asked: Asked) -> Subscription:
        """Subscribe to all that the caller may see; the queue leaves out what was not asked for."""
        who = caller.who
        mine = Filter(who.tenant_id, who.user_id, who.session_id, admin=asked.is_admin)
        try:
            return self._services.parts.bus.subscribe(mine)
        except IdentityScopeRequiredError as error:
            raise ProtocolError(Code.IDENTITY_SCOPE_REQUIRED, str(error)) from error
        except SubscriberLimitReachedError as error:
            raise ProtocolError(Code.RUNTIME_ERROR, str(error), status=429) from error
        except (BusClosedError, RuntimeClosedError) as error:
            raise ProtocolError(Code.RUNTIME_ERROR, "the server is stopping", status=503) from error

    async def _audit(self, caller: Caller) -> None:
        payload = AdminActionPayload(Triple.of(caller.who), "events.subscribe")
        event = Event(EventType.AUDIT_ADMIN_SCOPE_USED, caller.who.with_run(""), payload)
        await self._services.parts.bus.publish(event)


class _Frames:
    """The frames of the latest stored events, which every connection sends alike."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._kept: OrderedDict[int, bytes] = OrderedDict()

    def frame(self, number: int, event: Event) -> bytes:
        """Return the frame of an event; empty, and logged, for one that cannot be encoded."""
        if frame := self._kept.get(number):
            return frame
        try:
            frame = numbered_frame(event, number)
        except HarborageError as error:
            self._services.logger.error("events: %s cannot be sent: %s", event.type, error)
            return b""
        # A notice is of one connection, although it may have the number of an event.
        if number % EVENT_STEP == 0 and event.type != EventType.BUS_DROPPED:
            self._kept[number] = frame
            if len(self._kept) > _KEPT_FRAMES:
                self._kept.popitem(last=False)
        return frame


class _Stream:
    """One connection."""

    def __init__(self, services: Services, frames: _Frames, subscription: Subscription, asked: Asked) -> None:
        self._services = services
        self._frames = frames
        self._clock = services.clock
        self._subscription = subscription
        self._filter = subscription.filter
        self._cursor = asked.cursor
        self._wanted = Wanted(asked.types, "" if asked.is_admin else asked.run, children=asked.children)
        self._log: EventLog = open_log(services.parts.bus, subscription.filter, self._wanted)
        self._queue = StreamQueue(self._wanted, self._log.number_of, subscription.id)
        self._wake = asyncio.Event()
        self._is_ending = False
        keepalive = services.options.keepalive
        self._keepalive = max(keepalive, _LEAST_KEEPALIVE_S) if keepalive > 0 else _DEFAULT_KEEPALIVE_S
        self._keepalive_at = 0.0
        subscription.divert(self._take, self._wake.set)

    def end(self) -> None:
        """End the stream behind the frame that is being sent."""
        self._is_ending = True
        self._wake.set()

    async def serve(self, receive: Receive, send: Send) -> None:
        """Send the stream until its peer goes, the bus closes or `end` is called."""
        crew = Crew(lambda name, error: self._services.logger.error("%s: %s", name, error_reason(error)))
        sending = CancelScope()
        try:
            with sending:
                crew.start(self._watch(receive, sending), "a stream of events")
                await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
                await self._send_all(send)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except OSError as error:
            self._services.logger.debug("a stream of events broke: %s", error)
        finally:
            self._subscription.cancel()
            await crew.aclose()

    async def _watch(self, receive: Receive, sending: CancelScope) -> None:
        """Free the slot of the session the moment the peer goes."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._subscription.cancel()
        sending.cancel()

    def _take(self, event: Event) -> None:
        self._queue.offer(event)
        self._wake.set()

    async def _send_all(self, send: Send) -> None:
        self._keepalive_at = self._clock.monotonic() + self._keepalive
        await self._begin(send)
        while not self._is_ending:
            self._wake.clear()
            found, wait = self._queue.take(self._clock.monotonic(), self._clock.now)
            if found:
                await self._send(send, b"".join(self._frames.frame(*one) for one in found))
            elif self._subscription.is_closed:
                return
            elif self._queue.is_behind:
                await self._read_on(send)
            else:
                await self._pause(send, wait)

    async def _begin(self, send: Send) -> None:
        """Send the first frame, whose id is where the stream begins; wait for a store that does not answer."""
        cursor, is_first = self._cursor, True
        while not (self._is_ending or self._subscription.is_closed):
            try:
                await self._wanted.load(self._services.parts.store, self._filter.identity.identity)
                start = await self._log.start(cursor)
            except (HarborageError, OSError) as error:
                self._services.logger.warning("a stream of events waits for the store: %s", error_reason(error))
                if is_first:
                    await self._send(send, _first_frame(cursor))
                    is_first = False
                await self._wait_for_store(send)
                continue
            is_resumed = cursor is not None and not start.gap
            # A cursor that may be a delta's number stands; one that no event can have had is the newest.
            at = cursor if cursor is not None and is_resumed and cursor < start.newest + EVENT_STEP else start.newest
            self._queue.start(at, start.newest)
            gap = comment_frame(f"stream.replay_unavailable {start.gap}") if start.gap else b""
            await self._send(send, (_first_frame(at) if is_first else b"id: %d\n\n" % at) + gap)
            return
        if is_first:
            await self._send(send, _first_frame(cursor))

    async def _read_on(self, send: Send) -> None:
        """Read the next page of the log."""
        after, upto = self._queue.next_read()
        try:
            self._queue.fill(await self._log.read(after, upto))
        except (HarborageError, OSError) as error:
            self._services.logger.warning("a stream of events cannot be read on: %s", error_reason(error))
            await self._wait_for_store(send)
        await asyncio.sleep(0)  # a store in memory answers without ever letting others go on

    async def _wait_for_store(self, send: Send) -> None:
        until = self._clock.monotonic() + _READ_AGAIN_S
        while not (self._is_ending or self._subscription.is_closed):
            left = until - self._clock.monotonic()
            if left <= 0:
                return
            self._wake.clear()
            await self._pause(send, left)

    async def _pause(self, send: Send, seconds: float | None) -> None:
        """Wait for the next event, for so long at most; a stream that stays silent is kept alive."""
        left = self._keepalive_at - self._clock.monotonic()
        if left <= 0:
            await self._send(send, KEEPALIVE_FRAME)
            return
        timer = self._clock.call_later(left if seconds is None else min(left, seconds), self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    async def _send(self, send: Send, frames: bytes) -> None:
        if frames:
            await send({"type": "http.response.body", "body": frames, "more_body": True})
            self._keepalive_at = self._clock.monotonic() + self._keepalive


def _first_frame(number: int | None) -> bytes:
    retry = retry_frame(RETRY_MS)
    return retry if number is None else retry.rstrip(b"\n") + b"\nid: %d\n\n" % number
