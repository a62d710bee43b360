"""Events: typed, redacted, numbered, and delivered to the subscribers that may see them.

`types` has their names, `payloads/` their bodies, `bus` the port through which they are published, `redaction` the
rules for secrets. This package decides nothing about runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.events.aggregation import ClientFilter as ClientFilter
    from harborage.events.aggregation import EventBucket as EventBucket
    from harborage.events.aggregation import aggregate as aggregate
    from harborage.events.aggregation import bus_filter as bus_filter
    from harborage.events.aggregation import count_buckets as count_buckets
    from harborage.events.aggregation import needs_admin as needs_admin
    from harborage.events.aggregation import selects as selects
    from harborage.events.bus import BUS_DRIVERS as BUS_DRIVERS
    from harborage.events.bus import EventBus as EventBus
    from harborage.events.bus import RecordBus as RecordBus
    from harborage.events.bus import RunBuffer as RunBuffer
    from harborage.events.durable_bus import DurableEventBus as DurableEventBus
    from harborage.events.errors import AggregateBadWindowError as AggregateBadWindowError
    from harborage.events.errors import BusBacklogError as BusBacklogError
    from harborage.events.errors import BusClosedError as BusClosedError
    from harborage.events.errors import BusStalledError as BusStalledError
    from harborage.events.errors import CursorTooOldError as CursorTooOldError
    from harborage.events.errors import EventCorruptError as EventCorruptError
    from harborage.events.errors import EventError as EventError
    from harborage.events.errors import IdentityScopeRequiredError as IdentityScopeRequiredError
    from harborage.events.errors import InvalidEventError as InvalidEventError
    from harborage.events.errors import RedactionDepthExceededError as RedactionDepthExceededError
    from harborage.events.errors import RedactionError as RedactionError
    from harborage.events.errors import RedactionFailedError as RedactionFailedError
    from harborage.events.errors import RedactorMissingError as RedactorMissingError
    from harborage.events.errors import ReplayUnavailableError as ReplayUnavailableError
    from harborage.events.errors import SequenceProvidedError as SequenceProvidedError
    from harborage.events.errors import SubscriberLimitReachedError as SubscriberLimitReachedError
    from harborage.events.errors import UnknownEventTypeError as UnknownEventTypeError
    from harborage.events.event import ANNOUNCED as ANNOUNCED
    from harborage.events.event import Event as Event
    from harborage.events.event import Payload as Payload
    from harborage.events.event import PlainPayload as PlainPayload
    from harborage.events.event import Principal as Principal
    from harborage.events.event import RedactedMap as RedactedMap
    from harborage.events.event import SafePayload as SafePayload
    from harborage.events.event import Triple as Triple
    from harborage.events.event import is_announced as is_announced
    from harborage.events.event import unix_ns as unix_ns
    from harborage.events.event import validate_event as validate_event
    from harborage.events.fanout import BusConfig as BusConfig
    from harborage.events.filters import Cursor as Cursor
    from harborage.events.filters import Filter as Filter
    from harborage.events.filters import matches as matches
    from harborage.events.filters import require_scope as require_scope
    from harborage.events.memory_bus import MemoryEventBus as MemoryEventBus
    from harborage.events.payloads.agents import AgentCommandPayload as AgentCommandPayload
    from harborage.events.payloads.agents import AgentDeregisteredPayload as AgentDeregisteredPayload
    from harborage.events.payloads.agents import AgentHealthPayload as AgentHealthPayload
    from harborage.events.payloads.agents import AgentRegisteredPayload as AgentRegisteredPayload
    from harborage.events.payloads.agents import AgentRestartedPayload as AgentRestartedPayload
    from harborage.events.payloads.agents import ArtifactsUploadedPayload as ArtifactsUploadedPayload
    from harborage.events.payloads.agents import DevDraftCreatedPayload as DevDraftCreatedPayload
    from harborage.events.payloads.agents import DevDraftDiscardedPayload as DevDraftDiscardedPayload
    from harborage.events.payloads.agents import DevDraftPreviewedPayload as DevDraftPreviewedPayload
    from harborage.events.payloads.agents import DevDraftSavedPayload as DevDraftSavedPayload
    from harborage.events.payloads.agents import DevDraftUpdatedPayload as DevDraftUpdatedPayload
    from harborage.events.payloads.agents import DevHotReloadCompletedPayload as DevHotReloadCompletedPayload
    from harborage.events.payloads.agents import DevHotReloadTriggeredPayload as DevHotReloadTriggeredPayload
    from harborage.events.payloads.agents import FlowBudgetExceededPayload as FlowBudgetExceededPayload
    from harborage.events.payloads.agents import FlowsPageViewedPayload as FlowsPageViewedPayload
    from harborage.events.payloads.agents import FlowsRunInvokedPayload as FlowsRunInvokedPayload
    from harborage.events.payloads.agents import (
        NotificationIdentityRejectedPayload as NotificationIdentityRejectedPayload,
    )
    from harborage.events.payloads.agents import NotificationPayload as NotificationPayload
    from harborage.events.payloads.by_type import PAYLOADS as PAYLOADS
    from harborage.events.payloads.control import ControlLifecyclePayload as ControlLifecyclePayload
    from harborage.events.payloads.control import ControlRejectedPayload as ControlRejectedPayload
    from harborage.events.payloads.control import PausePayloadArtifactRoutedPayload as PausePayloadArtifactRoutedPayload
    from harborage.events.payloads.control import PauseRequestedPayload as PauseRequestedPayload
    from harborage.events.payloads.control import PauseResumedPayload as PauseResumedPayload
    from harborage.events.payloads.control import RunsOverridesSetPayload as RunsOverridesSetPayload
    from harborage.events.payloads.governance import GovernanceBudgetExceededPayload as GovernanceBudgetExceededPayload
    from harborage.events.payloads.governance import (
        GovernanceMaxtokensExceededPayload as GovernanceMaxtokensExceededPayload,
    )
    from harborage.events.payloads.governance import (
        GovernancePostureReadAdminPayload as GovernancePostureReadAdminPayload,
    )
    from harborage.events.payloads.governance import GovernanceRateLimitedPayload as GovernanceRateLimitedPayload
    from harborage.events.payloads.llm import LLMCompletionChunkPayload as LLMCompletionChunkPayload
    from harborage.events.payloads.llm import LLMContextLeakPayload as LLMContextLeakPayload
    from harborage.events.payloads.llm import LLMContextWindowExceededPayload as LLMContextWindowExceededPayload
    from harborage.events.payloads.llm import LLMCost as LLMCost
    from harborage.events.payloads.llm import LLMCostRecordedPayload as LLMCostRecordedPayload
    from harborage.events.payloads.llm import LLMImageMaterializedPayload as LLMImageMaterializedPayload
    from harborage.events.payloads.llm import LLMModeDowngradedPayload as LLMModeDowngradedPayload
    from harborage.events.payloads.llm import LLMPostureReadAdminPayload as LLMPostureReadAdminPayload
    from harborage.events.payloads.llm import LLMRetryWithFeedbackPayload as LLMRetryWithFeedbackPayload
    from harborage.events.payloads.llm import LLMUsage as LLMUsage
    from harborage.events.payloads.memory import MemoryHealthChangedPayload as MemoryHealthChangedPayload
    from harborage.events.payloads.memory import MemoryIdentityRejectedPayload as MemoryIdentityRejectedPayload
    from harborage.events.payloads.memory import MemoryRecoveryDroppedPayload as MemoryRecoveryDroppedPayload
    from harborage.events.payloads.memory import SessionClosedPayload as SessionClosedPayload
    from harborage.events.payloads.memory import SessionGCReapedPayload as SessionGCReapedPayload
    from harborage.events.payloads.memory import SessionOpenedPayload as SessionOpenedPayload
    from harborage.events.payloads.memory import SessionTouchedPayload as SessionTouchedPayload
    from harborage.events.payloads.memory import SkillDeletedPayload as SkillDeletedPayload
    from harborage.events.payloads.memory import SkillIdentityRejectedPayload as SkillIdentityRejectedPayload
    from harborage.events.payloads.memory import SkillPackOverwriteRefusedPayload as SkillPackOverwriteRefusedPayload
    from harborage.events.payloads.memory import SkillProposedPayload as SkillProposedPayload
    from harborage.events.payloads.memory import SkillSearchExecutedPayload as SkillSearchExecutedPayload
    from harborage.events.payloads.memory import SkillUpsertedPayload as SkillUpsertedPayload
    from harborage.events.payloads.planner import ActionExtraFieldDroppedPayload as ActionExtraFieldDroppedPayload
    from harborage.events.payloads.planner import DecisionPayload as DecisionPayload
    from harborage.events.payloads.planner import MaxStepsExceededPayload as MaxStepsExceededPayload
    from harborage.events.payloads.planner import PlannerErrorPayload as PlannerErrorPayload
    from harborage.events.payloads.planner import PlannerFinishPayload as PlannerFinishPayload
    from harborage.events.payloads.planner import RepairExhaustedPayload as RepairExhaustedPayload
    from harborage.events.payloads.planner import RepairGuidanceInjectedPayload as RepairGuidanceInjectedPayload
    from harborage.events.payloads.planner import TrajectoryCompressedPayload as TrajectoryCompressedPayload
    from harborage.events.payloads.planner import (
        TrajectoryCompressionFailedPayload as TrajectoryCompressionFailedPayload,
    )
    from harborage.events.payloads.runtime import AdminActionPayload as AdminActionPayload
    from harborage.events.payloads.runtime import AdminTasksListedPayload as AdminTasksListedPayload
    from harborage.events.payloads.runtime import AdminToolActionPayload as AdminToolActionPayload
    from harborage.events.payloads.runtime import AuditAdminScopeUsedPayload as AuditAdminScopeUsedPayload
    from harborage.events.payloads.runtime import AuditRedactionFailedPayload as AuditRedactionFailedPayload
    from harborage.events.payloads.runtime import AuthRejectedPayload as AuthRejectedPayload
    from harborage.events.payloads.runtime import BusDroppedPayload as BusDroppedPayload
    from harborage.events.payloads.runtime import BusEnvelope as BusEnvelope
    from harborage.events.payloads.runtime import BusSubscriptionIdleClosedPayload as BusSubscriptionIdleClosedPayload
    from harborage.events.payloads.runtime import DistributedBusEnvelopePayload as DistributedBusEnvelopePayload
    from harborage.events.payloads.runtime import ImpersonationPayload as ImpersonationPayload
    from harborage.events.payloads.runtime import RuntimeErrorPayload as RuntimeErrorPayload
    from harborage.events.payloads.runtime import RuntimeRunCancelledPayload as RuntimeRunCancelledPayload
    from harborage.events.payloads.runtime import RuntimeWarningPayload as RuntimeWarningPayload
    from harborage.events.payloads.runtime import TopologyChangedPayload as TopologyChangedPayload
    from harborage.events.payloads.runtime import TopologyEdge as TopologyEdge
    from harborage.events.payloads.runtime import TopologyNode as TopologyNode
    from harborage.events.payloads.runtime import TopologyProjection as TopologyProjection
    from harborage.events.payloads.tasks import TaskBackgroundAcknowledgedPayload as TaskBackgroundAcknowledgedPayload
    from harborage.events.payloads.tasks import TaskCancelledPayload as TaskCancelledPayload
    from harborage.events.payloads.tasks import TaskCompletedPayload as TaskCompletedPayload
    from harborage.events.payloads.tasks import TaskFailedPayload as TaskFailedPayload
    from harborage.events.payloads.tasks import TaskGroupCancelledPayload as TaskGroupCancelledPayload
    from harborage.events.payloads.tasks import TaskGroupCompletion as TaskGroupCompletion
    from harborage.events.payloads.tasks import TaskGroupCreatedPayload as TaskGroupCreatedPayload
    from harborage.events.payloads.tasks import TaskGroupMember as TaskGroupMember
    from harborage.events.payloads.tasks import TaskGroupResolvedPayload as TaskGroupResolvedPayload
    from harborage.events.payloads.tasks import TaskGroupSealedPayload as TaskGroupSealedPayload
    from harborage.events.payloads.tasks import TaskMemberFailure as TaskMemberFailure
    from harborage.events.payloads.tasks import TaskPatchAppliedPayload as TaskPatchAppliedPayload
    from harborage.events.payloads.tasks import TaskPatchRejectedPayload as TaskPatchRejectedPayload
    from harborage.events.payloads.tasks import TaskPausedPayload as TaskPausedPayload
    from harborage.events.payloads.tasks import TaskPrioritisedPayload as TaskPrioritisedPayload
    from harborage.events.payloads.tasks import TaskResumedPayload as TaskResumedPayload
    from harborage.events.payloads.tasks import TaskSpawnedPayload as TaskSpawnedPayload
    from harborage.events.payloads.tasks import TaskStartedPayload as TaskStartedPayload
    from harborage.events.payloads.tools import MCPRawHtmlTrustToggledPayload as MCPRawHtmlTrustToggledPayload
    from harborage.events.payloads.tools import MCPResourceUpdatedPayload as MCPResourceUpdatedPayload
    from harborage.events.payloads.tools import ToolApprovalRequestedPayload as ToolApprovalRequestedPayload
    from harborage.events.payloads.tools import ToolApprovedPayload as ToolApprovedPayload
    from harborage.events.payloads.tools import ToolAuthCompletedPayload as ToolAuthCompletedPayload
    from harborage.events.payloads.tools import ToolAuthRequiredPayload as ToolAuthRequiredPayload
    from harborage.events.payloads.tools import ToolCompletedPayload as ToolCompletedPayload
    from harborage.events.payloads.tools import ToolFailedPayload as ToolFailedPayload
    from harborage.events.payloads.tools import ToolInterruptedPayload as ToolInterruptedPayload
    from harborage.events.payloads.tools import ToolInvalidArgsPayload as ToolInvalidArgsPayload
    from harborage.events.payloads.tools import ToolInvokedPayload as ToolInvokedPayload
    from harborage.events.payloads.tools import ToolPolicyExhaustedPayload as ToolPolicyExhaustedPayload
    from harborage.events.payloads.tools import ToolProgressPayload as ToolProgressPayload
    from harborage.events.payloads.tools import ToolRejectedPayload as ToolRejectedPayload
    from harborage.events.redaction import KEY_RULES as KEY_RULES
    from harborage.events.redaction import MASK as MASK
    from harborage.events.redaction import REDACTOR_DRIVERS as REDACTOR_DRIVERS
    from harborage.events.redaction import RULES as RULES
    from harborage.events.redaction import PatternRedactor as PatternRedactor
    from harborage.events.redaction import Redactor as Redactor
    from harborage.events.redaction import must_redactor as must_redactor
    from harborage.events.redaction import redactor as redactor
    from harborage.events.redaction import safe_excerpt as safe_excerpt
    from harborage.events.redaction import with_redactor as with_redactor
    from harborage.events.rows import typed_event as typed_event
    from harborage.events.shown_values import NOT_SHOWN as NOT_SHOWN
    from harborage.events.shown_values import ShownValue as ShownValue
    from harborage.events.shown_values import shown_value as shown_value
    from harborage.events.subscription import Lost as Lost
    from harborage.events.subscription import Subscription as Subscription
    from harborage.events.types import EventType as EventType
    from harborage.events.types import event_types as event_types
    from harborage.events.types import is_valid_event_type as is_valid_event_type
    from harborage.events.types import register_event_type as register_event_type
    from harborage.events.wire import KEEPALIVE_FRAME as KEEPALIVE_FRAME
    from harborage.events.wire import comment_frame as comment_frame
    from harborage.events.wire import encode_wire as encode_wire
    from harborage.events.wire import event_frame as event_frame
    from harborage.events.wire import retry_frame as retry_frame
    from harborage.events.wire import to_wire as to_wire
    from harborage.events.wire import wire_time as wire_time
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.events.aggregation": (
                "ClientFilter EventBucket aggregate bus_filter count_buckets needs_admin selects"
            ),
            "harborage.events.bus": "BUS_DRIVERS EventBus RecordBus RunBuffer",
            "harborage.events.durable_bus": "DurableEventBus",
            "harborage.events.errors": (
                "AggregateBadWindowError BusBacklogError BusClosedError "
                "BusStalledError CursorTooOldError EventCorruptError EventError "
                "IdentityScopeRequiredError InvalidEventError RedactionDepthExceededError RedactionError "
                "RedactionFailedError RedactorMissingError ReplayUnavailableError SequenceProvidedError "
                "SubscriberLimitReachedError UnknownEventTypeError"
            ),
            "harborage.events.event": (
                "ANNOUNCED Event Payload PlainPayload Principal RedactedMap SafePayload Triple is_announced unix_ns "
                "validate_event"
            ),
            "harborage.events.fanout": "BusConfig",
            "harborage.events.filters": "Cursor Filter matches require_scope",
            "harborage.events.memory_bus": "MemoryEventBus",
            "harborage.events.payloads.agents": (
                "AgentCommandPayload AgentDeregisteredPayload AgentHealthPayload AgentRegisteredPayload "
                "AgentRestartedPayload ArtifactsUploadedPayload DevDraftCreatedPayload DevDraftDiscardedPayload "
                "DevDraftPreviewedPayload DevDraftSavedPayload DevDraftUpdatedPayload DevHotReloadCompletedPayload "
                "DevHotReloadTriggeredPayload FlowBudgetExceededPayload FlowsPageViewedPayload FlowsRunInvokedPayload "
                "NotificationIdentityRejectedPayload NotificationPayload"
            ),
            "harborage.events.payloads.by_type": "PAYLOADS",
            "harborage.events.payloads.control": (
                "ControlLifecyclePayload ControlRejectedPayload PausePayloadArtifactRoutedPayload "
                "PauseRequestedPayload PauseResumedPayload RunsOverridesSetPayload"
            ),
            "harborage.events.payloads.governance": (
                "GovernanceBudgetExceededPayload GovernanceMaxtokensExceededPayload GovernancePostureReadAdminPayload "
                "GovernanceRateLimitedPayload"
            ),
            "harborage.events.payloads.llm": (
                "LLMCompletionChunkPayload LLMContextLeakPayload LLMContextWindowExceededPayload LLMCost "
                "LLMCostRecordedPayload LLMImageMaterializedPayload LLMModeDowngradedPayload "
                "LLMPostureReadAdminPayload LLMRetryWithFeedbackPayload LLMUsage"
            ),
            "harborage.events.payloads.memory": (
                "MemoryHealthChangedPayload MemoryIdentityRejectedPayload MemoryRecoveryDroppedPayload "
                "SessionClosedPayload SessionGCReapedPayload SessionOpenedPayload SessionTouchedPayload "
                "SkillDeletedPayload SkillIdentityRejectedPayload SkillPackOverwriteRefusedPayload "
                "SkillProposedPayload SkillSearchExecutedPayload SkillUpsertedPayload"
            ),
            "harborage.events.payloads.planner": (
                "ActionExtraFieldDroppedPayload DecisionPayload MaxStepsExceededPayload PlannerErrorPayload "
                "PlannerFinishPayload RepairExhaustedPayload RepairGuidanceInjectedPayload "
                "TrajectoryCompressedPayload TrajectoryCompressionFailedPayload"
            ),
            "harborage.events.payloads.runtime": (
                "AdminActionPayload AdminTasksListedPayload AdminToolActionPayload AuditAdminScopeUsedPayload "
                "AuditRedactionFailedPayload AuthRejectedPayload BusDroppedPayload BusEnvelope "
                "BusSubscriptionIdleClosedPayload DistributedBusEnvelopePayload ImpersonationPayload "
                "RuntimeErrorPayload RuntimeRunCancelledPayload RuntimeWarningPayload TopologyChangedPayload "
                "TopologyEdge TopologyNode TopologyProjection"
            ),
            "harborage.events.payloads.tasks": (
                "TaskBackgroundAcknowledgedPayload TaskCancelledPayload TaskCompletedPayload TaskMemberFailure "
                "TaskFailedPayload TaskGroupCancelledPayload TaskGroupCompletion TaskGroupCreatedPayload "
                "TaskGroupMember TaskGroupResolvedPayload TaskGroupSealedPayload TaskPatchAppliedPayload "
                "TaskPatchRejectedPayload TaskPausedPayload TaskPrioritisedPayload TaskResumedPayload "
                "TaskSpawnedPayload TaskStartedPayload"
            ),
            "harborage.events.payloads.tools": (
                "MCPRawHtmlTrustToggledPayload MCPResourceUpdatedPayload ToolApprovalRequestedPayload "
                "ToolApprovedPayload ToolAuthCompletedPayload ToolAuthRequiredPayload ToolCompletedPayload "
                "ToolFailedPayload ToolInterruptedPayload ToolInvalidArgsPayload ToolInvokedPayload "
                "ToolPolicyExhaustedPayload ToolProgressPayload ToolRejectedPayload"
            ),
            "harborage.events.redaction": (
                "KEY_RULES MASK REDACTOR_DRIVERS RULES PatternRedactor Redactor must_redactor redactor safe_excerpt "
                "with_redactor"
            ),
            "harborage.events.rows": "typed_event",
            "harborage.events.shown_values": "NOT_SHOWN ShownValue shown_value",
            "harborage.events.subscription": "Lost Subscription",
            "harborage.events.types": "EventType event_types is_valid_event_type register_event_type",
            "harborage.events.wire": (
                "KEEPALIVE_FRAME comment_frame encode_wire event_frame retry_frame to_wire wire_time"
            ),
        },
    )
