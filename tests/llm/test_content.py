"""Content has one body, parts keep their kind over the wire, a stub reads the same everywhere; data URLs."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from harborage.llm.content import (
    CHUNK_BYTES,
    Media,
    audio_format,
    chunk_lines,
    decode_inline,
    image_type,
    parse_data_url,
    read_data_url,
    utf8_size,
)
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


PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16
PICTURES = {
    "image/png": PNG,
    "image/jpeg": b"\xff\xd8\xff\xe0" + b"\0" * 8,
    "image/gif": b"GIF89a" + b"\0" * 8,
    "image/webp": b"RIFF\x10\0\0\0WEBPVP8 ",
}
LIMIT = 1000


def url(data: bytes, mime: str = "image/png") -> str:
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


@given(st.binary(max_size=200), st.sampled_from(["image/png", "audio/wav", "application/pdf"]))
def test_a_data_url_is_read_and_written(data, mime):
    """What is in a data URL comes out, and writing it gives the same URL."""
    media = read_data_url(url(data, mime))
    assert media == Media(mime, data)
    assert media.data_url == url(data, mime)


def test_parameters_may_come_before_base64():
    """The base64 word is found behind other parameters, in any case."""
    assert read_data_url("data:Text/Plain;charset=utf-8;BASE64,aGk=") == Media("text/plain", b"hi")


def test_without_base64_the_bytes_are_taken_as_they_are():
    """A data URL that is not base64 is not decoded any further."""
    assert read_data_url("data:text/plain,a%20b") == Media("text/plain", b"a%20b")


@each_row("bad", ["", "http://a/b.png", "data:image/png;base64", "data:a/b;base64,a", "data:a/b;base64,ä?"])
def test_what_is_no_data_url_is_refused(bad):
    """Other addresses, a missing comma and broken base64 are refused."""
    with pytest.raises(InvalidContentError):
        read_data_url(bad)


@each_row("mime, data", PICTURES.items())
def test_a_picture_is_known_by_its_first_bytes(mime, data):
    """The four common formats are recognised, against the claim of the part."""
    assert image_type(data) == mime
    assert decode_inline(ImagePart(data_url=url(data, "image/png")), limit_bytes=LIMIT, provider="p") == Media(
        mime, data
    )


@each_row("mime", ["image/png", "image/jpeg", "text/plain", ""])
@each_row("data", [b"<html>not found</html>", b""])
def test_bytes_that_are_no_picture_are_refused(data, mime):
    """An image part whose bytes are something else never reaches a provider."""
    with pytest.raises(InvalidContentError, match="no PNG, JPEG, GIF or WebP"):
        decode_inline(ImagePart(data_url=url(data, mime)), limit_bytes=LIMIT, provider="p")


def test_a_rarer_format_is_the_provider_s_to_judge():
    """A picture that claims to be of another kind is passed on."""
    part = ImagePart(data_url=url(b"<svg/>", "image/svg+xml"))
    assert decode_inline(part, limit_bytes=LIMIT, provider="p") == Media("image/svg+xml", b"<svg/>")


def test_the_part_s_own_type_wins():
    """A part that names its type is believed over the URL; without any it is a stream of bytes."""
    part = FilePart(data_url=url(b"x", "text/plain"), mime="application/pdf")
    assert decode_inline(part, limit_bytes=LIMIT, provider="p").mime == "application/pdf"
    assert (
        decode_inline(FilePart(data_url="data:,x"), limit_bytes=LIMIT, provider="p").mime == "application/octet-stream"
    )


def test_an_attachment_at_the_limit_passes_and_one_byte_more_does_not():
    """The text of the refusal names the size, the limit and whose limit it is."""
    assert (
        decode_inline(AudioPart(data_url=url(b"x" * 5, "audio/wav")), limit_bytes=5, provider="acme").data == b"xxxxx"
    )
    with pytest.raises(InvalidContentError, match="6 bytes is more than the 5 that acme takes"):
        decode_inline(AudioPart(data_url=url(b"x" * 6, "audio/wav")), limit_bytes=5, provider="acme")


@each_row(
    "mime, wanted",
    [("audio/wav", "wav"), ("audio/mpeg", "mp3"), ("audio/x-wav", "wav"), ("audio/ogg; codecs=opus", "ogg"), ("", "")],
)
def test_the_format_of_a_recording(mime, wanted):
    """The MIME subtype, or the name that providers use for it."""
    assert audio_format(mime) == wanted


@given(st.binary(max_size=64), st.sampled_from(["image/png", "", "text/plain;charset=utf-8"]))
def test_base64_comes_back(data: bytes, mime: str) -> None:
    """The bytes and their number are what went in, with any parameters before the word `base64`."""
    url = parse_data_url(f"data:{mime};base64,{base64.b64encode(data).decode()}")
    assert (url.content(), url.size, url.mime) == (data, len(data), mime.partition(";")[0])


@given(st.text(max_size=32))
def test_without_base64_the_text_is_the_content(text: str) -> None:
    """Nothing is decoded: percent signs and commas are themselves."""
    url = parse_data_url(f"data:text/plain,{text}")
    assert (url.content(), url.size) == (text.encode(), len(text.encode()))


@each_row("text", ["data:a/b;base64;x=1,aGk=", "data:a/b;x=1;BASE64,aGk=", "data:;base64,aGk="])
def test_base64_may_stand_among_other_parameters(text: str) -> None:
    """Its place and case do not matter."""
    assert parse_data_url(text).content() == b"hi"


@each_row("text", ["image/png;base64,aGk=", "https://x/y.png", "data:image/png;base64", ""])
def test_parsing_refuses_any_other_address(text: str) -> None:
    """It begins with `data:` and has a comma."""
    with pytest.raises(InvalidContentError):
        parse_data_url(text)


@each_row("payload", ["a", "aGk", "aGk=aGk=", "####", "a Gk="])
def test_broken_base64_is_refused(payload: str) -> None:
    """Anything that does not decode cleanly is an error, without the content in its text."""
    with pytest.raises(InvalidContentError) as caught:
        parse_data_url(f"data:a/b;base64,{payload}").content()
    assert payload == "a" or payload not in str(caught.value)


@given(st.text())
def test_sizes_are_bytes(text: str) -> None:
    """The size of a text is that of its UTF-8 form."""
    assert utf8_size(text) == len(text.encode("utf-8", "surrogatepass"))
