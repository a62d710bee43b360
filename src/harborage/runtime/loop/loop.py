"""The run loop: read this first.

    request → run loop → planner → decision → dispatch → observation → trajectory → event

One turn: apply the controls, check whether the run may step, ask the planner for one decision, act on it, append the
step. The loop is pure above `io`: no I/O, no clock, no randomness, so a host may run it again over recorded answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, assert_never

from msgspec.structs import replace

from harborage.planner import AwaitTask, CallParallel, CallTool, Decision, Finish, FinishReason, RequestPause, SpawnTask
from harborage.runtime.loop.agent_calls import handed_over, still_working
from harborage.runtime.loop.apply import (
    Go,
    Observed,
    Stop,
    apply_arrivals,
    apply_controls,
    apply_finish,
    apply_interrupt,
    apply_plan,
    apply_wake,
    gate,
    may_wait,
    park,
    remember,
    too_many_steps,
)
from harborage.runtime.loop.arrivals import NOTHING, Arrivals, Hold, StepInterruptedError, WaitPutOffError
from harborage.runtime.loop.state import Cancelling, Planned, PutOff, RunState, SteerRequest

if TYPE_CHECKING:
    from harborage.runtime.loop.seam import Durable


class Outcome(Protocol):
    """What came of a decision."""

    @property
    def observed(self) -> Observed: ...


Dispatch: TypeAlias = "Callable[[Any, RunState, Durable], Awaitable[Outcome]]"
"""Executes a decision: `dispatch(decision, run, io)`; never called for `Finish` and `RequestPause`."""


async def run_loop(run: RunState, io: Durable, dispatch: Dispatch) -> Finish:
    """Execute one run from its present state to its finish. Pure above `io`; safe to re-enter.

    Raises:
        MaxStepsExceededError: the planner used up its steps without a finish.
        Exception: the error of the planner, or of a control that ends the run because it could not be applied.
    """
    while True:
        arrivals = await io.drain()
        if arrivals is not NOTHING:
            run = await steer(run, arrivals, io)
        match gate(run):
            case Go():
                pass
            case Stop(finish):
                if (released := await release(run, finish, io)) is not None:
                    return await leave(run, released, io)
                run.finish = None  # the answer of another agent, which the hooks sent back
                continue
            case Hold() as hold:
                run = apply_wake(run, await io.wait(hold))
                continue
            case _ as unreachable:
                assert_never(unreachable)
        if run.put_off is not None:
            run = await act(run, run.put_off.planned, run.put_off.awaits, io, dispatch)
            continue
        try:
            planned = await io.step("plan", run)
        except StepInterruptedError as cut:
            run = apply_interrupt(run, cut.reason)
            continue
        run = apply_plan(run, planned)
        decision: Decision = planned.decision
        match decision:
            case CallTool() | CallParallel() | SpawnTask() | AwaitTask() if run.steps <= run.max_steps:
                run = await act(run, planned, decision, io, dispatch)
            case Finish():
                awaited = still_working(run)
                if awaited and may_wait(run, decision):
                    wait = AwaitTask(awaited)
                    run = await act(run, replace(planned, decision=wait), wait, io, dispatch)
                elif (released := await release(run, decision, io)) is not None:
                    return released
            case RequestPause() if run.cancelling is Cancelling.TOLD:
                continue  # the planner is not called any more; the gate ends the run
            case RequestPause() if run.steps <= run.max_steps:
                run = park(run, await io.step("pause.request", decision))
            case _:
                raise too_many_steps(run)


async def act(run: RunState, planned: Planned, decision: Decision, io: Durable, dispatch: Dispatch) -> RunState:
    """Execute a decision and append the step; a wait that a pause puts off is begun again after it.

    An agent to which the conversation was handed over answers in place of the run, which ends with its answer.
    """
    run.put_off = None
    try:
        outcome = await dispatch(decision, run, io)
    except WaitPutOffError as wait:
        run.put_off = PutOff(planned, AwaitTask(wait.target))
        return run
    run.finish = handed_over(planned.decision, outcome, run) or run.finish
    return remember(run, planned, outcome.observed)


async def release(run: RunState, finish: Finish, io: Durable) -> Finish | None:
    """The finish as the hooks before it let it pass; None when the run goes on instead."""
    if finish.reason is not FinishReason.GOAL:
        return finish
    if "before_finish" in run.new_hooks and await io.patched("before_finish"):
        run.hooks, run.new_hooks = (*run.hooks, "before_finish"), ()
    if "before_finish" not in run.hooks:
        return finish
    try:
        said = await io.step("hook.before_finish", finish)
    except StepInterruptedError as cut:
        apply_interrupt(run, cut.reason)
        return None
    return apply_finish(run, finish, said)


async def steer(run: RunState, arrivals: Arrivals, io: Durable) -> RunState:
    """Apply what arrived. Applying controls is one recorded step; folding their outcomes is pure."""
    run = apply_arrivals(run, arrivals)
    if not arrivals.controls:
        return run
    request = SteerRequest(
        controls=arrivals.controls,
        task_id=run.task_id,
        pause=run.pause,
        awaits_provider=run.awaits_provider,
        is_workflow=run.is_workflow,
        step=run.steps + 1,
    )
    return apply_controls(run, await io.step("steer", request))


async def leave(run: RunState, finish: Finish, io: Durable) -> Finish:
    """End a run that its steering stopped; its open pause is rejected, so that no person answers it later."""
    if run.pause is not None:
        await io.step("pause.abandon", run.pause)
    return finish
