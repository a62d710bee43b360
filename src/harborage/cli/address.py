"""A control sent to a kept run from any terminal: it is written, and whoever carries the run applies it, now or later.

Nothing needs to be up. No agent is loaded: what a control may say is checked here, what it means there.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec
from rich.console import Console

from harborage.app.own_sessions import is_own
from harborage.cli.questions import announced_args, described, is_doubt, is_gate, is_held, question_of
from harborage.cli.status import status_of, why
from harborage.cli.storage import find_open, free_orphans, kept_runs
from harborage.cli.text import arguments, printable, shortened
from harborage.clock import SYSTEM_CLOCK
from harborage.errors import HarborageError
from harborage.events import DurableEventBus
from harborage.runtime.engines.stored import StoredEngine
from harborage.runtime.history import RunUnknownError, all_runs, find_run
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
from harborage.runtime.steering.controls import ControlEvent, ControlType, Scope
from harborage.store import RunQuery, RunRow

if TYPE_CHECKING:
    from harborage.state.storage import Storage

__all__ = [
    "Addressed",
    "AnsweredAlreadyError",
    "NotConfirmedError",
    "NotWaitingError",
    "RunOverError",
    "addressed",
    "asked",
    "open_run",
    "what_now",
]

_PATIENCE_S: Final = 2.0
_DECISIONS: Final = {
    ControlType.APPROVE: PauseDecision.APPROVE,
    ControlType.REJECT: PauseDecision.REJECT,
    ControlType.RESUME: PauseDecision.RESUME,
}
_LOOK_S: Final = 0.05


class NotConfirmedError(HarborageError):
    """An answer was not sent: what it answers was neither named by its whole token nor shown and confirmed."""


class AnsweredAlreadyError(HarborageError):
    """An answer was not sent: another one came first."""


class NotWaitingError(HarborageError):
    """Nothing waits there for an answer, or more than one question does; the text lists them."""


class RunOverError(HarborageError):
    """The run is over: nothing can be said to it any more."""


class Addressed(msgspec.Struct, frozen=True, kw_only=True):
    """The run that is spoken to, and its open questions with those of its tasks; of a token the one that it names."""

    word: str
    record: RunRow
    questions: tuple[Pause, ...]
    run: Run
    engine: StoredEngine
    bus: DurableEventBus
    pauses: Coordinator

    def question(self, does: str) -> Pause:
        """The one question that is open; `does` is the command that answers.

        Raises:
            NotWaitingError: there is none, or there are several.
        """
        match self.questions:
            case [one]:
                return one
            case []:
                raise NotWaitingError(
                    f"run {self.record.run_id} waits for no answer; its status is {_stand(self.record)}"
                )
            case several:
                listed = "; ".join(f"{asked(one)}: harborage {does} {one.token}" for one in several)
                raise NotWaitingError(f"{len(several)} questions are open, say which one: {listed}")

    def confirm(self, question: Pause, does: str) -> None:
        """Accept an answer to a question that the command line names by its whole token, or that is confirmed now.

        An id of a run, or the beginning of one, names whatever waits there by the time that the command is given; the
        question itself is shown then, and a person says yes to it.

        Raises:
            NotConfirmedError: there is no terminal to ask at, or the person said no; nothing was sent.
        """
        if self.word == question.token:
            return
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise NotConfirmedError(f"say which question you mean by its whole token: {does} {question.token}")
        shown = question_of(question)
        if shown is not None:
            console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
            for line in described(shown, SYSTEM_CLOCK.now(), console.width):
                console.print(line)
        sys.stderr.write(f"{does} this (y/N)? ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            raise NotConfirmedError("nothing was sent")

    async def deliver(self, question: Pause, type: ControlType, payload: dict[str, Any]) -> None:
        """Send the one answer to a question; where a worker executes the run, wait a moment for what comes of it.

        Raises:
            AnsweredAlreadyError: another answer came first.
        """
        who = self.record.who.with_run(question.identity.run_id)
        answer = ControlEvent(type, who, Scope.OWNER_USER, who.tenant_id, payload)
        try:
            await self.engine.send(who.run_id, answer)  # of two answers to one question, one is taken
        except AlreadyResumedError as error:
            settled = await self._settled(question)
            if settled is not None:
                raise AnsweredAlreadyError(_already(settled)) from error
            raise AnsweredAlreadyError(f"{asked(question)} was already answered; {what_now(self.record)}") from error
        settled = await self._settled(question)
        if settled is not None and settled.decision != _DECISIONS[type]:
            raise AnsweredAlreadyError(_already(settled))

    async def _settled(self, question: Pause) -> Pause | None:
        """The question once it is settled; None when that does not happen within two seconds."""
        ends_at = SYSTEM_CLOCK.monotonic() + _PATIENCE_S
        while True:
            now = await self.pauses.status(question.token, who=question.identity)
            if not now.is_paused:
                return now
            if not self.record.owner or SYSTEM_CLOCK.monotonic() >= ends_at:
                return None
            await asyncio.sleep(_LOOK_S)


@asynccontextmanager
async def addressed(url: str, wanted: str) -> AsyncIterator[Addressed]:
    """The run, or the question, that a word of the command line names: an id, a token, or the beginning of either.

    Raises:
        RunUnknownError, RunPrefixError: it names none, or several.
        NoDatabaseError, StateError: there is nothing to read, or it cannot be read.
    """
    async with kept_runs(url, writes=True) as storage:
        await free_orphans(storage)
        bus = DurableEventBus(storage.store)
        pauses = Coordinator(bus=bus, store=storage.store)
        engine = StoredEngine(storage.store, pauses)
        try:
            record, questions = await _named(storage, wanted, pauses, url)
            run = Run(record.quadruple, engine, bus, pauses)
            yield Addressed(
                word=wanted, record=record, questions=tuple(questions), run=run, engine=engine, bus=bus, pauses=pauses
            )
        finally:
            await engine.aclose()
            await bus.aclose()


def _already(settled: Pause) -> str:
    at = "" if settled.resumed_at is None else f" at {settled.resumed_at:%Y-%m-%d %H:%M:%S} UTC"
    by = f" by {printable(settled.settled_by, keep='')}" if settled.settled_by else ""
    return f"{asked(settled)} was already answered: {settled.decision}{by}{at}"


async def _named(storage: Storage, wanted: str, pauses: Coordinator, url: str) -> tuple[RunRow, list[Pause]]:
    question = await _question(pauses, wanted)
    if question is not None:
        return await find_run(storage.store, question.identity.run_id, where=url), [question]
    try:
        record = await find_open(storage.store, wanted, where=url)
    except RunUnknownError:
        begins = [one for one in await pauses.every_open() if wanted and one.token.upper().startswith(wanted.upper())]
        if len(begins) != 1:
            raise
        return await find_run(storage.store, begins[0].identity.run_id, where=url), begins
    theirs = PauseFilter(runs=tuple(await _family(storage, record)))
    found = (await pauses.list(theirs, page_size=MAX_PAGE_SIZE, who=record.quadruple)).rows
    return record, [one for one in reversed(found) if not is_held(one)]


async def _question(pauses: Coordinator, token: str) -> Pause | None:
    """The open question with this token; None when it is no token.

    Raises:
        AnsweredAlreadyError: it was answered before.
    """
    try:
        found = await pauses.status(token)
    except PauseNotFoundError:
        return None
    if not found.is_paused:
        raise AnsweredAlreadyError(_already(found))
    return found


async def _family(storage: Storage, record: RunRow) -> set[str]:
    """The run, and those that it may have spawned: of the command line every run has a session of its own."""
    who = record.who
    mine = RunQuery(tenant=who.tenant_id, user=who.user_id, session=who.session_id, agent=record.agent)
    is_alone = is_own(who.session_id)
    return {one.run_id for one in await all_runs(storage.store, mine)} if is_alone else {record.run_id}


def open_run(record: RunRow) -> RunRow:
    """The run, as long as it is not over.

    Raises:
        RunOverError: it is.
    """
    if record.status.is_final:
        way = f"harborage fork {record.run_id} --at STEP begins another from any of its steps"
        raise RunOverError(f"run {record.run_id} is over ({_stand(record)}); {way}")
    return record


def asked(pause: Pause, args: dict[str, Any] | None = None) -> str:
    """What a question is about, on one line; `args` are those that its call is made with in place of its own."""
    payload = pause.payload or {}
    if is_doubt(pause):
        return printable(
            f"what became of {payload['tool']}({arguments(announced_args(payload.get('args_summary')))})", keep=""
        )
    if is_gate(pause):
        shown = announced_args(payload.get("args_summary")) if args is None else args
        return printable(f"{payload['tool']}({arguments(shown)})", keep="")
    return f"{pause.reason}: {shortened(payload)}" if payload else str(pause.reason)


def what_now(record: RunRow) -> str:
    """Who acts on what was written."""
    if record.owner:
        return "the process that carries the run acts on it"
    return f"no worker is running it; continue with: harborage resume {record.run_id}"


def _stand(record: RunRow) -> str:
    reason = why(record)
    return f"{status_of(record)}{f' ({reason})' if reason else ''}"
