"""Server-sent events out of bytes that the network cut anywhere. Pure."""

from __future__ import annotations

__all__ = ["EventSplitter"]

_DATA = b"data: "


class EventSplitter:
    """Takes bytes as they come and gives the data of each event that has become whole.

    Comments, event names and ids are left out: in this protocol everything is in the data.
    """

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def __len__(self) -> int:
        """How many bytes wait for their event's end."""
        return len(self._rest)

    def feed(self, piece: bytes) -> list[bytes]:
        """The events that `piece` completes, in order."""
        text = self._rest + piece if self._rest else piece
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n")
        *events, self._rest = text.split(b"\n\n")
        # Most events are one line of data; the others are worth a closer look.
        return [
            event[6:] if event.startswith(_DATA) and b"\n" not in event else _data(event) for event in events if event
        ]

    def rest(self) -> bytes:
        """The data of the last event, where the body ended without its blank line; empty when there is none."""
        rest, self._rest = self._rest, b""
        return _data(rest)


def _data(event: bytes) -> bytes:
    """The data lines of an event, joined; empty for a comment."""
    lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines)
