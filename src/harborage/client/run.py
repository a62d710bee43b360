"""`RemoteRun`: the handle on one run of a server, with the face of `harborage.runtime.run.Run`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from harborage.client.answers import Accepted, OutT_co, PausePage, RemoteResult, TaskDetail, TaskPage
from harborage.client.events import EventStream, StreamOptions
from harborage.client.following import ENDS, follow
from harborage.client.history import RecordedRun
from harborage.errors import InvalidOptionError, at_least, one_of
from harborage.events import Event, EventType, LLMCompletionChunkPayload
from harborage.ids import new_id
from harborage.planner import FinishReason
from harborage.planner.decisions import ChunkKind
from harborage.runtime.durable.engine import RunEndedError, RunFailedError, RunNotFoundError, RunStatus
from harborage.runtime.durable.pauses.errors import AlreadyResumedError, PauseAmbiguousError, PauseNotFoundError
from harborage.runtime.loop.controls import ControlType, Remember, Scope, check_scope
from harborage.runtime.loop.errors import NoOutstandingPauseError
from harborage.runtime.loop.pauses import Pause, PauseState
from harborage.runtime.loop.payload import body_for
from harborage.runtime.loop.workflow_waits import value_of_answer
from harborage.runtime.pending import Pending
from harborage.tasks.rules import check_priority

if TYPE_CHECKING:
    from harborage.client.connection import Connection
    from harborage.identity import Quadruple
    from harborage.planner import Finish

T = TypeVar("T")

_QUESTIONS: Final = frozenset({EventType.TOOL_APPROVAL_REQUESTED, EventType.PAUSE_REQUESTED})
_CONTENT: Final = str(ChunkKind.CONTENT)
_PAGE: Final = 200


class ControlFate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of a control: `applied`, `failed` or `rejected`, or `sent` where the run has not reached it yet.

    `why` is the code of a control that was not applied.
    """

    event_id: str
    control: str
    fate: str
    step: int = 0
    why: str = ""

    @property
    def counted(self) -> bool:
        """Whether it was not refused."""
        return self.fate in ("sent", "applied")


