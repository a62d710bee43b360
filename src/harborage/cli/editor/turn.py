"""One prompt of an editor: the run that answers it, shown in the editor until it ends or needs words of the person."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage.cli.editor.content import PromptError, text_of
from harborage.cli.editor.updates import Updates
from harborage.cli.questions import Question, question_of
from harborage.cli.status import CANCELLED, EXHAUSTED, REACHED, ending_of
from harborage.concurrency import Crew
from harborage.errors import HarborageError, error_reason
from harborage.events import EventType, Filter, PauseResumedPayload, ToolApprovedPayload, ToolRejectedPayload
from harborage.identity import Identity
from harborage.runtime.durable.engine import RunEndedError, RunFailedError, RunNotFoundError
from harborage.runtime.durable.reader import RunReader
from harborage.runtime.history.builder import history_of
from harborage.runtime.history.model import Totals
from harborage.runtime.history.reading import opened_from
from harborage.runtime.loop.context import Context
from harborage.runtime.result import tree_usage
from harborage.runtime.run_events import RunEvents
from harborage.runtime.starting import MESSAGE
from harborage.store import LIVE, RunQuery

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from harborage.artifacts.media import Media
    from harborage.events import Event, Subscription
    from harborage.planner import Finish
    from harborage.runtime.host import Runtime
    from harborage.runtime.run import Run
    from harborage.store import RunRow
    from harborage.tools import SideEffect

HEAVY_BYTES: Final = 32_768
"""Arguments and results above this size are shown by their beginning."""

_ASKS: Final = frozenset({EventType.TOOL_APPROVAL_REQUESTED, EventType.PAUSE_REQUESTED})
_log = logging.getLogger("harborage.acp")


class Choice(StrEnum):
    """What a person may choose for a call."""

    ONCE = "allow_once"
    RUN = "allow_run"
    ALWAYS = "allow_always"
    REJECT = "reject"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a turn takes place: the session of `who`, with the agent and the folders that the editor has open."""

    who: Identity
    agent: str
    folders: tuple[str, ...]


