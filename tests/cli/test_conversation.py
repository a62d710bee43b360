"""Questions and lines around a run in this process: what may go wrong between asking and answering."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from rich.text import Text

from harborage.app import Change
from harborage.cli.conversation import Conversation
from harborage.cli.journal_view import new_view
from harborage.cli.keyboard import Keyboard
from harborage.cli.questions import QuestionQueue
from harborage.events import BusDroppedPayload, Event, EventType, Filter
from harborage.identity import Identity
from harborage.planner import (
    AwaitTask,
    CallTool,
    Decision,
    Finish,
    FinishReason,
    PauseReason,
    RequestPause,
    RunContext,
    SpawnSpec,
    SpawnTask,
)
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.host import Runtime
from harborage.runtime.run import Run
from harborage.testing.clock import FakeClock
from harborage.tools import SideEffect, tool
from harborage.tools.errors import ToolInvalidArgsError

pytestmark = pytest.mark.anyio

WHO = Identity("local", "ana", "cli-1")


@tool(effects=SideEffect.WRITE)
async def publish(title: str) -> str:
    """Publish."""
    return f"published {title}"


def refuse_drafts(args: bytes) -> None:
    """A check that is not in the tool's schema."""
    if b"draft" in args:
        raise ToolInvalidArgsError("drafts are not published", "$.title")


class Words:
    """The goal says what to do."""

    async def next(self, run: RunContext) -> Decision:
        steps = run.trajectory.steps if run.trajectory else []
        hint = None if run.trajectory is None else run.trajectory.resume_hint
        if hint is not None:
            return Finish(FinishReason.GOAL, hint.resume_payload)
        match run.goal:
            case "publish" if not steps:
                return CallTool("publish", b'{"title":"x"}')
            case "consent":
                return RequestPause(PauseReason.APPROVAL_REQUIRED, {"plan": "all of it"})
            case "ask":
                return RequestPause(PauseReason.AWAIT_INPUT, {"question": "Which?"})
            case "family" if not steps:
                return SpawnTask(spec=SpawnSpec(query="publish"))
            case "family" if len(steps) == 1:
                return AwaitTask(steps[0].observation["task_id"])
            case _:
                return Finish(FinishReason.GOAL, [step.observation for step in steps])


