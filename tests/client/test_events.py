"""A stream of events that is cut, silent, refused or behind: the server is a script, since faults are the subject."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from harborage.client.connection import Connection, Patience
from harborage.client.errors import RemoteUnreachableError
from harborage.client.events import EventStream, StreamOptions
from harborage.events import (
    BusDroppedPayload,
    Event,
    EventType,
    IdentityScopeRequiredError,
    TaskCompletedPayload,
    comment_frame,
    event_frame,
)
from harborage.identity import Identity
from tests.events.test_wire import AT, WHO
from tests.kit.sockets import STREAM_HEAD, WITHIN_S, answering, http

ADA = Identity("t", "u", "s")
QUICK = Patience(first_pause=0.001, longest_pause=0.01, total=2, stream_idle=0.2)


def event(number: int) -> Event:
    """An event of the log; its number is a step of the log's."""
    return Event(EventType.TASK_COMPLETED, WHO, TaskCompletedPayload(f"task-{number}"), AT, number * 4096)


def begin(number: int) -> bytes:
    """The first frame of a connection."""
    return b"retry: 3000\nid: %d\n\n" % (number * 4096)


def frames(*numbers: int) -> bytes:
    """The frames of some events."""
    return b"".join(event_frame(event(number)) for number in numbers)


class Script:
    """Answers each connection with the next part of a script, and keeps what was asked; then it holds on."""

    def __init__(self, *parts: bytes | None) -> None:
        self.parts = list(parts)
        self.asked: list[str] = []
        self.lasts: list[str] = []
        self._over = asyncio.Event()

    async def answer(self, head: str, _: bytes, writer: asyncio.StreamWriter) -> None:
        """Answer one connection; None is silence."""
        self.asked.append(head.splitlines()[0])
        ids = [line.partition(": ")[2] for line in head.splitlines() if line.lower().startswith("last-event-id")]
        self.lasts.append("".join(ids))
        part = self.parts.pop(0) if self.parts else None
        if part is not None and part.startswith(b"HTTP/"):
            writer.write(part)
            return
        writer.write(STREAM_HEAD)
        if part is not None:
            writer.write(part)
        await writer.drain()
        if part is None or not self.parts:
            await self._over.wait()

    @asynccontextmanager
    async def open(self, options: StreamOptions, patience: Patience = QUICK) -> AsyncIterator[EventStream]:
        """A stream of this server."""
        async with answering(self.answer) as url:
            connection = Connection(url, token="t.t.t", patience=patience)
            try:
                yield EventStream(connection, ADA, options)
            finally:
                await connection.aclose()
                self._over.set()


async def take(stream: EventStream, count: int) -> list[Event]:
    """The first events of a stream."""
    found: list[Event] = []
    async with asyncio.timeout(WITHIN_S), aclosing(stream.read()) as events:
        async for one in events:
            found.append(one)
            if len(found) == count:
                return found
    return found


def numbers(events: Sequence[Event]) -> list[float]:
    """The numbers of events, in steps of the log."""
    return [one.sequence / 4096 for one in events]


async def test_a_cut_stream_goes_on_after_the_last_event() -> None:
    """A connection that ends is opened again with the last number, and nothing is yielded twice."""
    script = Script(begin(1) + frames(2, 3), begin(3) + frames(3, 4), begin(4) + frames(5))
    async with script.open(StreamOptions()) as stream:
        assert numbers(await take(stream, 4)) == [2, 3, 4, 5]
    assert script.lasts == ["", str(3 * 4096), str(4 * 4096)]


async def test_a_stream_that_is_cut_before_its_first_event_goes_on_from_its_beginning() -> None:
    """The number in the first frame is where the next connection begins."""
    script = Script(begin(7), begin(7) + frames(8))
    async with script.open(StreamOptions()) as stream:
        assert numbers(await take(stream, 1)) == [8]
    assert script.lasts == ["", str(7 * 4096)]


async def test_a_frame_that_is_cut_is_read_again_whole() -> None:
    """Half a frame is none; the event comes with the next connection."""
    script = Script(begin(1) + frames(2) + frames(3)[:40], begin(2) + frames(3))
    async with script.open(StreamOptions(after=4096)) as stream:
        assert numbers(await take(stream, 2)) == [2, 3]
    assert script.lasts == ["4096", "8192"]


async def test_a_silent_stream_is_opened_again() -> None:
    """Without a sign of life the connection is given up and another one is made; a comment is one."""
    script = Script(None, begin(1) + comment_frame("keepalive") + frames(2))
    async with script.open(StreamOptions()) as stream:
        assert numbers(await take(stream, 1)) == [2]
        assert stream.reconnects == 1


