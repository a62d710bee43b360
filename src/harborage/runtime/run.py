"""`Run`: the handle on one run. Watch it, steer it, wait for it; closing the handle, or losing it, steers nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from harborage.errors import InvalidOptionError, at_least
from harborage.events import BusClosedError
from harborage.ids import new_id
from harborage.planner.errors import ToolContextLostError
from harborage.runtime.durable.engine import Engine, RunEndedError, RunStatus
from harborage.runtime.durable.inbox import emit_rejection
from harborage.runtime.durable.pauses.errors import (
    AlreadyResumedError,
    PauseAmbiguousError,
    PauseError,
    PauseNotFoundError,
)
from harborage.runtime.loop.controls import ControlEvent, ControlType, Scope, check_scope
from harborage.runtime.loop.errors import NoOutstandingPauseError, SteeringError
from harborage.runtime.loop.pauses import Pause, PauseFilter

if TYPE_CHECKING:
    from harborage.events import Event, EventBus
    from harborage.identity import Quadruple
    from harborage.planner import Finish
    from harborage.runtime.durable.pauses.coordinator import Coordinator
    from harborage.tasks import TaskRegistry


class Run:
    """One run, as somebody with `scope` in its tenant sees it. Make one with `Runtime.start` or `Runtime.run`.

    Every control is checked and queued before its method returns, and applied at the run's next step boundary; a hard
    cancel and an approval reach a step in flight at once. A control that is refused raises, and is announced as
    `control.rejected`; one for a run that has ended raises alone. What was queued when the run ended is rejected then:
    each one's `control.rejected` says `run_ended`, and may come behind the event that ends the task, so a caller who
    must know replays the bus once there is a result. A run that is blocked (`status()` says so) keeps controls, answers
    too, and takes them once it goes on; that is logged as a warning.
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
    ) -> None:
        self.who = who
        self.scope = scope
        self._engine = engine
        self._bus = bus
        self._pauses = pauses
        # A number that all events of the run are above: where its stream begins to look.
        self._since = since
        self._tasks = tasks

    @property
    def id(self) -> str:
        """The run's id, which is also the id of its task."""
        return self.who.run_id

    async def result(self) -> Finish:
        """How the run finished, once it has.

        Raises:
            RunFailedError: it ended with an error, which is the cause.
            EngineElsewhereError: it goes on, but the runtime was opened on another event loop.
            RunBlockedError: it needs the code that it was started with, or a repair. It is kept: once a worker with
                that code has opened its storage it goes on, and this waits for its end again.
        """
        return await self._engine.result(self.id)

    async def status(self) -> RunStatus:
        """Where the run stands now."""
        return await self._engine.status(self.id)

    async def history(self) -> list[bytes]:
        """The run's recorded entries, in order."""
        return await self._engine.history(self.id)

    async def waiting(self) -> list[Pause]:
        """The open pauses of this run: what it waits for, until when, and the token to answer with."""
        who = self.who
        mine = PauseFilter(users=(who.user_id,), sessions=(who.session_id,), runs=(who.run_id,))
        return list((await self._pauses.list(mine, page_size=200, who=who)).rows)

    def events(self, *, children: bool = True, after: int = 0) -> AsyncGenerator[Event, None]:
        """The run's events from beginning to end, with those of the tasks it spawned unless `children` is False.

        A reader that lost its connection goes on with `after`: the highest `sequence` it has seen.

        The last one says how the run's task ended; where that was never told, the stream ends with the run. A reader
        that is too slow misses nothing that the bus still remembers: it is read again. In the place of what it does not
        remember stands a `bus.dropped` notice, streamed pieces of an answer included; of what it forgot before this
        reader came, the notice counts at most so many.

        Raises:
            BusClosedError, SubscriberLimitReachedError, ReplayUnavailableError: the bus cannot be read.
            RunBlockedError: the run is blocked, as of `result`.
            InvalidOptionError: `after` is no number.
        """
        at_least(0, after, "events: after", is_whole=True)
        from harborage.runtime.run_events import RunEvents  # loaded by the first reader of a run's events

        reader = RunEvents(
            self.who, self._engine, self._bus, self._tasks, since=self._since, after=after, children=children
        )
        return reader.stream()

    async def cancel(self, *, hard: bool = False) -> bool:
        """End the run: softly after the planner's next answer, `hard` at once, the call in flight included.

        Raises:
            InvalidOptionError: `hard` is neither True nor False.
        """
        if not isinstance(hard, bool):
            raise InvalidOptionError("cancel: hard", hard, "True or False")
        return await self._send(ControlType.CANCEL, {"hard": True} if hard else None)

    async def pause(self) -> bool:
        """Park the run at its next step boundary until somebody resumes it."""
        return await self._send(ControlType.PAUSE)

    async def resume(self, payload: dict[str, Any] | None = None) -> bool:
        """Let the parked run go on; the planner sees `payload`. A `token` in it names the pause that is meant.

        Raises:
            InvalidOptionError: `payload` is neither None nor a dict.
            PauseNotFoundError, AlreadyResumedError: it names none of this run, or one that was resolved before.
            AlreadyAnsweredError: the pause that it names has an answer on its way.
            ToolContextLostError: the run needs a live handle that the process that would execute it does not hold.
        """
        _check_object("resume", "payload", payload)
        token = (payload or {}).get("token")
        if isinstance(token, str) and token:
            return await self._answer(ControlType.RESUME, token, payload)
        return await self._send(ControlType.RESUME, payload)

    async def redirect(self, goal: str) -> bool:
        """Give the run another goal.

        Raises:
            ValueError: the goal is empty, or no text.
        """
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
        """Say something to the planner as the user, visible at its next step.

        Raises:
            InvalidOptionError: `text` is no text.
        """
        _check_text("message", "text", text)
        return await self._send(ControlType.USER_MESSAGE, {"message": text})

    async def approve(self, token: str = "", *, reason: str = "", args: dict[str, Any] | None = None) -> bool:
        """Say yes to the pause `token`, else to the only one that is open; a call is made with `args` for its own.

        Raises:
            InvalidOptionError: `args` is neither None nor a dict, or `token` or `reason` is no text; nothing was sent.
            NoOutstandingPauseError, PauseAmbiguousError: without a token, when none or several are open.
            PauseNotFoundError: the run has no such pause.
            AlreadyResumedError: it was resolved before.
            AlreadyAnsweredError: it has an answer on its way; the first one counts.
            ToolContextLostError: the run needs a live handle that the process that would execute it does not hold.
            RunCancelledError, RunEndedError: the run is cancelled, or has ended.
        """
        _check_object("approve", "args", args)
        _check_text("approve", "token", token)
        _check_text("approve", "reason", reason)
        return await self._answer(ControlType.APPROVE, token, _said(reason, args))

    async def reject(self, token: str = "", *, reason: str = "") -> bool:
        """Say no to the pause `token`, else to the only one that is open; one that is no call's ends the run.

        Raises:
            Exception: as `approve`.
        """
        _check_text("reject", "token", token)
        _check_text("reject", "reason", reason)
        return await self._answer(ControlType.REJECT, token, _said(reason, None))

    async def prioritize(self, priority: int) -> bool:
        """Change the priority of the run's task; takes a handle with `scope=Scope.ADMIN`."""
        return await self._send(ControlType.PRIORITIZE, {"priority": priority})

    async def _answer(self, type: ControlType, token: str, said: dict[str, Any] | None) -> bool:
        """Send an answer to one pause; of two that are sent at once, one."""
        named = await self._checked(type, token)
        try:
            return await self._send(type, {**(said or {}), "token": named})
        except AlreadyResumedError as error:
            await self._announce_refusal(type, error)
            raise

    async def _checked(self, type: ControlType, token: str) -> str:
        """The token of the pause that an answer is for; an answer for none is refused, and announced as such."""
        try:
            check_scope(type, self.scope, self.who.tenant_id, self.who)
            if not token:
                return await self._only_pause(type)
            pause = await self._pauses.status(token, who=self.who)
            if pause.identity != self.who:
                raise PauseNotFoundError(token)
            if not pause.is_paused:
                await self._check_going_on()
                raise AlreadyResumedError.of(pause)
        except (SteeringError, PauseError) as error:
            await self._announce_refusal(type, error)
            raise
        return token

    async def _only_pause(self, type: ControlType) -> str:
        pauses = await self.waiting()
        if not pauses:
            await self._check_going_on()
            raise NoOutstandingPauseError(f"run {self.id} waits for no answer; there is nothing to {type.lower()}")
        if len(pauses) > 1:
            raise PauseAmbiguousError(self.id, [(one.token, _asked(one)) for one in reversed(pauses)])
        return pauses[0].token

    async def _check_going_on(self) -> None:
        if (await self.status()).phase.is_final:
            raise RunEndedError(self.id)

    async def _announce_refusal(self, type: ControlType, error: Exception) -> None:
        """Tell of a refused control; once the runtime is closed nobody listens, and the caller learns of it anyway."""
        with suppress(BusClosedError):
            await emit_rejection(self._bus, self.who, type, self.scope, error)

    async def _send(self, type: ControlType, payload: dict[str, Any] | None = None) -> bool:
        control = ControlEvent(type, self.who, self.scope, self.who.tenant_id, payload, new_id())
        try:
            return await self._engine.send(self.id, control)
        except (SteeringError, ToolContextLostError) as error:
            await self._announce_refusal(type, error)
            raise


def _check_object(method: str, name: str, value: object, *, may_be_none: bool = True) -> None:
    """Accept a dict; what is none must not pass as if it had not been given."""
    if isinstance(value, dict) or (value is None and may_be_none):
        return
    way = " (json.loads makes one of a text that is JSON)" if isinstance(value, str | bytes) else ""
    raise InvalidOptionError(f"{method}: {name}", value, f"a dict{' or None' if may_be_none else ''}{way}")


def _check_text(method: str, name: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidOptionError(f"{method}: {name}", value, "a text")


def _asked(pause: Pause) -> str:
    """What a pause is about, in a few words that quote nobody."""
    tool = (pause.payload or {}).get("tool")
    return f"{pause.reason}: {tool}" if isinstance(tool, str) and tool else str(pause.reason)


def _said(reason: str, args: dict[str, Any] | None) -> dict[str, Any]:
    payload: dict[str, Any] = {}
    if reason:
        payload["reason"] = reason
    if args is not None:
        payload["args"] = args
    return payload
