"""What is known by name of providers and models, model strings, the configuration that follows, and keys."""

from __future__ import annotations

import pytest

from harborage.llm import (
    LLM_DRIVERS,
    PROVIDERS,
    ConfigSnapshot,
    CorrectionsProfile,
    LLMConfigError,
    MessageOrdering,
    MissingAPIKeyError,
    ModelProfile,
    ModelRef,
    OutputMode,
    Provider,
    ReasoningRouting,
    ResponseShape,
    SchemaSanitising,
    UnknownModelStringError,
    config_for,
    known_profile,
    parse_model,
    profile_for,
    resolve_key,
    with_providers,
)
from harborage.llm.providers import UNKNOWN_WINDOW_TOKENS, name_defaults, served_defaults
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


SECRET = "sk-very-secret-0123456789"
MINE = Provider(
    name="acme",
    base_url="https://llm.acme.example/v1",
    key_variables=("ACME_KEY",),
    models={"house": ModelProfile(context_window_tokens=5000)},
)


# --- model strings ------------------------------------------------------------------------------------------------


@each_row(
    "text, provider, model",
    [
        ("openai:gpt-5", "openai", "gpt-5"),
        (" OpenAI : gpt-5 ", "openai", "gpt-5"),
        ("ollama:qwen3:8b", "ollama", "qwen3:8b"),
        ("openrouter:openai/gpt-5", "openrouter", "openai/gpt-5"),
        ("any:bedrock:anthropic.claude", "any", "bedrock:anthropic.claude"),
        ("local:", "local", ""),
        ("local:/models/x.gguf", "local", "/models/x.gguf"),
        ("mock:", "mock", ""),
        ("script:", "script", ""),
        ("cassette:tape.jsonl", "cassette", "tape.jsonl"),
        ("gemini:gemini-3", "gemini", "gemini-3"),
    ],
)
def test_a_model_string(text: str, provider: str, model: str) -> None:
    """The first colon ends the provider; the rest is the model's name as the provider knows it."""
    assert parse_model(text) == ModelRef(provider, model)


def test_a_reference_reads_as_its_string() -> None:
    """What was parsed can be written again."""
    assert str(parse_model("ollama:qwen3:8b")) == "ollama:qwen3:8b"


@each_row(
    "text, advice",
    [
        ("gpt-5", "write openai:gpt-5"),
        ("claude-sonnet-4-5", "write anthropic:claude-sonnet-4-5"),
        ("openai/gpt-5", "write openai:gpt-5, or openrouter:openai/gpt-5"),
        ("local", "write local: with its colon"),
        ("ollama", "write ollama:MODEL"),
        ("house", "write provider:model, such as"),
        ("", "names no provider"),
        ("bedrock:x", "write any:bedrock:x|any:bedrock:MODEL"),
        ("nobody:x", "there is no provider 'nobody'; known are anthropic, any,"),
        (":x", "there is no provider ''; known are"),
    ],
)
def test_a_string_that_names_no_provider(text: str, advice: str) -> None:
    """The error says what was probably meant, or what there is."""
    with pytest.raises(UnknownModelStringError, match=advice):
        parse_model(text)


@each_row("name", sorted(name for name, one in PROVIDERS.items() if not one.default_model))
def test_a_model_must_be_named_where_there_is_no_default(name: str) -> None:
    """A provider alone is not enough."""
    with pytest.raises(LLMConfigError, match=f"write {name}:(MODEL|FILE.json)"):
        parse_model(f"{name}:")


# --- configurations -----------------------------------------------------------------------------------------------


def test_a_whole_configuration() -> None:
    """Driver, address, key by reference, and the profile of the model."""
    cfg = config_for(parse_model("openai:gpt-4o"), environ={"OPENAI_API_KEY": SECRET})
    assert (cfg.driver, cfg.provider, cfg.model) == ("openai_compat", "openai", "gpt-4o")
    assert cfg.base_url == "https://api.openai.com/v1"
    assert cfg.api_key == "env.OPENAI_API_KEY"
    assert resolve_key(cfg, environ={"OPENAI_API_KEY": SECRET}) == SECRET
    profile = cfg.profiles["gpt-4o"]
    assert (profile.context_window_tokens, profile.output_mode) == (128_000, OutputMode.NATIVE)


