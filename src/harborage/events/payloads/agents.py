"""Bodies of the events of agents, flows, artifacts, the developer server and notifications."""

from __future__ import annotations

from harborage.events.event import PlainPayload, SafePayload


class AgentRegisteredPayload(SafePayload, frozen=True):
    """An agent registered under a new key. `registered_at` is in unix nanoseconds."""

    agent_id: str
    registration_key: str
    incarnation: int
    version_hash: str
    hosting: str
    registered_at: int


class AgentRestartedPayload(SafePayload, frozen=True):
    """A known agent registered again. `restarted_at` is in unix nanoseconds."""

    agent_id: str
    registration_key: str
    incarnation: int
    version_hash: str
    version_hash_changed: bool
    restarted_at: int


class AgentHealthPayload(SafePayload, frozen=True):
    """An agent reported its health. `reported_at` is in unix nanoseconds."""

    agent_id: str
    health: str
    reported_at: int


class AgentDeregisteredPayload(SafePayload, frozen=True):
    """An agent was removed. `deregistered_at` is in unix nanoseconds."""

    agent_id: str
    registration_key: str
    deregistered_at: int


class AgentCommandPayload(SafePayload, frozen=True):
    """A fleet control: pause, drain, restart or force_stop. `reason` is redacted, `issued_at` in unix nanoseconds."""

    agent_id: str
    command: str
    reason: str
    issued_at: int


class FlowBudgetExceededPayload(SafePayload, frozen=True):
    """A flow ran out of deadline or hop_budget."""

    flow_name: str
    axis: str


class FlowsPageViewedPayload(SafePayload, frozen=True):
    """A caller read flows."""

    method: str
    flow_id: str = ""
    admin_scoped: bool = False


class FlowsRunInvokedPayload(SafePayload, frozen=True):
    """A flow run was accepted."""

    flow_id: str
    run_id: str


class ArtifactsUploadedPayload(SafePayload, frozen=True, rename=None, omit_defaults=True):
    """An upload is stored. The one payload whose wire keys are in snake case."""

    artifact_id: str
    size_bytes: int
    mime_type: str = ""
    source: str = ""
    namespace: str = ""


class DevDraftCreatedPayload(SafePayload, frozen=True):
    """A draft workspace was made from a template."""

    draft_id: str
    template: str
    file_count: int


class DevDraftUpdatedPayload(SafePayload, frozen=True):
    """A file of a draft changed; `size` in bytes."""

    draft_id: str
    path: str
    size: int


class DevDraftPreviewedPayload(SafePayload, frozen=True):
    """A draft was checked."""

    draft_id: str
    ok: bool


class DevDraftSavedPayload(SafePayload, frozen=True):
    """A draft was written to a folder."""

    draft_id: str
    output_dir: str
    file_count: int


class DevDraftDiscardedPayload(SafePayload, frozen=True):
    """A draft was deleted."""

    draft_id: str


class DevHotReloadTriggeredPayload(SafePayload, frozen=True):
    """A watched file changed; `policy` says what happens to runs: drain or cancel."""

    path: str
    op: str
    policy: str


class DevHotReloadCompletedPayload(SafePayload, frozen=True):
    """The developer server is up again, or could not be brought up."""

    path: str
    op: str
    policy: str
    duration_ms: int
    success: bool
    error_message: str = ""


class NotificationPayload(PlainPayload, frozen=True):
    """A notification for a person, made from the event that it names."""

    class_: str
    severity: str
    summary: str
    deeplink: str
    origin_event_type: str
    origin_event_sequence: int


class NotificationIdentityRejectedPayload(SafePayload, frozen=True):
    """An event without a complete identity triggered a notification, which therefore has no recipient."""

    reason: str
    origin_event_type: str
    operation: str = "Subscriber.Run"
