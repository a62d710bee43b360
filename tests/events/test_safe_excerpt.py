"""Excerpts are redacted before they are cut."""

from __future__ import annotations

from typing import Any

import pytest

from harborage.events import PatternRedactor, safe_excerpt
from harborage.llm.openai_compat.connection import connection_error
from harborage.runtime.loop.outcome import bounded

SECRET = "correct-horse-battery-staple-0123456789"


class Broken:
    """Cannot redact."""

    def redact(self, value: Any) -> Any:
        raise RuntimeError(value)


def _traces(text: str) -> list[int]:
    """The lengths from which a beginning of the secret is in the text."""
    return [length for length in range(8, len(SECRET) + 1) if SECRET[:length] in text]


def test_a_secret_across_any_cut_leaves_no_part_of_itself() -> None:
    """Wherever the cut falls within the secret, no eight characters of its beginning are left."""
    by = PatternRedactor([SECRET])
    for before in range(130):
        text = safe_excerpt("x " * (before // 2) + "x" * (before % 2) + SECRET + " tail", 100, by)
        assert len(text) <= 100
        assert not _traces(text), (before, text)


def test_errors_of_tools_and_connections_and_outcomes_are_redacted_before_they_are_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each place that shortens an error's text does it after the secrets are out."""
    monkeypatch.setenv("SERVICE_API_KEY", SECRET)
    cuts = {
        "an outcome": (4_000, bounded),
        "a connection": (200, lambda text: str(connection_error(OSError(text), provider="p", model="m", address="a"))),
    }
    for name, (most, cut) in cuts.items():
        for inside in (10, 20, 30):
            assert not _traces(cut("x" * (most - inside - 1) + " " + SECRET + " tail")), (name, inside)


def test_nothing_passes_a_redactor_that_fails() -> None:
    """Only the length of the text is given."""
    assert safe_excerpt("a " + SECRET, 100, Broken()) == f"[{len(SECRET) + 2} characters withheld: redaction failed]"
