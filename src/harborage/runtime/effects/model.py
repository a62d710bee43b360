"""Open a runtime's model and build the planner and the summariser over it.

A runtime over a planner of the caller's own opens no model. A client that is opened here is closed with the runtime;
one that the caller passes open is not.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from harborage import codec
from harborage.callables import require_sync
from harborage.errors import InvalidOptionError
from harborage.llm import ConfigSnapshot, Deps, LLMClient, ModelProfile, ToolsUnsupportedError
from harborage.llm.model import Model, check_model, configuration_of
from harborage.planner import (
    FactoryDeps,
    OperatorPlannerConfig,
    Planner,
    PlannerConfig,
    PlanningHints,
    Summariser,
    TrajectorySummariser,
    check_config,
    check_operator_config,
    check_planner,
    config_from_operator,
    hints_from_config,
    registered_drivers,
    resolve,
)
from harborage.runtime.effects.model_recording import RedactingClient

if TYPE_CHECKING:
    from harborage.events import Redactor
    from harborage.planner.answers import AnswerSchema
    from harborage.runtime.effects.model_recording import ModelRecorder
    from harborage.runtime.effects.model_settings import ModelSettings

OneModel: TypeAlias = str | Model | ConfigSnapshot | LLMClient
"""One model: a string such as `openai:gpt-5`, a `Model`, a whole configuration, or a client that is open already."""

ModelChoice: TypeAlias = OneModel | Sequence[OneModel]
"""A runtime's model, or several: the next one is asked when the provider of one is down or out of retries."""

_NO_LIMIT: Final = 1 << 30
_HISTORY_SHARE: Final = 0.6


PlannerFactory: TypeAlias = Callable[[LLMClient], Planner]
"""Makes a planner over the open client of the runtime's model, such as `ReActPlanner` or a function that calls it."""

PlannerChoice: TypeAlias = Planner | PlannerConfig | OperatorPlannerConfig | PlannerFactory
"""A runtime's planner: one with a model of its own or none, or how to make one over the runtime's model."""


class ReasonerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How to open a `Reasoner`: a model, and the configuration or the factory of the planner over it.

    `hints` are the operator's planning hints for every prompt.
    """

    model: ModelChoice
    config: PlannerConfig = PlannerConfig()
    factory: PlannerFactory | None = None
    hints: PlanningHints | None = None


class Reasoner(msgspec.Struct, frozen=True, kw_only=True):
    """A runtime's planner, its summariser and the model under them. `window` is the model's context window in tokens,
    0 if unknown.

    `client` is the open model under the planner, None for a planner of the caller's own. `takes_tools` is False for a
    model that is known to accept none, `takes_pictures` too; `hints` go into every prompt.
    """

    planner: Planner
    summariser: Summariser | None = None
    window: int = 0
    takes_tools: bool = True
    takes_pictures: bool = True
    hints: PlanningHints | None = None
    client: LLMClient | None = None

    async def check_price(self) -> None:
        """Check that the model can be used by runs with a cost limit; a caller's own planner is checked at each call.

        Raises:
            PriceUnknownError: the price of the model is unknown.
        """
        from harborage.llm.opening import check_price

        if self.client is not None:
            await check_price(self.client)

    def token_budget(self, wanted: int | None) -> int:
        """Return the history size in tokens above which it is summarised: `wanted`, else 60 % of the window."""
        return int(self.window * _HISTORY_SHARE) if wanted is None else wanted


class Reasoners:
    """The planner of an agent, and those over another model or with other instructions, opened by the first run that
    asks for one."""

    def __init__(
        self,
        config: Planner | ReasonerConfig,
        open_one: Callable[[Planner | ReasonerConfig], Awaitable[Reasoner]],
        own: Reasoner,
    ) -> None:
        self.own = own
        self._config = config
        self._open_one = open_one
        self._opened: dict[tuple[str, str, str], Reasoner] = {}
        self._opening = asyncio.Lock()

    async def of(self, model: str = "", instructions: str = "", output: AnswerSchema | None = None) -> Reasoner:
        """Return the agent's own, with `model`, `instructions` and `output` in their places if they are given.

        Raises:
            InvalidOptionError: the agent's planner takes no other model, or no instructions.
            LLMError: the model cannot be opened.
        """
        if not (model or instructions or output):
            return self.own
        wanted = (model, instructions, "" if output is None else codec.encode_text(codec.to_plain(output)))
        async with self._opening:
            found = self._opened.get(wanted)
            if found is None:
                found = await self._open_one(changed_reasoner(self._config, model, instructions, output))
                self._opened[wanted] = found
            return found


def changed_reasoner(
    who: Planner | ReasonerConfig, model: str, instructions: str, output: AnswerSchema | None = None
) -> ReasonerConfig:
    """Return how to open a reasoner over another model, with other instructions, or for answers of another form.

    Raises:
        InvalidOptionError: it is a planner of the caller's own, or a factory's, which takes no instructions.
    """
    if not isinstance(who, ReasonerConfig):
        given = {"model": model, "instructions": instructions, "output": output}
        name, value = next((name, value) for name, value in given.items() if value)
        text = f"{name}: the agent decides with a planner of its own, which takes none"
        raise InvalidOptionError(name, value, message=text)
    if model and not getattr(who.model, "answers_for_any", False):
        who = msgspec.structs.replace(who, model=model)
    if output is not None:
        who = msgspec.structs.replace(who, config=msgspec.structs.replace(who.config, answer=output))
    if not instructions:
        return who
    if who.factory is not None:
        text = "instructions: the agent's planner is made by a function of its own, which takes none"
        raise InvalidOptionError("instructions", instructions, message=text)
    return msgspec.structs.replace(who, config=msgspec.structs.replace(who.config, extra_guidance=instructions))


def name_of_model(model: ModelChoice) -> str:
    """Return what a model is called: of several the first one, "" for an open client that does not say."""
    first = model if isinstance(model, str) or not isinstance(model, Sequence) else model[0]
    if isinstance(first, str):
        return first
    name = getattr(first, "name", "") or getattr(first, "model", "")
    return name if isinstance(name, str) else ""


def is_own_planner(planner: PlannerChoice | None) -> bool:
    """Return whether `planner` is the caller's own, so that the runtime opens no model for it."""
    is_configured = planner is None or isinstance(planner, PlannerConfig | OperatorPlannerConfig)
    return not is_configured and not isinstance(planner, type) and hasattr(planner, "next")


