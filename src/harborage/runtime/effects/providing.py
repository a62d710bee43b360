"""The `context.provide` and `memory.write` effects: the context of a run, and the turn it adds to its session.

The answer of the providers is recorded, and the planner is shown the recorded answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harborage.errors import error_summary
from harborage.events import ANNOUNCED, EventType, RuntimeWarningPayload
from harborage.runtime.durable.steps import Effect, Note, Think
from harborage.runtime.effects.context_providers import MAX_REASON_CHARS, Provided, describe_omitted_skills
from harborage.runtime.effects.model_recording import without_secrets
from harborage.runtime.effects.user_code import STORE_TIMEOUT_S
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
    """Return both effects; `runs` are the runs that this worker executes, by id."""
    return {
        "context.provide": Think(
            run=lambda call: provide(services, runs[call.run_id], is_child=call.payload),
            result=Provided,
            # A resumed run is shown its recorded context; no provider is asked again.
            recalled=lambda call, provided: _restore_context(services, runs[call.run_id], provided),
            yields_to_cancel=True,
        ),
        "memory.write": Note(
            run=lambda call: write_memory(services, runs[call.run_id], call.payload), is_interruptible=True
        ),
    }


def _restore_context(services: AgentServices, live: LiveRun, provided: Provided) -> None:
    add_context(services, live, provided)


async def provide(services: AgentServices, live: LiveRun, *, is_child: bool) -> Provided:
    """Ask the providers for the run's context and add it to the run; publish a warning for each part that is left out.

    Raises:
        DatabaseError: the database failed; the step can be retried.
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
    given = add_context(services, live, provided)
    if message := describe_omitted_skills(given, services.context_providers.max_skills):
        _warn(services, live, "run %s: %s", message)
    return provided


def add_context(services: AgentServices, live: LiveRun, provided: Provided) -> Context:
    """Add the context of the run's providers and of its caller to the run; return all of it."""
    named = [("runtime", provided.context)]
    if live.request is not None and live.request.context is not None:
        named.append(("start", live.request.context))
    given = merged(named)
    most = len(given.skills_context) if services.context_providers is None else services.context_providers.max_skills
    apply_context(live.base, given, max_skills=most)
    return given


async def write_memory(services: AgentServices, live: LiveRun, finish: Finish) -> bool:
    """Add the run to the memory of its session; return whether that worked. A failure is published as a warning."""
    state, who = live.state, live.base.quadruple
    memory = None if services.context_providers is None else services.context_providers.memory
    if memory is None or state is None:
        services.logger.warning("run %s is not remembered: this process has no memory of sessions", _id(live))
        return False
    from harborage.runtime.effects.session_memory import turn_of

    turn = turn_of(live.base.query or live.base.goal, finish, state.trajectory, key=who.run_id, clock=services.stamp)
    try:
        await services.bounded(memory.add_turn(who.identity, turn), STORE_TIMEOUT_S, "the memory of its session", who)
    except Exception as error:  # noqa: BLE001 - published as a warning
        # A memory that cannot be written does not change how the run ended.
        reason = without_secrets(services.redactor, error_summary(error))[:MAX_REASON_CHARS]
        message = f"the session does not remember this run: {reason}"
        _warn(services, live, "run %s: %s", message)
        return False
    return True


def _warn(
    services: AgentServices, live: LiveRun, logged: str, message: str, fields: dict[str, Any] | None = None
) -> None:
    """Log a warning, and publish it as an event of the run."""
    services.logger.warning(logged, _id(live), message, extra=ANNOUNCED)
    payload = RuntimeWarningPayload(message=message, fields=fields or {})
    services.emit(EventType.RUNTIME_WARNING, live.base.quadruple, payload)


def _id(live: LiveRun) -> str:
    return live.base.quadruple.run_id
