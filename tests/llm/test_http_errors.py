"""What the refusals of real providers become: their bodies, as they send them, and the errors that callers see."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from harborage.llm import (
    AuthenticationFailedError,
    BadRequestError,
    ContextOverflowError,
    InvalidJSONSchemaError,
    LLMError,
    MalformedAnswerError,
    ModelNotFoundError,
    ProviderError,
    ProviderTimeoutError,
    ProviderUnavailableError,
    QuotaExceededError,
    RateLimitedError,
    ToolsUnsupportedError,
)
from harborage.llm.http_errors import error_from_status, error_in_stream, retry_after
from tests.kit.tables import each_row


def body(value: object) -> bytes:
    return msgspec.json.encode(value)


def openai(message: str, type: str = "invalid_request_error", code: str | None = None, param: str | None = None):
    return body({"error": {"message": message, "type": type, "param": param, "code": code}})


def anthropic(type: str, message: str):
    return body({"type": "error", "error": {"type": type, "message": message}, "request_id": "req_011"})


def google(code: int, message: str, status: str, details: list[object] | None = None):
    return body({"error": {"code": code, "message": message, "status": status, "details": details or []}})


CASES: list[tuple[str, int, bytes, type[LLMError]]] = [
    # OpenAI
    (
        "openai",
        401,
        openai("Incorrect API key provided: sk-abc*****wxyz. Find your API key at …", code="invalid_api_key"),
        AuthenticationFailedError,
    ),
    (
        "openai",
        404,
        openai("The model `gpt-9` does not exist or you do not have access to it.", code="model_not_found"),
        ModelNotFoundError,
    ),
    (
        "openai",
        403,
        openai("Project `proj_1` does not have access to model `gpt-9`", code="model_not_found"),
        ModelNotFoundError,
    ),
    (
        "openai",
        429,
        openai(
            "You exceeded your current quota, please check your plan and billing details.",
            "insufficient_quota",
            "insufficient_quota",
        ),
        QuotaExceededError,
    ),
    (
        "openai",
        429,
        openai("Rate limit reached for gpt-5 on requests per min (RPM)", "requests", "rate_limit_exceeded"),
        RateLimitedError,
    ),
    (
        "openai",
        400,
        openai(
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 130001 tokens.",
            code="context_length_exceeded",
            param="messages",
        ),
        ContextOverflowError,
    ),
    (
        "openai",
        400,
        openai(
            "Invalid schema for response_format 'answer': In context=(), 'additionalProperties' is required to be "
            "supplied and to be false.",
            param="response_format",
        ),
        InvalidJSONSchemaError,
    ),
    (
        "openai",
        400,
        openai(
            "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.",
            param="response_format",
        ),
        InvalidJSONSchemaError,
    ),
    (
        "openai",
        400,
        openai(
            "Invalid schema for function 'add': 'strng' is not valid under any of the given schemas.",
            code="invalid_function_parameters",
            param="tools[0].function.parameters",
        ),
        BadRequestError,
    ),
    (
        "openai",
        400,
        openai("max_tokens is too large: 99999. This model supports at most 16384 completion tokens."),
        BadRequestError,
    ),
    (
        "openai",
        500,
        openai("The server had an error while processing your request.", "server_error"),
        ProviderUnavailableError,
    ),
    (
        "openai",
        503,
        b"<html><head><title>503 Service Temporarily Unavailable</title></head></html>",
        ProviderUnavailableError,
    ),
    # Anthropic
    ("anthropic", 401, anthropic("authentication_error", "invalid x-api-key"), AuthenticationFailedError),
    ("anthropic", 404, anthropic("not_found_error", "model: claude-nine"), ModelNotFoundError),
    ("anthropic", 429, anthropic("rate_limit_error", "This request would exceed your rate limit"), RateLimitedError),
    ("anthropic", 529, anthropic("overloaded_error", "Overloaded"), ProviderUnavailableError),
    ("anthropic", 500, anthropic("api_error", "Internal server error"), ProviderUnavailableError),
    ("anthropic", 504, anthropic("timeout_error", "Request timed out"), ProviderTimeoutError),
    (
        "anthropic",
        400,
        anthropic("invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum"),
        ContextOverflowError,
    ),
    (
        "anthropic",
        400,
        anthropic(
            "invalid_request_error", "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"
        ),
        ContextOverflowError,
    ),
    (
        "anthropic",
        400,
        anthropic("invalid_request_error", "Your credit balance is too low to access the Anthropic API."),
        QuotaExceededError,
    ),
    ("anthropic", 413, anthropic("request_too_large", "Request exceeds the maximum size"), ContextOverflowError),
    (
        "anthropic",
        400,
        anthropic("invalid_request_error", 'messages: roles must alternate between "user" and "assistant"'),
        BadRequestError,
    ),
    # Google
    (
        "google",
        400,
        google(
            400, "API key not valid. Please pass a valid API key.", "INVALID_ARGUMENT", [{"reason": "API_KEY_INVALID"}]
        ),
        AuthenticationFailedError,
    ),
    (
        "google",
        404,
        google(404, "models/gemini-9 is not found for API version v1beta, or is not supported", "NOT_FOUND"),
        ModelNotFoundError,
    ),
    (
        "google",
        429,
        google(429, "You exceeded your current quota, please check …", "RESOURCE_EXHAUSTED"),
        RateLimitedError,
    ),
    (
        "google",
        503,
        google(503, "The model is overloaded. Please try again later.", "UNAVAILABLE"),
        ProviderUnavailableError,
    ),
    (
        "google",
        400,
        google(
            400,
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            "INVALID_ARGUMENT",
        ),
        ContextOverflowError,
    ),
    (
        "google",
        400,
        google(400, "Function calling is not enabled for models/gemma-3-27b-it", "INVALID_ARGUMENT"),
        ToolsUnsupportedError,
    ),
    (
        "google",
        400,
        google(
            400,
            "Invalid JSON payload received. Unknown name \"oneOf\" at 'generation_config.response_schema'",
            "INVALID_ARGUMENT",
        ),
        InvalidJSONSchemaError,
    ),
    (
        "google",
        400,
        b"[" + google(400, "Please pass a valid API key: API key not valid.", "INVALID_ARGUMENT") + b"]",
        AuthenticationFailedError,
    ),
    (
        "google",
        504,
        google(504, "Deadline expired before operation could complete.", "DEADLINE_EXCEEDED"),
        ProviderTimeoutError,
    ),
    # OpenRouter
    (
        "openrouter",
        404,
        body({"error": {"message": "No endpoints found that support tool use.", "code": 404}}),
        ToolsUnsupportedError,
    ),
    (
        "openrouter",
        400,
        body({"error": {"message": "acme/nine is not a valid model ID", "code": 400}}),
        ModelNotFoundError,
    ),
    (
        "openrouter",
        402,
        body({"error": {"message": "This request requires more credits, or fewer max_tokens.", "code": 402}}),
        QuotaExceededError,
    ),
    (
        "openrouter",
        400,
        body(
            {
                "error": {
                    "message": "Provider returned error",
                    "code": 400,
                    "metadata": {
                        "raw": '{"error":{"message":"prompt is too long: 9 tokens > 8 maximum"}}',
                        "provider_name": "Acme",
                    },
                }
            }
        ),
        ContextOverflowError,
    ),
    (
        "openrouter",
        502,
        body({"error": {"message": "Your chosen model is down", "code": 502}}),
        ProviderUnavailableError,
    ),
    (
        "openrouter",
        403,
        body({"error": {"message": "acme/nine requires moderation. Your input was flagged.", "code": 403}}),
        BadRequestError,
    ),
    # vLLM
    (
        "vllm",
        404,
        body({"object": "error", "message": "The model `nine` does not exist.", "type": "NotFoundError", "code": 404}),
        ModelNotFoundError,
    ),
    (
        "vllm",
        400,
        body(
            {
                "error": {
                    "message": "This model's maximum context length is 4096 tokens. However, you requested 5000.",
                    "type": "BadRequestError",
                    "code": 400,
                }
            }
        ),
        ContextOverflowError,
    ),
    (
        "vllm",
        400,
        body(
            {
                "object": "error",
                "message": '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
                "type": "BadRequestError",
                "code": 400,
            }
        ),
        ToolsUnsupportedError,
    ),
    ("vllm", 422, body({"detail": [{"loc": ["body", "messages"], "msg": "Field required"}]}), BadRequestError),
    # Ollama
    (
        "ollama",
        404,
        body({"error": {"message": 'model "nine" not found, try pulling it first', "type": "not_found_error"}}),
        ModelNotFoundError,
    ),
    ("ollama", 404, body({"error": "model 'nine' not found"}), ModelNotFoundError),
    (
        "ollama",
        400,
        body({"error": {"message": "registry.ollama.ai/library/gemma:2b does not support tools", "type": "api_error"}}),
        ToolsUnsupportedError,
    ),
    # llama.cpp
    (
        "llamacpp",
        400,
        body(
            {
                "error": {
                    "code": 400,
                    "message": "the request exceeds the available context size, try increasing it",
                    "type": "exceed_context_size_error",
                    "n_prompt_tokens": 9000,
                    "n_ctx": 4096,
                }
            }
        ),
        ContextOverflowError,
    ),
    (
        "llamacpp",
        503,
        body({"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}),
        ProviderUnavailableError,
    ),
    (
        "llamacpp",
        401,
        body({"error": {"code": 401, "message": "Invalid API Key", "type": "authentication_error"}}),
        AuthenticationFailedError,
    ),
    (
        "llamacpp",
        500,
        body({"error": {"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"}}),
        ToolsUnsupportedError,
    ),
    (
        "llamacpp",
        400,
        body(
            {
                "error": {
                    "code": 400,
                    "message": "JSON schema conversion failed:\nUnrecognized schema",
                    "type": "invalid_request_error",
                }
            }
        ),
        InvalidJSONSchemaError,
    ),
    # Groq and others that speak OpenAI's protocol
    (
        "groq",
        413,
        openai(
            "Request too large for model `l` on tokens per minute (TPM): Limit 6000, Requested 8093",
            "tokens",
            "rate_limit_exceeded",
        ),
        ContextOverflowError,
    ),
    (
        "groq",
        400,
        openai(
            "Failed to call a function. Please adjust your prompt. See 'failed_generation'.", code="tool_use_failed"
        ),
        MalformedAnswerError,
    ),
    (
        "groq",
        400,
        openai("Failed to generate JSON. Please adjust your prompt.", code="json_validate_failed"),
        InvalidJSONSchemaError,
    ),
    ("groq", 400, openai("The model `old` has been decommissioned", code="model_decommissioned"), ModelNotFoundError),
    ("groq", 400, openai("`tool calling` is not supported with this model"), ToolsUnsupportedError),
    ("deepseek", 402, openai("Insufficient Balance", "unknown_error"), QuotaExceededError),
    (
        "mistral",
        400,
        body({"object": "error", "message": "Invalid model: nine", "type": "invalid_model", "code": "1500"}),
        ModelNotFoundError,
    ),
    ("mistral", 401, body({"message": "Unauthorized", "request_id": "1"}), AuthenticationFailedError),
    (
        "xai",
        400,
        body({"code": "Client specified an invalid argument", "error": "Incorrect API key provided: xa***yz."}),
        AuthenticationFailedError,
    ),
    (
        "xai",
        404,
        body({"code": "The requested resource was not found", "error": "The model grok-9 does not exist."}),
        ModelNotFoundError,
    ),
    # No provider at all
    ("custom", 404, b"404 page not found", BadRequestError),
    ("custom", 307, b"", BadRequestError),
    ("custom", 400, b"", BadRequestError),
    ("custom", 408, b"", ProviderTimeoutError),
    ("custom", 524, b"error code: 524", ProviderTimeoutError),
    ("custom", 502, b"\xff\xfe\x00", ProviderUnavailableError),
    ("custom", 501, b"not implemented", BadRequestError),
    ("custom", 500, b"[]", ProviderUnavailableError),
    ("custom", 500, b'"down"', ProviderUnavailableError),
]


@each_row("provider, status, content, wanted", CASES)
def test_a_provider_s_refusal_becomes_the_error_it_means(provider, status, content, wanted):
    """The body that a real provider sends becomes one typed error with provider, model and status."""
    error = error_from_status(status, content, {}, provider=provider, model="nine")
    assert type(error) is wanted
    assert str(error).startswith(f"{provider}: status {status}: ")
    if isinstance(error, ProviderError):
        assert (error.provider, error.model, error.status) == (provider, "nine", status)


REPEATABLE = (RateLimitedError, ProviderUnavailableError, ProviderTimeoutError, MalformedAnswerError)


@each_row("provider, status, content, wanted", CASES)
def test_only_what_time_can_mend_is_safe_to_repeat(provider, status, content, wanted):
    """A refusal may be repeated exactly when waiting can help."""
    error = error_from_status(status, content, {}, provider=provider, model="nine")
    assert (getattr(error, "retry", "never") == "safe") == (wanted in REPEATABLE)


def test_a_refused_key_names_the_variable_and_never_the_key():
    """The text names the variable to check; a key that the server repeats is starred out, whole or in part."""
    content = openai("Incorrect API key provided: topsecret-value. Also sk-proj-abcdefghijkl1234.")
    error = error_from_status(
        401, content, {}, provider="openai", model="m", key_variable="OPENAI_API_KEY", secret="topsecret-value"
    )
    assert str(error).endswith("; check the key in OPENAI_API_KEY")
    assert "topsecret" not in str(error)
    assert "abcdefghijkl" not in str(error)


@each_row(
    "provider, status, content, advice",
    [
        ("openai", 401, b"", "check llm.api_key"),
        ("openai", 404, openai("no such model", code="model_not_found"), "check the model name 'nine'"),
        ("ollama", 404, body({"error": "model 'nine' not found"}), "`ollama pull nine` gets it"),
        ("custom", 404, b"404 page not found", "check llm.base_url"),
        ("custom", 301, b"", "check llm.base_url"),
    ],
)
def test_the_text_says_what_to_do(provider, status, content, advice):
    """An error that the caller can fix ends with the setting to check."""
    assert str(error_from_status(status, content, {}, provider=provider, model="nine")).endswith(f"; {advice}")


def test_a_long_message_is_cut():
    """A provider that quotes a whole prompt does not fill the log with it."""
    assert len(str(error_from_status(400, openai("x" * 100_000), {}, provider="p", model="m"))) < 500


def test_a_web_page_gives_its_title():
    """The error page of a gateway is known by its title."""
    error = error_from_status(502, b"<html><title>502 Bad\n Gateway</title><p>long", {}, provider="p", model="m")
    assert str(error) == "p: status 502: 502 Bad Gateway"


def test_the_wait_comes_from_the_headers_or_the_body():
    """How long to wait is taken from the headers, else from a delay in the body, and only where waiting helps."""
    delay = google(429, "slow down", "RESOURCE_EXHAUSTED", [{"@type": "…RetryInfo", "retryDelay": "34.5s"}])
    assert error_from_status(429, b"", {"Retry-After": "7"}, provider="p", model="m").retry_after_s == 7.0
    assert error_from_status(429, delay, {}, provider="p", model="m").retry_after_s == 34.5
    assert error_from_status(429, delay, {"retry-after": "1"}, provider="p", model="m").retry_after_s == 1.0
    assert error_from_status(400, b"", {"Retry-After": "7"}, provider="p", model="m").retry_after_s is None


@each_row(
    "content, wanted, status",
    [
        (body({"error": {"message": "upstream died", "code": 502}}), ProviderUnavailableError, 502),
        (body({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}), RateLimitedError, 429),
        (anthropic("overloaded_error", "Overloaded"), ProviderUnavailableError, 529),
        (anthropic("invalid_request_error", "no"), BadRequestError, 400),
        (anthropic("authentication_error", "no"), AuthenticationFailedError, 401),
        (body({"error": {"message": "boom"}}), ProviderUnavailableError, 500),
        (body({"error": {"message": "boom", "type": "timeout_error"}}), ProviderTimeoutError, 408),
        (openai("too long", code="context_length_exceeded"), ContextOverflowError, 400),
    ],
)
def test_an_error_inside_a_stream_is_typed_too(content, wanted, status):
    """An error that comes after a good status is known by its code or type; without any it is the provider's."""
    error = error_in_stream(content, provider="p", model="m")
    assert type(error) is wanted
    assert error.status == status
    assert str(error).startswith("p: in the middle of the answer: ")


