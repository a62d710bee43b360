"""A decision dispatched over the durable seam: tools as steps, branches side by side, children by spawn and join.

Pure above `io`. A call that cannot be made, fails or is cut short becomes an observation that the planner can answer;
the run goes on. Only cancellation of the run itself passes through, and a pause that puts a wait off. Every path
asks the hooks and the approval gates first: a run over a catalog, and one whose decisions its own executor dispatches.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from harborage import codec
from harborage.planner import AwaitTask, CallParallel, CallTool, FailureRecord, JoinKind, JoinSpec, SpawnTask
from harborage.runtime.loop.agent_calls import call_agent, join_agent
from harborage.runtime.loop.apply import Observed
from harborage.runtime.loop.arrivals import Interrupt, StepInterruptedError, WaitPutOffError
from harborage.runtime.loop.capabilities import Confirmation, HookAnswer
from harborage.runtime.loop.joins import Done, Failed
from harborage.runtime.loop.outcome import (
    OutcomeStatus,
    ToolCallFailedError,
    ToolOutcome,
    failed,
    join_of,
    joined,
    kept_or_raised,
)
from harborage.runtime.loop.workflow_waits import ASK_STEP, WAITS, Question, input_answer, wait_in_workflow
from harborage.tools.errors import TOOL_CHANGED_CODE
from harborage.tools.inputs import InputAction, InputAnswer, InputGiven, InputNeeded, InputQuestion

if TYPE_CHECKING:
    from harborage.runtime.loop.seam import Durable
    from harborage.runtime.loop.state import RunState

Acting = CallTool | CallParallel | SpawnTask | AwaitTask
"""The decisions that are dispatched; `Finish` and `RequestPause` are the loop's own."""


