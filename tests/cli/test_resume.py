"""`harborage resume`: a resumed run after its process was killed, left, or while another process carries it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harborage.cli.execution import choose_run
from harborage.cli.status import root_runs
from harborage.state.storage import open_storage

Start = Callable[..., Any]

SLOW = '''
import asyncio, json
from harborage import *
from harborage.app import Agent


@tool(effects=SideEffect.READ)
async def look(at: int) -> int:
    """Look."""
    while at == 3 and not __import__("pathlib").Path("go").exists():
        await asyncio.sleep(0.01)
    return at


class Looks:
    async def next(self, run):
        n = len(run.trajectory.steps)
        if run.control.user_messages:
            return Finish(FinishReason.GOAL, "heard: " + run.control.user_messages[0])
        if n == 5:
            return Finish(FinishReason.GOAL, "seen it all")
        return CallTool("look", json.dumps({"at": n + 1}).encode())


agent = Agent(name="looks", planner=Looks(), tools=[look])
'''


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """The folder of an agent that looks five times; its third look takes until there is a file called `go`."""
    (tmp_path / "slow.py").write_text(SLOW)
    return tmp_path


def run_id_of(screen: Any) -> str:
    """The id in the header."""
    found = re.search(r"run    (\w{26})|\b([0-9A-Z]{6}) · for ", screen.text)
    assert found
    return found[1] or found[2]


def test_a_killed_run_is_carried_on(slow: Path, at_terminal: Start, in_pipe: Start) -> None:
    """What was recorded is shown and does not happen again; the call in doubt is made again, and the run ends."""
    first = at_terminal("run", "slow.py", "look")
    first.expect("3  look(at=3)")
    first.kill()
    (slow / "go").touch()
    second = in_pipe("resume")
    assert second.end() == 0
    assert second.out == "seen it all\n"
    before, live = second.err.split("── live ──")
    assert "status interrupted" in before
    assert [line.strip() for line in before.splitlines() if "▸" in line] == [f"{n} ▸ look(at={n})" for n in (1, 2, 3)]
    assert [line.strip() for line in live.splitlines() if "▸" in line] == [f"{n} ▸ look(at={n})" for n in (3, 4, 5)]
    assert "✓ complete · 6 steps" in live


def test_a_question_is_put_again(tmp_path: Path, at_terminal: Start) -> None:
    """A run that was killed while it waited for a person waits for the next one."""
    first = at_terminal("run", "agent.py", "publish", "the notes")
    first.expect("publish? y/n/e/r ›")
    first.kill()
    second = at_terminal("resume", run_id_of(first))
    second.expect("── live ──")
    second.expect("? publish needs your approval")
    second.expect('title  "the notes"')
    second.type("y\r")
    second.expect("published the notes")
    assert second.end() == 0


def test_an_answer_given_meanwhile_is_not_asked_for_again(at_terminal: Start, in_pipe: Start) -> None:
    """What was sent while nothing was up is taken before anybody is asked."""
    first = at_terminal("run", "agent.py", "ask")
    first.expect("answer ›")
    first.kill()
    assert in_pipe("message", run_id_of(first), "1.2").end() == 0
    second = in_pipe("resume")
    assert second.end() == 0
    assert second.out == "told: 1.2\n"
    assert "refused" not in second.err


def test_a_run_that_was_left_goes_on(slow: Path, at_terminal: Start, in_pipe: Start) -> None:
    """/leave ends the process and not the run."""
    first = at_terminal("run", "slow.py", "look")
    first.expect("3  look(at=3)")
    first.type("/leave\r")
    first.expect("harborage: the run was left; continue with: harborage resume ")
    assert first.end() == 5
    (slow / "go").touch()
    assert in_pipe("resume").end() == 0


def test_what_another_process_carries_is_followed_and_steered(at_terminal: Start, in_pipe: Start) -> None:
    """Both terminals show all events."""
    first = in_pipe("run", "agent.py", "tick")  # a terminal that nobody reads would stop it
    first.read_until("3 ▸ tick()")
    second = at_terminal("resume")
    second.expect("another worker executes it")
    second.expect("── live ──")
    second.expect("tick()")
    second.type("hello\r")
    second.expect("› hello  applied before step ")
    second.expect("heard: hello")
    assert second.end() == 0
    assert first.end() == 0
    assert first.out == "heard: hello\n"


def test_a_follower_takes_over(slow: Path, at_terminal: Start) -> None:
    """When the process that carries a run dies, the one that follows it goes on by itself."""
    first = at_terminal("run", "slow.py", "look")
    first.expect("3  look(at=3)")
    second = at_terminal("resume")
    second.expect("another worker executes it")
    second.expect("type a message for the agent")
    first.kill()
    (slow / "go").touch()
    second.expect("seen it all")
    assert second.end() == 0


def test_the_result_of_a_run_that_is_over_is_shown(tmp_path: Path, in_pipe: Start) -> None:
    """With its exit code, and without its agent, which may be gone."""
    assert in_pipe("run", "agent.py", "lost").end() == 3
    listed = in_pipe("runs", "list")
    assert listed.end() == 0
    (tmp_path / "agent.py").unlink()
    again = in_pipe("resume", listed.out.splitlines()[1].split()[0])
    assert again.end() == 3
    assert again.out == "no idea\n"
    assert "status ended " in again.err
    nothing = in_pipe("resume")
    assert nothing.end() == 2
    assert "all runs have ended" in nothing.err


def test_what_cannot_run_leaves_nothing_behind(tmp_path: Path, in_pipe: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model without its key is refused before there is a data folder; a database without runs has none to resume."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    refused = in_pipe("run", "--model", "openai:gpt-5", "say hello")
    assert refused.end() == 2
    assert "no API key for openai" in refused.err
    assert not (tmp_path / ".harborage").exists()

    async def make_empty() -> None:
        async with await open_storage(f"sqlite:{tmp_path / 'empty.db'}"):
            pass

    asyncio.run(make_empty())
    nothing = in_pipe("resume", "--storage", f"sqlite:{tmp_path / 'empty.db'}")
    assert nothing.end() == 2
    assert "no run was started in sqlite:" in nothing.err
    assert "ended" not in nothing.err


def test_nothing_waits_once_a_run_is_over(in_pipe: Start) -> None:
    """Its session is closed with it; a fork of it has one of its own, which ends likewise."""
    assert in_pipe("run", "agent.py", "say hello").end() == 0
    for words in ((), ("fork", "--at", "1")):
        if words:
            listed = in_pipe("runs", "list")
            assert listed.end() == 0
            forked = in_pipe(words[0], listed.out.splitlines()[1].split()[0], *words[1:])
            assert forked.end() == 0, forked.err
        healthy = in_pipe("doctor")
        assert healthy.end() == 0
        assert healthy.out.endswith("✓ nothing needs you\n")


def test_an_agent_that_is_gone_is_named(slow: Path, at_terminal: Start, in_pipe: Start) -> None:
    """With the way out; another name for it will do."""
    first = at_terminal("run", "slow.py", "look")
    first.expect("3  look(at=3)")
    first.kill()
    (slow / "slow.py").rename(slow / "other.py")
    gone = in_pipe("resume")
    assert gone.end() == 2
    assert "slow.py" in gone.err
    way = rf"restore the agent's file, or name another one: harborage resume \w*{run_id_of(first)} "
    assert re.search(way, gone.err)
    (slow / "go").touch()
    assert in_pipe("resume", "--agent", "other.py").end() == 0


def test_code_that_does_not_fit_blocks_the_run_and_heals(slow: Path, at_terminal: Start, in_pipe: Start) -> None:
    """Why is said, and the right code goes on."""
    first = at_terminal("run", "slow.py", "look")
    first.expect("3  look(at=3)")
    first.kill()
    (slow / "go").touch()
    (slow / "slow.py").write_text(SLOW + _OTHER_STEPS)
    wrong = in_pipe("resume")
    assert wrong.end() == 1
    assert "the agent's code does not fit the journal of this run: " in wrong.err
    assert in_pipe("doctor").end() == 1
    (slow / "slow.py").write_text(SLOW)
    assert in_pipe("resume").end() == 0


# As another version of Harborage may do: its program asks its host one question more than the record has an answer to.
_OTHER_STEPS = """
from harborage.runtime.effects.program import AgentProgram

