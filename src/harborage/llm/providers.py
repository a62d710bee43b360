"""The providers and models that are known by name, and the strings that name a model.

Pure: nothing is opened or called here. `config_for(parse_model("openai:gpt-5"), environ=os.environ)` is a whole
configuration; a provider that is not in the table is one more `Provider` beside it. The figures of a model are what its
family surely has, not what its largest member can do: a window that is too small costs a summary, one that is too large
costs a failed call. An operator's own profile always wins.

A key is handed to its driver alone: no error, log line or repr made here shows one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from harborage.llm.config import (
    ConfigSnapshot,
    CorrectionsProfile,
    ModelProfile,
    OutputMode,
    ReasoningRouting,
    ResponseShape,
    SchemaSanitising,
)
from harborage.llm.config import MessageOrdering as Ordering
from harborage.llm.errors import LLMConfigError, MissingAPIKeyError, UnknownModelStringError

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


_COMPATIBLE: Final = "openai_compat"


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """One service of models, or one way to have a model without a service.

    `key_variables` are the environment variables that usually hold its key, the first of them the one that errors name;
    without any no key is needed. `base_url_variable` names one that holds another address. `default_model` is
    the model where none is named; where it is empty too, a model must be named. `models` are those of a provider that
    is not in the table, with their profiles.
    """

    name: str
    driver: str = _COMPATIBLE
    base_url: str = ""
    base_url_variable: str = ""
    key_variables: tuple[str, ...] = ()
    default_model: str = ""
    models: Mapping[str, ModelProfile] = {}

    @property
    def key_variable(self) -> str:
        """The variable to set; empty where no key is needed."""
        return self.key_variables[0] if self.key_variables else ""

    @property
    def needs_key(self) -> bool:
        """Whether it takes no call without a key."""
        return bool(self.key_variables)


class ModelRef(msgspec.Struct, frozen=True):
    """A provider's name and a model's name there; an empty model is the provider's default one."""

    provider: str
    model: str = ""

    def __str__(self) -> str:
        return f"{self.provider}:{self.model}"


def _hosted(name: str, base_url: str, key: str, base_url_variable: str = "") -> Provider:
    return Provider(name=name, base_url=base_url, key_variables=(key,), base_url_variable=base_url_variable)


def _own(name: str, base_url: str, variable: str) -> Provider:
    """Return a server on one's own machine."""
    return Provider(name=name, base_url=base_url, base_url_variable=variable)


_GOOGLE_KEYS: Final = ("GEMINI_API_KEY", "GOOGLE_API_KEY")

