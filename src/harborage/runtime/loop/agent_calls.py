"""The calls of agents: each starts a child run, and is answered by what that run gave. Pure above `io`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, assert_never

import msgspec

from harborage import codec
from harborage.planner import INVALID_ARGS_CODE, CallTool, Finish, FinishReason, SpawnSpec, SpawnTask
from harborage.planner.answers import AnswerSchema
from harborage.runtime.loop.arrivals import Interrupt, StepInterruptedError, WaitPutOffError
from harborage.runtime.loop.outcome import OutcomeStatus, ToolOutcome, failed
from harborage.runtime.loop.sub_agents import Way

if TYPE_CHECKING:
    from harborage.runtime.loop.seam import Durable
    from harborage.runtime.loop.state import RunState
    from harborage.runtime.loop.sub_agents import SubAgent

JOIN: Final = "task.join"
"""The step of a parallel branch that waits for its child: a pause of the run takes effect after it."""

TAKE_OVER: Final = "task.take_over"
"""The step that waits for the agent to which the conversation was handed; its answer is kept whole."""

CHILD_OF_CALL: Final = "task.child_of_call"
"""The entry that says which child run the code of a tool has started."""

_ABOUT: Final = 200


class ChildOfCall(msgspec.Struct, frozen=True):
    """The child that a tool has started: its task as a planner is shown it, and what it shall do."""

    handle: dict[str, Any]
    spec: SpawnSpec


class _CallArgs(msgspec.Struct, forbid_unknown_fields=True):
    goal: str


class _WorkflowArgs(_CallArgs, forbid_unknown_fields=True):
    output: AnswerSchema | None = None


class _HandoffArgs(msgspec.Struct, forbid_unknown_fields=True):
    note: str | None = None


async def call_agent(sub: SubAgent, call: CallTool, key: str, run: RunState, io: Durable) -> ToolOutcome:
    """Start the child run of a call, and wait for what it gives unless it works in the background.

    `key` is the call's own: asked for again under the same one, the child is started once. It holds a "." for a branch
    of a parallel call.
    """
    is_branch = "." in key
    if sub.way is Way.HANDOFF and is_branch:
        return failed(f"{sub.tool}: the conversation can be handed over to one agent; make this the only call")
    try:
        goal, output = _goal(sub, call.args, run)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        return failed(f"{sub.tool}: {error}", code=INVALID_ARGS_CODE)
    waits = sub.way is not Way.BACKGROUND
    about = f"{sub.agent}: {goal}"[:_ABOUT]
    spec = SpawnSpec(description=about, query=goal, retain_turn=waits, agent=sub.agent, output=output)
    try:
        handle = await io.spawn(key, SpawnTask("foreground" if waits else "background", spec))
    except StepInterruptedError as cut:
        return failed(f"cancelled: {cut.reason}", OutcomeStatus.CANCELLED)
    if "task_id" not in handle:
        return failed(f"{sub.tool}: {handle.get('error', handle)}")
    task_id: str = handle["task_id"]
    run.agent_tasks[task_id] = sub
    match sub.way:
        case Way.BACKGROUND:
            run.in_background += (task_id,)
            return ToolOutcome(OutcomeStatus.DONE, {"task_id": task_id, "status": "started"})
        case Way.CALL | Way.HANDOFF:
            return await join_agent(sub, task_id, io, is_branch=is_branch)
        case _ as unreachable:
            assert_never(unreachable)


async def join_agent(sub: SubAgent, task_id: str, io: Durable, *, is_branch: bool = False) -> ToolOutcome:
    """Wait for what a child run gives.

    Raises:
        WaitPutOffError: a pause of the run; the wait begins again after it.
    """
    try:
        if sub.way is Way.HANDOFF:
            return outcome_of(sub.tool, await io.step(TAKE_OVER, task_id))
        return outcome_of(sub.tool, await (io.step(JOIN, task_id) if is_branch else io.join(task_id)))
    except StepInterruptedError as cut:
        if cut.reason is Interrupt.PAUSE and not is_branch:
            raise WaitPutOffError(task_id) from cut
        return failed(f"cancelled: {cut.reason}", OutcomeStatus.CANCELLED)


def outcome_of(tool: str, observation: Any) -> ToolOutcome:
    """What the caller of an agent gets of its ended task: the answer alone, or why there is none.

    An answer that is too large for a prompt is its summary with a reference, like the result of any tool.
    """
    if not isinstance(observation, dict) or "status" not in observation:
        is_refused = isinstance(observation, dict) and observation.keys() == {"error"}
        return failed(f"{tool}: {observation['error']}") if is_refused else ToolOutcome(OutcomeStatus.DONE, observation)
    if observation["status"] == "complete":
        result = observation.get("result")
        if isinstance(result, dict) and "finish_reason" in result:
            result = result["output"] if "output" in result else result.get("answer")
        return ToolOutcome(OutcomeStatus.DONE, result)
    error = observation.get("error") or {}
    why = ": ".join(text for text in (error.get("code", ""), error.get("message", "")) if text)
    is_cancelled = observation["status"] == "cancelled"
    status = OutcomeStatus.CANCELLED if is_cancelled else OutcomeStatus.FAILED
    return failed(f"{tool}: the agent's run {observation['status']}{f': {why}' if why else ''}", status)


def handed_over(decision: Any, outcome: Any, run: RunState) -> Finish | None:
    """The finish of a run that has handed its conversation over: the answer of the other agent is its own."""
    if not isinstance(decision, CallTool) or not isinstance(outcome, ToolOutcome):
        return None
    sub = run.sub_agents.get(decision.tool)
    if sub is None or sub.way is not Way.HANDOFF or outcome.status is not OutcomeStatus.DONE:
        return None
    return Finish(FinishReason.GOAL, outcome.observation, {"handed_over_to": sub.agent})


def still_working(run: RunState) -> str:
    """A child run in the background whose answer the planner has not been given; empty when there is none."""
    notified = {member.task_id for one in run.trajectory.background.values() for member in one.members}
    run.in_background = tuple(task for task in run.in_background if task not in notified)
    return run.in_background[0] if run.in_background else ""


def _goal(sub: SubAgent, args: bytes, run: RunState) -> tuple[str, AnswerSchema | None]:
    """The goal of the child run, and the form of its answer where a workflow wants one that is not its agent's.

    Raises:
        msgspec.MsgspecError: the arguments are not as the schema says.
    """
    if sub.way is not Way.HANDOFF:
        given: _CallArgs = codec.decode(args or b"{}", _WorkflowArgs if run.is_workflow else _CallArgs)
        if not given.goal.strip():
            raise msgspec.ValidationError("goal is empty; say what the agent shall do")
        return given.goal, given.output if isinstance(given, _WorkflowArgs) else None
    note = codec.decode(args or b"{}", _HandoffArgs).note
    return (run.goal if not note else f"{run.goal}\n\nNote of the agent that handed this over: {note}"), None