class Approval(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a gated call: the arguments it may be made with, or why it may not, with the code of a failure.

    One `is_held_back` because its run is a rehearsal; no person was asked. `tool` is a mark of the tool as it was when
    the person was asked, where it may change meanwhile.
    """

    args: bytes = b""
    refusal: str = ""
    code: str = ""
    is_held_back: bool = False
    tool: str = ""


class Called(msgspec.Struct, frozen=True):
    """A call that was made, and what came of it."""

    call: CallTool
    outcome: ToolOutcome


class ContinuedCall(msgspec.Struct, frozen=True, tag_field="type", tag="CallTool", omit_defaults=True):
    """A call that goes on with the answers that it needed, or was approved of a tool with this mark. It is read as the
    call that it was, too."""

    tool: str
    args: bytes = b"{}"
    call_id: str = ""
    given: InputGiven | None = None
    approved: str = ""

    @property
    def call(self) -> CallTool:
        """The call itself."""
        return CallTool(self.tool, self.args, self.call_id)


class Dispatched(msgspec.Struct, frozen=True, array_like=True):
    """The outcome of a decision that a run's own executor dispatched."""

    observation: Any
    for_planner: Any
    is_done: bool = True
    failure: FailureRecord | None = None
    error: str = ""

    @property
    def observed(self) -> Observed:
        """What is remembered of it."""
        return Observed(self.observation, self.for_planner, self.failure, self.error)


def not_done(outcome: ToolOutcome) -> Dispatched:
    """The outcome of a decision that came to nothing."""
    observation, seen, failure, error, _ = outcome.observed
    return Dispatched(observation, seen, False, failure, error)


def dispatch(decision: Acting, run: RunState, io: Durable) -> Awaitable[ToolOutcome]:
    """Carry `decision` out, whichever of the four kinds it is."""
    match decision:
        case CallTool():
            return call_tool(decision, run, io)
        case CallParallel():
            return _call_parallel(decision, run, io)
        case SpawnTask():
            return _spawn(decision, run, io)
        case AwaitTask():
            return _join(decision.task_id, run, io)
        case _ as unreachable:
            assert_never(unreachable)


async def dispatch_by_executor(decision: Any, run: RunState, io: Durable) -> Dispatched | ToolOutcome:
    """Carry `decision` out as one step through the run's own tool executor, once its gated calls are approved.

    The executor sees a call only with the arguments it was approved with. A parallel call is made when every gated
    branch is approved, and else not at all: what its other branches would mean is known to the executor alone.
    """
    allowed = await _allowed(decision, run, io)
    if isinstance(allowed, ToolOutcome):
        return allowed
    try:
        dispatched: Dispatched = await io.step("dispatch", allowed)
    except StepInterruptedError as cut:
        return failed(f"cancelled: {cut.reason}", OutcomeStatus.CANCELLED)
    return dispatched


async def call_tool(
    call: CallTool | ContinuedCall, run: RunState, io: Durable, *, branch: int | None = None
) -> ToolOutcome:
    """Make one call, after the approval it may need; `branch` is its place in a parallel call.

    One whose tool has changed since it was approved is put to a person once more, with what has changed.
    """
    try:
        if run.hooks or call.tool in run.gated_tools:
            allowed = await _approved(_bare(call), run, io)
            if isinstance(allowed, ToolOutcome):
                return allowed
            call = allowed
        if run.is_workflow and call.tool in WAITS:
            return await wait_in_workflow(_bare(call), io)
        if (sub := run.sub_agents.get(call.tool)) is not None:
            key = f"{run.who.run_id}/{run.steps}" if branch is None else f"{run.who.run_id}/{run.steps}.{branch}"
            outcome = await call_agent(sub, _bare(call), key, run, io)
        else:
            outcome = await io.step(f"tool.{call.tool}", call)
            while outcome.code == TOOL_CHANGED_CODE:
                asked = Confirmation(_bare(call), outcome.error)
                again = _answered(call, await io.step(f"confirm.{call.tool}", asked))
                if isinstance(again, ToolOutcome):
                    return again
                call = again
                outcome = await io.step(f"tool.{call.tool}", call)
            if outcome.asks is not None:
                outcome = await _with_answers(call, outcome, io)
    except StepInterruptedError as cut:
        return failed(f"cancelled: {cut.reason}", OutcomeStatus.CANCELLED)
    return await _seen(_bare(call), outcome, io) if "after_tool" in run.hooks else outcome


def _bare(call: CallTool | ContinuedCall) -> CallTool:
    return call.call if isinstance(call, ContinuedCall) else call


async def _with_answers(call: CallTool | ContinuedCall, outcome: ToolOutcome, io: Durable) -> ToolOutcome:
    """The outcome of a call whose peer asked a person first; each time it goes on is an effect of its own."""
    while (needed := outcome.asks) is not None:
        answers = [await _answer_to(one, needed, io) for one in needed.questions]
        given = InputGiven(tuple(answers), needed.state, needed.round)
        outcome = await io.step(f"tool.{call.tool}", ContinuedCall(call.tool, call.args, call.call_id, given))
    return outcome


async def _answer_to(question: InputQuestion, needed: InputNeeded, io: Durable) -> InputAnswer:
    """The answer of a person to a question of a peer; that they did not answer is one, too."""
    if question.declined:
        return InputAnswer(question.key, InputAction.DECLINE, declined=question.declined)
    asked = Question(question.message, question.schema, server=needed.source, tool=needed.tool, url=question.url)
    return input_answer(question, await io.step(ASK_STEP, asked))


def _is_guarded(call: CallTool, run: RunState) -> bool:
    """Whether anybody is asked before the call is made."""
    return "before_tool" in run.hooks or call.tool in run.gated_tools


async def _approved(call: CallTool, run: RunState, io: Durable) -> CallTool | ContinuedCall | ToolOutcome:
    """The call as hooks and approvers allow it, or the outcome of one that was refused.

    A person whom a hook had asked about the call is not asked again.
    """
    if "before_tool" in run.hooks:
        said: HookAnswer = await io.step(f"hook.before_tool.{call.tool}", call)
        if said.refusal or said.advice:
            return failed(said.refusal or said.advice, OutcomeStatus.REJECTED, code=said.code)
        if said.value is not msgspec.UNSET:
            call = CallTool(call.tool, codec.encode(said.value), call.call_id)
        if said.confirm:
            return _answered(call, await io.step(f"confirm.{call.tool}", Confirmation(call, said.confirm)))
    if call.tool in run.gated_tools:
        return _answered(call, await io.step(f"approve.{call.tool}", call))
    return call


def _answered(call: CallTool | ContinuedCall, approval: Approval) -> CallTool | ContinuedCall | ToolOutcome:
    if approval.refusal:
        status = OutcomeStatus.HELD_BACK if approval.is_held_back else OutcomeStatus.REJECTED
        return failed(approval.refusal, status, code=approval.code)
    if approval.tool:
        return ContinuedCall(call.tool, approval.args, call.call_id, approved=approval.tool)
    return CallTool(call.tool, approval.args, call.call_id)


async def _seen(call: CallTool, outcome: ToolOutcome, io: Durable) -> ToolOutcome:
    """The outcome of a call that was made, as the hooks after it let the model see it."""
    if outcome.status in (OutcomeStatus.REJECTED, OutcomeStatus.CANCELLED, OutcomeStatus.HELD_BACK):
        return outcome  # it was not made, or came to nothing
    try:
        said: HookAnswer = await io.step(f"hook.after_tool.{call.tool}", Called(call, outcome))
    except StepInterruptedError as cut:
        text = f"cancelled: {cut.reason}; the result is withheld, as no hook has seen it"
        return failed(text, OutcomeStatus.CANCELLED)
    if said.refusal or said.advice:
        return failed(said.refusal or said.advice, OutcomeStatus.REJECTED)
    if said.value is msgspec.UNSET:
        return outcome
    if outcome.status is OutcomeStatus.DONE:
        return msgspec.structs.replace(outcome, for_planner=said.value)
    text = said.value if isinstance(said.value, str) else codec.encode_text(said.value)
    return failed(text, outcome.status, code=outcome.code)


async def _allowed(decision: Any, run: RunState, io: Durable) -> Any:
    """The decision with its calls as hooks and approvers allow them, or the outcome of one that was refused."""
    match decision:
        case CallTool() if _is_guarded(decision, run):
            try:
                allowed = await _approved(decision, run, io)
                return allowed if isinstance(allowed, ToolOutcome) else _bare(allowed)
            except StepInterruptedError as cut:
                return failed(f"cancelled: {cut.reason}", OutcomeStatus.CANCELLED)
        case CallParallel() if any(_is_guarded(call, run) for call in decision.branches):
            return await _allowed_branches(decision, run, io)
        case _:
            return decision


async def _allowed_branches(decision: CallParallel, run: RunState, io: Durable) -> CallParallel | ToolOutcome:
    """The parallel call with every guarded branch as it was allowed, or why it is not made."""
    join = join_of(decision)
    if isinstance(join, ToolOutcome):
        return join  # no person is asked about a call that could not be made
    gated = [index for index, call in enumerate(decision.branches) if _is_guarded(call, run)]
    asked = [partial(_approved_branch, decision.branches[index], run) for index in gated]
    answers = await io.gather(asked, JoinSpec(JoinKind.ALL))
    branches = list(decision.branches)
    refusals: list[str] = []
    for index, answer in zip(gated, answers, strict=True):
        if isinstance(answer, Done):
            branches[index] = answer.value
        else:
            error = answer.error if isinstance(answer, Failed) else "cancelled"
            refusals.append(f"branch[{index}] tool={branches[index].tool}: {error}")
    if refusals:
        return failed(f"parallel dispatch: nothing was called: {'; '.join(refusals)}", OutcomeStatus.REJECTED)
    return msgspec.structs.replace(decision, branches=tuple(branches))


async def _approved_branch(call: CallTool, run: RunState, io: Durable) -> CallTool:
    try:
        answer = await _approved(call, run, io)
    except StepInterruptedError as cut:
        answer = failed(f"cancelled: {cut.reason}", OutcomeStatus.CANCELLED)
    if isinstance(answer, ToolOutcome):
        raise ToolCallFailedError(answer)
    return _bare(answer)


async def _call_parallel(decision: CallParallel, run: RunState, io: Durable) -> ToolOutcome:
    join = join_of(decision)
    if isinstance(join, ToolOutcome):
        return join
    if run.is_parallel_atomic:
        refusal: str = await io.step("parallel.check", decision)
        if refusal:
            return failed(f"parallel dispatch: {refusal}")
    branches: list[Callable[[Durable], Awaitable[ToolOutcome]]] = [
        partial(_branch, call, index, run) for index, call in enumerate(decision.branches)
    ]
    return joined(decision.branches, join, await io.gather(branches, join))


async def _branch(call: CallTool, index: int, run: RunState, io: Durable) -> ToolOutcome:
    return kept_or_raised(await call_tool(call, run, io, branch=index))


async def _spawn(decision: SpawnTask, run: RunState, io: Durable) -> ToolOutcome:
    child_id = decision.idempotency_key or f"{run.who.run_id}/{run.steps}"
    try:
        handle = await io.spawn(child_id, decision)
    except StepInterruptedError as cut:
        return failed(f"cancelled: {cut.reason}", OutcomeStatus.CANCELLED)
    if decision.spec.retain_turn and "task_id" in handle:
        return await _join(handle["task_id"], run, io)
    return _of_task(handle)


async def _join(task_id: str, run: RunState, io: Durable) -> ToolOutcome:
    run.in_background = tuple(one for one in run.in_background if one != task_id)
    if (sub := run.agent_tasks.get(task_id)) is not None:
        return await join_agent(sub, task_id, io)
    try:
        return _of_task(await io.join(task_id))
    except StepInterruptedError as cut:
        if cut.reason is Interrupt.PAUSE:
            raise WaitPutOffError(task_id) from cut
        return failed(f"cancelled: {cut.reason}", OutcomeStatus.CANCELLED)


def _of_task(observation: Any) -> ToolOutcome:
    """The outcome of a spawn or an await; one that could not be done says why, and names no task."""
    is_refused = isinstance(observation, dict) and "error" in observation and "task_id" not in observation
    return ToolOutcome(OutcomeStatus.FAILED if is_refused else OutcomeStatus.DONE, observation)
