"""Bodies of the events about the runtime itself: log errors, the bus, audits, topology, the message bus."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from harborage.events.event import PlainPayload, Principal, SafePayload, Triple, wire_key
from harborage.identity import Quadruple


class RuntimeErrorPayload(PlainPayload, frozen=True):
    """An error that was logged while an identity was in context."""

    message: str
    fields: dict[str, Any] = msgspec.field(default_factory=dict)


class RuntimeWarningPayload(PlainPayload, frozen=True):
    """A problem that a person should know of; the run goes on."""

    message: str
    fields: dict[str, Any] = msgspec.field(default_factory=dict)


class RuntimeRunCancelledPayload(SafePayload, frozen=True):
    """An engine cancelled a run. `cancelled_at` is in unix nanoseconds."""

    run_id: str
    cancelled_at: int
    dropped_envelope_count: int = 0


class BusDroppedPayload(SafePayload, frozen=True):
    """A subscriber was too slow and lost `dropped_count` events between the two sequence numbers (inclusive).

    If none of them had a number, `to_seq` is the last sequence that the subscriber got, and `from_seq` one more. For
    events that the bus dropped before the subscriber came, `subscriber_id` is 0 and `dropped_count` an upper bound.
    """

    from_seq: int
    to_seq: int
    dropped_count: int
    subscriber_id: int


class BusSubscriptionIdleClosedPayload(SafePayload, frozen=True):
    """A subscription was closed because its events stayed unread for too long."""

    subscriber_id: int
    idle_seconds: float


class AuditRedactionFailedPayload(SafePayload, frozen=True):
    """An event could not be redacted and was therefore not published; its payload is not quoted."""

    original_type: str
    reason: str


class AuditAdminScopeUsedPayload(SafePayload, frozen=True, omit_defaults=True):
    """An admin read across sessions: the filter and, if it is known, the admin's identity.

    `subscriber_id` is 0 for a replay and for reads that are not subscriptions.
    """

    tenant: str
    user: str
    session: str
    subscriber_id: int
    types: tuple[str, ...] = ()
    actor: Quadruple | None = None


class AdminTasksListedPayload(SafePayload, frozen=True):
    """`audit.admin_scope_used` of a task list across tenants."""

    actor: Triple
    method: str
    tenant_count: int


class AdminActionPayload(SafePayload, frozen=True):
    """`audit.admin_scope_used` of a sessions query by an admin, and of a token rotation."""

    actor: Triple
    method: str


class AdminToolActionPayload(SafePayload, frozen=True):
    """`audit.admin_scope_used` of an admin's action on one tool."""

    actor: Triple
    method: str
    tool_id: str


class ImpersonationPayload(SafePayload, frozen=True):
    """`audit.admin_scope_used` of an admin who acts as another principal."""

    actor: Principal
    requester: Principal
    impersonating: Principal
    method: str
    reason: str = "impersonation"


class AuthRejectedPayload(SafePayload, frozen=True):
    """A token was refused at the edge; every value comes from the redacted view of it."""

    reason: str
    kid: str = ""
    issuer: str = ""
    subject: str = ""


class TopologyNode(msgspec.Struct, frozen=True, gc=False):
    """One node of an engine's graph; `kind` is inlet, node or outlet."""

    name: str
    kind: str


class TopologyEdge(msgspec.Struct, frozen=True, gc=False, rename={"source": "from", "target": "to"}):
    """One channel of an engine's graph and how full it is."""

    source: str
    target: str
    queue_depth: int = 0
    queue_capacity: int = 0


class TopologyProjection(msgspec.Struct, frozen=True, gc=False):
    """An engine's graph as it was at one moment."""

    engine_id: str
    occurred_at: datetime
    nodes: tuple[TopologyNode, ...] = ()
    edges: tuple[TopologyEdge, ...] = ()


class TopologyChangedPayload(SafePayload, frozen=True):
    """An engine was built."""

    projection: TopologyProjection


class BusEnvelope(msgspec.Struct, frozen=True, gc=False, rename=wire_key, kw_only=True):
    """One message between agents. Consumers de-duplicate on (task, edge, event)."""

    edge: str
    source: str
    target: str
    identity: Quadruple
    task_id: str = ""
    event_id: str = ""
    payload: Any = None
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    meta: dict[str, Any] = msgspec.field(default_factory=dict)
    timestamp: datetime | None = None


class DistributedBusEnvelopePayload(SafePayload, frozen=True):
    """A message went over the message bus."""

    envelope: BusEnvelope
