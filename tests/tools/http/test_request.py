"""What is sent for a call: no argument leaves its place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.tools import ToolInvalidArgsError
from harborage.tools.http.operation import Argument, Body, BodyKind, Operation, Place, Style
from harborage.tools.http.request import FilePart, prepare, query_pairs


def sent(place: Place, value: Any, style: Style = Style.EXPLODED, **more: Any) -> Any:
    one = Argument("a", place, "key", {}, style=style)
    made = Operation(name="x", method="POST", base="https://h", path="/p/{key}/q", arguments=(one,), **more)
    return prepare(made, {"a": value})


@given(st.text(min_size=1))
def test_an_argument_of_the_path_stays_one_segment(text: str) -> None:
    """Slashes, dots, question marks and anything else are quoted."""
    path = sent(Place.PATH, text).url.removeprefix("https://h/p/").removesuffix("/q")
    assert not set(path) & set("/?#\\ ")
    assert path not in (".", "..")


def test_a_step_to_another_folder_is_quoted_whole() -> None:
    """An empty one is refused: it would be another path."""
    assert sent(Place.PATH, "..").url == "https://h/p/%2E%2E/q"
    assert sent(Place.PATH, "../x").url == "https://h/p/..%2Fx/q"
    with pytest.raises(ToolInvalidArgsError, match="not empty"):
        sent(Place.PATH, "")


@pytest.mark.parametrize(
    ("style", "value", "pairs"),
    [
        (Style.EXPLODED, ["a", 1, True], [("k", "a"), ("k", "1"), ("k", "true")]),
        (Style.COMMA, ["a", "b"], [("k", "a,b")]),
        (Style.SPACE, ["a", "b"], [("k", "a b")]),
        (Style.PIPE, ["a", "b"], [("k", "a|b")]),
        (Style.DEEP, {"a": {"b": 1}, "c": [2, 3]}, [("k[a][b]", "1"), ("k[c]", "2"), ("k[c]", "3")]),
        (Style.EXPLODED, {"a": 1}, [("a", "1")]),
        (Style.COMMA, {"a": 1}, [("k", "a,1")]),
        (Style.JSON, {"a": [1]}, [("k", '{"a":[1]}')]),
        (Style.EXPLODED, 1.5, [("k", "1.5")]),
    ],
)
def test_each_style_of_a_query(style: Style, value: Any, pairs: list[tuple[str, str]]) -> None:
    """As documents name them."""
    assert list(query_pairs("k", value, style)) == pairs


def test_a_header_has_no_lines_of_its_own() -> None:
    """What would begin another header is refused; other scripts are quoted."""
    with pytest.raises(ToolInvalidArgsError, match="control characters"):
        sent(Place.HEADER, "a\r\nX-Evil: 1")
    assert sent(Place.HEADER, "東京").headers == {"key": "%E6%9D%B1%E4%BA%AC"}


def test_bodies_are_of_their_kind() -> None:
    """JSON, a form, parts with files, text, and a file alone."""
    assert sent(Place.BODY, None, body=Body(BodyKind.JSON, "application/json")).content == b'{"key":null}'
    form = sent(Place.BODY, ["a", "b"], body=Body(BodyKind.FORM, "application/x-www-form-urlencoded"))
    assert form.content == b"key=a&key=b"
    parts = sent(Place.BODY, "art-1", body=Body(BodyKind.MULTIPART, "multipart/form-data", files=frozenset({"key"})))
    assert parts.files == (FilePart("key", "art-1"),)
    assert sent(Place.BODY, "plain", body=Body(BodyKind.TEXT, "text/plain", spread=False)).content == b"plain"
    alone = sent(Place.BODY, "art-1", body=Body(BodyKind.BYTES, "image/*", spread=False))
    assert alone.files == (FilePart("", "art-1"),)


def test_a_required_argument_is_asked_for() -> None:
    """With its name, before anything is sent."""
    made = Operation(
        name="x", method="GET", base="https://h", arguments=(Argument("a", Place.QUERY, "a", {}, required=True),)
    )
    with pytest.raises(ToolInvalidArgsError, match='"a" is a required property'):
        prepare(made, {})
