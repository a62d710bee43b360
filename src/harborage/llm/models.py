"""The known models, by their names: windows, structured output, tools, pictures. Pure, and written by hand.

Figures are what a family surely has, not what its largest member can do: a window that is too small costs a summary,
one that is too large costs a failed call. An operator's own profile always wins.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from harborage.llm.profile import (
    CorrectionsProfile,
    ModelProfile,
    OutputMode,
    ReasoningRouting,
    ResponseShape,
    SchemaSanitising,
)
from harborage.llm.profile import MessageOrdering as Ordering

UNKNOWN_WINDOW_TOKENS: Final = 8_192
# What every provider of vision takes inline: 5 MB of base64.
_INLINE_BYTES: Final = 3_750_000
_OLLAMA_WINDOW_TOKENS: Final = 32_768


class _Family(msgspec.Struct, frozen=True):
    """The models whose names begin with one of `starts`, and as `pattern` says where there is one.

    `tools` and `sees` say whether they take tools and pictures. Few names come as far as a pattern, which is costly to
    compile.
    """

    starts: str | tuple[str, ...]
    window: int
    pattern: str = ""
    sees: bool = False
    tools: bool = True

    def has(self, name: str) -> bool:
        """Whether a model of this name, in lower case, is of the family."""
        return name.startswith(self.starts) and (not self.pattern or re.match(self.pattern, name) is not None)


_FAMILIES: Final = (
    _Family("gpt-oss", 131_072),
    _Family("gpt-5", 272_000, sees=True),
    _Family("gpt-4.1", 1_047_576, sees=True),
    _Family(("gpt-4o", "chatgpt-4o"), 128_000, sees=True),
    _Family("gpt-4-turbo", 128_000, sees=True),
    _Family("gpt-4", 8_192),
    _Family("gpt-3.5", 16_385),
    _Family(("o1-mini", "o1-preview"), 128_000, tools=False),
    _Family("o3-mini", 200_000),
    _Family(("o1", "o3", "o4"), 200_000, r"o[134](-|$)", sees=True),
    _Family("claude", 200_000, sees=True),
    _Family("gemini", 1_048_576, sees=True),
    _Family(("gemma3", "gemma-3"), 32_768, tools=False),
    _Family("gemma", 8_192, tools=False),
    _Family(("mistral-large", "mistral-medium", "mistral-small", "ministral", "devstral"), 128_000),
    _Family("magistral", 40_000),
    _Family("pixtral", 128_000, sees=True),
    _Family("codestral", 128_000),
    _Family(("mixtral", "open-mixtral", "open-mistral", "mistral"), 32_768),
    _Family("grok-", 256_000, r"grok-[4-9]", sees=True),
    _Family("grok", 131_072),
    _Family("deepseek", 64_000),
    _Family("llama", 131_072, r"llama-?v?4", sees=True),
    _Family(("llama", "meta-llama"), 131_072, r"(meta-)?llama-?v?3[.p-]?[123]"),
    _Family(("llama3", "llama-3", "meta-llama3", "meta-llama-3"), 8_192),
    _Family("qwen", 32_768, r"qwen-?(2\.5|3).*vl", sees=True),
    _Family(("qwen2.5", "qwen-2.5", "qwen3", "qwen-3", "qwq"), 32_768),
    _Family(("kimi-k2", "minimax-m"), 128_000),
    _Family("glm-4.", 128_000, r"glm-4\.[5-9]"),
    _Family(("phi4", "phi-4"), 16_384),
    _Family(("command-a", "command-r"), 128_000),
    _Family("sonar", 128_000, tools=False),
    _Family("smollm2", 8_192),
    _Family("granite", 128_000, r"granite-?[3-9]"),
)

_NATIVE: Final = frozenset(
    {"openai", "openai-responses", "anthropic", "google", "gemini", "openrouter", "mistral", "xai", "cerebras",
     "fireworks", "ollama", "vllm", "llamacpp", "lmstudio", "local", "mock", "script", "cassette", "any"}
)  # fmt: skip
"""Providers that take a JSON schema for the answer, or whose driver puts it into their own form."""


def profile_for(model: str, provider: str = "") -> ModelProfile:
    """Return the profile of a model, as `provider` serves it; that of an unknown family has a small window."""
    return known_profile(model, provider) or _served(
        ModelProfile(context_window_tokens=UNKNOWN_WINDOW_TOKENS), model, provider
    )


def known_profile(model: str, provider: str = "") -> ModelProfile | None:
    """Return the profile of a model, as `provider` serves it; None where its family is unknown.

    Vendors before the name (`openai/`, `accounts/x/models/`) do not count.
    """
    name = model.lower().rpartition("/")[2]
    family = next((family for family in _FAMILIES if family.has(name)), None)
    if family is None:
        return None
    profile = ModelProfile(
        context_window_tokens=family.window,
        supports_tools=family.tools,
        inline_limit_bytes=_INLINE_BYTES if family.sees else None,
    )
    return _served(profile, model, provider)


def _served(profile: ModelProfile, model: str, provider: str) -> ModelProfile:
    """Return the profile within the limits of its provider."""
    mode, corrections = served_defaults(model, provider)
    window = profile.context_window_tokens
    if provider == "ollama":
        # It cuts a prompt that is too long without an error, and its servers rarely have the whole window.
        window = min(window, _OLLAMA_WINDOW_TOKENS)
    return msgspec.structs.replace(profile, context_window_tokens=window, output_mode=mode, corrections=corrections)


def served_defaults(model: str, provider: str = "") -> tuple[OutputMode, CorrectionsProfile]:
    """As `name_defaults`, for the model of a provider that our own drivers speak to; without one, by the name alone.

    Those drivers put a schema into Anthropic's form themselves, so nothing is corrected for it here.
    """
    if not provider:
        return name_defaults(model)
    mode, corrections = name_defaults(model if "/" in model else f"{provider}/{model}")
    if provider in _NATIVE and not (corrections.schema_sanitising or corrections.reasoning_routing):
        mode = OutputMode.NATIVE
    return mode, msgspec.structs.replace(corrections, response_shape=ResponseShape.UNSET)


_NONE: Final = CorrectionsProfile()
_THINKS: Final = CorrectionsProfile(reasoning_routing=ReasoningRouting.THINKING_MODEL)
_STRICT_THINKS: Final = CorrectionsProfile(
    schema_sanitising=SchemaSanitising.OPENAI_STRICT, reasoning_routing=ReasoningRouting.THINKING_MODEL
)
_DEFAULTS: Final = (
    (r"(?:openai/)?o[13]", OutputMode.PROMPTED, _STRICT_THINKS),
    (r".*deepseek-reasoner", OutputMode.PROMPTED, _THINKS),
    (r"(?:openai|google)/", OutputMode.NATIVE, _NONE),
    (r"anthropic/", OutputMode.NATIVE, CorrectionsProfile(response_shape=ResponseShape.ANTHROPIC)),
    (r"nim/", OutputMode.PROMPTED, CorrectionsProfile(message_ordering=Ordering.SYSTEM_FIRST_STRICT)),
)


def name_defaults(model: str) -> tuple[OutputMode, CorrectionsProfile]:
    """Return the mode of structured output and the corrections by the name alone; case does not count."""
    name = model.lower()
    found = ((mode, corrections) for pattern, mode, corrections in _DEFAULTS if re.match(pattern, name))
    return next(found, (OutputMode.PROMPTED, _NONE))
