"""HTML becomes text to read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harborage.tools.standard.html_text import parse_html
from tests.kit.tables import each_row

BASE = "https://example.com/docs/page.html"


def test_a_page_becomes_its_title_and_its_lines() -> None:
    """Blocks stand on lines of their own, lists have dashes, links say where they lead."""
    page = parse_html(
        """<!DOCTYPE html><html><head><title>A &amp; B
        </title><style>p { color: red }</style><script>if (a < b) alert("<p>no</p>")</script></head>
        <body><h1>Head</h1><p>One   <b>bold</b> and&nbsp;two.<br>Next &lt;line&gt;</p><!-- <p>hidden</p> -->
        <ul><li>first<li><a class=x href="other.html#part">second</a></ul>
        <table><tr><th>a<th>b</tr><tr><td>1</td><td>2</td></tr></table></body></html>""",
        BASE,
    )
    assert page.title == "A & B"
    assert page.text == (
        "Head\n\nOne bold and two.\nNext <line>\n\n- first\n- second (https://example.com/docs/other.html#part)\n\n"
        "| a | b\n\n| 1 | 2"
    )


@each_row(
    "source, expected",
    [
        ("a < b and c > d", "a < b and c > d"),
        ("1 <2 and <3", "1 <2 and <3"),
        ("x<!-- never closed", "x"),
        ("x<script>never closed", "x"),
        ("x<SCRIPT>var y</Script >z", "xz"),
        ("x<p never closed", "x"),
        ("<p>&#x41;&#66;&unknown;</p>", "AB&unknown;"),
        ('<a href="javascript:alert(1)">a</a> <a href="#top">b</a> <a href="mailto:x@y">c</a>', "a b c"),
        ("<a href='/x?a=1&amp;b=2'>a</a>", "a (https://example.com/x?a=1&b=2)"),
        ("<a href=//other.org/x>a", "a (https://other.org/x)"),
        ("<a href='http://[broken'>a</a>", "a"),
        ("<svg><title>Picture</title></svg><title>Page</title>", ""),
        ("<![CDATA[x]]>y<?php echo 1 ?>z", "yz"),
        ("", ""),
    ],
)
def test_odd_markup_is_read_as_well_as_can_be(source: str, expected: str) -> None:
    """Nothing raises; signs that begin no tag stay as they are."""
    assert parse_html(source, BASE).text == expected


@given(st.text(alphabet="<>/!-?ab \"'=&;#x\n", max_size=200))
def test_any_text_can_be_read(source: str) -> None:
    """There is a text for everything."""
    parse_html(source, BASE)


@each_row(
    "piece",
    [
        "<!--",
        "<",
        "</",
        "<a ",
        "<a href='",
        "<a href=x>",
        "<script>",
        "<script></script ",
        "<!",
        "<?",
        "&#",
        "&a",
        "<td>",
    ],
)
def test_a_hostile_page_takes_time_in_proportion(piece: str) -> None:
    """A page made to be slow is read in the time of its length: the standard parser needs minutes for some of these."""
    source = piece * (300_000 // len(piece))
    parse_html(source, BASE)


def test_the_first_title_is_the_pages() -> None:
    """Pictures have titles, too."""
    assert parse_html("<title>Page</title><title>Other</title>x").title == "Page"
