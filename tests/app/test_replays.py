"""The agent of a recorded run is found again, and its run replays without its model, its key or its own check."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harborage.app import Agent, AgentNotReadyError, TargetError
from harborage.app.replays import open_kept, recorded_agent, replay_agent
from harborage.identity import Identity
from harborage.planner import Finish, FinishReason
from harborage.runtime.host import Runtime
from harborage.state.storage import open_storage
from harborage.testing.llm import ScriptedLLM, says
from harborage.testing.planners import ScriptedPlanner
from tests.kit.stored_runs import rows_of

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
SOURCE = """
from harborage.app import Agent
import words

agent = Agent(name="one", model="openai:gpt-5", instructions=words.WORDS)
other = Agent(name="other", model="mock:")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "reader.py").write_text(SOURCE)
    (tmp_path / "agents" / "words.py").write_text('WORDS = "Be brief."')
    return tmp_path


@pytest.mark.parametrize(("target", "name"), [("agents/reader.py", "one"), ("agents/reader.py:other", "other")])
def test_an_agent_is_found_from_anywhere(project: Path, target: str, name: str) -> None:
    """A file is meant from the folder of the project, with its neighbours; afterwards imports are as they were."""
    before = list(sys.path)
    with recorded_agent(target, project) as agent:
        assert agent.name == name
    sys.modules.pop("words", None)
    assert sys.path == before


def test_no_name_is_the_standard_agent(project: Path) -> None:
    """A run of `harborage run "question"` has no agent of its own."""
    with recorded_agent("", project) as agent:
        assert agent.name == "assistant"


def test_an_agent_that_is_gone_is_an_error(project: Path) -> None:
    """It names the file that was looked for."""
    with pytest.raises(TargetError, match=r"agents/nope\.py"), recorded_agent("agents/nope.py", project):
        pass


async def record_of(model: ScriptedLLM, **parts: str) -> list[bytes]:
    async with Runtime(model=model, **parts) as runtime:
        run = await runtime.start("g", who=ME)
        await run.result()
        return await run.history()


async def test_a_replay_needs_nothing_that_a_run_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key, no model, and an agent that could not work here now."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def not_now() -> None:
        raise AgentNotReadyError("the tree is dirty")

    record = await record_of(ScriptedLLM([says("ok")]))
    for model in ("openai:gpt-5", None):
        replayed = await replay_agent(Agent(name="a", model=model, check=not_now), record)
        assert (replayed.is_same, replayed.model_calls) == (True, 1)
    changed = await replay_agent(Agent(name="a", instructions="Be brief."), record)
    assert changed.difference is not None


async def test_an_agent_with_a_planner_of_its_own_is_asked_again() -> None:
    """There is no model to serve."""
    finish = Finish(FinishReason.GOAL)
    async with Runtime(planner=ScriptedPlanner([finish])) as runtime:
        run = await runtime.start("g", who=ME)
        await run.result()
        record = await run.history()
    assert (await replay_agent(Agent(name="a", planner=ScriptedPlanner([finish])), record)).is_same


async def test_a_runtime_over_kept_runs_writes_its_name() -> None:
    """And is refused for an agent that cannot work here."""

    def not_now() -> None:
        raise AgentNotReadyError("the tree is dirty")

    async with await open_storage("memory:") as storage:
        agent = Agent(name="a", planner=ScriptedPlanner([Finish(FinishReason.GOAL)]))
        async with open_kept(agent, storage, "agent.py#1") as runtime:
            run = await runtime.start("g", who=ME)
            await run.result()

        assert [one.agent for one in await rows_of(storage.store)] == ["agent.py#1"]
        with pytest.raises(AgentNotReadyError):
            open_kept(Agent(name="a", check=not_now), storage, "")
