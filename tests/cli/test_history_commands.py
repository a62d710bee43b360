"""`harborage runs`, `replay`, `freeze` and `fork`, as typed in a project's folder."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harborage.app.agent_runtime import open_kept_runtime, recorded_agent
from harborage.app.project import remember_started
from harborage.cli.main import main
from harborage.identity import Identity
from harborage.planner import Finish, FinishReason, PauseReason, RequestPause
from harborage.runtime.history import build_history, read_run
from harborage.runtime.host import Runtime
from harborage.runtime.run import Run
from harborage.state.storage import open_storage
from harborage.testing.clock import settle
from harborage.testing.frozen import assert_replays
from harborage.testing.planners import ScriptedPlanner

AGENT = """
from harborage import SideEffect, tool
from harborage.app import Agent
from harborage.llm import CompleteRequest
from harborage.testing.llm import calls_tools, says


class Model:
    async def complete(self, request: CompleteRequest):
        made = sum(len(message.tool_calls) for message in request.messages)
        if any("Stop" in (message.content.text or "") for message in request.messages[1:]):
            return says("stopped")
        steps = [calls_tools(("look", {"at": 1})), calls_tools(("write", {"password": "hunter2"})), says("done")]
        return steps[made]

    async def close(self): ...


@tool(effects=SideEffect.READ)
async def look(at: int) -> int:
    '''Look.'''
    return at


@tool(effects=SideEffect.WRITE)
async def write(password: str) -> str:
    '''Write.'''
    return "written"


