"""What the errors of memory say."""

from __future__ import annotations

from harborage.memory import MemoryIdentityError


def test_missing_parts_are_listed_in_words() -> None:
    """One part alone, two with "and", three with a comma and "and"."""
    said = {
        ("tenant_id",): "tenant_id empty",
        ("tenant_id", "user_id"): "tenant_id and user_id empty",
        ("tenant_id", "user_id", "session_id"): "tenant_id, user_id and session_id empty",
    }
    for missing, text in said.items():
        assert str(MemoryIdentityError(missing)) == text
