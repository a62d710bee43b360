"""Tasks: the runs that messages start, steer and answer, and how each stands."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from harborage import codec
from harborage.artifacts import ArtifactNotFoundError, ArtifactScope
from harborage.errors import error_text
from harborage.events import Filter
from harborage.ids import new_id
from harborage.planner import FinishReason
from harborage.runtime.durable.engine import RunEndedError, RunFailedError
from harborage.runtime.loop.controls import ControlType
from harborage.runtime.loop.errors import PayloadInvalidError
from harborage.runtime.pending import Question
from harborage.runtime.starting import RunStarter
from harborage.server.a2a.errors import (
    CONTENT_TYPE,
    NOT_CANCELABLE,
    REFUSED,
    UNSUPPORTED,
    RpcError,
    bad_params,
    task_not_found,
)
from harborage.server.a2a.streaming import Teller
from harborage.server.a2a.values import ANSWER, Artifact, Blob, Data, Said, State, Status, Task, Text
from harborage.server.following import Going, follow
from harborage.server.links import link_to
from harborage.server.open_requests import done_within, limited
from harborage.server.questions import (
    Value,
    Words,
    how_to_answer,
    open_questions,
    question_text,
    read_verdict,
    read_words,
    schema_of,
    send_answer,
    takes_verdict,
    takes_yes_or_no,
)
from harborage.store import RunQuery
from harborage.store import Status as RunStatus
from harborage.store.times import moment

if TYPE_CHECKING:
    from harborage.events import Subscription
    from harborage.identity import Identity
    from harborage.runtime.effects.agent_parts import AgentParts
    from harborage.runtime.run import Run
    from harborage.server.a2a.messages import Message
    from harborage.server.a2a.values import Part, Update
    from harborage.server.questions import Answer
    from harborage.server.services import Services
    from harborage.store import RunRow

_KEY: Final = "a2a/"
_CANCEL_S: Final = 5.0
_MOST_FILES: Final = 100
_LINK: Final = timedelta(minutes=15)
_NOT_UNDERSTOOD: Final = "That was neither yes nor no."


class Begun(msgspec.Struct, frozen=True):
    """A run that a peer waits for. `problem` is why its last message did not answer what the run asks."""

    going: Going
    problem: str = ""

    def close(self) -> None:
        """Free the subscription, if it has no reader."""
        self.going.close()


class Tasks:
    """The tasks of one server. `who` is always the caller; a task is found in every session of its user.

    `base_url` is where the caller reached the server.
    """

    def __init__(self, services: Services, base_url: str) -> None:
        self._services = services
        self._base_url = base_url

    # ── Messages ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def begin(self, agent: AgentParts, message: Message, who: Identity, session: str) -> Begun:
        """Start the run of a message, or give the message to the task that it names.

        `session` is the one that the request is limited to, "" for none.

        Raises:
            RpcError: the message does not fit where the task is.
            Exception: as of `Runtime.start` and `Run.approve`.
        """
        if session and message.context and message.context != session:
            raise bad_params("contextId and the header X-Harbor-Session name two sessions; send one")
        if not message.task:
            return await self._start(agent, message, who, message.context or session or new_id())
        run, row = await self.find(agent, message.task, who, session)
        if message.context and message.context != row.who.session_id:
            raise bad_params("message.contextId is not that of the task; leave it out")
        if row.status.is_final:
            raise RunEndedError(run.id)
        if message.media:
            raise RpcError(CONTENT_TYPE, "files can be sent with the first message of a task alone")
        return await self._go_on(run, message)

    async def _start(self, agent: AgentParts, message: Message, who: Identity, session: str) -> Begun:
        owner = replace(who, session_id=session)
        opened, after = self._subscribe(owner)
        try:
            starter = RunStarter(self._services.parts, self._services.clock)
            begun = await starter.begin(agent.name, message.goal, who=owner, key=_KEY + message.id)
        except BaseException:
            opened.cancel()
            raise
        run = self._services.runtime.get(begun.who.run_id, who=owner)
        return Begun(Going(run=run, after=after, is_new=not begun.is_known, subscription=opened))

    async def _go_on(self, run: Run[Any], message: Message) -> Begun:
        """Answer what a run asks; one that asks nothing gets the words as a message."""
        opened, after = self._subscribe(run.who.identity)
        problem = ""
        try:
            question = await self._asked(run, message)
            if question is None:
                await run.control(ControlType.USER_MESSAGE, {"message": message.text}, event_id=_KEY + message.id)
            else:
                problem = await self._answer(run, question, message)
        except BaseException:
            opened.cancel()
            raise
        return Begun(Going(run=run, after=after, is_new=False, subscription=opened), problem)

    async def _asked(self, run: Run[Any], message: Message) -> Question | None:
        """Return the question that a message answers: the one that it names, else the oldest; None if there is none."""
        token = next((one["token"] for one in message.data if isinstance(one, dict) and "token" in one), None)
        if isinstance(token, str):
            return Question(await self._services.parts.pauses.status(token, who=run.who))
        questions = await open_questions(run)
        return questions[0] if questions else None

    async def _answer(self, run: Run[Any], question: Question, message: Message) -> str:
        """Answer a question; return why the message is no answer, "" if it is one."""
        answer = _answer_of(question, message)
        if answer is None:
            return _NOT_UNDERSTOOD
        try:
            await send_answer(run, question.pause, answer, event_id=_KEY + message.id)
        except PayloadInvalidError as error:
            return error_text(error)
        return ""

    def _subscribe(self, who: Identity) -> tuple[Subscription, int]:
        """Subscribe to a session before anything is done in it, and return the number of its last event."""
        bus = self._services.parts.bus
        after = bus.last_sequence(who)
        return bus.subscribe(Filter.of(who)), after

    # ── Streams ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def subscribed(self, agent: AgentParts, task: str, who: Identity, session: str) -> Begun:
        """Return a task that goes on, to be followed from now on.

        Raises:
            RpcError: there is none, or it has ended.
        """
        run, row = await self.find(agent, task, who, session)
        if row.status.is_final:
            raise RpcError(UNSUPPORTED, "the task has ended; get it instead")
        opened, after = self._subscribe(run.who.identity)
        return Begun(Going(run=run, after=after, is_new=False, subscription=opened))

    async def updates(self, begun: Begun) -> AsyncGenerator[Update, None]:
        """Yield a task as it stands and then what happens to it, until it ends or asks.

        Raises:
            RpcError: nothing happened for a while; the task goes on.
        """
        try:
            async with aclosing(limited(self._followed(begun), self._services.options.answer_timeout)) as followed:
                async for one in followed:
                    yield one
        except TimeoutError as error:
            text = "nothing happened for a while; the task goes on: subscribe to it to see the rest"
            raise RpcError(REFUSED, text) from error

    async def _followed(self, begun: Begun) -> AsyncGenerator[Update, None]:
        going, run = begun.going, begun.going.run
        try:
            task = await self.stands(run, begun.problem)
            teller = Teller(task)
            yield task
            while not _is_over(task):
                async with aclosing(follow(self._services, going)) as shown:
                    async for one in shown:
                        for update in teller.take(one, self._services.clock.now()):
                            yield update
                # What it asked may be answered by now: then it is followed on, from before it is looked at.
                opened, after = self._subscribe(run.who.identity)
                going = Going(run=run, after=after, is_new=False, subscription=opened)
                task = await self.stands(run)
                if _is_over(task):
                    for update in teller.end(task):
                        yield update
        finally:
            going.close()

    async def waited(self, begun: Begun) -> Task:
        """Return a task once it has ended or asks; as it stands when the time of the request is over."""

        async def wait() -> None:
            async with aclosing(self._followed(begun)) as followed:
                async for _ in followed:
                    pass

        await done_within(wait(), self._services.options.answer_timeout)
        return await self.stands(begun.going.run, begun.problem)

    async def cancel(self, agent: AgentParts, task: str, who: Identity, session: str) -> Task:
        """End a task at once, and return how it stands.

        Raises:
            RpcError: there is none, or it has ended.
        """
        run, row = await self.find(agent, task, who, session)
        ended = RpcError(NOT_CANCELABLE, "the task has ended")
        if row.status.is_final:
            raise ended
        try:
            await run.cancel(hard=True)
        except RunEndedError as error:
            raise ended from error
        await done_within(_end_of(run), _CANCEL_S)
        return await self.stands(run)

    # ── How they stand ────────────────────────────────────────────────────────────────────────────────────────────────

    async def find(self, agent: AgentParts, task: str, who: Identity, session: str) -> tuple[Run[Any], RunRow]:
        """Return a run of the agent and the caller, and its row.

        Raises:
            RpcError: there is none.
        """
        query = RunQuery(tenant=who.tenant_id, user=who.user_id, session=session, run_ids=(task,), limit=1)
        rows = (await self._services.parts.store.runs(query)).rows
        if not rows or rows[0].agent != agent.name:
            raise task_not_found()
        return self._services.runtime.get(task, who=rows[0].who), rows[0]

    async def stands(self, run: Run[Any], problem: str = "") -> Task:
        """Return how a run stands now."""
        rows = (await self._services.parts.store.runs(RunQuery(run_ids=(run.id,), limit=1))).rows
        if not rows:
            raise task_not_found()
        return await self.shown(run, rows[0], problem)

    async def shown(self, run: Run[Any], row: RunRow, problem: str = "", *, has_artifacts: bool = True) -> Task:
        """Return how a run stood when its row was read."""
        state, at, said = state_of(row), moment(row.updated_at), None
        artifacts: tuple[Artifact, ...] = ()
        if state.is_final:
            if has_artifacts or state is State.FAILED:
                said, artifacts = await _ending(run)
            if has_artifacts:
                artifacts = (*artifacts, *await self._files(run))
        elif questions := await open_questions(run):
            state, said = State.INPUT_REQUIRED, _asking(questions[0], problem)
        elif row.blocked:
            said = Said(f"{run.id}/blocked", (Text(f"It is blocked: {row.blocked}."),))
        return Task(row.run_id, row.who.session_id, Status(state, at, said), artifacts if has_artifacts else ())

    async def _files(self, run: Run[Any]) -> list[Artifact]:
        """What the tools of a run stored: as links, or as bytes where the store has no links and they are few."""
        store, found = self._services.parts.artifacts, list[Artifact]()
        refs = await store.list(ArtifactScope.of(run.who))
        for ref in [one for one in refs if one.source.get("run_id") == run.id][:_MOST_FILES]:
            url, data = await link_to(self._services, self._base_url, ref, _LINK), b""
            if url is None and ref.size_bytes <= self._services.options.heavy_bytes:
                with suppress(ArtifactNotFoundError):
                    data = await store.get(ref.scope, ref.id) or b""
            if url or data:
                file = Blob(ref.mime_type, ref.filename or ref.id, url or "", data)
                found.append(Artifact(ref.id, (file,), file.name))
        return found


def state_of(row: RunRow) -> State:
    """Return the state in a row; whether it asks something is not in it."""
    match row.status:
        case RunStatus.PENDING:
            return State.SUBMITTED
        case RunStatus.RUNNING | RunStatus.PAUSED:
            return State.WORKING
        case RunStatus.CANCELLED:
            return State.CANCELED
        case RunStatus.COMPLETE | RunStatus.FAILED if row.reason == str(FinishReason.CANCELLED):
            return State.CANCELED
        case RunStatus.COMPLETE:
            return State.COMPLETED
        case _:
            return State.FAILED


def _is_over(task: Task) -> bool:
    return task.status.state.is_final or task.status.state is State.INPUT_REQUIRED


async def _end_of(run: Run[Any]) -> None:
    with suppress(RunFailedError):
        await run.finished()


async def _ending(run: Run[Any]) -> tuple[Said | None, tuple[Artifact, ...]]:
    """What is said of the end of a run, and what it gave."""
    try:
        finish = await run.finished()
    except RunFailedError as error:
        return Said(f"{run.id}/end", (Text(error_text(error)),)), ()
    if finish.reason is not FinishReason.GOAL:
        return Said(f"{run.id}/end", (Text(f"The run ended without reaching its goal: {finish.reason}."),)), ()
    payload = finish.payload
    if payload is None:
        return None, ()
    part: Part = Text(payload) if isinstance(payload, str) else Data(codec.to_plain(payload))
    return None, (Artifact(ANSWER, (part,)),)


def _asking(question: Question, problem: str) -> Said:
    """What a run asks, for people and for programs."""
    text = "\n\n".join(filter(None, [problem, question_text(question), how_to_answer(question)]))
    schema, deadline = schema_of(question.pause), question.deadline
    fields: dict[str, Any] = {"token": question.token, "takes": "approval" if takes_verdict(question) else "value"}
    if question.tool:
        fields |= {"tool": question.tool, "args": question.args}
    if schema is not None:
        fields["schema"] = schema
    if deadline is not None:
        fields["deadline"] = deadline.isoformat()
    return Said(question.token, (Text(text), Data(fields)))


def _answer_of(question: Question, message: Message) -> Answer | None:
    """Return what a message answers; None where it takes yes or no, and the words say neither.

    Raises:
        AnswerUnfitError: its data is no verdict.
    """
    for one in message.data:
        given = {name: value for name, value in one.items() if name != "token"} if isinstance(one, dict) else one
        if takes_verdict(question) and given != {}:
            return read_verdict(given)
        if isinstance(given, dict) and given.keys() == {"answer"}:
            return Value(given["answer"])
        if given != {}:
            return Value(given)
    text = "\n".join(message.texts)
    return read_words(text) if takes_yes_or_no(question) else Words(text)
