"""What a caller set for one run, applied to each call of its model.

It stands above the recorder: the record has the request as it was sent, and a replay, which knows the settings from
the run's request, makes the same one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from harborage.identity import effective_quadruple
from harborage.llm import ReasoningEffort

if TYPE_CHECKING:
    from harborage.llm import CompleteRequest, CompleteResponse, LLMClient
    from harborage.runtime.effects.run_resources import LiveRun
    from harborage.runtime.loop.seam import ModelOverrides


class ModelSettings:
    """The settings of the runs of one agent. They are found once `attach` has been called, when the agent is open."""

    def __init__(self) -> None:
        self._find: Callable[[str], LiveRun | None] = _nobody

    def attach(self, find: Callable[[str], LiveRun | None]) -> None:
        """Give it what returns the live side of a run that is executed here."""
        self._find = find

    def wrap(self, client: LLMClient) -> LLMClient:
        """Return a client that calls `client` with the settings of the run that asks."""
        return _SettingClient(client, self)

    def apply(self, request: CompleteRequest) -> CompleteRequest:
        """Return a request with the settings of the run that asks; itself where it has none."""
        who = effective_quadruple()
        live = None if who is None else self._find(who.run_id)
        if live is None or live.request is None or live.request.overrides is None:
            return request
        return with_overrides(request, live.request.overrides)


def _nobody(_: str) -> None:
    return None


def with_overrides(request: CompleteRequest, overrides: ModelOverrides) -> CompleteRequest:
    """Return a request with what the overrides set; the system prompt is the planner's business."""
    changes: dict[str, Any] = {}
    if overrides.reasoning_effort:
        changes["reasoning_effort"] = ReasoningEffort(overrides.reasoning_effort)
    if overrides.temperature is not None:
        changes["temperature"] = overrides.temperature
    if overrides.max_tokens is not None:
        changes["max_tokens"] = overrides.max_tokens
    if overrides.top_p is not None:
        changes["extra"] = {**request.extra, "top_p": overrides.top_p}
    return replace(request, **changes) if changes else request


class _SettingClient:
    """A client between a planner and its model."""

    def __init__(self, inner: LLMClient, settings: ModelSettings) -> None:
        self._inner = inner
        self._settings = settings

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        return await self._inner.complete(self._settings.apply(request))

    async def close(self) -> None:
        await self._inner.close()
