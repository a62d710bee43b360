"""`start`, and the nine controls of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from harborage.errors import InvalidOptionError, NotFoundError, error_text
from harborage.identity import IdentityRequiredError
from harborage.llm import PriceUnknownError
from harborage.planner.errors import ToolContextLostError
from harborage.protocol.errors import Code, ProtocolError
from harborage.protocol.methods import CONTROLS
from harborage.protocol.wire.control import (
    ControlAccepted,
    ControlRequest,
    EarlierMessage,
    Started,
    StartLimits,
    StartRequest,
)
from harborage.runtime.durable.engine import RunNotFoundError
from harborage.runtime.durable.inbox import emit_rejection
from harborage.runtime.durable.pauses.errors import PauseError
from harborage.runtime.loop.controls import ANSWERS, ControlType, Scope, required_scope
from harborage.runtime.loop.errors import (
    InvalidScopeError,
    NoOutstandingPauseError,
    PayloadInvalidError,
    RunCancelledError,
    ScopeMismatchError,
    UnsupportedPayloadValueError,
)
from harborage.runtime.loop.limits import Limits
from harborage.runtime.loop.payload import validate_answer, validate_payload
from harborage.runtime.messages import Message, Speaker
from harborage.runtime.starting import RunStarter
from harborage.server.services import Endpoint
from harborage.sessions import SessionClosedError
from harborage.store import LIVE, RunQuery
from harborage.tasks import IdempotencyConflictError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harborage.identity import Identity
    from harborage.server.services import Call

MAX_EVENT_ID_CHARS: Final = 200
_OWN_EVENT_IDS: Final = "task-cancelled/"
_MOST_RUNS: Final = 100
_SCOPES: Final = {str(scope): scope for scope in Scope}


async def start(call: Call, asked: StartRequest) -> Started:
    """Start a foreground run in the caller's session, which is created by its first run."""
    parts, who = call.parts, call.who
    agent = _agent(call, asked.agent)
    try:
        await parts.sessions.visit(who)
        begun = await RunStarter(parts, call.services.clock, takes_overrides=True).begin(
            agent,
            asked.query,
            who=who,
            priority=asked.priority,
            input_artifacts=asked.input_artifact_ids,
            key=asked.idempotency_key,
            description=asked.description,
            limits=_limits(call, agent, asked.limits),
            tags=asked.tags,
            messages=[_message(one) for one in asked.messages],
            needs_goal=False,
        )
    except IdentityRequiredError as error:
        raise ProtocolError(Code.IDENTITY_REQUIRED, f"start: {error_text(error)}") from error
    except (SessionClosedError, IdempotencyConflictError, InvalidOptionError, PriceUnknownError) as error:
        raise ProtocolError(Code.INVALID_REQUEST, f"start: {error_text(error)}") from error
    except NotFoundError as error:
        raise ProtocolError(Code.NOT_FOUND, f"start: {error_text(error)}") from error
    return Started(task_id=begun.who.run_id, reused=begun.is_known)


def _agent(call: Call, asked: str) -> str:
    """Return the name of the served agent that a request is for.

    Raises:
        ProtocolError: `not_found`.
    """
    served = [one.name for one in call.parts.agents.roots]
    if not asked:
        return served[0]
    if asked not in served:
        raise ProtocolError(Code.NOT_FOUND, "start: no agent of this name or id is served here")
    return asked


def _limits(call: Call, agent: str, asked: StartLimits) -> Limits | None:
    """Return the limits that a request asks for, where the operator has not set lower ones.

    Raises:
        InvalidOptionError: one is not a positive number.
    """
    wanted = Limits(steps=asked.steps, calls=asked.calls, tokens=asked.tokens, cost=asked.usd, seconds=asked.seconds)
    return wanted.within(call.parts.agents.get(agent).options.limits)


def _message(one: EarlierMessage) -> Message:
    return Message(role=Speaker(one.role), text=one.text, tool=one.tool, args=one.args)


async def control(call: Call, asked: ControlRequest) -> ControlAccepted:
    """Queue a control for a run of the caller, once under its event id."""
    run_id, kind = asked.identity.run, ControlType(call.method.name.upper())
    if not run_id.strip():
        raise ProtocolError(Code.IDENTITY_REQUIRED, f"{call.method.name}: identity.run must name the run")
    if len(asked.event_id) > MAX_EVENT_ID_CHARS or asked.event_id.startswith(_OWN_EVENT_IDS):
        raise ProtocolError(
            Code.INVALID_REQUEST,
            f"{call.method.name}: event_id has at most {MAX_EVENT_ID_CHARS} characters of your own",
        )
    scope = await _check(call, asked, kind)
    try:
        await _send(call, asked, kind, scope)
    except RunNotFoundError as error:
        if run_id != call.who.session_id or kind is not ControlType.CANCEL:
            raise _not_live(call) from error
        await _cancel_session(call, asked, scope)
    return ControlAccepted(method=call.method.name)


