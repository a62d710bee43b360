"""What the tools do: they start, watch, steer and answer the runs of one caller, over the open runtime."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, assert_never

import msgspec
from msgspec import UNSET, UnsetType

from harborage import codec
from harborage.errors import error_text
from harborage.events import EventType
from harborage.planner import FinishReason
from harborage.runtime.durable.engine import RunFailedError, RunNotFoundError
from harborage.runtime.pending import Question
from harborage.server.mcp_endpoint.arguments import (
    AnswerRun,
    Arguments,
    ArgumentsError,
    ListRuns,
    RunAgent,
    StartRun,
    StatusOfRun,
    Steering,
    SteerRun,
)
from harborage.server.questions import Value, open_questions, read_verdict, send_answer, takes_verdict
from harborage.store import RunQuery

if TYPE_CHECKING:
    from harborage.events import Event
    from harborage.identity import Identity
    from harborage.runtime.host import Runtime
    from harborage.runtime.run import Run
    from harborage.store import RunRow

Report = Callable[[str], Awaitable[None]]
"""Tells a client what a run does just now."""

_ASKS: Final = frozenset({EventType.TOOL_APPROVAL_REQUESTED, EventType.PAUSE_REQUESTED})
_TOLD: Final = frozenset({EventType.TOOL_INVOKED, EventType.TOOL_COMPLETED, EventType.PLANNER_DECISION})


class Asked(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question of a run. `how` says with which arguments answer_run answers it."""

    token: str
    question: str
    how: str
    tool: str = ""
    args: dict[str, Any] = {}
    answer_schema: dict[str, Any] | UnsetType = UNSET
    deadline: str = ""


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run is. `status` is running, waiting, completed, failed or cancelled."""

    run_id: str
    status: str
    agent: str = ""
    output: Any = None
    error: str = ""
    questions: list[Asked] = []
    next: str = ""


class Desk:
    """Does what one caller's tools say."""

    def __init__(self, runtime: Runtime, who: Identity) -> None:
        self._runtime = runtime
        self._who = who

    async def do(self, agent: str, asked: Arguments, report: Report) -> RunView | list[RunView]:
        """Return what came of a call; `agent` is the one that the tool runs.

        Raises:
            HarborageError: it cannot be done; the text says why.
        """
        match asked:
            case RunAgent():
                after = self._runtime.parts.bus.last_sequence(self._who)
                run = await self.start(agent, asked.goal, asked.key)
                return await self.watch(run, report, asked.wait_seconds, after=after)
            case StartRun():
                return await self.view(await self.start(asked.agent or self._first, asked.goal, asked.key))
            case StatusOfRun():
                return await self.watch(await self.run(asked.run_id), report, asked.wait_seconds)
            case ListRuns():
                page = await self._runtime.runs(who=self._who, limit=asked.limit)
                return [await self.view(await self.run(one.run_id)) for one in page]
            case SteerRun():
                return await self._steer(asked)
            case AnswerRun():
                return await self._answer(asked, report)
            case _:
                assert_never(asked)

    async def run(self, run_id: str) -> Run[Any]:
        """Return a run of the caller.

        Raises:
            RunNotFoundError: there is none of this id.
        """
        return await self._runtime.run(run_id, who=self._who)

    @property
    def _first(self) -> str:
        return self._runtime.parts.agents.roots[0].name

    async def start(self, agent: str, goal: str, key: str) -> Run[Any]:
        """Start a run of an agent; the same key starts no second one.

        Raises:
            ArgumentsError: the agent is not served.
            Exception: as of `Runtime.start`.
        """
        if agent not in {one.name for one in self._runtime.parts.agents.roots}:
            raise ArgumentsError("no agent of this name is served here; the tools run_… name those that are")
        return await self._runtime.start(agent, goal, who=self._who, key=f"mcp/{key}" if key else "")

    async def watch(self, run: Run[Any], report: Report, seconds: float, *, after: int | None = None) -> RunView:
        """Return how far a run is once it has ended or asks, at the latest after so many seconds.

        What it does meanwhile is reported, from the event behind `after` on, or from now.
        """
        after = self._runtime.parts.bus.last_sequence(self._who) if after is None else after
        view = await self.view(run)
        if view.status != "running" or not seconds:
            return view
        limit = asyncio.timeout(seconds)
        try:
            async with limit, aclosing(run.events(after=after, children=True)) as events:
                async for event in events:
                    if event.type in _ASKS and await open_questions(run):
                        break
                    if event.type in _TOLD and event.identity.run_id == run.id:
                        await report(_told(event))
                else:
                    await _ended(run)
        except TimeoutError:
            if not limit.expired():
                raise
        return await self.view(run)

    async def question(self, run: Run[Any], token: str) -> Question:
        """Return a question of a run, open or answered."""
        return Question(await self._runtime.parts.pauses.status(token, who=run.who))

    async def answer(self, run: Run[Any], question: Question, payload: Any) -> None:
        """Answer a question; one that was answered so before is left as it is.

        Raises:
            HarborageError: it was answered otherwise, or takes another kind of answer.
        """
        said = read_verdict(payload) if takes_verdict(question) else Value(payload)
        await send_answer(run, question.pause, said)

    async def _answer(self, asked: AnswerRun, report: Report) -> RunView:
        run = await self.run(asked.run_id)
        if asked.token:
            question = await self.question(run, asked.token)
        else:
            questions = await open_questions(run)
            if len(questions) != 1:
                raise ArgumentsError(f"the run asks {len(questions)} questions; run_status names their tokens")
            question = questions[0]
        if takes_verdict(question):
            if asked.approved is None:
                raise ArgumentsError("this is an approval: send approved, true or false")
            payload: Any = {"approved": asked.approved, "reason": asked.reason, "editedArgs": asked.args}
        elif asked.value is None:
            raise ArgumentsError("this is a question: send value, which is the answer")
        else:
            payload = asked.value
        await self.answer(run, question, payload)
        return await self.watch(run, report, asked.wait_seconds)

    async def _steer(self, asked: SteerRun) -> RunView:
        run = await self.run(asked.run_id)
        if asked.action in (Steering.REDIRECT, Steering.MESSAGE) and not asked.text.strip():
            raise ArgumentsError(f"{asked.action} needs a text")
        match asked.action:
            case Steering.PAUSE:
                await run.pause()
            case Steering.RESUME:
                await run.resume()
            case Steering.CANCEL:
                await run.cancel()
            case Steering.REDIRECT:
                await run.redirect(asked.text)
            case Steering.MESSAGE:
                await run.message(asked.text)
            case _:
                assert_never(asked.action)
        return await self.view(run)

    async def row(self, run: Run[Any]) -> RunRow:
        """Return what the store knows of a run that was looked up.

        Raises:
            RunNotFoundError: it is gone.
        """
        rows = (await self._runtime.parts.store.runs(RunQuery(run_ids=(run.id,), limit=1))).rows
        if not rows:
            raise RunNotFoundError(run.id)
        return rows[0]

    async def page(self, cursor: str, size: int) -> tuple[list[RunRow], str]:
        """Return the newest runs of the caller's session behind a cursor, and the next one, "" at the end.

        Raises:
            ArgumentsError: no page gave the cursor out.
        """
        at = cursor.split(":") if cursor else []
        if at and not (len(at) == 2 and all(one.isascii() and one.isdigit() and len(one) < 19 for one in at)):
            raise ArgumentsError("cursor: not one of this list")
        who = self._who
        query = RunQuery(
            tenant=who.tenant_id,
            user=who.user_id,
            session=who.session_id,
            after=(int(at[0]), int(at[1])) if at else None,
            limit=size,
        )
        page = await self._runtime.parts.store.runs(query)
        return list(page.rows), "" if page.cursor is None else f"{page.cursor[0]}:{page.cursor[1]}"

    async def view(self, run: Run[Any]) -> RunView:
        """Return how far a run is now."""
        status = await run.status()
        if status.phase.is_final:
            return await self._ended_view(run, status.agent)
        questions = await open_questions(run)
        return RunView(
            run_id=run.id,
            agent=status.agent,
            status="waiting" if questions else "running",
            questions=[_asked(one) for one in questions],
            next="answer_run answers it" if questions else "run_status waits for it",
        )

    async def _ended_view(self, run: Run[Any], agent: str) -> RunView:
        try:
            finish = await run.finished()
        except RunFailedError as error:
            return RunView(run_id=run.id, agent=agent, status="failed", error=error_text(error))
        match finish.reason:
            case FinishReason.GOAL:
                output = codec.to_plain(finish.payload)
                return RunView(run_id=run.id, agent=agent, status="completed", output=output)
            case FinishReason.CANCELLED:
                return RunView(run_id=run.id, agent=agent, status="cancelled")
            case _:
                text = f"it ended without reaching its goal: {finish.reason}"
                return RunView(run_id=run.id, agent=agent, status="failed", error=text)


def _asked(question: Question) -> Asked:
    schema, deadline = (question.pause.payload or {}).get("schema"), question.deadline
    is_verdict = takes_verdict(question)
    return Asked(
        token=question.token,
        question=ask_text(question),
        how="approved: true or false, perhaps with reason and args" if is_verdict else "value: the answer",
        tool=question.tool,
        args=question.args,
        answer_schema=schema if isinstance(schema, dict) and not is_verdict else UNSET,
        deadline="" if deadline is None else deadline.isoformat(),
    )


def ask_text(question: Question) -> str:
    """Return what a person is asked."""
    if takes_verdict(question) and question.tool:
        return f"{question.tool} waits for your approval: {codec.encode(question.args).decode()}"
    return question.question or f"the run waits: {question.reason}"


def _told(event: Event) -> str:
    tool = getattr(event.payload, "tool_name", "")
    return f"{event.type} {tool}".strip()


async def _ended(run: Run[Any]) -> None:
    """Wait until the end of a run is known, however it ended."""
    try:
        await run.finished()
    except RunFailedError:
        return
