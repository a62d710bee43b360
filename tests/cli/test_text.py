"""Values, times and sizes in few words, and nothing that could move a cursor."""

from __future__ import annotations

import io
import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from harborage.cli.text import (
    arguments,
    compact,
    duration,
    fit_line,
    fit_terminal,
    masked,
    masked_places,
    one_line,
    plural,
    pretty,
    printable,
    shortened,
    size,
    terminal_width,
    wire_json,
)
from tests.kit.tables import each_row


@each_row(
    "text, shown",
    [
        ("plain, naïve, 日本 👩‍💻", "plain, naïve, 日本 👩‍💻"),
        ("a\nb\tc", "a\nb\tc"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("over\rwritten\x08", "over\\x0dwritten\\x08"),
        ("\u202eevil\u2066", "\\u202eevil\\u2066"),
        ("\x9b2J", "\\x9b2J"),
        ("tag\U000e0041", "tag\\U000e0041"),
    ],
)
def test_control_characters_become_visible(text: str, shown: str) -> None:
    """Control and invisible format characters are spelled out; letters of any script stay."""
    assert printable(text) == shown


@given(st.text())
def test_nothing_printable_can_drive_a_terminal(text: str) -> None:
    """Whatever comes in, no escape, carriage return or other control character comes out."""
    shown = printable(text, keep="")
    assert not any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 for char in shown)


@given(st.text(), st.integers(1, 80))
def test_a_line_is_one_line_of_its_length(text: str, limit: int) -> None:
    """One line has no line break and at most so many characters."""
    line = one_line(text, limit)
    assert len(line) <= limit
    assert "\n" not in line


@each_row(
    "text, limit, line",
    [("a  b\n c", 9, "a b c"), ("abcdef", 4, "abc…"), ("x" * 99, 9, "x" * 8 + "…"), ("ab… and more", 4, "ab…")],
)
def test_a_line_collapses_white_space_and_says_when_it_is_cut(text: str, limit: int, line: str) -> None:
    """White space becomes single spaces, and an ellipsis stands for what is missing."""
    assert one_line(text, limit) == line


@each_row(
    "value, shown",
    [
        (None, ""),
        ("text", "text"),
        ({"a": [1, True, None]}, '{"a":[1,true,null]}'),
        ({"token": "abc", "kept": 1}, '{"token":"***","kept":1}'),
        ("Bearer abc.def", "Bearer ***"),
        ([1, 2, 3], "[1,2,3]"),
    ],
)
def test_a_value_is_short_and_masked(value: object, shown: str) -> None:
    """Text stays text, other values are JSON, secrets are masked, nothing is nothing."""
    assert shortened(value) == shown


def test_what_cannot_be_masked_is_not_shown() -> None:
    """A value nested too deeply to be cleaned is replaced as a whole."""
    deep: list[object] = ["s3cret"]
    for _ in range(100):
        deep = [deep]
    assert "s3cret" not in str(masked(deep))
    assert "not shown" in shortened(deep)


@each_row(
    "args, shown",
    [
        ({}, ""),
        ({"path": "a.txt", "deep": True}, 'path="a.txt", deep=true'),
        ({"password": "x"}, 'password="***"'),
        ([1], "[1]"),
        ("odd", "odd"),
    ],
)
def test_arguments_read_like_a_call(args: object, shown: str) -> None:
    """Arguments are shown by name; what is no object is shown as it is."""
    assert arguments(args) == shown


def test_long_arguments_share_the_room() -> None:
    """A long argument does not push the others off the line."""
    shown = arguments({"text": "x" * 500, "path": "a.txt"}, 100)
    assert len(shown) <= 100
    assert shown.endswith('path="a.txt"')


def test_json_of_anything_can_be_shown() -> None:
    """What has no JSON form is spelled."""
    assert compact({"at": object}) == '{"at":"<class \'object\'>"}'
    assert msgspec.json.decode(compact({1.5: object()}))


def test_pretty_is_complete_and_harmless() -> None:
    """A value in full is indented JSON; control characters in it stay escaped."""
    assert pretty({"a": "\x1b[2J", "b": [1]}) == '{\n  "a": "\\u001b[2J",\n  "b": [\n    1\n  ]\n}'


def test_masks_are_found_where_they_are() -> None:
    """The places of masked values are named by path."""
    shown = {"a": "***", "b": [{"c": "Bearer ***"}, "x"], "d": "[redacted: image/png of 9 bytes]", "e": "*"}
    assert masked_places(shown) == {
        "a": "***",
        "b[0].c": "Bearer ***",
        "d": "[redacted: image/png of 9 bytes]",
    }


@each_row(
    "seconds, shown",
    [
        (-1, "0 ms"),
        (0, "0 ms"),
        (0.0031, "3 ms"),
        (0.9994, "999 ms"),
        (0.9999, "1.0 s"),
        (1.24, "1.2 s"),
        (59.9, "59.9 s"),
        (59.99, "1 m"),
        (125, "2 m 5 s"),
        (3_600, "1 h"),
        (3_725, "1 h 2 m"),
        (86_400 * 7 - 1, "6 d 23 h"),
    ],
)
def test_durations_have_at_most_two_units(seconds: float, shown: str) -> None:
    """A duration is shown in its two largest units."""
    assert duration(seconds) == shown


@each_row(
    "count, shown",
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 KB"), (12_345, "12.3 KB"), (4_000_000, "4.0 MB"), (5e12, "5000.0 GB")],
)
def test_sizes_are_in_thousands(count: int, shown: str) -> None:
    """Sizes are shown in bytes or the largest unit that fits."""
    assert size(int(count)) == shown


def test_one_is_not_plural() -> None:
    """Only one of a thing has no s."""
    assert [plural(count, "step") for count in (0, 1, 2_000)] == ["0 steps", "1 step", "2,000 steps"]


def test_json_for_machines_has_one_spelling_of_identities_and_times() -> None:
    """As the events of --json have it; what tools and people wrote is left alone."""
    who = {"TenantID": "t", "UserID": "u", "SessionID": "s", "RunID": "r"}
    theirs = {"TenantID": "t", "UserID": "u", "SessionID": "s", "at_at": "2026-01-02T03:04:05Z"}
    record = {"who": who, "steps": [{"ended_at": "2026-01-02T03:04:05.5Z", "observation": theirs}], "goal": "at_at"}
    assert json.loads(wire_json(json.dumps(record).encode())) == {
        "who": {"tenant": "t", "user": "u", "session": "s", "run": "r"},
        "steps": [{"ended_at": "2026-01-02T03:04:05.500000000Z", "observation": theirs}],
        "goal": "at_at",
    }


@each_row(
    "line, width, rows",
    [
        ("short", 10, ["short"]),
        ("  one two three four", 12, ["  one two ", "    three", "    four"]),
        ("one two three", 9, ["one two", "  three"]),
    ],
)
def test_a_line_is_wrapped_by_words(line: str, width: int, rows: list[str]) -> None:
    """Rows after the first are indented by two columns more; a line that fits is left as it is."""
    assert fit_line(line, width) == [row.rstrip() for row in rows]


def test_only_a_terminal_has_a_width() -> None:
    """Lines for a pipe or a file are left as they are."""
    assert terminal_width(io.StringIO()) is None
    assert fit_terminal(["x" * 500], io.StringIO()) == ["x" * 500]
