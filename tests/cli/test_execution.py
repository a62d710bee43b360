"""`harborage run` in pipes: answers, exit codes, machine output, and no person to ask."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Start = Callable[..., Any]


def test_the_answer_alone_is_on_stdout(piped: Start) -> None:
    """Standard output holds the answer, whatever the agent and its tools print; the log is plain text on stderr."""
    run = piped("chat")
    assert run.end() == 0
    assert run.out == "read ''\n"
    assert "the agent's file is read" in run.err
    assert "a tool prints" in run.err
    assert "1 ▸ chat()" in run.err
    assert "✓ complete" in run.err
    assert "\x1b" not in run.err + run.out


def test_words_of_the_goal_need_no_quotes(piped: Start) -> None:
    """The goal is all the words behind the target."""
    run = piped("say", "it", "in", "words", "--quiet")
    assert run.end() == 0
    assert run.out == "it in words\n"


def test_quiet_prints_the_answer_only(piped: Start) -> None:
    """With --quiet nothing of the run is shown, also not on stderr."""
    run = piped("publish", "x", "--quiet", "--yes", target="agent.py:agent")
    assert run.end() == 0
    assert (run.out, run.err) == ("published x\n", "the agent's file is read\n")


def test_json_is_one_object_a_line(piped: Start) -> None:
    """With --json every line of stdout is an object with a type: the run's events in order, at last the result."""
    run = piped("family", "--json")
    assert run.end() == 0
    lines = [json.loads(line) for line in run.out.splitlines()]
    *events, result = lines
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    assert {"task.spawned", "planner.decision", "task.completed"} <= {event["type"] for event in events}
    assert len({event["payload"]["TaskID"] for event in events if event["type"] == "task.spawned"}) == 2
    assert result["type"] == "result"
    assert (result["reason"], result["exit_code"]) == ("goal", 0)
    assert "done" in result["answer"]
    first = next(event for event in events if event["type"] == "task.spawned")
    assert result["run"] == first["payload"]["TaskID"]


def test_a_run_that_needs_a_person_waits_without_a_terminal(piped: Start, in_pipe: Start) -> None:
    """Nothing is called or rejected; the last line names the command that answers, and after it the run goes on."""
    run = piped("publish", "x", "--json")
    assert run.end() == 5
    types = [json.loads(line)["type"] for line in run.out.splitlines()]
    assert not {"tool.rejected", "tool.invoked"} & set(types)
    result = json.loads(run.out.splitlines()[-1])
    assert (result["reason"], result["exit_code"]) == ("waiting", 5)
    handle = result["run"][-6:]
    assert run.err.splitlines()[-1] == f"◆ waiting · publish needs an answer · harborage approve {handle}"
    listed = in_pipe("pending", "--json")
    assert listed.end() == 0
    waits = json.loads(listed.out)
    assert waits["handle"] == handle
    approved = in_pipe("approve", waits["token"])
    assert approved.end() == 0
    again = in_pipe("resume", handle)
    assert (again.end(), again.out) == (0, "published x\n")


def test_a_question_waits_too_and_yes_is_no_answer_to_it(piped: Start) -> None:
    """A run whose question no person here can answer is left waiting, also below a parent."""
    run = piped("ask", "--yes")
    assert (run.end(), run.out) == (5, "")
    assert run.err.splitlines()[-1].startswith("◆ waiting · await_input needs an answer · harborage answer ")


def test_a_run_that_is_not_kept_cannot_wait(piped: Start) -> None:
    """Its call is rejected, and the message names it and the way out; that is no success for a script."""
    run = piped("publish", "x", "--storage", "memory:")
    assert run.end() == 6
    assert "publish needs your approval; there is no terminal to ask a person in, so it was rejected" in run.err
    assert "--yes" in run.err
    assert "! complete, with calls rejected" in run.err
    assert run.err.endswith("harborage: rejected without asking a person: publish\n")


def test_no_rejects_every_call_and_says_so(piped: Start) -> None:
    """With --no nothing is asked and nothing is called; with --yes it is wrong use."""
    run = piped("publish", "x", "--no")
    assert run.end() == 6
    assert "publish rejected: by --no" in run.err
    both = piped("publish", "x", "--no", "--yes")
    assert both.end() == 2
    assert "--yes and --no are opposites" in both.err


@pytest.mark.parametrize("words", [(), ("-",)])
def test_standard_input_is_the_goal_where_none_is_given(piped: Start, words: tuple[str, ...]) -> None:
    """Or where it is -; an empty one is no goal."""
    run = piped(*words)
    run.write("say from a pipe\n")
    assert (run.end(), run.out) == (0, "from a pipe\n")
    empty = piped(*words)
    assert empty.end() == 2
    assert "no goal" in empty.err


