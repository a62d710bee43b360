"""Texts of tasks are kept without their secrets, and results are always JSON."""

from __future__ import annotations

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from harborage.events import PatternRedactor, RedactionFailedError
from harborage.tasks import TaskFailure
from harborage.tasks.requests import redacted_failure, redacted_result, redacted_text
from harborage.testing.events import FailingRedactor
from tests.kit.redactors import NoopRedactor
from tests.kit.tables import each_row


class Shouting:
    """A redactor that gives back something other than text."""

    def redact(self, value: object) -> object:
        """The value inside a list."""
        return [value]


def test_texts_are_redacted() -> None:
    """Text goes through the redactor; without one it stays, and empty text is not asked about."""
    assert redacted_text(PatternRedactor(), "use Bearer abc") == "use Bearer ***"
    assert redacted_text(None, "use Bearer abc") == "use Bearer abc"
    assert redacted_text(FailingRedactor(), "") == ""
    assert redacted_text(Shouting(), "x") == '["x"]'


def test_a_failures_message_is_redacted_and_its_code_stays() -> None:
    """Only the message is free text."""
    failure = TaskFailure("Bearer abc", "Bearer abc")
    assert redacted_failure(PatternRedactor(), failure) == TaskFailure("Bearer abc", "Bearer ***")
    assert redacted_failure(None, failure) is failure
    assert redacted_failure(FailingRedactor(), TaskFailure("code")) == TaskFailure("code")


@each_row(
    "result, wanted",
    [
        (b'{"token": "x", "tokens": 5}', b'{"token":"***","tokens":5}'),
        (b'"Bearer abc"', b'"Bearer ***"'),
        (b"Bearer abc {", b'"Bearer *** {"'),
        (b"", b""),
        (b"null", b"null"),
        (b"[" * 5000, None),
    ],
)
def test_results_are_redacted_by_structure_or_as_text(result: bytes, wanted: bytes | None) -> None:
    """JSON is redacted by structure, other text as one string; empty stays empty, hopeless nesting becomes text."""
    got = redacted_result(PatternRedactor(), result)
    assert got == wanted if wanted is not None else msgspec.json.decode(got) == result.decode()


def test_json_without_a_redactor_is_kept_byte_for_byte() -> None:
    """The exact text matters where nothing has to be taken out; other text still becomes a JSON string."""
    assert redacted_result(None, b'{"b": 1, "a": 1.0}') == b'{"b": 1, "a": 1.0}'
    assert redacted_result(None, b"plain") == b'"plain"'


@given(st.binary())
def test_a_kept_result_is_json_or_empty(result: bytes) -> None:
    """Whatever a tool wrote, what is kept can be read as JSON."""
    for redactor in (None, NoopRedactor(), PatternRedactor()):
        kept = redacted_result(redactor, result)
        assert not kept if not result else msgspec.json.encode(msgspec.json.decode(kept))


def test_a_failing_redactor_fails_the_operation() -> None:
    """Nothing unredacted is kept instead."""
    for call in (redacted_text, redacted_result):
        with pytest.raises(RedactionFailedError):
            call(FailingRedactor(), "text" if call is redacted_text else b"1")  # type: ignore[operator]
