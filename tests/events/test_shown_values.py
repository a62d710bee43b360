"""What an event shows of arguments and results: redacted JSON within its bounds, a cut beyond them, or nothing."""

from __future__ import annotations

import logging
import random
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from harborage.events import NOT_SHOWN, PatternRedactor, ShownValue, shown_value
from harborage.events.payloads.tools import MAX_VALUE_BYTES
from harborage.events.redaction import KEY_RULES
from harborage.events.shown_values import MOST_READ_BYTES, PREVIEW_CHARS
from tests.kit.redactors import NoopRedactor

KEY = "a-key-of-the-environment"
REDACTOR = PatternRedactor([KEY])
PICTURE = "iVBORw0KGgo" + "A" * 400


class Hiding(PatternRedactor):
    """A redactor with a rule of its own."""

    def redact(self, value: Any) -> Any:
        return {**super().redact(value), "amount": "hidden"}


class Refusing:
    """A redactor that can make no safe copy."""

    def redact(self, value: Any) -> Any:
        raise ValueError(f"cannot redact {value}")


def text_of(size: int) -> bytes:
    """A JSON text of this many bytes."""
    return b'"' + b"x" * (size - 2) + b'"'


def json_of(shown: ShownValue) -> bytes:
    """The JSON that is shown."""
    assert isinstance(shown.json, msgspec.Raw)
    return bytes(shown.json)


@pytest.mark.parametrize("data", [b'{ "amount" : 7, "to": "Ada" }', b"null", b"[]", b'"\xc3\xa9"', b'{"tokens2": 1.0}'])
def test_what_holds_no_secret_is_shown_as_it_is(data: bytes) -> None:
    """Not even its white space changes, and nothing is said to be masked."""
    if b"token" not in data:
        assert shown_value(REDACTOR, data) == ShownValue(json=msgspec.Raw(data))
    assert msgspec.json.decode(json_of(shown_value(REDACTOR, data))) == msgspec.json.decode(data)
    assert shown_value(REDACTOR, data).masked is UNSET


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b'{"password":"hunter2","n":1}', b'{"password":"***","n":1}'),
        (b'{"deep":[{" Token ":{"a":1}}]}', b'{"deep":[{" Token ":"***"}]}'),
        (b'{"tok\\u0065n":"hunter2"}', b'{"token":"***"}'),
        ('{"to\u212aen":"hunter2"}'.encode(), '{"to\u212aen":"***"}'.encode()),
        (b'{"h":"Bearer abc.def"}', b'{"h":"Bearer ***"}'),
        (b'{"h":"\\u0042earer abc.def"}', b'{"h":"Bearer ***"}'),
        (f'{{"note":"it is {KEY}!"}}'.encode(), b'{"note":"it is ***!"}'),
        (f'{{"{KEY}":1}}'.encode(), b'{"***":1}'),
        (f'["{PICTURE}"]'.encode(), b'["[redacted: image/png of 308 bytes]"]'),
    ],
)
def test_a_secret_is_masked_before_anything_is_shown(data: bytes, shown: bytes) -> None:
    """By its key and in its text, however it is spelled."""
    assert shown_value(REDACTOR, data) == ShownValue(json=msgspec.Raw(shown), masked=True)


def test_of_a_key_that_is_there_twice_one_value_is_shown() -> None:
    """The one that was redacted: the other may be a secret."""
    assert json_of(shown_value(REDACTOR, b'{"a":"Bearer abc.def","a":1}')) == b'{"a":1}'


def test_line_breaks_between_values_do_not_travel() -> None:
    """A frame of an event stream is one line."""
    assert json_of(shown_value(REDACTOR, b'{\n "a": 1\r\n}')) == b'{"a":1}'


