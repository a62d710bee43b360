"""`harborage run` on a terminal: what is shown, asked and typed while the run goes on."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Start = Callable[..., Any]


def test_a_run_is_watched_from_header_to_answer(terminal: Start) -> None:
    """The screen shows the agent, the goal, the steps, how it ended, and the answer at last."""
    screen = terminal("chat")
    screen.expect("words ")
    screen.expect(" · for root")
    screen.expect("1  chat()")
    screen.expect("✓ complete · 2 steps · 1 call")
    screen.expect("read ''")
    assert screen.end() == 0
    assert "a tool prints\n" in screen.text


def test_the_terminal_is_given_back_as_it_was(terminal: Start) -> None:
    """While the run goes on keys are not echoed by the terminal; afterwards it is set as before."""
    screen = terminal("tick")
    screen.expect("type a message for the agent")
    assert screen.mode() != screen.mode_before
    screen.type("stop now\r")
    screen.expect("heard: stop now")
    assert screen.end() == 0
    assert screen.mode() == screen.mode_before


def test_a_typed_line_reaches_the_planner(terminal: Start) -> None:
    """What is typed while lines scroll by arrives whole, corrected as it was corrected, in any script."""
    screen = terminal("tick")
    screen.expect("tick()")
    screen.type("naïve wolrd")
    screen.expect("✓")
    screen.type("\x7f\x7f\x7f\x7f\x7fwürld 日本\r")
    screen.expect("› naïve würld 日本  steers: before the next step")
    screen.expect("› naïve würld 日本  applied before step")
    screen.expect("heard: naïve würld 日本")
    assert screen.end() == 0


def test_yes_makes_the_call(terminal: Start) -> None:
    """An approval is asked with tool, arguments, reason and deadline; `y` makes the call."""
    screen = terminal("publish", "the notes")
    for text in ("? publish needs your approval", "why  policy: deny-all", 'title  "the notes"', "expires  in "):
        screen.expect(text)
    screen.expect("y yes · n [reason] no · e edit the arguments")
    screen.type("y\r")
    screen.expect("published the notes")
    screen.expect("approved by you")
    assert screen.end() == 0


def test_no_refuses_it_with_a_reason(terminal: Start) -> None:
    """`n` and a reason refuse the call, and the planner gets the reason."""
    screen = terminal("publish", "x")
    screen.expect("publish? y/n/e/r ›")
    screen.type("n too early\r")
    screen.expect("publish rejected by you: too early")
    screen.expect("too early")
    assert screen.end() == 0
    assert "published" not in screen.text


def test_what_is_no_answer_asks_again(terminal: Start) -> None:
    """An empty line, and one that is neither yes nor no, leave the question open."""
    screen = terminal("publish", "x")
    screen.expect("publish? y/n/e/r ›")
    screen.type("\r")
    screen.expect("? publish needs your approval")
    screen.type("yes of course\r")
    screen.expect("» answer y, n (a reason may follow), e to edit, r to allow the tool for this run")
    screen.type("y\r")
    screen.expect("published x")
    assert screen.end() == 0


def test_arguments_are_edited_on_the_line(terminal: Start) -> None:
    """Without an editor the arguments are edited in place; what is no JSON object is not sent and can be mended."""
    screen = terminal("publish", "x")
    screen.expect("publish? y/n/e/r ›")
    screen.type("e\r")
    screen.expect('arguments › {"title":"x"}')
    screen.type("\x7f\r")
    screen.expect("» the arguments are not JSON")
    screen.expect('arguments › {"title":"x"')
    screen.type("\x15[1]\r")
    screen.expect("» arguments are a JSON object")
    screen.type('\x15{"title": "better"}\r')
    screen.expect("published better")
    assert screen.end() == 0


def test_arguments_are_edited_in_the_editor(terminal: Start, tmp_path: Path) -> None:
    """With $EDITOR the arguments are edited there, in a file of indented JSON, and the run gets what was saved."""
    script = tmp_path / "edit.py"
    script.write_text(
        "import pathlib, sys\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "print('editing', path.suffix, sys.stdin.isatty())\n"
        "path.write_text(path.read_text().replace('old', 'new'))\n",
        "utf-8",
    )
    screen = terminal("publish", "old", EDITOR=f"{sys.executable} {script}")
    screen.expect("publish? y/n/e/r ›")
    screen.type("e\r")
    screen.expect("editing .json True")
    screen.expect("published new")
    assert screen.end() == 0
    assert screen.mode() == screen.mode_before


def test_an_editor_that_fails_changes_nothing(terminal: Start) -> None:
    """An editor that does not start, or that gives up, leaves the question open."""
    screen = terminal("publish", "x", EDITOR="no-such-editor")
    screen.expect("publish? y/n/e/r ›")
    screen.type("e\r")
    screen.expect("» the editor 'no-such-editor' did not start")
    screen.type("y\r")
    screen.expect("published x")
    assert screen.end() == 0


def test_a_masked_value_cannot_be_sent_back(terminal: Start) -> None:
    """Edited arguments that still hold a masked value are refused, so that no mask is ever taken for the value."""
    screen = terminal("secret", "x")
    screen.expect('token  "***"')
    screen.type("e\r")
    screen.expect("arguments ›")
    screen.type('\x15{"title": "y", "token": "***"}\r')
    screen.expect("» masked: token; type the real value")
    screen.type("\x15\r")
    screen.expect("? publish needs your approval")
    screen.type("y\r")
    screen.expect("published x")
    assert screen.end() == 0
    assert "s3cret" not in screen.text


def test_several_questions_are_put_in_order(terminal: Start) -> None:
    """Two calls that wait are asked for one after the other, and each answer goes to its own call."""
    screen = terminal("both")
    screen.expect('title  "one"')
    screen.expect("2 questions open")
    screen.type("n\r")
    screen.expect('title  "two"')
    screen.type("y\r")
    screen.expect("published two")
    assert screen.end() == 0
    assert "published one" not in screen.text


def test_a_half_typed_message_is_no_answer(terminal: Start) -> None:
    """Text that was typed when a question came is put aside, and is there again when it is answered."""
    screen = terminal("later", "x")
    screen.expect("tick()")
    screen.type("yes please")
    screen.expect("› yes please")
    screen.expect("publish? y/n/e/r ›")
    screen.type("n\r")
    screen.expect("publish rejected by you")
    screen.expect("› yes please")
    screen.type(" do\r")
    screen.expect("heard: yes please do")
    assert screen.end() == 0
    assert "published" not in screen.text


def test_an_answer_goes_to_a_paused_run(terminal: Start) -> None:
    """A run that asks shows its question; the line that is typed is its answer."""
    screen = terminal("ask")
    screen.expect("‖ 1  waits: await_input")
    screen.expect("question  Which version?")
    screen.expect("answer ›")
    screen.type("1.2\r")
    screen.expect(" resumed")
    screen.expect("told: 1.2")
    assert screen.end() == 0


def test_reject_refuses_a_paused_run(terminal: Start) -> None:
    """/reject ends a run that waits for an answer, without its goal."""
    screen = terminal("ask")
    screen.expect("answer ›")
    screen.type("/reject no idea\r")
    screen.expect("harborage: its question was rejected")
    assert screen.end() == 3


def test_a_run_is_parked_and_goes_on(terminal: Start) -> None:
    """/pause parks the run, /goal is taken meanwhile, /resume lets it go on towards the new goal."""
    screen = terminal("tick")
    screen.expect("tick()")
    screen.type("/pause\r")
    screen.expect("‖ paused: /resume continues it")
    screen.type("/goal say hello\r")
    screen.expect("» goal changed")
    screen.type("/resume\r")
    screen.expect(" resumed")
    screen.expect("hello")
    assert screen.end() == 0


def test_help_and_mistakes_stay_here(terminal: Start) -> None:
    """/help lists what can be typed; a command that does not exist is not sent to the agent."""
    screen = terminal("tick")
    screen.expect("tick()")
    screen.type("/help\r")
    screen.expect("/priority N")
    screen.type("/gaol x\r")
    screen.expect("» no command /gaol; list them: /help")
    screen.type("/priority 7\r")
    screen.expect("» priority 0 → 7")
    screen.type("bye\r")
    screen.expect("heard: bye")
    assert screen.end() == 0


def test_ctrl_c_cancels_and_says_what_a_second_one_does(terminal: Start) -> None:
    """Ctrl-C cancels softly; the planner ends the run."""
    screen = terminal("tick")
    screen.expect("tick()")
    screen.type("\x03")
    screen.expect("» cancelling: the planner gets one more step; Ctrl-C again stops it now")
    screen.expect("harborage: cancelled")
    assert screen.end() == 130


def test_ctrl_c_a_third_time_leaves(terminal: Start) -> None:
    """Three times Ctrl-C end the process whatever it does, and the terminal is given back."""
    screen = terminal("stubborn")
    screen.expect("stubborn()")
    for said in ("cancelling", "cancelling now"):
        screen.type("\x03")
        screen.expect(said)
    screen.type("\x03")
    assert screen.end() == 130
    assert screen.mode() == screen.mode_before


def test_stopping_at_once_cuts_the_call(terminal: Start) -> None:
    """/cancel! ends the run although its call never would."""
    screen = terminal("linger")
    screen.expect("linger()")
    screen.type("/cancel!\r")
    screen.expect("» cancelling now")
    screen.expect("linger()  cancelled: hard_cancel")
    assert screen.end() == 130


def test_ctrl_c_works_while_a_tool_blocks_the_loop(terminal: Start) -> None:
    """A tool that blocks the event loop cannot keep three Ctrl-C from ending the process."""
    screen = terminal("freeze")
    screen.expect("freezing")
    assert screen.end(pressing="\x03") == 130
    assert screen.mode() == screen.mode_before


def test_a_closed_window_ends_the_process(terminal: Start) -> None:
    """When the terminal goes away the process does not stay behind."""
    screen = terminal("linger")
    screen.expect("linger()")
    screen.hang_up()


MANY = """
import json
from harborage import *
from harborage.app import Agent


