"""What is known of models by their names."""

from __future__ import annotations

from harborage.llm import (
    CorrectionsProfile,
    MessageOrdering,
    OutputMode,
    ReasoningRouting,
    ResponseShape,
    SchemaSanitising,
    known_profile,
    profile_for,
)
from harborage.llm.models import UNKNOWN_WINDOW_TOKENS, name_defaults, served_defaults
from tests.kit.tables import each_row

NONE = CorrectionsProfile()
THINKS = CorrectionsProfile(reasoning_routing=ReasoningRouting.THINKING_MODEL)
STRICT = CorrectionsProfile(
    schema_sanitising=SchemaSanitising.OPENAI_STRICT, reasoning_routing=ReasoningRouting.THINKING_MODEL
)


@each_row(
    "model, mode, corrections",
    [
        ("o1-mini", OutputMode.PROMPTED, STRICT),
        ("O3", OutputMode.PROMPTED, STRICT),
        ("openai/o1", OutputMode.PROMPTED, STRICT),
        ("openai/o3-mini", OutputMode.PROMPTED, STRICT),
        ("deepseek-reasoner", OutputMode.PROMPTED, THINKS),
        ("openai/x-DeepSeek-Reasoner-1", OutputMode.PROMPTED, THINKS),
        ("openai/gpt-4o", OutputMode.NATIVE, NONE),
        ("Google/gemini-2.5-pro", OutputMode.NATIVE, NONE),
        ("anthropic/claude", OutputMode.NATIVE, CorrectionsProfile(response_shape=ResponseShape.ANTHROPIC)),
        ("nim/llama", OutputMode.PROMPTED, CorrectionsProfile(message_ordering=MessageOrdering.SYSTEM_FIRST_STRICT)),
        ("qwen3", OutputMode.PROMPTED, NONE),
        ("gpt-4o", OutputMode.PROMPTED, NONE),
        ("", OutputMode.PROMPTED, NONE),
    ],
)
def test_defaults_by_name(model: str, mode: OutputMode, corrections: CorrectionsProfile) -> None:
    """The first row of the table that fits decides; case does not count."""
    assert name_defaults(model) == (mode, corrections)
    assert served_defaults(model) == (mode, corrections)


@each_row(
    "provider, model, mode",
    [
        ("openai", "gpt-4o", OutputMode.NATIVE),
        ("openai", "o3-mini", OutputMode.PROMPTED),
        ("anthropic", "claude-sonnet-4-5", OutputMode.NATIVE),
        ("openrouter", "anthropic/claude-sonnet-4.5", OutputMode.NATIVE),
        ("ollama", "qwen3:8b", OutputMode.NATIVE),
        ("deepseek", "deepseek-chat", OutputMode.PROMPTED),
        ("groq", "llama-3.3-70b-versatile", OutputMode.PROMPTED),
    ],
)
def test_a_provider_that_takes_schemas_is_asked_natively(provider: str, model: str, mode: OutputMode) -> None:
    """The provider counts as well as the name, and no schema is bent for a driver that does it itself."""
    found, corrections = served_defaults(model, provider)
    assert found == mode
    assert corrections.response_shape == ResponseShape.UNSET


@each_row(
    "model, window, sees, tools",
    [
        ("gpt-4o-mini", 128_000, True, True),
        ("gpt-5.4-mini", 272_000, True, True),
        ("gpt-4.1", 1_047_576, True, True),
        ("gpt-3.5-turbo", 16_385, False, True),
        ("o1-mini", 128_000, False, False),
        ("o4-mini", 200_000, True, True),
        ("claude-sonnet-5-5", 200_000, True, True),
        ("anthropic/claude-sonnet-4.5", 200_000, True, True),
        ("gemini-3.8-flash", 1_048_576, True, True),
        ("gemma3:4b", 32_768, False, False),
        ("accounts/fireworks/models/llama-v3p3", 131_072, False, True),
        ("meta-llama/Llama-3.3-70B-Instruct", 131_072, False, True),
        ("qwen2.5vl:7b", 32_768, True, True),
        ("sonar-pro", 128_000, False, False),
        ("nobody-knows", UNKNOWN_WINDOW_TOKENS, False, True),
    ],
)
def test_families(model: str, window: int, sees: bool, tools: bool) -> None:
    """Window, pictures and tools of a family; of an unknown one a small window and nothing else."""
    profile = profile_for(model)
    assert (profile.context_window_tokens, profile.supports_tools) == (window, tools)
    assert (profile.inline_limit_bytes is not None) == sees
    assert (known_profile(model) is None) == (window == UNKNOWN_WINDOW_TOKENS)


def test_ollama_serves_less_than_the_model_has() -> None:
    """It cuts long prompts silently, so a large window is not believed."""
    assert profile_for("llama3.1", "ollama").context_window_tokens == 32_768
    assert profile_for("phi4", "ollama").context_window_tokens == 16_384
