"""An interrupted call is resolved in the terminal, from another one, or stays unknown where there is no terminal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harborage.app.agent_runtime import open_kept_runtime, recorded_agent
from harborage.cli.control_target import open_target
from harborage.cli.main import main
from harborage.identity import Identity
from harborage.state.storage import open_storage
from harborage.testing.clock import settle

Start = Callable[..., Any]
ME = Identity("local", "me", "cli-1")
URL = "sqlite:.harborage/harborage.db"

PAYS = """
import asyncio, json, pathlib
from harborage import *
from harborage.app import Agent
from harborage.tools import OnUnknown, ToolPolicy


@tool(effects=SideEffect.EXTERNAL, policy=ToolPolicy(on_unknown=OnUnknown.PAUSE))
async def pay(amount: int) -> str:
    '''Pay.'''
    with open("calls", "a") as calls:
        calls.write("x")
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.01)
    return f"paid {amount}"


class Pays:
    async def next(self, run):
        if run.trajectory.steps:
            return Finish(FinishReason.GOAL, {"got": run.trajectory.steps[-1].observation})
        return CallTool("pay", b'{"amount": 5}')


agent = Agent(name="pays", planner=Pays(), tools=[pay])
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an agent whose one call takes until there is a file `go`, and is interrupted by a crash."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HARBORAGE_STORAGE", raising=False)
    (tmp_path / "pays.py").write_text(PAYS)
    (tmp_path / ".harborage").mkdir()
    return tmp_path


def killed_in_the_call(project: Path, at_terminal: Start) -> None:
    """A run whose process is killed in the middle of its call; the next call would end at once."""
    first = at_terminal("run", "pays.py", "pay")
    first.expect("1  pay(amount=5)")
    while not (project / "calls").exists():
        first.expect("calling pay")
    first.kill()
    (project / "go").touch()


@pytest.mark.parametrize(
    ("typed", "shown", "got", "calls"),
    [
        ("done it is in the ledger", "pay was interrupted and had acted, says a person", "it is in the ledger", 1),
        ("again", "pay was interrupted; calling it again", "paid 5", 2),
        ("unknown ask the bank", "✗ 5", "ask the bank", 1),
    ],
)
def test_a_person_reports_the_outcome_of_an_interrupted_call(
    project: Path, at_terminal: Start, typed: str, shown: str, got: str, calls: int
) -> None:
    """The call is shown with its arguments; what is no clear answer is asked again, a yes least of all."""
    killed_in_the_call(project, at_terminal)
    screen = at_terminal("resume")
    screen.expect("? pay may have acted; what is its outcome?")
    screen.expect("why  its worker was lost during the call; it may have acted")
    screen.expect("amount  5")
    screen.expect("done [result] it acted · again make the call again · unknown [reason] leave it unknown")
    screen.expect("pay? done/again/unknown ›")
    assert "parked" not in screen.text
    screen.type("y\r")
    screen.expect("» answer done (a result may follow), again to make the call again, or unknown")
    screen.type(f"{typed}\r")
    if not typed.startswith("unknown"):
        screen.expect(shown)
    screen.expect(got)
    assert screen.end() == 0
    assert (project / "calls").read_text() == "x" * calls


def test_without_a_terminal_it_waits(project: Path, at_terminal: Start, in_pipe: Start) -> None:
    """Even with --yes, which approves calls and resolves none; the last line names the command that answers."""
    killed_in_the_call(project, at_terminal)
    second = in_pipe("resume", "--yes")
    assert second.end() == 5
    assert second.err.splitlines()[-1].startswith("◆ waiting · pay needs an answer · harborage answer ")
    assert (project / "calls").read_text() == "x"


def interrupted_run() -> str:
    """A run without a worker that waits for the outcome of its call."""

    async def make() -> str:
        async with await open_storage(URL) as storage:
            with recorded_agent("pays.py", Path.cwd()) as agent:
                async with open_kept_runtime(agent, storage, "pays.py#1") as runtime:
                    run = await runtime.start("pay", who=ME)
                    while not Path("calls").exists():  # noqa: ASYNC240 - a look, in a test
                        await settle()
                async with open_kept_runtime(agent, storage, "pays.py#1") as runtime:
                    while not await (await runtime.run(run.id, who=ME)).waiting():
                        await settle()
            return run.id

    try:
        return asyncio.run(make())
    finally:
        sys.modules.pop("harborage_target_pays", None)


def token_of(run_id: str) -> str:
    """The token of the one question that waits."""

    async def look() -> str:
        async with open_target(URL, run_id) as to:
            return to.only_question("approve").token

    return asyncio.run(look())


def outcome(run_id: str) -> Any:
    """What the planner got, after a worker resumed the run."""

    async def carry() -> Any:
        Path("go").touch()  # noqa: ASYNC240 - a file of the test
        async with await open_storage(URL) as storage:
            with recorded_agent("pays.py", Path.cwd()) as agent:
                async with open_kept_runtime(agent, storage, "pays.py#1") as runtime:
                    return (await (await runtime.run(run_id, who=ME)).finished()).payload["got"]

    return asyncio.run(carry())


@pytest.mark.parametrize(
    ("words", "output", "got", "calls"),
    [
        (("answer", "RUN", "the", "ledger"), "answered: outcome of pay(amount=5); ", "the ledger", 1),
        (("answer", "RUN", "--result", '{"n": 5}'), "answered: outcome of pay(amount=5); ", {"n": 5}, 1),
        (("answer", "RUN", "--done"), "answered: outcome of pay(amount=5); ", None, 1),
        (("approve", "RUN"), "approved: outcome of pay(amount=5); ", "paid 5", 2),
    ],
)
def test_it_is_said_from_another_terminal(
    project: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], output: str, got: object, calls: int
) -> None:
    """Nothing needs to be up; the worker that resumes the run acts on it."""
    run_id = interrupted_run()
    token = token_of(run_id)
    assert main([token if word == "RUN" else word for word in words]) == 0
    assert capsys.readouterr().out.startswith(output)
    assert outcome(run_id) == got
    assert (project / "calls").read_text() == "x" * calls


def test_a_refusal_leaves_it_unknown(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The planner reads why; a message before that answers nothing."""
    run_id = interrupted_run()
    assert main(["message", run_id, "hello"]) == 0
    assert capsys.readouterr().out.startswith(f"message sent to run {run_id}; ")
    assert main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert "await_input: unknown_outcome: pay" in shown
    assert "waits for a person, " in shown
    assert " TEXT, or approve, or reject" in shown
    assert main(["reject", token_of(run_id), "--reason", "ask the bank"]) == 0
    assert "(ask the bank)" in outcome(run_id)["error"]


def test_what_is_no_answer_is_wrong_use(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """None, two, or no JSON; nothing is sent."""
    for words in ((), ("x", "--done"), ("--result", "1", "--done")):
        assert main(["answer", "R", *words]) == 2
        assert "give one answer" in capsys.readouterr().err
    run_id = interrupted_run()
    assert main(["answer", run_id, "--result", "{"]) == 2
    assert "--result is not JSON" in capsys.readouterr().err
    assert main(["reject", token_of(run_id)]) == 0
