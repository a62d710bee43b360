"""Data URLs are taken apart, and their size is told without decoding them."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.llm import InvalidContentError
from harborage.llm.chain.data_urls import parse_data_url, utf8_size


@given(st.binary(max_size=64), st.sampled_from(["image/png", "", "text/plain;charset=utf-8"]))
def test_base64_comes_back(data: bytes, mime: str) -> None:
    """The bytes and their number are what went in, whatever stands before the word `base64`."""
    url = parse_data_url(f"data:{mime};base64,{base64.b64encode(data).decode()}")
    assert (url.content(), url.size, url.mime) == (data, len(data), mime.partition(";")[0])


@given(st.text(max_size=32))
def test_without_base64_the_text_is_the_content(text: str) -> None:
    """Nothing is decoded: percent signs and commas are themselves."""
    url = parse_data_url(f"data:text/plain,{text}")
    assert (url.content(), url.size) == (text.encode(), len(text.encode()))


@pytest.mark.parametrize("text", ["data:a/b;base64;x=1,aGk=", "data:a/b;x=1;BASE64,aGk=", "data:;base64,aGk="])
def test_base64_may_stand_among_other_parameters(text: str) -> None:
    """Its place and case do not matter."""
    assert parse_data_url(text).content() == b"hi"


@pytest.mark.parametrize("text", ["image/png;base64,aGk=", "https://x/y.png", "data:image/png;base64", ""])
def test_what_is_no_data_url_is_refused(text: str) -> None:
    """It begins with `data:` and has a comma."""
    with pytest.raises(InvalidContentError):
        parse_data_url(text)


@pytest.mark.parametrize("payload", ["a", "aGk", "aGk=aGk=", "####", "a Gk="])
def test_broken_base64_is_refused(payload: str) -> None:
    """Anything that does not decode cleanly is an error, without the content in its text."""
    with pytest.raises(InvalidContentError) as caught:
        parse_data_url(f"data:a/b;base64,{payload}").content()
    assert payload == "a" or payload not in str(caught.value)


@given(st.text())
def test_sizes_are_bytes(text: str) -> None:
    """The size of a text is that of its UTF-8 form."""
    assert utf8_size(text) == len(text.encode("utf-8", "surrogatepass"))
