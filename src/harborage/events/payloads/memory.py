"""Bodies of the events of sessions, memory and skills. Times are unix nanoseconds."""

from __future__ import annotations

from harborage.events.event import SafePayload


class SessionOpenedPayload(SafePayload, frozen=True):
    """A session was opened for the first time."""

    session_id: str
    opened_at: int


class SessionTouchedPayload(SafePayload, frozen=True):
    """A session was used."""

    session_id: str
    last_seen: int


class SessionClosedPayload(SafePayload, frozen=True):
    """A session was closed."""

    session_id: str
    closed_at: int
    reason: str = ""


class SessionGCReapedPayload(SafePayload, frozen=True):
    """The sweeper ended a session: gc:idle or gc:hard_cap."""

    session_id: str
    reaped_at: int
    reason: str


class MemoryIdentityRejectedPayload(SafePayload, frozen=True):
    """Memory was asked for without a complete identity; the envelope says `<missing>` for each empty part."""

    operation: str
    reason: str


class MemoryHealthChangedPayload(SafePayload, frozen=True):
    """The rolling summary became healthy, retry, degraded or recovering."""

    prior_health: str
    new_health: str
    reason: str


class MemoryRecoveryDroppedPayload(SafePayload, frozen=True):
    """A turn fell out of the backlog that waits for the summariser to come back."""

    reason: str = "backlog_overflow"


class SkillUpsertedPayload(SafePayload, frozen=True):
    """A skill was stored, or was there already in identical form."""

    name: str
    origin: str
    scope: str
    content_hash: str
    idempotent: bool = False


class SkillDeletedPayload(SafePayload, frozen=True):
    """A skill was deleted."""

    name: str


class SkillPackOverwriteRefusedPayload(SafePayload, frozen=True):
    """A write that comes from no pack tried to replace a pack's skill, and failed."""

    name: str
    existing_origin: str
    incoming_origin: str


class SkillSearchExecutedPayload(SafePayload, frozen=True):
    """Skills were searched; the query appears as a hash alone."""

    query_hash: str
    path: str
    limit: int
    result_n: int


class SkillIdentityRejectedPayload(SafePayload, frozen=True):
    """Skills were asked for without a complete identity; the envelope says `<missing>` for each empty part."""

    operation: str
    reason: str


class SkillProposedPayload(SafePayload, frozen=True):
    """A generated skill was proposed. The two excerpts are redacted and at most 256 characters and an ellipsis."""

    name: str
    origin: str
    scope: str
    origin_ref: str
    content_hash: str
    result: str
    reason: str = ""
    redacted_title_excerpt: str = ""
    redacted_trigger_excerpt: str = ""
    promotion: str = ""
