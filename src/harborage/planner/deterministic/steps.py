"""The steps of a decision tree: call a tool, finish, pause; spawn a task and wait for it, or wait for a task group.

Every planner call asks the steps in order until one claims it, so a step without a guard claims every call. Steps are
shared by all runs. Those that follow groups look and never wait themselves: a group that has not ended yields an
`AwaitTask`, and the runtime asks again when that task has ended. How far a run has come is remembered in this process,
keyed by the whole run, and forgotten when the run ends. A run that another worker resumes visits the step anew: that
starts no second task, but an `on_resolved` may be called once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

import msgspec

from harborage import codec
from harborage.callables import settled
from harborage.planner.config import DEFAULT_SPAWN_DEPTH_CAP
from harborage.planner.context import RunContext
from harborage.planner.decisions import (
    AwaitTask,
    CallTool,
    Decision,
    Finish,
    FinishReason,
    PauseReason,
    RequestPause,
    SpawnSpec,
    SpawnTask,
    check_decision,
)
from harborage.planner.errors import InvalidConfigError, InvalidDecisionError
from harborage.planner.spawning import check_spawn_depth, spawn_request
from harborage.tasks import (
    GroupCompletion,
    GroupRequest,
    GroupStatus,
    MemberOutcome,
    TaskGroup,
    TaskGroupID,
    TaskID,
    TaskKind,
    TaskNotFoundError,
    TaskRegistry,
)

if TYPE_CHECKING:
    from harborage.identity import Quadruple

Guard: TypeAlias = Callable[[RunContext], bool | Awaitable[bool]]
"""Returns whether a step claims this call; a step without a guard claims every call. Plain or async."""

StepResult: TypeAlias = tuple[Decision | None, bool]
"""A decision and True from a step that claims the call; None and False from one that leaves it."""

SKIPPED: Final[StepResult] = (None, False)


@runtime_checkable
class DecisionTreeStep(Protocol):
    """One step of a decision tree. Never: holds state of a run that is not keyed by the whole run."""

    async def decide(self, run: RunContext) -> StepResult:
        """Return `(decision, True)` to claim the call, `(None, False)` to leave it to the next step.

        Raises:
            Exception: the step failed, and with it the run; a failing step is never skipped.
        """
        ...


class CallToolStep(msgspec.Struct, frozen=True):
    """Calls one tool with the arguments that `args_builder` makes: JSON text as bytes, or a dict to be written as such.

    Without a guard it calls the tool at every step; let the guard look at `run.trajectory.steps`.
    """

    tool: str = ""
    args_builder: Callable[[RunContext], bytes | dict[str, Any] | Awaitable[bytes | dict[str, Any]]] | None = None
    when: Guard | None = None

    async def decide(self, run: RunContext) -> StepResult:
        """Return the call.

        Raises:
            InvalidConfigError: the tool or the builder is missing, or the builder returned another type.
        """
        if not await is_claimed(self.when, run):
            return SKIPPED
        if not self.tool:
            raise InvalidConfigError("CallToolStep: tool is empty; name the tool to call")
        if self.args_builder is None:
            raise InvalidConfigError("CallToolStep: args_builder is missing; return b'{}' for a call without arguments")
        return CallTool(self.tool, _encode_args(await settled(self.args_builder(run)))), True


class FinishStep(msgspec.Struct, frozen=True):
    """Ends the run. The run's id is added to the metadata unless the builder set one.

    Raises:
        InvalidConfigError: the reason is unknown.
    """

    reason: FinishReason | str = ""
    payload_builder: Callable[[RunContext], Any] | None = None
    metadata_builder: Callable[[RunContext], dict[str, Any] | Awaitable[dict[str, Any]]] | None = None
    when: Guard | None = None

    def __post_init__(self) -> None:
        if self.reason != "":
            _check_reason(self, FinishReason)

    async def decide(self, run: RunContext) -> StepResult:
        """Return the finish; without builder and run id its metadata is None.

        Raises:
            InvalidConfigError: there is no reason.
        """
        if not await is_claimed(self.when, run):
            return SKIPPED
        _check_reason(self, FinishReason)
        payload = None if self.payload_builder is None else await settled(self.payload_builder(run))
        given = None if self.metadata_builder is None else await settled(self.metadata_builder(run))
        metadata = dict(given) if given else {}
        if run.quadruple.run_id:
            metadata.setdefault("run_id", run.quadruple.run_id)
        return Finish(FinishReason(self.reason), payload, metadata or None), True


class PauseStep(msgspec.Struct, frozen=True):
    """Asks for a pause, with an empty payload unless there is a builder.

    Without a guard it pauses again at every step. `run.trajectory.resume_hint` has the answer at the one call after it
    arrived: let another step claim that call, and let the guard see in the history that it did.

    Raises:
        InvalidConfigError: the reason is unknown.
    """

    reason: PauseReason | str = ""
    payload_builder: Callable[[RunContext], dict[str, Any] | Awaitable[dict[str, Any]]] | None = None
    when: Guard | None = None

    def __post_init__(self) -> None:
        if self.reason != "":
            _check_reason(self, PauseReason)

    async def decide(self, run: RunContext) -> StepResult:
        """Return the request.

        Raises:
            InvalidConfigError: there is no reason.
        """
        if not await is_claimed(self.when, run):
            return SKIPPED
        _check_reason(self, PauseReason)
        payload = {} if self.payload_builder is None else await settled(self.payload_builder(run))
        return RequestPause(PauseReason(self.reason), payload), True


def _check_reason(step: FinishStep | PauseStep, known: type[FinishReason | PauseReason]) -> None:
    if step.reason not in list(known):
        name = type(step).__name__
        raise InvalidConfigError(f"{name}: reason {step.reason!r} is unknown; use one of {', '.join(known)}")


async def is_claimed(when: Guard | None, run: RunContext) -> bool:
    """Whether a step with this guard claims the call."""
    return when is None or bool(await settled(when(run)))


def _encode_args(args: object) -> bytes:
    match args:
        case bytes():
            return args
        case dict():
            return codec.encode(args, "args")
        case _:
            raise InvalidConfigError(
                f"CallToolStep: args_builder returned a {type(args).__name__}; return JSON text as bytes, or a dict"
            )


S = TypeVar("S")


class RunStates(Generic[S]):
    """The state of each run that visits a step, made by `new` at its first visit.

    `registry` reports tasks that have ended, and the state of such a run is dropped. The state of a run without a task
    that ends without a finish stays until the host calls `forget`.
    """

    __slots__ = ("_new", "_registry", "_runs", "_unsubscribe")

    def __init__(self, registry: TaskRegistry, new: Callable[[], S]) -> None:
        self._registry = registry
        self._new = new
        self._runs: dict[Quadruple, S] = {}
        self._unsubscribe: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._runs)

    def get(self, who: Quadruple) -> S:
        """Return the state of this run, made at its first visit.

        Raises:
            RegistryClosedError: it is the first run, and the registry is closed.
        """
        found = self._runs.get(who)
        if found is None:
            if self._unsubscribe is None:
                self._unsubscribe = self._registry.on_ended(self.forget)
            found = self._runs[who] = self._new()
        return found

    def forget(self, who: Quadruple) -> None:
        """Drop the state of this run, if there is one."""
        if self._runs.pop(who, None) is None or self._runs:
            return
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None


DEFAULT_STEP_ID = "<spawn-and-await>"

OnResolved: TypeAlias = Callable[[RunContext, tuple[MemberOutcome, ...]], Decision | Awaitable[Decision]]
"""Decides what follows once a group has ended, from how its members ended. It is shared by all runs."""


@runtime_checkable
class GroupAwareStep(DecisionTreeStep, Protocol):
    """A step that follows task groups, and so needs their registry."""

    def attach(self, registry: TaskRegistry | None) -> None:
        """Use this registry; the planner calls it, with None when the runtime that lent its registry has closed.

        Raises:
            InvalidConfigError: the step is attached to another registry already.
        """
        ...

    def forget(self, who: Quadruple) -> None:
        """Drop the state of this run, which has ended."""
        ...


class _Progress(msgspec.Struct):
    """The progress of one run at one step."""

    lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    spawn: SpawnTask | None = None
    task_id: TaskID = ""
    is_resolved: bool = False


class _GroupStep:
    """The base of both steps: one call of a run at a time, a look at the group, one delivery of its outcome."""

    def __init__(self, on_resolved: OnResolved | None, when: Guard | None) -> None:
        self.on_resolved = on_resolved
        self.when = when
        self._registry: TaskRegistry | None = None
        self._states: RunStates[_Progress] | None = None

    def attach(self, registry: TaskRegistry | None) -> None:
        """Use this registry; the planner calls it, with None when the runtime that lent its registry has closed.

        Raises:
            InvalidConfigError: the step is attached to another registry already.
        """
        if registry is None:
            self._registry = self._states = None
            return
        if self._registry is not None and self._registry is not registry:
            raise InvalidConfigError(f"{self._label}: the step belongs to another task registry; make a step for each")
        if self._registry is None:
            self._registry = registry
            self._states = RunStates(registry, _Progress)

    def forget(self, who: Quadruple) -> None:
        """Drop the state of this run, which has ended."""
        if self._states is not None:
            self._states.forget(who)

    async def decide(self, run: RunContext) -> StepResult:
        """Return the next decision until the group has ended; after `on_resolved`, leave the call to the next step.

        Raises:
            InvalidConfigError: a part of the step is missing, or it belongs to no planner.
            InvalidDecisionError: `on_resolved` returned no decision.
            TaskError: the registry refused.
        """
        if not await is_claimed(self.when, run):
            return SKIPPED
        self._check()
        if self._registry is None or self._states is None:
            raise InvalidConfigError(f"{self._label}: no task registry; pass one to the planner with registry=")
        progress = self._states.get(run.quadruple)
        async with progress.lock:
            if progress.is_resolved:
                return SKIPPED
            return await self._advance(run, self._registry, progress), True

    @property
    def _label(self) -> str:
        return type(self).__name__

    def _check(self) -> None:
        if self.on_resolved is None:
            raise InvalidConfigError(f"{self._label}: on_resolved is missing; return the decision that follows")

    async def _advance(self, run: RunContext, registry: TaskRegistry, progress: _Progress) -> Decision:
        raise NotImplementedError

    async def _follow(
        self, run: RunContext, registry: TaskRegistry, progress: _Progress, group_id: TaskGroupID, task_id: TaskID
    ) -> Decision:
        """Return the decision of `on_resolved` for a group that has ended, else await a task of it."""
        completion = await _find_completion(registry, run.quadruple, group_id)
        if completion is None:
            return AwaitTask(await _choose_awaited(registry, run.quadruple, group_id, task_id))
        assert self.on_resolved is not None
        decision: Decision | None = await settled(self.on_resolved(run, completion.members))
        progress.is_resolved = True
        if decision is None:
            raise InvalidDecisionError(f"{self._label}: on_resolved returned no decision")
        return decision


class SpawnAndAwaitStep(_GroupStep):
    """Spawns a task, waits until its group has ended, and lets `on_resolved` decide what follows; then it is done.

    The step itself makes the task and its group, with an idempotency key that is in the returned `SpawnTask`: a runtime
    that acts on it finds that the task exists. Without `group_id` the task is alone in a group of its own.
    `step_id` must differ between the steps of one planner. `max_depth` is how deep tasks may spawn tasks, 0 for the
    default; where spawned tasks are planned by this same planner, guard the step with `when`.
    """

    def __init__(
        self,
        *,
        step_id: str = "",
        kind: TaskKind | str = TaskKind.BACKGROUND,
        spec_builder: Callable[[RunContext], SpawnSpec | Awaitable[SpawnSpec]] | None = None,
        group_id: TaskGroupID = "",
        on_resolved: OnResolved | None = None,
        when: Guard | None = None,
        max_depth: int = 0,
    ) -> None:
        super().__init__(on_resolved, when)
        self.step_id = step_id or DEFAULT_STEP_ID
        self.kind = kind or TaskKind.BACKGROUND
        self.spec_builder = spec_builder
        self.group_id = group_id
        self.max_depth = max_depth if max_depth > 0 else DEFAULT_SPAWN_DEPTH_CAP

    def _check(self) -> None:
        if self.spec_builder is None:
            raise InvalidConfigError(f"{self._label}: spec_builder is missing; return what the task is for")
        super()._check()

    async def _advance(self, run: RunContext, registry: TaskRegistry, progress: _Progress) -> Decision:
        if not progress.task_id:
            return await self._spawn(run, registry, progress)
        assert progress.spawn is not None
        return await self._follow(run, registry, progress, progress.spawn.group_id, progress.task_id)

    async def _spawn(self, run: RunContext, registry: TaskRegistry, progress: _Progress) -> SpawnTask:
        """Make the group and its member. After a failure the next visit tries again, with the same request."""
        who = run.quadruple
        if progress.spawn is None:
            progress.spawn = await self._make_decision(run)
        spawn = progress.spawn
        await check_spawn_depth(registry, who, self.max_depth)
        group = await registry.resolve_or_create_group(_make_group_request(who, spawn), who=who)
        handle = await registry.spawn(spawn_request(who, spawn, spawn.idempotency_key, group.id))
        if group.status is GroupStatus.OPEN:
            await registry.seal_group(group.id, who=who)
        progress.task_id = handle.id
        return spawn

    async def _make_decision(self, run: RunContext) -> SpawnTask:
        assert self.spec_builder is not None
        key = _make_key(run.quadruple, self.step_id)
        spawn = SpawnTask(str(self.kind), await settled(self.spec_builder(run)), self.group_id or f"group-{key}", key)
        check_decision(spawn)
        return spawn


class WatchGroupStep(_GroupStep):
    """Waits until a group that was made elsewhere has ended, and lets `on_resolved` decide what follows.

    `owner_task_id` is the task to await meanwhile; once that has ended it is another member of the group.
    """

    def __init__(
        self,
        *,
        group_id: TaskGroupID = "",
        owner_task_id: TaskID = "",
        on_resolved: OnResolved | None = None,
        when: Guard | None = None,
    ) -> None:
        super().__init__(on_resolved, when)
        self.group_id = group_id
        self.owner_task_id = owner_task_id

    def _check(self) -> None:
        for field in ("group_id", "owner_task_id"):
            if not getattr(self, field):
                raise InvalidConfigError(f"{self._label}: {field} is empty")
        super()._check()

    async def _advance(self, run: RunContext, registry: TaskRegistry, progress: _Progress) -> Decision:
        return await self._follow(run, registry, progress, self.group_id, self.owner_task_id)


def _make_key(who: Quadruple, step_id: str) -> str:
    """Return the key of this step of this run. Group ids are shared by all tenants, so the whole identity is in it."""
    parts = [who.tenant_id, who.user_id, who.session_id, who.run_id, step_id]
    return f"deterministic-{sha256(codec.encode(parts)).hexdigest()}"


def _make_group_request(who: Quadruple, spawn: SpawnTask) -> GroupRequest:
    return GroupRequest(
        session=who.identity,
        id=spawn.group_id,
        owner_task_id=who.run_id,
        retain_turn=spawn.spec.retain_turn,
        fail_fast=spawn.spec.fail_fast,
        description=spawn.spec.description,
    )


async def _find_completion(registry: TaskRegistry, who: Quadruple, group_id: TaskGroupID) -> GroupCompletion | None:
    watch = await registry.watch_group(who.identity, group_id)
    completion = watch.peek()
    watch.cancel()
    return completion


async def _choose_awaited(registry: TaskRegistry, who: Quadruple, group_id: TaskGroupID, wanted: TaskID) -> TaskID:
    """Return the task to await: `wanted`, or once that has ended another member of the group that still runs.

    Awaiting a task that has ended would ask the planner again at once, and use up the run's steps.
    """
    if not await _has_ended(registry, who, wanted):
        return wanted
    group: TaskGroup = await registry.resolve_or_create_group(GroupRequest(session=who.identity, id=group_id), who=who)
    for member in group.members:
        # A run that awaits its own task waits for ever.
        if member != who.run_id and not await _has_ended(registry, who, member):
            return member
    return wanted


async def _has_ended(registry: TaskRegistry, who: Quadruple, task_id: TaskID) -> bool:
    try:
        return (await registry.get(task_id, who=who)).status.is_terminal
    except TaskNotFoundError:
        return False
