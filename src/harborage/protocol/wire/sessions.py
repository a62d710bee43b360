"""The messages of `sessions.*`."""

from __future__ import annotations

from datetime import datetime

import msgspec

from harborage.protocol.wire.common import Request, WireIdentity


class StartedWindow(msgspec.Struct, frozen=True, kw_only=True):
    """When sessions were opened, both ends included."""

    from_: datetime | None = msgspec.field(default=None, name="from")
    to: datetime | None = None


class SessionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions to list; what is empty narrows nothing."""

    statuses: list[str] = []
    agent_ids: list[str] = []
    user_ids: list[str] = []
    tenant_ids: list[str] = []
    started_window: StartedWindow = StartedWindow()
    has_intervention: bool | None = None
    has_failed_task: bool | None = None
    cost_above_cents: float | None = None
    query: str = ""


class SessionListRequest(Request, frozen=True, kw_only=True):
    """The request of `sessions.list`."""

    filter: SessionFilter = SessionFilter()
    sort: str = ""
    cursor: str = ""
    limit: int = 0


class SessionInspectRequest(Request, frozen=True, kw_only=True):
    """The request of `sessions.inspect`."""

    session_id: str = ""


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A session as lists show it; `duration` is in nanoseconds."""

    session_id: str
    status: str
    agent_id: str
    agent_name: str
    user_id: str
    tenant_id: str
    started_at: datetime
    last_activity_at: datetime
    duration: int
    tasks_count: int
    events_count: int
    total_cost_cents: int
    total_tokens: int
    has_pending_intervention: bool
    has_failed_task: bool
    identity: WireIdentity


class SessionPage(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `sessions.list`; `truncated` says that there is a next page."""

    rows: list[SessionRow]
    next_cursor: str
    truncated: bool


class Intervention(msgspec.Struct, frozen=True, kw_only=True):
    """A question to a person, and its outcome, which is `pending` until it is answered."""

    type: str
    reason: str
    outcome: str
    occurred_at: datetime


class SessionArtifact(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a session."""

    filename: str
    mime: str
    size_bytes: int
    created_at: datetime


class SessionDetail(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `sessions.inspect`."""

    row: SessionRow
    recent_interventions: list[Intervention]
    recent_artifacts: list[SessionArtifact]
