"""Where decisions meet the world: the catalog's tools, the artifact store and the task registry behind one executor.

`CatalogToolExecutor` is built once and shared by every run; whatever belongs to a run comes with the call. It serves
a bare `RunLoop` as its `ToolExecutor`, and the assembled runtime as the set of effects that its steps name.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from harborage import codec
from harborage.artifacts.media import Media
from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.concurrency import CLOSE_GRACE_S, Crew, is_cancelled
from harborage.errors import HarborageError, error_reason, error_text
from harborage.llm import accounting, current_account
from harborage.planner import (
    INVALID_ARGS_CODE,
    AwaitTask,
    CallParallel,
    CallTool,
    HandleRegistry,
    ParallelBranchInvalidArgsError,
    ParallelPauseUnsupportedError,
    RequestPause,
    RunContext,
    SpawnTask,
    ToolCatalogView,
    ToolContext,
    decision_kind,
)
from harborage.planner.config import DEFAULT_SPAWN_DEPTH_CAP
from harborage.runtime.durable.engine import RunLeftError
from harborage.runtime.durable.race import race
from harborage.runtime.durable.steps import Recovery
from harborage.runtime.effects.children import AWAITED, SPAWNED, OnWaiting, Spawned, await_work, spawn_task
from harborage.runtime.effects.dependencies import find_handle
from harborage.runtime.effects.heavy import (
    DEFAULT_HEAVY_THRESHOLD,
    Ending,
    Projection,
    is_kept_summary,
    kept,
    media_kept,
    project,
)
from harborage.runtime.effects.tool_listing import is_in_doubt
from harborage.runtime.loop.errors import DecisionShapeUnsupportedError
from harborage.runtime.loop.outcome import (
    OutcomeStatus,
    ToolOutcome,
    failed,
    join_of,
    joined,
    kept_or_raised,
    unanswered,
    unknown,
)
from harborage.tools import (
    CallContext,
    Invoker,
    OfRun,
    OnUnknown,
    Tool,
    ToolCatalog,
    ToolDescriptor,
    ToolInvalidArgsError,
    ToolNotFoundError,
    ToolRejectedError,
    ToolResult,
    run_with_policy,
)
from harborage.tools.enums import ARTIFACT_FETCH, MAX_FETCH_BYTES
from harborage.tools.errors import TOOL_CHANGED_CODE, ToolChangedError, failure_reason, is_said_by_tool
from harborage.tools.inputs import InputNeeded

if TYPE_CHECKING:
    from harborage.artifacts import ArtifactStore
    from harborage.events import Event, EventBus, Redactor
    from harborage.events.bus import RunWriter
    from harborage.identity import Quadruple
    from harborage.tasks import TaskRegistry

_EXEMPT_TAG = "artifact"
_NO_PAUSE = "a tool cannot pause its run by returning a RequestPause; return what is missing and let the planner ask"
_NOTHING: Mapping[str, Any] = {}
_NO_PERSON = "its peer asks a person, which only a run of a runtime can do"
_RECOVERIES = {
    OnUnknown.RETRY: Recovery.RETRY,
    OnUnknown.PROBE: Recovery.RESOLVE,
    OnUnknown.REPORT: Recovery.UNKNOWN,
    OnUnknown.PAUSE: Recovery.RESOLVE,
}
_SCALARS = frozenset({str, int, float, bool, type(None)})
_NO_CONTEXT = ToolContext()


def catalog_executor(executor: object) -> CatalogToolExecutor | None:
    """`executor` if its decisions are carried out as this module does; None for one with a way of its own."""
    if not isinstance(executor, CatalogToolExecutor):
        return None
    is_own = type(executor).execute_decision is not CatalogToolExecutor.execute_decision
    return None if is_own else executor


def known_tools(executor: object) -> tuple[str, ...] | None:
    """The names of the tools that an executor calls: those of its catalog, of the one that it wraps, or the
    `tool_names` that it says; None where nothing is known of them."""
    if isinstance(executor, CatalogToolExecutor):
        return executor.tool_names
    said = getattr(executor, "tool_names", None)
    if said is not None and not callable(said):
        return tuple(said)
    wrapped = (one for one in getattr(executor, "__dict__", {}).values() if isinstance(one, CatalogToolExecutor))
    return next((one.tool_names for one in wrapped), None)


class ToolInvokeError(HarborageError):
    """A tool call failed; the tool's own error is the cause. `tool` names it. The text of a ToolError is bare."""

    def __init__(self, tool: str = "", reason: str = "", *, is_bare: bool = False) -> None:
        self.tool = tool
        super().__init__(reason if is_bare else f'tool "{tool}" invoke: {reason}')


