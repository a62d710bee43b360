"""The runtime of an agent, and the agent of a recorded run."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from harborage.app import Agent, AgentNotReadyError, TargetError, open_runtime
from harborage.app.agent_runtime import open_kept_runtime, recorded_agent, replay_agent
from harborage.errors import InvalidOptionError, UnknownOptionError
from harborage.identity import Identity
from harborage.planner import CallTool, Finish, FinishReason
from harborage.planner.finish import FinishPlanner
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.durable.engine import RunFailedError
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.host import Runtime
from harborage.state.storage import open_storage
from harborage.testing.llm import ScriptedLLM, says
from harborage.testing.planners import ScriptedPlanner
from harborage.tools import tool
from harborage.tools.errors import ToolNotFoundError
from tests.kit.stored_runs import rows_of

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def test_an_agent_is_a_value() -> None:
    """It does not change, and little is needed."""
    agent = Agent(name="a", planner=FinishPlanner())
    assert (agent.tools, agent.approvals, agent.options, agent.check) == ((), None, RuntimeOptions(), None)
    with pytest.raises(AttributeError):
        agent.name = "b"  # type: ignore[misc]
    assert (agent.replace(name="b").name, agent.name) == ("b", "a")
    with pytest.raises(UnknownOptionError, match=r"nmae='b': there is no such option; did you mean name\?"):
        agent.replace(nmae="b")


async def test_everything_an_agent_says_is_used() -> None:
    """Planner, tools, approvals, options and logger."""
    script = [
        CallTool("add", b'{"a":1,"b":2}'),
        lambda run: Finish(FinishReason.GOAL, run.trajectory.steps[0].observation),
    ]
    logger = logging.getLogger("mine")
    agent = Agent(
        name="sum",
        planner=ScriptedPlanner(script),
        tools=[add],
        approvals={"add": AlwaysDeny()},
        options=RuntimeOptions(max_steps=2),
    )
    runtime = open_runtime(agent, logger=logger)
    assert runtime.options.max_steps == 2
    async with runtime as rt:
        run = await rt.start("g", who=ME)
        async for event in run.events():
            if event.type == "tool.approval_requested":
                await run.approve(event.payload.pause_token)
        assert (await run.finished()).payload == 3


async def test_one_agent_may_be_opened_many_times() -> None:
    """Its runtimes have nothing in common."""
    agent = Agent(name="a", planner=FinishPlanner())
    async with open_runtime(agent) as one, open_runtime(agent) as two:
        run = await one.start("g", who=ME)
        await run.finished()
        assert not await two.runs(who=ME)


def test_a_check_that_fails_opens_nothing() -> None:
    """It is asked first, and its words come out."""
    asked: list[int] = []

    def check() -> None:
        asked.append(1)
        raise AgentNotReadyError("start the model server")

    with pytest.raises(AgentNotReadyError, match="start the model server"):
        open_runtime(Agent(name="a", planner=FinishPlanner(), check=check))
    assert asked == [1]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"approvals": {"nope": AlwaysDeny()}}, ToolNotFoundError),
        ({"tools": [add, add]}, InvalidOptionError),
    ],
)
async def test_parts_that_do_not_fit_are_named_when_it_opens(fields: dict[str, Any], error: type[Exception]) -> None:
    """Nothing is left open."""
    with pytest.raises(error):
        async with open_runtime(Agent(name="a", planner=FinishPlanner(), **fields)):
            pass


async def test_limits_are_the_agents_own() -> None:
    """A run that goes on for ever ends there."""
    agent = Agent(
        name="a",
        planner=ScriptedPlanner([CallTool("add", b'{"a":1,"b":2}')] * 5),
        tools=[add],
        options=RuntimeOptions(max_steps=3),
    )
    async with open_runtime(agent) as rt:
        run = await rt.start("g", who=ME)
        with pytest.raises(RunFailedError, match="3 steps"):
            await run.finished()


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
        await run.finished()
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
        await run.finished()
        record = await run.history()
    assert (await replay_agent(Agent(name="a", planner=ScriptedPlanner([finish])), record)).is_same


async def test_a_runtime_over_kept_runs_writes_its_name() -> None:
    """And is refused for an agent that cannot work here."""

    def not_now() -> None:
        raise AgentNotReadyError("the tree is dirty")

    async with await open_storage("memory:") as storage:
        agent = Agent(name="a", planner=ScriptedPlanner([Finish(FinishReason.GOAL)]))
        async with open_kept_runtime(agent, storage, "agent.py#1") as runtime:
            run = await runtime.start("g", who=ME)
            await run.finished()

        assert [one.agent for one in await rows_of(storage.store)] == ["agent.py#1"]
        with pytest.raises(AgentNotReadyError):
            open_kept_runtime(Agent(name="a", check=not_now), storage, "")


PROGRAM = """
from harborage import Agent, CallContext, Identity, Runtime, tool
from harborage.testing.llm import ScriptedLLM, calls_tools, says

class Shop:
    def __init__(self, who: Identity) -> None:
        self.name = f"the shop of {who.user_id}"

@tool(effects="read")
async def look(ctx: CallContext[Shop]) -> str:
    return ctx.deps.name

agent = Agent("keeper", model=ScriptedLLM([calls_tools(("look", {})), says("done")]), tools=[look], deps=Shop)
runtime = Runtime([agent], deps={Shop: Shop})
"""


@pytest.mark.filterwarnings("ignore:look has no description")
async def test_the_runtime_of_a_file_makes_what_its_agents_depend_on(tmp_path: Path) -> None:
    """A command line that takes the agent of the file takes its factories, too."""
    (tmp_path / "shop.py").write_text(PROGRAM, "utf-8")
    with recorded_agent("shop.py", tmp_path) as agent:
        async with open_runtime(agent) as runtime:
            result = await (await runtime.start("go", who=ME)).result()
    assert [one.text for one in result.messages if one.role == "tool"] == ["the shop of u"]
