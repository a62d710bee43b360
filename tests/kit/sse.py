"""A client of the event stream: it reads frame by frame, as a browser's EventSource does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from tests.kit.wire import ADA, WITHIN_S, Reader, Wire, caller_headers

if TYPE_CHECKING:
    from harborage.identity import Identity


class Frame(msgspec.Struct, frozen=True):
    """One frame. `id` is None where it has none; `data` is the decoded JSON, `raw` its bytes."""

    event: str = ""
    id: int | None = None
    retry: int | None = None
    comment: str = ""
    raw: bytes = b""

    @property
    def data(self) -> Any:
        """What the frame carries."""
        return msgspec.json.decode(self.raw)

    @property
    def payload(self) -> Any:
        """The payload of its event."""
        return self.data["payload"]

    @property
    def sequence(self) -> int:
        """The number of its event."""
        return int(self.data["sequence"])


def parse_frame(text: bytes) -> Frame:
    """Return the frame that its lines spell."""
    found: dict[str, Any] = {}
    for line in text.split(b"\n"):
        name, _, value = line.partition(b": ")
        match name:
            case b"":
                found["comment"] = value.decode()
            case b"data":
                found["raw"] = found.get("raw", b"") + value
            case b"id" | b"retry":
                found[name.decode()] = int(value)
            case b"event":
                found["event"] = value.decode()
            case _:
                raise AssertionError(f"no line of a stream: {line!r}")
    return Frame(**found)


class Page:
    """An open stream. `first` is its first frame, `ids` are those of all frames so far, `last_id` the latest."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.first = Frame()
        self.ids: list[int] = []
        self.last_id: int | None = None
        self._rest = b""
        self._waiting: list[Frame] = []

    async def frame(self) -> Frame | None:
        """Return the next frame of any kind; None at the end of the stream, which is behind a whole frame."""
        while not self._waiting:
            part = await self.reader.part()
            if part is None:
                assert not self._rest, f"half a frame at the end: {self._rest!r}"
                return None
            *whole, self._rest = (self._rest + part).split(b"\n\n")
            self._waiting = [parse_frame(one) for one in whole]
        frame = self._waiting.pop(0)
        if frame.id is not None:
            self.last_id = frame.id
            if frame.event:
                self.ids.append(frame.id)
        return frame

    async def event(self) -> Frame:
        """Return the next frame that carries an event."""
        while True:
            frame = await self.frame()
            assert frame is not None, "the stream has ended"
            if frame.event:
                return frame

    async def events(self, count: int) -> list[Frame]:
        """Return so many of them."""
        return [await self.event() for _ in range(count)]

    async def until(self, event: str, **payload: Any) -> list[Frame]:
        """Return the events up to the first of this type whose payload has these values."""
        found = []
        async with asyncio.timeout(WITHIN_S):
            while True:
                found.append(frame := await self.event())
                if frame.event == event and payload.items() <= frame.data.get("payload", {}).items():
                    return found

    async def is_silent(self) -> bool:
        """Return whether nothing comes while the other tasks have their turns."""
        for _ in range(50):
            await asyncio.sleep(0)
        return not self._waiting and self.reader.is_empty


@asynccontextmanager
async def open_page(
    wire: Wire,
    query: str = "",
    *,
    who: Identity = ADA,
    scopes: tuple[str, ...] = (),
    headers: Mapping[str, str] = {},
    last_id: int | str | None = None,
) -> AsyncIterator[Page]:
    """Open a stream and read its first frame; leaving disconnects."""
    sent = {**caller_headers(who, *scopes), **headers}
    if last_id is not None:
        sent["last-event-id"] = str(last_id)
    async with wire.open("GET", f"/v1/events{query}", sent) as reader:
        assert reader.status == 200, (reader.status, await reader.part())
        page = Page(reader)
        first = await page.frame()
        assert first is not None
        page.first = first
        yield page