@each_row("name", sorted(PROVIDERS))
def test_every_provider_has_a_driver_and_says_what_it_needs(name: str) -> None:
    """With its key the configuration is whole; without it the error names the variable."""
    provider = PROVIDERS[name]
    assert provider.driver in LLM_DRIVERS.names()
    ref = ModelRef(name, "m")
    cfg = config_for(ref, environ=dict.fromkeys(provider.key_variables, SECRET))
    assert (cfg.driver, cfg.provider) == (provider.driver, name)
    assert cfg.model in cfg.profiles
    assert SECRET not in repr(cfg)
    if provider.needs_key:
        with pytest.raises(MissingAPIKeyError, match=f"no API key for {name}.*{provider.key_variable}"):
            config_for(ref, environ={})


@each_row(
    "name, variable",
    [
        ("openai", "OPENAI_API_KEY"),
        ("openai-responses", "OPENAI_API_KEY"),
        ("anthropic", "ANTHROPIC_API_KEY"),
        ("google", "GEMINI_API_KEY"),
        ("openrouter", "OPENROUTER_API_KEY"),
        ("groq", "GROQ_API_KEY"),
        ("mistral", "MISTRAL_API_KEY"),
        ("xai", "XAI_API_KEY"),
        ("deepseek", "DEEPSEEK_API_KEY"),
        ("together", "TOGETHER_API_KEY"),
        ("fireworks", "FIREWORKS_API_KEY"),
        ("cerebras", "CEREBRAS_API_KEY"),
        *((name, "") for name in ("ollama", "vllm", "llamacpp", "local", "mock", "script", "cassette", "any")),
    ],
)
def test_the_usual_variables(name: str, variable: str) -> None:
    """Each service's key is looked for where its own documentation puts it; one's own servers need none."""
    assert PROVIDERS[name].key_variable == variable


def test_a_second_variable_is_found() -> None:
    """Google's key has two usual names; the one that is set is referred to."""
    assert config_for(ModelRef("google", "gemini-3"), environ={"GOOGLE_API_KEY": "x"}).api_key == "env.GOOGLE_API_KEY"


@each_row("name", ["local", "mock", "script"])
def test_a_default_model(name: str) -> None:
    """Where no model is named the provider's default is used."""
    cfg = config_for(ModelRef(name), environ={})
    assert cfg.model == PROVIDERS[name].default_model
    assert cfg.model in cfg.profiles


