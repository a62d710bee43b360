"""What the run loop sees of its host, what it is started with, and what it concludes.

The loop is written against `Durable` alone, so the same loop runs in memory, on a journal in SQLite or Postgres, and
on a distributed engine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias, TypeVar

import msgspec

from harborage.identity import Quadruple
from harborage.planner import Finish, FinishReason, JoinSpec
from harborage.planner.answers import AnswerSchema
from harborage.runtime.loop.context import Context
from harborage.runtime.loop.limits import Limits
from harborage.runtime.loop.sub_agents import SubAgent
from harborage.store import Status

if TYPE_CHECKING:
    from harborage.runtime.loop.arrivals import Arrivals, Hold, Woken
    from harborage.runtime.loop.joins import BranchOutcome

T = TypeVar("T")


class Durable(Protocol):
    """What the loop sees of its host. Every answer is recorded: a resumed run gets the same ones again.

    Names of steps are registered effects, payloads and results have a JSON form. Never: runs a recorded step again.
    """

    @property
    def run_id(self) -> str:
        """The run this seam belongs to."""
        ...

    async def step(self, name: str, payload: Any) -> Any:
        """Run the effect `name` once and return its result.

        Raises:
            StepInterruptedError: a hard cancel or the run's deadline cut it short.
            Exception: what the effect raised.
        """
        ...

    async def gather(
        self, branches: Sequence[Callable[[Durable], Awaitable[T]]], join: JoinSpec
    ) -> list[BranchOutcome[T]]:
        """Run branches side by side until `join` is satisfied; every branch has exactly one outcome, in order."""
        ...

    async def drain(self) -> Arrivals:
        """What has arrived by now. Never: waits."""
        ...

    async def wait(self, hold: Hold) -> Woken:
        """Park until there is a reason to look again; may take days and needs no process meanwhile."""
        ...

    async def spawn(self, child_id: str, spec: Any) -> Any:
        """Start a child under an id of its own; asking twice starts one child."""
        ...

    async def join(self, child_id: str) -> Any:
        """How the child ended, once it has."""
        ...

    async def rollover(self, carry: RunRequest) -> NoReturn:
        """Begin a new history of the same run with `carry` in place of what it was started with. Never: returns."""
        ...

    async def patched(self, change: str) -> bool:
        """Whether this run takes the code change of that name: True if it meets it first, False if it is older."""
        ...


class GatedTools(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which tools need approval, as a run records it when it starts: those of these names, or all but the exempt.

    Over that, an operator has `forced` some and `waived` others. `patterns` are of tools that a peer may list later.
    """

    names: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()
    is_all: bool = False
    exempt: frozenset[str] = frozenset()
    forced: frozenset[str] = frozenset()
    waived: frozenset[str] = frozenset()

    def __contains__(self, tool: object) -> bool:
        if tool in self.forced or tool in self.waived:
            return tool in self.forced
        if self.is_all:
            return tool not in self.exempt
        return tool in self.names or any(fnmatchcase(str(tool), one) for one in self.patterns)


class ModelOverrides(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a caller set for the calls of a run's model, in place of what its agent says; unset fields change nothing.

    `system_prompt` takes the place of the planner's own system prompt, where the planner has one.
    """

    reasoning_effort: str = ""
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    system_prompt: str = ""


class InnerLimits(msgspec.Struct, frozen=True, array_like=True):
    """Limits of a run within a tree, and of all below it: `of` is that run."""

    of: str
    limits: Limits


class RunRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run is started with. `deadline` is absolute; `token_budget` 0 switches compression off.

    A rehearsal changes nothing outside itself: calls of tools that have effects, and spawned tasks, are refused. A fork
    has its steps before `forked_at` from the run `forked_from`. `model` and `instructions` stand in the place of its
    agent's; the steps before `changed_at` were decided by another model, with other instructions, or by another agent.
    `limits` are those of the run `limits_of`, which it
    shares; they are its own where that is empty. `context` is what its caller gave it to be shown; `asks_context` says
    that providers are asked before its first step, `writes_memory` that its session remembers it when it reached its
    goal. A child was spawned by another run. `gated` are the tools whose calls need approval; a run of an earlier
    version, which has none on record, takes those of the worker that executes it. `hooks` are those of its agent's
    capabilities, by name. `agent` names the agent whose
    planner and tools it has; it is empty for the only one of its runtime. `sub_agents` are those that it may call.
    `inner_limits` are further limits that the run is within, beside those of its tree. A run that `is_workflow` may
    call the waits of workflows. It `is_handed_over` when the
    conversation of its parent is its own, and its answer that of the parent. `overrides` are for the calls of its model
    alone, not for those of runs that it spawns. `output` is the form of its answer in place of its agent's.
    """

    who: Quadruple
    goal: str
    agent: str = ""
    query: str = ""
    task_id: str = ""
    max_steps: int = 0
    deadline: datetime | None = None
    token_budget: int = 0
    input_artifact_ids: tuple[str, ...] = ()
    is_rehearsal: bool = False
    forked_from: str = ""
    forked_at: int = 0
    model: str = ""
    instructions: str = ""
    changed_at: int = 0
    limits: Limits | None = None
    limits_of: str = ""
    is_child: bool = False
    context: Context | None = None
    asks_context: bool = False
    writes_memory: bool = False
    gated: GatedTools | None = None
    hooks: tuple[str, ...] = ()
    sub_agents: tuple[SubAgent, ...] = ()
    inner_limits: tuple[InnerLimits, ...] = ()
    is_handed_over: bool = False
    is_workflow: bool = False
    overrides: ModelOverrides | None = None
    output: AnswerSchema | None = None

    def within(self, parent: RunRequest | None) -> RunRequest:
        """The same for a run that `parent` has spawned: it shares the limits of its tree, and keeps its agent's own."""
        if parent is None:
            return self
        own = None if self.agent == parent.agent else self.limits
        if parent.limits is None:
            return msgspec.structs.replace(self, limits=own, limits_of="")
        root, inner = parent.limits_of or parent.who.run_id, parent.inner_limits
        if own is not None and not own.caps.is_open:
            inner = (*inner, InnerLimits(self.who.run_id, own))
        return msgspec.structs.replace(self, limits=parent.limits, limits_of=root, inner_limits=inner)


class Concluded(msgspec.Struct, frozen=True, kw_only=True):
    """How a program ended its run, and the task of the run: with which status, and with what result or error."""

    finish: Finish
    status: Status
    outcome: bytes = b""

    @staticmethod
    def of(ending: Finish | Concluded) -> Concluded:
        """The same for a program that says nothing of a task: it is complete when the goal is reached, else failed."""
        if isinstance(ending, Concluded):
            return ending
        status = Status.COMPLETE if ending.reason is FinishReason.GOAL else Status.FAILED
        return Concluded(finish=ending, status=status)


Program: TypeAlias = Callable[[Any, RunRequest], Awaitable[Finish | Concluded]]
"""What a host runs: pure code over the seam, from a request to a finish. It is called with the host's `Durable`."""
