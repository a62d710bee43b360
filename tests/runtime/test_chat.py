"""A conversation: what was said before reaches the model, and messages are answered one after the other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from harborage import Agent, Finish, FinishReason, Identity, Runtime
from harborage.errors import InvalidOptionError
from harborage.identity import IdentityRequiredError
from harborage.llm import CompleteRequest, CompleteResponse
from harborage.runtime.chat import SessionBusyError
from harborage.runtime.durable.engine import RunFailedError
from harborage.testing.clock import settle
from tests.kit.planners import StepPlanner

pytestmark = pytest.mark.anyio

ME = Identity("t", "ada", "s-7")


class Gated:
    """Answers with the goal once its gate is open, and keeps the goals in the order in which they came."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.asked: list[str] = []

    async def next(self, run: Any) -> Any:
        self.asked.append(run.goal)
        await self.gate.wait()
        return Finish(FinishReason.GOAL, f"re: {run.goal}")


class Listener:
    """A model that answers with the name that the user said, in this message or before."""

    def __init__(self) -> None:
        self.requests: list[CompleteRequest] = []

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        self.requests.append(request)
        return CompleteResponse(content="Hello Ada." if "I am Ada" in texts(request) else "Who?")

    async def close(self) -> None:
        pass


def texts(request: Any) -> str:
    return "\n".join(message.content.text for message in request.messages if message.content)


async def test_what_was_said_before_reaches_the_model() -> None:
    """Also for an agent that says nothing of a memory; a run outside of a conversation has none."""
    support = Agent("support", model=Listener())
    async with Runtime([support]) as runtime:
        chat = runtime.session(support, who=ME)
        assert (await chat.send("I am Ada")).output == "Hello Ada."
        assert (await chat.send("Who am I?")).output == "Hello Ada."
        assert (await (await runtime.start(support, "Who am I?", who=ME)).result()).output == "Who?"


async def test_a_conversation_goes_on_after_a_restart(tmp_path: Path) -> None:
    """The history is kept where the runs are; another user's session of the same name has none of it."""
    url = f"sqlite:{tmp_path / 'runs.db'}"
    support = Agent("support", model=Listener())
    async with Runtime([support], storage=url) as runtime:
        await runtime.session(support, who=ME).send("I am Ada")
    async with Runtime([support], storage=url) as runtime:
        assert (await runtime.session(support, who=ME).send("Who am I?")).output == "Hello Ada."
        bob = Identity("t", "bob", "s-7")
        assert (await runtime.session(support, who=bob).send("Who am I?")).output == "Who?"


async def test_messages_at_once_are_answered_in_turn() -> None:
    """Through one handle and through several; each run begins when the one before has ended."""
    planner = Gated()
    support = Agent("support", planner=planner)
    async with Runtime([support]) as runtime:
        chats = [runtime.session(support, who=ME) for _ in range(2)]
        sent = [asyncio.ensure_future(chats[number % 2].send(f"m{number}")) for number in range(4)]
        await settle()
        assert planner.asked == ["m0"]
        planner.gate.set()
        assert [(await one).output for one in sent] == [f"re: m{number}" for number in range(4)]
    assert planner.asked == [f"m{number}" for number in range(4)]


async def test_a_message_can_be_refused_while_the_one_before_is_answered() -> None:
    """The error names the run; afterwards the session takes messages again."""
    planner = Gated()
    support = Agent("support", planner=planner)
    async with Runtime([support]) as runtime:
        chat = runtime.session(support, who=ME, busy="refuse")
        async with chat.stream("first") as run:
            with pytest.raises(SessionBusyError, match=run.id):
                await chat.send("second")
        planner.gate.set()
        await run.finished()
        assert (await chat.send("third")).output == "re: third"


async def test_a_failed_answer_does_not_hold_up_the_next() -> None:
    """The next message is answered after a run that failed, too."""
    support = Agent("support", planner=StepPlanner(ValueError("broken")))
    async with Runtime([support]) as runtime:
        chat = runtime.session(support, who=ME)
        for _ in range(2):
            with pytest.raises(RunFailedError, match="broken"):
                await chat.send("hello")


async def test_what_is_no_conversation_is_refused() -> None:
    """A session without a name, a word that is no choice, an incomplete identity."""
    support = Agent("support", planner=StepPlanner())
    with pytest.raises(InvalidOptionError, match="session"):
        support.session("")
    with pytest.raises(InvalidOptionError, match="busy"):
        support.session("s", busy="maybe")
    async with Runtime([support]) as runtime:
        with pytest.raises(IdentityRequiredError):
            runtime.session(support, who=Identity("t", "", "s"))


async def test_a_script_has_a_conversation_without_a_runtime() -> None:
    """By the name of its session; another agent value shares nothing but the history."""
    support = Agent("support", model=Listener())
    assert (await support.session("s-7").send("I am Ada")).output == "Hello Ada."
    assert (await support.session("s-7").send("Who am I?")).output == "Hello Ada."
    assert (await support.session("s-8").send("Who am I?")).output == "Who?"
