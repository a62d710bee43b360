"""A long question: its title stays in view while all that it is about scrolls below.

It can be approved once its end was in view.

Pure, but for the place in the text, which keys move.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Final

from rich.text import Text

from harborage.cli.text import plural

LEAST_HEIGHT: Final = 12
"""On a terminal with fewer rows a question is printed as a whole, however long it is."""

_BESIDE: Final = 6
_LEAST_ROWS: Final = 3
_NARROW: Final = 80
_UP, _DOWN, _PAGE_UP, _PAGE_DOWN, _FIRST, _LAST = "up", "down", "page up", "page down", "first", "last"
_KEYS: Final = MappingProxyType(
    {
        " ": _PAGE_DOWN,
        "\x1b[6~": _PAGE_DOWN,
        "\x1b[5~": _PAGE_UP,
        "\x1b[A": _UP,
        "\x1bOA": _UP,
        "\x1b[B": _DOWN,
        "\x1bOB": _DOWN,
        "\x1b[H": _FIRST,
        "\x1bOH": _FIRST,
        "\x1b[F": _LAST,
        "\x1bOF": _LAST,
    }
)


def is_long(lines: Sequence[Text], height: int) -> bool:
    """Whether a question does not fit on a terminal of so many rows, and scrolls there."""
    return height >= LEAST_HEIGHT and len(lines) > height - _BESIDE


class Pane:
    """The text of a question that scrolls. `title` and `body` give its rows for a width in columns."""

    def __init__(self, title: Callable[[int], Sequence[Text]], body: Callable[[int], Sequence[Text]]) -> None:
        self._title = title
        self._body = body
        self._top = 0
        self._page = _LEAST_ROWS
        self._width = 0
        self._lines: list[Text] = []
        self.is_read = False

    @property
    def length(self) -> int:
        """How many lines the text has, as it was shown last."""
        return len(self._lines)

    def press(self, key: str) -> bool:
        """Scroll by a key; False for one that does not scroll."""
        move = _KEYS.get(key)
        if move is None:
            return False
        last = max(0, len(self._lines) - self._page)
        steps = {_UP: -1, _DOWN: 1, _PAGE_UP: -self._page, _PAGE_DOWN: self._page, _FIRST: -last, _LAST: last}
        self._top = min(last, max(0, self._top + steps[move]))
        return True

    def rows(self, width: int, height: int) -> list[Text]:
        """Render the title, the part of the text that is in view, and where that is."""
        if width != self._width:
            self._lines, self._width = [*self._body(width)], width
        title = [*self._title(width)]
        self._page = max(_LEAST_ROWS, height - _BESIDE - len(title))
        self._top = min(self._top, max(0, len(self._lines) - self._page))
        end = min(len(self._lines), self._top + self._page)
        self.is_read = self.is_read or end == len(self._lines)
        return [*title, *self._lines[self._top : end], self._place(end, width)]

    def _place(self, end: int, width: int) -> Text:
        more, is_narrow = len(self._lines) - end, width < _NARROW
        left = "" if self.is_read else f" · {more} more before {'y' if is_narrow else 'you can approve'}"
        keys = "Space scrolls" if is_narrow else "Space ↑ ↓ scroll"
        place = f"  lines {self._top + 1} to {end} of {len(self._lines)} · {keys}{left}"
        return Text(place, style="dim", no_wrap=True, overflow="ellipsis")

    @property
    def unread(self) -> str:
        """What to do before it can be approved; "" once its end was in view."""
        return "" if self.is_read else f"read it to its end first: Space scrolls; it has {plural(self.length, 'line')}"