def choose_reasoner(
    planner: PlannerChoice | None, model: ModelChoice | None, instructions: str
) -> Planner | ReasonerConfig:
    """Return the planner, or how to open one, that these parameters of a runtime choose.

    Raises:
        InvalidOptionError: neither or both are passed, or instructions for a planner that cannot take them.
        InvalidConfigError: the configuration of the planner cannot be used; the text names the option.
    """
    match planner:
        case None:
            return _over(model, config=_instructed(PlannerConfig(), instructions))
        case PlannerConfig():
            check_config(planner)
            return _over(model, config=_instructed(planner, instructions))
        case OperatorPlannerConfig():
            check_operator_config(planner, drivers=registered_drivers())
            config = _instructed(config_from_operator(planner), instructions)
            return _over(model, config=config, hints=hints_from_config(planner.planning_hints))
        case _:
            pass
    if not is_own_planner(planner):
        return _over_factory(planner, model, instructions)
    if model is not None:
        raise InvalidOptionError(
            "model",
            model,
            message="a planner of your own brings its own model: leave `model` out, pass a PlannerConfig, or pass a "
            "function that makes the planner over the model's client",
        )
    if instructions:
        raise InvalidOptionError(
            "instructions",
            instructions,
            message="instructions are for the planner over a model: pass them to your own planner itself",
        )
    return check_planner(planner)


def _over(model: ModelChoice | None, **fields: Any) -> ReasonerConfig:
    if model is None:
        raise InvalidOptionError(
            "planner",
            None,
            message="Runtime needs planner= or model= (for example model='openai:gpt-5')",
        )
    check_model(model)
    return ReasonerConfig(model=model, **fields)


def _over_factory(factory: Any, model: ModelChoice | None, instructions: str) -> ReasonerConfig:
    if not callable(factory):
        raise InvalidOptionError(
            "planner",
            factory,
            message=f"planner is a {type(factory).__name__}, which has no `next`: pass a planner, a PlannerConfig, or "
            "a function that makes a planner over the model's client",
        )
    if instructions:
        raise InvalidOptionError(
            "instructions",
            instructions,
            message="instructions are for the configured planner: pass them to the planner that your factory makes",
        )
    require_sync(factory, "planner")
    return _over(model, factory=factory)


