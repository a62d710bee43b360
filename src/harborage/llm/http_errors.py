"""The meaning of a refusal: statuses, error bodies and headers become typed errors.

Pure: it sends nothing, waits for nothing and knows no client library. Drivers over libraries pass what their exceptions
carry, so that the same refusal is the same error with every driver.

    402 · no credit                        QuotaExceededError
    429                                    RateLimitedError
    400 … · no tools                       ToolsUnsupportedError
    413 · the prompt is too long           ContextOverflowError
    404 · unknown model                    ModelNotFoundError
    401 · 403 · bad key                    AuthenticationFailedError
    400 … · schema or structured output    InvalidJSONSchemaError
    400 · the model wrote a broken call    MalformedAnswerError
    408 · 504 · 524                        ProviderTimeoutError
    5xx                                    ProviderUnavailableError
    anything else                          BadRequestError
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec

from harborage.clock import SYSTEM_CLOCK
from harborage.events import safe_excerpt
from harborage.llm.errors import (
    AuthenticationFailedError,
    BadRequestError,
    ContextOverflowError,
    InvalidJSONSchemaError,
    MalformedAnswerError,
    ModelNotFoundError,
    ProviderError,
    ProviderTimeoutError,
    ProviderUnavailableError,
    QuotaExceededError,
    RateLimitedError,
    Retry,
    ToolsUnsupportedError,
)

Refusal: TypeAlias = ProviderError | InvalidJSONSchemaError
"""The error for a refusal; only a refused schema is no `ProviderError`, as a weaker mode is tried instead."""

_LONGEST_MESSAGE = 400
_MOST_SEARCHED = 4000
_TIMEOUTS = frozenset({408, 504, 524})


def error_from_status(
    status: int,
    body: bytes,
    headers: Mapping[str, str],
    *,
    provider: str,
    model: str,
    key_variable: str = "",
    secret: str = "",
) -> Refusal:
    """Return the error for a status and its body: `<provider>: status N: <message of the provider, cut short>`.

    `key_variable` is named when the key is refused; `secret` is the key itself, so that a server that repeats it in its
    message does not get it into a log.
    """
    reply = read_error_body(body)
    seconds = retry_after(headers)
    if seconds is None:
        seconds = seconds_in_body(body)
    head = f"{provider}: status {status}"
    return _error(head, status, reply, provider=provider, model=model, seconds=seconds, key=(key_variable, secret))


def error_in_stream(body: bytes, *, provider: str, model: str, key_variable: str = "", secret: str = "") -> Refusal:
    """Return the error that a provider reports inside an answer that began with a status of 200.

    The status comes from a number or a word of the body; without either the failure counts as the provider's own.
    """
    reply = read_error_body(body)
    status = find_status(reply) or 500
    head = f"{provider}: in the middle of the answer"
    seconds = seconds_in_body(body)
    return _error(head, status, reply, provider=provider, model=model, seconds=seconds, key=(key_variable, secret))


def _error(
    head: str, status: int, reply: ErrorBody, *, provider: str, model: str, seconds: float | None, key: tuple[str, str]
) -> Refusal:
    kind = _kind(status, reply)
    variable, secret = key
    message = _clipped(_without_keys(reply.message, secret)) or "the provider gave no reason"
    text = f"{head}: {message}{_advice(kind, status, provider, model, variable)}"
    if kind is InvalidJSONSchemaError:
        return InvalidJSONSchemaError(text)
    assert issubclass(kind, ProviderError)
    wait = seconds if kind.retry is Retry.SAFE else None
    return kind(text, provider=provider, model=model, status=status, retry_after_s=wait)


# Patterns are texts, so that a process whose providers refuse nothing compiles none of them.
def _any_of(*alternatives: str) -> str:
    return "|".join(alternatives)


_NO_CREDIT = _any_of(
    r"insufficient_quota",
    r"credit balance is too low",
    r"insufficient (?:balance|credit|fund)",
    r"requires more credits",
    r"billing_(?:hard_limit|error|not_active)",
    r"key limit exceeded",
)
_NO_TOOLS = _any_of(
    r"not support (?:the use of )?(?:native )?(?:tool|function)",
    r"(?:tools?|(?:tool|function)[ _](?:use|choice|call(?:s|ing)?))[`'\"]? (?:is|are) not (?:enabled|supported)",
    r"no endpoints found that support tool use",
    r"tool choice requires --enable",
    r"tools? param requires --jinja",
)
_TOO_LONG = _any_of(
    r"context_length_exceeded",
    r"exceed_context_size",
    r"maximum context length",
    r"maximum prompt length",
    r"(?:prompt|input|request|conversation) (?:is )?too (?:long|large)",
    r"exceeds? (?:the |this |its |model'?s? |available |maximum |allowed )*context",
    r"context (?:window|length|size|limit)[^.]*exceed",
    r"exceeds? the maximum number of (?:input )?tokens",
    r"reduce the length of the (?:messages|prompt|input)",
    r"too many (?:input )?tokens",
    r"request_too_large",
)
_BAD_KEY = _any_of(
    r"api[ _]key not valid", r"(?:incorrect|invalid)[ _]api[ _]key", r"api_key_invalid", r"authentication_error"
)
_NO_MODEL = _any_of(
    r"model_not_found",
    r"model_not_available",
    r"model_decommissioned",
    r"invalid[ _]model",
    r"not a valid model",
    r"model\b[^.]{0,200}? (?:was |is |are )?(?:not found|not exist|no longer available|decommissioned)",
    r"model\b.{0,200}? (?:does not exist|not found)",
    r"unknown model",
    r"no such model",
)
_FLAGGED = _any_of(r"moderation", r"flagged", r"content[ _](?:policy|filter)")
_BAD_SCHEMA = _any_of(
    r"response_?format",
    r"response_?(?:json_?)?schema",
    r"json[ _]schema",
    r"structured[ _]output",
    r"json[ _]mode",
    r"json_object",
    r"json_validate_failed",
    r"output_(?:format|config)",
    r"guided_",
    r"parse grammar",
)
_BAD_TOOL_SCHEMA = _any_of(r"schema for function", r"tools[.\[]\d", r"function_declarations", r"invalid_function_param")
_BROKEN_CALL = _any_of(r"tool_use_failed", r"malformed_function_call")


def _kind(status: int, reply: ErrorBody) -> type[ProviderError | InvalidJSONSchemaError]:
    """Return the class of error; particular reasons come first, as providers give them different statuses."""
    text = reply.text
    if status == 402 or re.search(_NO_CREDIT, text):
        return QuotaExceededError
    if status == 429:
        return RateLimitedError
    if re.search(_NO_TOOLS, text):
        return ToolsUnsupportedError
    if status == 413 or re.search(_TOO_LONG, text):
        return ContextOverflowError
    if status < 500 and (found := _caller_kind(status, text)) is not None:
        return found
    if status in (400, 422, 500, 501) and re.search(_BAD_SCHEMA, text) and not re.search(_BAD_TOOL_SCHEMA, text):
        return InvalidJSONSchemaError
    if status in _TIMEOUTS:
        return ProviderTimeoutError
    return ProviderUnavailableError if status >= 500 and status != 501 else BadRequestError


def _caller_kind(status: int, text: str) -> type[ProviderError] | None:
    """Return the class for a wrong model name, a wrong key or an unreadable call of the model; None for others."""
    if re.search(_BROKEN_CALL, text):
        return MalformedAnswerError
    if re.search(_NO_MODEL, text) or (status == 404 and "model" in text):
        return ModelNotFoundError
    if status == 403 and re.search(_FLAGGED, text):
        return BadRequestError
    if status in (401, 403) or re.search(_BAD_KEY, text):
        return AuthenticationFailedError
    return None


def _advice(kind: type[Exception], status: int, provider: str, model: str, variable: str) -> str:
    if kind is AuthenticationFailedError:
        return f"; check the key in {variable}" if variable else "; check llm.api_key"
    if kind is ModelNotFoundError and provider == "ollama":
        return f"; `ollama pull {model}` gets it"
    if kind is ModelNotFoundError:
        return f"; check the model name {model!r}"
    if kind is BadRequestError and (status in (404, 405) or 300 <= status < 400):
        return "; check llm.base_url"
    return ""


_LOOKS_LIKE_A_KEY = r"\b(?:sk|gsk|xai|csk|fw|pplx|nvapi|hf|AIza|key)[-_*]?[A-Za-z0-9*_\-]{12,}"


def _without_keys(text: str, secret: str) -> str:
    if secret:
        text = text.replace(secret, "***")
    return re.sub(_LOOKS_LIKE_A_KEY, "***", text)


def _clipped(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_MESSAGE else safe_excerpt(text, _LONGEST_MESSAGE)


# ── Error bodies, in the shape of any provider ──────────────────────────────────────────────────────────────────────


class ErrorBody(msgspec.Struct, frozen=True):
    """The message of an error body, and the words of its code, type and status."""

    message: str = ""
    words: str = ""

    @property
    def text(self) -> str:
        """The words and the message in lower case, to search in; of a message that quotes a prompt, the beginning."""
        return f"{self.words} {self.message[:_MOST_SEARCHED]}".lower()


_WORDS = ("code", "type", "status", "param", "reason")


def read_error_body(body: bytes) -> ErrorBody:
    """Return the contents of an error body in any provider's shape; text that is no JSON is the message."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError):
        return ErrorBody(_plain(body))
    if isinstance(value, list):
        value = value[0] if value else {}
    if not isinstance(value, dict):
        return ErrorBody(str(value))
    inner = value.get("error")
    if isinstance(inner, dict):
        return ErrorBody(_message(inner), _words(inner))
    message = inner if isinstance(inner, str) and inner else _message(value)
    return ErrorBody(message or _compact(value), _words(value))