class ParallelDispatchError(HarborageError):
    """A parallel call failed as a whole. `observation` is what its branches gave all the same, and None when none ran.

    `for_planner` is the same as the planner sees it.
    """

    def __init__(self, message: str = "", *, observation: Any = None, for_planner: Any = None) -> None:
        self.observation = observation
        self.for_planner = for_planner
        super().__init__(message)


class CatalogToolExecutor:
    """Carries out tool calls, parallel calls, spawns and awaits against one catalog, artifact store and task registry.

    Without `artifacts` a heavy result is cut instead of kept; without `task_registry` no task can be spawned or
    awaited. A threshold (bytes) or a depth that is not positive means the default. `handles` holds the live objects
    that a run's tool context names, `deps` returns what the tools of a run depend on. With a `redactor`, the events on
    `bus` show arguments and results, redacted by it.
    """

    def __init__(
        self,
        catalog: ToolCatalog,
        artifacts: ArtifactStore | None = None,
        task_registry: TaskRegistry | None = None,
        *,
        heavy_threshold: int = 0,
        logger: logging.Logger | None = None,
        max_spawn_depth: int = 0,
        bus: EventBus | None = None,
        clock: Timers = SYSTEM_CLOCK,
        handles: HandleRegistry | None = None,
        deps: Callable[[Quadruple], Awaitable[Any]] | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        self._catalog = catalog
        self._redactor = redactor
        self._deps = deps
        self._handles = handles
        self._artifacts = artifacts
        self._tasks = task_registry
        self._threshold = heavy_threshold if heavy_threshold > 0 else DEFAULT_HEAVY_THRESHOLD
        self._logger = logging.getLogger(__name__) if logger is None else logger
        self._max_depth = max_spawn_depth if max_spawn_depth > 0 else DEFAULT_SPAWN_DEPTH_CAP
        self._clock = clock
        self._stragglers = Crew(lambda name, error: self._logger.info("%s ended late: %s", name, error_reason(error)))
        self._invoker = Invoker(bus=bus, clock=clock, redactor=redactor)
        self._emit: Callable[[Event], Event] | None = None if bus is None else bus.publish_nowait

    @property
    def task_registry(self) -> TaskRegistry | None:
        """Where it spawns tasks and waits for them; None when it can do neither."""
        return self._tasks

    async def execute_decision(self, rc: RunContext, decision: object) -> tuple[Any, Any]:
        """Carry out one decision; returns the observation as it was and as the planner sees it.

        Raises:
            ToolNotFoundError: no such tool, or none that this run may see.
            ToolInvokeError: the tool failed; its own error is the cause.
            ParallelDispatchError: a parallel call failed as a whole.
            DecisionShapeUnsupportedError: not a decision to carry out, or tasks without a registry.
        """
        match decision:
            case CallTool():
                result = await self._call(rc.quadruple, decision, rc.catalog, rc.tool_context, key="")
                if isinstance(result.raw, InputNeeded):
                    raise ToolInvokeError(decision.tool, _NO_PERSON)
                return result.raw, result.llm
            case CallParallel():
                return await self._parallel(rc, decision)
            case SpawnTask():
                key, deadline = decision.idempotency_key, rc.budget.deadline
                spawned = await self.spawn(rc.quadruple, decision, key=key, deadline=deadline)
                if not decision.spec.retain_turn:
                    return spawned.handle, spawned.handle
                return await self.awaited(rc.quadruple, spawned.group_name or spawned.group_id, SPAWNED)
            case AwaitTask():
                return await self.awaited(rc.quadruple, decision.task_id)
            case _:
                raise DecisionShapeUnsupportedError(shape=decision_kind(decision))

    async def aclose(self) -> None:
        """End calls and branches that outlived their caller because they ignore cancellation; what ignores this, too,
        is logged and left behind."""
        left = await self._stragglers.aclose(clock=self._clock, grace_s=CLOSE_GRACE_S)
        if left:
            self._logger.warning("abandoned, ignoring their cancellation: %s", ", ".join(left))

    async def call(
        self,
        who: Quadruple,
        call: CallTool,
        view: ToolCatalogView | None,
        *,
        key: str,
        is_recorded: bool = True,
        tool_context: ToolContext = _NO_CONTEXT,
        of_run: OfRun = OfRun(),  # noqa: B008 - a frozen value
        **offered: Any,
    ) -> ToolOutcome:
        """Make one call and return its outcome; a failure is an outcome, never an exception.

        Of a run that `is_recorded`, a heavy result is represented by its summary from here on: the artifact store has
        it all. Otherwise the outcome holds the very value beside what the planner sees of it. `offered` is what the
        run adds to the context of the call: its services, the answers that it goes on with.

        Raises:
            RunLeftError: the run has to be left before the tool is called.
        """
        try:
            result = await self._call(who, call, view, tool_context, key=key, of_run=of_run, offered=offered)
        except RunLeftError:
            raise
        except ToolInvokeError as error:
            if is_in_doubt(self.tool(call.tool), error.__cause__):
                return unanswered(call.tool, error_reason(error.__cause__ or error))
            if isinstance(error.__cause__, ToolChangedError):
                return failed(error_text(error.__cause__), code=TOOL_CHANGED_CODE if offered.get("approved") else "")
            is_refusal = isinstance(error.__cause__, ToolRejectedError)
            code = INVALID_ARGS_CODE if self.refuses_args(call, view) else ""
            return failed(error_text(error), OutcomeStatus.REJECTED if is_refusal else OutcomeStatus.FAILED, code=code)
        except Exception as error:  # noqa: BLE001 - any failure of a call is its outcome
            return failed(error_reason(error))
        if isinstance(result.raw, InputNeeded):
            return ToolOutcome(OutcomeStatus.DONE, asks=result.raw)
        if not is_recorded:
            reduced = msgspec.UNSET if result.llm is result.raw else result.llm
            return ToolOutcome(OutcomeStatus.DONE, result.raw, reduced)
        return self._outcome(result)

    def _outcome(self, result: Projection) -> ToolOutcome:
        if result.is_heavy and "artifact_ref" not in result.llm:
            # No store has it: the record is the only place where it is kept.
            return ToolOutcome(OutcomeStatus.DONE, codec.decode(result.encoded), result.llm)
        if result.is_heavy or not result.encoded:
            return ToolOutcome(OutcomeStatus.DONE, result.llm)
        # The planner gets what a reader of the journal would get, so that a resumed run sees the same value.
        is_plain = type(result.raw) in _SCALARS
        return ToolOutcome(OutcomeStatus.DONE, result.raw if is_plain else codec.decode(result.encoded))

    def check(self, calls: tuple[CallTool, ...], view: ToolCatalogView | None) -> None:
        """Accept a parallel call whose every branch could be made.

        Raises:
            ParallelBranchInvalidArgsError: the first branch that could not, by index, with the reason.
        """
        for index, call in enumerate(calls):
            try:
                descriptor = self._descriptor(call.tool, view)
                if descriptor.validate_args is not None:
                    descriptor.validate_args(call.args)
            except HarborageError as error:
                raise ParallelBranchInvalidArgsError(index, call.tool, error_text(error)) from error

    def refuses_args(self, call: CallTool, view: ToolCatalogView | None) -> bool:
        """Whether a tool that can be called does not take these arguments."""
        try:
            descriptor = self._descriptor(call.tool, view)
            if descriptor.validate_args is not None:
                descriptor.validate_args(call.args)
        except ToolInvalidArgsError:
            return True
        except HarborageError:
            return False
        return False

    def objection(self, call: CallTool, view: ToolCatalogView | None) -> str:
        """Why a call could not be made as it stands, whoever allowed it; empty when it could."""
        try:
            self.check((call,), view)
        except ParallelBranchInvalidArgsError as error:
            return error.reason
        return ""

    def tool(self, name: str) -> Tool | None:
        """Return the tool of that name, also one that the caller may not see."""
        descriptor = self._catalog.resolve(name)
        return None if descriptor is None else descriptor.tool

    def mark_of(self, name: str) -> str:
        """Return the mark of a tool that may change while a call of it waits for approval; empty for any other."""
        mark: Callable[[], str] | None = getattr(self._catalog.resolve(name), "mark", None)
        return "" if mark is None else mark()

    def takes_context(self, call: CallTool) -> bool:
        """Whether the function of a tool gets the context of its call."""
        return getattr(self._catalog.resolve(call.tool), "takes_context", False) is True

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Return the names of all tools of its catalog, also of those that the caller may not see."""
        return tuple(tool.name for tool in self._catalog.tools)

    def recovery_of(self, call: CallTool) -> Recovery:
        """Return how an interrupted call continues by its tool's policy; UNKNOWN if there is no such tool any more."""
        tool = self.tool(call.tool)
        return Recovery.UNKNOWN if tool is None else _RECOVERIES[tool.on_unknown]

    async def probe(
        self, who: Quadruple, call: CallTool, *, key: str, tool_context: ToolContext = _NO_CONTEXT
    ) -> ToolOutcome | Recovery:
        """Return the outcome of an interrupted call as the tool's probe reports it; RETRY if it did not act."""
        descriptor = self._catalog.resolve(call.tool)
        if descriptor is None or descriptor.probe is None:
            return unknown(call.tool, "it has no probe here")
        try:
            ask = partial(descriptor.probe, call.args, await self._context(who, call, key, tool_context))
            probed = await run_with_policy(descriptor.policy, ask, clock=self._clock, name=f"probe of {call.tool}")
            if probed.acted is None:
                return unknown(call.tool, "its probe cannot tell")
            if not probed.acted:
                return Recovery.RETRY
            projection = self._project(descriptor, ToolResult(probed.value))
            return self._outcome(await self._kept(projection, call.tool, who) if projection.is_heavy else projection)
        except Exception as error:  # noqa: BLE001 - a probe that fails has found out nothing
            return unknown(call.tool, f"its probe failed: {error_reason(error)}")

    async def spawn(
        self,
        who: Quadruple,
        spawn: SpawnTask,
        *,
        key: str,
        deadline: datetime | None = None,
        write: RunWriter | None = None,
    ) -> Spawned:
        """Start a child task, which ends by `deadline`; the same key starts it once. `write` is how the run commits."""
        registry, most = self._registry("SpawnTask"), self._max_depth
        return await spawn_task(registry, who, spawn, key=key, max_depth=most, deadline=deadline, write=write)

    async def join(
        self, who: Quadruple, target: str, on_waiting: OnWaiting | None = None, write: RunWriter | None = None
    ) -> dict[str, Any]:
        """How a task ended, or all members of a group did, once they have. `write` is how the run commits."""
        registry = self._registry("AwaitTask")
        return await await_work(registry, who, target, clock=self._clock, on_waiting=on_waiting, write=write)

    def _registry(self, shape: str) -> TaskRegistry:
        if self._tasks is None:
            raise DecisionShapeUnsupportedError(
                f"{shape} needs a task registry, and this executor has none", shape=shape
            )
        return self._tasks

    def _descriptor(self, name: str, view: ToolCatalogView | None) -> ToolDescriptor:
        descriptor = self._catalog.resolve(name) if name else None
        if descriptor is None or (view is not None and view.resolve(name) is None):
            raise ToolNotFoundError(name)
        return descriptor

    async def _call(
        self,
        who: Quadruple,
        call: CallTool,
        view: ToolCatalogView | None,
        tool_context: ToolContext,
        *,
        key: str,
        of_run: OfRun = OfRun(),  # noqa: B008 - a frozen value
        offered: Mapping[str, Any] = _NOTHING,
    ) -> Projection:
        descriptor = self._descriptor(call.tool, view)
        ending = Ending(partial(self._finished, descriptor, who), self._redactor)
        try:
            context = await self._context(who, call, key, tool_context)
            context = replace(context, **offered) if offered else context
            show = None if self._redactor is None else ending.show
            step = (who.run_id, of_run.step) if of_run.step else None
            with accounting(current_account(), step):
                result = await self._invoker.invoke(descriptor, call.args, context, of_run, show=show)
            if isinstance(result.value, InputNeeded):
                return Projection(result.value, None)
            is_pause = isinstance(result.value, RequestPause)
            projection = None if is_pause else ending.projection or await self._finished(descriptor, who, result)
        except asyncio.CancelledError as cancelled:
            if is_cancelled():
                raise
            raise ToolInvokeError(call.tool, "it awaited something that was cancelled elsewhere") from cancelled
        except RunLeftError:
            raise
        except Exception as error:
            raise ToolInvokeError(call.tool, failure_reason(error), is_bare=is_said_by_tool(error)) from error
        if projection is None:
            raise ToolInvokeError(call.tool, _NO_PAUSE) from ParallelPauseUnsupportedError(_NO_PAUSE)
        return projection

    async def _finished(self, descriptor: ToolDescriptor, who: Quadruple, result: ToolResult) -> Projection:
        """The projection of a result; its media and what is heavy are kept as artifacts."""
        name = descriptor.tool.name
        if isinstance(result.value, (Media, list, tuple)):
            value = await media_kept(result.value, name, who, self._artifacts, clock=self._clock, logger=self._logger)
            result = result if value is result.value else ToolResult(value, result.meta)
        projection = self._project(descriptor, result)
        return await self._kept(projection, name, who) if projection.is_heavy else projection

    async def _context(self, who: Quadruple, call: CallTool, key: str, given: ToolContext) -> CallContext[Any]:
        deps = None if self._deps is None else await self._deps(who)
        if given is _NO_CONTEXT or not (given.serializable or given.handles):
            return CallContext(who, call.call_id, key, self._artifacts, self._emit, self._clock, deps=deps)
        find = partial(find_handle, self._handles, given, who.run_id)
        data = copy.deepcopy(given.serializable)  # a tool that changes its copy changes no other call's
        return CallContext(who, call.call_id, key, self._artifacts, self._emit, self._clock, data, find, deps)

    def _project(self, descriptor: ToolDescriptor, result: ToolResult) -> Projection:
        value = {"meta": result.meta} if result.value is None and result.meta else result.value
        # The reader of artifacts cuts its windows itself, and a model that asks for a large one is to see it.
        is_reader = descriptor.tool.name == ARTIFACT_FETCH and descriptor.tool.source == "builtin"
        return project(
            descriptor.tool.name,
            value,
            threshold=max(self._threshold, MAX_FETCH_BYTES) if is_reader else self._threshold,
            exempt=_EXEMPT_TAG in descriptor.tool.tags,
        )

    def _kept(self, projection: Projection, tool: str, who: Quadruple) -> Awaitable[Projection]:
        return kept(projection, tool, who=who, store=self._artifacts, logger=self._logger, clock=self._clock)

    async def awaited(
        self,
        who: Quadruple,
        target: str,
        name: str = AWAITED,
        on_waiting: OnWaiting | None = None,
        write: RunWriter | None = None,
    ) -> tuple[Any, Any]:
        """How a task or group ended, once it has, as it was and as the planner sees it."""
        outcome = await self.join(who, target, on_waiting, write)
        answer = outcome.get("result")
        if is_kept_summary(answer):
            return outcome, answer  # kept when the task ended: its reference is all there is to show
        projected = await self.projected(who, name, outcome)
        return projected.raw, projected.llm

    async def projected(self, who: Quadruple, name: str, value: Any) -> Projection:
        """What the planner of the run `who` may see of a result; a heavy one is kept as an artifact."""
        projection = project(name, value, threshold=self._threshold)
        return await self._kept(projection, name, who) if projection.is_heavy else projection

    async def _parallel(self, rc: RunContext, decision: CallParallel) -> tuple[Any, Any]:
        join = join_of(decision)
        if isinstance(join, ToolOutcome):
            raise ParallelDispatchError(join.error)
        starts = [partial(self._branch, rc, call) for call in decision.branches]
        outcomes = await race(starts, join, stragglers=self._stragglers, clock=self._clock)
        outcome = joined(decision.branches, join, outcomes)
        if outcome.status is not OutcomeStatus.DONE:
            raise ParallelDispatchError(outcome.error, observation=outcome.observation, for_planner=outcome.seen)
        return outcome.observation, outcome.seen

    async def _branch(self, rc: RunContext, call: CallTool) -> ToolOutcome:
        outcome = await self.call(
            rc.quadruple, call, rc.catalog, key="", is_recorded=False, tool_context=rc.tool_context
        )
        return kept_or_raised(outcome)