def test_standard_input_is_attached_where_a_dash_says_so(piped: Start) -> None:
    """As a file called stdin; it cannot be the goal, too, and an empty one is refused."""
    run = piped("say", "read", "--attach", "-")
    run.write("some text")
    assert run.end() == 0
    assert "stdin text/plain, 9 B" in run.err
    twice = piped("--attach", "-")
    assert twice.end() == 2
    assert "standard input is the goal or a file" in twice.err
    empty = piped("say", "read", "--attach", "-")
    assert empty.end() == 2
    assert "it is empty" in empty.err


def test_yes_approves_and_says_so(piped: Start) -> None:
    """With --yes a gated call is made, and the log says on whose word."""
    run = piped("publish", "x", "--yes")
    assert run.end() == 0
    assert run.out == "published x\n"
    assert "--yes: every call that needs approval is approved" in run.err
    assert "✓ publish approved: by --yes" in run.err


def test_secrets_in_arguments_are_not_in_the_log(piped: Start) -> None:
    """The log masks what the events mask."""
    run = piped("secret", "x", "--yes")
    assert run.end() == 0
    assert 'publish(title="x", token="***")' in run.err
    assert "s3cret" not in run.err


def test_a_task_is_shown_from_its_spawning_to_its_end(piped: Start) -> None:
    """A spawned task is announced, awaited by name, and its end is shown with its answer."""
    run = piped("family")
    assert run.end() == 0
    spawned, *others = [run.err.index(one) for one in ("1 ◆ t1 background: say done", "2 … waits for t1", "✓ t1 done")]
    assert spawned < min(others)


def test_an_interrupt_cancels_softly(piped: Start) -> None:
    """One SIGINT lets the planner end the run in its own way."""
    run = piped("tick")
    run.read_until("▸ tick()")
    run.interrupt()
    assert run.end() == 130
    assert "» cancelling: the planner gets one more step" in run.err
    assert run.err.endswith("harborage: cancelled\n")


def test_two_interrupts_stop_at_once(piped: Start) -> None:
    """A second SIGINT cuts the call in flight."""
    run = piped("linger")
    run.read_until("▸ linger()")
    run.interrupt()
    run.read_until("cancelling")
    run.interrupt()
    assert run.end() == 130
    assert "» cancelling now" in run.err
    assert "✗ linger: cancelled: hard_cancel" in re.sub(r"\d+ m?s  ", "", run.err)


def test_a_tool_that_cannot_be_stopped_does_not_keep_the_process(piped: Start) -> None:
    """A cancelled run ends the process although a thread of a tool is still busy."""
    run = piped("block")
    run.read_until("▸ block()")
    run.interrupt()
    run.read_until("cancelling")
    run.interrupt()
    assert run.end() == 130


@pytest.mark.parametrize(
    ("words", "target", "code", "message"),
    [
        (["x"], "nowhere.py", 2, "harborage: cannot run 'nowhere.py': there is no file nowhere.py"),
        (["x"], "agent.py:other", 2, "there is no 'other' in it; it has agent, unready"),
        (["x"], "no.such_module:agent", 2, "harborage: cannot run 'no.such_module:agent': "),
        (["x"], "agent.py:unready", 2, "harborage: no key; export EXAMPLE_KEY=...\n"),
        (["fail"], "agent.py", 1, "harborage: the run failed: steering: planner step 0: no such thing (--debug shows"),
        (["lost"], "agent.py", 3, "harborage: the planner found no way to the goal\n"),
        (["tick", "--max-steps", "2"], "agent.py", 4, "harborage: 2 steps without a finish"),
        (["linger", "--deadline", "0.2"], "agent.py", 4, "harborage: the time limit is reached\n"),
    ],
)
def test_what_goes_wrong_is_one_line_and_a_code(
    piped: Start, words: list[str], target: str, code: int, message: str
) -> None:
    """Each way to end badly has its exit code and a line that names the thing; no traceback is shown."""
    run = piped(*words, target=target)
    assert run.end() == code
    assert message in run.err
    assert "Traceback" not in run.err


def test_a_module_is_found_where_one_stands(piped: Start) -> None:
    """A module target is looked for in the current folder, as `python -m` would."""
    run = piped("say", "hello", target="agent:agent")
    assert run.end() == 0
    assert run.out == "hello\n"


def test_neighbours_of_an_agent_can_be_imported(piped: Start, tmp_path: Path) -> None:
    """An agent's file imports the files beside it, wherever the command is started, after everything installed."""
    folder = tmp_path / "deep"
    folder.mkdir()
    (folder / "graphlib.py").write_text("raise SystemExit('in the place of the standard library')", "utf-8")
    (folder / "helper.py").write_text("WORD = 'found'", "utf-8")
    (folder / "mine.py").write_text(
        "from harborage.app import Agent\n"
        "from harborage import Finish, FinishReason\n"
        "from harborage.planner.finish import FinishPlanner\n"
        "import graphlib\n"
        "from helper import WORD\n"
        "agent = Agent(name='mine', planner=FinishPlanner(Finish(FinishReason.GOAL, WORD)))\n",
        "utf-8",
    )
    run = piped("x", target="deep/mine.py")
    assert run.end() == 0
    assert run.out == "found\n"


