"""Agents and workflows of a process that is killed, and of the one that goes on: the same code in both.

Started as a program, `mortal_agents.py URL FILE STORY`, it begins a story over the storage, says on standard output
when the moment has come at which it is to be killed, and never gets further by itself.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from harborage import Agent, Identity, Memory, Runtime, WorkflowContext, tool, workflow
from harborage.llm import CompleteRequest, CompleteResponse
from harborage.testing.llm import calls_tools, user_text


def teller(story: str) -> Identity:
    """The person of a story: each has a session of its own."""
    return Identity("t", "ada", story)


@dataclass
class Ticket:
    title: str
    urgent: bool = False


class Moments:
    """What a process does at the moment at which it is to be killed; one that goes on passes it."""

    def __init__(self, *, is_mortal: bool) -> None:
        self.is_mortal = is_mortal

    async def here(self) -> None:
        """Say that the moment has come, and wait for the end."""
        if self.is_mortal:
            sys.stdout.write("now\n")
            sys.stdout.flush()
            await asyncio.Event().wait()


class Model:
    """Answers by what it is shown, so that it says the same in every process; `answer` may stream, and wait."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.requests: list[CompleteRequest] = []

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        self.requests.append(request)
        answer: CompleteResponse = await self._answer(request)
        return answer

    async def close(self) -> None:
        """Nothing is open."""


class Story:
    """The agents over one storage. `file` has a line for each payment that was made."""

    def __init__(self, file: Path, *, is_mortal: bool) -> None:
        self.moments = moments = Moments(is_mortal=is_mortal)

        async def chat(request: CompleteRequest) -> CompleteResponse:
            last = user_text(request)
            if "and the second" in last:
                if request.on_content is not None:
                    request.on_content("It is on ", False)
                await moments.here()
                return CompleteResponse(content="It is on its way.")
            return CompleteResponse(content="Order 7 is here." if "order 7" in last else "You asked about two orders.")

        async def ticket(request: CompleteRequest) -> CompleteResponse:
            if len(request.messages) > 2:
                await moments.here()
                return CompleteResponse(content='{"title": "Lamp", "urgent": true}')
            return CompleteResponse(content="The lamp is broken!")

        async def lead(request: CompleteRequest) -> CompleteResponse:
            is_over = any(one.role == "tool" for one in request.messages)
            return CompleteResponse(content="Paid.") if is_over else calls_tools(("payer", {"goal": "Pay 12"}))

        async def payer(request: CompleteRequest) -> CompleteResponse:
            is_over = any(one.role == "tool" for one in request.messages)
            return CompleteResponse(content="12 paid") if is_over else calls_tools(("pay", {"euros": 12}))

        @tool(effects="external", approval="always")
        async def pay(euros: int) -> str:
            """Pay."""
            with file.open("a") as out:
                out.write(f"{euros}\n")
            return f"paid {euros}"

        @tool(effects="read")
        async def note(text: str) -> str:
            """Note a text."""
            return text

        @workflow
        async def nap(ctx: WorkflowContext, goal: str) -> str:
            for night in range(3):
                await ctx.call(note, text=f"night {night}")
                await ctx.sleep(timedelta(seconds=0.05 if night < 2 else 2))
            return f"{goal}: slept three times"

        self.chat_model, self.ticket_model = Model(chat), Model(ticket)
        self.clerk = Agent("clerk", model=self.chat_model, memory=Memory())
        self.tickets = Agent("tickets", model=self.ticket_model, output=Ticket)
        self.lead = Agent("lead", model=Model(lead), agents=[Agent("payer", model=Model(payer), tools=[pay])])
        self.nap = nap

    def runtime(self, url: str) -> Runtime:
        """A runtime of all of them."""
        return Runtime([self.clerk, self.tickets, self.lead, self.nap], storage=url)


async def begin(url: str, file: Path, story: str) -> None:
    """Begin a story, up to the moment."""
    told = Story(file, is_mortal=True)
    async with told.runtime(url) as runtime:
        match story:
            case "chat":
                chat = runtime.session(told.clerk, who=teller(story))
                await chat.send("Where is order 7?")
                await chat.send("and the second?")
            case "typed":
                await (await runtime.start(told.tickets, "The lamp", who=teller(story), key=story)).result()
            case "approval":
                run = await runtime.start(told.lead, "Pay", who=teller(story), key=story)
                await run.wait_pending()
                await told.moments.here()
            case "sleep":
                run = await runtime.start(told.nap, "tea", who=teller(story), key=story)
                while len(await run.history()) < 13:  # noqa: ASYNC110 - no event says that it sleeps
                    await asyncio.sleep(0.01)
                await told.moments.here()
            case _:
                raise ValueError(f"there is no story {story!r}")


if __name__ == "__main__":
    asyncio.run(begin(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
