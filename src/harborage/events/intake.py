"""What every bus does with an event before it is anybody's: redaction, and the notices that go with it.

Pure but for the redactor that is handed in.
"""

from __future__ import annotations

from collections.abc import Callable

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

    Raises:
        RedactionFailedError: no safe copy could be made.
    """
    try:
        out = redactor.redact(event.payload)
    except Exception as error:
        reason = str(error) if isinstance(error, RedactionFailedError) else type(error).__name__
        failed = AuditRedactionFailedPayload(event.type, reason)
        tell(Event(EventType.AUDIT_REDACTION_FAILED, event.identity, failed, extra=event.extra))
        raise RedactionFailedError(f"events: publish redaction failed: {event.type}: {reason}") from error
    payload = out if isinstance(out, SafePayload) else RedactedMap(out if isinstance(out, dict) else {"value": out})
    return Event(event.type, event.identity, payload, event.occurred_at, extra=event.extra)


def admin_audit(filter: Filter, subscriber_id: int) -> Event:
    """The notice that somebody looks across sessions. Its envelope may lack an identity, so it is not validated."""
    payload = AuditAdminScopeUsedPayload(
        filter.tenant, filter.user, filter.session, subscriber_id, filter.types, effective_quadruple()
    )
    return Event(EventType.AUDIT_ADMIN_SCOPE_USED, filter.identity, payload)
