"""Redactors of tests."""

from __future__ import annotations

from typing import Any


class NoopRedactor:
    """Returns every value unchanged."""

    def redact(self, value: Any) -> Any:
        return value
