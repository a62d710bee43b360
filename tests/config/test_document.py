"""YAML as nodes with places: limits, duplicate keys, aliases, and texts that break parsers."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harborage.config import ConfigError, Finding, read_config
from harborage.config.document import MAX_BYTES, MAX_DEPTH, read_document
from tests.kit.configurations import findings, text_of


def reasons(text: str) -> list[str]:
    """What is wrong with a text, with its places."""
    return [f"{one.line}:{one.column} {one.reason}" for one in read_document(text.encode(), "f").findings]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\na: 2\n", "2:1 the key a is set twice"),
        ("a: {b: 1, b: 2}", "1:11 the key b is set twice"),
        ("a: *x\n", "1:4 this alias has no anchor before it"),
        ("a: &x [*x]\n", "1:8 this alias stands in what it stands for"),
        ("a: !python/object:os.system x", "1:4 tags mean nothing here"),
        ("? [a]\n: b", "1:3 a key must be a text"),
        ("a: 1\n---\nb: 2\n", "2:1 a second document begins"),
        ("a: [1, 2", "1:9 while parsing a flow sequence: expected ',' or ']', but got '<stream end>'"),
        ("a:\n\t- b", "2:1 while scanning for the next token: found character '\\t' that cannot start any token"),
        ("<<: 5\n", "1:5 << takes a mapping, or a list of them"),
        ('a: "\\UFFFFFFFF"', "1:1 this is no YAML: an escape or a directive in it cannot be read"),
    ],
)
def test_what_is_no_usable_yaml_is_found_with_its_place(text: str, said: str) -> None:
    """Each finding has the line and column of what is wrong."""
    assert reasons(text)[0] == said


def test_bytes_that_are_no_text_are_found_with_their_place() -> None:
    """What is not UTF-8, and a control character, have a line and a column."""
    assert [(one.line, one.column) for one in read_document(b"a: 1\nb: \xff", "f").findings] == [(2, 4)]
    assert [(one.line, one.column) for one in read_document(b"a: 1\nb: \x01", "f").findings] == [(2, 4)]


def test_a_text_that_is_too_large_or_too_deep_is_refused() -> None:
    """The size of a file, and how deep it is nested, are bounded."""
    assert "more than" in reasons("#" * (MAX_BYTES + 1))[0]
    assert "levels deep" in reasons("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))[0]
    assert not reasons("a: " + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1))


def test_a_bomb_of_aliases_is_refused_at_once() -> None:
    """Aliases count with all that they stand for, so that nine lines cannot fill the memory."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    begun = time.perf_counter()
    assert "aliases included" in reasons("\n".join(lines))[0]
    assert time.perf_counter() - begun < 5


def test_deep_nesting_without_an_end_is_refused_at_once() -> None:
    """A hundred thousand brackets end at the limit, not at the end of the text."""
    begun = time.perf_counter()
    assert reasons("[" * 100_000)
    assert time.perf_counter() - begun < 5


def test_aliases_and_merged_keys_count_as_written_in_place() -> None:
    """An anchor saves writing a block twice, and own keys win over merged ones."""
    text = text_of().decode() + "tools:\n  custom:\n    - &a {name: one, description: d}\n    - {<<: *a, name: two}\n"
    assert [one.name for one in read_config(text.encode()).config.tools.custom] == ["one", "two"]


YAML_PIECES = st.sampled_from(
    [*"abc:-[]{}&*!|>%@`\"'#,? \n\t0", "\n  ", ": ", "- ", "<<: ", "&a ", "*a", "---\n", "llm", "identity", "tools",
     "custom", "server", "allowed_origins", "true", "30s", "\\x", "\x00", "\N{PARTY POPPER}"]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200) | st.lists(YAML_PIECES, max_size=60).map(lambda some: "".join(some).encode()))
@example(b"%YAML 1.1111111111111111111111\n---\na")
@example(b"%TAG ! x\n--- !a b")
@example(b'"\\xZZ"')
@example(b"? ? ? a")
@example(b"- - - - a: &b\n")
@example(b"\xef\xbb\xbf")
@example(b"a: |9\n  b")
def test_no_bytes_make_the_loader_raise_anything_but_findings(data: bytes) -> None:
    """Whatever a file holds, its author gets findings, each with a message and a place in the file or none."""
    found: tuple[Finding, ...] | None = None
    try:
        read_config(data)
    except ConfigError as error:
        found = error.findings
    assert found is None or all(one.message and one.line >= 0 for one in found)
    assert found != ()


def test_an_empty_file_is_read_and_fails_by_what_it_lacks() -> None:
    """An empty file is no parse error; it lacks how tokens are verified."""
    assert {one.category.value for one in findings(b"")} == {"config.semantic"}
    assert "identity" in {one.path for one in findings(b"")}
