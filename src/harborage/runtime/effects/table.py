"""Every effect an agent's run can name, as one table: plan, steer, pause, approve, call tools, spawn and await tasks.

One `AgentEffects` serves all runs of a process; each is admitted with its live side while it is executed here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from harborage.concurrency import detachable
from harborage.errors import HarborageError, error_reason
from harborage.planner import (
    INVALID_ARGS_CODE,
    AwaitTask,
    CallParallel,
    CallTool,
    ParallelBranchInvalidArgsError,
    RequestPause,
    RunContext,
    SpawnTask,
    Trajectory,
    decision_kind,
)
from harborage.runtime.durable.steps import Act, Change, EffectTable, Note, Recovery, StepCall, Think, Wait, Waiting
from harborage.runtime.effects.approval.errors import ApprovalCancelledError
from harborage.runtime.effects.approval.model import ApprovalRequest
from harborage.runtime.effects.approval.operator import ASKS, DENIED, ToolApproval
from harborage.runtime.effects.background import follow_spawned
from harborage.runtime.effects.completion import (
    TASK_ERROR_FETCH,
    announce_failure,
    begin,
    failure_of,
    withdraw,
    withdraw_unanswered,
)
from harborage.runtime.effects.executor import (
    CatalogToolExecutor,
    ParallelDispatchError,
    ToolInvokeError,
    catalog_executor,
)
from harborage.runtime.effects.gates import NO_GATE
from harborage.runtime.effects.hard_cancel import HardCancel
from harborage.runtime.effects.hook_effects import hook_effects
from harborage.runtime.effects.interrupted import InterruptedCalls
from harborage.runtime.effects.ledger import call_keys, metered
from harborage.runtime.effects.planning import plan, restore_planned
from harborage.runtime.effects.providing import context_effects
from harborage.runtime.effects.questions import Questions, WorkflowWaits
from harborage.runtime.effects.run_resources import withheld
from harborage.runtime.effects.steering import open_pause, route_answer, steer
from harborage.runtime.effects.task_effects import TaskEffects
from harborage.runtime.effects.tool_services import make_call
from harborage.runtime.loop.controls import ControlEvent, ControlType
from harborage.runtime.loop.dispatch import Approval, Dispatched, not_done
from harborage.runtime.loop.outcome import OutcomeStatus, ToolOutcome, failed, self_cancelled
from harborage.runtime.loop.payload import validate_payload
from harborage.runtime.loop.seam import GatedTools
from harborage.runtime.loop.state import OpenPause, Planned, Steered, SteerRequest
from harborage.state.errors import DatabaseError
from harborage.tasks import TaskFailure
from harborage.tools import OnUnknown, ToolInvalidArgsError

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.runtime.durable.mailbox import AnswerRouter
    from harborage.runtime.effects.approval.gate import ApprovalGate
    from harborage.runtime.effects.approval.operator import OperatorApprovals
    from harborage.runtime.effects.run_resources import LiveRun
    from harborage.runtime.effects.services import AgentServices
    from harborage.runtime.loop.capabilities import Confirmation
    from harborage.runtime.loop.run_spec import ToolExecutor


class AgentEffects:
    """The effects of agents' runs over shared services."""

    def __init__(self, services: AgentServices) -> None:
        self._services = services
        self._live: dict[str, LiveRun] = {}
        self._questions = Questions(services)
        self._interrupted = InterruptedCalls(services, self._questions)

    def admit(self, live: LiveRun) -> None:
        """Let effects find the live side of a run."""
        self._live[live.base.quadruple.run_id] = live

    def dismiss(self, run_id: str) -> None:
        """Forget a run that this worker no longer executes."""
        self._live.pop(run_id, None)

    def find(self, run_id: str) -> LiveRun | None:
        """The live side of a run, if it is admitted."""
        return self._live.get(run_id)

    def live(self, run_id: str) -> LiveRun:
        """The live side of a run that is admitted."""
        return self._live[run_id]

    def hooks_beside(self, recorded: tuple[str, ...]) -> tuple[str, ...]:
        """The hooks that the agent has and a run did not when it was started."""
        hooks = self._services.hooks
        return () if hooks is None else tuple(name for name in hooks.names if name not in recorded)

    def give_up(self, who: Quadruple, error: Exception) -> None:
        """Say of a run that could not be given what it works with that its task failed."""
        begin(self._services, who)
        announce_failure(self._services, who, TaskFailure(TASK_ERROR_FETCH, error_reason(error)))

    def failure_of(self, error: Exception) -> TaskFailure:
        """How the task of a run fails that ends with this error."""
        return failure_of(self._services, error)

    def connect(self, live: LiveRun) -> None:
        """Let approvals reach the gates, and a hard cancel its hook, while a step of the run is in flight."""
        live.mailbox.connect(self.answer_router(live.base.quadruple), lambda: self._fire(live))

    def _fire(self, live: LiveRun) -> None:
        if (hook := self._hard_cancel(live)) is not None:
            hook.fire()

    def _hard_cancel(self, live: LiveRun) -> HardCancel | None:
        hook = self._services.hard_cancel_hook
        if hook is not None and live.hard_cancel is None:
            live.hard_cancel = HardCancel(hook, live.base.quadruple.run_id, live.crew, self._services.clock)
        return live.hard_cancel

    def answer_router(self, who: Quadruple) -> AnswerRouter:
        """Return the function that passes an answer to the call of the run `who` that waits for it."""

        def route(control: ControlEvent) -> Coroutine[Any, Any, None] | None:
            live = self._live.get(who.run_id)
            write = None if live is None else live.write
            routed = route_answer(self._services, who, control, write)
            return routed or self._questions.route_answer(who, control, write)

        return route

    def table(self) -> EffectTable:
        """All effects by the names that the loop and the dispatch use."""
        return EffectTable(
            {
                "plan": Think(run=self._plan, result=Planned, recalled=self._planned_before),
                "steer": Note(run=self._steer, result=list[Steered]),
                "pause.request": Change(run=self._request_pause, result=OpenPause, commits=True),
                "pause.abandon": Note(run=self._abandon_pause),
                "dispatch": Act(
                    run=self._dispatch,
                    result=Dispatched,
                    is_intended=False,
                    self_cancelled=lambda call: not_done(self_cancelled(call.name)),
                    after=self._dispatched,
                    yields_to_cancel=_only_waits,
                ),
                "parallel.check": Note(run=self._check),
                "approve.": Wait(
                    run=self._approve,
                    result=Approval,
                    waits_for=self._answer_due,
                    cut=self._unanswered,
                    commits=True,
                ),
                "tool.": Act(
                    run=self._tool,
                    result=ToolOutcome,
                    flushes_intent=True,
                    recover=self._recover,
                    unknown=self._unknown,
                    resolve=self._resolve_interrupted,
                    self_cancelled=lambda call: self_cancelled(call.name),
                    after=self._called,
                    may_repeat=self._may_repeat,
                    cut=self._undecided,
                    yields_to_cancel=self._is_between_attempts,
                    waits_for=self._tool_wait,
                ),
                "confirm.": Wait(
                    run=self._confirm,
                    result=Approval,
                    waits_for=self._confirmation_due,
                    cut=self._unanswered,
                    commits=True,
                ),
                **hook_effects(self._services, self._live, self._impossible),
                **context_effects(self._services, self._live),
                **WorkflowWaits(self._services, self._questions, self._live).table(),
                **TaskEffects(self._services, self._live, self._executor).table(),
            }
        )

    def _plan(self, call: StepCall) -> Awaitable[Planned]:
        live = self._live[call.run_id]
        if not self._services.is_recorded and live.mailbox.is_expecting:
            return self._plan_in_turn(live, call)
        return plan(self._services, live, call)

    async def _plan_in_turn(self, live: LiveRun, call: StepCall) -> Planned:
        """Let others run first: a run whose steps never suspend must learn of children that have ended, too."""
        await live.mailbox.yield_for_arrivals()
        return await plan(self._services, live, call)

    def _planned_before(self, call: StepCall, planned: Planned) -> None:
        """A resumed run records on where it left off: what is on record is not recorded again."""
        restore_planned(self._live[call.run_id], planned)

    async def _steer(self, call: StepCall) -> list[Steered]:
        live = self._live[call.run_id]
        request: SteerRequest = call.payload
        who, deadline = live.base.quadruple, live.base.budget.deadline
        hook = self._hard_cancel(live)
        outcomes = await steer(
            self._services, who, request, key=call.key, hard_cancel=hook, deadline=deadline, write=live.write
        )
        if any(control.type is ControlType.CANCEL for control in request.controls):
            await self._take_back_questions(live)
        return outcomes

    async def _take_back_questions(self, live: LiveRun) -> None:
        """Withdraw the questions of a cancelled run before its last planner call, so that no person answers them."""
        try:
            await withdraw_unanswered(self._services, live)
        except DatabaseError as error:
            self._services.logger.warning("run %s: %s", live.base.quadruple.run_id, error)  # its end tries again

    async def _request_pause(self, call: StepCall) -> OpenPause:
        request: RequestPause = call.payload
        validate_payload(request.payload)
        live = self._live[call.run_id]
        trajectory = live.base.trajectory if live.context is None else live.context.trajectory
        # The record needs the live handles that must be there again on resume, not the run's whole history.
        handles = None if trajectory is None else Trajectory(tool_context=trajectory.tool_context)
        who, deadline = live.base.quadruple, live.base.budget.deadline
        return await open_pause(
            self._services,
            who,
            request.reason,
            request.payload,
            key=call.key,
            handles=handles,
            deadline=deadline,
            write=live.write,
        )

    async def _abandon_pause(self, call: StepCall) -> None:
        pause: OpenPause = call.payload
        await withdraw(self._services, self._who(call), pause.token, self._live[call.run_id].write)

    async def _dispatch(self, call: StepCall) -> Dispatched:
        live = self._live[call.run_id]
        executor: ToolExecutor | None = live.tool_executor
        if executor is None or live.context is None:
            return Dispatched(None, None, False)
        try:
            async with metered(live.ledger, call_keys(call.key, call.payload), live.step) as reached:
                if reached is not None:
                    return not_done(failed(reached.text, OutcomeStatus.REJECTED))
                with self._granted(live, call.payload):
                    observation, for_planner = await self._by_executor(executor, live.context, call.payload)
        except Exception as error:  # noqa: BLE001 - what any executor raises becomes the observation
            if isinstance(error, ParallelDispatchError) and error.observation is not None:
                return Dispatched(error.observation, error.for_planner, False)
            is_refused = isinstance(error, ToolInvokeError) and isinstance(error.__cause__, ToolInvalidArgsError)
            return not_done(failed(error_reason(error), code=INVALID_ARGS_CODE if is_refused else ""))
        if isinstance(call.payload, SpawnTask) and not call.payload.spec.retain_turn:
            await follow_spawned(self._services, live, observation)
        return Dispatched(observation, for_planner)

    async def _by_executor(self, executor: ToolExecutor, context: RunContext, decision: Any) -> tuple[Any, Any]:
        """What an embedder's executor gives; one that ignores its cancellation does not hold up the run."""
        crew = self._services.stragglers
        if crew is None:
            return await executor.execute_decision(context, decision)
        work = partial(executor.execute_decision, context, decision)
        return await detachable(work, clock=self._services.clock, crew=crew, name=decision_kind(decision))

    def _granted(self, live: LiveRun, decision: Any) -> ExitStack:
        """An executor that asks the gates itself is not asked about what was approved before it saw the decision."""
        calls = decision.branches if isinstance(decision, CallParallel) else (decision,)
        grants = ExitStack()
        for call in calls:
            gate = self._services.gates.find(call.tool) if isinstance(call, CallTool) else None
            if gate is not None:
                who = live.base.quadruple
                grants.enter_context(gate.granted(ApprovalRequest(tool=call.tool, args=call.args, identity=who)))
        return grants

    def _dispatched(self, call: StepCall, result: Dispatched) -> Awaitable[None] | None:
        hook = self._live[call.run_id].on_dispatched
        if hook is None or not result.is_done:
            return None
        return self._services.leavable(hook(), "on_tool_dispatched", self._who(call))

    async def _check(self, call: StepCall) -> str:
        try:
            self._executor(call.run_id).check(call.payload.branches, self._live[call.run_id].base.catalog)
        except ParallelBranchInvalidArgsError as error:
            return str(error)
        return ""

    async def _approve(self, call: StepCall) -> Approval:
        """What a person says of a call, unless an operator has decided about its tool."""
        wanted: CallTool = call.payload
        gates, live, operators = self._services.gates, self._live[call.run_id], self._services.approvals
        policies = {} if operators is None else await operators.load(live.base.quadruple.tenant_id)
        match policies.get(wanted.tool):
            case ToolApproval.DENIED:
                return Approval(refusal=DENIED.format(wanted.tool))
            case ToolApproval.AUTO:
                return Approval(args=wanted.args)
            case ToolApproval.GATED:
                return await self._asked(call, wanted, gates.confirming, ASKS)
            case _:
                gate = gates.find(wanted.tool)
                if gate is None and isinstance(live.gated, GatedTools) and wanted.tool in live.gated.forced:
                    return Approval(args=wanted.args)  # an operator wanted it asked about, and has taken that back
                return await self._asked(call, wanted, gate)

    def _confirm(self, call: StepCall) -> Awaitable[Approval]:
        wanted: Confirmation = call.payload
        return self._asked(call, wanted.call, self._services.gates.confirming, wanted.question)

    def _impossible(self, live: LiveRun, wanted: CallTool) -> Approval | None:
        """Why a call could not be made even if approved; None when it could. No person is asked about such a call."""
        if refusal := withheld(live, wanted.tool):
            return Approval(refusal=refusal, is_held_back=True)
        if objection := self._objection(live, wanted.tool, wanted.args):
            executor = self._catalog_executor(live)
            is_args = executor is not None and executor.refuses_args(wanted, live.base.catalog)
            return Approval(refusal=objection, code=INVALID_ARGS_CODE if is_args else "")
        return None

    async def _asked(self, call: StepCall, wanted: CallTool, gate: ApprovalGate | None, question: str = "") -> Approval:
        """What a person says of a call at its gate."""
        live = self._live[call.run_id]
        if gate is None:
            held = withheld(live, wanted.tool)
            return Approval(refusal=held or NO_GATE.format(wanted.tool), is_held_back=bool(held))
        if (impossible := self._impossible(live, wanted)) is not None:
            return impossible
        tool, (step, named) = self._tool_of(live, wanted.tool), live.named(call)
        executor = self._catalog_executor(live)
        mark = "" if executor is None else executor.mark_of(wanted.tool)  # as it is now that the person is asked
        request = ApprovalRequest(
            tool=wanted.tool,
            args=wanted.args,
            identity=self._who(call),
            tags=() if tool is None else tool.tags,
            side_effects=None if tool is None else tool.side_effects,
            key=live.key(call),
            args_schema=None if tool is None else tool.args_schema,
            deadline=live.base.budget.deadline,
            question=question,
            step=step,
            call_id=named,
        )
        try:
            check = partial(self._objection, live, wanted.tool)
            args = await gate.run_guarded(
                request,
                on_waiting=live.mailbox.route_queued_answers,
                objection=check,
                write=live.write,
                is_repeated=call.begun > 0,
            )
            await live.mailbox.wait_for_answers()  # one commit has the answer's effect and its consumption
            return Approval(args=args, tool=mark)
        except asyncio.CancelledError as cancelled:
            if isinstance(cancelled.__cause__, ApprovalCancelledError):
                live.unanswered += (cancelled.__cause__.token,)
            else:
                live.was_cut_at_gate = True  # it may be asked all the same: the store was at it
            raise
        except HarborageError as error:
            self._services.reraise_refusal(error)  # the call was not refused: it asks again once the database works
            await live.mailbox.wait_for_answers()
            return Approval(refusal=error_reason(error))

    def _objection(self, live: LiveRun, tool: str, args: bytes) -> str:
        """Why a call could not be made even if approved; empty when it could, or when only its executor knows."""
        executor = self._catalog_executor(live)
        if executor is not None:
            return executor.objection(CallTool(tool, args), live.base.catalog)
        return "" if live.tool_executor is not None else "this run has no tool executor, so no tool can be called"

    def _tool_of(self, live: LiveRun, name: str) -> Any:
        if live.base.catalog is not None:
            return live.base.catalog.resolve(name)
        executor = self._catalog_executor(live)
        return None if executor is None else executor.tool(name)

    def _unanswered(self, call: StepCall) -> None:
        """An earlier process may have asked already: the question is withdrawn when the run ends."""
        self._live[call.run_id].was_cut_at_gate = True

    def _answer_due(self, call: StepCall) -> Waiting | None:
        pause = self._services.gates.idle_pause(self._live[call.run_id].key(call))
        return None if pause is None else Waiting(pause.deadline)

    def _confirmation_due(self, call: StepCall) -> Waiting | None:
        return self._due_at(self._services.gates.confirming, call)

    def _due_at(self, gate: ApprovalGate | None, call: StepCall) -> Waiting | None:
        """A call at its gate waits as long as its pause may stay open; before it is there, it does not only wait."""
        pause = None if gate is None else gate.idle_pause(self._live[call.run_id].key(call))
        return None if pause is None else Waiting(pause.deadline)

    def _tool(self, call: StepCall) -> Awaitable[ToolOutcome]:
        live = self._live[call.run_id]
        if held := withheld(live, call.payload.tool):
            return _held_back(held)
        operators = self._services.approvals
        policies = None if operators is None else operators.known(live.base.quadruple.tenant_id)
        if policies is None and operators is not None:
            return self._tool_once_known(operators, live, call)
        return self._tool_under(policies or {}, live, call)

    async def _tool_once_known(self, operators: OperatorApprovals, live: LiveRun, call: StepCall) -> ToolOutcome:
        """Make a call once it is known what operators have decided meanwhile, maybe in another process."""
        return await self._tool_under(await operators.load(live.base.quadruple.tenant_id), live, call)

    def _tool_under(
        self, policies: Mapping[str, ToolApproval], live: LiveRun, call: StepCall
    ) -> Awaitable[ToolOutcome]:
        tool: str = call.payload.tool
        refusal = self._services.gates.refusal(tool, live.gated, policies.get(tool))
        if not refusal and self._services.hooks is not None:
            refusal = self._services.hooks.refusal(tool, live.hooks)
        if not refusal and live.ledger is None:
            return self._called_with(live, call)
        return self._tool_allowed(live, call, refusal)

    async def _tool_allowed(self, live: LiveRun, call: StepCall, refusal: str) -> ToolOutcome:
        """Make a call unless it is refused, or a limit of its run forbids it."""
        if refusal:
            return failed(refusal, OutcomeStatus.REJECTED)
        async with metered(live.ledger, (call.key,)) as reached:
            if reached is not None:
                return failed(reached.text, OutcomeStatus.REJECTED)
            return await self._called_with(live, call)

    def _called_with(self, live: LiveRun, call: StepCall) -> Awaitable[ToolOutcome]:
        return make_call(self._services, self._questions, self._executor(call.run_id), live, call)

    def _tool_wait(self, call: StepCall) -> Waiting | None:
        """Until when a call waits for an answer of a person, or for the time of its next attempt."""
        live = self._live.get(call.run_id)
        at = None if live is None else live.retries_at.get(call.position)
        return self._interrupted.find_wait(call) if at is None else Waiting(at)

    def _is_between_attempts(self, call: StepCall) -> bool:
        return (live := self._live.get(call.run_id)) is not None and call.position in live.between_attempts

    def _called(self, call: StepCall, outcome: ToolOutcome) -> None:
        if outcome.status is OutcomeStatus.DONE:
            self._live[call.run_id].mailbox.tool_calls += 1

    def _recover(self, call: StepCall) -> Recovery:
        return self._interrupted.decide_recovery(self._executor(call.run_id), self._live[call.run_id], call)

    def _may_repeat(self, call: StepCall) -> bool:
        return self._executor(call.run_id).recovery_of(call.payload) is Recovery.RETRY

    def _unknown(self, call: StepCall) -> ToolOutcome:
        return self._interrupted.report(self._executor(call.run_id), self._live[call.run_id], call)

    def _resolve_interrupted(self, call: StepCall) -> Awaitable[ToolOutcome | Recovery]:
        return self._interrupted.resolve(self._executor(call.run_id), self._live[call.run_id], call)

    def _undecided(self, call: StepCall) -> None:
        """An earlier process may have asked how the call ended: the question is withdrawn when the run ends."""
        # By the name of the step: a call that is only known from the record comes with what was recorded of it.
        tool = self._executor(call.run_id).tool(call.name.removeprefix("tool."))
        if tool is not None and tool.on_unknown is OnUnknown.PAUSE:
            self._live[call.run_id].was_cut_at_gate = True

    def _who(self, call: StepCall) -> Quadruple:
        return self._live[call.run_id].base.quadruple

    def _catalog_executor(self, live: LiveRun) -> CatalogToolExecutor | None:
        return self._services.executor if self._services.executor is not None else catalog_executor(live.tool_executor)

    def _executor(self, run_id: str) -> CatalogToolExecutor:
        executor = self._catalog_executor(self._live[run_id])
        if executor is None:
            raise HarborageError("this run loop has no catalog executor; give the run a tool_executor")
        return executor


async def _held_back(why: str) -> ToolOutcome:
    return failed(why, OutcomeStatus.HELD_BACK)


def _only_waits(call: StepCall) -> bool:
    """Whether a decision that the run's own executor dispatches does nothing but wait for a task."""
    return isinstance(call.payload, AwaitTask)
