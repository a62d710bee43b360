"""Branches side by side: one task each, joined as the plan asks, and none of them left behind.

`race` runs anything; `ParallelExecutor` runs the branches of a parallel call through callables that the caller gives.
Neither retries, and neither knows a catalog, a store or a bus.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Generic, NoReturn, TypeVar, assert_never

from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.concurrency import STOP, Crew
from harborage.crashes import error_of
from harborage.errors import error_text
from harborage.identity import Quadruple, must_quadruple, require_quadruple
from harborage.planner import (
    CallTool,
    JoinSpec,
    ParallelBranchInvalidArgsError,
    ParallelError,
    ParallelPauseUnsupportedError,
    RequestPause,
)
from harborage.runtime.loop.joins import (
    BranchOutcome,
    BranchResult,
    Cancelled,
    Done,
    Failed,
    ParallelShortfallError,
    merge,
    normalise_join,
    successes_needed,
)
from harborage.tools import ToolDescriptor, ToolNotFoundError, ToolResult

T = TypeVar("T")

LOSER_GRACE_S = 0.25
"""Seconds that a branch gets to end after it was cancelled; then it is handed to the crew of stragglers."""


async def race(
    starts: Sequence[Callable[[], Awaitable[T]]],
    join: JoinSpec,
    *,
    stragglers: Crew | None = None,
    clock: Timers = SYSTEM_CLOCK,
    on_outcome: Callable[[int, BranchOutcome[T]], None] | None = None,
) -> list[BranchOutcome[T]]:
    """Run all branches until `join` is settled; exactly one outcome a branch, in their order.

    Branches that still run then are cancelled and waited for. One that ignores this for `LOSER_GRACE_S` counts as
    cancelled and goes on in `stragglers`, whose owner ends it; without such a crew it is waited for to its end. A
    branch that finished all the same keeps its own outcome. `on_outcome` hears of each outcome once, as they come; what
    it raises ends the race and comes out here. Cancelling the race cancels its branches in the same way. `join` must be
    a normalised one.

    Never: leaves a task without an owner.
    """
    return await _Race(len(starts), join, on_outcome).run(starts, stragglers, clock)


class _Race(Generic[T]):
    """One race while it runs."""

    __slots__ = (
        "_fault",
        "_is_settled",
        "_needed",
        "_on_outcome",
        "_open",
        "_outcomes",
        "_running",
        "_wake",
    )

    def __init__(self, count: int, join: JoinSpec, on_outcome: Callable[[int, BranchOutcome[T]], None] | None) -> None:
        self._needed = successes_needed(join)
        self._on_outcome = on_outcome
        self._outcomes: list[BranchOutcome[T] | None] = [None] * count
        self._open = count
        self._running: dict[int, asyncio.Task[T]] = {}
        self._wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_settled = False
        self._fault: BaseException | None = None

    async def run(
        self, starts: Sequence[Callable[[], Awaitable[T]]], stragglers: Crew | None, clock: Timers
    ) -> list[BranchOutcome[T]]:
        try:
            for index, start in enumerate(starts):
                task = asyncio.create_task(_branch(start))
                self._running[index] = task
                task.add_done_callback(partial(self._ended, index))
            if self._open:
                await self._wake
        finally:
            self._is_settled = True
            if self._running:
                await self._dismiss(stragglers, clock)
        if self._fault is not None:
            raise self._fault
        return [outcome for outcome in self._outcomes if outcome is not None]

    async def _dismiss(self, stragglers: Crew | None, clock: Timers) -> None:
        """Cancel the branches that still run, wait for them a little, and hand over those that will not end."""
        for task in self._running.values():
            task.cancel(STOP)
        if stragglers is None:
            await _outwait(self._running.values())
            return
        self._wake = asyncio.get_running_loop().create_future()
        timer = clock.call_later(LOSER_GRACE_S, self._rouse)
        try:
            await self._wake
        finally:
            timer.cancel()
            for index, task in list(self._running.items()):
                self._record(index, Cancelled())
                task.set_name(f"straggler of branch {index}")
                stragglers.adopt(task)

    def _ended(self, index: int, task: asyncio.Task[T]) -> None:
        if self._outcomes[index] is None:
            self._record(index, _outcome(task))

    def _record(self, index: int, outcome: BranchOutcome[T]) -> None:
        self._outcomes[index] = outcome
        self._open -= 1
        del self._running[index]
        if self._needed is not None and isinstance(outcome, Done):
            self._needed -= 1
        if self._on_outcome is not None:
            try:
                self._on_outcome(index, outcome)
            except Exception as fault:  # noqa: BLE001 - raised to the caller of the race, once its branches have ended
                self._fault = self._fault or fault
        # `joins.is_settled`, from the counts alone; once settled, only the end of all members is worth waking for.
        if not self._open or (not self._is_settled and (self._needed == 0 or self._fault is not None)):
            self._rouse()

    def _rouse(self) -> None:
        if not self._wake.done():
            self._wake.set_result(None)


async def _branch(start: Callable[[], Awaitable[T]]) -> T:
    return await start()


def _outcome(task: asyncio.Task[T]) -> BranchOutcome[T]:
    error = error_of(task)
    if error is not None:
        return Failed(error)
    return Cancelled() if task.cancelled() else Done(task.result())


async def _outwait(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Wait until all have ended; a cancellation that comes meanwhile is passed on afterwards."""
    left = set(tasks)
    request: asyncio.CancelledError | None = None
    while left:
        try:
            _, left = await asyncio.wait(left)
        except asyncio.CancelledError as cancelled:
            request = cancelled
            left = {task for task in left if not task.done()}
    if request is not None:
        raise request