@tool(effects=SideEffect.READ)
async def tick(number: int) -> str:
    if number == 499:
        open("end", "w").write("over")
    return "tock " * 12


class Many:
    async def next(self, run):
        number = len(run.trajectory.steps)
        if number == 500:
            return Finish(FinishReason.GOAL, "all done")
        return CallTool("tick", json.dumps({"number": number}).encode())


agent = Agent(name="many", planner=Many(), tools=[tick], options=RuntimeOptions(max_steps=1000))
"""


def test_an_unread_terminal_stops_no_run(terminal: Start, tmp_path: Path) -> None:
    """The run comes to its end; the last view has every line of it, and the terminal is restored."""
    os.mkfifo(tmp_path / "end")
    pipe = os.open(tmp_path / "end", os.O_RDONLY | os.O_NONBLOCK)
    (tmp_path / "many.py").write_text(MANY, "utf-8")
    screen = terminal("go", target="many.py")
    assert select.select([pipe], [], [], 60)[0], "the run stood still"
    assert os.read(pipe, 10) == b"over"
    os.close(pipe)
    for number in range(500):
        screen.expect(f"tick(number={number})")
    screen.expect("all done")
    assert screen.end() == 0
    assert screen.mode() == screen.mode_before
    assert len(screen._raw) > 50_000


def test_a_request_to_end_is_obeyed(terminal: Start) -> None:
    """SIGTERM leaves the run as it stands, in good order: the terminal is given back."""
    screen = terminal("linger")
    screen.expect("linger()")
    screen.terminate()
    screen.expect("‖ left")
    screen.expect("harborage: the run was left; continue with: harborage resume ")
    assert screen.end() == 5
    assert screen.mode() == screen.mode_before


def test_a_run_that_is_kept_nowhere_is_cancelled(terminal: Start) -> None:
    """Leaving it would lose it, so /leave is not done, and SIGTERM stops the run at once."""
    screen = terminal("linger", "--storage", "memory:")
    screen.expect("linger()")
    screen.type("/leave\r")
    screen.expect("» this run is not kept")
    screen.terminate()
    screen.expect("harborage: cancelled, now")
    assert screen.end() == 130


def test_ctrl_z_gives_the_terminal_to_the_shell(terminal: Start) -> None:
    """A stopped command leaves the terminal as it found it, and takes it again when it goes on."""
    screen = terminal("tick")
    screen.expect("tick()")
    screen.type("\x1a")
    screen.wait_stopped()
    assert screen.mode() == screen.mode_before
    screen.resume_run()
    screen.expect("type a message for the agent")
    screen.type("back\r")
    screen.expect("heard: back")
    assert screen.end() == 0


def test_ctrl_z_below_a_program_that_stops_first(tmp_path: Path, under_make: Start) -> None:
    """With make between, the shell has its terminal before the run heard of Ctrl-Z; `fg` goes on with the run."""
    screen = under_make("run", "agent.py", "hold")
    screen.expect("holding")
    screen.type("\x1a")
    screen.expect("Stopped")
    screen.expect("ready> ")
    (tmp_path / "go").touch()
    screen.type("fg\r")
    screen.expect("sh job.sh")
    screen.type("/help\r")
    screen.expect("show this")  # the last line of the help
    screen.type("/cancel!\r")
    screen.expect("cancelled, now")
    screen.type("exit\r")
    assert screen.end() == 0


def test_going_on_while_a_stop_is_prepared(terminal: Start) -> None:
    """Told to go on before it has stopped, a command does not stop: no second signal would come."""
    screen = terminal("tick")
    screen.expect("tick()")
    screen.type("\x13")  # Ctrl-S: it waits for its last lines to be written
    screen.stop()
    screen.wait_given_back()
    screen.resume_run()
    screen.type("\x11")
    screen.expect("type a message for the agent")
    screen.type("back\r")
    screen.expect("heard: back")
    assert screen.end() == 0
    assert screen.mode() == screen.mode_before


def test_json_on_a_terminal_asks_no_question(terminal: Start) -> None:
    """--json is for machines wherever it is printed: no live region, no question."""
    screen = terminal("publish", "x", "--json")
    screen.expect("◆ waiting · publish needs an answer · harborage approve ")
    assert screen.end() == 5
    assert "y/n/e" not in screen.text


def test_no_color_is_respected(terminal: Start) -> None:
    """With NO_COLOR nothing is coloured."""
    screen = terminal("say", "hello", NO_COLOR="1")
    screen.expect("hello")
    assert screen.end() == 0
    assert b"\x1b[3" not in screen._raw


def test_a_dumb_terminal_can_be_asked_too(terminal: Start) -> None:
    """Where a region cannot be drawn questions are lines, and answers are read as the terminal sends them."""
    screen = terminal("publish", "x", TERM="dumb")
    screen.expect("y yes · n [reason] no · e edit the arguments")
    screen.type("y\n")
    screen.expect("published x")
    assert screen.end() == 0


def test_a_call_is_shown_before_it_is_approved_from_another_terminal(terminal: Start, at_terminal: Start) -> None:
    """Named by its run, the call is shown whole and approved by a yes; a no sends nothing; who comes late is told."""
    first = terminal("publish", "the whole title")
    first.expect("publish needs your approval")
    run_id = first.text.partition("words ")[2].split()[0]
    refused = at_terminal("approve", run_id)
    refused.expect('"the whole title"')
    refused.expect("harborage approve: send this answer (y/N)?")
    refused.type("n\r")
    assert refused.end() == 2
    late = at_terminal("approve", run_id)
    late.expect("harborage approve: send this answer (y/N)?")
    second = at_terminal("approve", run_id)
    second.expect("harborage approve: send this answer (y/N)?")
    second.type("y\r")
    assert second.end() == 0
    assert first.end() == 0
    late.type("y\r")
    assert late.end() == 1
    assert "approved:" not in late.text
