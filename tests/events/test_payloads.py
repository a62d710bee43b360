"""The catalogue of payloads: each type has its class, each class its wire spelling and its safety."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from harborage import codec, events
from harborage.events import PAYLOADS, EventType, PlainPayload, SafePayload
from harborage.identity import Quadruple
from tests.kit.tables import each_row

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WHO = Quadruple("t", "u", "s", "r")

WIRE_KEYS = {
    "runtime.run_cancelled": "RunID CancelledAt DroppedEnvelopeCount",
    "bus.dropped": "FromSeq ToSeq DroppedCount SubscriberID",
    "bus.subscription_idle_closed": "SubscriberID IdleSeconds",
    "audit.redaction_failed": "OriginalType Reason",
    "auth.rejected": "Reason KID Issuer Subject",
    "topology.changed": "Projection",
    "distributed.bus_envelope": "Envelope",
    "control.received": "Type Outcome Err",
    "control.applied": "Type Outcome Err",
    "control.rejected": "Type Reason CallerScope",
    "pause.requested": "Token Reason",
    "pause.resumed": "Token Reason Decision",
    "pause.payload_artifact_routed": "Token ArtifactID PayloadBytes ThresholdBytes",
    "runs.overrides_set": "Actor SessionID SetReasoningEffort SetTemperature SetTopP SetMaxTokens SetSystemPrompt",
    "task.spawned": "TaskID Kind ParentTaskID Priority IdempotencyKey",
    "task.started": "TaskID PriorState",
    "task.paused": "TaskID",
    "task.resumed": "TaskID",
    "task.completed": "TaskID",
    "task.failed": "TaskID ErrorCode",
    "task.cancelled": "TaskID Reason Cascaded",
    "task.prioritised": "TaskID PriorPriority NewPriority",
    "task.group_created": "GroupID OwnerTaskID RetainTurn FailFast Description",
    "task.group_sealed": "GroupID Members SealedAt",
    "task.group_resolved": "Completion",
    "task.group_cancelled": "Completion",
    "task.patch_applied": "PatchID",
    "task.patch_rejected": "PatchID",
    "task.background_acknowledged": "TaskID",
    "tool.invoked": "Identity ToolName Transport StartedAt",
    "tool.completed": "Identity ToolName Transport Attempts DurationMS",
    "tool.failed": "Identity ToolName Transport Attempts ErrorClass ErrorMessage",
    "tool.invalid_args": "Identity ToolName Transport ValidationError",
    "tool.policy_exhausted": "Identity ToolName Transport Attempts LastClass LastError",
    "tool.interrupted": "Identity ToolName Transport OnUnknown Outcome",
    "tool.progress": "Identity ToolName Step CallID Done Total Message",
    "tool.approval_requested": "Tool PauseToken Reason Tags ArgsSummary",
    "tool.approved": "Tool PauseToken ApproverReason",
    "tool.rejected": "Tool PauseToken Reason",
    "tool.auth_required": "Source SourceName BindingScope AuthorizeURL State PauseToken Scopes",
    "tool.auth_completed": "Source BindingScope State PauseToken",
    "mcp.resource_updated": "Identity Source URI OccurredAt",
    "mcp.raw_html_trust_toggled": "Actor ServerName Trusted OccurredAt",
    "planner.decision": "Identity DecisionKind Tool ReasoningChars ReasoningTrace OccurredAt",
    "planner.max_steps_exceeded": "Identity MaxSteps StepsObserved LastTool OccurredAt",
    "planner.repair_exhausted": "Identity Attempts ConsecutiveArgFailures Reasons OccurredAt",
    "planner.repair_guidance_injected": "Identity Tier Counter Count OccurredAt",
    "planner.action_extra_field_dropped": "Identity Field OccurredAt",
    "planner.finish": "Identity Reason OccurredAt",
    "planner.error": "Identity ErrorCode ErrorMessage Step OccurredAt",
    "trajectory.compressed": "Identity StepsBefore StepsAfter TokenEstimate OccurredAt",
    "trajectory.compression_failed": "Identity StepsObserved TokenEstimate ErrorCode ErrorMessage OccurredAt",
    "llm.completion.chunk": "Identity TaskID RunID Delta Done Kind OccurredAt",
    "llm.cost.recorded": "Identity Model Cost Usage ContextWindowTokens OccurredAt",
    "llm.context_leak": "Identity Model LeakSite SizeBytes Threshold OccurredAt",
    "llm.context_window_exceeded": "Identity Model EstimatedTokens ContextWindowTokens ContextWindowReserve OccurredAt",
    "llm.image.materialized": "Identity Model ArtifactRef MIME SizeBytes OccurredAt",
    "llm.mode_downgraded": "Identity Model FromMode ToMode From To Reason OccurredAt",
    "llm.retry_with_feedback": "Identity Model Attempt MaxRetries Reason OccurredAt",
    "llm.posture_read_admin": "Actor RequestedTenant",
    "governance.budget_exceeded": "Identity Tier Model TotalCost Ceiling Currency OccurredAt",
    "governance.rate_limited": "Identity Tier Model Requested Available Capacity RefillTokens RefillEvery OccurredAt",
    "governance.maxtokens_exceeded": "Identity Tier Model Requested Cap OccurredAt",
    "governance.posture_read_admin": "Actor RequestedTenant OccurredAt",
    "session.opened": "SessionID OpenedAt",
    "session.touched": "SessionID LastSeen",
    "session.closed": "SessionID ClosedAt Reason",
    "session.gc_reaped": "SessionID ReapedAt Reason",
    "memory.identity_rejected": "Operation Reason",
    "memory.health_changed": "PriorHealth NewHealth Reason",
    "memory.recovery_dropped": "Reason",
    "skill.upserted": "Name Origin Scope ContentHash Idempotent",
    "skill.deleted": "Name",
    "skill.pack_overwrite_refused": "Name ExistingOrigin IncomingOrigin",
    "skill.search_executed": "QueryHash Path Limit ResultN",
    "skill.identity_rejected": "Operation Reason",
    "skill.proposed": "Name Origin Scope OriginRef ContentHash Result Reason RedactedTitleExcerpt "
    "RedactedTriggerExcerpt Promotion",
    "agent.registered": "AgentID RegistrationKey Incarnation VersionHash Hosting RegisteredAt",
    "agent.restarted": "AgentID RegistrationKey Incarnation VersionHash VersionHashChanged RestartedAt",
    "agent.health": "AgentID Health ReportedAt",
    "agent.deregistered": "AgentID RegistrationKey DeregisteredAt",
    "agent.paused": "AgentID Command Reason IssuedAt",
    "agent.drained": "AgentID Command Reason IssuedAt",
    "agent.restart_requested": "AgentID Command Reason IssuedAt",
    "agent.force_stopped": "AgentID Command Reason IssuedAt",
    "flow.budget_exceeded": "FlowName Axis",
    "flows.page_viewed": "Method FlowID AdminScoped",
    "flows.run_invoked": "FlowID RunID",
    "artifacts.uploaded": "artifact_id mime_type size_bytes source namespace",
    "dev.draft.created": "DraftID Template FileCount",
    "dev.draft.updated": "DraftID Path Size",
    "dev.draft.previewed": "DraftID OK",
    "dev.draft.saved": "DraftID OutputDir FileCount",
    "dev.draft.discarded": "DraftID",
    "dev.hot_reload.triggered": "Path Op Policy",
    "dev.hot_reload.completed": "Path Op Policy DurationMS Success ErrorMessage",
    "notification.identity_rejected": "Operation Reason OriginEventType",
}
NOTIFICATION_KEYS = "class severity summary deeplink origineventtype origineventsequence"
PLAIN_KEYS = {
    "runtime.error": "message fields",
    "runtime.warning": "message fields",
    **{str(t): NOTIFICATION_KEYS for t in EventType if t.startswith("notification.") and t not in WIRE_KEYS},
}
ADMIN_KEYS = [
    "Tenant User Session SubscriberID Types Actor",
    "Actor Method TenantCount",
    "Actor Method",
    "Actor Method ToolID",
    "Actor Requester Impersonating Method Reason",
]

ADDED_KEYS = {
    "control.received": "By EventID Step",
    "control.applied": "By EventID Step",
    "control.rejected": "By EventID",
    "llm.cost.recorded": "Step",
    "pause.requested": "Step CallID Deadline Default Approvers",
    "pause.resumed": "By EventID",
    "planner.decision": "Step",
    "tool.approval_requested": "Step CallID Args ArgsCut Masked",
    "tool.approved": "Step CallID By EventID Edited",
    "tool.auth_completed": "Step CallID",
    "tool.auth_required": "Step CallID UserCode VerificationURI",
    "tool.completed": "Step CallID Result ResultCut Masked",
    "tool.failed": "Step CallID",
    "tool.interrupted": "Step CallID",
    "tool.invalid_args": "Step CallID",
    "tool.invoked": "Step CallID Args ArgsCut Masked",
    "tool.policy_exhausted": "Step CallID",
    "tool.rejected": "Step CallID By EventID",
}
"""What this implementation adds to the catalogue; a key without a value is left out of an event."""


def _keys(kind: type[msgspec.Struct]) -> list[str]:
    return sorted(kind.__struct_encode_fields__)


def test_every_type_has_a_payload() -> None:
    """The table from type to payload class is total."""
    assert set(PAYLOADS) == set(EventType)
    assert all(PAYLOADS.values())


@each_row("name", sorted(WIRE_KEYS))
def test_safe_payloads_spell_their_keys_exactly(name: str) -> None:
    """A safe payload has the wire keys of the catalogue, no more and no fewer."""
    (kind,) = PAYLOADS[EventType(name)]
    added = ADDED_KEYS.get(name, "").split()
    shown = [key for key in _keys(kind) if key not in added]
    assert shown == sorted(WIRE_KEYS[name].split())
    assert issubclass(kind, SafePayload)
    assert sorted(key for key in _keys(kind) if key in added) == sorted(added)


@each_row("name", sorted(PLAIN_KEYS))
def test_plain_payloads_spell_their_keys_in_lower_case(name: str) -> None:
    """A plain payload has lower-case keys, which is how they appear in the redacted map."""
    (kind,) = PAYLOADS[EventType(name)]
    assert _keys(kind) == sorted(PLAIN_KEYS[name].split())
    assert issubclass(kind, PlainPayload)


def test_admin_audits_come_in_five_shapes() -> None:
    """One event type has five uses of admin power, each in a shape of its own."""
    kinds = PAYLOADS[EventType.AUDIT_ADMIN_SCOPE_USED]
    assert sorted(map(_keys, kinds)) == sorted(sorted(keys.split()) for keys in ADMIN_KEYS)
    assert all(issubclass(kind, SafePayload) for kind in kinds)


def test_the_catalogue_is_complete() -> None:
    """The tables of this file name every type there is."""
    assert {*WIRE_KEYS, *PLAIN_KEYS, "audit.admin_scope_used"} == set(EventType)


def test_classes_are_named_after_their_type() -> None:
    """A payload class is called after its event type, apart from the few that have names of their own."""
    upper = {"llm": "LLM", "mcp": "MCP", "gc": "GC"}
    own = {kind for t in EventType if t.startswith(("planner.", "control.", "agent.", "notification.", "audit.a"))
           for kind in PAYLOADS[t]}  # fmt: skip
    for member, kinds in PAYLOADS.items():
        words = member.replace(".", "_").split("_")
        name = "".join(upper.get(word, word.capitalize()) for word in words) + "Payload"
        assert own.issuperset(kinds) or [kind.__name__ for kind in kinds] == [name]


def test_everything_is_exported() -> None:
    """Each payload class can be imported from the room itself."""
    for kinds in PAYLOADS.values():
        for kind in kinds:
            assert getattr(events, kind.__name__) is kind
            assert kind.__name__ in events.__all__


def test_payloads_cannot_be_changed() -> None:
    """A payload is a value: setting a field fails."""
    payload = events.TaskStartedPayload("task", "pending")
    with pytest.raises(AttributeError):
        payload.task_id = "other"  # type: ignore[misc]


def _wire(payload: Any) -> Any:
    return codec.to_plain(payload)


def test_identities_are_flat_inside_payloads() -> None:
    """A quadruple in a payload has four flat keys, a triple three."""
    tool = _wire(events.ToolInvokedPayload(WHO, "search", "inprocess", NOW))
    assert tool["Identity"] == {"TenantID": "t", "UserID": "u", "SessionID": "s", "RunID": "r"}
    admin = _wire(events.AdminActionPayload(events.Triple.of(WHO), "sessions.list"))
    assert admin["Actor"] == {"TenantID": "t", "UserID": "u", "SessionID": "s"}


def test_impersonation_uses_the_short_spelling() -> None:
    """The three identities of an impersonation are spelled Tenant, User, Session."""
    who = events.Principal.of(WHO)
    wire = _wire(events.ImpersonationPayload(who, who, who, "start"))
    assert wire["Impersonating"] == {"Tenant": "t", "User": "u", "Session": "s"}
    assert wire["Reason"] == "impersonation"


def test_a_task_without_a_parent_says_so() -> None:
    """ParentTaskID is null rather than missing."""
    assert _wire(events.TaskSpawnedPayload("task", "foreground"))["ParentTaskID"] is None


def test_a_group_completion_keeps_results_as_json() -> None:
    """Stored JSON text of a member's result travels unquoted."""
    member = events.TaskGroupMember("a", "complete", msgspec.Raw(b'{"n":1}'))
    failed = events.TaskGroupMember("b", "failed", None, events.TaskMemberFailure("boom", "it broke"))
    done = events.TaskGroupCompletion("g", events.Triple.of(WHO), "owner", "completed", NOW, (member, failed))
    wire = _wire(events.TaskGroupResolvedPayload(done))["Completion"]
    assert wire == {
        "GroupID": "g",
        "SessionID": {"TenantID": "t", "UserID": "u", "SessionID": "s"},
        "OwnerTaskID": "owner",
        "FinalStatus": "completed",
        "ResolvedAt": "2026-01-01T00:00:00Z",
        "Members": [
            {"TaskID": "a", "Status": "complete", "Result": {"n": 1}, "Error": None},
            {"TaskID": "b", "Status": "failed", "Result": None, "Error": {"Code": "boom", "Message": "it broke"}},
        ],
        "Reason": "",
    }


