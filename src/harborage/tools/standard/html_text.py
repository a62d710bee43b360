"""HTML as text to read: tags gone, blocks on lines of their own, links with their addresses.

It is a reader's shortcut and no browser: nothing is laid out, hidden text is not recognised, and a `>` inside an
attribute ends its tag. In return it takes time in proportion to the page, whatever is in it, which the standard
library's parser does not.
"""

from __future__ import annotations

import html
import re
from typing import Final
from urllib.parse import urljoin

import msgspec

_TAG: Final = re.compile(r"(/?)([a-zA-Z][a-zA-Z0-9-]*)")
_HREF: Final = re.compile(r"""\shref\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_SPACE: Final = re.compile(r"[ \t\r\n\f\v\xa0]+")
_BLANK_LINES: Final = re.compile(r"\n{3,}")
_SKIPPED: Final = {
    name: re.compile(rf"</{name}\b", re.IGNORECASE)
    for name in ("script", "style", "noscript", "template", "svg", "textarea", "iframe", "object")
}
# Blocks with a blank line before and after.
_BLOCKS: Final = {
    **dict.fromkeys(
        ("address", "article", "aside", "body", "br", "dd", "div", "dl", "dt", "figcaption", "figure"), "\n"
    ),
    **dict.fromkeys(
        ("figure", "footer", "form", "header", "hr", "li", "main", "nav", "summary", "tbody", "tfoot", "tr"), "\n"
    ),
    **dict.fromkeys(("blockquote", "h1", "h2", "h3", "h4", "h5", "h6", "ol", "p", "pre", "section", "ul"), "\n\n"),
    **dict.fromkeys(("table", "thead"), "\n\n"),
}
_CELLS: Final = frozenset({"td", "th"})
_MAX_ATTRIBUTE_CHARS: Final = 4096


class Page(msgspec.Struct, frozen=True):
    """A page as text, and its title."""

    title: str
    text: str


def parse_html(source: str, base: str = "") -> Page:
    """Convert an HTML page to text; the addresses of its links are completed with `base`."""
    reader = _Reader(base)
    at = 0
    while (start := source.find("<", at)) >= 0:
        reader.text(source[at:start])
        at = _read_markup(source, start, reader)
    reader.text(source[at:])
    return reader.page()


def _read_markup(source: str, start: int, reader: _Reader) -> int:
    """Read the tag, comment or declaration at `start`; return its end."""
    if source.startswith("<!--", start):
        return _find_end(source, "-->", start + 4)
    if source.startswith(("<!", "<?"), start):
        return _find_end(source, ">", start)
    tag = _TAG.match(source, start + 1)
    if tag is None:
        reader.text("<")
        return start + 1
    end = _find_end(source, ">", tag.end())
    name = tag[2].lower()
    if not tag[1] and name in _SKIPPED:
        closing = _SKIPPED[name].search(source, end)
        return len(source) if closing is None else _find_end(source, ">", closing.end())
    reader.tag(name, is_end=bool(tag[1]), attributes=source[tag.end() : min(end, tag.end() + _MAX_ATTRIBUTE_CHARS)])
    return end


def _find_end(source: str, mark: str, start: int) -> int:
    found = source.find(mark, start)
    return len(source) if found < 0 else found + len(mark)


class _Reader:
    """Collects the text of a page."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._pieces: list[str] = []
        self._title: list[str] = []
        self._href = ""
        self._is_title = False

    def text(self, raw: str) -> None:
        """Add text between two tags; white space in it becomes one blank."""
        if not raw:
            return
        plain = _SPACE.sub(" ", html.unescape(raw))
        (self._title if self._is_title else self._pieces).append(plain)

    def tag(self, name: str, *, is_end: bool, attributes: str) -> None:
        """Apply a tag to the lines and links of the text."""
        if name == "title":
            # Only the first title is the page's; pictures have titles, too.
            self._is_title = not is_end and not self._title
        elif name == "a":
            self._link("" if is_end else attributes)
        elif name in _CELLS:
            self._pieces.append("" if is_end else " | ")
        elif name in _BLOCKS:
            self._pieces.append(_BLOCKS[name])
            if name == "li" and not is_end:
                self._pieces.append("- ")

    def page(self) -> Page:
        """Return the page."""
        self._link("")
        lines = (line.strip() for line in "".join(self._pieces).split("\n"))
        text = _BLANK_LINES.sub("\n\n", "\n".join(lines)).strip()
        return Page(" ".join("".join(self._title).split()), text)

    def _link(self, attributes: str) -> None:
        """Add the address of the link that ends here, and store that of the one that begins."""
        if self._href:
            self._pieces.append(f" ({self._href})")
        found = _HREF.search(attributes)
        href = html.unescape(found[1] or found[2] or found[3] or "").strip() if found else ""
        self._href = self._complete_address(href)

    def _complete_address(self, href: str) -> str:
        if not href or href.startswith("#"):
            return ""
        try:
            address = urljoin(self._base, href)
        except ValueError:
            return ""
        return address if address.startswith(("http://", "https://")) else ""
