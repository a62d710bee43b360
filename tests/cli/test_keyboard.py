"""The keyboard: keys into lines, signals, a text in the person's editor, and Ctrl-Z with fg."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.cli.keyboard import (
    EditorError,
    Job,
    Keyboard,
    LineEditor,
    can_ask,
    edit_text,
    editor_command,
    handle_signals,
)
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Both ends of a terminal: the person's and the program's."""
    person, program = pty.openpty()
    yield person, program
    os.close(person)
    os.close(program)


class Heard:
    """The inputs of a keyboard."""

    def __init__(self, program: int, *, is_echoing: bool = False) -> None:
        self.lines: list[str] = []
        self.is_gone = False
        self.changed = asyncio.Event()
        self.keyboard = Keyboard(
            program, on_line=self.lines.append, on_change=self.changed.set, on_gone=self._gone, is_echoing=is_echoing
        )

    def _gone(self) -> None:
        self.is_gone = True
        self.changed.set()

    async def wait(self) -> None:
        """Return the next input."""
        async with asyncio.timeout(30):
            await self.changed.wait()
        self.changed.clear()


def echoes(program: int) -> bool:
    """Whether the terminal itself shows what is typed."""
    return bool(termios.tcgetattr(program)[3] & termios.ECHO)


async def test_keys_become_lines(terminal: tuple[int, int]) -> None:
    """Finished lines are delivered, characters that come in pieces are put together, and the rest stays on the line."""
    person, program = terminal
    received = Heard(program)
    with received.keyboard.opened():
        os.write(person, "naïve".encode()[:3])
        await received.wait()
        os.write(person, "naïve".encode()[3:] + b"\rrest")
        while received.keyboard.editor.text != "rest":
            await received.wait()
    assert received.lines == ["naïve"]


async def test_the_terminal_is_owned_and_given_back(terminal: tuple[int, int]) -> None:
    """While it is owned the terminal echoes nothing and the program's own input is empty; then all is as before."""
    _, program = terminal
    before = termios.tcgetattr(program)
    received = Heard(program)
    with received.keyboard.opened():
        assert os.read(program, 10) == b""
        with received.keyboard.suspended() as keys:
            assert termios.tcgetattr(keys) == before
        assert not echoes(keys)
    assert termios.tcgetattr(program) == before
    received.keyboard.close()


async def test_a_terminal_that_echoes_is_left_as_it_is(terminal: tuple[int, int]) -> None:
    """Where nothing is drawn the terminal's own line editing is used, and an end of input is no end of the terminal."""
    person, program = terminal
    before = termios.tcgetattr(program)
    received = Heard(program, is_echoing=True)
    with received.keyboard.opened():
        os.write(person, b"\x04one\n")
        await received.wait()
    assert received.lines == ["one"]
    assert not received.is_gone
    assert termios.tcgetattr(program) == before


async def test_a_terminal_that_goes_away_is_reported_once() -> None:
    """When the other end of the terminal is closed, that is reported once and nothing fails."""
    person, program = pty.openpty()
    received = Heard(program)
    with received.keyboard.opened():
        os.close(person)
        await received.wait()
        assert received.is_gone
    os.close(program)


async def test_signals_are_handled_for_a_while() -> None:
    """Handlers run in the loop, or at once, inside the block; what was there before is back after it."""
    before = [signal.getsignal(one) for one in (signal.SIGUSR1, signal.SIGUSR2)]
    received = asyncio.Event()
    at_once: list[str] = []
    with handle_signals({signal.SIGUSR1: received.set}, {signal.SIGUSR2: lambda: at_once.append("heard")}):
        os.kill(os.getpid(), signal.SIGUSR2)
        assert at_once == ["heard"]
        os.kill(os.getpid(), signal.SIGUSR1)
        async with asyncio.timeout(30):
            await received.wait()
    assert [signal.getsignal(one) for one in (signal.SIGUSR1, signal.SIGUSR2)] == before


async def test_only_ones_own_terminal_can_be_asked(terminal: tuple[int, int]) -> None:
    """A pipe cannot be asked, nor a terminal that belongs to others."""
    reader, writer = os.pipe()
    assert not can_ask(reader)
    assert not can_ask(terminal[1])
    os.close(reader)
    os.close(writer)
    assert not can_ask(reader)


UP, DOWN, LEFT, RIGHT, HOME, END, DELETE = "\x1b[A", "\x1b[B", "\x1b[D", "\x1b[C", "\x1b[H", "\x1b[F", "\x1b[3~"


