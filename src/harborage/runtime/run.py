"""`Run`: the handle on one run. Watch it, steer it, wait for it; closing the handle, or losing it, steers nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from harborage.events import Cursor, Event, EventBus, EventType, Filter, typed_event
from harborage.events.payloads import TaskSpawnedPayload
from harborage.identity import Quadruple
from harborage.ids import new_id
from harborage.planner import Finish
from harborage.runtime.durable import Engine, RunNotFoundError, RunStatus
from harborage.runtime.pauses import Pause, PauseCoordinator, PauseFilter
from harborage.runtime.steering.controls import ControlEvent, ControlType, Scope
from harborage.runtime.steering.errors import SteeringError
from harborage.runtime.steering.rejection import emit_rejection

__all__ = ["Run"]

_ENDS = frozenset({EventType.TASK_COMPLETED, EventType.TASK_FAILED, EventType.TASK_CANCELLED})


class Run:
    """One run, as somebody with `scope` in its tenant sees it. Make one with `Runtime.start` or `Runtime.run`.

    Every control is checked and queued before its method returns, and applied at the run's next step boundary; a hard
    cancel and an approval reach a step in flight at once. A control that is refused raises, and is announced as
    `control.rejected`.
    """

    def __init__(
        self, who: Quadruple, engine: Engine, bus: EventBus, pauses: PauseCoordinator, *, scope: Scope = Scope.ADMIN
    ) -> None:
        self.who = who
        self.scope = scope
        self._engine = engine
        self._bus = bus
        self._pauses = pauses

    @property
    def id(self) -> str:
        """The run's id, which is also the id of its task."""
        return self.who.run_id

    async def result(self) -> Finish:
        """How the run finished, once it has.

        Raises:
            RunFailedError: it ended with an error, which is the cause.
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

    async def events(self, *, children: bool = True) -> AsyncIterator[Event]:
        """The run's events from beginning to end, with those of the tasks it spawned unless `children` is False.

        The last one says how the run's task ended. A reader that is too slow finds a `bus.dropped` notice in the place
        of what it lost; of a run that ended long ago the stream holds what the bus still remembers.
        """
        tree = {self.id}
        everything = Filter.of(self.who.identity)
        subscription = self._bus.subscribe(everything)
        seen = 0
        try:
            # Asked before the replay: the last event of a run that is over is in it, or is forgotten.
            is_over = await self._has_ended()
            for event in map(typed_event, await self._bus.replay(Cursor(self.who.session_id, 0), everything)):
                seen = event.sequence
                if _belongs(event, tree, children):
                    yield event
                    if self._is_end(event):
                        return
            if is_over:
                return
            async for told in subscription.events():
                event = typed_event(told)
                is_notice = event.type == EventType.BUS_DROPPED
                # What has no number was told beside the record, so it was in no replay.
                is_new = not event.sequence or event.sequence > seen
                if is_notice or (is_new and _belongs(event, tree, children)):
                    yield event
                    if self._is_end(event):
                        return
        finally:
            subscription.cancel()

    async def _has_ended(self) -> bool:
        """Whether the run is over, so that nothing follows what the bus still remembers of it."""
        try:
            status = await self._engine.status(self.id)
        except RunNotFoundError:
            return True
        return status.phase.is_final

    def _is_end(self, event: Event) -> bool:
        return event.type in _ENDS and getattr(event.payload, "task_id", "") == self.id

    async def cancel(self, *, hard: bool = False) -> bool:
        """End the run: softly after the planner's next answer, `hard` at once, the call in flight included."""
        return await self._send(ControlType.CANCEL, {"hard": True} if hard else None)

    async def pause(self) -> bool:
        """Park the run at its next step boundary until somebody resumes it."""
        return await self._send(ControlType.PAUSE)

    async def resume(self, payload: dict[str, Any] | None = None) -> bool:
        """Let the parked run go on; the planner sees `payload`."""
        return await self._send(ControlType.RESUME, payload)

    async def redirect(self, goal: str) -> bool:
        """Give the run another goal.

        Raises:
            ValueError: the goal is empty.
        """
        if not goal:
            raise ValueError("redirect needs a goal; an empty one would change nothing")
        return await self._send(ControlType.REDIRECT, {"goal": goal})

    async def inject(self, context: dict[str, Any]) -> bool:
        """Give the planner context, visible at its next step."""
        return await self._send(ControlType.INJECT_CONTEXT, context)

    async def message(self, text: str) -> bool:
        """Say something to the planner as the user, visible at its next step."""
        return await self._send(ControlType.USER_MESSAGE, {"message": text})

    async def approve(self, token: str = "", *, reason: str = "", args: dict[str, Any] | None = None) -> bool:
        """Say yes: to the call that waits under `token`, with `args` in place of its own, else to the open pause."""
        return await self._send(ControlType.APPROVE, _answer(token, reason, args))

    async def reject(self, token: str = "", *, reason: str = "") -> bool:
        """Say no: to the call that waits under `token`, else to the open pause, which ends the run."""
        return await self._send(ControlType.REJECT, _answer(token, reason, None))

    async def prioritize(self, priority: int) -> bool:
        """Change the priority of the run's task; needs the admin scope."""
        return await self._send(ControlType.PRIORITIZE, {"priority": priority})

    async def _send(self, type: ControlType, payload: dict[str, Any] | None = None) -> bool:
        control = ControlEvent(type, self.who, self.scope, self.who.tenant_id, payload, new_id())
        try:
            return await self._engine.send(self.id, control)
        except SteeringError as error:
            await emit_rejection(self._bus, self.who, type, self.scope, error)
            raise


def _belongs(event: Event, tree: set[str], children: bool) -> bool:
    """Whether the event is about a run of the tree; a spawn below one of them grows the tree."""
    payload = event.payload
    if children and isinstance(payload, TaskSpawnedPayload) and payload.parent_task_id in tree:
        tree.add(payload.task_id)
    return event.identity.run_id in tree or getattr(payload, "task_id", "") in tree


def _answer(token: str, reason: str, args: dict[str, Any] | None) -> dict[str, Any] | None:
    payload: dict[str, Any] = {}
    if token:
        payload["token"] = token
    if reason:
        payload["reason"] = reason
    if args is not None:
        payload["args"] = args
    return payload or None