class RemoteRun(RecordedRun, Generic[OutT_co]):
    """A handle of one run on a server, for a caller with `scope`. Get one from `RemoteRuntime.start` or `.run`.

    Its methods are those of `harborage.Run`. Every control has an id of its own, so one that is sent again after a lost
    answer counts once. A control returns once the server has it in its log; its outcome is that of `send_and_wait`, and
    the events say it.
    """

    def __init__(
        self,
        who: Quadruple,
        connection: Connection,
        *,
        scope: Scope = Scope.OWNER_USER,
        decode: Callable[[Any], OutT_co] | None = None,
    ) -> None:
        self.who = who
        self.scope = scope
        self._connection = connection
        self._is_text = decode is None
        self._decode: Callable[[Any], Any] = (lambda payload: payload) if decode is None else decode

    @property
    def id(self) -> str:
        """The run's id, which is also the id of its task."""
        return self.who.run_id

    async def finished(self) -> Finish:
        """How the run finished, once it has.

        Raises:
            RunFailedError: it ended with an error.
            RunBlockedError: it needs other code, or a repair; it is kept, and this may be called again.
            RunNotFoundError: there is no such run, or it is another owner's.
        """
        return await self._finish(await self._ended())

    async def _finish(self, found: TaskDetail) -> Finish:
        """How the run finished, its whole answer included."""
        finish = found.finish()
        if not (kept := found.kept_answer):
            return finish
        from harborage.client.artifacts import download  # loaded by the first answer that is too large for a list

        whole = msgspec.json.decode(await download(self._connection, self.who.identity, kept))
        is_json = isinstance(whole, str) and not self._is_text  # a typed output is kept as its JSON text
        return msgspec.structs.replace(finish, payload=msgspec.json.decode(whole) if is_json else whole)

    async def _ended(self) -> TaskDetail:
        """What the server says of the run once it has ended."""
        found = await self.detail()
        while not found.task.is_final:
            options = StreamOptions(run=self.id, types=ENDS)
            async with aclosing(self._follow(options, settle_s=0)) as events:
                async for _ in events:
                    pass  # the stream ends with the run
            found = await self.detail()
        return found

    async def result(self) -> RemoteResult[OutT_co]:
        """What the run gave, with its output as the type that was named, once it has reached its goal.

        Raises:
            RunFailedError: it ended with an error, or without reaching its goal: `reason` says why.
            RunBlockedError: as of `finished`.
        """
        found = await self._ended()
        finish = await self._finish(found)
        if finish.reason is not FinishReason.GOAL:
            raise RunFailedError(self.id, str(finish.reason), reason=finish.reason, usage=found.usage)
        return RemoteResult(output=self._decode(finish.payload), run_id=self.id, usage=found.usage, finish=finish)

    async def detail(self) -> TaskDetail:
        """Return what the server says of the run.

        Raises:
            RunNotFoundError: there is no such run, or it is another owner's.
        """
        return await self._ask("tasks.get", {"id": self.id}, TaskDetail)

    async def status(self) -> RunStatus:
        """Return the run's current status."""
        return (await self.detail()).task.status_for(self.who.identity)

    async def waiting(self) -> list[Pause]:
        """Return the open pauses of this run: what it waits for, until when, and the token to answer with."""
        return await self._pauses(PauseState.PAUSED, run_ids=[self.id])

    async def pending(self) -> list[Pending]:
        """Return the open questions of this run and of the runs below it, newest first; each has the methods that
        answer it."""
        return [Pending(self._run_of(pause), pause) for pause in await self._open_pauses()]

    async def wait_pending(self) -> Pending:
        """Wait until the run, or one below it, asks a person something; return the oldest open question.

        Raises:
            NoOutstandingPauseError: it ended without asking.
            RunBlockedError: it is blocked, as of `finished`.
        """
        if found := await self.pending():
            return found[-1]
        async with aclosing(self.events()) as events:
            async for event in events:
                if event.type in _QUESTIONS and (found := await self.pending()):
                    return found[-1]
        raise NoOutstandingPauseError(f"run {self.id} has ended without asking anybody")

    async def text(self) -> AsyncGenerator[str, None]:
        """Yield what the model writes, piece by piece as it comes, without that of the tasks that the run spawned.

        Pieces are not stored: a caller who comes late, or whose connection was cut, gets those that are still to come.

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

        The last one is the output itself.

        Raises:
            RunFailedError: the run ended without reaching its goal.
            Exception: as of `events`.
        """
        from harborage.runtime.partials import read_outputs  # loaded by the first reader of a growing output

        reading = read_outputs(self.events(children=False), self.result, self._decode)
        async with aclosing(reading) as outputs:
            async for output in outputs:
                yield output

    def events(self, *, children: bool = True, after: int = 0) -> AsyncGenerator[Event, None]:
        """Yield the run's events from beginning to end, with those of the tasks it spawned unless `children` is False.

        A connection that is cut is opened again, and the stream goes on where it was. A subscriber of its own goes on
        with `after`: the highest `sequence` it has read. The last event is the end of the run's task. A `bus.dropped`
        notice stands for events that the server keeps no more.

        Raises:
            RemoteUnreachableError: the server did not come back in time.
            RunBlockedError: the run is blocked, as of `finished`.
            InvalidOptionError: `after` is no number.
        """
        at_least(0, after, "events: after", is_whole=True)
        return self._follow(StreamOptions(run=self.id, children=children, after=after))

    def _follow(self, options: StreamOptions, *, settle_s: float = 1.0) -> AsyncGenerator[Event, None]:
        stream = EventStream(self._connection, self.who.identity, options)
        return follow(stream, self.id, self.status, settle_s=settle_s)

    async def cancel(self, *, hard: bool = False) -> bool:
        """End the run: softly after the planner's next answer, `hard` at once, the call in flight included.

        Raises:
            InvalidOptionError: `hard` is neither True nor False.
            RunNotFoundError, RunEndedError, ScopeMismatchError: the server refused the control.
        """
        if not isinstance(hard, bool):
            raise InvalidOptionError("cancel: hard", hard, "True or False")
        return await self.control(ControlType.CANCEL, {"hard": True} if hard else None)

    async def pause(self) -> bool:
        """Park the run at its next step boundary until a RESUME."""
        return await self.control(ControlType.PAUSE)

    async def resume(self, payload: dict[str, Any] | None = None) -> bool:
        """Resume the parked run; the planner sees `payload`. A `token` in it names the pause to answer.

        Raises:
            InvalidOptionError: `payload` is neither None nor a dict.
            PauseNotFoundError, AlreadyResumedError: it names none of this run, or one that was resolved before.
        """
        _check(payload is None or isinstance(payload, dict), "resume: payload", payload, "a dict or None")
        token = (payload or {}).get("token")
        if isinstance(token, str) and token:
            return await self._answer(ControlType.RESUME, token, payload or {})
        return await self.control(ControlType.RESUME, payload)

    async def redirect(self, goal: str) -> bool:
        """Give the run another goal.

        Raises:
            ValueError: the goal is empty, or no text.
        """
        _check(isinstance(goal, str), "redirect: goal", goal, "a text")
        if not goal:
            raise ValueError("redirect needs a goal; an empty one would change nothing")
        return await self.control(ControlType.REDIRECT, {"goal": goal})

    async def inject(self, context: dict[str, Any]) -> bool:
        """Give the planner context, visible at its next step.

        Raises:
            InvalidOptionError: `context` is no dict.
        """
        _check(isinstance(context, dict), "inject: context", context, "a dict")
        return await self.control(ControlType.INJECT_CONTEXT, context)

    async def message(self, text: str) -> bool:
        """Send the planner a message of the user, visible at its next step.

        Raises:
            InvalidOptionError: `text` is no text.
        """
        _check(isinstance(text, str), "message: text", text, "a text")
        return await self.control(ControlType.USER_MESSAGE, {"message": text})

    async def approve(
        self,
        token: str = "",
        *,
        reason: str = "",
        args: dict[str, Any] | None = None,
        args_patch: dict[str, Any] | None = None,
        remember: str = "",
    ) -> bool:
        """Approve the pause `token`, by default the only open one of this run and of those below it.

        `args` are the arguments of its call that change, None takes one out; `args_patch` is a JSON merge patch. With
        `remember="run"` the same tool may be called until the run ends, with `"always"` with the same arguments in all
        runs of the user.

        Raises:
            InvalidOptionError: `args` is neither None nor a dict, or `token` or `reason` is no text; nothing was sent.
            NoOutstandingPauseError, PauseAmbiguousError: without a token, when none or several are open.
            PauseNotFoundError: the run has no such pause.
            AlreadyResumedError: it was resolved before.
            RunEndedError: the run has ended.
        """
        body: dict[str, Any] = {}
        for name, value in (("args", args), ("args_patch", args_patch)):
            _check(value is None or isinstance(value, dict), f"approve: {name}", value, "a dict or None")
            body |= {} if value is None else {name: value}
        if remember:
            body["remember"] = str(one_of(Remember, remember, "approve: remember"))
        return await self._answer(ControlType.APPROVE, token, {**body, **_reason("approve", reason)})

    async def reject(self, reason: str = "", *, token: str = "") -> bool:
        """Reject the pause `token`, by default the only open one; the planner sees the reason.

        If it is not the approval of a call, the run ends.

        Raises:
            Exception: as `approve`.
        """
        return await self._answer(ControlType.REJECT, token, _reason("reject", reason))

    async def answer(self, value: Any) -> bool:
        """Answer the only open question with a value, which the planner sees as `answer`.

        Raises:
            NoOutstandingPauseError, PauseAmbiguousError: none or several are open; `pending` lists them.
            PayloadInvalidError: the question of a workflow takes a value of another type; nothing was sent.
            Exception: as `resume`.
        """
        return await self._answer(ControlType.RESUME, "", {"answer": value})

    async def prioritize(self, priority: int) -> bool:
        """Change the priority of the run's task; needs a handle with `scope=Scope.ADMIN` and a token with that scope.

        Raises:
            InvalidOptionError: it is no whole number from -1000 to 1000.
        """
        check_priority(priority, "prioritize: priority")
        return await self.control(ControlType.PRIORITIZE, {"priority": priority})

    async def control(self, type: ControlType, payload: Mapping[str, Any] | None = None, *, event_id: str = "") -> bool:
        """Queue one of the nine controls for the run; it is kept once this returns.

        With the `event_id` of an earlier control it is that one.

        Raises:
            RunNotFoundError, RunEndedError: there is no such run, or it takes no more controls.
            ScopeMismatchError, PayloadInvalidError: the control was refused.
        """
        check_scope(type, self.scope, self.who.tenant_id, self.who)
        body: dict[str, Any] = {"event_id": event_id or new_id()}
        if payload:
            body["payload"] = dict(payload)
        identity = {"run": self.id, "scope": str(self.scope)}
        try:
            found = await self._ask(str(type).lower(), body, Accepted, identity)
        except RunNotFoundError:
            if (await self.status()).phase.is_final:
                raise RunEndedError(self.id) from None
            raise
        return found.accepted

    async def send_and_wait(
        self, type: ControlType, payload: Mapping[str, Any] | None = None, *, seconds: float = 2.0
    ) -> ControlFate:
        """Send a control and wait up to `seconds` for what the run makes of it.

        Raises:
            Exception: as of `control`.
        """
        from harborage.client.steering import send_and_wait  # loaded by the first caller who wants to know

        return await send_and_wait(self, self._connection, type, payload or {}, seconds)

    async def _answer(self, type: ControlType, token: str, body: Mapping[str, Any]) -> bool:
        _check(isinstance(token, str), f"{type.lower()}: token", token, "a text")
        run, pause = await self.find_pause(type, token)
        if body.get("reason") == pause.token:
            fix = f"{type.lower()}: the reason is the token of the pause; write token={pause.token!r}"
            raise InvalidOptionError("reason", pause.token, message=fix)
        body, schema = body_for(pause.payload, dict(body)), (pause.payload or {}).get("schema")
        if type is ControlType.RESUME and isinstance(schema, dict) and ("answer" in body or "message" in body):
            value_of_answer(schema, body)
        return await run.control(type, {**body, "token": pause.token})

    async def find_pause(self, type: ControlType, token: str = "") -> tuple[RemoteRun[Any], Pause]:
        """Return the run, this one or one below it, and its pause that an answer is for.

        Raises:
            Exception: as of `approve`.
        """
        check_scope(type, self.scope, self.who.tenant_id, self.who)
        pauses = await self._open_pauses()
        if token:
            found = [one for one in pauses if one.token == token] or await self._resolved(token)
            if not found[0].is_paused:
                raise AlreadyResumedError.of(found[0])
        else:
            found = pauses
            if not found:
                if (await self.status()).phase.is_final:
                    raise RunEndedError(self.id)
                raise NoOutstandingPauseError(f"run {self.id} waits for no answer; there is nothing to {type.lower()}")
            if len(found) > 1:
                raise PauseAmbiguousError(self.id, [(one.token, str(one.reason)) for one in reversed(found)])
        return self._run_of(found[0]), found[0]

    async def _resolved(self, token: str) -> list[Pause]:
        """The resolved pause with this token.

        Raises:
            PauseNotFoundError: there is none.
        """
        for pause in await self._pauses(PauseState.RESUMED, session_ids=[self.who.session_id]):
            if pause.token == token and await self._is_of_tree(pause.identity.run_id):
                return [pause]
        raise PauseNotFoundError(token)

    async def _open_pauses(self) -> list[Pause]:
        """The open pauses of this run and of the runs below it, newest first."""
        found = await self._pauses(PauseState.PAUSED, session_ids=[self.who.session_id])
        return [pause for pause in found if await self._is_of_tree(pause.identity.run_id)]

    async def _is_of_tree(self, run_id: str) -> bool:
        """Whether a run of the session is this one, or one that it started, or one below that."""
        seen: set[str] = set()
        while run_id and run_id != self.id and run_id not in seen:
            seen.add(run_id)
            try:
                above = await self._ask("tasks.get", {"id": run_id}, TaskDetail, about=run_id)
            except RunNotFoundError:
                return False
            run_id = above.task.parent_task_id
        return run_id == self.id

    async def _pauses(self, state: PauseState, **narrowed: list[str]) -> list[Pause]:
        """The pauses in a state, newest first, page by page."""
        found: list[Pause] = []
        page = 1
        while True:
            body = {"filter": {"status": [str(state)], **narrowed}, "page": page, "page_size": _PAGE}
            answer = await self._ask("pause.list", body, PausePage)
            found += [one.pause_for(self.who.identity) for one in answer.snapshots]
            if not answer.snapshots or page >= answer.page_count:
                return found
            page += 1

    async def children(self) -> list[RemoteRun[Any]]:
        """Return the runs that this one started, newest first; the first 200 of them."""
        body = {"filter": {"parent_task_id": self.id}, "page_size": _PAGE}
        rows = (await self._ask("tasks.list", body, TaskPage)).rows
        return [self._other(row.identity.identity(self.who.identity).with_run(row.id)) for row in rows]

    def _run_of(self, pause: Pause) -> RemoteRun[Any]:
        """The run that waits on a pause: this one, or one below it."""
        return self if pause.identity.run_id in ("", self.id) else self._other(pause.identity)

    def _other(self, who: Quadruple) -> RemoteRun[Any]:
        return RemoteRun(who, self._connection, scope=self.scope)

    async def _ask(
        self,
        method: str,
        body: Mapping[str, Any],
        answer: type[T],
        identity: Mapping[str, str] | None = None,
        *,
        about: str = "",
    ) -> T:
        who = self.who
        named = {"tenant": who.tenant_id, "user": who.user_id, "session": who.session_id, **(identity or {})}
        asked = {"identity": named, **body}
        return await self._connection.ask(method, asked, answer, who=who.identity, run_id=about or self.id)


def _reason(method: str, reason: str) -> dict[str, str]:
    _check(isinstance(reason, str), f"{method}: reason", reason, "a text")
    return {"reason": reason} if reason else {}


def _check(is_fine: bool, option: str, value: object, expected: str) -> None:
    if not is_fine:
        raise InvalidOptionError(option, value, expected)
