"""A control sent to a kept run from any terminal: it is written, and whoever carries the run applies it, now or later.

Nothing needs to be up. No agent is loaded: what a control may say is checked here, what it means there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from harborage.app.own_sessions import is_own
from harborage.cli.questions import announced_args, is_doubt, is_gate, is_held
from harborage.cli.storing import find_open, free_orphans, kept_runs
from harborage.cli.text import arguments, printable, shortened
from harborage.errors import HarborageError
from harborage.events import DurableEventBus
from harborage.runtime.engines.stored import StoredEngine
from harborage.runtime.history import RunUnknownError, all_runs, find_run
from harborage.runtime.pauses import Coordinator, Pause
from harborage.runtime.run import Run
from harborage.state.runs import RunFilter, RunRecord
from harborage.state.storage import Storage

__all__ = ["Addressed", "NotWaitingError", "RunOverError", "addressed", "asked", "open_run", "token_for", "what_now"]


class NotWaitingError(HarborageError):
    """Nothing waits there for an answer, or more than one question does; the text lists them."""


class RunOverError(HarborageError):
    """The run is over: nothing can be said to it any more."""


class Addressed(msgspec.Struct, frozen=True, kw_only=True):
    """The run that is spoken to, and its open questions with those of its tasks; of a token the one that it names."""

    record: RunRecord
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
                raise NotWaitingError(f"run {self.record.run_id} waits for no answer; it stands {_stand(self.record)}")
            case several:
                listed = "; ".join(f"{asked(one)}: harborage {does} {one.token}" for one in several)
                raise NotWaitingError(f"{len(several)} questions are open, say which one: {listed}")

    def asker(self, question: Pause) -> Run:
        """The handle on the run that asks: this one, or a task of it."""
        who = self.record.who.identity.with_run(question.identity.run_id)
        return Run(who, self.engine, self.bus, self.pauses)


@asynccontextmanager
async def addressed(url: str, wanted: str) -> AsyncIterator[Addressed]:
    """The run, or the question, that a word of the command line names: an id, a token, or the beginning of either.

    Raises:
        RunUnknownError, RunPrefixError: it names none, or several.
        NoDatabaseError, StateError: there is nothing to read, or it cannot be read.
    """
    async with kept_runs(url) as storage:
        await free_orphans(storage)
        bus = DurableEventBus(storage.events)
        pauses = Coordinator(bus=bus, store=storage.state)
        engine = StoredEngine(storage.runs, storage.queue, pauses)
        try:
            open_pauses = await pauses.every_open()
            record, questions = await _named(storage, wanted, open_pauses, url)
            run = Run(record.who, engine, bus, pauses)
            yield Addressed(record=record, questions=tuple(questions), run=run, engine=engine, bus=bus, pauses=pauses)
        finally:
            await engine.aclose()
            await bus.aclose()


async def _named(storage: Storage, wanted: str, pauses: Sequence[Pause], url: str) -> tuple[RunRecord, list[Pause]]:
    by_token = [one for one in pauses if wanted and one.token == wanted]
    if by_token:
        return await find_run(storage.runs, by_token[0].identity.run_id, where=url), by_token
    try:
        record = await find_open(storage.runs, wanted, where=url)
    except RunUnknownError:
        begins = [one for one in pauses if wanted and one.token.upper().startswith(wanted.upper())]
        if len(begins) != 1:
            raise
        return await find_run(storage.runs, begins[0].identity.run_id, where=url), begins
    family = await _family(storage, record)
    return record, [one for one in pauses if one.identity.run_id in family and not is_held(one)]


async def _family(storage: Storage, record: RunRecord) -> set[str]:
    """The run, and those that it may have spawned: of the command line every run has a session of its own."""
    who = record.who
    mine = RunFilter(tenant=who.tenant_id, user=who.user_id, session=who.session_id, agent=record.agent)
    is_alone = is_own(who.session_id)
    return {one.run_id for one in await all_runs(storage.runs, mine)} if is_alone else {record.run_id}


def open_run(record: RunRecord) -> RunRecord:
    """The run, as long as it is not over.

    Raises:
        RunOverError: it is.
    """
    if record.standing.stand.is_final:
        way = f"harborage fork {record.run_id} --at STEP begins another from any of its steps"
        raise RunOverError(f"run {record.run_id} is over ({_stand(record)}); {way}")
    return record


def asked(pause: Pause) -> str:
    """What a question is about, on one line."""
    payload = pause.payload or {}
    if is_doubt(pause):
        return printable(
            f"what became of {payload['tool']}({arguments(announced_args(payload.get('args_summary')))})", keep=""
        )
    if is_gate(pause):
        return printable(f"{payload['tool']}({arguments(announced_args(payload.get('args_summary')))})", keep="")
    return f"{pause.reason}: {shortened(payload)}" if payload else str(pause.reason)


def token_for(pause: Pause) -> str:
    """What a yes or a no must name: the question of a call; "" for that of a run, of which there is only one."""
    return pause.token if is_gate(pause) or is_doubt(pause) else ""


def what_now(record: RunRecord) -> str:
    """Who acts on what was written."""
    if record.owner:
        return "the process that carries the run acts on it"
    return f"nobody carries the run now: 'harborage resume {record.run_id}' goes on with it"


def _stand(record: RunRecord) -> str:
    reason = f" ({record.standing.reason})" if record.standing.reason else ""
    return f"{record.standing.stand}{reason}"
