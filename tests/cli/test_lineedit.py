"""The input line, key by key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.cli.lineedit import LineEditor

UP, DOWN, LEFT, RIGHT, HOME, END, DELETE = "\x1b[A", "\x1b[B", "\x1b[D", "\x1b[C", "\x1b[H", "\x1b[F", "\x1b[3~"


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("hello", "hello"),
        ("naïve 日本", "naïve 日本"),
        ("helo\x1b[Dl", "hello"),
        ("hellp\x7fo", "hello"),
        ("\x7fhello\x7f\x7flo", "hello"),
        (f"ello{HOME}h", "hello"),
        ("ello\x01h\x05!", "hello!"),
        (f"hxello{HOME}{RIGHT}{DELETE}", "hello"),
        ("hxello\x01\x06\x04", "hello"),
        ("junk\x15hello", "hello"),
        ("hello junk\x1b[D\x1b[D\x1b[D\x1b[D\x1b[D\x0b", "hello"),
        ("hello brave world\x17\x17earth", "hello earth"),
        ("hello world \x17there", "hello there"),
        (f"{LEFT}{LEFT}a{RIGHT}{RIGHT}b", "ab"),
        ("a\tb", "a b"),
        ("a\x1b[5~\x1b[1;5C\x1bOP\x1bx\x0cb", "ab"),
    ],
)
def test_keys_build_a_line(keys: str, line: str) -> None:
    """Letters, the arrows and the usual editing keys do what they do in a shell; other keys do nothing."""
    editor = LineEditor()
    assert editor.feed(keys) == []
    assert editor.feed("\r") == [line]
    assert (editor.text, editor.cursor) == ("", 0)


def test_several_lines_at_once() -> None:
    """Whatever arrives together is taken in order; what is not finished stays."""
    editor = LineEditor()
    assert editor.feed("one\rtwo\nthr") == ["one", "two"]
    assert editor.text == "thr"


@given(st.text(alphabet="ab\x7f\x1b[DCAB~3 \r", max_size=30), st.integers(0, 30))
def test_keys_may_come_in_pieces(keys: str, cut: int) -> None:
    """A key that a read cuts in two means what it means in one piece."""
    whole, parts = LineEditor(), LineEditor()
    lines = whole.feed(keys)
    assert parts.feed(keys[:cut]) + parts.feed(keys[cut:]) == lines
    assert (parts.text, parts.cursor) == (whole.text, whole.cursor)


@given(st.text())
def test_the_cursor_stays_on_the_line(keys: str) -> None:
    """Whatever is pressed, the cursor stands within the text."""
    editor = LineEditor()
    editor.feed(keys)
    assert 0 <= editor.cursor <= len(editor.text)


def test_pasted_lines_stay_together() -> None:
    """Line breaks inside a paste are text; only Return finishes the line."""
    editor = LineEditor()
    assert editor.feed("\x1b[200~{\n  1\r}\x1b[201~") == []
    assert editor.feed("\r") == ["{\n  1\n}"]


def test_earlier_lines_come_back() -> None:
    """The arrows go through what was typed before and back to what is being typed."""
    editor = LineEditor()
    editor.feed("one\rtwo\r\rtwo\rdraft")
    for key, text in [(UP, "two"), (UP, "one"), (UP, "one"), (DOWN, "two"), (DOWN, "draft"), (DOWN, "draft")]:
        editor.feed(key)
        assert editor.text == text


def test_a_line_can_be_given() -> None:
    """A text to edit stands there with the cursor behind it."""
    editor = LineEditor()
    editor.fill("abc")
    assert editor.feed("\x7fd\r") == ["abd"]
