"""The run loop: read this first.

    request → run loop → planner → decision → dispatch → observation → trajectory → event

One turn: take in the controls, ask whether the run may step, ask the planner for one decision, act on it, remember
it. The loop is pure above `io`: no I/O, no clock, no randomness, so a host may run it again over recorded answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

from harborage.planner import AwaitTask, Decision, Finish, RequestPause
from harborage.runtime.steering.apply import Observed, arrived, interrupted, paused, remember, settle, steered, told
from harborage.runtime.steering.arrivals import NOTHING, Arrivals, Hold, StepInterruptedError, WaitPutOffError
from harborage.runtime.steering.gate import Go, Stop, gate, too_many_steps
from harborage.runtime.steering.state import Cancelling, Planned, PutOff, RunState, SteerRequest

if TYPE_CHECKING:
    from harborage.runtime.durable import Durable

__all__ = ["Dispatch", "run_loop"]

Dispatch: TypeAlias = "Callable[[Any, RunState, Durable], Awaitable[Observed]]"
"""How a decision is carried out: `dispatch(decision, run, io)`; never for `Finish` and `RequestPause`."""


async def run_loop(run: RunState, io: Durable, dispatch: Dispatch) -> Finish:
    """Carry one run from where it stands to its finish. Pure above `io`; safe to re-enter.

    Raises:
        MaxStepsExceededError: the planner used up its steps without a finish.
        Exception: what the planner raised, or a control that could not be applied where such a control ends the run.
    """
    while True:
        arrivals = await io.drain()
        if arrivals is not NOTHING:
            run = await steer(run, arrivals, io)
        match gate(run):
            case Go():
                pass
            case Stop(finish):
                return await leave(run, finish, io)
            case Hold() as hold:
                run = settle(run, await io.wait(hold))
                continue
            case _ as unreachable:
                assert_never(unreachable)
        if run.put_off is not None:
            run = await act(run, run.put_off.planned, run.put_off.awaits, io, dispatch)
            continue
        try:
            planned = await io.step("plan", run)
        except StepInterruptedError as cut:
            run = interrupted(run, cut.reason)
            continue
        run = told(run, planned)
        decision: Decision = planned.decision
        match decision:
            case Finish():
                return decision
            case RequestPause() if run.cancelling is Cancelling.TOLD:
                continue  # nobody is asked any more; the gate ends the run
            case _ if run.steps > run.max_steps:
                raise too_many_steps(run)
            case RequestPause():
                run = paused(run, await io.step("pause.request", decision))
            case _:
                run = await act(run, planned, decision, io, dispatch)


async def act(run: RunState, planned: Planned, decision: Decision, io: Durable, dispatch: Dispatch) -> RunState:
    """Carry a decision out and remember the step; a wait that a pause puts off is taken up again after it."""
    run.put_off = None
    try:
        observed = await dispatch(decision, run, io)
    except WaitPutOffError as wait:
        run.put_off = PutOff(planned, AwaitTask(wait.target))
        return run
    return remember(run, planned, observed)


async def steer(run: RunState, arrivals: Arrivals, io: Durable) -> RunState:
    """Take in what arrived. Applying controls is one recorded step; folding their outcomes is pure."""
    run = arrived(run, arrivals)
    if not arrivals.controls:
        return run
    request = SteerRequest(
        controls=arrivals.controls, task_id=run.task_id, pause=run.pause, awaits_provider=run.awaits_provider
    )
    return steered(run, await io.step("steer", request))


async def leave(run: RunState, finish: Finish, io: Durable) -> Finish:
    """End a run that its steering stopped; a pause it is parked on is settled, so that nobody answers in vain."""
    if run.pause is not None:
        await io.step("pause.abandon", run.pause)
    return finish
