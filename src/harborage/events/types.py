"""The names of all events, and the table of the names that may be published.

Every built-in type is a member of `EventType`. A product that has events of its own adds their names with
`register_event_type` while it starts; the bus refuses names that are not registered.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class EventType(StrEnum):
    """Every built-in event type; the value is what travels on the wire."""

    # Bus, runtime, audit
    RUNTIME_ERROR = "runtime.error"
    RUNTIME_WARNING = "runtime.warning"
    RUNTIME_RUN_CANCELLED = "runtime.run_cancelled"
    BUS_DROPPED = "bus.dropped"
    BUS_SUBSCRIPTION_IDLE_CLOSED = "bus.subscription_idle_closed"
    AUDIT_REDACTION_FAILED = "audit.redaction_failed"
    AUDIT_ADMIN_SCOPE_USED = "audit.admin_scope_used"
    AUTH_REJECTED = "auth.rejected"
    TOPOLOGY_CHANGED = "topology.changed"
    DISTRIBUTED_BUS_ENVELOPE = "distributed.bus_envelope"

    # Steering, pause, run overrides
    CONTROL_RECEIVED = "control.received"
    CONTROL_APPLIED = "control.applied"
    CONTROL_REJECTED = "control.rejected"
    PAUSE_REQUESTED = "pause.requested"
    PAUSE_RESUMED = "pause.resumed"
    PAUSE_PAYLOAD_ARTIFACT_ROUTED = "pause.payload_artifact_routed"
    RUNS_OVERRIDES_SET = "runs.overrides_set"

    # Tasks
    TASK_SPAWNED = "task.spawned"
    TASK_STARTED = "task.started"
    TASK_PAUSED = "task.paused"
    TASK_RESUMED = "task.resumed"
    TASK_COMPLETED = "task.completed"
    TASK_FAILED = "task.failed"
    TASK_CANCELLED = "task.cancelled"
    TASK_PRIORITISED = "task.prioritised"
    TASK_GROUP_CREATED = "task.group_created"
    TASK_GROUP_SEALED = "task.group_sealed"
    TASK_GROUP_RESOLVED = "task.group_resolved"
    TASK_GROUP_CANCELLED = "task.group_cancelled"
    TASK_PATCH_APPLIED = "task.patch_applied"
    TASK_PATCH_REJECTED = "task.patch_rejected"
    TASK_BACKGROUND_ACKNOWLEDGED = "task.background_acknowledged"

    # Tools, MCP
    TOOL_INVOKED = "tool.invoked"
    TOOL_COMPLETED = "tool.completed"
    TOOL_FAILED = "tool.failed"
    TOOL_INVALID_ARGS = "tool.invalid_args"
    TOOL_POLICY_EXHAUSTED = "tool.policy_exhausted"
    TOOL_INTERRUPTED = "tool.interrupted"
    TOOL_PROGRESS = "tool.progress"
    TOOL_APPROVAL_REQUESTED = "tool.approval_requested"
    TOOL_APPROVED = "tool.approved"
    TOOL_REJECTED = "tool.rejected"
    TOOL_AUTH_REQUIRED = "tool.auth_required"
    TOOL_AUTH_COMPLETED = "tool.auth_completed"
    MCP_RESOURCE_UPDATED = "mcp.resource_updated"
    MCP_RAW_HTML_TRUST_TOGGLED = "mcp.raw_html_trust_toggled"

    # Planner, trajectory, LLM
    PLANNER_DECISION = "planner.decision"
    PLANNER_MAX_STEPS_EXCEEDED = "planner.max_steps_exceeded"
    PLANNER_REPAIR_EXHAUSTED = "planner.repair_exhausted"
    PLANNER_REPAIR_GUIDANCE_INJECTED = "planner.repair_guidance_injected"
    PLANNER_ACTION_EXTRA_FIELD_DROPPED = "planner.action_extra_field_dropped"
    PLANNER_FINISH = "planner.finish"
    PLANNER_ERROR = "planner.error"
    TRAJECTORY_COMPRESSED = "trajectory.compressed"
    TRAJECTORY_COMPRESSION_FAILED = "trajectory.compression_failed"
    LLM_COMPLETION_CHUNK = "llm.completion.chunk"
    LLM_COST_RECORDED = "llm.cost.recorded"
    LLM_CONTEXT_LEAK = "llm.context_leak"
    LLM_CONTEXT_WINDOW_EXCEEDED = "llm.context_window_exceeded"
    LLM_IMAGE_MATERIALIZED = "llm.image.materialized"
    LLM_MODE_DOWNGRADED = "llm.mode_downgraded"
    LLM_RETRY_WITH_FEEDBACK = "llm.retry_with_feedback"
    LLM_POSTURE_READ_ADMIN = "llm.posture_read_admin"

    # Governance
    GOVERNANCE_BUDGET_EXCEEDED = "governance.budget_exceeded"
    GOVERNANCE_RATE_LIMITED = "governance.rate_limited"
    GOVERNANCE_MAXTOKENS_EXCEEDED = "governance.maxtokens_exceeded"
    GOVERNANCE_POSTURE_READ_ADMIN = "governance.posture_read_admin"

    # Sessions, memory, skills
    SESSION_OPENED = "session.opened"
    SESSION_TOUCHED = "session.touched"
    SESSION_CLOSED = "session.closed"
    SESSION_GC_REAPED = "session.gc_reaped"
    MEMORY_IDENTITY_REJECTED = "memory.identity_rejected"
    MEMORY_HEALTH_CHANGED = "memory.health_changed"
    MEMORY_RECOVERY_DROPPED = "memory.recovery_dropped"
    SKILL_UPSERTED = "skill.upserted"
    SKILL_DELETED = "skill.deleted"
    SKILL_PACK_OVERWRITE_REFUSED = "skill.pack_overwrite_refused"
    SKILL_SEARCH_EXECUTED = "skill.search_executed"
    SKILL_IDENTITY_REJECTED = "skill.identity_rejected"
    SKILL_PROPOSED = "skill.proposed"

    # Agents, flows, artifacts, developer server
    AGENT_REGISTERED = "agent.registered"
    AGENT_RESTARTED = "agent.restarted"
    AGENT_HEALTH = "agent.health"
    AGENT_DEREGISTERED = "agent.deregistered"
    AGENT_PAUSED = "agent.paused"
    AGENT_DRAINED = "agent.drained"
    AGENT_RESTART_REQUESTED = "agent.restart_requested"
    AGENT_FORCE_STOPPED = "agent.force_stopped"
    FLOW_BUDGET_EXCEEDED = "flow.budget_exceeded"
    FLOWS_PAGE_VIEWED = "flows.page_viewed"
    FLOWS_RUN_INVOKED = "flows.run_invoked"
    ARTIFACTS_UPLOADED = "artifacts.uploaded"
    DEV_DRAFT_CREATED = "dev.draft.created"
    DEV_DRAFT_UPDATED = "dev.draft.updated"
    DEV_DRAFT_PREVIEWED = "dev.draft.previewed"
    DEV_DRAFT_SAVED = "dev.draft.saved"
    DEV_DRAFT_DISCARDED = "dev.draft.discarded"
    DEV_HOT_RELOAD_TRIGGERED = "dev.hot_reload.triggered"
    DEV_HOT_RELOAD_COMPLETED = "dev.hot_reload.completed"

    # Notifications
    NOTIFICATION_TASK_FAILED = "notification.task_failed"
    NOTIFICATION_TOOL_APPROVAL_REQUESTED = "notification.tool_approval_requested"
    NOTIFICATION_GOVERNANCE_BUDGET_EXCEEDED = "notification.governance_budget_exceeded"
    NOTIFICATION_AUTH_REQUIRED = "notification.auth_required"
    NOTIFICATION_PAUSE_REQUESTED = "notification.pause_requested"
    NOTIFICATION_IDENTITY_REJECTED = "notification.identity_rejected"


class EventTypes(set[str]):
    """The set of names that may be published."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        super().__init__(str(name) for name in names)

    def register(self, name: str) -> None:
        """Allow `name`; allowing it twice does nothing.

        Raises:
            ValueError: the name is empty.
        """
        if not name:
            raise ValueError("an event type needs a name such as 'order.shipped'")
        self.add(str(name))

    def names(self) -> list[str]:
        """Return every registered name, sorted."""
        return sorted(self)


EVENT_TYPES = EventTypes(EventType)
"""The names that the buses of this process accept."""


def register_event_type(name: str) -> None:
    """Allow events named `name` on every bus of this process; allowing it twice does nothing.

    Raises:
        ValueError: the name is empty.
    """
    EVENT_TYPES.register(name)


def event_types() -> list[str]:
    """Return every registered event type, sorted."""
    return EVENT_TYPES.names()


def is_valid_event_type(name: str) -> bool:
    """Return whether events named `name` may be published."""
    return name in EVENT_TYPES