async def test_what_the_server_no_longer_has_is_told_in_its_place() -> None:
    """After a gap comment a notice names the numbers that are missing, before the next event."""
    gap = comment_frame("stream.replay_unavailable reconnect cursor older than the retained window")
    script = Script(begin(1) + frames(2), begin(9) + gap + frames(10))
    async with script.open(StreamOptions()) as stream:
        found = await take(stream, 3)
    assert numbers(found) == [2, 9, 10]
    assert found[1].payload == BusDroppedPayload(2 * 4096 + 1, 9 * 4096, 7, 0)


async def test_a_notice_of_the_server_is_passed_on() -> None:
    """A `bus.dropped` event reaches the reader, and does not move the place of the next connection."""
    notice = Event(EventType.BUS_DROPPED, WHO, BusDroppedPayload(4097, 8192, 1, 3), AT, 8192)
    script = Script(begin(1) + event_frame(notice), begin(1) + frames(3))
    async with script.open(StreamOptions()) as stream:
        found = await take(stream, 2)
    assert (found[0].payload, numbers(found)) == (notice.payload, [2, 3])
    assert script.lasts == ["", "4096"]


async def test_a_log_that_begins_anew_is_followed() -> None:
    """A server whose numbers are lower than before has another log; its events are not taken for old ones."""
    script = Script(begin(90) + frames(91), begin(1) + frames(2))
    async with script.open(StreamOptions()) as stream:
        assert numbers(await take(stream, 2)) == [91, 2]


async def test_an_event_that_cannot_be_read_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    """One frame that is no event does not end the stream; the log says so."""
    script = Script(begin(1) + b"event: x\nid: 8192\ndata: {}\n\n" + frames(3))
    async with script.open(StreamOptions()) as stream:
        assert numbers(await take(stream, 1)) == [3]
    assert "cannot be read" in caplog.text


async def test_a_refusal_that_may_pass_is_tried_again() -> None:
    """A server that is starting, or has no free slot, is asked again."""
    script = Script(http(503, b'{"code":"runtime_error","message":"starting"}'), http(429, b"{}"), begin(1) + frames(2))
    async with script.open(StreamOptions()) as stream:
        assert numbers(await take(stream, 1)) == [2]


async def test_a_refusal_for_good_is_raised() -> None:
    """A stream that the caller may not read ends with the error that says so."""
    script = Script(http(403, b'{"code":"identity_scope_required","message":"admin=1 needs a scope"}'))
    async with script.open(StreamOptions(admin=True)) as stream:
        with pytest.raises(IdentityScopeRequiredError, match="needs a scope"):
            await take(stream, 1)


async def test_a_server_that_stays_away_is_an_error() -> None:
    """When no server comes back within the patience, the reader is told, with the number of attempts."""
    connection = Connection("http://127.0.0.1:9", patience=Patience(first_pause=0.01, longest_pause=0.02, total=0.2))
    stream = EventStream(connection, ADA, StreamOptions())
    with pytest.raises(RemoteUnreachableError, match="attempts"):
        await take(stream, 1)
    await connection.aclose()


async def test_the_next_server_is_asked_when_one_is_gone() -> None:
    """Of several servers over one database the stream goes on at another one, where it was."""
    one, two = Script(begin(1) + frames(2), http(503, b"{}")), Script(begin(2) + frames(3))
    async with answering(one.answer) as first, answering(two.answer) as second:
        connection = Connection([first, second], patience=QUICK)
        found = await take(EventStream(connection, ADA, StreamOptions()), 2)
        await connection.aclose()
        two._over.set()
    assert (numbers(found), two.lasts) == ([2, 3], ["8192"])


async def test_the_request_says_which_events_are_wanted() -> None:
    """Run, descendants and types travel in the query, the session in its header, the token not in the address."""
    script = Script(begin(1) + frames(2))
    options = StreamOptions(run="r 1", children=True, types=("task.completed", "x"), admin=True)
    async with script.open(options) as stream:
        await take(stream, 1)
    assert script.asked == ["GET /v1/events?type=task.completed&type=x&run=r+1&children=1&admin=1 HTTP/1.1"]


async def test_another_task_ends_a_stream_that_waits() -> None:
    """`end` wakes a reader that waits for the server, and its stream is over."""
    script = Script(None)
    async with script.open(StreamOptions(), Patience()) as stream:

        async def end() -> None:
            await stream.opened.wait()
            stream.end()

        async with asyncio.TaskGroup() as group:
            group.create_task(end())
            found: Any = await take(stream, 1)
    assert found == []
