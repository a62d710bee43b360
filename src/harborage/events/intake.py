"""What every bus does with an event before it is anybody's: redaction, and the notices that go with it.

Pure but for the redactor that is handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from harborage.events.errors import RedactionFailedError
from harborage.events.event import Event, RedactedMap, SafePayload
from harborage.events.filters import Filter
from harborage.events.payloads.runtime import AuditAdminScopeUsedPayload, AuditRedactionFailedPayload
from harborage.events.redaction import Redactor
from harborage.events.types import EventType
from harborage.identity import effective_quadruple

__all__ = ["admin_audit", "redacted"]


def redacted(redactor: Redactor, event: Event, tell: Callable[[Event], object]) -> Event:
    """`event` without its secrets. When that fails, `tell` gets a notice of it that holds nothing of the payload.

    A safe payload stays the typed object that it is; only its free text is redacted.

    Raises:
        RedactionFailedError: no safe copy could be made.
    """
    payload = event.payload
    if isinstance(payload, SafePayload) and not payload.free_text:
        return event
    try:
        if isinstance(payload, SafePayload):
            out: Any = _free_text_redacted(redactor, payload)
        else:
            out = redactor.redact(payload)
    except Exception as error:
        reason = str(error) if isinstance(error, RedactionFailedError) else type(error).__name__
        failed = AuditRedactionFailedPayload(event.type, reason)
        tell(Event(EventType.AUDIT_REDACTION_FAILED, event.identity, failed, extra=event.extra))
        raise RedactionFailedError(f"events: publish redaction failed: {event.type}: {reason}") from error
    if out is payload and isinstance(out, SafePayload):
        return event
    safe = out if isinstance(out, SafePayload) else RedactedMap(out if isinstance(out, dict) else {"value": out})
    return Event(event.type, event.identity, safe, event.occurred_at, extra=event.extra)


def _free_text_redacted(redactor: Redactor, payload: SafePayload) -> SafePayload:
    """The payload with its free text redacted; the same object when nothing changed."""
    changes: dict[str, Any] = {}
    for name in payload.free_text:
        before = getattr(payload, name)
        if before:
            after = redactor.redact(before)
            if after != before:
                changes[name] = after
    return replace(payload, **changes) if changes else payload


def admin_audit(filter: Filter, subscriber_id: int) -> Event:
    """The notice that somebody looks across sessions. Its envelope may lack an identity, so it is not validated."""
    payload = AuditAdminScopeUsedPayload(
        filter.tenant, filter.user, filter.session, subscriber_id, filter.types, effective_quadruple()
    )
    return Event(EventType.AUDIT_ADMIN_SCOPE_USED, filter.identity, payload)
