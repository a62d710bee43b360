"""What survives `kill -9`, over SQLite and Postgres: the process is killed at its worst moment, and another goes on."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.kit.mortal_agents import Story, Ticket, teller

pytestmark = pytest.mark.anyio

PATIENCE_S = 60
ROOT = Path(__file__).resolve().parents[2]


async def killed(url: str, file: Path, story: str) -> None:
    """Begin a story in a process of its own, and kill it when its moment has come."""
    command = [sys.executable, "-m", "tests.kit.mortal_agents", url, str(file), story]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert await asyncio.wait_for(process.stdout.readline(), PATIENCE_S) == b"now\n"
    finally:
        process.kill()
        await process.wait()


async def test_a_chat_that_is_killed_mid_answer_has_its_answer_and_goes_on(storage: str, tmp_path: Path) -> None:
    """The message that was being answered is answered by the next process, which remembers the whole conversation."""
    await killed(storage, tmp_path / "paid", "chat")
    story = Story(tmp_path / "paid", is_mortal=False)
    async with story.runtime(storage) as runtime:
        ada = teller("chat")
        chat = runtime.session(story.clerk, who=ada)
        reply = await asyncio.wait_for(chat.send("What did I ask?"), PATIENCE_S)
        answers = [(await runtime.get(one.run_id, who=ada).result()).output for one in await runtime.runs(who=ada)]
    assert reply.output == "You asked about two orders."
    assert answers == ["You asked about two orders.", "It is on its way.", "Order 7 is here."]
    shown = str(story.chat_model.requests[-1].messages)
    assert "Order 7 is here." in shown
    assert "It is on its way." in shown


async def test_a_typed_answer_that_is_killed_while_it_is_asked_again_comes_in_its_type(
    storage: str, tmp_path: Path
) -> None:
    """The step is taken again, with its own corrections."""
    await killed(storage, tmp_path / "paid", "typed")
    story = Story(tmp_path / "paid", is_mortal=False)
    async with story.runtime(storage) as runtime:
        run = await runtime.start(story.tickets, "The lamp", who=teller("typed"), key="typed")
        result = await asyncio.wait_for(run.result(), PATIENCE_S)
    assert result.output == Ticket("Lamp", urgent=True)
    assert len(story.ticket_model.requests) == 2


async def test_a_child_that_is_killed_while_it_waits_for_approval_is_approved_afterwards(
    storage: str, tmp_path: Path
) -> None:
    """By the same question, through the run that it works for; it pays once."""
    await killed(storage, tmp_path / "paid", "approval")
    story = Story(tmp_path / "paid", is_mortal=False)
    async with story.runtime(storage) as runtime:
        run = await runtime.start(story.lead, "Pay", who=teller("approval"), key="approval")
        pending = await asyncio.wait_for(run.wait_pending(), PATIENCE_S)
        assert (pending.tool, pending.args) == ("pay", {"euros": 12})
        await pending.approve()
        result = await asyncio.wait_for(run.result(), PATIENCE_S)
    assert (result.output, (tmp_path / "paid").read_text("utf-8")) == ("Paid.", "12\n")


async def test_a_workflow_that_is_killed_in_its_third_sleep_wakes_in_another_process(
    storage: str, tmp_path: Path
) -> None:
    """At its time; nothing before is done again."""
    await killed(storage, tmp_path / "paid", "sleep")
    story = Story(tmp_path / "paid", is_mortal=False)
    async with story.runtime(storage) as runtime:
        run = await runtime.start(story.nap, "tea", who=teller("sleep"), key="sleep")
        result = await asyncio.wait_for(run.result(), PATIENCE_S)
    assert result.output == "tea: slept three times"
    assert [step.calls[0].tool for step in result.steps if step.calls].count("note") == 3
