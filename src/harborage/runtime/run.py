"""`Run`: the handle on one run. Watch it, steer it, wait for it; closing the handle, or losing it, steers nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias

import msgspec
from typing_extensions import TypeVar

from harborage.errors import InvalidOptionError, at_least, one_of
from harborage.events import BusClosedError, EventType, LLMCompletionChunkPayload
from harborage.ids import new_id
from harborage.planner.decisions import ChunkKind
from harborage.planner.errors import ToolContextLostError
from harborage.runtime.durable.engine import Engine, RunEndedError, RunStatus
from harborage.runtime.durable.inbox import emit_rejection
from harborage.runtime.durable.pauses.errors import AlreadyResumedError, PauseError
from harborage.runtime.loop.controls import (
    ANSWERS,
    ControlEvent,
    ControlType,
    Remember,
    Scope,
    answered_pause,
    check_scope,
)
from harborage.runtime.loop.errors import InboxFullError, NoOutstandingPauseError, PayloadInvalidError, SteeringError
from harborage.runtime.loop.payload import body_for, validate_answer, validate_payload
from harborage.runtime.loop.workflow_waits import value_of_answer
from harborage.runtime.pending import PauseFinder, Pending
from harborage.runtime.reliving import Relives, RelivesRuns
from harborage.tasks.rules import check_priority

if TYPE_CHECKING:
    from harborage.events import Event, EventBus
    from harborage.identity import Identity, Quadruple
    from harborage.planner import Finish
    from harborage.runtime.durable.pauses.coordinator import Coordinator
    from harborage.runtime.loop.pauses import Pause
    from harborage.runtime.result import Result
    from harborage.tasks import TaskRegistry


OutT_co = TypeVar("OutT_co", covariant=True, default=Any)
OwnerCheck: TypeAlias = "Callable[[Run[Any]], Awaitable[Callable[[Any], Any] | None]]"
"""Looks a run up, and returns what makes its output; raises RunNotFoundError where it is not there for its owner."""


_QUESTIONS: Final = frozenset({EventType.TOOL_APPROVAL_REQUESTED, EventType.PAUSE_REQUESTED})
_CONTENT: Final = str(ChunkKind.CONTENT)


def _as_it_is(payload: Any) -> Any:
    return payload


class Run(RelivesRuns, Generic[OutT_co]):
    """A handle of one run, for a caller with `scope` in its tenant. Get one from `Runtime.start` or `Runtime.run`.

    Every control is checked and queued before its method returns, and applied at the run's next step boundary; a hard
    cancel and an approval reach a step in flight at once. A refused control raises, and is published as
    `control.rejected`; one for a run that has ended only raises. Controls that are still queued when the run ends are
    rejected: their `control.rejected` events have the reason `run_ended`, and may follow the event that ends the task,
    so a caller who must know replays the bus once there is a result. A blocked run (see `status()`) keeps controls and
    answers, and applies them once it continues; a warning is logged.
    """

    def __init__(
        self,
        who: Quadruple,
        engine: Engine,
        bus: EventBus,
        pauses: Coordinator,
        *,
        scope: Scope = Scope.OWNER_USER,
        since: int = 0,
        tasks: TaskRegistry | None = None,
        decode: Callable[[Any], OutT_co] | None = None,
        check: OwnerCheck | None = None,
        runtime: Relives | None = None,
    ) -> None:
        self.who, self.scope, self._runtime = who, scope, runtime
        self._engine = engine
        self._bus = bus
        self._pauses = pauses
        # A number below those of all events of the run: where its stream begins to read.
        self._since = since
        self._tasks = tasks
        self._finder = PauseFinder(who, engine, pauses, tasks)
        self._decode: Callable[[Any], Any] = _as_it_is if decode is None else decode
        # Of a handle whose run was not looked up yet; its first use does.
        self._check = check

    @property
    def id(self) -> str:
        """The run's id, which is also the id of its task."""
        return self.who.run_id

    async def finished(self) -> Finish:
        """How the run finished, once it has.

        Raises:
            RunFailedError: it ended with an error, which is the cause.
            EngineElsewhereError: it goes on, but the runtime was opened on another event loop.
            RunBlockedError: it needs the code that it was started with, or a repair. It is kept: once a worker with
                that code has opened its storage it goes on, and this waits for its end again.
        """
        await self._look_up()
        return await self._engine.result(self.id)

    async def _look_up(self) -> None:
        """Look the run up, unless that was done.

        Raises:
            RunNotFoundError: there is no such run, or it is another owner's.
        """
        if self._check is not None:
            self._decode = await self._check(self) or self._decode
            self._check = None

    async def result(self) -> Result[OutT_co]:
        """What the run gave, with its output as the type that its agent declares, once it has reached its goal.

        Raises:
            RunFailedError: it ended with an error, or without reaching its goal: `reason` says why, and `messages` and
                `usage` how far it came.
            EngineElsewhereError, RunBlockedError: as of `finished`.
        """
        finish = await self.finished()
        from harborage.runtime.result import read_result  # loaded by the first caller who wants more than the finish

        return await read_result(self.id, finish, self._engine.history, self._decode)

    async def status(self) -> RunStatus:
        """Return the run's current status."""
        await self._look_up()
        return await self._engine.status(self.id)

    async def history(self) -> list[bytes]:
        """Return the run's recorded entries, in order."""
        await self._look_up()
        return await self._engine.history(self.id)

    async def waiting(self) -> list[Pause]:
        """Return the open pauses of this run: what it waits for, until when, and the token to answer with."""
        await self._look_up()
        return await self._finder.own()

    async def pending(self) -> list[Pending]:
        """Return the questions of this run and of the runs below it without an answer, newest first; each
        has the methods that answer it."""
        await self._look_up()
        return [Pending(self._run_of(pause), pause) for pause in await self._finder.open() if not pause.answering]

    def _run_of(self, pause: Pause) -> Run[Any]:
        """The run that waits on a pause: this one, or one below it."""
        if pause.identity == self.who:
            return self
        return Run(
            pause.identity,
            self._engine,
            self._bus,
            self._pauses,
            scope=self.scope,
            since=self._since,
            tasks=self._tasks,
        )

    async def wait_pending(self) -> Pending:
        """Wait until the run, or one below it, asks a person something; return the oldest open question.

        Raises:
            NoOutstandingPauseError: it ended without asking.
            RunBlockedError: it is blocked, as of `finished`.
        """
        async with aclosing(self.events()) as events:
            if found := await self.pending():
                return found[-1]
            async for event in events:
                if event.type in _QUESTIONS and (found := await self.pending()):
                    return found[-1]
        raise NoOutstandingPauseError(f"run {self.id} has ended without asking anybody")

    async def text(self) -> AsyncGenerator[str, None]:
        """Yield what the model writes, piece by piece as it comes, without that of the tasks that the run spawned.

        Pieces are not stored: a caller who comes late gets those that are still to come.

        Raises:
            Exception: as of `events`.
        """
        async with aclosing(self.events(children=False)) as events:
            async for event in events:
                piece = event.payload
                if isinstance(piece, LLMCompletionChunkPayload) and piece.kind == _CONTENT and piece.delta:
                    yield piece.delta

    async def outputs(self) -> AsyncGenerator[OutT_co, None]:
        """Yield the run's output as it grows: each one is valid, and fields that are still to come are their defaults.

        The last one is the output itself. Pieces are not stored, so that a caller who comes late, or from another
        process, may get that one alone.

        Raises:
            RunFailedError: the run ended without reaching its goal.
            Exception: as of `events`.
        """
        await self._look_up()
        from harborage.runtime.partials import read_outputs  # loaded by the first reader of a growing output

        reading = read_outputs(self.events(children=False), self.result, self._decode)
        async with aclosing(reading) as outputs:
            async for output in outputs:
                yield output

    def events(self, *, children: bool = True, after: int = 0) -> AsyncGenerator[Event, None]:
        """Yield the run's events from beginning to end, with those of the tasks it spawned unless `children` is False.

        A subscriber that lost its connection continues with `after`: the highest `sequence` it has read. The last event
        is the end of the run's task; without it, the stream ends with the run. A slow subscriber misses
        no event that the bus still retains. A `bus.dropped` notice replaces those that it retains no more,
        streamed pieces of an answer included; for events before the subscription its count is an upper limit.

        Raises:
            BusClosedError, SubscriberLimitReachedError, ReplayUnavailableError: the bus cannot be read.
            RunBlockedError: the run is blocked, as of `finished`.
            InvalidOptionError: `after` is no number.
        """
        at_least(0, after, "events: after", is_whole=True)
        if self._check is not None:
            return self._events_once_found(children=children, after=after)
        from harborage.runtime.run_events import RunEvents  # loaded by the first reader of a run's events

        reader = RunEvents(
            self.who, self._engine, self._bus, self._tasks, since=self._since, after=after, children=children
        )
        return reader.stream()

    async def _events_once_found(self, *, children: bool, after: int) -> AsyncGenerator[Event, None]:
        await self._look_up()
        async with aclosing(self.events(children=children, after=after)) as events:
            async for event in events:
                yield event

    async def cancel(self, *, hard: bool = False) -> bool:
        """End the run: softly after the planner's next answer, `hard` at once, the call in flight included.

        Raises:
            InvalidOptionError: `hard` is neither True nor False.
        """
        if not isinstance(hard, bool):
            raise InvalidOptionError("cancel: hard", hard, "True or False")
        return await self._send(ControlType.CANCEL, {"hard": True} if hard else None)

    async def pause(self) -> bool:
        """Park the run at its next step boundary until a RESUME."""
        return await self._send(ControlType.PAUSE)

    async def resume(self, payload: dict[str, Any] | None = None) -> bool:
        """Resume the parked run; the planner sees `payload`. A `token` in it names the pause to answer.

        Raises:
            InvalidOptionError: `payload` is neither None nor a dict.
            PauseNotFoundError, AlreadyResumedError: it names none of this run, or one that was resolved before.
            AlreadyAnsweredError: that pause has a pending answer.
            ToolContextLostError: the run needs a live handle that the process that would execute it does not hold.
        """
        _check_object("resume", "payload", payload)
        token = (payload or {}).get("token")
        if isinstance(token, str) and token:
            return await self._answer(ControlType.RESUME, token, payload)
        return await self._send(ControlType.RESUME, payload)

    async def redirect(self, goal: str) -> bool:
        """Give the run another goal; ValueError for one that is empty, or no text."""
        _check_text("redirect", "goal", goal)
        if not goal:
            raise ValueError("redirect needs a goal; an empty one would change nothing")
        return await self._send(ControlType.REDIRECT, {"goal": goal})

    async def inject(self, context: dict[str, Any]) -> bool:
        """Give the planner context, visible at its next step.

        Raises:
            InvalidOptionError: `context` is no dict.
        """
        _check_object("inject", "context", context, may_be_none=False)
        return await self._send(ControlType.INJECT_CONTEXT, context)

    async def message(self, text: str) -> bool:
        """Send the planner a message of the user, visible at its next step.

        Raises:
            InvalidOptionError: `text` is no text.
        """
        _check_text("message", "text", text)
        return await self._send(ControlType.USER_MESSAGE, {"message": text})

    async def approve(
        self,
        token: str = "",
        *,
        reason: str = "",
        args: dict[str, Any] | None = None,
        remember: str = "",
    ) -> bool:
        """Approve the pause `token`, by default the only open one of this run and of those below it; `args` are the
        arguments of its call that change, None takes one out. With `remember="run"` the same tool may be called until
        the run ends, with `"always"` with the same arguments in all runs of the principal; `Runtime.grants` lists what
        is remembered, and ends it.

        Raises:
            InvalidOptionError: `args` is neither None nor a dict, `token` or `reason` is no text, or `remember` is
                neither; nothing was sent.
            NoOutstandingPauseError, PauseAmbiguousError: without a token, when none or several are open.
            PauseNotFoundError: the run has no such pause.
            AlreadyResumedError: it was resolved before.
            AlreadyAnsweredError: it has a pending answer, and the first one counts.
            PayloadInvalidError: the tool does not take the arguments; nothing was sent.
            ToolContextLostError, RunCancelledError, RunEndedError: as of `resume`, or the run is cancelled or over.
        """
        _check_object("approve", "args", args)
        _check_text("approve", "token", token)
        _check_text("approve", "reason", reason)
        kept = str(one_of(Remember, remember, "approve: remember")) if remember else ""
        return await self._answer(ControlType.APPROVE, token, _answer_body(reason=reason, args=args, remember=kept))

    async def reject(self, reason: str = "", *, token: str = "") -> bool:
        """Reject the pause `token`, by default the only open one; the planner sees the reason.

        If it is not the approval of a call, the run ends.

        Raises:
            Exception: as `approve`.
        """
        _check_text("reject", "token", token)
        _check_text("reject", "reason", reason)
        return await self._answer(ControlType.REJECT, token, _answer_body(reason=reason))

    async def answer(self, value: Any) -> bool:
        """Answer the only open question with a value, which the planner sees as `answer`.

        Raises:
            NoOutstandingPauseError, PauseAmbiguousError: none or several are open; `pending` lists them.
            PayloadInvalidError: the question of a workflow takes a value of another type; nothing was sent.
            Exception: as `resume`.
        """
        _, pause = await self._find_pause(ControlType.RESUME, "")
        return await self.resume({"token": pause.token, "answer": value})

    async def prioritize(self, priority: int) -> bool:
        """Change the priority of the run's task; needs a handle with `scope=Scope.ADMIN`.

        Raises:
            InvalidOptionError: it is no whole number from -1000 to 1000.
        """
        check_priority(priority, "prioritize: priority")
        return await self._send(ControlType.PRIORITIZE, {"priority": priority})

    async def control(
        self,
        type: ControlType,
        payload: dict[str, Any] | None = None,
        *,
        event_id: str = "",
        by: Identity | None = None,
    ) -> bool:
        """Send a control by its type, as a server does for its callers; return False if it was sent before.

        `event_id` is unique within the run: one that comes again is not sent again, also once the run has applied it,
        or has ended. `by` is the principal who sends it, the run's own by default. An approval or rejection without a
        `token` is for the only open pause of the run, or else of those below it; a RESUME may find none. An answer that
        fits no pause raises after it was published as a control that failed.

        Raises:
            UnknownControlTypeError, ScopeMismatchError, PayloadInvalidError: in this order; it is published as refused.
            RunNotFoundError, RunEndedError: there is no such run, or it has ended.
            PauseError, NoOutstandingPauseError, ToolContextLostError, RunCancelledError: as of `approve`.
        """
        control = self._control(type, payload, event_id, by)
        try:
            check_scope(type, self.scope, self.who.tenant_id, self.who)
            validate_payload(payload)
            if type in ANSWERS:
                validate_answer(payload)
        except SteeringError as error:
            await self._publish_refusal(control, error)
            raise
        await self._look_up()
        is_answer = type in ANSWERS
        if event_id and await self._finder.was_sent(event_id, below=is_answer):
            return False
        try:
            return await (self._send_answer(control) if is_answer else self._engine.send(self.id, control))
        except (SteeringError, PauseError, ToolContextLostError, RunEndedError) as error:
            if event_id and await self._finder.was_sent(event_id, below=is_answer):
                return False  # by another caller, meanwhile
            if isinstance(error, RunEndedError):
                raise
            from harborage.runtime.effects.steering import publish_failure  # loaded by the first answer that fits none

            if isinstance(error, PayloadInvalidError | InboxFullError):
                await self._publish_refusal(control, error)
            else:
                await publish_failure(self._bus, control, error)
            raise

    async def _send_answer(self, control: ControlEvent) -> bool:
        """Send an answer to the pause that it names, or is for."""
        body = control.payload or {}
        token = answered_pause(control)
        own = [] if token else await self._finder.own(control.type)
        if not token and control.type is ControlType.RESUME and len(own) != 1:
            return await self._engine.send(self.id, control)  # the loop knows what it may resume
        pause = own[0] if len(own) == 1 else await self._finder.find(control.type, token)
        if control.type is ControlType.RESUME:
            await self._check_value(pause.token, body)
        return await self._engine.send(
            pause.identity.run_id,
            msgspec.structs.replace(control, identity=pause.identity, payload={**body, "token": pause.token}),
        )

    async def _answer(self, type: ControlType, token: str, body: dict[str, Any] | None) -> bool:
        """Send an answer to one pause; of two answers at the same time, one counts."""
        try:
            run, pause = await self._find_pause(type, token)
        except (SteeringError, PauseError) as error:
            await self._publish_refusal(self._control(type, None), error)
            raise
        named, body = pause.token, body_for(pause.payload, body or {})
        if body.get("reason") == named:
            fix = f"{type.lower()}: the reason is the token of the pause; write token={named!r}"
            raise InvalidOptionError("reason", named, message=fix)
        if type is ControlType.RESUME:
            await self._check_value(named, body)
        try:
            return await run._send(type, {**body, "token": named})
        except AlreadyResumedError as error:
            await self._publish_refusal(self._control(type, None), error)
            raise

    async def _check_value(self, token: str, body: dict[str, Any]) -> None:
        """Accept an answer that fits the question of a workflow; any other pause takes what its planner makes of it.

        Raises:
            PayloadInvalidError: it does not fit; nothing was sent.
        """
        schema = ((await self._pauses.status(token, who=self.who)).payload or {}).get("schema")
        if isinstance(schema, dict) and ("answer" in body or "message" in body):
            value_of_answer(schema, body)

    async def _find_pause(self, type: ControlType, token: str) -> tuple[Run[Any], Pause]:
        """Return the pause that an answer is for, and its run, which may be one below this one."""
        await self._look_up()
        check_scope(type, self.scope, self.who.tenant_id, self.who)
        pause = await self._finder.find(type, token)
        return self._run_of(pause), pause

    async def _publish_refusal(self, control: ControlEvent, error: Exception) -> None:
        """Publish that a control was refused, unless the bus is closed; the caller gets the error in any case."""
        with suppress(BusClosedError):
            await emit_rejection(
                self._bus, self.who, control.type, self.scope, error, by=control.by, event_id=control.event_id
            )

    def _control(
        self, type: ControlType, payload: dict[str, Any] | None, event_id: str = "", by: Identity | None = None
    ) -> ControlEvent:
        who, sent_by = self.who, self.who.identity if by is None else by
        return ControlEvent(type, who, self.scope, who.tenant_id, payload, event_id or new_id(), by=sent_by)

    async def _send(self, type: ControlType, payload: dict[str, Any] | None = None) -> bool:
        await self._look_up()
        control = self._control(type, payload)
        try:
            return await self._engine.send(self.id, control)
        except (SteeringError, ToolContextLostError) as error:
            await self._publish_refusal(control, error)
            raise


def _check_object(method: str, name: str, value: object, *, may_be_none: bool = True) -> None:
    """Accept a dict; any other value must not pass as if none had been given."""
    if isinstance(value, dict) or (value is None and may_be_none):
        return
    way = " (json.loads makes one of a text that is JSON)" if isinstance(value, str | bytes) else ""
    raise InvalidOptionError(f"{method}: {name}", value, f"a dict{' or None' if may_be_none else ''}{way}")


def _check_text(method: str, name: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidOptionError(f"{method}: {name}", value, "a text")


def _answer_body(**given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None and value != ""}
