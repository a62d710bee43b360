"""Ranges of texts that never cut a character."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harborage.tools.text import find_character_start, is_text, read_window, trim_cut_character
from tests.kit.tables import each_row


@given(text=st.text(max_size=60), size=st.integers(1, 9))
def test_reading_on_from_each_end_gives_the_whole_text(text: str, size: int) -> None:
    """Windows of any size are whole characters, and put together they are the text."""
    data, at, pieces = text.encode(), 0, []
    while at < len(data):
        window = read_window(data, at, size)
        assert window.start == at < window.end
        assert len(window.data) <= max(size, 4)
        pieces.append(window.data.decode())
        at = window.end
    assert "".join(pieces) == text


@given(text=st.text(min_size=1, max_size=20), offset=st.integers(0, 100), size=st.integers(1, 9))
def test_an_offset_inside_a_character_goes_back_to_its_beginning(text: str, offset: int, size: int) -> None:
    """Whatever offset is asked for, the window can be decoded and begins at most three bytes earlier."""
    data = text.encode()
    window = read_window(data, offset, size)
    window.data.decode()
    assert 0 <= min(offset, len(data)) - window.start <= 3


@given(text=st.text(max_size=20), cut=st.integers(0, 80))
def test_a_cut_text_loses_only_its_broken_last_character(text: str, cut: int) -> None:
    """What is left of a text that was cut anywhere can be decoded, and lacks less than one character."""
    data = text.encode()[:cut]
    kept = trim_cut_character(data)
    kept.decode()
    assert len(data) - len(kept) <= 3


def test_bytes_that_are_no_text_are_left_as_they_are() -> None:
    """Broken UTF-8 is not mended, and its characters are not looked for in vain."""
    assert trim_cut_character(b"\xff\xfe") == b"\xff\xfe"
    assert find_character_start(b"\x80\x80\x80\x80\x80", 4) == 4


@each_row(
    "data, mime, expected",
    [
        (b"plain", "text/plain; charset=utf-8", True),
        (b"{}", "application/json", True),
        (b"{}", "application/vnd.api+json", True),
        (b"<svg/>", "image/svg+xml", True),
        ("grün".encode(), "application/octet-stream", True),
        (b"plain", "", True),
        (b"has\0nul", "application/octet-stream", False),
        ("grün".encode("latin-1"), "text/plain", False),
        (b"plain", "image/png", False),
        (b"plain", "application/pdf", False),
    ],
)
def test_text_is_a_matter_of_type_and_of_bytes(data: bytes, mime: str, expected: bool) -> None:
    """A type of text needs valid UTF-8; an unknown type also no NUL; any other type is binary."""
    assert is_text(data, mime) is expected
