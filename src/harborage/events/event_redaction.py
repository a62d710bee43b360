"""Redacting an event before it is stored or delivered.

Pure but for the redactor that is passed in.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

import msgspec

from harborage.events.errors import RedactionFailedError
from harborage.events.event import Event, Principal, RedactedMap, SafePayload, Triple
from harborage.events.payloads.llm import LLMCost, LLMUsage
from harborage.events.payloads.runtime import (
    AuditRedactionFailedPayload,
    BusEnvelope,
    TopologyEdge,
    TopologyNode,
    TopologyProjection,
)
from harborage.events.payloads.tasks import TaskGroupCompletion, TaskGroupMember, TaskMemberFailure
from harborage.events.payloads.tools import CutValue
from harborage.events.types import EventType
from harborage.identity import Identity, Quadruple

if TYPE_CHECKING:
    from harborage.events.redaction import Redactor

FIXED: Final = frozenset(
    {"approvers", "artifact_id", "by", "call_id", "deadline", "decision", "decision_kind",
     "default", "edited", "err", "event_id", "group_id", "kind", "masked", "on_unknown", "outcome", "owner_task_id",
     "parent_task_id", "patch_id", "pause_token", "prior_state", "run_id", "session", "session_id",
     "step", "task_id", "tenant", "token", "tool_name", "transport", "type", "user"}
)  # fmt: skip
"""Fields of typed payloads that hold ids and fixed words, never a text, or what was redacted before; all others are
redacted."""

S = TypeVar("S", bound=msgspec.Struct)
# Types that hold no text, identities, which name the owner of an event, and values that were redacted when they were
# encoded: none of them is redacted.
_AS_THEY_ARE: Final = (bool, int, float, datetime, Identity, Quadruple, Triple, Principal, msgspec.Raw)
# The typed parts of payloads; any other value of a field is redacted as plain data.
_PARTS: Final = frozenset(
    {LLMCost, LLMUsage, TaskMemberFailure, TaskGroupMember, TaskGroupCompletion, TopologyProjection, TopologyNode,
     TopologyEdge, BusEnvelope, CutValue}
)  # fmt: skip


def redact_event(redactor: Redactor, event: Event, publish: Callable[[Event], object]) -> Event:
    """Return `event` without its secrets.

    A safe payload stays the typed object that it is, with each of its texts redacted by itself. `publish` is called
    when redaction fails, with an audit event that holds nothing of the payload.

    Raises:
        RedactionFailedError: no safe copy could be made.
    """
    kind: Any = type(event.payload)
    if not event.extra and _has_no_texts(kind):
        return event
    payload, extra = event.payload, event.extra
    try:
        if isinstance(payload, SafePayload):
            out: Any = _redact_struct(redactor, payload)
            if out is payload and not extra:
                return event
        else:
            out = redactor.redact(payload)
        safe_extra = {key: str(redactor.redact(value)) for key, value in extra.items()} if extra else extra
    except Exception as error:
        reason = str(error) if isinstance(error, RedactionFailedError) else type(error).__name__
        failed = AuditRedactionFailedPayload(event.type, reason)
        publish(Event(EventType.AUDIT_REDACTION_FAILED, event.identity, failed))
        raise RedactionFailedError(f"events: publish redaction failed: {event.type}: {reason}") from error
    if out is payload and isinstance(payload, SafePayload) and safe_extra == extra:
        return event
    safe = out if isinstance(out, SafePayload) else RedactedMap(out if isinstance(out, dict) else {"value": out})
    return Event(event.type, event.identity, safe, event.occurred_at, extra=safe_extra)


def _redact_struct(redactor: Redactor, body: S) -> S:
    """Return a typed body with its texts redacted; the same object when nothing changed."""
    texts, values = _fields(type(body))
    changes: dict[str, Any] = {}
    for name in texts:
        before = getattr(body, name)
        if before and (after := redactor.redact(before)) != before:
            changes[name] = after
    for name in values:
        before = getattr(body, name)
        if (after := _redact_value(redactor, before)) is not before:
            changes[name] = after
    return msgspec.structs.replace(body, **changes) if changes else body


def _redact_value(redactor: Redactor, value: Any) -> Any:
    if type(value) in _PARTS:
        return _redact_struct(redactor, value)
    if value is None or value is msgspec.UNSET or isinstance(value, _AS_THEY_ARE):
        return value
    if isinstance(value, tuple) and any(type(one) in _PARTS for one in value):
        return tuple(_redact_value(redactor, one) for one in value)
    return redactor.redact(value)


@cache
def _has_no_texts(kind: Any) -> bool:
    """Return whether a payload class holds ids, fixed words and numbers alone, so that nothing needs redaction."""
    return issubclass(kind, SafePayload) and not any(_fields(kind))


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the fields of a class that hold texts, and those that may hold anything; without those in `FIXED`."""
    known = [(field.name, _set_type(field.type)) for field in msgspec.structs.fields(kind) if field.name not in FIXED]
    texts = tuple(name for name, hint in known if hint is str)
    values = tuple(name for name, hint in known if hint is not str and hint not in _AS_THEY_ARE)
    return texts, values


def _set_type(hint: Any) -> Any:
    """Return the type that a field has where it is set."""
    given = tuple(one for one in get_args(hint) if one is not msgspec.UnsetType)
    return given[0] if len(given) == 1 and msgspec.UnsetType in get_args(hint) else hint
