"""The open questions of a run and of those below it: how they are found, and each with the methods that answer it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from harborage.runtime.durable.engine import Engine, RunEndedError
from harborage.runtime.durable.pauses.errors import AlreadyResumedError, PauseAmbiguousError, PauseNotFoundError
from harborage.runtime.loop.controls import ControlType
from harborage.runtime.loop.errors import NoOutstandingPauseError
from harborage.runtime.loop.pauses import Pause, PauseFilter
from harborage.tasks import RegistryClosedError, TaskFilter, TaskNotFoundError

if TYPE_CHECKING:
    from datetime import datetime

    from harborage.identity import Identity, Quadruple
    from harborage.planner import PauseReason
    from harborage.runtime.durable.pauses.coordinator import Coordinator
    from harborage.tasks import TaskRegistry

_AT_ONCE: Final = 100


class PauseFinder:
    """Finds the pauses of the run `who` and of those below it."""

    __slots__ = ("_engine", "_pauses", "_tasks", "_who")

    def __init__(self, who: Quadruple, engine: Engine, pauses: Coordinator, tasks: TaskRegistry | None) -> None:
        self._who = who
        self._engine = engine
        self._pauses = pauses
        self._tasks = tasks

    async def own(self, type: ControlType | None = None) -> list[Pause]:
        """Return the open pauses of the run itself; with a `type`, those that such an answer may be for."""
        return [pause for pause in await self._open_of((self._who.run_id,)) if takes(pause, type)]

    async def open(self) -> list[Pause]:
        """Return the open pauses of the run and of those below it, newest first."""
        found, below = await self.own(), await self._below(is_living=True)
        for at in range(0, len(below), _AT_ONCE):
            found += await self._open_of(tuple(below[at : at + _AT_ONCE]))
        return sorted(found, key=lambda pause: pause.paused_at, reverse=True)

    async def find(self, type: ControlType, token: str) -> Pause:
        """Return the pause that an answer is for: the one named `token`, else the only open one.

        Raises:
            PauseNotFoundError, PauseScopeMismatchError: neither the run nor one below it has such a pause.
            AlreadyResumedError: it was resolved before.
            NoOutstandingPauseError, PauseAmbiguousError: without a token, when none or several are open; the first
                one also for a RESUME of the approval of a call.
            RunEndedError: the run has ended, so nothing is open.
        """
        if not token:
            return await self._only(type)
        pause = await self._pauses.status(token, who=self._who)
        if pause.identity != self._who and not await self._is_below(pause.identity):
            raise PauseNotFoundError(token)
        if not pause.is_paused:
            await self._check_not_ended()
            raise AlreadyResumedError.of(pause)
        if not takes(pause, type):
            raise NoOutstandingPauseError(f"pause {token} is the approval of a call: approve or reject it")
        return pause

    async def was_sent(self, event_id: str, *, below: bool = False) -> bool:
        """Return whether a control with this event id was sent to the run, or, with `below`, to one below it."""
        if await self._engine.was_sent(self._who.run_id, event_id):
            return True
        run_ids = await self._below(is_living=False) if below else ()
        return any([await self._engine.was_sent(run_id, event_id) for run_id in run_ids])

    async def _open_of(self, runs: tuple[str, ...]) -> list[Pause]:
        who = self._who
        theirs = PauseFilter(users=(who.user_id,), sessions=(who.session_id,), runs=runs)
        return list((await self._pauses.list(theirs, page_size=200, who=who)).rows)

    async def _below(self, *, is_living: bool) -> list[str]:
        """Return the runs below this one; with `is_living` only those that have not ended."""
        below: list[str] = []
        if self._tasks is None:
            return below
        left = [self._who.run_id]
        with suppress(RegistryClosedError):  # of a runtime that was closed: its runs are not there any more
            while left:
                children = await self._tasks.list(self._who.identity, TaskFilter(parent=left.pop()))
                found = [child.id for child in children if not (is_living and child.status.is_terminal)]
                below += found
                left += found
        return below

    async def _is_below(self, who: Quadruple) -> bool:
        """Whether this run started that one, or one that did."""
        if self._tasks is None or who.identity != self._who.identity:
            return False
        run_id: str | None = who.run_id
        with suppress(TaskNotFoundError):
            while run_id and run_id != self._who.run_id:
                run_id = (await self._tasks.get(run_id, who=self._who)).parent_task_id
        return run_id == self._who.run_id

    async def _only(self, type: ControlType) -> Pause:
        pauses = [pause for pause in await self.open() if takes(pause, type)]
        if not pauses:
            await self._check_not_ended()
            text = f"run {self._who.run_id} waits for no answer; there is nothing to {type.lower()}"
            raise NoOutstandingPauseError(text)
        if len(pauses) > 1:
            raise PauseAmbiguousError(self._who.run_id, [(one.token, _summarize(one)) for one in reversed(pauses)])
        return pauses[0]

    async def _check_not_ended(self) -> None:
        if (await self._engine.status(self._who.run_id)).phase.is_final:
            raise RunEndedError(self._who.run_id)


def takes(pause: Pause, type: ControlType | None) -> bool:
    """Whether an answer of this type may be for a pause: a RESUME decides nothing about a call that is to be approved,
    so it must not stand in the way of the answer that does.
    """
    return type is not ControlType.RESUME or not pause.is_approval


def _summarize(pause: Pause) -> str:
    """Return the reason and tool of a pause; its payload is not quoted."""
    tool = (pause.payload or {}).get("tool")
    return f"{pause.reason}: {tool}" if isinstance(tool, str) and tool else str(pause.reason)


class TakesAnswers(Protocol):
    """The run that waits."""

    async def approve(
        self, token: str = "", *, reason: str = "", args: dict[str, Any] | None = None, remember: str = ""
    ) -> bool: ...

    async def reject(self, reason: str = "", *, token: str = "") -> bool: ...

    async def resume(self, payload: dict[str, Any] | None = None) -> bool: ...


class Question:
    """One open question of a run. `token` names it; `deadline` is until when it can be answered, None for ever.

    `tool` and `args` are those of the call that waits for approval; for any other question they are empty.
    """

    def __init__(self, pause: Pause) -> None:
        self.pause = pause

    @property
    def token(self) -> str:
        """What names the question in an answer."""
        return self.pause.token

    @property
    def run_id(self) -> str:
        """The run that waits."""
        return self.pause.identity.run_id

    @property
    def reason(self) -> PauseReason:
        """Why the run waits."""
        return self.pause.reason

    @property
    def tool(self) -> str:
        """The tool whose call waits for approval."""
        return str(self._payload.get("tool") or "")

    @property
    def args(self) -> dict[str, Any]:
        """The arguments of that call, without secrets."""
        summary = self._payload.get("args_summary")
        given = summary.get("args") if isinstance(summary, dict) else None
        return given if isinstance(given, dict) else {}

    @property
    def question(self) -> str:
        """What the person is asked."""
        return str(self._payload.get("question") or self._payload.get("reason") or "")

    @property
    def deadline(self) -> datetime | None:
        """Until when it can be answered."""
        return self.pause.deadline

    @property
    def requester(self) -> Identity:
        """Whose run asks."""
        return self.pause.identity.identity

    @property
    def _payload(self) -> dict[str, Any]:
        return self.pause.payload or {}

    def __repr__(self) -> str:
        return f"Pending({self.tool or self.reason}, token={self.token!r})"


class Pending(Question):
    """One open question of a run, with the methods that answer it."""

    def __init__(self, run: TakesAnswers, pause: Pause) -> None:
        super().__init__(pause)
        self._run = run

    async def approve(self, *, args: dict[str, Any] | None = None, reason: str = "", remember: str = "") -> bool:
        """Approve it; `args` are the arguments of the call that change. With `remember="run"` the same tool may be
        called until the run ends, with `"always"` with the same arguments in all runs of the principal.

        Raises:
            Exception: as of `Run.approve`.
        """
        return await self._run.approve(self.token, args=args, reason=reason, remember=remember)

    async def reject(self, reason: str = "") -> bool:
        """Reject it; the planner sees the reason.

        Raises:
            Exception: as of `Run.reject`.
        """
        return await self._run.reject(reason, token=self.token)

    async def answer(self, value: Any) -> bool:
        """Answer it with a value, which the planner sees.

        Raises:
            Exception: as of `Run.resume`.
        """
        return await self._run.resume({"token": self.token, "answer": value})