def test_exactly_the_bound_fits() -> None:
    """One byte more is cut; the size is that of the value, and an artifact is named where there is one."""
    assert json_of(shown_value(REDACTOR, text_of(MAX_VALUE_BYTES))) == text_of(MAX_VALUE_BYTES)
    shown = shown_value(REDACTOR, text_of(MAX_VALUE_BYTES + 1))
    assert shown.json is UNSET
    assert not isinstance(shown.cut, msgspec.UnsetType)
    assert (shown.cut.bytes, shown.cut.artifact_id, shown.masked) == (MAX_VALUE_BYTES + 1, UNSET, UNSET)
    assert shown.cut.preview == '"' + "x" * (PREVIEW_CHARS - 2) + "…"
    named = shown_value(REDACTOR, text_of(MAX_VALUE_BYTES + 1), "art-1").cut
    assert not isinstance(named, msgspec.UnsetType)
    assert named.artifact_id == "art-1"


def test_a_preview_is_redacted_whole_before_it_is_cut() -> None:
    """No part of a secret is left at its end, and no character is cut in half."""
    data = msgspec.json.encode(["é" * 240 + f" Bearer {'s3cret' * 900}", "x" * 5000])
    shown = shown_value(REDACTOR, data)
    assert not isinstance(shown.cut, msgspec.UnsetType)
    assert shown.masked is True
    assert len(shown.cut.preview) == PREVIEW_CHARS
    assert "s3cret" not in shown.cut.preview
    assert shown.cut.bytes == len(data)


def test_what_is_small_once_it_is_masked_is_shown() -> None:
    """The bound is about what is published."""
    data = msgspec.json.encode({"password": "x" * 9000})
    assert shown_value(REDACTOR, data) == ShownValue(json=msgspec.Raw(b'{"password":"***"}'), masked=True)


def test_a_huge_value_is_only_measured() -> None:
    """No event costs more than reading the most that is read."""
    cut = shown_value(REDACTOR, text_of(MOST_READ_BYTES + 1)).cut
    assert not isinstance(cut, msgspec.UnsetType)
    assert (cut.preview, cut.bytes) == (f"[{MOST_READ_BYTES + 1} bytes, not shown]", MOST_READ_BYTES + 1)


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"a":1} {"b":2}', b'"\xff"', b"1e400", b"\x00", b"[" * 9000 + b"]" * 9000]
)
def test_what_is_no_json_is_not_shown(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """It would make the whole event unreadable."""
    shown = shown_value(REDACTOR, data)
    assert shown.json is UNSET
    assert shown.masked is UNSET
    assert caplog.records == [] or len(data) > MAX_VALUE_BYTES


def test_a_redactor_of_ones_own_is_asked_about_every_value() -> None:
    """Also one that is derived from the default one."""
    data = b'{"amount":7}'
    assert shown_value(Hiding(), data) == ShownValue(json=msgspec.Raw(b'{"amount":"hidden"}'), masked=True)
    assert shown_value(NoopRedactor(), b'{"password":"x"}') == ShownValue(json=msgspec.Raw(b'{"password":"x"}'))


@pytest.mark.parametrize(("redactor", "data"), [(Refusing(), b'{"a":"hunter2"}'), (REDACTOR, b"[" * 65 + b"]" * 65)])
def test_what_cannot_be_redacted_is_not_shown(redactor: Any, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """The log says so, and has nothing of it."""
    with caplog.at_level(logging.WARNING):
        assert shown_value(redactor, data) == NOT_SHOWN
    assert len(caplog.records) == 1
    assert "hunter2" not in caplog.text


def test_a_text_is_passed_undecoded_only_if_redacting_it_changes_nothing() -> None:
    """The quick look never differs from the rules: of many random values, each that passes is the same redacted."""
    dice = random.Random(7)
    words = [key for _, keys in KEY_RULES for key in keys]
    words += [
        "tokens",
        "Pass",
        "monkey",
        "Bearer x",
        "data:,x",
        KEY,
        PICTURE,
        "amount",
        "né",
        'a"b',
        "iVBORw0KGgo",
        " ",
    ]
    passed = 0
    for _ in range(3000):
        value: Any = dice.choice([1, True, None, 2.5, "plain"])
        for _ in range(dice.randrange(1, 4)):
            word = dice.choice(words) if dice.random() < 0.4 else "plain"
            value = dice.choice([{word: value}, [word, value], {"a": value, "b": word}])
        text = msgspec.json.encode(value).decode()
        if REDACTOR.has_nothing_to_mask(text):
            passed += 1
            assert REDACTOR.redact(value) == value
    assert passed > 300
