"""Writing to a pipe without a reader."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import TextIO

import pytest
from rich.console import Console
from rich.text import Text

from harborage.cli.output import BackgroundStream
from harborage.cli.screen import LiveScreen

DEADLINE_S = 60.0


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    """The end to read from, and the stream to write to."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        yield reader, stream
    os.close(reader)


def read(reader: int, size: int) -> bytes:
    """So many bytes."""
    data = b""
    while len(data) < size:
        data += os.read(reader, size - len(data))
    return data


def test_nothing_waits_for_a_reader(pipe: tuple[int, TextIO]) -> None:
    """More is taken than the pipe holds; a late reader gets all of it in order."""
    reader, stream = pipe
    outlet = BackgroundStream(stream)
    lines = [f"{number} é\n" for number in range(50_000)]
    for line in lines:
        assert outlet.write(line) == len(line)
    assert outlet.is_behind
    assert not outlet.drain(0)
    wanted = "".join(lines).encode()
    assert read(reader, len(wanted)) == wanted
    assert outlet.drain(DEADLINE_S)
    assert not outlet.is_behind


def test_a_closed_pipe_is_raised_to_the_writer() -> None:
    """The next write raises what the last one met; nothing waits to be written any more."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        outlet = BackgroundStream(stream)
        outlet.write("x")
        assert outlet.drain(DEADLINE_S)
        with pytest.raises(BrokenPipeError):
            outlet.write("y")
        assert outlet.drain(0)


def test_it_looks_like_the_stream_beneath(pipe: tuple[int, TextIO]) -> None:
    """A console asks what it writes to; what is no file cannot be written to by a thread."""
    _, stream = pipe
    outlet = BackgroundStream(stream)
    assert (outlet.fileno(), outlet.encoding) == (stream.fileno(), "utf-8")
    assert (outlet.isatty(), outlet.writable()) == (False, True)
    with pytest.raises(io.UnsupportedOperation):
        BackgroundStream(io.StringIO())


def test_an_unread_screen_keeps_its_lines_and_drops_its_region(pipe: tuple[int, TextIO]) -> None:
    """What is written meanwhile comes when the reader continues, with one region instead of thousands."""
    reader, stream = pipe
    outlet = BackgroundStream(stream)
    console = Console(file=outlet, force_terminal=True, width=60, height=10, color_system=None)  # type: ignore[arg-type]
    drawn = 0

    def region(width: int) -> list[Text]:
        nonlocal drawn
        drawn += 1
        return [Text(f"region {drawn}")]

    screen = LiveScreen(console, region, outlet)
    for number in range(5_000):
        screen.show([Text(f"line {number}.")])
        screen.refresh()
    assert outlet.is_behind
    assert drawn < 5_000
    screen.close()
    outlet.write("the end")
    text = b""
    while b"the end" not in text:
        text += os.read(reader, 65536)
    assert outlet.drain(DEADLINE_S)
    places = [text.find(f"line {number}.".encode()) for number in range(5_000)]
    assert places[0] >= 0
    assert places == sorted(places)
