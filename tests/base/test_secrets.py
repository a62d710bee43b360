"""Secrets that are read when they are needed, and masked in what peers send back."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.secrets import MASK, SecretMissingError, SecretReader, secret
from harborage.testing.clock import FakeClock

VALUE = "hunter2/ü+canary"


def reader_of(value: str) -> SecretReader:
    """A reader that has read one secret."""
    reader = SecretReader(environ={"KEY": value})
    reader.reveal(secret("env:KEY"))
    return reader


@given(st.text(min_size=8, max_size=40).filter(lambda text: text == text.strip()), st.binary(max_size=5))
def test_a_secret_that_was_read_is_masked_in_every_form(value: str, before: bytes) -> None:
    """Plain, URL-quoted, in JSON, and anywhere in base64, whatever stands before and behind it."""
    reader = reader_of(value)
    raw = value.encode()
    texts = [
        value,
        quote(value, safe=""),
        json.dumps(value)[1:-1],
        b64encode(raw).decode(),
        urlsafe_b64encode(raw).decode(),
        b64encode(before + raw + b"tail").decode(),
    ]
    for text in texts:
        shown = reader.mask(f"<{text}>")
        assert MASK in shown
        assert len(shown) < len(text) + 5 + len(before) * 2 + 8
        assert text not in shown
        assert reader.mask_bytes(f"<{text}>".encode()) == shown.encode()


def test_a_secret_is_read_again_after_a_minute() -> None:
    """A value that was changed is used within a minute, without a restart."""
    environ, clock = {"KEY": "first-value"}, FakeClock()
    reader = SecretReader(environ=environ, clock=clock)
    key = secret("env:KEY")
    assert reader.reveal(key) == "first-value"
    environ["KEY"] = "other-value"
    assert reader.reveal(key) == "first-value"
    clock.advance(61)
    assert reader.reveal(key) == "other-value"
    assert reader.mask("first-value other-value") == f"{MASK} {MASK}"


def test_a_secret_that_is_missing_is_named_by_its_reference(tmp_path: Path) -> None:
    """A file is looked for in the folder of the reader; the text says what is missing."""
    (tmp_path / "key").write_text("from-a-file\n")
    reader = SecretReader(environ={}, folder=tmp_path)
    assert reader.reveal(secret("file:key")) == "from-a-file"
    with pytest.raises(SecretMissingError, match="env:KEY is missing: the variable is not set"):
        reader.reveal(secret("env:KEY"))


def test_short_values_are_not_masked() -> None:
    """Masking three characters wherever they stand would destroy texts and hide nothing."""
    assert reader_of("abc").mask("abcdef") == "abcdef"
