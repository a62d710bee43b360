"""The screen of a session: lines that scroll by, and in a terminal a live region at the bottom."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.text import Text

from harborage.cli.painter import Painter

if TYPE_CHECKING:
    from harborage.cli.output import BackgroundStream

Region = Callable[[int], Sequence[Text]]
"""Renders the live region for a width in columns."""

_DRAIN_S = 1.0
_FRAME_S = 0.05


class Screen(Protocol):
    """Where a session is shown."""

    @property
    def width(self) -> int:
        """The width of a line in columns."""
        ...

    @property
    def height(self) -> int:
        """How many rows can be drawn again; 0 where none can."""
        ...

    def show(self, lines: Sequence[Text], *, is_urgent: bool = False) -> None:
        """Write lines that stay; urgent ones are written even on a quiet screen."""
        ...

    def refresh(self) -> None:
        """Draw the live region again."""
        ...

    def redraw(self) -> None:
        """Draw the whole live region anew, as after another program has written over it."""
        ...

    def suspended(self) -> AbstractContextManager[None]:
        """Lend the terminal to another program inside a block."""
        ...

    def close(self) -> None:
        """Remove the live region; the lines above it stay."""
        ...


class LiveScreen:
    """A terminal: lines scroll by, the live region stays below them and below what tools print.

    While `stream` is behind, because the terminal is not read, the region is not drawn and lines wait; none is lost.
    At most one frame is drawn in `frame_s` seconds. `translate` changes what is written, for terminals without glyphs.
    """

    def __init__(
        self,
        console: Console,
        region: Region,
        stream: BackgroundStream | None = None,
        *,
        translate: Callable[[str], str] = str,
        frame_s: float = _FRAME_S,
    ) -> None:
        self._console = console
        self._region = region
        self._stream = stream
        self._translate = translate
        self._frame_s = frame_s
        self._waiting: list[Text] = []
        self._drawn_at = 0.0
        self._next_frame: asyncio.TimerHandle | None = None
        self._painter: Painter | None = self._open()

    @property
    def width(self) -> int:
        return self._console.width

    @property
    def height(self) -> int:
        return self._console.height

    def show(self, lines: Sequence[Text], *, is_urgent: bool = False) -> None:
        self._waiting.extend(lines)
        if not self._is_behind:
            self._write()

    def refresh(self) -> None:
        """Draw the region again; what comes too soon after the last frame is drawn with the next one."""
        if self._is_behind or self._next_frame is not None:
            return
        early = self._drawn_at + self._frame_s - monotonic()
        if early > 0 and (loop := _running_loop()) is not None:
            self._next_frame = loop.call_later(early, self._draw)
        else:
            self._draw()

    def _draw(self) -> None:
        self._next_frame = None
        self._drawn_at = monotonic()
        self._write()
        if self._painter is not None:
            self._painter.paint()

    def redraw(self) -> None:
        if self._painter is not None:
            self._painter.paint(is_whole=True)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        self.close()
        if self._stream is not None:
            self._stream.drain(_DRAIN_S)
        try:
            yield
        finally:
            self._painter = self._open()

    def close(self) -> None:
        if self._next_frame is not None:
            self._next_frame.cancel()
            self._next_frame = None
        self._write()
        painter, self._painter = self._painter, None
        if painter is not None:
            painter.close()

    @property
    def _is_behind(self) -> bool:
        # A closed screen draws no region, so its lines need not wait.
        return self._painter is not None and self._stream is not None and self._stream.is_behind

    def _write(self) -> None:
        lines, self._waiting = self._waiting, []
        if lines:
            (self._painter or self._last).print(lines)

    def _open(self) -> Painter:
        self._last = Painter(self._console, self._region, self._translate)
        return self._last


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class PlainScreen:
    """A stream without a live region. A quiet one writes urgent lines only."""

    def __init__(self, console: Console, *, is_quiet: bool = False) -> None:
        self._console = console
        self._is_quiet = is_quiet

    @property
    def width(self) -> int:
        return self._console.width

    @property
    def height(self) -> int:
        return 0

    def show(self, lines: Sequence[Text], *, is_urgent: bool = False) -> None:
        if is_urgent or not self._is_quiet:
            for text in lines:
                self._console.print(text, soft_wrap=True)

    def refresh(self) -> None:
        return

    def redraw(self) -> None:
        return

    def suspended(self) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None:
        return
