"""What the errors of memory say. How memory is set, and how its sizes are estimated."""

from __future__ import annotations

import pytest

from harborage.errors import InvalidOptionError
from harborage.memory import Memory, MemoryIdentityError, MemoryStrategy, Turn
from harborage.memory.values import estimate_summary, estimate_turns


def test_missing_parts_are_listed_in_words() -> None:
    """One part alone, two with "and", three with a comma and "and"."""
    said = {
        ("tenant_id",): "tenant_id empty",
        ("tenant_id", "user_id"): "tenant_id and user_id empty",
        ("tenant_id", "user_id", "session_id"): "tenant_id, user_id and session_id empty",
    }
    for missing, text in said.items():
        assert str(MemoryIdentityError(missing)) == text


def test_sizes_are_bytes_by_four_rounded_up() -> None:
    """Each side of a turn, and a summary, counts a quarter of its UTF-8 bytes and one; a blank summary nothing."""
    table = {("", ""): 2, ("12345678", "123"): 4, ("éééé", "x"): 4}
    for (user, assistant), tokens in table.items():
        assert estimate_turns((Turn(user_message=user, assistant_response=assistant),)) == tokens, (user, assistant)
    assert [estimate_summary(text) for text in ("", "  \n", "1234", "é" * 4)] == [0, 0, 2, 3]


def test_a_setting_that_cannot_work_is_refused() -> None:
    """An unknown strategy lists those there are; a negative or fractional number names its setting."""
    with pytest.raises(InvalidOptionError, match=r"no memory strategy 'truncate'.*none, truncation, rolling_summary"):
        Memory(strategy="truncate")
    for field, value in {"tokens": -1, "backlog": -1, "summary_timeout_s": 0}.items():
        with pytest.raises(InvalidOptionError, match=field):
            Memory(**{field: value})
    for field in ("tokens", "backlog"):
        with pytest.raises(InvalidOptionError, match=field):
            Memory(**{field: True})
    assert Memory(strategy="truncation").strategy is MemoryStrategy.TRUNCATION
