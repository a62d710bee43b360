"""From the name of a model to who decides: the client opened, the planner and the summariser built over it.

A runtime that is given a planner needs none of this. The client is the runtime's own, and closed with it, unless an
open one was given.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec

from harborage.errors import HarborageError
from harborage.events import Redactor
from harborage.llm import ConfigSnapshot, Deps, LLMClient, ToolsUnsupportedError
from harborage.planner import FactoryDeps, Planner, PlannerConfig, Summariser, TrajectorySummariser, resolve
from harborage.runtime.agent.hearing import Hearing
from harborage.runtime.agent.reasoning import RedactingClient

__all__ = ["Mind", "MindError", "ModelChoice", "Thought", "mind_of", "open_mind"]

ModelChoice: TypeAlias = str | ConfigSnapshot | LLMClient
"""Which model decides: a string such as `openai:gpt-5`, a whole configuration, or a client that is open already."""

_NO_LIMIT: Final = 1 << 30
_HISTORY_SHARE: Final = 0.6


class MindError(HarborageError):
    """A runtime is told who decides in exactly one way: by a planner or by a model."""


class Thought(msgspec.Struct, frozen=True, kw_only=True):
    """A mind that is not open yet: a model, and the configuration of the planner over it."""

    model: ModelChoice
    config: PlannerConfig = PlannerConfig()


class Mind(msgspec.Struct, frozen=True, kw_only=True):
    """Who decides the steps of a runtime's runs. `window` is the tokens that the model's window holds, 0 if unknown."""

    planner: Planner
    summariser: Summariser | None = None
    window: int = 0
    client: LLMClient | None = None

    async def check_price(self) -> None:
        """Accept the model for runs with a cost limit. A planner of one's own is asked at each of its calls.

        Raises:
            PriceUnknownError: nobody knows what its calls cost.
        """
        from harborage.llm.opening import check_price

        if self.client is not None:
            await check_price(self.client)

    def token_budget(self, wanted: int | None) -> int:
        """The size of a history above which it is summarised: as wanted, else 60 % of the model's window."""
        return int(self.window * _HISTORY_SHARE) if wanted is None else wanted


def mind_of(planner: Planner | PlannerConfig | None, model: ModelChoice | None, instructions: str) -> Planner | Thought:
    """Who decides, as the parameters of a runtime say it.

    Raises:
        MindError: they name nobody, or two, or give instructions to a planner that cannot take them.
    """
    if planner is None or isinstance(planner, PlannerConfig):
        if model is None:
            raise MindError("nobody decides: give a planner of your own, or a model such as model='openai:gpt-5'")
        return Thought(model=model, config=_instructed(PlannerConfig() if planner is None else planner, instructions))
    if model is not None:
        raise MindError("a planner of your own brings its own model: leave `model` out, or give a PlannerConfig")
    if instructions:
        raise MindError("instructions are for the planner over a model: give them to your own planner itself")
    return planner


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


async def open_mind(
    who: Planner | Thought,
    deps: Deps,
    closers: list[Callable[[], Awaitable[None]]],
    summariser: Summariser | None,
    *,
    redactor: Redactor,
    hearing: Hearing | None = None,
    has_tools: bool = False,
) -> Mind:
    """A planner as it is, or the one over a model that is opened now; what has to be closed is added to `closers`.

    `redactor` takes secrets out of the model's reasoning. What is asked of the model is heard by `hearing`, if there is
    one. With `has_tools` the model must take some.

    Raises:
        LLMError: the model cannot be opened, or is known to take no tools; the text names the setting and the fix.
        DriverUnknownError: no planner has the configured name.
    """
    if not isinstance(who, Thought):
        return Mind(planner=who, summariser=summariser)
    client, window = await _opened(who.model, deps, closers, has_tools=has_tools)
    opened = client
    client = RedactingClient(client, redactor)
    if hearing is not None:
        client = hearing.wrap(client)
    planner = await resolve(who.config, FactoryDeps(llm=client))
    summariser = TrajectorySummariser(client) if summariser is None else summariser
    return Mind(planner=planner, summariser=summariser, window=window, client=opened)


async def _opened(
    model: ModelChoice, deps: Deps, closers: list[Callable[[], Awaitable[None]]], *, has_tools: bool
) -> tuple[LLMClient, int]:
    """The open client, and the tokens that its model's window holds; 0 when nobody knows."""
    from harborage.llm.configure import configure
    from harborage.llm.opening import counted, open_llm

    config = configure(model, environ=os.environ) if isinstance(model, str) else model
    if not isinstance(config, ConfigSnapshot):
        return counted(config, deps), 0
    profile = config.profiles.get(config.model)
    if has_tools and profile is not None and not profile.supports_tools:
        raise ToolsUnsupportedError.of(config.provider, config.model)
    client = await open_llm(config, deps)
    closers.append(client.close)
    return client, 0 if profile is None else profile.context_window_tokens