class Written:
    """A screen that remembers what was written."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.width = 120
        self.height = 0

    def show(self, lines: Sequence[Text], *, is_urgent: bool = False) -> None:
        self.lines.extend(line.plain for line in lines)

    def refresh(self) -> None:
        return

    def redraw(self) -> None:
        return

    def suspended(self) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None:
        return


class Talk:
    """A conversation in which the test is the person, and which hears events when the test says so."""

    def __init__(
        self, runtime: Runtime, run: Run, clock: FakeClock, *, approves: bool, is_alone: bool, **more: Any
    ) -> None:
        self.run = run
        self.clock = clock
        self.screen = Written()
        self.queue = QuestionQueue()
        # Never opened: what a test types goes to `hear`.
        self.keyboard = None if is_alone else Keyboard(-1, on_line=print, on_change=print, on_gone=print)
        self.events = runtime.bus.subscribe(Filter.of(WHO))
        self._talk = Conversation(
            runtime,
            run,
            new_view(run.id),
            screen=self.screen,
            queue=self.queue,
            keyboard=self.keyboard,
            approves=approves,
            clock=clock,
            **more,
        )

    async def cancel(self) -> None:
        """Press Ctrl-C once."""
        await self._talk.cancel(is_hard=False)

    async def handle_line(self, line: str, asked: str | None = None) -> None:
        """Type a line, while the question that is put now was put unless `asked` says which."""
        await self._talk.handle_line(line, self.queue.token if asked is None else asked)

    async def tell(self, event: Event) -> None:
        """Tell the conversation of an event."""
        await self._talk.handle_event(event)

    async def until(self, type: EventType) -> Event:
        """Pass on events up to one of that type."""
        async with asyncio.timeout(30):
            async for event in self.events:
                await self.tell(event)
                if event.type == type:
                    return event
        raise AssertionError("the bus was closed")

    @property
    def text(self) -> str:
        """What was written."""
        return "\n".join(self.screen.lines)


Start = Callable[..., Any]


@pytest.fixture
def talk() -> Start:
    """Starts a run and a conversation about it."""

    @asynccontextmanager
    async def start(
        goal: str, *, approves: bool = False, is_alone: bool = False, tool: Any = publish, **more: Any
    ) -> AsyncIterator[Talk]:
        clock = FakeClock()
        options = RuntimeOptions(approval_ttl=timedelta(hours=1), pause_ttl=timedelta(hours=1))
        policies = {"publish": AlwaysDeny()}
        async with Runtime(planner=Words(), tools=[tool], approvals=policies, options=options, clock=clock) as runtime:
            run = await runtime.start(goal, who=WHO)
            yield Talk(runtime, run, clock, approves=approves, is_alone=is_alone, **more)

    return start


async def test_a_question_is_asked_once_its_gate_can_receive_the_answer(talk: Start) -> None:
    """The pause of a gated call is no question yet; the announcement of its gate is."""
    async with talk("publish") as it:
        await it.until(EventType.PAUSE_REQUESTED)
        assert len(it.queue) == 0
        await it.until(EventType.TOOL_APPROVAL_REQUESTED)
        assert it.queue.current.args == {"title": "x"}
        await it.handle_line("y")
        assert (await it.run.finished()).payload == ["published x"]


async def test_an_unanswered_question_is_withdrawn(talk: Start) -> None:
    """When the deadline settles a call its question is gone, and a late answer goes nowhere."""
    async with talk("publish") as it:
        await it.until(EventType.TOOL_APPROVAL_REQUESTED)
        asked = it.queue.token
        await it.clock.run_for(3_600)
        await it.until(EventType.TOOL_REJECTED)
        assert len(it.queue) == 0
        await it.handle_line("y", asked)
        assert "» that question is closed; not sent: y" in it.screen.lines


async def test_a_line_finished_before_a_question_does_not_answer_it(talk: Start) -> None:
    """A `y` that was typed when nothing was asked is a message, whatever is asked by now."""
    async with talk("publish") as it:
        await it.until(EventType.TOOL_APPROVAL_REQUESTED)
        await it.handle_line("y", "")
        assert len(it.queue) == 1
        assert (await it.run.status()).phase == "running"
        await it.handle_line("n")
        await it.until(EventType.TOOL_REJECTED)


async def test_what_was_being_typed_waits_for_the_end_of_a_question(talk: Start) -> None:
    """A half-typed line is off the input line while a question is open, and on it again afterwards."""
    async with talk("publish") as it:
        it.keyboard.editor.fill("half a mess")
        await it.until(EventType.TOOL_APPROVAL_REQUESTED)
        assert it.keyboard.editor.text == ""
        await it.handle_line("y")
        assert it.keyboard.editor.text == "half a mess"


async def test_lost_events_lose_no_question(talk: Start) -> None:
    """When the bus says that events were lost, the open questions are looked up and put."""
    async with talk("publish") as it:
        async with asyncio.timeout(30):
            async for event in it.events:
                if event.type == EventType.TOOL_APPROVAL_REQUESTED:
                    break
        lost = Event(EventType.BUS_DROPPED, it.run.who, BusDroppedPayload(1, 9, 9, 1), it.clock.now())
        await it.tell(lost)
        await it.tell(lost)
        assert len(it.queue) == 1
        await it.handle_line("y")
        assert (await it.run.finished()).payload == ["published x"]


async def test_a_tasks_call_is_answered_at_the_task(talk: Start) -> None:
    """A question of a spawned task names it, and its answer goes to the task's own run."""
    async with talk("family") as it:
        await it.until(EventType.TOOL_APPROVAL_REQUESTED)
        assert "? publish (t1) needs your approval" in it.text
        await it.handle_line("y")
        await it.until(EventType.TOOL_APPROVED)
        outcome = (await it.run.finished()).payload[1]
        assert outcome["status"] == "complete"


@pytest.mark.parametrize(
    ("line", "payload"),
    [("y", {"decision": "approve"}), ("the second one", {"decision": "resume", "message": "the second one"})],
)
async def test_a_paused_run_gets_its_answer(talk: Start, line: str, payload: dict[str, str]) -> None:
    """A yes approves what a run asks consent for, words are handed to it."""
    async with talk("consent") as it:
        await it.until(EventType.PAUSE_REQUESTED)
        await it.handle_line(line)
        assert (await it.run.finished()).payload.items() >= payload.items()


async def test_no_ends_a_run_that_asked_for_consent(talk: Start) -> None:
    """A no to a paused run ends it without its goal."""
    async with talk("consent") as it:
        await it.until(EventType.PAUSE_REQUESTED)
        await it.handle_line("n too much")
        assert (await it.run.finished()).reason is FinishReason.CONSTRAINTS_CONFLICT


async def test_a_standing_yes_answers_what_a_yes_answers(talk: Start) -> None:
    """With --yes calls and consent are given, and a question in words is still put."""
    async with talk("publish", approves=True) as it:
        await it.until(EventType.TOOL_APPROVED)
        assert (await it.run.finished()).payload == ["published x"]
    async with talk("consent", approves=True) as it:
        await it.until(EventType.PAUSE_RESUMED)
        assert (await it.run.finished()).reason is FinishReason.GOAL
    async with talk("ask", approves=True) as it:
        await it.until(EventType.PAUSE_REQUESTED)
        assert it.queue.current.payload == {"question": "Which?"}