agent = Agent(name="looker", model=Model(), tools=[look, write], instructions="WORDS")
"""

Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a project with an agent and two runs of it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HARBORAGE_STORAGE", raising=False)
    (tmp_path / "agent.py").write_text(AGENT)
    remember_started("agent.py", tmp_path)
    return tmp_path


@pytest.fixture
def run_ids(project: Path) -> list[str]:
    """The ids of the runs that were made."""

    async def make() -> list[str]:
        ids = []
        async with await open_storage("sqlite:.harborage/harborage.db") as storage:
            with recorded_agent("agent.py", project) as agent:
                async with open_kept_runtime(agent, storage, "agent.py") as runtime:
                    for goal in ("Look\naround", "Look again"):
                        run = await runtime.start(goal, who=Identity("local", "me", "s1"))
                        await run.finished()
                        ids.append(run.id)
        return ids

    return asyncio.run(make())


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Typed:
    """Types a command; gives its exit code and what it printed."""

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(words)
        out, err = capsys.readouterr()
        return code, out, err

    return call


async def parked(run: Run) -> None:
    """Return once the run waits for a person."""
    while not await run.waiting():
        await settle()


async def _record(run_id: str) -> list[bytes]:
    async with await open_storage("sqlite:.harborage/harborage.db") as storage:
        return await read_run(storage.store, run_id)


def record(run_id: str) -> list[bytes]:
    return asyncio.run(_record(run_id))


# ── runs ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_runs_are_listed_newest_first(run_ids: list[str], typed: Typed) -> None:
    """A header, then a line each: handle, agent, status and goal on one line."""
    code, out, _ = typed("runs", "list")
    lines = out.splitlines()
    assert code == 0
    assert lines[0].split() == ["RUN", "AGENT", "STATUS", "AGE", "TIME", "COST", "WHAT"]
    assert [line.split()[0] for line in lines[1:]] == [run_id[-6:] for run_id in reversed(run_ids)]
    assert lines[2].split()[1:4] == ["agent", "✓", "complete"]
    assert lines[2].endswith("  Look around")


def test_the_list_can_be_narrowed(run_ids: list[str], typed: Typed) -> None:
    """By how runs stand, their agent, user, session, and how many; what was left out is said."""
    assert typed("runs", "list", "--status", "failed")[1] == ""
    assert typed("runs", "list", "--agent", "other.py")[1] == ""
    assert typed("runs", "list", "--user", "you")[1] == ""
    narrowed = typed("runs", "list", "--status", "complete", "--agent", "agent.py", "--user", "me", "--session", "s1")
    assert len(narrowed[1].splitlines()) == 3
    code, out, err = typed("runs", "list", "--limit", "1")
    assert (code, out.splitlines()[1].split()[0], err) == (0, run_ids[1][-6:], "1 run of 2 runs · older: --all\n")
    assert len(typed("runs", "list", "--limit", "1", "--all")[1].splitlines()) == 3


def test_the_list_is_json_for_machines(run_ids: list[str], typed: Typed) -> None:
    """A run a line."""
    rows = [json.loads(line) for line in typed("runs", "list", "--json")[1].splitlines()]
    assert [row["run_id"] for row in rows] == run_ids[::-1]
    assert rows[1] | {"status": "complete", "goal": "Look\naround", "agent": "agent.py", "user": "me"} == rows[1]


def test_a_run_is_shown(run_ids: list[str], typed: Typed) -> None:
    """Every step, by any clear beginning of the id; secrets are hidden."""
    code, out, _ = typed("runs", "show", run_ids[0][:-3])
    assert code == 0
    assert '  1 look({"at":1})' in out
    assert '  2 write({"password":"***"})' in out
    assert "    ✓ written" in out
    assert "  3 finish (goal): done" in out
    assert "3 steps · 2 tool calls · 3 model calls" in out
    assert "  agent agent.py, user me" in out


def test_an_empty_list_says_so(run_ids: list[str], typed: Typed) -> None:
    """On stderr, so that what reads the list reads nothing; narrowed, or not."""
    code, out, err = typed("runs", "list", "--agent", "nope.py")
    assert (code, out, err) == (0, "", "no run with these options in sqlite:.harborage/harborage.db\n")
    assert typed("runs", "list", "--json", "--agent", "nope.py") == (0, "", "")


def test_a_run_is_json_for_machines(run_ids: list[str], typed: Typed) -> None:
    """The whole history."""
    shown = json.loads(typed("runs", "show", run_ids[0], "--json")[1])
    assert (shown["run_id"], len(shown["steps"]), shown["finish"]["payload"]) == (run_ids[0], 3, "done")
    first = shown["steps"][0]
    said = [first["decision"], *first["calls"], *first["asked"][0]["answer"]["tool_calls"]]
    assert [one["args"] for one in said] == [{"at": 1}] * 3


@pytest.mark.parametrize("command", ["runs show", "replay", "freeze", "fork --at 1"])
def test_what_is_not_there_is_said(run_ids: list[str], typed: Typed, command: str) -> None:
    """No such run, several, no database: exit code 2 and a line that says what to do."""
    words = command.split()
    code, _, err = typed(*words, "ZZZ")
    assert (code, err) == (
        2,
        "harborage: no run 'ZZZ' in sqlite:.harborage/harborage.db; 'harborage runs list' shows those there are\n",
    )
    code, _, err = typed(*words, run_ids[0][:4])
    assert code == 2
    assert "could be any of 2 runs" in err
    code, _, err = typed(*words, run_ids[0], "--storage", "sqlite:none.db")
    assert code == 2
    assert err.startswith("harborage: there is no database none.db; the first 'harborage run' ")


def test_a_run_must_be_named(project: Path, typed: Typed) -> None:
    """`show` alone says how to find one."""
    code, _, err = typed("runs", "show")
    assert code == 2
    assert "no run; example: harborage runs show RUN" in err


def test_a_parked_run_says_so(project: Path, typed: Typed) -> None:
    """It has not ended, and is neither frozen nor lost."""

    async def park() -> str:
        planner = ScriptedPlanner([RequestPause(PauseReason.AWAIT_INPUT, {"q": "?"}), Finish(FinishReason.GOAL)])
        async with await open_storage("sqlite:.harborage/harborage.db") as storage:
            async with Runtime(planner=planner, storage=storage, agent="agent.py") as runtime:
                run = await runtime.start("ask", who=Identity("local", "me", "s1"))
                await parked(run)
                while not any(b"pause.request" in entry for entry in await run.history()):
                    await settle()  # a pause is open a moment before the record of its run says so
            return run.id

    run_id = asyncio.run(park())
    code, out, _ = typed("runs", "show", run_id)
    assert code == 0
    assert "‖ paused by the planner (await_input): open" in out
    assert "has not ended" in out
    code, _, err = typed("freeze", run_id)
    assert (code, err) == (1, f"harborage: run {run_id} is still going; freeze it once it has ended\n")


# ── replay ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_replays(run_ids: list[str], typed: Typed) -> None:
    """With the agent that ran it, found by what is on record."""
    code, out, _ = typed("replay", run_ids[0])
    assert code == 0
    assert out == f"run {run_ids[0]}: 3 decisions are the same as recorded, with 3 answers of the model\n"
    assert json.loads(typed("replay", run_ids[0], "--json")[1])["is_same"] is True


def test_a_changed_prompt_is_shown(project: Path, run_ids: list[str], typed: Typed) -> None:
    """At the first step where it differs, as a diff; exit code 1."""
    (project / "agent.py").write_text(AGENT.replace("WORDS", "MORE WORDS"))
    code, out, _ = typed("replay", run_ids[0])
    assert code == 1
    assert "step 1: the model is asked something else than was recorded" in out
    assert "-    WORDS" in out
    assert "+    MORE WORDS" in out
    assert json.loads(typed("replay", run_ids[0], "--json")[1])["difference"]["kind"] == "prompt"


def test_another_agent_can_replay_it(project: Path, run_ids: list[str], typed: Typed) -> None:
    """One that is not there is wrong use."""
    (project / "copy.py").write_text(AGENT)
    assert typed("replay", run_ids[0], "--agent", "copy.py:agent")[0] == 0
    code, _, err = typed("replay", run_ids[0], "--agent", "nope.py")
    assert code == 2
    assert "there is no file" in err


# ── freeze ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_is_frozen(project: Path, run_ids: list[str], typed: Typed) -> None:
    """Both files are named on stdout; a second time they are not overwritten unless it is asked for."""
    name = f"look_around_{run_ids[0][-6:].lower()}"
    code, out, _ = typed("freeze", run_ids[0])
    assert (code, out.splitlines()) == (0, [f"tests/test_{name}.py", f"tests/runs/{name}.json"])
    assert "hunter2" not in (project / f"tests/runs/{name}.json").read_text()
    code, _, err = typed("freeze", run_ids[0])
    assert code == 1
    assert "would be overwritten" in err
    assert typed("freeze", run_ids[0], "--force")[0] == 0
    assert typed("freeze", run_ids[0], "-o", "elsewhere")[1].startswith("elsewhere/test_")


SECRETIVE = """
from harborage import Agent, CallTool, Finish, FinishReason, tool


