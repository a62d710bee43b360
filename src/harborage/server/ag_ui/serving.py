"""One request of an AG-UI client: the run that it starts or goes on with, and the events that it is sent of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET

from harborage import codec
from harborage.events import EventType, Filter, Subscription
from harborage.planner import FinishReason
from harborage.runtime.pending import Question
from harborage.runtime.run import Run
from harborage.runtime.run_events import RunEvents
from harborage.runtime.starting import MESSAGE, RunStarter
from harborage.server.ag_ui import events as sent
from harborage.server.ag_ui.answers import answer_of, interrupt, read_mark
from harborage.server.ag_ui.errors import RefusedError, refused
from harborage.server.ag_ui.inputs import Asked, echoed
from harborage.server.ag_ui.translation import Translation
from harborage.server.questions import check_answer, open_questions, send_answer
from harborage.store import LIVE, RunQuery

if TYPE_CHECKING:
    from harborage.events import Event
    from harborage.identity import Identity
    from harborage.planner import Finish
    from harborage.server.services import Services

SILENT_S: Final = 570.0
"""How long a stream waits for the next event of its run."""

_ASKS: Final = frozenset({EventType.TOOL_APPROVAL_REQUESTED, EventType.PAUSE_REQUESTED})
_KEY: Final = "ag-ui/"


class Going(msgspec.Struct, frozen=True, kw_only=True):
    """A run of which a client is told what comes behind `after`; `answered` are the questions that it has answered.

    `subscription` was opened before the request did anything, so it has the pieces of the first answer, too.
    """

    run: Run[Any]
    after: int = 0
    answered: frozenset[str] = frozenset()
    subscription: Subscription | None = None

    def close(self) -> None:
        """Free the subscription, if nobody reads it."""
        if self.subscription is not None:
            self.subscription.cancel()


class Threads:
    """Starts and continues the runs of threads; each thread is a session of its user."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def begin(self, agent: str, asked: Asked, who: Identity) -> Going:
        """Start the run of a request, or go on with the one that it answers or that it started before.

        Raises:
            RefusedError: the thread is busy, or the agent is not served.
            Exception: as of `Runtime.start` and `Run.approve`.
        """
        parts = self._services.parts
        name = self._agent(agent)
        after = parts.bus.last_sequence(who)
        subscription = parts.bus.subscribe(Filter.of(who))
        is_kept = False
        try:
            if asked.input.resume:
                going = await self._answer(asked, who)
            else:
                going = await self._start(name, asked, who)
            if going.after < 0:
                is_kept = True
                return msgspec.structs.replace(going, after=after, subscription=subscription)
            return going
        finally:
            if not is_kept:
                subscription.cancel()

    def _agent(self, name: str) -> str:
        served = [one.name for one in self._services.parts.agents.roots]
        if name and name not in served:
            raise RefusedError(404, "agent_not_found", "no agent of this name is served here")
        return name or served[0]

    async def _start(self, agent: str, asked: Asked, who: Identity) -> Going:
        """Start a run, or find the one that the same request started; the latter is told from its beginning."""
        key = _KEY + asked.input.run_id
        await self._check_free(who, key)
        begun = await RunStarter(self._services.parts, self._services.clock).begin(
            agent,
            asked.text,
            who=who,
            key=key,
            context=() if asked.context is None else asked.context,
            messages=asked.earlier,
            remembers=False if asked.earlier else None,
            description=MESSAGE,
        )
        run = self._services.runtime.get(begun.who.run_id, who=who)
        return Going(run=run, after=0 if begun.is_known else -1)

    async def _check_free(self, who: Identity, key: str) -> None:
        """Accept a message to a thread that answers none.

        Raises:
            RefusedError: it does; the run is named.
        """
        query = RunQuery(
            tenant=who.tenant_id, user=who.user_id, session=who.session_id, statuses=LIVE, oldest_first=True
        )
        for row in (await self._services.parts.store.runs(query)).rows:
            if row.description == MESSAGE and row.key != key:
                text = f"run {row.run_id} still answers the message before; wait for its end, or answer its interrupt"
                raise RefusedError(409, "thread_busy", text)

    async def _answer(self, asked: Asked, who: Identity) -> Going:
        """Answer questions of one run, which goes on.

        Raises:
            RefusedError: they are of several runs, or not of the caller.
        """
        answers = {read_mark(one.interrupt_id): one for one in asked.input.resume or ()}
        marks = list(answers)
        if len({one.run_id for one in marks}) != 1:
            raise RefusedError(message="resume answers interrupts of one run; send one request for each run")
        run = await self._services.runtime.run(marks[0].run_id, who=who)
        pauses = self._services.parts.pauses
        questions = [(Question(await pauses.status(mark.token, who=run.who)), answers[mark]) for mark in marks]
        given = [(question.pause, answer_of(question, answer)) for question, answer in questions]
        for pause, said in given:
            check_answer(pause, said)
        for pause, said in given:
            await send_answer(run, pause, said)
        return Going(run=run, after=min(one.sequence for one in marks), answered=frozenset(one.token for one in marks))

    async def stream(self, going: Going, asked: Asked) -> AsyncGenerator[sent.Sent, None]:
        """Yield what a client is sent of a run, until it ends or asks; a failure is the last event."""
        run, given = going.run, asked.input
        messages = echoed(given.messages)
        translation = Translation(run.id, answered=going.answered, conversation=messages)
        yield sent.RunStarted(
            thread_id=given.thread_id,
            run_id=given.run_id,
            protocol_version=sent.PROTOCOL_VERSION,
            parent_run_id=given.parent_run_id or UNSET,
            metadata={"harborage": {"runId": run.id}},
        )
        try:
            if asked.has_state and not given.resume:
                yield sent.StateSnapshot(snapshot=given.state)
            async with aclosing(self._told(going, translation, asked)) as told:
                async for one in told:
                    yield one
        except Exception as error:  # noqa: BLE001 - the status is sent; what is left to say goes into the stream
            for one in translation.end(None):
                yield one
            _, failure = refused(error, self._services.logger)
            yield msgspec.structs.replace(failure, usage=translation.usage)

    async def _told(self, going: Going, translation: Translation, asked: Asked) -> AsyncGenerator[sent.Sent, None]:
        run = going.run
        translation.sequence = going.after
        if going.answered:
            questions = await open_questions(run)
            if left := [one for one in questions if one.token not in going.answered]:
                for one in self._ended(translation, asked, left, run):
                    yield one
                return
        async with aclosing(_limited(self._reading(going))) as reading:
            async for event in reading:
                for one in translation.take(event):
                    yield one
                if event.type in _ASKS and (questions := await open_questions(run)):
                    for one in self._ended(translation, asked, questions, run):
                        yield one
                    return
        async with asyncio.timeout(SILENT_S):
            finish = await run.finished()
        for one in translation.end(finish):
            yield one
        yield _finished(finish, asked, translation)

    def _reading(self, going: Going) -> AsyncGenerator[Event, None]:
        run, after, parts = going.run, going.after, self._services.parts
        if going.subscription is None:
            return run.events(after=after)
        return RunEvents(
            run.who,
            parts.engine,
            parts.bus,
            parts.tasks,
            since=after,
            after=after,
            subscription=going.subscription,
        ).stream()

    def _ended(
        self, translation: Translation, asked: Asked, questions: list[Any], run: Run[Any]
    ) -> Iterator[sent.Sent]:
        """Yield the end of a request whose run waits for a person."""
        for question in questions:
            yield from translation.ask(question)
        yield from translation.end(None)
        at, call_of = translation.sequence, translation.call_of
        yield sent.RunFinished(
            thread_id=asked.input.thread_id,
            run_id=asked.input.run_id,
            outcome=sent.Interrupted(interrupts=[interrupt(one, run.id, at, call_of(one.token)) for one in questions]),
            usage=translation.usage,
        )


def _finished(finish: Finish, asked: Asked, translation: Translation) -> sent.Sent:
    """Return the last event of a run that has ended."""
    usage = translation.usage
    match finish.reason:
        case FinishReason.GOAL:
            outcome: sent.Outcome = sent.Succeeded()
        case FinishReason.CANCELLED:
            outcome = sent.Cancelled()
        case _:
            text = f"the run ended without reaching its goal: {finish.reason}"
            return sent.RunError(message=text, code=str(finish.reason), usage=usage)
    payload = finish.payload
    return sent.RunFinished(
        thread_id=asked.input.thread_id,
        run_id=asked.input.run_id,
        outcome=outcome,
        result=UNSET if payload is None else msgspec.Raw(codec.encode(payload)),
        usage=usage,
    )


async def _limited(reading: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    """Yield the events of a run while each comes in time.

    Raises:
        RefusedError: one did not; the run goes on.
    """
    async with aclosing(reading):
        while True:
            try:
                async with asyncio.timeout(SILENT_S):
                    event = await anext(reading)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                text = "nothing happened for a while; the run goes on: send the same request again to see the rest"
                raise RefusedError(504, "timeout", text) from error
            yield event