NOW = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)


@each_row(
    "headers, seconds",
    [
        ({}, None),
        ({"Retry-After": "20"}, 20.0),
        ({"retry-after": "0"}, 0.0),
        ({"RETRY-AFTER": " 1.5 "}, 1.5),
        ({"Retry-After": "Fri, 20 Nov 2026 12:00:30 GMT"}, 30.0),
        ({"Retry-After": "Fri, 20 Nov 2026 11:59:00 GMT"}, 0.0),
        ({"Retry-After": "Fri, 20 Nov 2026 12:00:30 GMT", "Date": "Fri, 20 Nov 2026 12:00:20 GMT"}, 10.0),
        ({"Retry-After": "Fri, 20 Nov 2026 12:00:30 -0000", "Date": "nonsense"}, 30.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-5"}, None),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
        ({"x-ratelimit-reset-requests": "6m0s"}, 360.0),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "120ms"}, 1.0),
        ({"x-ratelimit-reset-requests": "2m59.56s", "x-ratelimit-remaining-requests": "5"}, None),
        (
            {
                "x-ratelimit-reset-requests": "1h",
                "x-ratelimit-remaining-requests": "5",
                "x-ratelimit-reset-tokens": "7.66s",
                "x-ratelimit-remaining-tokens": "0",
            },
            7.66,
        ),
        ({"x-ratelimit-reset-tokens": "30"}, 30.0),
        ({"x-ratelimit-reset-tokens": "whenever"}, None),
        ({"retry-after": "3", "x-ratelimit-reset-tokens": "30"}, 3.0),
    ],
)
def test_the_wait_is_read_in_every_form(headers, seconds):
    """Seconds, milliseconds, dates and rate-limit resets become seconds; unreadable values ask for nothing."""
    assert retry_after(headers, now=NOW) == (None if seconds is None else pytest.approx(seconds))


def test_without_a_date_the_clock_is_asked():
    """A date far in the past asks for no wait, at any time."""
    assert retry_after({"Retry-After": "Mon, 01 Jan 2024 00:00:00 GMT"}) == 0.0
