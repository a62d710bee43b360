"""Markdown as a terminal shows it: wrapped by words, code in the terminal's own colours, tables whole, no boxes.

A line break of the model stays one. Colours are on code and links alone; headings and names are bold. What no terminal
reads is not rendered: its reader gets the text as it is.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any, ClassVar, Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement, TableElement
from rich.segment import Segment
from rich.style import Style
from rich.syntax import ANSISyntaxTheme, Syntax
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

PROSE_COLUMNS: Final = 100
"""No line of prose is wider; tables use the whole terminal."""

_MARKS: Final = re.compile(
    r"^ {0,3}(?:#{1,6} |[-*+] |\d+[.)] |> |```|~~~|\|)|(?<!\w)(\*{1,3}|_{1,3}|`+)(?=\S)[^\n]*?\S\1(?!\w)|\]\(",
    re.MULTILINE,
)
_THEME: Final = Theme(
    {
        "markdown.code": "bold",
        "markdown.code_block": "none",
        "markdown.h1": "bold",
        "markdown.h2": "bold",
        "markdown.h3": "bold",
        "markdown.h4": "bold",
        "markdown.h5": "bold",
        "markdown.h6": "bold",
        "markdown.block_quote": "dim",
        "markdown.item.bullet": "none",
        "markdown.item.number": "none",
        "markdown.hr": "dim",
        "markdown.link": "underline",
        "markdown.link_url": "underline",
        "markdown.table.border": "none",
        "markdown.table.header": "bold",
    }
)


def is_markdown(text: str) -> bool:
    """Whether anything in a text is marked up."""
    return _MARKS.search(text) is not None


def render_markdown(text: str, width: int, *, has_colour: bool) -> str:
    """Return a text as a terminal of so many columns shows it; its lines end with a line break.

    The text must not hold control characters. One without any markup is wrapped by words alone.
    """
    file = io.StringIO()
    console = Console(
        file=file,
        width=width,
        force_terminal=has_colour,
        color_system="standard" if has_colour else None,
        highlight=False,
        markup=False,
        emoji=False,
        theme=_THEME,
        legacy_windows=False,
    )
    console.print(_Shown(text) if is_markdown(text) else Text(text), width=min(width, PROSE_COLUMNS), crop=False)
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().rstrip("\n").split("\n"))


class _Heading(Heading):
    """A heading in bold, at the left; a line is free above it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Code(CodeBlock):
    """Code that stands in by two columns, in the four colours of the terminal; a long line goes on behind a sign."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = max(8, options.max_width - 2)
        code = Syntax("", self.lexer_name, theme=_CODE_THEME, background_color="default")
        shown = code.highlight(str(self.text).rstrip("\n"))
        lines = shown.split("\n", allow_blank=True)
        for line in lines[:-1] if not lines[-1].plain else lines:
            yield from _folded(console, line, room)


def _folded(console: Console, line: Text, room: int) -> Iterator[Any]:
    """A line of code in pieces that fit; each but the first begins with the sign of a line that goes on."""
    line.rstrip()
    rest, sign = line, "  "
    while True:
        here = room if sign == "  " else room - 2
        piece = rest[:here] if len(rest) > here else rest
        yield Segment(sign)
        yield from console.render(Text.assemble(piece, end=""))
        yield Segment.line()
        if len(rest) <= here:
            return
        rest, sign = rest[here:], "  ↪ "


class _Table(TableElement):
    """A table without lines: its columns stand two apart, its head is bold."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False)
        if self.header is not None and self.header.row is not None:
            for column in self.header.row.cells:
                table.add_column(column.content, justify=column.justify)
        if self.body is not None:
            for row in self.body.rows:
                table.add_row(*(cell.content for cell in row.cells))
        yield from console.render(table, options.update(width=console.width))


class _Shown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
        "table_open": _Table,
    }

    def __init__(self, text: str) -> None:
        super().__init__(text, hyperlinks=False)
        for token in self.parsed:
            for child in token.children or ():
                if child.type == "softbreak":
                    child.type = "hardbreak"  # a list or an address that a model writes line by line stays one


def _code_theme() -> ANSISyntaxTheme:
    """Keywords blue, strings green, numbers magenta, comments dim; everything else is ink."""
    from pygments.token import Comment, Keyword, Number, String  # type: ignore[import-untyped]

    return ANSISyntaxTheme(
        {
            Keyword: Style(color="blue"),
            String: Style(color="green"),
            Number: Style(color="magenta"),
            Comment: Style(dim=True),
        }
    )


_CODE_THEME: Final = _code_theme()
