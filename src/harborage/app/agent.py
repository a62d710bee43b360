"""An agent as a program describes it: who decides, with which tools, and what needs a person's word."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from harborage.app.preview import Preview
from harborage.callables import require_async, require_sync
from harborage.memory import Memory, MemoryStrategy
from harborage.runtime.approval import ApprovalPolicy
from harborage.runtime.context import ProviderChoice
from harborage.runtime.model import ModelChoice, PlannerChoice
from harborage.runtime.options import RuntimeOptions
from harborage.tools import ToolDescriptor

__all__ = ["Agent"]


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """What `harborage run` runs: the parameters of a `Runtime`, as a value that a file can hold.

    An agent that names neither a planner nor a model of its own runs on the one that `--model` names, or that this
    machine has. `previews` show what a call would change to the person who is asked to allow it, by the tool's name.

    `context` are providers that add to what its planner is shown, `memory` is how a session remembers its earlier runs.

    `check` is called before the first run and raises `AgentNotReadyError` when the agent cannot work where it stands.
    """

    name: str
    planner: PlannerChoice | None = None
    model: ModelChoice | None = None
    instructions: str = ""
    tools: Sequence[ToolDescriptor | Callable[..., Any]] = ()
    approvals: ApprovalPolicy | Mapping[str, ApprovalPolicy] | None = None
    previews: Mapping[str, Preview] = {}
    options: RuntimeOptions = RuntimeOptions()
    context: Sequence[ProviderChoice] = ()
    memory: Memory | MemoryStrategy | str | None = None
    description: str = ""
    check: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        require_sync(self.check, "check")
        for name, preview in self.previews.items():
            require_async(preview, f"previews[{name!r}]")
