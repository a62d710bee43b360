"""The `context.provide` and `memory.write` effects: what a run is given before its first step, and what it leaves.

The answer of the providers is recorded, and what the planner is shown is what the record holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harborage.concurrency import is_cancelled
from harborage.crashes import contained
from harborage.errors import error_summary
from harborage.events import ANNOUNCED, EventType, RuntimeWarningPayload
from harborage.runtime.durable.steps import Effect, Note, Think
from harborage.runtime.effects.context_providers import MAX_REASON_CHARS, Provided, describe_omitted_skills
from harborage.runtime.effects.model_recording import without_secrets
from harborage.runtime.loop.context import (
    Context,
    ContextRequest,
    apply_context,
    merged,
)

if TYPE_CHECKING:
    from harborage.planner import Finish
    from harborage.runtime.effects.run_resources import LiveRun
    from harborage.runtime.effects.services import AgentServices


def context_effects(services: AgentServices, runs: Mapping[str, LiveRun]) -> dict[str, Effect]:
    """What a run is given before its first step, and what its session keeps of it; `runs` are those under way here."""
    return {
        "context.provide": Think(
            run=lambda call: provide(services, runs[call.run_id], is_child=call.payload),
            result=Provided,
            # A run that is continued is shown what it was shown before; no provider is asked again.
            recalled=lambda call, provided: _given_again(services, runs[call.run_id], provided),
            yields_to_cancel=True,
        ),
        "memory.write": Note(
            run=lambda call: write_memory(services, runs[call.run_id], call.payload), is_interruptible=True
        ),
    }


def _given_again(services: AgentServices, live: LiveRun, provided: Provided) -> None:
    give(services, live, provided)


async def provide(services: AgentServices, live: LiveRun, *, is_child: bool) -> Provided:
    """Ask the providers for the run's context and give it to the run; what is left out is announced.

    Raises:
        DatabaseError: the step is to be taken again once the database serves.
    """
    base = live.base
    if services.context_providers is None:
        services.logger.warning("run %s was started with context providers, and this process has none", _id(live))
        return Provided()
    run = ContextRequest(
        who=base.quadruple,
        goal=base.goal,
        query=base.query,
        is_child=is_child,
        is_rehearsal=live.is_rehearsal,
        catalog=base.catalog,
        artifacts=base.artifacts,
    )
    provided = await services.context_providers.query(run)
    for skipped in provided.skipped:
        message = f"context provider {skipped.name!r} gave nothing: {skipped.reason}"
        fields = {"provider": skipped.name, "reason": skipped.reason}
        _warn(services, live, "run %s goes on without it: %s", message, fields)
    given = give(services, live, provided)
    if message := describe_omitted_skills(given, services.context_providers.max_skills):
        _warn(services, live, "run %s: %s", message)
    return provided


def give(services: AgentServices, live: LiveRun, provided: Provided) -> Context:
    """Show a run's planner what its providers gave, and what its caller did; returns all that they gave."""
    named = [("runtime", provided.context)]
    if live.request is not None and live.request.context is not None:
        named.append(("start", live.request.context))
    given = merged(named)
    most = len(given.skills_context) if services.context_providers is None else services.context_providers.max_skills
    apply_context(live.base, given, max_skills=most)
    return given


async def write_memory(services: AgentServices, live: LiveRun, finish: Finish) -> bool:
    """Let the run's session remember it; whether it does. A failure is announced, and never the run's own."""
    state, who = live.state, live.base.quadruple
    memory = None if services.context_providers is None else services.context_providers.memory
    if memory is None or state is None:
        services.logger.warning("run %s is not remembered: this process has no memory of sessions", _id(live))
        return False
    from harborage.runtime.effects.session_memory import turn_of

    turn = turn_of(live.base.query or live.base.goal, finish, state.trajectory, key=who.run_id, clock=services.stamp)
    try:
        await contained(memory.add_turn(who.identity, turn))
    except (Exception, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and is_cancelled():
            raise
        # What a session remembers does not change how its run ended.
        reason = without_secrets(services.redactor, error_summary(error))[:MAX_REASON_CHARS]
        message = f"the session does not remember this run: {reason}"
        _warn(services, live, "run %s: %s", message)
        return False
    return True


def _warn(
    services: AgentServices, live: LiveRun, logged: str, message: str, fields: dict[str, Any] | None = None
) -> None:
    """Say it in the log, and as an event of the run."""
    services.logger.warning(logged, _id(live), message, extra=ANNOUNCED)
    payload = RuntimeWarningPayload(message=message, fields=fields or {})
    services.emit(EventType.RUNTIME_WARNING, live.base.quadruple, payload)


def _id(live: LiveRun) -> str:
    return live.base.quadruple.run_id