class Pays:
    async def next(self, run):
        steps = run.trajectory.steps
        if not steps:
            return CallTool("pay", amount=5, password="hunter2", note="Bearer abcdefghijklmnopqrstuvwxyz")
        decides_by_secret = run.goal == "leak" and "abcdef" in str(steps[0].observation)
        return Finish(FinishReason.GOAL, "leaked" if decides_by_secret else "paid")


@tool
async def pay(amount: int, password: str, note: str) -> str:
    '''Pay.'''
    return note


agent = Agent(name="pays", planner=Pays(), tools=[pay])
"""


def test_a_run_with_secrets_is_frozen_if_it_replays_without_them(project: Path, typed: Typed) -> None:
    """What is hidden in the record is hidden in what the agent decides; where it decides by a secret, that is shown."""
    (project / "agent.py").write_text(SECRETIVE)

    async def made(goal: str) -> str:
        async with await open_storage("sqlite:.harborage/harborage.db") as storage:
            with recorded_agent("agent.py", project) as agent:
                async with open_kept_runtime(agent, storage, "agent.py") as runtime:
                    run = await runtime.start(goal, who=Identity("local", "me", "s1"))
                    await run.finished()
                    return run.id

    code, out, err = typed("freeze", asyncio.run(made("pay")))
    assert code == 0, err
    record = project / out.splitlines()[1]
    assert "hunter2" not in record.read_text()
    assert_replays(record, root=project)
    (project / "agent.py").write_text(SECRETIVE.replace("amount=5", "amount=6"))
    with pytest.raises(AssertionError, match="the planner decides something else"):
        assert_replays(record, root=project)
    (project / "agent.py").write_text(SECRETIVE)
    code, _, err = typed("freeze", asyncio.run(made("leak")))
    assert code == 1
    assert "without the secrets that a frozen run masks, the agent decides differently" in err
    assert len(list((project / "tests").glob("*.py"))) == 1


def test_what_does_not_replay_is_not_frozen(project: Path, run_ids: list[str], typed: Typed) -> None:
    """The difference is shown and nothing is written."""
    (project / "agent.py").write_text(AGENT.replace("WORDS", "MORE WORDS"))
    code, _, err = typed("freeze", run_ids[0])
    assert code == 1
    assert "does not replay, so it is not frozen: step 1" in err
    assert not (project / "tests").exists()


# ── fork ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_is_forked(run_ids: list[str], typed: Typed) -> None:
    """The new run is kept beside the other, which stays as it is; what has effects is not done."""
    before = record(run_ids[0])
    code, out, err = typed("fork", run_ids[0], "--at", "2")
    assert code == 0
    new = err.split()[1].rstrip(":")
    assert err == f"run {new}: fork of {run_ids[0]} at step 2\n"
    assert f"  a fork of {run_ids[0]} at step 2, without effects" in out
    assert "-    ✓ written" in out
    assert '+    – held back: tool "write" was not called: this run is a rehearsal' in out
    assert record(run_ids[0]) == before
    assert build_history(record(new)).totals.steps == 3
    assert typed("replay", new)[0] == 0
    assert typed("runs", "list")[1].splitlines()[1].split()[0] == new[-6:]
    assert f"{new[-6:]}  " in typed("runs", "list", "--agent", "agent.py")[1]


def test_a_live_fork_does_the_same(run_ids: list[str], typed: Typed) -> None:
    """With `--live` the tool writes, and both runs are alike."""
    code, out, _ = typed("fork", run_ids[0], "--at", "2", "--live")
    assert code == 0
    assert out.rstrip().endswith("both runs took the same steps")


def test_a_fork_has_a_goal_of_its_own(run_ids: list[str], typed: Typed) -> None:
    """For machines: what it came to, and the diff."""
    code, out, _ = typed("fork", run_ids[0], "--at", "2", "--goal", "Stop", "--json")
    output = json.loads(out)
    assert (code, output["parent"], output["at"], output["reason"], output["answer"]) == (
        0,
        run_ids[0],
        2,
        "goal",
        "stopped",
    )
    assert "+  2 finish (goal): stopped" in output["difference"]


def test_a_fork_is_limited_as_a_run_is(run_ids: list[str], typed: Typed) -> None:
    """By steps, time and cost; the limit is named, with the exit code of a limit. A cost needs a known price."""
    fork = ("fork", run_ids[0], "--at", "2")
    for option, value, code, last in (
        ("--deadline", "0.000001", 4, "harborage: the time limit is reached"),
        ("--max-steps", "2", 4, "harborage: the limit of 2 steps is reached"),
        ("--max-cost", "0.5", 2, "harborage: llm: a cost limit needs a price in US dollars, and none is known"),
        ("--deadline", "inf", 2, 'harborage: Invalid value "inf" for --deadline. Must be <= 315360000.'),
    ):
        found, _, err = typed(*fork, option, value)
        assert (found, err.splitlines()[-1].startswith(last)) == (code, True), err


def test_a_step_that_is_not_there_is_wrong_use(run_ids: list[str], typed: Typed) -> None:
    """Nothing is started."""
    code, _, err = typed("fork", run_ids[0], "--at", "9")
    assert (code, err) == (2, f"harborage: run {run_ids[0]} has no recorded step 9; fork it at 1 to 3\n")
    assert len(typed("runs", "list")[1].splitlines()) == 3


def test_a_fork_that_waits_says_so(project: Path, typed: Typed) -> None:
    """It is left where it waits, with the way to go on."""
    source = """
from harborage import Finish, FinishReason, PauseReason, RequestPause
from harborage.app import Agent
from harborage.testing.clock import settle
from harborage.testing.planners import ScriptedPlanner

agent = Agent(name="a", planner=ScriptedPlanner([RequestPause(PauseReason.AWAIT_INPUT), Finish(FinishReason.GOAL)]))
"""
    (project / "agent.py").write_text(source)

    async def make() -> str:
        async with await open_storage("sqlite:.harborage/harborage.db") as storage:
            with recorded_agent("agent.py", project) as agent:
                async with open_kept_runtime(agent, storage, "agent.py") as runtime:
                    run = await runtime.start("ask", who=Identity("local", "me", "s1"))
                    await parked(run)
                    await run.approve()
                    await run.finished()
                    return run.id

    run_id = asyncio.run(make())
    code, _, err = typed("fork", run_id, "--at", "1")
    new = err.split()[1].rstrip(":")
    assert code == 5
    assert err.endswith(f"run {new} waits for an answer; continue with: harborage resume {new}\n")
