"""The planner seam: one method that returns one decision a step, and everything such a planner reads and returns.

A planner is any object with `async next(run: RunContext) -> Decision`. This package must not import the runtime: what a
built-in planner may import, a third-party one may import too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.codec import UnserializableError as UnserializableError
    from harborage.drivers import DriverDuplicateError as DriverDuplicateError
    from harborage.drivers import DriverEmptyNameError as DriverEmptyNameError
    from harborage.drivers import DriverNilFactoryError as DriverNilFactoryError
    from harborage.drivers import DriverUnknownError as DriverUnknownError
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
    from harborage.identity import IdentityMissingError as IdentityMissingError
    from harborage.identity import IdentityRequiredError as IdentityRequiredError
    from harborage.planner.compression import CompressionRunner as CompressionRunner
    from harborage.planner.compression import Summariser as Summariser
    from harborage.planner.compression import TokenEstimator as TokenEstimator
    from harborage.planner.compression import default_token_estimator as default_token_estimator
    from harborage.planner.compression import mechanical_fold as mechanical_fold
    from harborage.planner.config import PLANNERS as PLANNERS
    from harborage.planner.config import Factory as Factory
    from harborage.planner.config import FactoryDeps as FactoryDeps
    from harborage.planner.config import OperatorPlannerConfig as OperatorPlannerConfig
    from harborage.planner.config import OperatorPlanningHints as OperatorPlanningHints
    from harborage.planner.config import PlannerConfig as PlannerConfig
    from harborage.planner.config import check_config as check_config
    from harborage.planner.config import check_operator_config as check_operator_config
    from harborage.planner.config import check_planner as check_planner
    from harborage.planner.config import config_from_operator as config_from_operator
    from harborage.planner.config import register as register
    from harborage.planner.config import registered_drivers as registered_drivers
    from harborage.planner.config import resolve as resolve
    from harborage.planner.context import Budget as Budget
    from harborage.planner.context import ControlSignals as ControlSignals
    from harborage.planner.context import OnChunk as OnChunk
    from harborage.planner.context import Planner as Planner
    from harborage.planner.context import RegistryAware as RegistryAware
    from harborage.planner.context import RepairCounters as RepairCounters
    from harborage.planner.context import RunContext as RunContext
    from harborage.planner.context import WakeAware as WakeAware
    from harborage.planner.context import effective_reasoning_replay as effective_reasoning_replay
    from harborage.planner.context import ends_at_step_limit as ends_at_step_limit
    from harborage.planner.context import publish as publish
    from harborage.planner.context import raise_if_cancelled as raise_if_cancelled
    from harborage.planner.context import resolve_wake_mode as resolve_wake_mode
    from harborage.planner.decisions import ABSOLUTE_MAX_PARALLEL as ABSOLUTE_MAX_PARALLEL
    from harborage.planner.decisions import DECISION_KINDS as DECISION_KINDS
    from harborage.planner.decisions import AwaitTask as AwaitTask
    from harborage.planner.decisions import CallParallel as CallParallel
    from harborage.planner.decisions import CallTool as CallTool
    from harborage.planner.decisions import ChunkKind as ChunkKind
    from harborage.planner.decisions import Decision as Decision
    from harborage.planner.decisions import Finish as Finish
    from harborage.planner.decisions import FinishReason as FinishReason
    from harborage.planner.decisions import JoinKind as JoinKind
    from harborage.planner.decisions import JoinSpec as JoinSpec
    from harborage.planner.decisions import ParallelBranchObservation as ParallelBranchObservation
    from harborage.planner.decisions import ParallelObservation as ParallelObservation
    from harborage.planner.decisions import PauseReason as PauseReason
    from harborage.planner.decisions import ReasoningReplayMode as ReasoningReplayMode
    from harborage.planner.decisions import RequestPause as RequestPause
    from harborage.planner.decisions import SourceKind as SourceKind
    from harborage.planner.decisions import SpawnSpec as SpawnSpec
    from harborage.planner.decisions import SpawnTask as SpawnTask
    from harborage.planner.decisions import WakeMode as WakeMode
    from harborage.planner.decisions import check_decision as check_decision
    from harborage.planner.decisions import decision_kind as decision_kind
    from harborage.planner.decisions import parallel_observation as parallel_observation
    from harborage.planner.errors import DeterministicStepError as DeterministicStepError
    from harborage.planner.errors import EmptySummaryError as EmptySummaryError
    from harborage.planner.errors import InvalidConfigError as InvalidConfigError
    from harborage.planner.errors import InvalidDecisionError as InvalidDecisionError
    from harborage.planner.errors import MemoryBlockUnserializableError as MemoryBlockUnserializableError
    from harborage.planner.errors import NilTrajectoryError as NilTrajectoryError
    from harborage.planner.errors import ParallelBranchInvalidArgsError as ParallelBranchInvalidArgsError
    from harborage.planner.errors import ParallelCapExceededError as ParallelCapExceededError
    from harborage.planner.errors import ParallelError as ParallelError
    from harborage.planner.errors import ParallelInvalidJoinError as ParallelInvalidJoinError
    from harborage.planner.errors import ParallelPauseUnsupportedError as ParallelPauseUnsupportedError
    from harborage.planner.errors import ParallelThresholdUnmetError as ParallelThresholdUnmetError
    from harborage.planner.errors import PlannerClosedError as PlannerClosedError
    from harborage.planner.errors import PlannerError as PlannerError
    from harborage.planner.errors import RepairExhaustedError as RepairExhaustedError
    from harborage.planner.errors import ToolContextLostError as ToolContextLostError
    from harborage.planner.errors import TrajectoryCorruptError as TrajectoryCorruptError
    from harborage.planner.finish import TASK_ERROR_CANCELLED as TASK_ERROR_CANCELLED
    from harborage.planner.finish import TASK_ERROR_RUN_LOOP as TASK_ERROR_RUN_LOOP
    from harborage.planner.finish import AnswerEnvelope as AnswerEnvelope
    from harborage.planner.finish import extract_answer as extract_answer
    from harborage.planner.finish import task_error_code_for_finish as task_error_code_for_finish
    from harborage.planner.summariser import TrajectorySummariser as TrajectorySummariser
    from harborage.planner.trajectory import INVALID_ARGS_CODE as INVALID_ARGS_CODE
    from harborage.planner.trajectory import UNSET_TIME as UNSET_TIME
    from harborage.planner.trajectory import BackgroundMemberOutcome as BackgroundMemberOutcome
    from harborage.planner.trajectory import BackgroundResult as BackgroundResult
    from harborage.planner.trajectory import FailureRecord as FailureRecord
    from harborage.planner.trajectory import HandleID as HandleID
    from harborage.planner.trajectory import ResumeHint as ResumeHint
    from harborage.planner.trajectory import Source as Source
    from harborage.planner.trajectory import SteeringInjection as SteeringInjection
    from harborage.planner.trajectory import Step as Step
    from harborage.planner.trajectory import StreamChunk as StreamChunk
    from harborage.planner.trajectory import ToolContext as ToolContext
    from harborage.planner.trajectory import Trajectory as Trajectory
    from harborage.planner.trajectory import TrajectorySummary as TrajectorySummary
    from harborage.planner.views import ArtifactManifestEntry as ArtifactManifestEntry
    from harborage.planner.views import BudgetHints as BudgetHints
    from harborage.planner.views import HandleRegistry as HandleRegistry
    from harborage.planner.views import InputArtifactView as InputArtifactView
    from harborage.planner.views import MemoryBlocks as MemoryBlocks
    from harborage.planner.views import MemoryView as MemoryView
    from harborage.planner.views import PlanningHints as PlanningHints
    from harborage.planner.views import PlanningNudges as PlanningNudges
    from harborage.planner.views import ProcessLocalHandleRegistry as ProcessLocalHandleRegistry
    from harborage.planner.views import Skill as Skill
    from harborage.planner.views import SkillLookup as SkillLookup
    from harborage.planner.views import SkillResult as SkillResult
    from harborage.planner.views import ToolCallDeferred as ToolCallDeferred
    from harborage.planner.views import ToolCatalogView as ToolCatalogView
    from harborage.planner.views import build_artifact_manifest as build_artifact_manifest
    from harborage.planner.views import hints_from_config as hints_from_config
    from harborage.planner.views import materialize_input_content as materialize_input_content
    from harborage.planner.views import resolve_provenance as resolve_provenance
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.codec": "UnserializableError",
            "harborage.drivers": "DriverDuplicateError DriverEmptyNameError DriverNilFactoryError DriverUnknownError",
            "harborage.events.payloads.planner": (
                "ActionExtraFieldDroppedPayload DecisionPayload MaxStepsExceededPayload PlannerErrorPayload "
                "PlannerFinishPayload RepairExhaustedPayload RepairGuidanceInjectedPayload "
                "TrajectoryCompressedPayload TrajectoryCompressionFailedPayload"
            ),
            "harborage.identity": "IdentityMissingError IdentityRequiredError",
            "harborage.planner.compression": (
                "CompressionRunner Summariser TokenEstimator default_token_estimator mechanical_fold"
            ),
            "harborage.planner.config": (
                "Factory FactoryDeps OperatorPlannerConfig OperatorPlanningHints PLANNERS PlannerConfig "
                "check_config check_operator_config check_planner config_from_operator register registered_drivers "
                "resolve"
            ),
            "harborage.planner.context": (
                "Budget ControlSignals OnChunk Planner RegistryAware RepairCounters RunContext WakeAware "
                "effective_reasoning_replay ends_at_step_limit publish raise_if_cancelled resolve_wake_mode"
            ),
            "harborage.planner.decisions": (
                "ABSOLUTE_MAX_PARALLEL AwaitTask CallParallel CallTool ChunkKind DECISION_KINDS Decision Finish "
                "FinishReason JoinKind JoinSpec ParallelBranchObservation ParallelObservation PauseReason "
                "ReasoningReplayMode RequestPause SourceKind SpawnSpec SpawnTask WakeMode check_decision "
                "decision_kind parallel_observation"
            ),
            "harborage.planner.errors": (
                "DeterministicStepError EmptySummaryError InvalidConfigError InvalidDecisionError "
                "MemoryBlockUnserializableError NilTrajectoryError ParallelBranchInvalidArgsError "
                "ParallelCapExceededError ParallelError ParallelInvalidJoinError ParallelPauseUnsupportedError "
                "ParallelThresholdUnmetError PlannerClosedError PlannerError RepairExhaustedError "
                "ToolContextLostError TrajectoryCorruptError"
            ),
            "harborage.planner.finish": (
                "AnswerEnvelope TASK_ERROR_CANCELLED TASK_ERROR_RUN_LOOP extract_answer task_error_code_for_finish"
            ),
            "harborage.planner.summariser": "TrajectorySummariser",
            "harborage.planner.trajectory": (
                "BackgroundMemberOutcome BackgroundResult FailureRecord HandleID INVALID_ARGS_CODE ResumeHint "
                "Source SteeringInjection Step StreamChunk ToolContext Trajectory TrajectorySummary UNSET_TIME"
            ),
            "harborage.planner.views": (
                "ArtifactManifestEntry BudgetHints HandleRegistry InputArtifactView MemoryBlocks MemoryView "
                "PlanningHints PlanningNudges ProcessLocalHandleRegistry Skill SkillLookup SkillResult "
                "ToolCallDeferred ToolCatalogView build_artifact_manifest hints_from_config "
                "materialize_input_content resolve_provenance"
            ),
        },
    )