async def _check(call: Call, asked: ControlRequest, type: ControlType) -> Scope:
    """Return the scope in which a control is sent: the lower of what is asked for and what the token gives.

    Raises:
        ProtocolError: `scope_mismatch` or `payload_invalid`, whether there is such a run or not; it is announced.
    """
    try:
        scope = _scope(call, asked.identity.scope, type)
        validate_payload(asked.payload)
        if type in ANSWERS:
            validate_answer(asked.payload)
    except (InvalidScopeError, ScopeMismatchError, PayloadInvalidError, UnsupportedPayloadValueError) as error:
        run, sender = call.who.with_run(asked.identity.run), _sender(call)
        await emit_rejection(call.parts.bus, run, type, asked.identity.scope, error, by=sender, event_id=asked.event_id)
        is_payload = isinstance(error, PayloadInvalidError | UnsupportedPayloadValueError)
        code = Code.PAYLOAD_INVALID if is_payload else Code.SCOPE_MISMATCH
        raise ProtocolError(code, f"{call.method.name}: {error_text(error)}") from error
    return scope


def _scope(call: Call, asked: str, type: ControlType) -> Scope:
    wanted = _SCOPES.get(asked)
    if wanted is None:
        raise InvalidScopeError()
    given = Scope.ADMIN if call.is_admin else Scope.OWNER_USER
    scope = min(wanted, given, key=lambda one: one.rank)
    required = required_scope(type) or Scope.ADMIN
    if scope < required:
        raise ScopeMismatchError(
            f"{type} takes scope {required}; this request has {scope}", required=required, presented=scope
        )
    return scope


def _sender(call: Call) -> Identity:
    return call.who if call.actor is None else call.actor


async def _send(call: Call, asked: ControlRequest, type: ControlType, scope: Scope, run_id: str = "") -> None:
    """Queue a control for one run; of an answer that fits no pause, events say so.

    Raises:
        RunNotFoundError: the caller has no such run, or it has ended.
        ProtocolError: `payload_invalid`: an answer of another type than its question has.
    """
    run = call.services.runtime.get(run_id or asked.identity.run, who=call.who, scope=scope)
    try:
        await run.control(type, asked.payload, event_id=asked.event_id, by=_sender(call))
    except (PauseError, NoOutstandingPauseError, ToolContextLostError, RunCancelledError) as error:
        call.services.logger.info("%s for run %s came to nothing: %s", type, run.id, error_text(error))
    except PayloadInvalidError as error:
        raise ProtocolError(Code.PAYLOAD_INVALID, f"{call.method.name}: {error_text(error)}") from error


async def _cancel_session(call: Call, asked: ControlRequest, scope: Scope) -> None:
    """Cancel the foreground runs of the caller's session that have not ended.

    Raises:
        ProtocolError: `not_found`: there is none, and none was cancelled by this very control.
    """
    count = 0
    for run_id in await _foreground(call, LIVE):
        try:
            await _send(call, asked, ControlType.CANCEL, scope, run_id)
            count += 1
        except RunNotFoundError:
            continue  # it has ended meanwhile
    if count or (asked.event_id and await _was_cancelled(call, asked.event_id)):
        return
    raise _not_live(call)


async def _was_cancelled(call: Call, event_id: str) -> bool:
    store = call.parts.store
    return any([await store.was_sent(run_id, event_id) for run_id in await _foreground(call, ())])


async def _foreground(call: Call, statuses: Sequence[Any]) -> list[str]:
    """Return the newest foreground runs of the caller's session in these statuses."""
    who = call.who
    query = RunQuery(
        tenant=who.tenant_id,
        user=who.user_id,
        session=who.session_id,
        kinds=("foreground",),
        statuses=tuple(statuses),
        limit=_MOST_RUNS,
    )
    return [row.run_id for row in (await call.parts.store.runs(query)).rows]


def _not_live(call: Call) -> ProtocolError:
    return ProtocolError(Code.NOT_FOUND, f"{call.method.name}: no live run of yours has this id")


ENDPOINTS: Final = {
    "start": Endpoint(StartRequest, Started, start),
    **{name: Endpoint(ControlRequest, ControlAccepted, control) for name in CONTROLS},
}
"""The methods of this family."""
