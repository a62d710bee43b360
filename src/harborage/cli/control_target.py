"""The kept run that a control is sent to: found by an id or a token, its open questions, and the one answer to each.

The control is stored, and the worker that executes the run applies it, now or later. No worker needs to be running, and
no agent is loaded here.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from rich.console import Console

from harborage import codec
from harborage.app.project import is_command_session
from harborage.cli.find import find_named_run
from harborage.cli.questions import (
    is_approval,
    is_held_by_control,
    is_interrupted_call,
    question_of,
    render_question,
    shown_args,
)
from harborage.cli.status import reason_of, status_of
from harborage.cli.storage import WrongUseError, is_server, open_kept_storage, release_expired_leases
from harborage.cli.text import arguments, printable, shortened
from harborage.client.run import ControlFate
from harborage.clock import SYSTEM_CLOCK
from harborage.events import DurableEventBus
from harborage.ids import new_id
from harborage.runtime.durable.engine import RunNotFoundError
from harborage.runtime.durable.stored import StoredEngine
from harborage.runtime.history import all_runs, find_run
from harborage.runtime.history.reading import is_part
from harborage.runtime.loop.controls import ControlEvent, ControlType, Scope
from harborage.runtime.pauses import (
    MAX_PAGE_SIZE,
    AlreadyResumedError,
    Coordinator,
    Pause,
    PauseDecision,
    PauseFilter,
    PauseNotFoundError,
)
from harborage.runtime.run import Run
from harborage.store import RunQuery, RunRow, Store
from harborage.store.times import moment

if TYPE_CHECKING:
    from harborage.state.storage import Storage

_ANSWER_WAIT_S: Final = 2.0
_DECISIONS: Final = {
    ControlType.APPROVE: PauseDecision.APPROVE,
    ControlType.REJECT: PauseDecision.REJECT,
    ControlType.RESUME: PauseDecision.RESUME,
}
_LOOK_S: Final = 0.05
_MANY: Final = 1 << 30


class Sender(Protocol):
    """Sends controls to a run, in a database or on a server."""

    async def answer(self, question: Pause, type: ControlType, payload: dict[str, Any]) -> None:
        """Send the one answer to a question.

        Raises:
            AlreadyResumedError: another answer came first.
        """
        ...

    async def send(self, type: ControlType, payload: dict[str, Any]) -> ControlFate:
        """Send a control, and return what is known of its fate soon after."""
        ...


class ControlTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The run that a control is sent to, and its open questions with those of its tasks.

    `name` is the id, the token or the beginning of either on the command line; a token leaves its own question alone.
    """

    name: str
    record: RunRow
    questions: tuple[Pause, ...]
    sender: Sender

    def only_question(self, command: str) -> Pause:
        """Return the one open question; `command` is the command that answers it.

        Raises:
            WrongUseError: there is none, or there are several; the text lists them.
        """
        match self.questions:
            case [one]:
                return one
            case []:
                raise WrongUseError(
                    f"run {self.record.run_id} has no open question; its status is {_status(self.record)}"
                )
            case several:
                listed = "; ".join(f"{describe_question(one)}: harborage {command} {one.token}" for one in several)
                raise WrongUseError(f"{len(several)} questions are open; answer one by its token: {listed}")

    def confirm(self, question: Pause, command: str) -> None:
        """Let the person confirm the answer, unless the command line named the question by its whole token.

        The id of a run, or the beginning of one, names whatever waits there when the command runs; so the question is
        shown first.

        Raises:
            WrongUseError: there is no terminal to ask in, or the person declined; nothing was sent.
        """
        if self.name == question.token:
            return
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise WrongUseError(
                f"without a terminal the question is named by its whole token: {command} {question.token}"
            )
        shown = question_of(question)
        if shown is not None:
            console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
            for line in render_question(shown, SYSTEM_CLOCK.now(), console.width):
                console.print(line)
        sys.stderr.write(f"{command}: send this answer (y/N)? ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            raise WrongUseError("nothing was sent")


class _StoredSender:
    """Sends controls to a run in a database; the worker that executes it applies them."""

    def __init__(
        self, record: RunRow, engine: StoredEngine, bus: DurableEventBus, pauses: Coordinator, store: Store
    ) -> None:
        self.record = record
        self.engine = engine
        self.pauses = pauses
        self.store = store
        self.run = Run(record.quadruple, engine, bus, pauses, scope=Scope.ADMIN)

    async def send(self, type: ControlType, payload: dict[str, Any]) -> ControlFate:
        """Queue a control, without waiting for the worker that applies it."""
        event_id = new_id()
        await self.run.control(type, payload, event_id=event_id)
        return ControlFate(event_id=event_id, control=str(type), fate="sent")

    async def answer(self, question: Pause, type: ControlType, payload: dict[str, Any]) -> None:
        """Send the one answer to a question; while a worker executes the run, wait up to two seconds for its effect.

        Raises:
            AlreadyResumedError: another answer came first.
        """
        who = self.record.who.with_run(question.identity.run_id)
        answer = ControlEvent(type, who, Scope.OWNER_USER, who.tenant_id, payload, by=who.identity)
        try:
            await self.engine.send(who.run_id, answer)  # the first of two answers to one question counts
        except AlreadyResumedError as error:
            resolved = await self._wait_until_resolved(question)
            if resolved is not None:
                raise AlreadyResumedError(resolved.token, message=describe_resolved(resolved)) from error
            what = describe_question(question)
            text = f"{what} was already answered{await self._describe_sent(question)}; {next_step(self.record)}"
            raise AlreadyResumedError(question.token, message=text) from error
        resolved = await self._wait_until_resolved(question)
        if resolved is not None and resolved.decision != _DECISIONS[type]:
            raise AlreadyResumedError(resolved.token, message=describe_resolved(resolved))

    async def _describe_sent(self, question: Pause) -> str:
        """Return what the answer is that no worker has applied yet, by whom and when; "" when it is gone by now."""
        pending = (await self.pauses.status(question.token, who=question.identity)).answering
        for sent in await self.store.controls(question.identity.run_id, limit=_MANY):
            if pending and sent.event_id == pending:
                control = codec.decode(sent.data, ControlEvent)
                by = printable(control.identity.user_id, keep="")
                return f": {control.type.lower()} by {by} at {moment(sent.sent_at):%Y-%m-%d %H:%M:%S} UTC"
        return ""

    async def _wait_until_resolved(self, question: Pause) -> Pause | None:
        """Return the question once it is resolved; None when that takes longer than two seconds."""
        ends_at = SYSTEM_CLOCK.monotonic() + _ANSWER_WAIT_S
        while True:
            now = await self.pauses.status(question.token, who=question.identity)
            if not now.is_paused:
                return now
            if not self.record.owner or SYSTEM_CLOCK.monotonic() >= ends_at:
                return None
            await asyncio.sleep(_LOOK_S)


@asynccontextmanager
async def open_target(place: str, name: str) -> AsyncIterator[ControlTarget]:
    """Open the run that `name` names on the command line: by an id, a token, or the beginning of either.

    Raises:
        RunNotFoundError, RunPrefixError: it names no run, or several.
        NoDatabaseError, StateError: there is no database, or it cannot be read.
        RemoteError, RemoteUnreachableError: the server refused, or none answered.
        AlreadyResumedError: it is the token of a question that was answered before.
    """
    if is_server(place):
        from harborage.cli.server_target import open_server_target

        async with open_server_target(place, name) as target:
            yield target
        return
    async with open_kept_storage(place, writes=True) as storage:
        await release_expired_leases(storage)
        bus = DurableEventBus(storage.store)
        pauses = Coordinator(bus=bus, store=storage.store)
        engine = StoredEngine(storage.store, pauses)
        try:
            record, questions = await _find(storage, name, pauses, place)
            sender = _StoredSender(record, engine, bus, pauses, storage.store)
            yield ControlTarget(name=name, record=record, questions=tuple(questions), sender=sender)
        finally:
            await engine.aclose()
            await bus.aclose()


def describe_resolved(resolved: Pause) -> str:
    at = "" if resolved.resumed_at is None else f" at {resolved.resumed_at:%Y-%m-%d %H:%M:%S} UTC"
    by = f" by {printable(resolved.resolved_by, keep='')}" if resolved.resolved_by else ""
    return f"{describe_question(resolved)} was already answered: {resolved.decision}{by}{at}"


async def _find(storage: Storage, name: str, pauses: Coordinator, url: str) -> tuple[RunRow, list[Pause]]:
    """Return the run that `name` names and its open questions; for a token only the question of that token."""
    question = await _find_question(pauses, name)
    if question is not None:
        return await find_run(storage.store, question.identity.run_id, where=url), [question]
    try:
        record = await find_named_run(storage.store, name, where=url, is_unfinished=True)
    except RunNotFoundError:
        matching = [one for one in await pauses.list_all_open() if name and is_part(name, one.token)]
        if len(matching) != 1:
            raise
        return await find_run(storage.store, matching[0].identity.run_id, where=url), matching
    of_runs = PauseFilter(runs=tuple(await _run_and_tasks(storage, record)))
    found = (await pauses.list(of_runs, page_size=MAX_PAGE_SIZE, who=record.quadruple)).rows
    return record, [one for one in reversed(found) if not is_held_by_control(one)]


async def _find_question(pauses: Coordinator, token: str) -> Pause | None:
    """Return the open question with this token; None when it is no token.

    Raises:
        AlreadyResumedError: it was answered before.
    """
    try:
        found = await pauses.status(token)
    except PauseNotFoundError:
        return None
    if not found.is_paused:
        raise AlreadyResumedError(found.token, message=describe_resolved(found))
    return found


async def _run_and_tasks(storage: Storage, record: RunRow) -> set[str]:
    """The ids of the run and of its tasks: each `harborage run` has a session of its own."""
    who = record.who
    same_session = RunQuery(tenant=who.tenant_id, user=who.user_id, session=who.session_id, agent=record.agent)
    has_session = is_command_session(who.session_id)
    return {one.run_id for one in await all_runs(storage.store, same_session)} if has_session else {record.run_id}


def require_unfinished(record: RunRow) -> RunRow:
    """Return the run, unless it has ended.

    Raises:
        WrongUseError: it has ended.
    """
    if record.status.is_final:
        raise WrongUseError(
            f"run {record.run_id} has ended ({_status(record)}); "
            f"start another from any of its steps: harborage fork {record.run_id} --at STEP"
        )
    return record


def describe_question(pause: Pause, args: dict[str, Any] | None = None) -> str:
    """Return what a question is about, on one line; `args` replace the arguments of its call."""
    payload = pause.payload or {}
    if is_interrupted_call(pause):
        return printable(f"outcome of {payload['tool']}({arguments(shown_args(payload.get('args_summary')))})", keep="")
    if is_approval(pause):
        shown = shown_args(payload.get("args_summary")) if args is None else args
        return printable(f"{payload['tool']}({arguments(shown)})", keep="")
    return f"{pause.reason}: {shortened(payload)}" if payload else str(pause.reason)


def next_step(record: RunRow) -> str:
    """Return what happens now with a control that was stored, in a few words."""
    if record.owner:
        return "the worker that executes the run applies it"
    return f"no worker is running it; continue with: harborage resume {record.run_id}"


def _status(record: RunRow) -> str:
    status, reason = status_of(record), reason_of(record)
    return f"{status} ({reason})" if reason not in ("", status) else status