_asks_less = AgentProgram.__call__

async def asks_more(self, io, request):
    await io.drain()
    return await _asks_less(self, io, request)

AgentProgram.__call__ = asks_more
"""


def test_an_approval_that_is_new_to_a_run_keeps_it_from_calling(slow: Path, at_terminal: Start, in_pipe: Start) -> None:
    """Which calls a run asks about is recorded when it starts; one that needs approval since is refused, not made."""
    first = at_terminal("run", "slow.py", "look")
    first.expect("3  look(at=3)")
    first.kill()
    (slow / "go").touch()
    gated = SLOW.replace("tools=[look])", "tools=[look], approvals={'look': AlwaysDeny()})")
    asks = "import asyncio, json\nfrom harborage.runtime.approval import AlwaysDeny"
    (slow / "slow.py").write_text(gated.replace("import asyncio, json", asks))
    resumed = in_pipe("resume")
    resumed.end()
    for number in (4, 5):
        assert f"{number} ✓" not in resumed.err
        assert re.search(rf"{number} ✗ .*needs approval now and did not when its run started", resumed.err)


def test_of_several_one_is_chosen(slow: Path, at_terminal: Start, in_pipe: Start) -> None:
    """By its number in a terminal; elsewhere they are listed, and none is taken."""
    ids = []
    for goal in ("one", "two"):
        screen = at_terminal("run", "slow.py", goal)
        screen.expect("3  look(at=3)")
        screen.kill()
        ids.append(run_id_of(screen))
    (slow / "go").touch()
    listed = in_pipe("resume")
    assert listed.end() == 2
    assert "2 runs have not ended:" in listed.err
    assert "name one of them: harborage resume RUN" in listed.err
    screen = at_terminal("resume")
    screen.expect("Which one (1-2, Enter for none)?")
    screen.type("7\n")
    screen.expect("Which one (1-2, Enter for none)?")
    screen.type("2\n")
    screen.expect(ids[0])
    screen.expect("seen it all")
    assert screen.end() == 0


def test_a_run_is_carried_on_where_it_was_begun(slow: Path, at_terminal: Start, in_pipe: Start) -> None:
    """In any working directory."""
    first = at_terminal("run", "slow.py", "look")
    first.expect("3  look(at=3)")
    first.kill()
    (slow / "go").touch()
    (slow / "deeper").mkdir()
    second = in_pipe("resume", "--storage", "../.harborage/harborage.db", cwd=slow / "deeper")
    assert second.end() == 0
    assert not (slow / "deeper" / ".harborage").exists()


def test_nothing_to_choose_from_is_an_ending() -> None:
    """It is no error of the machine: code 2, and where to look."""
    ending = choose_run(root_runs([]), datetime(2026, 1, 1, tzinfo=UTC), can_ask=True)
    assert getattr(ending, "code", None) == 2
