"""Secrets taken out of what people keep, such as cassettes and frozen runs: by name, by shape and by value."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from harborage.events.redaction import KEY_RULES, MASK, PatternRedactor

_NAMES: Final = "|".join(re.escape(key) for _, keys in KEY_RULES for key in sorted(keys, key=len, reverse=True))
_SHORTEST_SECRET: Final = 8

# A field of JSON inside a text, with its quotes as they are, or escaped once because it is JSON inside JSON.
_JSON_FIELDS: Final = (
    re.compile(rf"""("(?:{_NAMES})"\s*:\s*")(?:[^"\\]|\\.)*(")""", re.IGNORECASE | re.DOTALL),
    re.compile(
        rf"""(\\"(?:{_NAMES})\\"\s*:\s*\\")(?:[^"\\]|\\\\(?:\\"|\\\\|[^"\\]))*(\\")""", re.IGNORECASE | re.DOTALL
    ),
)
_QUERY_FIELD: Final = re.compile(
    r"""([?&](?:api_?key|key|token|access_token|sig|signature|password|secret)=)[^&\s"'<>\\]+""", re.IGNORECASE
)
_USERINFO: Final = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s/@:\"']+:[^\s/@\"']+@", re.IGNORECASE)
_SHAPES: Final = re.compile(
    r"\b(?:"
    r"sk-[A-Za-z0-9_-]{16,}|"
    r"(?:gsk|xai|pplx|hf|r8|csk|nvapi|fw|tgp)[-_][A-Za-z0-9_-]{20,}|"
    r"gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|"
    r"xox[a-z]-[A-Za-z0-9-]{10,}|"
    r"AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,}|"
    r"(?:AKIA|ASIA)[A-Z0-9]{16}|"
    r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"
    r")"
)
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)


class Scrubber:
    """Takes secrets out of plain data and texts; `secrets` are values that are hidden wherever they occur."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._redactor = PatternRedactor()
        long_enough = {secret for secret in secrets if len(secret) >= _SHORTEST_SECRET}
        # The longest first: one secret may be the beginning of another.
        listed = sorted(long_enough, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, listed))) if listed else None

    def plain(self, value: Any) -> Any:
        """A copy of plain JSON data without secrets.

        Raises:
            RedactionFailedError: it is nested too deeply to be looked through.
        """
        return self._walked(self._redactor.redact(value))

    def text(self, text: str) -> str:
        """A text without secrets."""
        return self._shapes(str(self._redactor.redact(text)))

    def _walked(self, value: Any) -> Any:
        match value:
            case str():
                return self._shapes(value)
            case dict():
                return {key: self._walked(inner) for key, inner in value.items()}
            case list() | tuple():
                return [self._walked(inner) for inner in value]
            case _:
                return value

    def _shapes(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(MASK, text)
        for field in _JSON_FIELDS:
            text = field.sub(rf"\1{MASK}\2", text)
        text = _PRIVATE_KEY.sub(MASK, text)
        text = _USERINFO.sub(rf"\1{MASK}@", text)
        text = _QUERY_FIELD.sub(rf"\1{MASK}", text)
        return _SHAPES.sub(MASK, text)
