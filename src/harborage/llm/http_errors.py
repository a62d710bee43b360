"""What a provider's refusal means: one place where statuses, error bodies and headers become typed errors.

Pure: it sends nothing, sleeps for nothing and knows no client library. Drivers over SDKs hand in what their exceptions
carry, so that the same refusal is the same error whichever way it was asked for.

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
from typing import TypeAlias

from harborage.events import safe_excerpt
from harborage.llm.error_bodies import Said, said, status_of
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
from harborage.llm.retry_after import retry_after, seconds_in_body

__all__ = ["Refusal", "error_from_status", "error_in_stream", "retry_after"]

Refusal: TypeAlias = ProviderError | InvalidJSONSchemaError
"""What a refusal becomes; only a refused schema is no `ProviderError`, as a weaker mode is tried instead."""

_LONGEST_MESSAGE = 400
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
    """The error that a status and its body stand for: `<provider>: status N: <what the provider said, cut short>`.

    `key_variable` is named when the key is refused; `secret` is the key itself, so that a server that repeats it in its
    message does not get it into a log.
    """
    told = said(body)
    seconds = retry_after(headers)
    if seconds is None:
        seconds = seconds_in_body(body)
    head = f"{provider}: status {status}"
    return _error(head, status, told, provider=provider, model=model, seconds=seconds, key=(key_variable, secret))


def error_in_stream(body: bytes, *, provider: str, model: str, key_variable: str = "", secret: str = "") -> Refusal:
    """The error that a provider reports inside an answer that began well, with a status of 200.

    The status is the one that the body spells or that its words stand for; a failure that says nothing of itself is the
    provider's own.
    """
    told = said(body)
    status = status_of(told) or 500
    head = f"{provider}: in the middle of the answer"
    seconds = seconds_in_body(body)
    return _error(head, status, told, provider=provider, model=model, seconds=seconds, key=(key_variable, secret))


def _error(
    head: str, status: int, told: Said, *, provider: str, model: str, seconds: float | None, key: tuple[str, str]
) -> Refusal:
    kind = _kind(status, told)
    variable, secret = key
    message = _clipped(_without_keys(told.message, secret)) or "the provider gave no reason"
    text = f"{head}: {message}{_advice(kind, status, provider, model, variable)}"
    if kind is InvalidJSONSchemaError:
        return InvalidJSONSchemaError(text)
    assert issubclass(kind, ProviderError)
    wait = seconds if kind.retry is Retry.SAFE else None
    return kind(text, provider=provider, model=model, status=status, retry_after_s=wait)


def _pattern(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives))


_NO_CREDIT = _pattern(
    r"insufficient_quota",
    r"credit balance is too low",
    r"insufficient (?:balance|credit|fund)",
    r"requires more credits",
    r"billing_(?:hard_limit|error|not_active)",
    r"key limit exceeded",
)
_NO_TOOLS = _pattern(
    r"not support (?:the use of )?(?:native )?(?:tool|function)",
    r"(?:tools?|(?:tool|function)[ _](?:use|choice|call(?:s|ing)?))[`'\"]? (?:is|are) not (?:enabled|supported)",
    r"no endpoints found that support tool use",
    r"tool choice requires --enable",
    r"tools? param requires --jinja",
)
_TOO_LONG = _pattern(
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
_BAD_KEY = _pattern(
    r"api[ _]key not valid", r"(?:incorrect|invalid)[ _]api[ _]key", r"api_key_invalid", r"authentication_error"
)
_NO_MODEL = _pattern(
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
_FLAGGED = _pattern(r"moderation", r"flagged", r"content[ _](?:policy|filter)")
_BAD_SCHEMA = _pattern(
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
_BAD_TOOL_SCHEMA = _pattern(
    r"schema for function", r"tools[.\[]\d", r"function_declarations", r"invalid_function_param"
)
_BROKEN_CALL = _pattern(r"tool_use_failed", r"malformed_function_call")


def _kind(status: int, told: Said) -> type[ProviderError | InvalidJSONSchemaError]:
    """The class of error; the more particular reasons come first, as providers differ in the status they give them."""
    text = told.text
    if status == 402 or _NO_CREDIT.search(text):
        return QuotaExceededError
    if status == 429:
        return RateLimitedError
    if _NO_TOOLS.search(text):
        return ToolsUnsupportedError
    if status == 413 or _TOO_LONG.search(text):
        return ContextOverflowError
    if status < 500 and (found := _of_the_caller(status, text)) is not None:
        return found
    if status in (400, 422, 500, 501) and _BAD_SCHEMA.search(text) and not _BAD_TOOL_SCHEMA.search(text):
        return InvalidJSONSchemaError
    if status in _TIMEOUTS:
        return ProviderTimeoutError
    return ProviderUnavailableError if status >= 500 and status != 501 else BadRequestError


def _of_the_caller(status: int, text: str) -> type[ProviderError] | None:
    """What a caller can mend: the model's name, the key; or a model that wrote what its provider cannot read."""
    if _BROKEN_CALL.search(text):
        return MalformedAnswerError
    if _NO_MODEL.search(text) or (status == 404 and "model" in text):
        return ModelNotFoundError
    if status == 403 and _FLAGGED.search(text):
        return BadRequestError
    if status in (401, 403) or _BAD_KEY.search(text):
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


_SPACE = re.compile(r"\s+")
_LOOKS_LIKE_A_KEY = re.compile(r"\b(?:sk|gsk|xai|csk|fw|pplx|nvapi|hf|AIza|key)[-_*]?[A-Za-z0-9*_\-]{12,}")


def _without_keys(text: str, secret: str) -> str:
    if secret:
        text = text.replace(secret, "***")
    return _LOOKS_LIKE_A_KEY.sub("***", text)


def _clipped(text: str) -> str:
    text = _SPACE.sub(" ", text).strip()
    return text if len(text) <= _LONGEST_MESSAGE else safe_excerpt(text, _LONGEST_MESSAGE)
