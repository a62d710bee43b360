"""What one run of an agent may set: another model, other tools, a key, tags, and what was said before."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harborage import Agent, Identity, Runtime, tool
from harborage.errors import InvalidOptionError
from harborage.runtime.messages import Message, Speaker
from harborage.tasks import IdempotencyConflictError
from harborage.testing.llm import ScriptedLLM, calls_tools, says
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")


@tool(effects="read")
async def find(order: str) -> str:
    """Find an order."""
    return f"order {order}: broken"


@tool(effects="read")
async def weigh(order: str) -> str:
    """Weigh an order."""
    return "12 kg"


def agent_that(*lines: Any, **options: Any) -> Agent[Any, Any]:
    """An agent whose model says these lines."""
    return Agent("support", model=ScriptedLLM(list(lines)), **options)


async def test_a_run_may_have_another_model_and_other_tools() -> None:
    """They stand in the place of the agent's, for this run alone; the agent stays as it is."""
    agent = agent_that(says("of its own"), tools=[find])
    other = ScriptedLLM([calls_tools(("weigh", {"order": "7"})), says("12 kg")])
    result = await agent.run("Weigh order 7", model=other, tools=[weigh])
    assert (result.output, result.messages[2].text) == ("12 kg", "12 kg")
    assert (await agent.run("And now?")).output == "of its own"


async def test_a_key_makes_a_run_start_once() -> None:
    """Whoever starts it again, at the same time or after its end, has the same run, with all that it gave."""
    model = ScriptedLLM([says("ordered")])
    agent = Agent("support", model=model)
    one, two = await asyncio.gather(*(agent.start("Order tea", key="order-7") for _ in range(2)))
    assert one.id == two.id
    assert [(await run.result()).output for run in (one, two)] == ["ordered"] * 2
    again = await agent.start("Order tea", key="order-7")
    types = [event.type async for event in again.events()]
    assert (again.id, types[0], types[-1]) == (one.id, "task.spawned", "task.completed")
    assert len(model.requests) == 1
    assert (await agent.run("Order tea", key="order-8")).run_id != one.id


async def test_a_key_of_another_goal_is_refused() -> None:
    """And of another agent, in a service: nobody takes the answer to another question for his own."""
    agent, other = agent_that(says("ordered")), Agent("other", model=ScriptedLLM([says("never")]))
    async with Runtime([agent, other]) as rt:
        first = await rt.start(agent, "Order tea", who=ME, key="order-7")
        for start, goal in ((agent, "Order salt"), (other, "Order tea")):
            with pytest.raises(IdempotencyConflictError, match=r"'order-7' belongs to .*a different request"):
                await rt.start(start, goal, who=ME, key="order-7")
        elsewhere = await rt.start(other, "Order salt", who=Identity("t", "u", "s2"), key="order-7")
        assert elsewhere.id != first.id
        await first.finished()


PROGRAM = """
import asyncio, os, sys
from dataclasses import dataclass
from harborage import Agent, CallContext, tool
from harborage.testing.llm import ScriptedLLM, calls_tools, says

@dataclass
class Shop:
    name: str

@tool(effects="external", idempotent=True)
async def stock(ctx: CallContext[Shop], item: str) -> str:
    "Look at the stock."
    if sys.argv[1] == "dies":
        os._exit(9)
    return f"3 of {item} at {ctx.deps.name}"

lines = [calls_tools(("stock", {"item": "tea"})), says("3 left")]
agent = Agent("shop", model=ScriptedLLM(lines if sys.argv[1] == "dies" else lines[1:]), tools=[stock], deps=Shop)
result = asyncio.run(agent.run("How much tea?", deps=Shop("Porto"), key="tea"))
print(result.output, result.messages[2].text)
"""


def test_a_program_that_starts_a_run_again_by_its_key_carries_it_on(tmp_path: Path) -> None:
    """After a kill in the middle: the run goes on with what this program gives its tools."""
    (tmp_path / "shop.py").write_text(PROGRAM)

    environ = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}

    def run(how: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "shop.py", how]
        return subprocess.run(
            program, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=100
        )

    assert run("dies").returncode == 9
    done = run("lives")
    assert done.stdout == "3 left 3 of tea at Porto\n", done.stderr


async def test_a_run_goes_on_from_the_messages_of_another() -> None:
    """The model is shown them, and they are part of the result's own, so that a third run may go on from there."""
    model = ScriptedLLM(
        [calls_tools(("find", {"order": "7"})), says("Broken.")],
        by_text={"Send it again.": [says("Sent again.")], "When?": [says("Tuesday.")]},
    )
    agent = Agent("support", model=model, tools=[find])
    first = await agent.run("Where is order 7?")
    second = await agent.run("Send it again.", messages=first.messages)
    shown = "".join(str(part) for part in model.requests[2].messages)
    assert "Where is order 7?" in shown
    assert "order 7: broken" in shown
    assert second.messages[: len(first.messages)] == first.messages
    third = await agent.run("When?", messages=second.messages)
    assert [one.text for one in third.messages if one.role is Speaker.USER] == [
        "Where is order 7?",
        "Send it again.",
        "When?",
    ]


async def test_messages_stand_beside_what_a_session_remembers() -> None:
    """Neither takes the place of the other."""
    model = ScriptedLLM([says("Hello.")])
    agent = Agent("support", model=model)
    async with Runtime([agent]) as rt:
        await rt.session(agent, who=ME).send("I am Ada.")
        said = [Message(role=Speaker.USER, text="The blue one.")]
        run = await rt.start(agent, "Is it here?", who=ME, remembers=True, messages=said)
        assert (await run.result()).messages[0] == said[0]
    shown = "".join(str(part) for part in model.requests[1].messages)
    assert "I am Ada." in shown
    assert "The blue one." in shown


@each_row(
    "option, value, text",
    [
        ("key", 7, "key=7: expected a text of up to 200 printable characters"),
        ("key", "x" * 201, "a text of up to 200 printable characters"),
        ("tags", ["a"], "tags=['a']: expected names and texts"),
        ("tags", {"shop": 3}, "expected names and texts"),
        ("tags", {"": "x"}, "expected names and texts"),
        ("tags", {"a\n": "x"}, "printable"),
        ("tags", {str(n): "x" for n in range(33)}, "up to 32 tags"),
        ("messages", "hello", "messages='hello': expected messages of a run, such as result.messages"),
        ("messages", [{"role": "user"}], "such as result.messages"),
        ("tools", [find, find], "two are named 'find'"),
    ],
)
async def test_a_choice_that_is_none_is_refused(option: str, value: Any, text: str) -> None:
    """By name, before anything is started."""
    agent = agent_that(says("never"))
    given: dict[str, Any] = {option: value}
    with pytest.raises(InvalidOptionError) as caught:
        await agent.run("go", **given)
    assert text in str(caught.value)
