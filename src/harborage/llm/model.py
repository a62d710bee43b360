"""`Model`: a model with its settings, as one value; and the models that stand in for one that fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias

import msgspec

from harborage.errors import InvalidOptionError, at_least, known_options
from harborage.llm.client import ReasoningEffort
from harborage.llm.providers import parse_model, profile_for

if TYPE_CHECKING:
    from harborage.llm.config import ConfigSnapshot

CacheTime: TypeAlias = Literal["5m", "1h", "24h"]
"""How long a provider keeps the beginning that prompts have in common."""

_FOR: Final = "Model"
_FIELDS: Final = (
    "reasoning",
    "temperature",
    "max_tokens",
    "cache",
    "retries",
    "timeout",
    "base_url",
    "api_key",
    "extra",
)
_EFFORTS: Final = tuple(str(effort) for effort in ReasoningEffort if effort)
_CACHES: Final[Mapping[str, tuple[str, ...]]] = {
    "anthropic": ("5m", "1h"),
    "openai": ("24h",),
    "openai-responses": ("24h",),
}
"""The times that a provider can be asked for; others cache by themselves, or not at all."""

_MEANT: Final = {
    "reasoning_effort": "reasoning",
    "effort": "reasoning",
    "thinking": "reasoning",
    "temp": "temperature",
    "max_output_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "max_retries": "retries",
    "timeout_s": "timeout",
    "url": "base_url",
    "key": "api_key",
    "extra_body": "extra",
    "fallback": 'model=["openai:gpt-5", Model("anthropic:…")]',
    "fallbacks": 'model=["openai:gpt-5", Model("anthropic:…")]',
    "top_p": 'extra={"top_p": …}',
    "seed": 'extra={"seed": …}',
}


class Model:
    """A model with settings, wherever a model is named: `Model("openai:gpt-5", reasoning="high")`.

    `reasoning` is how long it may think: "off", "low", "medium" or "high". `max_tokens` is the most that one answer may
    have, `timeout` the seconds that one call may take, `retries` how often a call that failed is made again. `cache` is
    how long the provider keeps the beginning that prompts have in common: "5m" or "1h" of Anthropic, "24h" of OpenAI.
    `base_url` is the address of another server that speaks as the provider does, `api_key` the variable that its key
    is in (`env.NAME`). `extra` are further fields of the provider's own.

    Raises:
        UnknownOptionError: there is no such setting; the text says which one may be meant.
        InvalidOptionError: a setting is impossible, or the model does not take it.
        LLMConfigError: the name is none of a model; the text says what to write.
    """

    __slots__ = ("name", *_FIELDS)

    if not TYPE_CHECKING:  # checkers refuse such names by themselves

        def __new__(cls, *_given: Any, **options: Any) -> Self:
            known_options(options, cls.__slots__, _MEANT)
            return super().__new__(cls)

    def __init__(
        self,
        name: str,
        *,
        reasoning: Literal["off", "low", "medium", "high"] | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        cache: CacheTime | None = None,
        retries: int | None = None,
        timeout: float | None = None,
        base_url: str = "",
        api_key: str = "",
        extra: Mapping[str, Any] = {},
    ) -> None:
        if not isinstance(name, str):
            raise InvalidOptionError(_FOR, name, 'the model\'s name, first: Model("openai:gpt-5")')
        given = (name, reasoning, temperature, max_tokens, cache, retries, timeout, base_url, api_key, dict(extra))
        for field, value in zip(self.__slots__, given, strict=True):
            object.__setattr__(self, field, value)
        self._check()

    name: str
    reasoning: str | None
    temperature: float | None
    max_tokens: int | None
    cache: str | None
    retries: int | None
    timeout: float | None
    base_url: str
    api_key: str
    extra: Mapping[str, Any]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a model does not change; model.replace({name}=…) returns another one")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and all(getattr(self, one) == getattr(other, one) for one in self.__slots__)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        set_ = "".join(f", {one}={value!r}" for one in _FIELDS if (value := getattr(self, one)) not in (None, "", {}))
        return f"Model({self.name!r}{set_})"

    def replace(self, **changes: Any) -> Model:
        """Return the same model with other settings.

        Raises:
            Exception: as of `Model`.
        """
        options = {one: getattr(self, one) for one in self.__slots__} | changes
        return Model(options.pop("name"), **options)

    def _check(self) -> None:
        provider, model = (ref := parse_model(self.name)).provider, ref.model
        if self.reasoning is not None and self.reasoning not in _EFFORTS:
            raise self._refused("reasoning", self.reasoning, f"one of {', '.join(_EFFORTS)}")
        if self.temperature is not None:
            at_least(0, self.temperature, f"{self._place}: temperature")
            if self.temperature > 2:
                raise self._refused("temperature", self.temperature, "a number from 0 to 2")
            from harborage.llm.openai_compat.connection import is_openai_reasoning  # loaded where it matters

            if is_openai_reasoning(provider.removesuffix("-responses"), model):
                raise self._not_taken("temperature", "OpenAI's models that think take none")
        for name, least in (("max_tokens", 1), ("retries", 0)):
            if (value := getattr(self, name)) is not None:
                at_least(least, value, f"{self._place}: {name}", is_whole=True)
        if self.timeout is not None:
            at_least(0.001, self.timeout, f"{self._place}: timeout")
        if self.cache is not None:
            self._check_cache(provider)
        for name in ("base_url", "api_key"):
            if not isinstance(getattr(self, name), str):
                raise self._refused(name, getattr(self, name), "a text")
        if self.api_key and not self.api_key.startswith("env."):
            raise InvalidOptionError("api_key", None, message=f"{self._place}: api_key names a variable: env.MY_KEY")
        if not all(isinstance(name, str) for name in self.extra):
            raise self._refused("extra", self.extra, "fields by their names")

    def _check_cache(self, provider: str) -> None:
        times = _CACHES.get(provider, ())
        if not times:
            raise self._not_taken("cache", f"{provider} cannot be asked to keep prompts")
        if self.cache not in times:
            raise self._refused("cache", self.cache, " or ".join(times))

    @property
    def _place(self) -> str:
        return f"Model({self.name!r})"

    def _refused(self, setting: str, value: object, wanted: str) -> InvalidOptionError:
        return InvalidOptionError(f"{self._place}: {setting}", value, wanted)

    def _not_taken(self, setting: str, why: str) -> InvalidOptionError:
        text = f"{self._place}: {setting}: {why}; leave it out"
        return InvalidOptionError(setting, getattr(self, setting), message=text)

    def config(self, environ: Mapping[str, str]) -> ConfigSnapshot:
        """Return the whole configuration of this model's client; keys are read from `environ`.

        Raises:
            LLMConfigError: its provider's key is missing.
        """
        from harborage.llm.configure import configure  # loaded when a model is opened

        known = {**environ, **self._key_of(environ)}
        config = configure(self.name, environ=known)
        profile = config.profiles.get(config.model) or profile_for(config.model, config.provider)
        changed: dict[str, Any] = {"temperature": self.temperature, "default_max_tokens": self.max_tokens}
        changed["reasoning_effort"] = None if self.reasoning is None else ReasoningEffort(self.reasoning)
        profile = msgspec.structs.replace(profile, **{name: one for name, one in changed.items() if one is not None})
        transport = config.transport
        if self.retries is not None:
            transport = msgspec.structs.replace(transport, max_retries=self.retries)
        return msgspec.structs.replace(
            config,
            profiles={**config.profiles, config.model: profile},
            transport=transport,
            timeout_s=config.timeout_s if self.timeout is None else self.timeout,
            base_url=self.base_url or config.base_url,
            api_key=self.api_key or config.api_key,
            extra={**config.extra, **self._cached(), **self.extra},
        )

    def _key_of(self, environ: Mapping[str, str]) -> Mapping[str, str]:
        """The provider's usual variable, filled from the one that this model names, so that no other key is missed."""
        from harborage.llm.providers import PROVIDERS

        usual = PROVIDERS[parse_model(self.name).provider].key_variable
        found = environ.get(self.api_key.removeprefix("env."), "") if self.api_key else ""
        return {usual: found} if usual and found else {}

    def _cached(self) -> Mapping[str, Any]:
        if self.cache is None:
            return {}
        if parse_model(self.name).provider == "anthropic":
            return {"cache_control": {"type": "ephemeral", "ttl": self.cache}}
        return {"prompt_cache_retention": self.cache}


def check_model(model: object, option: str = "model") -> None:
    """Accept what names a model: a string, a `Model`, a configuration, a client, or a list of these to fall back on.

    Raises:
        InvalidOptionError: it is none.
    """
    if isinstance(model, list | tuple):
        if not model:
            raise InvalidOptionError(option, model, 'at least one model, such as ["openai:gpt-5"]')
        for one in model:
            if isinstance(one, list | tuple):
                raise InvalidOptionError(option, one, "one list of models, not one in another")
            check_model(one, option)
        return
    is_client = callable(getattr(model, "complete", None))
    if not (is_client or isinstance(model, str | Model) or hasattr(model, "profiles")):
        raise InvalidOptionError(option, model, 'a model, such as "openai:gpt-5" or Model("openai:gpt-5")')


def configuration_of(model: Any, environ: Mapping[str, str]) -> Any:
    """Return the configuration of what names one model; a configuration, and a client that is open, as it is.

    Raises:
        LLMConfigError: the text names no model, or its provider's key is missing.
    """
    if isinstance(model, str):
        from harborage.llm.configure import configure  # loaded when a model is opened

        return configure(model, environ=environ)
    return model.config(environ) if isinstance(model, Model) else model