def test_cost_and_usage_are_nested() -> None:
    """A cost event carries the cost and the usage as records of their own."""
    wire = _wire(events.LLMCostRecordedPayload(identity=WHO, model="m", occurred_at=NOW))
    assert sorted(wire["Cost"]) == ["Currency", "InputTokensCost", "OutputTokensCost", "ReasoningTokensCost",
                                    "TotalCost"]  # fmt: skip
    assert sorted(wire["Usage"]) == ["CompletionTokens", "LatencyMS", "PromptTokens", "ProviderExtras",
                                     "ReasoningTokens", "TotalTokens"]  # fmt: skip


def test_a_topology_is_in_snake_case() -> None:
    """The projection inside a topology event keeps the spelling of the engine's own snapshot."""
    graph = events.TopologyProjection(
        "engine", NOW, (events.TopologyNode("in", "inlet"),), (events.TopologyEdge("in", "out", 1, 8),)
    )
    assert _wire(events.TopologyChangedPayload(graph)) == {
        "Projection": {
            "engine_id": "engine",
            "occurred_at": "2026-01-01T00:00:00Z",
            "nodes": [{"name": "in", "kind": "inlet"}],
            "edges": [{"from": "in", "to": "out", "queue_depth": 1, "queue_capacity": 8}],
        }
    }


def test_a_bus_envelope_carries_the_whole_message() -> None:
    """The message bus publishes the envelope with its ten keys."""
    envelope = events.BusEnvelope(edge="a>b", source="a", target="b", identity=WHO)
    wire = _wire(events.DistributedBusEnvelopePayload(envelope))["Envelope"]
    assert " ".join(wire) == "Edge Source Target Identity TaskID EventID Payload Headers Meta Timestamp"


def test_an_upload_leaves_out_what_it_does_not_know() -> None:
    """Optional keys of an upload are missing rather than empty."""
    assert _wire(events.ArtifactsUploadedPayload("a", 0)) == {"artifact_id": "a", "size_bytes": 0}


def test_default_containers_are_not_shared() -> None:
    """Two payloads made without fields do not share a dict."""
    one, other = events.RuntimeErrorPayload("a"), events.RuntimeErrorPayload("b")
    assert one.fields is not other.fields
