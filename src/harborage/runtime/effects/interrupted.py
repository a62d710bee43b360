"""Interrupted calls: calls whose worker died before their outcome was recorded.

An interrupted call is never repeated silently. The tool's policy says whether it is repeated, probed, reported or put
before a person. If its outcome cannot be found out, it is `unknown`, and that is published.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from harborage import codec
from harborage.events import EventType, ToolInterruptedPayload
from harborage.events.shown_values import shown_value
from harborage.planner import CallTool, PauseReason
from harborage.runtime.durable.steps import Recovery, StepCall, Waiting
from harborage.runtime.effects.approval.model import fingerprint_of
from harborage.runtime.effects.questions import Questions, takes_no_args
from harborage.runtime.loop.outcome import OutcomeStatus, ToolOutcome, unknown
from harborage.runtime.loop.pauses import Pause, PauseDecision, PauseRequest
from harborage.tools import OnUnknown

if TYPE_CHECKING:
    from harborage.runtime.effects.executor import CatalogToolExecutor
    from harborage.runtime.effects.run_resources import LiveRun
    from harborage.runtime.effects.services import AgentServices

QUESTION = "unknown_outcome"
"""The `question` in the payload of the pause that asks a person for the outcome."""


class InterruptedCalls:
    """Resolves the interrupted calls of all runs of a process."""

    def __init__(self, services: AgentServices, questions: Questions) -> None:
        self._services = services
        self._questions = questions

    def decide_recovery(self, executor: CatalogToolExecutor, live: LiveRun, call: StepCall) -> Recovery:
        """Return what the tool's policy does with an interrupted call."""
        recovery = executor.recovery_of(call.payload)
        if recovery is Recovery.RETRY:
            self._publish(executor, live, call, recovery)
        return recovery

    def report(self, executor: CatalogToolExecutor, live: LiveRun, call: StepCall) -> ToolOutcome:
        """Return and publish the outcome `unknown`."""
        outcome = unknown(call.payload.tool)
        self._publish(executor, live, call, outcome)
        return outcome

    async def resolve(self, executor: CatalogToolExecutor, live: LiveRun, call: StepCall) -> ToolOutcome | Recovery:
        """Return the outcome of a call, as its probe or a person reports it; RETRY if it did not act."""
        if _policy(executor, call) is OnUnknown.PROBE:
            who = live.base.quadruple
            answer = await executor.probe(who, call.payload, key=call.key, tool_context=live.base.tool_context)
        else:
            answer = outcome_of_answer(call.payload.tool, await self._ask_person(live, call))
        self._publish(executor, live, call, answer)
        return answer

    def find_wait(self, call: StepCall) -> Waiting | None:
        """Return until when an interrupted call waits for a person; None if it does not only wait."""
        return self._questions.find_wait(call.key)

    async def _ask_person(self, live: LiveRun, call: StepCall) -> Pause:
        """Ask a person for the outcome of the call; return the pause once it is answered or has expired."""
        services, who = self._services, live.base.quadruple
        wanted: CallTool = call.payload
        shown = self._shown(wanted.args)
        step, call_id = live.named(call)
        question = PauseRequest(
            identity=who,
            reason=PauseReason.AWAIT_INPUT,
            payload={
                "question": QUESTION,
                "tool": wanted.tool,
                "args_summary": {"args": shown, "tool": wanted.tool},
                "idempotency_key": call.key,
                "fingerprint": fingerprint_of(wanted.tool, wanted.args, who),
            },
            deadline=services.answer_by(services.approval_ttl, live.base.budget.deadline),
            # A call that was repeated after an answer, and interrupted again, opens another pause.
            key=f"unknown:{call.key}/{call.begun}",
            step=step,
            call_id=call_id,
            is_masked=shown_value(services.redactor, wanted.args).masked is True,
        )
        return await self._questions.ask(live, call.key, question, takes_no_args)

    def _shown(self, args: bytes) -> Any:
        """Return the arguments as a person is shown them; only their length if they are no JSON."""
        try:
            return self._services.redactor.redact(codec.decode(args))
        except msgspec.DecodeError:
            return {"_length": len(args)}

    def _publish(
        self, executor: CatalogToolExecutor, live: LiveRun, call: StepCall, answer: ToolOutcome | Recovery
    ) -> None:
        who, tool = live.base.quadruple, executor.tool(call.payload.tool)
        step, call_id = live.named(call)
        payload = ToolInterruptedPayload(
            identity=who,
            tool_name=call.payload.tool,
            transport="" if tool is None else str(tool.transport),
            on_unknown=str(_policy(executor, call)),
            outcome=_named(answer),
            step=step or UNSET,
            call_id=call_id or UNSET,
        )
        self._services.emit(EventType.TOOL_INTERRUPTED, who, payload)


def outcome_of_answer(tool: str, pause: Pause) -> ToolOutcome | Recovery:
    """Return what a person's answer means for the call.

    Approved, it is repeated; so it is if resumed with `acted` false. Resumed with a `result` or with `acted` true, it
    has acted. Rejected, or not answered in time, its outcome stays unknown and it is not repeated.
    """
    answer = pause.payload or {}
    match pause.decision:
        case PauseDecision.APPROVE:
            return Recovery.RETRY
        case PauseDecision.RESUME if answer.get("acted") is False:
            return Recovery.RETRY
        case PauseDecision.RESUME if answer.get("acted") is True or "result" in answer:
            return ToolOutcome(OutcomeStatus.DONE, answer.get("result"))
        case PauseDecision.TIMEOUT:
            return unknown(tool, "no person reported its outcome in time")
        case _:
            return unknown(tool, str(answer.get("reason") or "its outcome could not be found out"))


def _policy(executor: CatalogToolExecutor, call: StepCall) -> OnUnknown:
    tool = executor.tool(call.payload.tool)
    return OnUnknown.REPORT if tool is None else tool.on_unknown


def _named(answer: ToolOutcome | Recovery) -> str:
    if not isinstance(answer, ToolOutcome):
        return "repeated"
    return "unknown" if answer.status is OutcomeStatus.UNKNOWN else "known"