PROVIDERS: Final[Mapping[str, Provider]] = {
    provider.name: provider
    for provider in (
        _hosted("openai", "https://api.openai.com/v1", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
        Provider(
            name="openai-responses",
            driver="openai",
            key_variables=("OPENAI_API_KEY",),
            base_url_variable="OPENAI_BASE_URL",
        ),
        Provider(
            name="anthropic",
            driver="anthropic",
            key_variables=("ANTHROPIC_API_KEY",),
            base_url_variable="ANTHROPIC_BASE_URL",
        ),
        Provider(name="google", driver="google", key_variables=_GOOGLE_KEYS),
        Provider(name="gemini", driver="google", key_variables=_GOOGLE_KEYS),
        _hosted("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
        _hosted("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
        _hosted("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
        _hosted("xai", "https://api.x.ai/v1", "XAI_API_KEY"),
        _hosted("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
        _hosted("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
        _hosted("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
        _hosted("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
        _hosted("perplexity", "https://api.perplexity.ai", "PERPLEXITY_API_KEY"),
        _hosted("nebius", "https://api.studio.nebius.com/v1", "NEBIUS_API_KEY"),
        _hosted("huggingface", "https://router.huggingface.co/v1", "HF_TOKEN"),
        _own("ollama", "http://127.0.0.1:11434/v1", "OLLAMA_HOST"),
        _own("vllm", "http://127.0.0.1:8000/v1", "VLLM_BASE_URL"),
        _own("llamacpp", "http://127.0.0.1:8080/v1", "LLAMACPP_BASE_URL"),
        _own("lmstudio", "http://127.0.0.1:1234/v1", "LMSTUDIO_BASE_URL"),
        Provider(name="local", driver="local", default_model="smollm2"),
        Provider(name="mock", driver="mock", default_model="mock"),
        Provider(name="script", driver="scripted", default_model="script"),
        Provider(name="cassette", driver="cassette"),
        Provider(name="any", driver="any"),
    )
}
"""The providers that come with Harborage, by name."""

_ELSEWHERE: Final = frozenset({"azure", "bedrock", "cohere", "vertex", "replicate", "moonshotai", "github", "heroku"})


def parse_model(text: str, *, providers: Mapping[str, Provider] = PROVIDERS) -> ModelRef:
    """Return the model that `provider:model` names; the text behind the first colon is the provider's name for it.

    Raises:
        UnknownModelStringError: there is no colon, or the provider is unknown; the text says what to write.
        LLMConfigError: no model is named, and the provider has no default.
    """
    name, colon, model = text.strip().partition(":")
    name, model = name.strip().lower(), model.strip()
    if not colon:
        raise UnknownModelStringError(f"{text.strip()!r} names no provider; {_suggestion(name, providers)}")
    provider = _known(name, providers)
    if not model and not provider.default_model:
        what = "FILE.json" if name == "cassette" else "MODEL"
        raise LLMConfigError(f"{name}: names no model; write {name}:{what}{_example(name)}")
    return ModelRef(name, model)


def _known(name: str, providers: Mapping[str, Provider]) -> Provider:
    provider = providers.get(name)
    if provider is not None:
        return provider
    if name in _ELSEWHERE:
        raise UnknownModelStringError(f"there is no provider {name!r} here; pydantic-ai may have it: any:{name}:MODEL")
    from difflib import get_close_matches  # only a mistake needs it

    near = get_close_matches(name.lower(), providers, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise UnknownModelStringError(f"there is no provider {name!r}{hint}; known are {', '.join(sorted(providers))}")


def _example(name: str) -> str:
    known = {"openai": "gpt-5-mini", "anthropic": "claude-sonnet-4-5", "ollama": "qwen3", "any": "cohere:command-r"}
    return f", such as {name}:{known[name]}" if name in known else ""


def _suggestion(name: str, providers: Mapping[str, Provider]) -> str:
    """Return what to write in place of a string without a colon."""
    if name in providers:
        return f"write {name}: with its colon" if providers[name].default_model else f"write {name}:MODEL"
    vendor, slash, rest = name.partition("/")
    if slash and vendor in providers:
        return f"write {vendor}:{rest}, or openrouter:{name}"
    for prefix, provider in (("gpt", "openai"), ("claude", "anthropic"), ("gemini", "google"), ("grok", "xai")):
        if name.startswith(prefix):
            return f"write {provider}:{name}"
    return "write provider:model, such as openai:gpt-5-mini or ollama:qwen3"


def config_for(
    ref: ModelRef,
    *,
    environ: Mapping[str, str],
    profiles: Mapping[str, ModelProfile] | None = None,
    providers: Mapping[str, Provider] = PROVIDERS,
) -> ConfigSnapshot:
    """Return a whole configuration for one model: driver, address, key and profile.

    The key stays in its variable, which the configuration names. `profiles` win over the known profile of the model.

    Raises:
        UnknownModelStringError: the provider is unknown.
        MissingAPIKeyError: the provider needs a key, and `environ` has none; it names the variable.
    """
    provider = _known(ref.provider, providers)
    variable = key_variable(provider.key_variables, environ)
    if provider.needs_key and not variable:
        raise MissingAPIKeyError(provider.name, provider.key_variable)
    model = ref.model or provider.default_model
    known = dict(provider.models) or {model: _profile(model, provider, environ)}
    return ConfigSnapshot(
        driver=provider.driver,
        provider=provider.name,
        model=model,
        api_key=f"env.{variable}" if variable else "",
        base_url=_address(provider, environ),
        profiles={**known, **(profiles or {})},
    )


def _profile(model: str, provider: Provider, environ: Mapping[str, str]) -> ModelProfile:
    # The bridge's models are named with their own provider in front.
    name = model.partition(":")[2] or model if provider.driver == "any" else model
    profile = profile_for(name, provider.name)
    if provider.driver in {"mock", "scripted"} and known_profile(name) is None:
        return msgspec.structs.replace(profile, context_window_tokens=128_000)
    served = environ.get("OLLAMA_CONTEXT_LENGTH", "").strip() if provider.name == "ollama" else ""
    if served.isdecimal() and int(served) > 0:
        return msgspec.structs.replace(profile, context_window_tokens=int(served))
    return profile


def _address(provider: Provider, environ: Mapping[str, str]) -> str:
    """Return the address in the provider's variable, else its usual one."""
    address = environ.get(provider.base_url_variable, "").strip().rstrip("/") if provider.base_url_variable else ""
    if not address:
        return provider.base_url
    return _ollama_address(address) if provider.name == "ollama" else address


def _ollama_address(host: str) -> str:
    """Return the address in `OLLAMA_HOST`, which may lack the scheme, the port or both, and may be one to listen on."""
    scheme, separator, rest = host.rpartition("://")
    port = {"http": "80", "https": "443"}.get(scheme, "11434") if separator else "11434"
    if rest.rpartition(":")[2].isdecimal():
        rest, _, port = rest.rpartition(":")
    return f"{scheme or 'http'}://{'127.0.0.1' if rest in ('', '0.0.0.0') else rest}:{port}/v1"


def with_providers(custom: Iterable[Provider]) -> Mapping[str, Provider]:
    """Return the known providers and the given ones, which speak OpenAI's API.

    Raises:
        LLMConfigError: a name is empty or taken, or an address, key variable or model is missing; the text says
            which, and of whom.
    """
    known = dict(PROVIDERS)
    for provider in custom:
        name = provider.name
        if not name or name != name.strip().lower() or ":" in name:
            raise LLMConfigError(f"llm: a provider cannot be named {name!r}; use lower case letters and no colon")
        if name in known or name in _ELSEWHERE:
            raise LLMConfigError(f"llm: the provider name {name!r} is taken; choose another")
        for field, value in (("base_url", provider.base_url), ("key_variables", provider.key_variables)):
            if not value:
                raise LLMConfigError(f"llm: the provider {name!r} needs {field}")
        if not provider.models:
            raise LLMConfigError(f"llm: the provider {name!r} needs at least one model with its profile")
        known[name] = provider
    return known


# ── Keys ────────────────────────────────────────────────────────────────────────────────────────────────────────────

_BY_VARIABLE: Final = "env."


def resolve_key(
    cfg: ConfigSnapshot, variable: str | Sequence[str] = "", environ: Mapping[str, str] | None = None
) -> str:
    """Return the key: `cfg.api_key`, or the value of the variable that it names as `env.NAME`, or that of `variable`.

    Of several variables the first that is not empty counts. White space around a key is dropped. Without `environ` the
    process's own is read.

    Raises:
        MissingAPIKeyError: there is none; it names the variable to set.
        LLMConfigError: the value cannot be a key; it names the place, never the value.
    """
    values = os.environ if environ is None else environ
    names = _variables(cfg, variable)
    if not names:
        return _checked(cfg.api_key.strip(), "llm.api_key")
    found = key_variable(names, values)
    if not found:
        raise MissingAPIKeyError(cfg.provider or cfg.driver, names[0])
    return _checked(values[found].strip(), f"the environment variable {found}")


def key_variable(variables: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the first of `variables` that is not empty; empty when all are."""
    return next((name for name in variables if environ.get(name, "").strip()), "")


def _variables(cfg: ConfigSnapshot, variable: str | Sequence[str]) -> list[str]:
    """Return the variables to read; none when the setting is the key itself."""
    configured = cfg.api_key.strip()
    if configured.startswith(_BY_VARIABLE):
        name = configured.removeprefix(_BY_VARIABLE)
        if not name:
            raise LLMConfigError("llm.api_key is 'env.' and names no variable; write env.NAME")
        return [name]
    if configured:
        return []
    names = [name for name in ([variable] if isinstance(variable, str) else variable) if name]
    if not names:
        raise MissingAPIKeyError(cfg.provider or cfg.driver)
    return names


def _checked(key: str, where: str) -> str:
    # A header cannot carry other characters, and the transport's error about them would quote the key.
    if not all("!" <= char <= "~" for char in key):
        raise LLMConfigError(f"{where} holds characters that no key has (spaces, line breaks, quotes of a text?)")
    return key
