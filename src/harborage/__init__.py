"""Harborage runs AI agents as long-lived, observable, interruptible work.

These are the names that most programs need; the packages `harborage.planner`, `harborage.runtime.steering`, … hold
the rest. Each name is imported when it is first used, so that `import harborage` costs next to nothing; this file must
not import any of those packages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.app import Agent as Agent
    from harborage.app.workflow import QuestionExpiredError as QuestionExpiredError
    from harborage.app.workflow import QuestionRejectedError as QuestionRejectedError
    from harborage.app.workflow import ToolFailedError as ToolFailedError
    from harborage.app.workflow import ToolRejectedError as ToolRejectedError
    from harborage.app.workflow import WorkflowContext as WorkflowContext
    from harborage.app.workflow.workflow import workflow as workflow
    from harborage.artifacts import ArtifactRef as ArtifactRef
    from harborage.artifacts.media import Audio as Audio
    from harborage.artifacts.media import File as File
    from harborage.artifacts.media import Image as Image
    from harborage.errors import HarborageError as HarborageError
    from harborage.events import Event as Event
    from harborage.events import EventBus as EventBus
    from harborage.events import EventType as EventType
    from harborage.events import Filter as Filter
    from harborage.identity import Identity as Identity
    from harborage.identity import Quadruple as Quadruple
    from harborage.llm import ConfigSnapshot as ConfigSnapshot
    from harborage.llm.model import Model as Model
    from harborage.memory import Memory as Memory
    from harborage.planner import AwaitTask as AwaitTask
    from harborage.planner import CallParallel as CallParallel
    from harborage.planner import CallTool as CallTool
    from harborage.planner import Decision as Decision
    from harborage.planner import Finish as Finish
    from harborage.planner import FinishReason as FinishReason
    from harborage.planner import JoinKind as JoinKind
    from harborage.planner import JoinSpec as JoinSpec
    from harborage.planner import PauseReason as PauseReason
    from harborage.planner import Planner as Planner
    from harborage.planner import PlannerConfig as PlannerConfig
    from harborage.planner import RequestPause as RequestPause
    from harborage.planner import RunContext as RunContext
    from harborage.planner import SpawnSpec as SpawnSpec
    from harborage.planner import SpawnTask as SpawnTask
    from harborage.planner import Step as Step
    from harborage.planner import Trajectory as Trajectory
    from harborage.planner.deterministic import DeterministicPlanner as DeterministicPlanner
    from harborage.planner.finish import FinishPlanner as FinishPlanner
    from harborage.runtime.approval import ApprovalGate as ApprovalGate
    from harborage.runtime.durable.engine import RunFailedError as RunFailedError
    from harborage.runtime.effects.options import RuntimeOptions as RuntimeOptions
    from harborage.runtime.host import Runtime as Runtime
    from harborage.runtime.loop.capabilities import AgentContext as AgentContext
    from harborage.runtime.loop.capabilities import Capability as Capability
    from harborage.runtime.loop.capabilities import Confirm as Confirm
    from harborage.runtime.loop.capabilities import Deny as Deny
    from harborage.runtime.loop.capabilities import Ending as Ending
    from harborage.runtime.loop.capabilities import Guide as Guide
    from harborage.runtime.loop.capabilities import Proceed as Proceed
    from harborage.runtime.loop.capabilities import ToolCall as ToolCall
    from harborage.runtime.loop.capabilities import Transform as Transform
    from harborage.runtime.loop.capabilities import Verdict as Verdict
    from harborage.runtime.loop.context import Context as Context
    from harborage.runtime.loop.context import ContextProvider as ContextProvider
    from harborage.runtime.loop.context import ContextRequest as ContextRequest
    from harborage.runtime.loop.context import ContextSource as ContextSource
    from harborage.runtime.loop.limits import Limits as Limits
    from harborage.runtime.outputs import json_schema as json_schema
    from harborage.runtime.pauses import Pause as Pause
    from harborage.runtime.pauses import PauseDecision as PauseDecision
    from harborage.runtime.result import Result as Result
    from harborage.runtime.run import Run as Run
    from harborage.runtime.steering import ControlType as ControlType
    from harborage.runtime.steering import RunLoop as RunLoop
    from harborage.runtime.steering import Scope as Scope
    from harborage.tasks import TaskKind as TaskKind
    from harborage.tools import CallContext as CallContext
    from harborage.tools import SideEffect as SideEffect
    from harborage.tools import Tool as Tool
    from harborage.tools import ToolCatalog as ToolCatalog
    from harborage.tools import ToolError as ToolError
    from harborage.tools import ToolPolicy as ToolPolicy
    from harborage.tools import ToolResult as ToolResult
    from harborage.tools import tool as tool
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.app": "Agent",
            "harborage.runtime.outputs": "json_schema",
            "harborage.app.workflow": (
                "QuestionExpiredError QuestionRejectedError ToolFailedError ToolRejectedError WorkflowContext"
            ),
            "harborage.app.workflow.workflow": "workflow",
            "harborage.artifacts": "ArtifactRef",
            "harborage.artifacts.media": "Audio File Image",
            "harborage.errors": "HarborageError",
            "harborage.events": "Event EventBus EventType Filter",
            "harborage.identity": "Identity Quadruple",
            "harborage.llm": "ConfigSnapshot",
            "harborage.llm.model": "Model",
            "harborage.memory": "Memory",
            "harborage.planner": (
                "AwaitTask CallParallel CallTool Decision Finish FinishReason JoinKind JoinSpec PauseReason "
                "Planner PlannerConfig RequestPause RunContext SpawnSpec SpawnTask Step Trajectory"
            ),
            "harborage.planner.deterministic": "DeterministicPlanner",
            "harborage.planner.finish": "FinishPlanner",
            "harborage.runtime.approval": "ApprovalGate",
            "harborage.runtime.loop.capabilities": (
                "AgentContext Capability Confirm Deny Ending Guide Proceed ToolCall Transform Verdict"
            ),
            "harborage.runtime.loop.context": "Context ContextProvider ContextRequest ContextSource",
            "harborage.runtime.host": "Runtime",
            "harborage.runtime.loop.limits": "Limits",
            "harborage.runtime.effects.options": "RuntimeOptions",
            "harborage.runtime.pauses": "Pause PauseDecision",
            "harborage.runtime.durable.engine": "RunFailedError",
            "harborage.runtime.result": "Result",
            "harborage.runtime.run": "Run",
            "harborage.runtime.steering": "ControlType RunLoop Scope",
            "harborage.tasks": "TaskKind",
            "harborage.tools": "CallContext SideEffect Tool ToolCatalog ToolError ToolPolicy ToolResult tool",
        },
    )

__version__ = "0.1.0"
