"""Questions that a step asks a person while it is under way, and the waits of workflows that need no tool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from harborage.clock import sleep
from harborage.planner import PauseReason
from harborage.runtime.durable.steps import Effect, StepCall, Wait, Waiting
from harborage.runtime.effects.approval.answering import WaitingCall
from harborage.runtime.effects.approval.model import ApprovalRequest
from harborage.runtime.effects.steering import RESUMES, apply_mid_step
from harborage.runtime.loop.errors import PayloadInvalidError
from harborage.runtime.loop.pauses import Pause, PauseDecision, PauseRequest
from harborage.runtime.loop.workflow_waits import (
    ASK_STEP,
    RECEIVE_STEP,
    TIMER_STEP,
    Answered,
    Question,
    Sleep,
    value_of_answer,
)

if TYPE_CHECKING:
    from harborage.events.bus import RunWriter
    from harborage.identity import Quadruple
    from harborage.runtime.effects.run_resources import LiveRun
    from harborage.runtime.effects.services import AgentServices
    from harborage.runtime.loop.controls import ControlEvent

Check = Callable[[PauseDecision, dict[str, Any]], None]
"""Refuses an answer that the question cannot take: `check(decision, payload)` raises PayloadInvalidError."""


class Questions:
    """The open questions of the steps of all runs of a process."""

    def __init__(self, services: AgentServices) -> None:
        self._services = services
        self._waiting: dict[str, tuple[WaitingCall, Check]] = {}

    async def ask(self, live: LiveRun, key: str, question: PauseRequest, check: Check) -> Pause:
        """Ask a person; return the pause once it is answered or has expired. `key` is that of the step."""
        services = self._services
        try:
            pause = await services.pauses.request(question, write=live.write, is_repeated=True)
        except asyncio.CancelledError:
            live.was_cut_at_gate = True  # the pause may have been stored all the same
            raise
        if not pause.is_paused:
            return pause
        request = ApprovalRequest(tool="", args=b"", identity=live.base.quadruple, key=key)
        waiting = WaitingCall(request, pause, services.pauses, services.clock)
        self._waiting[key] = (waiting, check)
        try:
            live.mailbox.route_queued_answers()
            return await waiting.wait()
        except asyncio.CancelledError:
            live.unanswered += (pause.token,)
            raise
        finally:
            del self._waiting[key]
            waiting.close()

    def find_wait(self, key: str) -> Waiting | None:
        """Return until when a step waits for a person; None if it does not only wait."""
        waiting = self._waiting.get(key, (None, None))[0]
        return Waiting(waiting.pause.deadline) if waiting is not None and waiting.is_idle else None

    def route_answer(
        self, who: Quadruple, control: ControlEvent, write: RunWriter | None
    ) -> Coroutine[Any, Any, None] | None:
        """Return the work of answering a step's question by a control; None if no step of this run waits for it.

        `write` is how the run commits.
        """
        token = (control.payload or {}).get("token")
        decision = RESUMES.get(control.type)
        for waiting, check in self._waiting.values():
            if decision is not None and waiting.token == token and waiting.request.identity == who:
                work = partial(self._resolve, waiting.token, decision, control, write, check)
                return apply_mid_step(self._services, who, control, work)
        return None

    async def _resolve(
        self, token: str, decision: PauseDecision, control: ControlEvent, write: RunWriter | None, check: Check
    ) -> None:
        answer, who = dict(control.payload or {}), control.identity
        check(decision, answer)
        await self._services.pauses.resume(
            token, decision, answer, who=who, by=control.by, event_id=control.event_id, write=write
        )


def takes_no_args(decision: PauseDecision, payload: dict[str, Any]) -> None:
    """Accept an approval of an interrupted call, unless it changes the arguments, or is to be remembered.

    Raises:
        PayloadInvalidError: it does.
    """
    given = [name for name in ("args", "args_patch", "remember") if payload.get(name) is not None]
    if decision is PauseDecision.APPROVE and given:
        raise PayloadInvalidError(
            f"APPROVE: a call that was interrupted is made again as it was; leave {given[0]} out",
            bound=given[0],
        )


class WorkflowWaits:
    """The waits of workflows, as effects. `runs` are those under way here."""

    def __init__(self, services: AgentServices, questions: Questions, runs: Mapping[str, LiveRun]) -> None:
        self._services = services
        self._questions = questions
        self._live = runs

    def table(self) -> dict[str, Effect]:
        """The effects by name."""
        return {
            TIMER_STEP: Wait(run=self._sleep, waits_for=lambda call: Waiting(call.payload.until)),
            RECEIVE_STEP: Wait(
                run=lambda call: self._live[call.run_id].mailbox.wait_for_message(call.payload.until),
                waits_for=lambda call: Waiting(call.payload.until),
            ),
            ASK_STEP: Wait(
                run=self._ask,
                result=Answered,
                waits_for=lambda call: self._questions.find_wait(self._live[call.run_id].key(call)),
                cut=self._unanswered,
                commits=True,
            ),
        }

    async def _sleep(self, call: StepCall) -> None:
        wanted: Sleep = call.payload
        while (left_s := (wanted.until - self._services.stamp.now()).total_seconds()) > 0:
            await sleep(self._services.clock, left_s)

    async def _ask(self, call: StepCall) -> Answered:
        question: Question = call.payload
        live, services = self._live[call.run_id], self._services
        until = services.answer_by(services.pause_ttl, live.base.budget.deadline)
        if question.expires is not None:
            until = question.expires if until is None else min(until, question.expires)
        asked = PauseRequest(
            identity=live.base.quadruple,
            reason=PauseReason.AWAIT_INPUT,
            payload=question.payload,
            deadline=until,
            key=f"ask:{live.key(call)}",
        )
        pause = await self._questions.ask(live, live.key(call), asked, partial(check_answer, question))
        return answered(question, pause)

    def _unanswered(self, call: StepCall) -> None:
        """An earlier process may have asked already: the question is withdrawn when the run ends."""
        self._live[call.run_id].was_cut_at_gate = True


def check_answer(question: Question, decision: PauseDecision, payload: dict[str, Any]) -> None:
    """Accept an answer of the type that was asked for; an approval is the answer True, a rejection gives none.

    Raises:
        PayloadInvalidError: it is of another type, or an approval of what is no yes-or-no question.
    """
    if decision is PauseDecision.REJECT:
        return
    if decision is PauseDecision.APPROVE:
        payload = {"answer": True} | payload
    value_of_answer(question.schema, payload)


def answered(question: Question, pause: Pause) -> Answered:
    """What came of a question."""
    payload = pause.payload or {}
    match pause.decision:
        case PauseDecision.APPROVE | PauseDecision.RESUME:
            given = {"answer": True} | payload if pause.decision is PauseDecision.APPROVE else payload
            return Answered(value=value_of_answer(question.schema, given))
        case PauseDecision.REJECT:
            return Answered(is_rejected=True, reason=str(payload.get("reason") or ""))
        case _:
            return Answered(is_expired=True)
