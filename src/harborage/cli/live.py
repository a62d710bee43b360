"""Where lines go: a terminal with a changing region at its bottom, a plain stream, or nowhere.

Knows how to draw and nothing about runs; what is drawn is made by `view`, `questions` and `region`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

if TYPE_CHECKING:
    from harborage.cli.outlet import Outlet

__all__ = ["LiveScreen", "PlainScreen", "Region", "Screen"]

Region = Callable[[int], Sequence[Text]]
"""The changing lines for a screen of so many columns."""

_PATIENCE_S = 1.0


class Screen(Protocol):
    """Where a session shows itself."""

    @property
    def width(self) -> int:
        """How many columns a line has."""
        ...

    def show(self, lines: Sequence[Text], *, is_urgent: bool = False) -> None:
        """Write lines for good; urgent ones are for somebody who wants to see nothing else."""
        ...

    def refresh(self) -> None:
        """Draw what changes again."""
        ...

    def suspended(self) -> AbstractContextManager[None]:
        """Leave the terminal to another program for the length of a block."""
        ...

    def close(self) -> None:
        """Take away what changes; what was written stays."""
        ...


class LiveScreen:
    """A terminal: lines scroll by, the region stays below them. What others print meanwhile goes above it too.

    While `outlet` is behind, because nobody reads, the region is not drawn and lines wait; none of them is lost.
    """

    def __init__(self, console: Console, region: Region, outlet: Outlet | None = None) -> None:
        self._console = console
        self._region = region
        self._outlet = outlet
        self._waiting: list[Text] = []
        self._live: Live | None = self._open()

    @property
    def width(self) -> int:
        return self._console.width

    def show(self, lines: Sequence[Text], *, is_urgent: bool = False) -> None:
        self._waiting.extend(lines)
        if not self._is_behind:
            self._write()

    def refresh(self) -> None:
        if not self._is_behind:
            self._write()
            if self._live is not None:
                self._live.refresh()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        self.close()
        if self._outlet is not None:
            self._outlet.drain(_PATIENCE_S)
        try:
            yield
        finally:
            self._live = self._open()

    def close(self) -> None:
        self._write()
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    @property
    def _is_behind(self) -> bool:
        # Closed, it has no region that would be drawn with each line.
        return self._live is not None and self._outlet is not None and self._outlet.is_behind

    def _write(self) -> None:
        lines, self._waiting = self._waiting, []
        for text in lines:
            # Printing forgets how a text wants to be wrapped, unless it is told again.
            self._console.print(text, no_wrap=text.no_wrap, overflow=text.overflow)

    def _open(self) -> Live:
        live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            get_renderable=lambda: Group(*self._region(self._console.width)),
        )
        live.start(refresh=True)
        return live


class PlainScreen:
    """A stream without a region. A quiet one writes what is urgent, nothing else."""

    def __init__(self, console: Console, *, is_quiet: bool = False) -> None:
        self._console = console
        self._is_quiet = is_quiet

    @property
    def width(self) -> int:
        return self._console.width

    def show(self, lines: Sequence[Text], *, is_urgent: bool = False) -> None:
        if is_urgent or not self._is_quiet:
            for text in lines:
                self._console.print(text, soft_wrap=True)

    def refresh(self) -> None:
        return

    def suspended(self) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None:
        return