@each_row(
    "host, address",
    [
        ("", "http://127.0.0.1:11434/v1"),
        ("box", "http://box:11434/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        (":9000", "http://127.0.0.1:9000/v1"),
        ("https://box.example/", "https://box.example:443/v1"),
        ("http://box:9000", "http://box:9000/v1"),
        ("[::1]:9000", "http://[::1]:9000/v1"),
    ],
)
def test_where_ollama_is(host: str, address: str) -> None:
    """`OLLAMA_HOST` is read as Ollama reads it."""
    assert config_for(ModelRef("ollama", "qwen3"), environ={"OLLAMA_HOST": host}).base_url == address


def test_another_address_by_variable() -> None:
    """Servers of one's own, and gateways, are found by their variable."""
    environ = {"VLLM_BASE_URL": "http://gpu:8000/v1/", "OPENAI_BASE_URL": "https://gate/v1", "OPENAI_API_KEY": "x"}
    assert config_for(ModelRef("vllm", "m"), environ=environ).base_url == "http://gpu:8000/v1"
    assert config_for(ModelRef("openai", "m"), environ=environ).base_url == "https://gate/v1"


@each_row("length, window", [("4096", 4096), ("many", 32_768), ("0", 32_768)])
def test_ollamas_window_is_the_one_its_server_was_started_with(length: str, window: int) -> None:
    """`OLLAMA_CONTEXT_LENGTH` counts when it is a number."""
    cfg = config_for(ModelRef("ollama", "qwen3"), environ={"OLLAMA_CONTEXT_LENGTH": length})
    assert cfg.profiles["qwen3"].context_window_tokens == window


def test_the_operators_profile_wins() -> None:
    """What is given is used, and may describe other models too."""
    mine = ModelProfile(context_window_tokens=1)
    cfg = config_for(ModelRef("mock"), environ={}, profiles={"mock": mine, "other": mine})
    assert dict(cfg.profiles) == {"mock": mine, "other": mine}


def test_an_unknown_provider_has_no_configuration() -> None:
    """A reference that was not parsed is checked too."""
    with pytest.raises(UnknownModelStringError, match="nobody"):
        config_for(ModelRef("nobody", "m"), environ={})


# --- providers of one's own ---------------------------------------------------------------------------------------


def test_a_provider_of_ones_own() -> None:
    """It is named, parsed and configured like any other."""
    known = with_providers([MINE])
    cfg = config_for(parse_model("acme:house", providers=known), environ={"ACME_KEY": "x"}, providers=known)
    assert (cfg.driver, cfg.base_url, cfg.api_key) == ("openai_compat", MINE.base_url, "env.ACME_KEY")
    assert cfg.profiles == MINE.models
    assert "acme" not in PROVIDERS


@each_row(
    "fields, text",
    [
        ({"name": "openai"}, "the provider name 'openai' is taken"),
        ({"name": "bedrock"}, "the provider name 'bedrock' is taken"),
        ({"name": ""}, "cannot be named ''"),
        ({"name": "a:b"}, "cannot be named 'a:b'"),
        ({"name": "Acme"}, "cannot be named 'Acme'"),
        ({"base_url": ""}, "the provider 'acme' needs base_url"),
        ({"key_variables": ()}, "the provider 'acme' needs key_variables"),
        ({"models": {}}, "the provider 'acme' needs at least one model"),
    ],
)
def test_a_provider_that_is_not_whole_is_refused(fields: dict, text: str) -> None:
    """The error names the provider and what is wrong with it."""
    import msgspec

    with pytest.raises(LLMConfigError, match=text):
        with_providers([msgspec.structs.replace(MINE, **fields)])


def test_two_providers_of_one_name() -> None:
    """The second is refused."""
    with pytest.raises(LLMConfigError, match="'acme' is taken"):
        with_providers([MINE, MINE])


def cfg(api_key: str = "") -> ConfigSnapshot:
    """A configuration with this setting."""
    return ConfigSnapshot(provider="acme", api_key=api_key)


def test_a_key_may_be_given_itself() -> None:
    """What is set is the key; the usual variable is not looked at."""
    assert resolve_key(cfg(SECRET), "ACME_KEY", {"ACME_KEY": "other"}) == SECRET


def test_a_setting_may_name_a_variable() -> None:
    """`env.NAME` is the value of that variable, and of no other."""
    assert resolve_key(cfg("env.MINE"), "ACME_KEY", {"MINE": SECRET, "ACME_KEY": "other"}) == SECRET
    with pytest.raises(MissingAPIKeyError, match="no API key for acme: set the environment variable MINE") as caught:
        resolve_key(cfg("env.MINE"), "ACME_KEY", {"ACME_KEY": SECRET})
    assert (caught.value.provider, caught.value.variable) == ("acme", "MINE")


def test_unset_the_usual_variable_counts() -> None:
    """Of several the first that holds something; the error names the first of them."""
    usual = ("FIRST", "SECOND")
    assert resolve_key(cfg(), usual, {"FIRST": " ", "SECOND": SECRET}) == SECRET
    with pytest.raises(MissingAPIKeyError, match="FIRST"):
        resolve_key(cfg(), usual, {})


def test_without_any_variable_the_setting_is_named() -> None:
    """A provider without a usual variable needs the setting."""
    with pytest.raises(MissingAPIKeyError, match=r"set llm\.api_key"):
        resolve_key(cfg(), environ={})


def test_the_process_is_asked_when_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an environment of its own the function reads the process's."""
    monkeypatch.setenv("ACME_KEY", SECRET)
    assert resolve_key(cfg(), "ACME_KEY") == SECRET


def test_white_space_around_a_key_is_dropped() -> None:
    """A line break at the end of a file is not part of a key."""
    assert resolve_key(cfg(f" {SECRET}\n")) == SECRET
    assert resolve_key(cfg(), "ACME_KEY", {"ACME_KEY": f"{SECRET}\n"}) == SECRET


@each_row("broken", [f"{SECRET} {SECRET}", f"{SECRET}\nx", f"“{SECRET}”", f"{SECRET}\0"])
@each_row("is_variable", [True, False])
def test_what_cannot_be_a_key_is_refused_unseen(broken: str, is_variable: bool) -> None:
    """The error names the place and never the value."""
    with pytest.raises(LLMConfigError, match="ACME_KEY" if is_variable else r"llm\.api_key") as caught:
        resolve_key(cfg() if is_variable else cfg(broken), "ACME_KEY", {"ACME_KEY": broken})
    assert SECRET not in str(caught.value)


def test_a_variable_needs_a_name() -> None:
    """`env.` alone is a mistake, not a key."""
    with pytest.raises(LLMConfigError, match=r"write env\.NAME"):
        resolve_key(cfg("env."))


def test_a_configuration_does_not_show_its_key() -> None:
    """A snapshot may end up in a log."""
    assert SECRET not in repr(cfg(SECRET))
