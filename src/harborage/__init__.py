"""Harborage runs AI agents as long-lived, observable, interruptible work.

These are the names that most programs need; the rooms (`harborage.planner`, `harborage.runtime.steering`, …) hold the
rest. Each name is imported when it is first used, so that `import harborage` costs next to nothing; this file must not
import a room.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harborage.app import Agent as Agent
    from harborage.artifacts import ArtifactRef as ArtifactRef
    from harborage.errors import HarborageError as HarborageError
    from harborage.events import Event as Event
    from harborage.events import EventBus as EventBus
    from harborage.events import EventType as EventType
    from harborage.events import Filter as Filter
    from harborage.identity import Identity as Identity
    from harborage.identity import Quadruple as Quadruple
    from harborage.llm import ConfigSnapshot as ConfigSnapshot
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
    from harborage.runtime.context import Context as Context
    from harborage.runtime.context import ContextProvider as ContextProvider
    from harborage.runtime.context import ContextRequest as ContextRequest
    from harborage.runtime.context import ContextSource as ContextSource
    from harborage.runtime.host import Run as Run
    from harborage.runtime.host import Runtime as Runtime
    from harborage.runtime.limits import Limits as Limits
    from harborage.runtime.options import RuntimeOptions as RuntimeOptions
    from harborage.runtime.pauses import Pause as Pause
    from harborage.runtime.pauses import PauseDecision as PauseDecision
    from harborage.runtime.steering import ControlType as ControlType
    from harborage.runtime.steering import RunLoop as RunLoop
    from harborage.runtime.steering import Scope as Scope
    from harborage.tasks import TaskKind as TaskKind
    from harborage.tools import CallContext as CallContext
    from harborage.tools import SideEffect as SideEffect
    from harborage.tools import Tool as Tool
    from harborage.tools import ToolCatalog as ToolCatalog
    from harborage.tools import ToolPolicy as ToolPolicy
    from harborage.tools import ToolResult as ToolResult
    from harborage.tools import tool as tool

__version__ = "0.1.0"

_EXPORTS: dict[str, str] = {
    "Agent": "harborage.app",
    "ApprovalGate": "harborage.runtime.approval",
    "ArtifactRef": "harborage.artifacts",
    "AwaitTask": "harborage.planner",
    "CallContext": "harborage.tools",
    "CallParallel": "harborage.planner",
    "CallTool": "harborage.planner",
    "ConfigSnapshot": "harborage.llm",
    "Context": "harborage.runtime.context",
    "ContextProvider": "harborage.runtime.context",
    "ContextRequest": "harborage.runtime.context",
    "ContextSource": "harborage.runtime.context",
    "ControlType": "harborage.runtime.steering",
    "Decision": "harborage.planner",
    "DeterministicPlanner": "harborage.planner.deterministic",
    "Event": "harborage.events",
    "EventBus": "harborage.events",
    "EventType": "harborage.events",
    "Filter": "harborage.events",
    "Finish": "harborage.planner",
    "FinishPlanner": "harborage.planner.finish",
    "FinishReason": "harborage.planner",
    "HarborageError": "harborage.errors",
    "Identity": "harborage.identity",
    "JoinKind": "harborage.planner",
    "JoinSpec": "harborage.planner",
    "Limits": "harborage.runtime.limits",
    "Memory": "harborage.memory",
    "Pause": "harborage.runtime.pauses",
    "PauseDecision": "harborage.runtime.pauses",
    "PauseReason": "harborage.planner",
    "Planner": "harborage.planner",
    "PlannerConfig": "harborage.planner",
    "Quadruple": "harborage.identity",
    "RequestPause": "harborage.planner",
    "Run": "harborage.runtime.host",
    "RunContext": "harborage.planner",
    "RunLoop": "harborage.runtime.steering",
    "Runtime": "harborage.runtime.host",
    "RuntimeOptions": "harborage.runtime.options",
    "Scope": "harborage.runtime.steering",
    "SideEffect": "harborage.tools",
    "SpawnSpec": "harborage.planner",
    "SpawnTask": "harborage.planner",
    "Step": "harborage.planner",
    "TaskKind": "harborage.tasks",
    "Tool": "harborage.tools",
    "ToolCatalog": "harborage.tools",
    "ToolPolicy": "harborage.tools",
    "ToolResult": "harborage.tools",
    "Trajectory": "harborage.planner",
    "tool": "harborage.tools",
}

__all__ = sorted(_EXPORTS)  # noqa: PLE0605 - the table is the one list; a test holds it against the imports above


def __getattr__(name: str) -> object:
    """The public name, imported from its room on first use."""
    room = _EXPORTS.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(room), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Every public name, loaded or not, besides what the module itself holds."""
    return sorted({*globals(), *_EXPORTS})