def test_debug_shows_where_an_error_comes_from(piped: Start) -> None:
    """With --debug the traceback leads into the agent's own file."""
    run = piped("fail", "--debug")
    assert run.end() == 1
    assert 'raise ValueError("no such thing")' in run.err
    assert "--debug" not in run.err


def test_a_json_reader_gets_errors_too(piped: Start) -> None:
    """Also a command that never started a run ends with a result line."""
    run = piped("x", "--json", target="nowhere.py")
    assert run.end() == 2
    assert json.loads(run.out)["error"]["type"] == "TargetError"
    assert json.loads(run.out)["exit_code"] == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_output_that_cannot_be_written_is_an_error(agent_file: Path, more: list[str]) -> None:
    """When the answer cannot be written that is said in one line, and the code is not that of success."""
    code = "import sys; from harborage.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-P", "-c", code, "run", str(agent_file), "say", "hello", *more]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command,
            stdout=full,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            check=False,
            cwd=agent_file.parent,
        )
    assert done.returncode == 1
    assert done.stderr.endswith("harborage: the output cannot be written: No space left on device\n")


def test_a_reader_that_goes_away_is_no_news(piped: Start) -> None:
    """When the other end of the pipe is closed the command ends without a word about it."""
    run = piped("tick", "--json")
    run.stop_reading()
    assert run.end() == 1
    assert run.err == "the agent's file is read\n"


def test_debug_spells_out_control_characters(piped: Start) -> None:
    """What an error quotes cannot move the cursor or clear the screen."""
    run = piped("shout", "--debug")
    assert run.end() == 1
    assert "\x1b" not in run.err
    assert r"\x1b[2J" in run.err


def test_a_failing_context_provider_is_reported_once(piped: Start, tmp_path: Path) -> None:
    """A run goes on without an optional provider; one line of the log says so, and why."""
    (tmp_path / "forgetful.py").write_text(
        "from harborage import Agent\nfrom harborage.planner.finish import FinishPlanner\n\n"
        "class Notes:\n    async def provide(self, run):\n        raise OSError('the notes are gone')\n\n"
        "agent = Agent(name='forgetful', planner=FinishPlanner(), context=[Notes()])\n",
        "utf-8",
    )
    run = piped("go", target="forgetful.py")
    assert run.end() == 0
    assert len([line for line in run.err.splitlines() if "the notes are gone" in line]) == 1
    assert "context provider 'Notes' gave nothing: OSError: the notes are gone" in run.err


def test_a_run_goes_on_from_the_last_one(tmp_path: Path, in_pipe: Start) -> None:
    """With `--continue` it knows what was said in the last run of the agent that has ended here."""
    (tmp_path / "echo.py").write_text(ECHO, "utf-8")
    first = in_pipe("run", "echo.py", "The order is 7", "--quiet")
    assert first.end() == 0
    for more, said in ((["--continue"], "known\n"), (["--continue"], "known\n"), ([], "unknown\n")):
        later = in_pipe("run", "echo.py", "Which order?", "--quiet", *more)
        assert later.end() == 0
        assert later.out == said


def test_there_must_be_a_run_to_go_on_from(tmp_path: Path, in_pipe: Start) -> None:
    """Otherwise it is wrong use, and nothing is run."""
    (tmp_path / "echo.py").write_text(ECHO, "utf-8")
    lone = in_pipe("run", "echo.py", "Which order?", "--continue")
    assert lone.end() == 2
    assert "--continue: no run of echo.py has ended here; leave --continue out to begin one" in lone.err


ECHO = """
from harborage import Agent
from harborage.testing import script
from harborage.testing.llm import says

def heard(request):
    return says("known" if "The order is 7" in str(request.messages) else "unknown")

agent = Agent("echo", model=script(heard))
"""


def test_a_run_is_detached_found_by_its_key_and_marked(tmp_path: Path, in_pipe: Start) -> None:
    """It goes on in the background, and the same key and goal is the same run; a tag that is none is refused."""
    words = ("run", "agent.py", "say hello", "--key", "order-7", "--tag", "shop=porto")
    first = in_pipe(*words, "--detach")
    assert first.end() == 5
    assert (
        first.err.rstrip()
        .rpartition("\n")[2]
        .startswith("the run goes on in the background; come back: harborage resume ")
    )
    again = in_pipe(*words)
    assert again.end() == 0
    assert again.out == "hello\n"
    listed = in_pipe("runs", "list", "--json")
    assert listed.end() == 0
    assert listed.out.count("\n") == 1
    refused = in_pipe("run", "agent.py", "x", "--tag", "porto")
    assert refused.end() == 2
    assert "a tag is NAME=VALUE" in refused.err