class Turn:
    """Answers one prompt. `client` is the editor, `library` the protocol's; `after` is the number of the last event of
    the session that was told.
    """

    def __init__(self, runtime: Runtime, client: Any, library: Any, place: Place, *, after: int) -> None:
        self._runtime = runtime
        self._client = client
        self._library = library
        self._place = place
        self._run: Run[Any] | None = None
        self._updates: Updates | None = None
        self._asking: dict[str, asyncio.Task[Any]] = {}
        self._asked: set[str] = set()
        self.after = after
        self.is_cancelled = False
        self.used = Totals()
        """What the models used for the runs that ended in this turn."""

    async def take(self, parts: Sequence[str | Media]) -> str:
        """Answer the prompt; return why the turn ends, in the protocol's words.

        Runs of the session that go on, such as those of a process before, come first. The answer to a question that
        one of them has asked is the prompt.

        Raises:
            PromptError: it answers a question with what does not fit.
            RunFailedError: the run failed.
        """
        who = self._place.who
        query = RunQuery(
            tenant=who.tenant_id, user=who.user_id, session=who.session_id, statuses=LIVE, oldest_first=True
        )
        rows: list[RunRow] = [
            row for row in (await self._runtime.parts.store.runs(query)).rows if row.description == MESSAGE
        ]
        for row in rows:
            run = await self._runtime.run(row.run_id, who=who)
            question = await self._open_question(run)
            answer = None if question is None else (question, text_of(list(parts)))
            if question is not None and answer is not None and (misfit := question.misfit(answer[1])):
                raise PromptError(misfit)
            stop = await self._follow(run, answer=answer)
            if answer is not None or stop != "end_turn" or not (await run.status()).phase.is_final:
                return stop
        return await self._start(parts)

    async def cancel(self) -> None:
        """End the run at once."""
        self.is_cancelled = True
        if self._run is not None:
            with suppress(RunEndedError, RunNotFoundError):
                await self._run.cancel(hard=True)

    async def _start(self, parts: Sequence[str | Media]) -> str:
        bus, who = self._runtime.bus, self._place.who
        self.after = max(self.after, bus.last_sequence(who))
        subscription = bus.subscribe(Filter.of(who))
        try:
            run: Run[Any] = await self._runtime.start(
                self._place.agent,
                list(parts),
                who=who,
                remembers=True,
                description=MESSAGE,
                context=Context(llm_context={"editor": {"open_folders": list(self._place.folders)}}),
            )
        except BaseException:
            subscription.cancel()
            raise
        return await self._follow(run, subscription=subscription)

    async def _open_question(self, run: Run[Any]) -> Question | None:
        """The oldest question of a run whose answer is words; None for none."""
        return next((one for one in await _questions(run) if not _takes_verdict(one)), None)

    async def _follow(
        self, run: Run[Any], *, subscription: Subscription | None = None, answer: tuple[Question, str] | None = None
    ) -> str:
        """Tell the editor of a run until it ends or asks for words."""
        over: asyncio.Future[Finish | None] = asyncio.get_running_loop().create_future()
        crew = Crew(lambda _, error: _fail(over, error))
        updates = self._updates = Updates(self._library.schema, run.id, self._effects)
        self._run, self._asking = run, {}
        updates.sequence = self.after
        try:
            crew.start(self._read(run, subscription, crew, over), "events")
            if answer is not None:
                self._asked.add(answer[0].token)
                crew.start(run.resume({"token": answer[0].token, "message": answer[1]}), "answer")
            if subscription is None:
                crew.start(self._ask(run, crew, over), "questions")
            if self.is_cancelled:
                await self.cancel()
            finish = await over
        except RunFailedError as error:
            ending = ending_of(error)
            if ending.code != EXHAUSTED:
                raise
            await self._send(updates.say(f"The run ended before it reached its goal: {ending.why}"))
            return "max_turn_requests"
        finally:
            self._run = None
            await crew.aclose()
            self.after = max(self.after, updates.sequence)
        return "end_turn" if finish is None else await self._ended(run, finish, updates)

    async def _ended(self, run: Run[Any], finish: Finish, updates: Updates) -> str:
        ending = ending_of(finish)
        parts = self._runtime.parts
        entries = await RunReader(parts.store).entries(run.id)
        self.used = await tree_usage(history_of(opened_from(list(entries))), parts.engine.history)
        if ending.code == CANCELLED:
            return "cancelled"
        for update in updates.answer(finish.payload):
            await self._send(update)
        if ending.code != REACHED:
            await self._send(updates.say(f"The run ended before it reached its goal: {ending.why}"))
        return "max_turn_requests" if ending.code == EXHAUSTED else "end_turn"

    async def _read(
        self, run: Run[Any], subscription: Subscription | None, crew: Crew, over: asyncio.Future[Finish | None]
    ) -> None:
        updates = self._updates
        assert updates is not None
        async with aclosing(self._events(run, subscription)) as events:
            async for event in events:
                for update in updates.take(event):
                    await self._send(update)
                self._forget(event)
                if event.type in _ASKS or event.type in _ANSWERED:
                    await self._ask(run, crew, over)
        finish = await run.finished()
        if not over.done():
            over.set_result(finish)

    def _events(self, run: Run[Any], subscription: Subscription | None) -> AsyncGenerator[Event, None]:
        parts = self._runtime.parts
        since = 0 if subscription is None else self.after
        return RunEvents(
            run.who,
            parts.engine,
            parts.bus,
            parts.tasks,
            since=since,
            after=self.after,
            subscription=subscription,
        ).stream()

    def _forget(self, event: Event) -> None:
        """Stop asking what was answered elsewhere."""
        match event.payload:
            case (
                ToolApprovedPayload(pause_token=token)
                | ToolRejectedPayload(pause_token=token)
                | PauseResumedPayload(token=token)
            ):
                if (asking := self._asking.pop(token, None)) is not None:
                    asking.cancel()
            case _:
                pass

    async def _ask(self, run: Run[Any], crew: Crew, over: asyncio.Future[Finish | None]) -> None:
        """Ask what is open and was not asked in this turn; words are asked for once no permission is."""
        questions = [one for one in await _questions(run) if one.token not in self._asked]
        for question in questions:
            if _takes_verdict(question) and question.token not in self._asked:
                self._asked.add(question.token)
                self._asking[question.token] = crew.start(self._permit(run, question, over), "permission")
        words = next((one for one in questions if not _takes_verdict(one)), None)
        if words is not None and not self._asking and words.token not in self._asked and not over.done():
            self._asked.add(words.token)
            assert self._updates is not None
            await self._send(self._updates.say(_words_of(words)))
            if not over.done():
                over.set_result(None)

    async def _permit(self, run: Run[Any], question: Question, over: asyncio.Future[Finish | None]) -> None:
        """Ask for permission, and send the answer to the run. A question that cannot be asked here stays open."""
        updates, schema = self._updates, self._library.schema
        assert updates is not None
        subject = question.tool or _words_of(question)
        call, shown = updates.call_of(question.token, subject, question.args)
        for update in shown:
            await self._send(update)
        asked = schema.ToolCallUpdate(tool_call_id=call, title=subject, status="pending", raw_input=question.args)
        try:
            reply = await self._client.request_permission(
                session_id=self._place.who.session_id, tool_call=asked, options=self._options(question)
            )
            chosen = None if reply.outcome.outcome == "cancelled" else Choice(reply.outcome.option_id)
        except (self._library.RequestError, ValueError) as error:
            _log.warning("the editor did not answer a request for permission: %s", error_reason(error))
            text = f"{subject} waits for approval: 'harborage approve {run.id}', or send a message to be asked again."
            await self._send(updates.say(text))
            if not over.done():
                over.set_result(None)
            return
        self._asking.pop(question.token, None)
        try:
            await self._decide(run, question.token, chosen)
        except HarborageError as error:
            _log.info("an answer was not counted: %s", error_reason(error))  # another one was first

    async def _decide(self, run: Run[Any], token: str, chosen: Choice | None) -> None:
        match chosen:
            case None:
                await self.cancel()
            case Choice.ONCE:
                await run.approve(token)
            case Choice.RUN:
                await run.approve(token, remember="run")
            case Choice.ALWAYS:
                await run.approve(token, remember="always")
            case Choice.REJECT:
                await run.reject("rejected in the editor", token=token)

    def _options(self, question: Question) -> list[Any]:
        def option(choice: Choice, name: str, kind: str) -> Any:
            return self._library.schema.PermissionOption(option_id=str(choice), name=name, kind=kind)

        once = "Call it again" if question.is_interrupted else "Allow once"
        found = [option(Choice.ONCE, once, "allow_once")]
        if question.tool and not question.is_interrupted:
            found.append(option(Choice.RUN, "Allow this tool until the run ends", "allow_always"))
            found.append(option(Choice.ALWAYS, "Always allow this call", "allow_always"))
        return [*found, option(Choice.REJECT, "Reject", "reject_once")]

    def _effects(self, tool: str) -> SideEffect | None:
        agent = self._runtime.parts.agents.find(self._place.agent)
        found = None if agent is None else agent.catalog.resolve(tool)
        return None if found is None else found.tool.side_effects

    async def _send(self, update: Any) -> None:
        await self._client.session_update(session_id=self._place.who.session_id, update=update)


_ANSWERED: Final = frozenset({EventType.TOOL_APPROVED, EventType.TOOL_REJECTED, EventType.PAUSE_RESUMED})


def _fail(over: asyncio.Future[Any], error: BaseException) -> None:
    if not over.done():
        over.set_exception(error)


async def _questions(run: Run[Any]) -> list[Question]:
    """What a run and those below it ask, oldest first."""
    found = [question_of(one.pause) for one in reversed(await run.pending())]
    return [one for one in found if one is not None]


def _takes_verdict(question: Question) -> bool:
    return question.takes_yes_or_no or question.is_interrupted


def _words_of(question: Question) -> str:
    payload = question.payload
    for key in ("question", "reason", "message"):
        if isinstance(said := payload.get(key), str) and said:
            return said
    return f"The run waits for an answer ({question.reason})."