@pytest.mark.parametrize(
    ("goal", "way"), [("publish", "or with --yes"), ("consent", "or with --yes"), ("ask", "terminal")]
)
async def test_without_anybody_the_answer_is_no(talk: Start, goal: str, way: str) -> None:
    """Without a person to ask, the question is refused once, with the way out."""
    async with talk(goal, is_alone=True) as it:
        event = await it.until(EventType.TOOL_APPROVAL_REQUESTED if goal == "publish" else EventType.PAUSE_REQUESTED)
        await it.tell(event)
        await it.run.finished()
        (line,) = [
            line for line in it.screen.lines if "there is no terminal to ask a person in, so it was rejected" in line
        ]
        assert line.endswith(way)


async def test_an_edit_that_the_tool_does_not_take_keeps_the_question(talk: Start) -> None:
    """It is said what is wrong before anything is sent, the line is there to be mended, and the next one counts."""
    async with talk("publish") as person:
        await person.until(EventType.TOOL_APPROVAL_REQUESTED)
        for wrong, why in (('{"title": 5}', "title"), ("{}", "title"), ("[]", "JSON object")):
            await person.handle_line("e")
            await person.handle_line(wrong)
            assert why in person.screen.lines[-1]
            assert person.queue.is_editing
            assert person.keyboard.editor.text == wrong
        await person.handle_line('{"title": "y"}')
        assert (await person.run.finished()).payload == ["published y"]


async def test_a_question_whose_answer_did_not_count_is_put_again(talk: Start) -> None:
    """What the schema of a tool does not say, only the worker that makes the call can check."""
    async with talk("publish", tool=msgspec.structs.replace(publish, validate_args=refuse_drafts)) as person:
        await person.until(EventType.TOOL_APPROVAL_REQUESTED)
        question = person.queue.current
        assert question is not None
        await person.handle_line("e")
        await person.handle_line('{"title": "draft"}')
        assert not len(person.queue)
        await person.until(EventType.CONTROL_APPLIED)
        assert "your answer was not counted: the tool does not take these arguments" in person.text
        assert person.queue.token == question.token
        assert person.text.count("publish needs your approval") == 2
        await person.handle_line("y")
        assert (await person.run.finished()).payload == ["published x"]


async def test_a_cancel_takes_an_open_approval_back(talk: Start) -> None:
    """It does not wait for an answer, and says so; the question is closed and its call is not made."""
    async with talk("publish") as person:
        await person.until(EventType.TOOL_APPROVAL_REQUESTED)
        await person.cancel()
        assert "cancelling: the open question is withdrawn, the planner gets one more step" in person.text
        finish = await person.run.finished()
        assert finish.reason is FinishReason.CANCELLED or finish.payload != ["published x"]
        assert await person.run.waiting() == []


async def test_what_cannot_be_sent_is_said(talk: Start) -> None:
    """A line that the run's limits refuse, or that comes too late, is shown and not lost silently."""
    async with talk("ask") as it:
        await it.until(EventType.PAUSE_REQUESTED)
        await it.handle_line(f"/goal {'x' * 5000}")
        assert "» failed: " in it.text
        await it.handle_line("1")
        await it.run.finished()
        await it.handle_line("too late", "")
        assert it.screen.lines[-1].startswith("» failed: ")


async def test_what_a_call_would_change_is_shown_with_the_question(talk: Start) -> None:
    """The preview of the tool is asked with the arguments; where that fails it is shown, and the person can still
    decide."""
    seen: list[Any] = []

    async def preview(args: Any) -> Change | None:
        seen.append(dict(args))
        return Change("title", "w\n", "x\n")

    async def broken(args: Any) -> Change | None:
        raise OSError("no disk")

    async with talk("publish", previews={"publish": preview}) as it:
        await it.until(EventType.TOOL_APPROVAL_REQUESTED)
        assert seen == [{"title": "x"}]
        assert "-w\n" in it.text
        assert "+x\n" in it.text
    async with talk("publish", previews={"publish": broken}) as it:
        await it.until(EventType.TOOL_APPROVAL_REQUESTED)
        assert "the change cannot be shown: no disk" in it.text
        await it.handle_line("y")
        assert (await it.run.finished()).payload == ["published x"]


async def test_a_message_can_be_sent_while_a_question_is_open(talk: Start) -> None:
    """`/say` talks to the agent, and leaves the question where it is."""
    async with talk("publish") as it:
        await it.until(EventType.TOOL_APPROVAL_REQUESTED)
        await it.handle_line("/say the second one")
        assert len(it.queue) == 1
        await it.handle_line("y")
        await it.until(EventType.CONTROL_APPLIED)
        assert (await it.run.finished()).payload == ["published x"]


@pytest.mark.parametrize(("has_model", "said"), [(True, "the model's answer is dropped"), (False, "one more step")])
async def test_the_answer_of_a_model_is_not_waited_for(talk: Start, has_model: bool, said: str) -> None:
    """A cancel while nothing but a model works ends the run at once; a planner of one's own gets its last step."""
    async with talk("family", has_model=has_model) as it:
        await it.cancel()
        assert said in it.text
        assert (await it.run.finished()).reason is FinishReason.CANCELLED or not has_model
