"""`Model`: what it sets, what it refuses where it is written, and that it is a value."""

from __future__ import annotations

from typing import Any

import pytest

from harborage import Model
from harborage.errors import InvalidOptionError, UnknownOptionError
from harborage.llm import ChatMessage, CompleteRequest, Content, MissingAPIKeyError, ReasoningEffort, Role
from harborage.llm.anthropic.request import build_body
from harborage.llm.chain.corrections import correct_request
from harborage.llm.errors import UnknownModelStringError
from harborage.llm.model import check_model, configuration_of
from tests.kit.tables import each_row

KEYS = {"OPENAI_API_KEY": "a", "ANTHROPIC_API_KEY": "b"}
ASKED = CompleteRequest(
    messages=[ChatMessage(Role.SYSTEM, Content("Be brief.")), ChatMessage(Role.USER, Content("hi"))]
)


def test_settings_reach_the_configuration_of_the_client() -> None:
    """Each lies where the drivers read it; what is not set is that of the model's name alone."""
    model = Model("anthropic:claude-sonnet-4-5", max_tokens=500, temperature=0.3, retries=4, timeout=20)
    config = model.config(KEYS)
    profile = config.profiles[config.model]
    assert (profile.default_max_tokens, profile.temperature, profile.context_window_tokens) == (500, 0.3, 200_000)
    assert (config.transport.max_retries, config.timeout_s, config.extra) == (4, 20, {})
    assert Model("openai:gpt-5").config(KEYS) == configuration_of("openai:gpt-5", KEYS)


def test_reasoning_and_temperature_are_those_of_requests_without_their_own() -> None:
    """A request that says something else wins."""
    config = Model("openai:gpt-4.1", temperature=0.3, reasoning="high").config(KEYS)
    profile = config.profiles[config.model]
    sent = correct_request(ASKED, profile)
    assert (sent.temperature, sent.reasoning_effort) == (0.3, ReasoningEffort.HIGH)
    own = CompleteRequest(messages=ASKED.messages, temperature=0.0, reasoning_effort=ReasoningEffort.LOW)
    assert (correct_request(own, profile).temperature, correct_request(own, profile).reasoning_effort) == (0, "low")


def test_a_prompt_is_kept_as_long_as_the_provider_is_asked() -> None:
    """Every mark of a request to Anthropic has the same time, because it refuses a longer one after a shorter."""
    config = Model("anthropic:claude-sonnet-4-5", cache="1h").config(KEYS)
    request = CompleteRequest(messages=ASKED.messages, extra=dict(config.extra))
    body = build_body(request, config.model, provider="anthropic")
    wanted = {"type": "ephemeral", "ttl": "1h"}
    assert (body["cache_control"], body["system"][0]["cache_control"]) == (wanted, wanted)
    assert Model("openai:gpt-5", cache="24h").config(KEYS).extra == {"prompt_cache_retention": "24h"}


def test_the_key_of_another_server_is_read_from_the_named_variable() -> None:
    """The usual variable of the provider is not missed, but the named one is."""
    model = Model("openai:gpt-5", base_url="http://127.0.0.1:1/v1", api_key="env.PROXY_KEY")
    config = model.config({"PROXY_KEY": "secret"})
    assert (config.base_url, config.api_key) == ("http://127.0.0.1:1/v1", "env.PROXY_KEY")
    assert "secret" not in repr(model) + repr(config)
    with pytest.raises(MissingAPIKeyError):
        model.config({})


def test_a_model_is_a_value() -> None:
    """Two with the same settings are equal, one does not change, and `replace` makes another one."""
    one = Model("openai:gpt-5", reasoning="high", extra={"seed": 7})
    assert one == Model("openai:gpt-5", reasoning="high", extra={"seed": 7})
    assert one.replace(reasoning="low").reasoning == "low"
    assert one != one.replace(reasoning="low")
    assert repr(one) == "Model('openai:gpt-5', reasoning='high', extra={'seed': 7})"
    with pytest.raises(AttributeError, match=r"model.replace\(reasoning=…\)"):
        one.reasoning = "low"


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("openai:gpt-5", {"temprature": 1}, "there is no such option; did you mean temperature?"),
    ("openai:gpt-5", {"reasoning_effort": "high"}, "did you mean reasoning?"),
    ("openai:gpt-5", {"top_p": 0.9}, 'did you mean extra={"top_p": …}?'),
    ("openai:gpt-5", {"reasoning": "hgh"}, "reasoning='hgh': expected one of off, low, medium, high"),
    ("openai:gpt-5", {"temperature": 0.3}, "temperature: OpenAI's models that think take none; leave it out"),
    ("openai:gpt-4.1", {"temperature": 3}, "temperature=3: expected a number from 0 to 2"),
    ("openai:gpt-4.1", {"temperature": "hot"}, "temperature='hot': expected a number from 0 on"),
    ("openai:gpt-5", {"max_tokens": 0}, "max_tokens=0: expected a whole number from 1 on"),
    ("openai:gpt-5", {"timeout": 0}, "timeout=0: expected a number from 0.001 on"),
    ("openai:gpt-5", {"retries": 1.5}, "retries=1.5: expected a whole number from 0 on"),
    ("openai:gpt-5", {"cache": "5m"}, "cache='5m': expected 24h"),
    ("anthropic:claude-sonnet-4-5", {"cache": True}, "cache=True: expected 5m or 1h"),
    ("groq:llama-3.3", {"cache": "5m"}, "cache: groq cannot be asked to keep prompts; leave it out"),
    ("openai:gpt-5", {"api_key": "sk-123"}, "api_key names a variable: env.MY_KEY"),
]


@each_row("name, given, text", REFUSED)
def test_a_setting_that_cannot_be_is_refused_where_it_is_written(name: str, given: dict[str, Any], text: str) -> None:
    """The text names the setting and what to write."""
    with pytest.raises((InvalidOptionError, UnknownOptionError)) as refused:
        Model(name, **given)
    assert text in str(refused.value)
    assert "sk-123" not in str(refused.value)


def test_a_name_that_is_none_is_refused_at_once() -> None:
    """As for a model string, but before anything is opened."""
    with pytest.raises(UnknownModelStringError, match="write openai:gpt-5"):
        Model("gpt-5")
    with pytest.raises(InvalidOptionError, match="the model's name, first"):
        Model(5)  # type: ignore[arg-type]


@each_row(
    "given, text", [(5, "expected a model"), ([], "at least one model"), ([["openai:gpt-5"]], "one list of models")]
)
def test_what_names_no_model_is_refused(given: object, text: str) -> None:
    """A number, no model at all, and lists in lists."""
    with pytest.raises(InvalidOptionError, match=text):
        check_model(given)