@each_row(
    "keys, line",
    [
        ("hello", "hello"),
        ("naïve 日本", "naïve 日本"),
        ("helo\x1b[Dl", "hello"),
        ("hellp\x7fo", "hello"),
        ("\x7fhello\x7f\x7flo", "hello"),
        (f"ello{HOME}h", "hello"),
        ("ello\x01h\x05!", "hello!"),
        (f"hxello{HOME}{RIGHT}{DELETE}", "hello"),
        ("hxello\x01\x06\x04", "hello"),
        ("junk\x15hello", "hello"),
        ("hello junk\x1b[D\x1b[D\x1b[D\x1b[D\x1b[D\x0b", "hello"),
        ("hello brave world\x17\x17earth", "hello earth"),
        ("hello world \x17there", "hello there"),
        (f"{LEFT}{LEFT}a{RIGHT}{RIGHT}b", "ab"),
        ("a\tb", "a b"),
        ("a\x1b[5~\x1b[1;5C\x1bOP\x1bx\x0cb", "ab"),
    ],
)
def test_keys_build_a_line(keys: str, line: str) -> None:
    """Letters, the arrows and the usual editing keys do what they do in a shell; other keys do nothing."""
    editor = LineEditor()
    assert editor.feed(keys) == []
    assert editor.feed("\r") == [line]
    assert (editor.text, editor.cursor) == ("", 0)


def test_several_lines_at_once() -> None:
    """Whatever arrives together is taken in order; what is not finished stays."""
    editor = LineEditor()
    assert editor.feed("one\rtwo\nthr") == ["one", "two"]
    assert editor.text == "thr"


@given(st.text(alphabet="ab\x7f\x1b[DCAB~3 \r", max_size=30), st.integers(0, 30))
def test_keys_may_come_in_pieces(keys: str, cut: int) -> None:
    """A key that a read cuts in two means what it means in one piece."""
    whole, parts = LineEditor(), LineEditor()
    lines = whole.feed(keys)
    assert parts.feed(keys[:cut]) + parts.feed(keys[cut:]) == lines
    assert (parts.text, parts.cursor) == (whole.text, whole.cursor)


@given(st.text())
def test_the_cursor_stays_on_the_line(keys: str) -> None:
    """Whatever is pressed, the cursor stands within the text."""
    editor = LineEditor()
    editor.feed(keys)
    assert 0 <= editor.cursor <= len(editor.text)


def test_pasted_lines_stay_together() -> None:
    """Line breaks inside a paste are text; only Return finishes the line."""
    editor = LineEditor()
    assert editor.feed("\x1b[200~{\n  1\r}\x1b[201~") == []
    assert editor.feed("\r") == ["{\n  1\n}"]


def test_earlier_lines_come_back() -> None:
    """The arrows go through what was typed before and back to what is being typed."""
    editor = LineEditor()
    editor.feed("one\rtwo\r\rtwo\rdraft")
    for key, text in [(UP, "two"), (UP, "one"), (UP, "one"), (DOWN, "two"), (DOWN, "draft"), (DOWN, "draft")]:
        editor.feed(key)
        assert editor.text == text


def test_a_line_can_be_given() -> None:
    """A text to edit stands there with the cursor behind it."""
    editor = LineEditor()
    editor.fill("abc")
    assert editor.feed("\x7fd\r") == ["abd"]


@pytest.fixture
def nowhere() -> Iterator[int]:
    """A descriptor to read nothing from."""
    with open(os.devnull) as file:
        yield file.fileno()


@each_row(
    "environment, command",
    [
        ({}, []),
        ({"EDITOR": " "}, []),
        ({"EDITOR": "vim"}, ["vim"]),
        ({"EDITOR": "vim", "VISUAL": "code --wait"}, ["code", "--wait"]),
        ({"EDITOR": "'/my editor' -x"}, ["/my editor", "-x"]),
    ],
)
def test_the_editor_is_what_the_environment_says(environment: dict[str, str], command: list[str]) -> None:
    """$VISUAL comes before $EDITOR, either may have arguments, and neither is needed."""
    assert editor_command(environment) == command


@pytest.mark.parametrize(
    "program",
    [
        "p.write_text(p.read_text().upper())",
        "q = p.with_name(p.name + '~'); q.write_text(p.read_text().upper()); q.replace(p)",
    ],
)
async def test_what_was_saved_comes_back(program: str, nowhere: int) -> None:
    """The text that the editor saved is returned, whether it wrote into the file or put another in its place."""
    command = [sys.executable, "-c", f"import pathlib, sys; p = pathlib.Path(sys.argv[1]); {program}"]
    assert await edit_text(command, "naïve", suffix=".json", stdin=nowhere) == "NAÏVE\n"