def _message(error: Mapping[str, Any]) -> str:
    """Return the message, followed by that of a provider behind the provider."""
    message = _text(error.get("message")) or _text(error.get("detail")) or _text(error.get("msg"))
    metadata = error.get("metadata")
    raw = _text(metadata.get("raw")) if isinstance(metadata, dict) else ""
    if not raw:
        return message
    below = read_error_body(raw.encode()).message if raw.lstrip().startswith(("{", "[")) else raw
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


def _plain(body: bytes) -> str:
    """Return the text of a body that is no JSON; of a web page, its title."""
    text = body.decode("utf-8", "replace")
    title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
    return title.group(1) if title else re.sub(r"<[^>]*>", " ", text)


# The words by which providers name a failure without a status, in the order of the search.
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
_STATUS_NUMBER = r"\b([45]\d\d)\b"


def find_status(reply: ErrorBody) -> int | None:
    """Return the HTTP status in the code of an error, or the one of its type; None without either."""
    words = reply.words.lower()
    number = re.search(_STATUS_NUMBER, words)
    if number:
        return int(number.group(1))
    return next((status for word, status in _STATUS_WORDS if word in words), None)


# ── The wait that a provider asks for ───────────────────────────────────────────────────────────────────────────────

_NUMBER = r"\d+(?:\.\d+)?|\.\d+"
_SPAN = r"(?:\d+(?:\.\d+)?(?:ms|h|m|s|d))+"
_PIECE = r"(\d+(?:\.\d+)?)(ms|h|m|s|d)"
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_RESET = "x-ratelimit-reset-"
# In the body of Google's services.
_RETRY_DELAY = rb'"retryDelay"\s*:\s*"(\d+(?:\.\d+)?)s"'


