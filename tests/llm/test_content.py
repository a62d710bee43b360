"""Content has one body, parts keep their kind over the wire, and a stub reads the same everywhere."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from harborage import codec
from harborage.llm import (
    ArtifactStub,
    AudioPart,
    Content,
    FetchHint,
    FilePart,
    ImagePart,
    InvalidContentError,
    Part,
    TextPart,
    check_content,
)
from harborage.llm.content import CHUNK_BYTES, chunk_lines
from tests.kit.tables import each_row

STUB = ArtifactStub(ref="default_1", mime="image/png", size_bytes=7)
PARTS: tuple[Part, ...] = (
    TextPart("hello"),
    ImagePart(url="https://example.org/a.png", detail="low"),
    ImagePart(data_url="data:image/png;base64,AAAA", mime="image/png"),
    AudioPart(artifact=STUB, mime="audio/wav"),
    FilePart(artifact=STUB, mime="application/pdf", filename="a.pdf"),
)


def test_a_stub_reads_as_compact_json_with_sorted_keys() -> None:
    """What is not known is left out; size and kind are always there, even when empty."""
    assert ArtifactStub(ref="r", mime="", size_bytes=0).text() == '{"artifact_ref":"r","mime":"","size_bytes":0}'
    full = ArtifactStub("r", "a/b", 3, hash="sha256:0", summary="ü <b>", fetch=FetchHint("artifact_fetch", "r"))
    assert full.text() == (
        '{"artifact_ref":"r","fetch":{"id":"r","tool":"artifact_fetch"},"hash":"sha256:0",'
        '"mime":"a/b","size_bytes":3,"summary":"ü <b>"}'
    )
    assert codec.decode(full.text(), ArtifactStub) == full


def test_content_survives_the_wire() -> None:
    """Each part names its kind and comes back as what it was."""
    for content in (Content("hi"), Content(""), Content(parts=PARTS), Content(parts=())):
        assert codec.decode(codec.encode(content), Content) == content
    assert [part["type"] for part in codec.to_plain(PARTS)] == ["text", "image", "image", "audio", "file"]


def test_a_callers_list_is_not_kept() -> None:
    """Parts handed in as a list become a tuple, so appending later does not reach the message."""
    parts: list[Part] = [TextPart("a")]
    content = Content(parts=parts)
    parts.append(TextPart("b"))
    assert content.parts == (TextPart("a"),)


@each_row("content", [Content("a"), Content(""), Content(parts=()), Content(parts=PARTS)])
def test_one_body_is_right(content: Content) -> None:
    """A text or a list of parts, either of which may be empty."""
    check_content(content)


@pytest.mark.parametrize(("content", "said"), [(Content(), "neither"), (Content("a", ()), "both")])
def test_none_or_two_bodies_are_wrong(content: Content, said: str) -> None:
    """The error says which, and that exactly one is wanted."""
    with pytest.raises(InvalidContentError, match=f"{said}.*exactly one"):
        check_content(content)


def test_no_body_is_right_where_it_may_be_absent() -> None:
    """Absent content is allowed on request; two bodies never are."""
    check_content(Content(), may_be_absent=True)
    with pytest.raises(InvalidContentError, match="both"):
        check_content(Content("a", ()), may_be_absent=True)


@each_row("part", [ImagePart(), AudioPart(mime="audio/wav"), FilePart(filename="a.pdf")])
def test_a_part_without_a_body_is_wrong(part: Part) -> None:
    """A picture, recording or document needs an address, inline data or an artifact; its place is named."""
    with pytest.raises(InvalidContentError, match=rf"part 1 \({type(part).__name__}\) has no body"):
        check_content(Content(parts=[TextPart("a"), part]))


@each_row("part", ["text", None, {"type": "image"}])
def test_an_unknown_kind_of_part_is_wrong(part: Any) -> None:
    """What is no part is named by its type and place."""
    with pytest.raises(InvalidContentError, match=f"part 0 is a {type(part).__name__}"):
        check_content(Content(parts=[part]))


def test_an_unknown_kind_does_not_decode() -> None:
    """A kind of part from elsewhere is refused when it is read."""
    with pytest.raises(msgspec.ValidationError, match="hologram"):
        codec.decode(b'{"parts":[{"type":"hologram"}]}', Content)


def test_chunks_say_the_same():
    """Short lines are one text; long ones become parts that together say the same."""
    assert chunk_lines(["a", "b"]).text == "a\nb"
    assert chunk_lines([]).text == ""
    lines = [f"line {number} " + "x" * 90 for number in range(200)]
    parts = chunk_lines(lines).parts
    assert parts is not None
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    assert "".join(texts) == "\n".join(lines)
    assert all(len(text) <= CHUNK_BYTES for text in texts)
    assert len(texts) > 4