def _instructed(config: PlannerConfig, instructions: str) -> PlannerConfig:
    """The configuration with the instructions before its own guidance; the steps of a run are limited by the runtime.

    The planner's own default, which is lower, would end runs before the limit that the runtime was given.
    """
    guidance = "\n\n".join(text for text in (instructions, config.extra_guidance) if text)
    return msgspec.structs.replace(
        config,
        driver=config.driver or "react",
        extra_guidance=guidance,
        max_steps=config.max_steps or _NO_LIMIT,
    )


async def open_reasoner(
    who: Planner | ReasonerConfig,
    deps: Deps,
    closers: list[Callable[[], Awaitable[None]]],
    summariser: Summariser | None,
    *,
    redactor: Redactor,
    recorder: ModelRecorder | None = None,
    has_tools: bool = False,
    guard: Callable[[LLMClient], LLMClient] | None = None,
    settings: ModelSettings | None = None,
) -> Reasoner:
    """Return a caller's planner as it is, or open the model and build the planner over it.

    What the runtime has to close is added to `closers`.

    `redactor` takes secrets out of the model's reasoning; `recorder`, if given, records the calls;
    `guard` puts hooks around them; `settings` are those of single runs, for the planner's calls alone. With `has_tools`
    the model must accept tools.

    Raises:
        LLMError: the model cannot be opened, or is known to take no tools; the text names the setting and the fix.
        DriverUnknownError: no planner has the configured name.
        InvalidConfigError: the driver does not take an option, or the factory returned no planner.
    """
    if not isinstance(who, ReasonerConfig):
        return Reasoner(planner=who, summariser=summariser)
    client, profile = await _opened(who.model, deps, closers, has_tools=has_tools)
    opened = client
    client = RedactingClient(client, redactor)
    if guard is not None:
        client = guard(client)
    if recorder is not None:
        client = recorder.wrap(client)
    asked = client if settings is None else settings.wrap(client)
    if who.factory is None:
        planner = await resolve(who.config, FactoryDeps(llm=asked))
    else:
        planner = check_planner(who.factory(asked))
    return Reasoner(
        planner=planner,
        summariser=TrajectorySummariser(client) if summariser is None else summariser,
        window=0 if profile is None else profile.context_window_tokens,
        takes_tools=profile is None or profile.supports_tools,
        takes_pictures=takes_pictures(who.model),
        hints=who.hints,
        client=opened,
    )


def takes_pictures(model: ModelChoice) -> bool:
    """Return False for models of which one is known to accept no pictures."""
    from harborage.llm.configure import complete_settings
    from harborage.llm.providers import known_profile

    for one in (model,) if isinstance(model, str) or not isinstance(model, Sequence) else model:
        config = configuration_of(one, os.environ)
        if not isinstance(config, ConfigSnapshot):
            continue
        full = complete_settings(config)
        profile = full.profiles.get(full.model)
        limit = None if profile is None else profile.inline_limit_bytes
        if limit is None and known_profile(full.model, full.provider) is not None:
            return False
    return True


async def _opened(
    model: ModelChoice, deps: Deps, closers: list[Callable[[], Awaitable[None]]], *, has_tools: bool
) -> tuple[LLMClient, ModelProfile | None]:
    """The open client, and what is known of its model; of several, what holds for each of them."""
    if isinstance(model, str) or not isinstance(model, Sequence):
        return await _opened_one(model, deps, closers, has_tools=has_tools)
    from harborage.llm.chain.fallback import Fallback  # loaded where there are several

    opened = [await _opened_one(one, deps, closers, has_tools=has_tools) for one in model]
    profiles = [profile for _, profile in opened if profile is not None]
    smallest = min(profiles, key=lambda profile: profile.context_window_tokens, default=None)
    return Fallback([client for client, _ in opened], ConfigSnapshot(), deps), smallest


async def _opened_one(
    model: OneModel, deps: Deps, closers: list[Callable[[], Awaitable[None]]], *, has_tools: bool
) -> tuple[LLMClient, ModelProfile | None]:
    from harborage.llm.opening import count_calls, open_llm

    config = configuration_of(model, os.environ)
    if not isinstance(config, ConfigSnapshot):
        return count_calls(config, deps), None
    profile = config.profiles.get(config.model)
    if has_tools and profile is not None and not profile.supports_tools:
        raise ToolsUnsupportedError.of(config.provider, config.model)
    client = await open_llm(config, deps)
    closers.append(client.close)
    return client, profile
