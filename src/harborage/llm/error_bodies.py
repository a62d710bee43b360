"""What an error body says, in whichever shape a provider writes it. Pure; what it means is `http_errors`' business."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["Said", "said", "status_of"]

_MOST_LOOKED_AT = 4000


class Said(msgspec.Struct, frozen=True):
    """What an error body says, whoever wrote it: the message, and the code, type and status words beside it."""

    message: str = ""
    words: str = ""

    @property
    def text(self) -> str:
        """What was said, in lower case, for looking things up in; of a message that quotes a prompt, the beginning."""
        return f"{self.words} {self.message[:_MOST_LOOKED_AT]}".lower()


_WORDS = ("code", "type", "status", "param", "reason")


def said(body: bytes) -> Said:
    """What an error body says, in whichever of the providers' shapes it comes; text that is no JSON is the message."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError):
        return Said(_plain(body))
    if isinstance(value, list):
        value = value[0] if value else {}
    if not isinstance(value, dict):
        return Said(str(value))
    inner = value.get("error")
    if isinstance(inner, dict):
        return Said(_message(inner), _words(inner))
    message = inner if isinstance(inner, str) and inner else _message(value)
    return Said(message or _compact(value), _words(value))


def _message(error: Mapping[str, Any]) -> str:
    """The message, and behind it the one that a provider behind the provider gave."""
    message = _text(error.get("message")) or _text(error.get("detail")) or _text(error.get("msg"))
    metadata = error.get("metadata")
    raw = _text(metadata.get("raw")) if isinstance(metadata, dict) else ""
    if not raw:
        return message
    below = said(raw.encode()).message if raw.lstrip().startswith(("{", "[")) else raw
    return f"{message}: {below}" if message else below


def _words(error: Mapping[str, Any]) -> str:
    words = [str(error[name]) for name in _WORDS if isinstance(error.get(name), (str, int))]
    details = error.get("details")
    if isinstance(details, list):
        words += [str(detail["reason"]) for detail in details if isinstance(detail, dict) and "reason" in detail]
    return " ".join(words)


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else _compact(value)


def _compact(value: object) -> str:
    return msgspec.json.encode(value).decode()


_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^>]*>")


def _plain(body: bytes) -> str:
    """Text for a person out of a body that is no JSON; of a web page, its title."""
    text = body.decode("utf-8", "replace")
    title = _TITLE.search(text)
    return title.group(1) if title else _TAG.sub(" ", text)


# What providers call a failure where no status says it, in the order in which they are looked for.
_STATUS_WORDS: tuple[tuple[str, int], ...] = (
    ("overloaded", 529),
    ("rate_limit", 429),
    ("resource_exhausted", 429),
    ("insufficient_quota", 402),
    ("billing_error", 402),
    ("authentication_error", 401),
    ("unauthenticated", 401),
    ("permission", 403),
    ("not_found", 404),
    ("request_too_large", 413),
    ("timeout", 408),
    ("deadline_exceeded", 504),
    ("unavailable", 503),
    ("invalid_request", 400),
    ("invalid_argument", 400),
    ("context_length", 400),
    ("bad_request", 400),
    ("badrequest", 400),
)
_STATUS_NUMBER = re.compile(r"\b([45]\d\d)\b")


def status_of(told: Said) -> int | None:
    """The HTTP status that an error spells as its code, or that its type stands for; None when it says neither."""
    words = told.words.lower()
    number = _STATUS_NUMBER.search(words)
    if number:
        return int(number.group(1))
    return next((status for word, status in _STATUS_WORDS if word in words), None)
