"""`harborage chat` on a terminal and in a pipe: messages, answers, going on, steering, and what may go wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harborage.cli.chat_loop import complete_file, mentioned_files
from harborage.cli.prompt import MessageEditor

Start = Callable[..., Any]

LISTENER = '''
from harborage.app import Agent
from harborage.llm import CompleteResponse

class Listener:
    """Says which names were told in the conversation."""

    async def complete(self, request):
        told = [message.content.text for message in request.messages if message.content]
        said = "\\n".join(told)
        return CompleteResponse(content="Hello Ada." if "I am Ada" in said else "Who are you?")

    async def close(self):
        pass

agent = Agent("listener", model=Listener())
'''


@pytest.fixture
def listener(tmp_path: Path) -> Path:
    """An agent that knows who said their name before."""
    path = tmp_path / "listener.py"
    path.write_text(LISTENER, "utf-8")
    return path


def test_a_conversation_remembers_what_was_said(at_terminal: Start, listener: Path) -> None:
    """From message to message, and in the next process with --continue, which shows the last exchanges."""
    screen = at_terminal("chat", "listener.py")
    screen.expect("listener · session s-")
    screen.expect("Enter sends")
    screen.type("Who am I?\r")
    screen.expect("Who are you?")
    screen.expect("Enter sends")
    screen.type("I am Ada\r")
    screen.expect("Hello Ada.")
    screen.expect("Enter sends")
    screen.type("\x04")
    assert screen.end() == 0
    assert screen.mode() == screen.mode_before
    again = at_terminal("chat", "listener.py", "--continue")
    again.expect("2 messages")
    again.expect("› I am Ada")
    again.expect("Hello Ada.")
    again.expect("Enter sends")
    again.type("Who am I?\r")
    again.expect("Hello Ada.")
    again.expect("Enter sends")
    again.type("/new\r")
    again.expect("new · /help")
    again.expect("Enter sends")
    again.type("Who am I?\r")
    again.expect("Who are you?")
    again.expect("Enter sends")
    again.type("/exit\r")
    assert again.end() == 0


def test_a_message_may_have_several_lines(at_terminal: Start) -> None:
    """A backslash before Enter and Alt-Enter break the line, and nothing is sent before Enter."""
    screen = at_terminal("chat")
    screen.expect("words · session")
    screen.expect("Enter sends")
    screen.type("say one\\\rtwo\x1b\rthree\r")
    screen.expect("› say one\n  two\n  three")
    screen.expect("one\ntwo\nthree")
    screen.expect("Enter sends")
    screen.type("\x04")
    assert screen.end() == 0


def test_a_command_that_is_none_is_no_message(at_terminal: Start) -> None:
    """It is an error with what is similar; two slashes begin a message, and a missing file is said at once."""
    screen = at_terminal("chat")
    screen.expect("Enter sends")
    screen.type("/atach x\r")
    screen.expect("no command /atach (did you mean /attach?)")
    screen.expect("Enter sends")
    screen.type("/attach nothing.png\r")
    screen.expect("cannot attach nothing.png: there is no such file")
    screen.expect("Enter sends")
    screen.type("/help\r")
    screen.expect("/resume [SESSION]")
    screen.expect("Enter sends")
    screen.type("//slash\r")
    screen.expect("› //slash")
    screen.expect("Enter sends")
    screen.type("\x04")
    assert screen.end() == 0


def test_what_is_typed_while_it_answers_steers_it(at_terminal: Start) -> None:
    """It reaches the run that answers; after the answer the conversation goes on."""
    screen = at_terminal("chat")
    screen.expect("Enter sends")
    screen.type("tick\r")
    screen.expect("tick()")
    screen.type("enough\r")
    screen.expect("heard: enough")
    screen.expect("Enter sends")
    screen.type("linger\r")
    screen.expect("linger()")
    screen.type("\x03")
    screen.expect("Ctrl-C again stops it now")
    screen.type("\x03")  # apart from the first: two signals that wait become one
    screen.expect("⊘ cancelled")
    screen.expect("Enter sends")
    screen.type("say still here\r")
    screen.expect("still here")
    screen.expect("Enter sends")
    screen.type("\x04")
    assert screen.end() == 0


def test_ctrl_c_at_the_prompt_clears_and_then_leaves(at_terminal: Start) -> None:
    """Once clears the line, twice says how to leave, three times leaves."""
    screen = at_terminal("chat")
    screen.expect("Enter sends")
    screen.type("half a thought")
    screen.expect("half a thought")
    screen.type("\x03")
    screen.expect("Enter sends")
    screen.type("\x03")
    screen.expect("Ctrl-D leaves")
    screen.type("\x03")
    assert screen.end() == 0
    assert screen.mode() == screen.mode_before


def test_an_answer_that_a_kill_cut_goes_on(at_terminal: Start, tmp_path: Path) -> None:
    """With --continue, before the next message is asked for."""
    first = at_terminal("chat")
    first.expect("Enter sends")
    first.type("publish x\r")
    first.expect("publish needs your approval")
    first.kill()
    again = at_terminal("chat", "--continue")
    again.expect("publish needs your approval")
    again.expect("publish? y/n/e/r ›")
    again.type("y\r")
    again.expect("published x")
    again.expect("Enter sends")
    again.type("\x04")
    assert again.end() == 0


def test_lines_of_a_pipe_are_messages(in_pipe: Start, listener: Path) -> None:
    """Each answer is a line of stdout; with --json each ends with a result."""
    talk = in_pipe("chat", "listener.py", "--session", "s-1", "--quiet")
    talk.write("Who am I?\n\nI am Ada\n")
    assert (talk.end(), talk.out) == (0, "Who are you?\nHello Ada.\n")
    again = in_pipe("chat", "listener.py", "--session", "s-1", "--json")
    again.write("Who am I?\n")
    assert again.end() == 0
    result = json.loads(again.out.splitlines()[-1])
    assert (result["type"], result["answer"], result["exit_code"]) == ("result", "Hello Ada.", 0)


def test_an_answer_that_needs_a_person_ends_a_pipe(in_pipe: Start) -> None:
    """It is left waiting, and what comes after it is not sent."""
    talk = in_pipe("chat")
    talk.write("publish x\nsay late\n")
    assert (talk.end(), talk.out) == (5, "")
    assert "harborage approve " in talk.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--continue",), "there is no conversation here to go on with"),
        (("--continue", "--session", "s-1"), "give one of them"),
        (("--storage", "memory:"), "a conversation must be kept"),
        (("nothing.py",), "cannot run 'nothing.py'"),
    ],
)
def test_wrong_use_of_a_conversation_is_one_line(in_pipe: Start, words: tuple[str, ...], why: str) -> None:
    """It names the thing, and nothing is kept."""
    talk = in_pipe("chat", *words)
    assert talk.end() == 2
    assert why in talk.err
    assert talk.err.startswith("harborage: ") or "harborage: " in talk.err


def test_a_message_is_queued_taken_back_and_copied(at_terminal: Start, tmp_path: Path) -> None:
    """Tab sends a message after the answer; /undo takes the last exchange back, and the model does not see it again."""
    (tmp_path / "receipt.txt").write_text("one tea", "utf-8")
    screen = at_terminal("chat")
    screen.expect("Enter sends")
    screen.type("tick\r")
    screen.expect("tick()")
    screen.type("say second\t")
    screen.expect("› say second  queued: after this answer")
    screen.type("first\r")
    screen.expect("heard: first")
    screen.expect("second")
    screen.expect("Enter sends")
    screen.type("/undo\r")
    screen.expect("undone: say second · session s-")
    screen.expect("› say second")
    screen.type("\x15/show\r")
    screen.expect("› tick")
    screen.expect("heard: first")
    screen.expect("Enter sends")
    screen.type("say it of @rec\t\r")
    screen.expect("› say it of @receipt.txt")
    screen.expect("it of @receipt.txt\n")
    screen.expect("Enter sends")
    screen.type("/copy\r")
    screen.expect("copied 18 characters")
    screen.expect("Enter sends")
    screen.type("/cost\r")
    screen.expect("1 run · 0 tokens")
    screen.expect("Enter sends")
    screen.type("\x04")
    assert screen.end() == 0
    assert "\x1b]52;c;aXQgb2YgQHJlY2VpcHQudHh0\x07" in screen.raw


def test_files_are_named_in_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows an @ is attached where there is such a file, and stays a word where there is none."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("x", "utf-8")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.txt").write_text("x", "utf-8")
    text = "Look at @a.txt, @sub/b.txt and @a.txt; mail ada@shop.example or @nobody"
    assert mentioned_files(text) == [Path("a.txt"), Path("sub/b.txt")]
    editor = MessageEditor()
    for typed, completed in (("see @a", "see @a.txt"), ("@su", "@sub/"), ("@sub/", "@sub/b.txt"), ("@x", "@x")):
        editor.fill(typed)
        assert complete_file(editor, "\t")
        assert editor.text == completed
    assert not complete_file(editor, "x")
