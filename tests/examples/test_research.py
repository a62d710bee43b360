"""The research example at work, offline: by its script, and by hand for what a script cannot show."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from harborage import Event, EventType, Finish, FinishReason, Identity
from harborage.app import load_agent, open_runtime
from harborage.events import TaskSpawnedPayload, ToolCompletedPayload
from harborage.testing.llm import ScriptedLLM, calls_tools, user_text
from harborage.tools import SideEffect

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[2]
ADA = Identity("acme", "ada", "research")
QUESTION = "When can a boat that draws 2.5 m leave Sund on 3 May?"
SCRIPT = ROOT / "examples" / "research.json"


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example, in a copy of the folder that it is shown with."""
    shutil.copytree(ROOT / "examples" / "research", tmp_path / "folder" / "examples" / "research")
    (tmp_path / "outside.md").write_text("words")
    monkeypatch.chdir(tmp_path / "folder")
    agent = load_agent(str(ROOT / "examples" / "research.py"))
    return sys.modules["harborage_target_research"], agent


def line_of(path: str, number: int) -> str:
    """A line of a file, counted from 1."""
    return Path(path).read_text().splitlines()[number - 1]


async def run_of(agent: Any, model: Any, goal: str = QUESTION) -> tuple[Finish, list[Event]]:
    """A run to its end, and its events with those of its sub-tasks."""
    async with open_runtime(agent.replace(model=model)) as runtime:
        run = await runtime.start(goal, who=ADA)
        events = [event async for event in run.events()]
        return await run.finished(), events


async def test_the_script_answers_with_sources(example: Any) -> None:
    """The offline run reaches its goal, and each place that it cites was proved by a quotation."""
    _, agent = example
    finish, events = await run_of(agent, f"script:{SCRIPT}")
    assert finish.reason is FinishReason.GOAL
    cited = set(re.findall(r"\[(examples/research/\w+\.md):(\d+)\]", finish.payload))
    assert len(cited) == 7
    for path, number in cited:
        assert line_of(path, int(number)).strip()
    assert EventType.TOOL_FAILED not in {event.type for event in events}
    quoted = [event for event in events if getattr(event.payload, "tool_name", "") == "quote"]
    assert sum(isinstance(event.payload, ToolCompletedPayload) for event in quoted) == 7


async def test_a_sub_question_is_answered_beside_the_run(example: Any) -> None:
    """One part of the question is a background task of its own, which uses the same tools."""
    _, agent = example
    _, events = await run_of(agent, f"script:{SCRIPT}")
    spawned = [event.payload for event in events if isinstance(event.payload, TaskSpawnedPayload)]
    assert [str(task.kind) for task in spawned] == ["foreground", "background"]
    whose = {event.identity.run_id for event in events if event.type == EventType.TOOL_COMPLETED}
    assert whose == {task.task_id for task in spawned}


@pytest.mark.parametrize(
    ("path", "words", "why"),
    [
        ("examples/research/harbour.md", "Keep two metres of water", "does not say that"),
        ("examples/research/harbour.md", " ", "does not say that"),
        ("examples/research/none.md", "x", "there is no file"),
        ("../outside.md", "words", "there is no file"),
    ],
)
async def test_a_quotation_that_is_not_there_is_refused(example: Any, path: str, words: str, why: str) -> None:
    """Words that a file does not hold, missing files and files outside prove nothing; the model learns it."""
    _, agent = example
    model = ScriptedLLM([calls_tools(("quote", {"path": path, "words": words})), "I did not find it."])
    await run_of(agent, model)
    message = model.requests[-1].messages[-1]
    assert why in (message.content.text or "")


def test_a_quotation_may_be_broken_into_lines(example: Any) -> None:
    """White space does not count, every other sign does; the place is that of the first word."""
    module, agent = example
    Path("a.md").write_text("One.\nTwo words\n  on (two) lines.\n")
    (quote,) = [one for one in agent.tools if one.tool.name == "quote"]
    assert quote.function("a.md", "words on (two) lines.") == {"source": "a.md:2", "line": "Two words"}
    with pytest.raises(module.NotFoundInSourceError):
        quote.function("a.md", "words on .two. lines.")


async def test_it_changes_nothing(example: Any) -> None:
    """None of its tools writes, so no approval is needed."""
    _, agent = example
    assert {one.tool.side_effects for one in agent.tools} <= {SideEffect.READ, SideEffect.PURE, SideEffect.EXTERNAL}
    model = ScriptedLLM(["Nothing to do."])
    await run_of(agent, model)
    assert QUESTION in user_text(model.requests[0])
    assert {"_spawn_task", "_await_task", "quote"} <= {one.name for one in model.requests[0].tools}
    assert "write_file" not in {one.name for one in model.requests[0].tools}