class ParallelBranchCancelledError(ParallelError):
    """The branch was cancelled before it finished."""


class ParallelExecutor:
    """Runs the branches of a parallel call. Holds no state of a call; any number may run at once.

    `resolve` finds a tool's descriptor, `invoke` makes the call with the tool's own policy. `stragglers` takes over
    branches that ignore cancellation; without it a call waits for them.
    """

    def __init__(
        self,
        resolve: Callable[[str], ToolDescriptor | None],
        invoke: Callable[[ToolDescriptor, CallTool], Awaitable[ToolResult]],
        *,
        stragglers: Crew | None = None,
        clock: Timers = SYSTEM_CLOCK,
    ) -> None:
        self._resolve = resolve
        self._invoke = invoke
        self._stragglers = stragglers
        self._clock = clock

    async def execute(
        self,
        branches: Sequence[CallTool],
        join: JoinSpec | None,
        *,
        non_atomic: bool = False,
        who: Quadruple | None = None,
    ) -> list[BranchResult]:
        """Run `branches` and join them; `who`, or else the ambient quadruple, is whose call it is.

        Joins `all` and `keyed` give every branch's result, errors inside; `first_success` and `n` give successes only.
        A branch that cannot be set up fails the whole call before any runs, or with `non_atomic` itself alone.

        Raises:
            IdentityMissingError: no identity. Then, in this order, before anything is invoked:
            CancelledError: the caller has been cancelled already.
            ParallelCapExceededError, InvalidDecisionError, ParallelInvalidJoinError: as `normalise_join`.
            ToolNotFoundError, ParallelBranchInvalidArgsError: the first branch that cannot be set up.
            ParallelShortfallError: fewer successes than `first_success` or `n` asks for; every branch has ended.
        """
        _admit(who)
        spec = normalise_join(join, branches)
        starts = [self._start(index, branch, non_atomic) for index, branch in enumerate(branches)]
        finished: list[int] = []
        outcomes = await race(
            starts,
            spec,
            stragglers=self._stragglers,
            clock=self._clock,
            on_outcome=lambda index, _: finished.append(index),
        )
        results = [_result(index, branch, outcomes[index]) for index, branch in enumerate(branches)]
        chosen = [results[index] for index in merge(spec, outcomes, branches=branches, finished=finished)]
        needed = successes_needed(spec)
        if needed is not None and len(chosen) < needed:
            raise ParallelShortfallError(needed, chosen, [one for one in results if one.error is not None])
        return chosen

    def _start(self, index: int, branch: CallTool, non_atomic: bool) -> Callable[[], Awaitable[ToolResult]]:
        try:
            descriptor = self._set_up(index, branch)
        except (ToolNotFoundError, ParallelBranchInvalidArgsError) as error:
            if not non_atomic:
                raise
            return partial(_fail, error)
        return partial(self._call, descriptor, branch)

    def _set_up(self, index: int, branch: CallTool) -> ToolDescriptor:
        descriptor = self._resolve(branch.tool)
        if descriptor is None:
            raise ToolNotFoundError(branch.tool)
        if descriptor.validate_args is not None:
            try:
                descriptor.validate_args(branch.args)
            except Exception as error:
                raise ParallelBranchInvalidArgsError(index, branch.tool, error_text(error)) from error
        return descriptor

    async def _call(self, descriptor: ToolDescriptor, branch: CallTool) -> ToolResult:
        result = await self._invoke(descriptor, branch)
        if isinstance(result.value, RequestPause):
            raise ParallelPauseUnsupportedError(
                f"tool {branch.tool!r} asked for a pause inside a parallel call; call it alone, or wait inside the tool"
            )
        return result


def _admit(who: Quadruple | None) -> None:
    if who is None:
        must_quadruple()
    else:
        require_quadruple(who, "parallel call")
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def _fail(error: Exception) -> NoReturn:
    raise error


def _result(index: int, branch: CallTool, outcome: BranchOutcome[ToolResult]) -> BranchResult:
    at = partial(BranchResult, index=index, tool=branch.tool, call_id=branch.call_id)
    match outcome:
        case Done(value):
            return at(result=value)
        case Failed(error):
            return at(error=error)
        case Cancelled():
            return at(error=ParallelBranchCancelledError())
        case _ as unreachable:
            assert_never(unreachable)
