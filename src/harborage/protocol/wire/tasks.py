"""The messages of `tasks.*`."""

from __future__ import annotations

from datetime import datetime

import msgspec

from harborage.protocol.wire.common import ArtifactReference, IdentityScope, Request, WireIdentity


class TaskFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks to list; what is empty narrows nothing, but for `identities`: without one, those of the session.

    `tags`, an addition, are names and values that a task has all of.
    """

    statuses: list[str] = []
    kinds: list[str] = []
    parent_task_id: str = ""
    identities: list[IdentityScope] = []
    since: datetime | None = None
    until: datetime | None = None
    error_classes: list[str] = []
    latency_above_ms: int = 0
    search: str = ""
    group_id: str = ""
    has_pending_approval: bool | None = None
    tags: dict[str, str] = {}


class TaskCursor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the next page begins; `{}` is the beginning in a request, and the end in an answer."""

    next_page_token: str = ""


class TaskListRequest(Request, frozen=True, kw_only=True):
    """The request of `tasks.list`."""

    filter: TaskFilter = TaskFilter()
    page_size: int = 0
    cursor: TaskCursor = TaskCursor()
    include_status_counter_strip: bool = False


class TaskGetRequest(Request, frozen=True, kw_only=True):
    """The request of `tasks.get`."""

    id: str = ""


class TaskRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task as lists show it. `condition` says why a task is not where its status says: `interrupted`, `blocked`."""

    id: str
    kind: str
    status: str
    priority: int
    identity: WireIdentity
    parent_session_id: str
    parent_task_id: str = ""
    description: str
    query: str
    started_at: datetime
    updated_at: datetime
    duration_ms: int
    error_class: str = ""
    tool_count: int
    background_acknowledged: bool
    group_id: str = ""
    tags: list[str] = []
    last_activity_at: datetime
    is_background: bool
    has_pending_approval: bool
    condition: str = ""
    agent_name: str
    cost_usd: float


class TaskCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many tasks pass the filter, by status."""

    pending: int
    running: int
    paused: int
    failed: int
    complete: int
    cancelled: int


class StatusStrip(msgspec.Struct, frozen=True, kw_only=True):
    """How many tasks the session has, whatever the filter says."""

    pending: int
    running: int
    completed: int
    paused: int
    failed: int


class TaskPage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to `tasks.list`."""

    rows: list[TaskRow]
    cursor: TaskCursor
    aggregates: TaskCounts
    status_counter_strip: StatusStrip | None = None


class ParentSession(msgspec.Struct, frozen=True, kw_only=True):
    """The session of a task."""

    session_id: str
    agent_name: str
    status: str
    started_at: datetime
    latest_event_at: datetime


class ParentTask(msgspec.Struct, frozen=True, kw_only=True):
    """The task that started another."""

    task_id: str
    kind: str
    status: str


class StepCost(msgspec.Struct, frozen=True, kw_only=True):
    """What the calls of a model in one step used; steps are counted from 0."""

    step_index: int
    tokens: int
    usd: float


class TaskCost(msgspec.Struct, frozen=True, kw_only=True):
    """What a task used, without those that it started."""

    total_tokens: int
    prompt_tokens: int
    output_tokens: int
    usd: float
    per_step: list[StepCost]


class PlannerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Where a task that goes on stands."""

    checkpoint_id: str
    summary: str


class TrajectoryStep(msgspec.Struct, frozen=True, kw_only=True):
    """The reasoning of one step; steps are counted from 0."""

    index: int
    reasoning_trace: str


class Trajectory(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a task that have a reasoning."""

    steps: list[TrajectoryStep]


class TaskDetail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to `tasks.get`. `result_inline` is the JSON text of the result."""

    task: TaskRow
    parent_session: ParentSession
    parent_task: ParentTask | None = None
    cost: TaskCost
    planner_snapshot: PlannerSnapshot | None = None
    result_ref: ArtifactReference | None = None
    result_inline: str = ""
    trajectory: Trajectory | None = None
