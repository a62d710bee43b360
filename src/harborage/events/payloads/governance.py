"""Bodies of the events of governance: refused calls, and reads of another tenant's limits."""

from __future__ import annotations

from datetime import datetime

from harborage.events.event import SafePayload
from harborage.identity import Quadruple


class GovernanceBudgetExceededPayload(SafePayload, frozen=True, kw_only=True):
    """A call was refused: the tier's cost ceiling is reached."""

    identity: Quadruple
    tier: str
    model: str
    total_cost: float
    ceiling: float
    currency: str = "USD"
    occurred_at: datetime


class GovernanceRateLimitedPayload(SafePayload, frozen=True, kw_only=True):
    """A call was refused: its token bucket is too empty. `refill_every` is in nanoseconds."""

    identity: Quadruple
    tier: str
    model: str
    requested: int
    available: int
    capacity: int
    refill_tokens: int
    refill_every: int
    occurred_at: datetime


class GovernanceMaxtokensExceededPayload(SafePayload, frozen=True, kw_only=True):
    """A call was refused: it asked for more output than its tier allows."""

    identity: Quadruple
    tier: str
    model: str
    requested: int
    cap: int
    occurred_at: datetime


class GovernancePostureReadAdminPayload(SafePayload, frozen=True, kw_only=True):
    """An admin read another tenant's limits."""

    actor: Quadruple
    requested_tenant: str
    occurred_at: datetime