def retry_after(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """Return the seconds to wait before a repeat, never negative; None when no header asks for a wait.

    `retry-after-ms` comes first, then `Retry-After` (seconds or an HTTP date), then the `x-ratelimit-reset-*` of every
    limit that is used up. A date is compared with the answer's own `Date`, else with `now`, else with the clock.
    """
    plain = {name.lower(): value.strip() for name, value in headers.items()}
    milliseconds = _number(plain.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value = plain.get("retry-after", "")
    seconds = _number(value)
    if seconds is None and value:
        seconds = _until(value, _date(plain.get("date", "")) or now or SYSTEM_CLOCK.now())
    return seconds if seconds is not None else _reset(plain)


def seconds_in_body(body: bytes) -> float | None:
    """Return the delay in seconds that an error body asks for, as those of Google do; None without one."""
    found = re.search(_RETRY_DELAY, body)
    return float(found.group(1)) if found else None


def _number(value: str) -> float | None:
    return float(value) if re.fullmatch(_NUMBER, value) else None


def _date(value: str) -> datetime | None:
    from email.utils import parsedate_to_datetime  # slow to import, and hardly any refusal has a date

    try:
        date = parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


def _until(value: str, now: datetime) -> float | None:
    date = _date(value)
    return None if date is None else max(0.0, (date - now).total_seconds())


def _reset(headers: Mapping[str, str]) -> float | None:
    """Return the longest reset among the limits that are used up, such as `1s`, `6m0s`, `120ms`."""
    waits = [
        _span(value)
        for name, value in headers.items()
        if name.startswith(_RESET) and headers.get(f"x-ratelimit-remaining-{name.removeprefix(_RESET)}", "0") == "0"
    ]
    return max((wait for wait in waits if wait is not None), default=None)


def _span(value: str) -> float | None:
    if not re.fullmatch(_SPAN, value):
        return _number(value)
    return sum(float(amount) * _UNITS[unit] for amount, unit in re.findall(_PIECE, value))
