"""Values become text, whatever they are, and long texts are cut or split."""

from __future__ import annotations

import threading

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from harborage.llm import Content
from harborage.planner.text import clip, one_line, printable_name, render_value, to_content, truncate
from tests.kit.tables import each_row


def test_one_line():
    """Each line break becomes one space, and the ends are clean."""
    assert one_line("a\r\nb") == "a  b"
    assert one_line("\n a\nb\r") == "a b"


@each_row(
    "value, text",
    [
        (None, "(nil)"),
        ("def f():\n    return 1\n", "def f():\n    return 1\n"),
        (msgspec.Raw(b'{"x": 1.0}'), '{"x": 1.0}'),
        (b"secret", "(6 bytes)"),
        (bytearray(3), "(3 bytes)"),
        ({"b": 1, "a": [1.5, "<&>", None]}, '{"a":[1.5,"<&>",null],"b":1}'),
        ([], "[]"),
        (True, "true"),
        (7, "7"),
        (threading.Lock(), "(lock without a JSON form)"),
        ({"f": print}, "(dict without a JSON form)"),
        (float("nan"), "(float without a JSON form)"),
    ],
)
def test_any_value(value, text):
    """Text keeps its lines, bytes show only their length, JSON is compact and sorted, and nothing fails."""
    assert render_value(value) == text


def test_a_short_text_is_a_text():
    """Nothing is split that need not be."""
    assert to_content("a\n" * 4_000) == Content(text="a\n" * 4_000)


@each_row(
    "text", ["x" * 20_001, "é" * 9_000, "line\n" * 4_000, "x" * 7_999 + "\n" + "y" * 9_000, "\n" * 5 + "x" * 9_000]
)
def test_a_long_text_in_parts(text):
    """The parts are the text, none is long, and each ends with a line where one ends near."""
    parts = to_content(text).parts
    assert "".join(part.text for part in parts) == text
    assert all(0 < len(part.text) <= 8_000 for part in parts)
    if "\n" in text[4_000:7_000]:
        assert all(part.text.endswith("\n") for part in parts)


def test_a_part_shows_something():
    """A stretch of blanks would be refused, and is not needed."""
    parts = to_content("x" * 8_000 + " " * 8_000 + "y").parts
    assert [part.text[0] for part in parts] == ["x", "y"]


@given(st.text(), st.integers(3, 300))
def test_clipped_text_fits(text, limit):
    """Clipped text never exceeds its limit in bytes, and short text is left alone."""
    truncate = clip(text, limit)
    assert len(truncate.encode()) <= limit
    if len(text.encode()) <= limit:
        assert truncate == text
    else:
        assert truncate.endswith("...")
        assert text.startswith(truncate[:-3])


def test_clipping_takes_any_text():
    """Text that is no valid Unicode is clipped too."""
    assert clip("\ud800x") == "?x"


def test_cutting():
    """What is longer than the limit ends in an ellipsis, never inside a character."""
    assert truncate("abcd", 4) == "abcd"
    assert truncate("abcde", 4) == "abcd…"
    assert truncate("aüüü", 4) == "aü…"


@each_row(
    "name, shown",
    [
        ("read_file", "read_file"),
        ("a\nb\x00c\x7f", "a b c "),
        ("", "<empty>"),
        ("\n", "<empty>"),
        ("x" * 65, "x" * 64 + "…"),
    ],
)
def test_names(name, shown):
    """A name is shown on one line, in at most 64 bytes, and never as nothing."""
    assert printable_name(name) == shown
