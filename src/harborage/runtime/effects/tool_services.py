"""What a run offers to a tool while it calls it: questions to a person, runs of agents, and news of its progress.

A question and a child have keys of their own, counted within the call, so that a call that is made again, after a crash
or by its policy, finds the answers that were given and the children that were started.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from harborage.errors import HarborageError, InvalidOptionError, error_reason
from harborage.events import EventType, ToolProgressPayload
from harborage.planner import PauseReason, SpawnSpec, SpawnTask
from harborage.planner.answers import AnswerInvalidError
from harborage.runtime.durable.journal import Done, raw
from harborage.runtime.effects.questions import answered, check_answer
from harborage.runtime.loop.agent_calls import CHILD_OF_CALL, ChildOfCall, outcome_of
from harborage.runtime.loop.dispatch import ContinuedCall
from harborage.runtime.loop.outcome import OutcomeStatus, ToolOutcome
from harborage.runtime.loop.pauses import PauseRequest
from harborage.runtime.loop.workflow_waits import Question, input_answer
from harborage.tools import OfRun
from harborage.tools.errors import QuestionExpiredError, QuestionRejectedError, ToolError, ToolFailedError
from harborage.tools.inputs import InputAction, InputAnswer

if TYPE_CHECKING:
    from harborage.clock import Timer
    from harborage.planner import CallTool
    from harborage.runtime.durable.steps import StepCall
    from harborage.runtime.effects.executor import CatalogToolExecutor
    from harborage.runtime.effects.questions import Questions
    from harborage.runtime.effects.run_resources import LiveRun
    from harborage.runtime.effects.sealing import Seals
    from harborage.runtime.effects.services import AgentServices
    from harborage.tools.inputs import InputGiven, InputQuestion
    from harborage.tools.invoke import AttemptScope

PROGRESS_EVERY_S: Final = 0.1
"""How often the progress of a call is published at most; the last news of it always is."""

MAX_PROGRESS_CHARS: Final = 256

_ABOUT: Final = 200


class ToolServices:
    """The services for one call of a tool. `close` ends them, with the last news that was not published yet."""

    def __init__(
        self,
        services: AgentServices,
        questions: Questions,
        executor: CatalogToolExecutor,
        live: LiveRun,
        call: StepCall,
    ) -> None:
        self._services = services
        self._questions = questions
        self._executor = executor
        self._live = live
        self._call = call
        self._scope: AttemptScope | None = None
        self._asked = self._started = self._waits = 0
        self._news: ToolProgressPayload | None = None
        self._timer: Timer | None = None

    def begin(self, scope: AttemptScope | None) -> None:
        self._scope = scope
        self._asked = self._started = 0

    def close(self) -> None:
        """Publish what is left to be published."""
        if self._timer is not None:
            self._timer.cancel()
        self._publish()

    def progress(self, message: str, done: float | None, total: float | None) -> None:
        _check_progress(message, done, total)
        step, call_id = self._live.named(self._call)
        text = str(self._services.redactor.redact(message))[:MAX_PROGRESS_CHARS]
        self._news = ToolProgressPayload(
            identity=self._live.base.quadruple,
            tool_name=self._call.payload.tool,
            step=step or UNSET,
            call_id=call_id or UNSET,
            done=UNSET if done is None else done,
            total=UNSET if total is None else total,
            message=text or UNSET,
        )
        if self._timer is None:
            self._publish()
            self._timer = self._services.clock.call_later(PROGRESS_EVERY_S, self._publish_later)

    def _publish_later(self) -> None:
        self._timer = None
        if self._news is not None:
            self._publish()
            self._timer = self._services.clock.call_later(PROGRESS_EVERY_S, self._publish_later)

    def _publish(self) -> None:
        news, self._news = self._news, None
        if news is not None:
            self._services.emit(EventType.TOOL_PROGRESS, news.identity, news)

    async def ask(self, question: str, type: Any, expires: timedelta | None, default: Any) -> Any:
        reader = None if type is str or self._services.answer_type is None else self._services.answer_type(type)
        asked = Question(
            question=_checked_question(question), schema={"type": "string"} if reader is None else reader.inner_schema
        )
        self._asked += 1
        key, services, who = self._key(f"ask{self._asked}"), self._services, self._live.base.quadruple
        until = services.answer_by(services.pause_ttl, self._live.base.budget.deadline)
        if expires is not None:
            own = services.stamp.now() + _checked_time(expires)
            until = own if until is None else min(until, own)
        request = PauseRequest(
            identity=who,
            reason=PauseReason.AWAIT_INPUT,
            payload={"question": asked.question, "schema": asked.schema},
            deadline=until,
            key=f"ask:{key}",
        )
        with self._waiting():
            pause = await self._questions.ask(self._live, key, request, partial(check_answer, asked))
        given = answered(asked, pause)
        if given.is_expired:
            if default is ...:
                raise QuestionExpiredError(question)
            return default
        if given.is_rejected:
            if type is bool:
                return False
            raise QuestionRejectedError(question, given.reason)
        return given.value if reader is None else reader.decode(given.value)

    async def put(self, question: InputQuestion, source: str, tool: str, expires: timedelta) -> InputAnswer:
        import os
        import platform  # few calls are asked anything by their peer

        if question.declined:
            return InputAnswer(question.key, InputAction.DECLINE, declined=question.declined)
        asked = Question(question.message, question.schema, server=source, tool=tool, url=question.url)
        self._asked += 1
        key, services, who = self._key(f"ask{self._asked}"), self._services, self._live.base.quadruple
        own, until = services.stamp.now() + expires, services.answer_by(None, self._live.base.budget.deadline)
        step, call_id = self._live.named(self._call)
        request = PauseRequest(
            identity=who,
            reason=PauseReason.AWAIT_INPUT,
            payload=asked.payload | {"bound_to": f"process {os.getpid()} on {platform.node()}"},
            deadline=own if until is None else min(until, own),
            key=f"ask:{key}",
            step=step,
            call_id=call_id,
        )
        with self._waiting():
            pause = await self._questions.ask(self._live, key, request, partial(check_answer, asked))
        return input_answer(question, answered(asked, pause))

    async def run(self, agent: Any, goal: str) -> Any:
        if not callable(getattr(agent, "setup", None)):
            raise InvalidOptionError("ctx.run", agent, "an agent, such as harborage.Agent(…), and its goal")
        if not goal.strip():
            raise InvalidOptionError("ctx.run: goal", goal, "a text that says what the agent shall do")
        self._started += 1
        spec = SpawnSpec(description=f"{agent.name}: {goal}"[:_ABOUT], query=goal, retain_turn=True, agent=agent.name)
        live, who, key = self._live, self._live.base.quadruple, self._key(f"run{self._started}")
        try:
            if self._services.admit is not None:
                await self._services.admit(who)
            spawned = await self._executor.spawn(
                who, SpawnTask("foreground", spec), key=key, deadline=live.base.budget.deadline, write=live.write
            )
            live.has_children = True
            live.retained[spawned.task_id] = spawned.group_id
            self._note_child(spec, spawned.handle)
            with self._waiting():
                ended = await self._executor.join(who, spawned.group_id, write=live.write)
        except HarborageError as error:
            self._services.reraise_refusal(error)
            raise ToolFailedError(agent.name, error_reason(error)) from error
        outcome = outcome_of(agent.name, ended)
        if outcome.status is not OutcomeStatus.DONE:
            raise ToolFailedError(agent.name, outcome.error)
        read = agent.setup().decode
        try:
            return outcome.observation if read is None else read(outcome.observation)
        except AnswerInvalidError as error:
            raise ToolFailedError(agent.name, str(error)) from error

    def _note_child(self, spec: SpawnSpec, handle: dict[str, Any]) -> None:
        """Record that the call started a child, at a place below its own: who reads the run finds the whole tree."""
        if (outbox := self._live.mailbox.outbox) is not None:
            position = f"{self._call.position}.{self._started}"
            child = raw(ChildOfCall(handle=handle, spec=spec))
            outbox.note(Done(at=self._services.stamp.now(), position=position, name=CHILD_OF_CALL, result=child))

    def _key(self, name: str) -> str:
        return f"{self._live.key(self._call)}/{name}"

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """While the tool waits, a cancelled run is not held up, and the time limit of the tool does not count."""
        self._waits += 1
        try:
            with self._live.retrying(self._call):
                if self._scope is None:
                    yield
                else:
                    with self._scope.held():
                        yield
        finally:
            self._waits -= 1
            if self._waits:  # another wait of the same call goes on
                self._live.between_attempts |= {self._call.position}


def make_call(
    services: AgentServices, questions: Questions, executor: CatalogToolExecutor, live: LiveRun, call: StepCall
) -> Awaitable[ToolOutcome]:
    """Make a call of a tool; one whose function takes the context of the call is offered what the run has for it."""
    step, call_id = live.named(call)
    before = None if live.mailbox.outbox is None else live.mailbox.outbox.flush_before
    going_on = call.payload if isinstance(call.payload, ContinuedCall) else None
    wanted: CallTool = call.payload if going_on is None else going_on.call
    make = partial(
        executor.call,
        live.base.quadruple,
        wanted,
        live.base.catalog,
        key=live.key(call),
        is_recorded=services.is_recorded,
        tool_context=live.base.tool_context,
        of_run=OfRun(lambda asked_s: live.retrying(call, asked_s, services.stamp.now()), step, call_id, before),
    )
    if not executor.takes_context(wanted):
        return make()
    offered = ToolServices(services, questions, executor, live, call)
    if going_on is not None and going_on.approved:
        make = partial(make, approved=going_on.approved)
    return _with_services(make, offered, services.seals, None if going_on is None else going_on.given)


async def _with_services(
    make: Callable[..., Awaitable[ToolOutcome]], services: ToolServices, seals: Seals | None, given: InputGiven | None
) -> ToolOutcome:
    """Make a call; the state that a peer wants back is sealed where it is recorded."""
    try:
        if given is not None and given.state and seals is not None:
            given = replace(given, state=await seals.open(given.state))
        outcome = await make(services=services, given=given)
        if outcome.asks is None or not outcome.asks.state or seals is None:
            return outcome
        return replace(outcome, asks=replace(outcome.asks, state=await seals.seal(outcome.asks.state)))
    finally:
        services.close()


def _checked_question(question: object) -> str:
    if not isinstance(question, str) or not question.strip():
        raise InvalidOptionError("ctx.ask", question, 'the question as a text first: ctx.ask("Which size?", Size)')
    return question


def _checked_time(expires: object) -> timedelta:
    if not isinstance(expires, timedelta) or expires < timedelta():
        raise InvalidOptionError("ctx.ask: expires", expires, "a timedelta, such as timedelta(days=3)")
    return expires


def _check_progress(message: object, done: object, total: object) -> None:
    if not isinstance(message, str):
        raise ToolError(f"ctx.progress takes a text first, not {message!r}")
    for name, value in (("done", done), ("total", total)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise ToolError(f"ctx.progress: {name} is a number, not {value!r}")