@pytest.mark.parametrize(
    ("command", "message"),
    [(["/no/such/editor"], "did not start"), ([sys.executable, "-c", "raise SystemExit(3)"], "ended with code 3")],
)
async def test_an_editor_that_fails_is_an_error(command: list[str], message: str, nowhere: int) -> None:
    """An editor that does not start, or says that it failed, gives no text."""
    with pytest.raises(EditorError, match=message):
        await edit_text(command, "x", suffix=".json", stdin=nowhere)


async def test_no_draft_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nowhere: int) -> None:
    """The file that was edited is gone afterwards."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    await edit_text([sys.executable, "-c", ""], "x", suffix=".json", stdin=nowhere)
    assert os.listdir(tmp_path) == []


CTRL_Z, FG = signal.SIGTSTP, signal.SIGCONT


class Shell:
    """Sends the signals of a shell to a job in this process, which only notes what it would do."""

    def __init__(self, *, meanwhile: Sequence[signal.Signals] = (), is_away: bool = False) -> None:
        self.done: list[str] = []
        self.job = Job(suspend=self._aside, renew=self._renew, is_terminal_lent=lambda: is_away, stop=self._stop)
        self._meanwhile = meanwhile

    @contextmanager
    def received(self) -> Iterator[None]:
        """Hear the signals as a run does."""
        with handle_signals({CTRL_Z: self.job.stop, FG: self.job.resume}, {FG: self.job.note_resumed}):
            yield

    @contextmanager
    def _aside(self) -> Iterator[None]:
        self.done.append("give back")
        for one in self._meanwhile:
            signal.raise_signal(one)
        yield
        self.done.append("take")

    def _renew(self) -> None:
        self.done.append("renew")

    def _stop(self) -> None:
        self.done.append("stop")
        signal.raise_signal(FG)  # a process that has stopped does no more until it is told to


STOP = ["give back", "stop", "take", "renew"]


@each_row(
    "sent, done",
    [
        ([CTRL_Z], STOP),
        ([FG], ["renew"]),
        ([CTRL_Z, FG], ["renew"]),
        ([FG, CTRL_Z], ["renew", *STOP]),
        ([CTRL_Z, FG, CTRL_Z], ["renew", *STOP]),
        ([CTRL_Z, FG, CTRL_Z, FG], ["renew", "renew"]),
    ],
)
async def test_signals_that_came_together_count_in_their_order(sent: list[signal.Signals], done: list[str]) -> None:
    """However many were sent while the event loop was busy, the last one says whether the process stops."""
    shell = Shell()
    with shell.received():
        for one in sent:
            signal.raise_signal(one)
        await _settled()
    assert shell.done == done


async def test_a_word_that_the_loop_has_not_come_to_counts() -> None:
    """Told to go on between the loop's taking up Ctrl-Z and the stop, the process does not stop."""
    shell = Shell()
    with shell.received():
        shell.job.stop()
        signal.raise_signal(FG)
        await _settled()
    assert shell.done == ["renew"]


async def test_a_word_while_the_terminal_is_given_back_counts() -> None:
    """Told to go on while the last lines are written, the process takes its terminal again without a stop."""
    shell = Shell(meanwhile=[FG])
    with shell.received():
        signal.raise_signal(CTRL_Z)
        await _settled()
    assert shell.done == ["give back", "take", "renew"]


async def test_the_next_ctrl_z_stops_again() -> None:
    """Having gone on, the process stops at the next Ctrl-Z."""
    shell = Shell()
    with shell.received():
        for times in (1, 2):
            signal.raise_signal(CTRL_Z)
            await _settled()
            assert shell.done == STOP * times


async def test_while_another_program_has_the_terminal_nothing_is_done() -> None:
    """An editor that was started from here stops and goes on by itself, and the terminal is its own."""
    shell = Shell(is_away=True)
    with shell.received():
        signal.raise_signal(CTRL_Z)
        signal.raise_signal(FG)
        await _settled()
    assert shell.done == []


async def _settled() -> None:
    """Wait until the loop has come to all that was sent, and to what that led to."""
    for _ in range(3):
        last = asyncio.Event()
        with handle_signals({signal.SIGUSR1: last.set}, {}):
            signal.raise_signal(signal.SIGUSR1)
            async with asyncio.timeout(60):
                await last.wait()
