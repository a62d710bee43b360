"""Calls that were in flight when their process died: what their tools say about that, and the person who is asked.

A call in doubt is never made again silently. Whether it is repeated, probed, reported or put before a person is the
tool's policy; where nobody finds out, the outcome is `unknown`, out loud.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from harborage import codec
from harborage.events import EventType, ToolInterruptedPayload
from harborage.planner import CallTool, PauseReason
from harborage.runtime.durable.steps import Doubt, StepCall, Waiting
from harborage.runtime.effects.approval.answering import WaitingCall
from harborage.runtime.effects.approval.model import ApprovalRequest, fingerprint_of
from harborage.runtime.effects.steering import RESUMES, hand_over
from harborage.runtime.loop.errors import PayloadInvalidError
from harborage.runtime.loop.outcome import OutcomeStatus, ToolOutcome, unknown
from harborage.runtime.loop.pauses import Pause, PauseDecision, PauseRequest
from harborage.tools import OnUnknown

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.runtime.effects.executor import CatalogToolExecutor
    from harborage.runtime.effects.run_resources import LiveRun
    from harborage.runtime.effects.services import AgentServices
    from harborage.runtime.loop.controls import ControlEvent

QUESTION = "unknown_outcome"
"""What the payload of the pause asks a person, as `question`."""


class Doubts:
    """Clears up the calls in doubt of all runs of a process."""

    def __init__(self, services: AgentServices) -> None:
        self._services = services
        self._waiting: dict[str, WaitingCall] = {}

    def verdict(self, executor: CatalogToolExecutor, who: Quadruple, call: StepCall) -> Doubt:
        """What the tool's policy says about a call in doubt."""
        doubt = executor.in_doubt(call.payload)
        if doubt is Doubt.REPEAT:
            self._tell(executor, who, call, doubt)
        return doubt

    def report(self, executor: CatalogToolExecutor, who: Quadruple, call: StepCall) -> ToolOutcome:
        """The outcome that nobody knows."""
        outcome = unknown(call.payload.tool)
        self._tell(executor, who, call, outcome)
        return outcome

    async def clear_up(self, executor: CatalogToolExecutor, live: LiveRun, call: StepCall) -> ToolOutcome | Doubt:
        """What became of a call, as its probe or a person says; REPEAT for one that did not act."""
        who = live.base.quadruple
        if _policy(executor, call) is OnUnknown.PROBE:
            answer = await executor.probe(who, call.payload, key=call.key, tool_context=live.base.tool_context)
        else:
            answer = answered(call.payload.tool, await self._asked(live, call))
        self._tell(executor, who, call, answer)
        return answer

    def due(self, call: StepCall) -> Waiting | None:
        """Until when a call in doubt waits for a person; None while it does not only wait."""
        waiting = self._waiting.get(call.key)
        return Waiting(waiting.pause.deadline) if waiting is not None and waiting.is_idle else None

    def answer(self, who: Quadruple, control: ControlEvent) -> Coroutine[Any, Any, None] | None:
        """The work of settling a call in doubt as a control says; None when no call of this run waits for that."""
        token = (control.payload or {}).get("token")
        decision = RESUMES.get(control.type)
        for waiting in self._waiting.values():
            if decision is not None and waiting.token == token and waiting.request.identity == who:
                return hand_over(self._services, who, control, partial(self._settle, waiting.token, decision, control))
        return None

    async def _settle(self, token: str, decision: PauseDecision, control: ControlEvent) -> None:
        if decision is PauseDecision.APPROVE and (control.payload or {}).get("args") is not None:
            raise PayloadInvalidError(
                "APPROVE: a call that was interrupted is made again with its own arguments; leave payload.args out",
                bound="args",
            )
        await self._services.pauses.resume(token, decision, dict(control.payload or {}), who=control.identity)

    async def _asked(self, live: LiveRun, call: StepCall) -> Pause:
        """The pause at which a person says what became of the call, settled."""
        services, who = self._services, live.base.quadruple
        wanted: CallTool = call.payload
        request = ApprovalRequest(tool=wanted.tool, args=wanted.args, identity=who, key=call.key)
        question = PauseRequest(
            identity=who,
            reason=PauseReason.AWAIT_INPUT,
            payload={
                "question": QUESTION,
                "tool": wanted.tool,
                "args_summary": {"args": self._shown(wanted.args), "tool": wanted.tool},
                "idempotency_key": call.key,
                "fingerprint": fingerprint_of(wanted.tool, wanted.args, who),
            },
            deadline=services.answer_by(services.approval_ttl, live.base.budget.deadline),
            # A call that was made again after an answer, and was interrupted again, is another question.
            key=f"unknown:{call.key}/{call.begun}",
        )
        try:
            pause = await services.pauses.request(question)
        except asyncio.CancelledError:
            live.was_cut_at_gate = True  # it may be asked all the same: the store was at it
            raise
        if not pause.is_paused:
            return pause
        waiting = self._waiting[call.key] = WaitingCall(request, pause, services.pauses, services.clock)
        try:
            live.mailbox.offer()
            return await waiting.outcome()
        except asyncio.CancelledError:
            live.unanswered.append(pause.token)
            raise
        finally:
            del self._waiting[call.key]
            waiting.close()

    def _shown(self, args: bytes) -> Any:
        """The arguments for human eyes; only their length where they are no JSON."""
        try:
            return self._services.redactor.redact(codec.decode(args))
        except msgspec.DecodeError:
            return {"_length": len(args)}

    def _tell(self, executor: CatalogToolExecutor, who: Quadruple, call: StepCall, answer: ToolOutcome | Doubt) -> None:
        tool = executor.tool(call.payload.tool)
        payload = ToolInterruptedPayload(
            identity=who,
            tool_name=call.payload.tool,
            transport="" if tool is None else str(tool.transport),
            on_unknown=str(_policy(executor, call)),
            outcome=_named(answer),
        )
        self._services.emit(EventType.TOOL_INTERRUPTED, who, payload)


def answered(tool: str, pause: Pause) -> ToolOutcome | Doubt:
    """What a person's answer says of the call: approved, it is made again; resumed, it acted, with this `result`.

    A resumption whose payload says `acted` false has it made again, too. Rejected, or not answered in time, the outcome
    stays unknown, and the call is not made again.
    """
    said = pause.payload or {}
    match pause.decision:
        case PauseDecision.APPROVE:
            return Doubt.REPEAT
        case PauseDecision.RESUME if said.get("acted") is False:
            return Doubt.REPEAT
        case PauseDecision.RESUME if said.get("acted") is True or "result" in said:
            return ToolOutcome(OutcomeStatus.DONE, said.get("result"))
        case PauseDecision.TIMEOUT:
            return unknown(tool, "nobody said in time what became of it")
        case _:
            return unknown(tool, str(said.get("reason") or "nobody could say what became of it"))


def _policy(executor: CatalogToolExecutor, call: StepCall) -> OnUnknown:
    tool = executor.tool(call.payload.tool)
    return OnUnknown.REPORT if tool is None else tool.on_unknown


def _named(answer: ToolOutcome | Doubt) -> str:
    if not isinstance(answer, ToolOutcome):
        return "repeated"
    return "unknown" if answer.status is OutcomeStatus.UNKNOWN else "known"
