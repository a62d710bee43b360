"""The screen: lines that scroll by, and the live region below them."""

from __future__ import annotations

import io
import re
import sys
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from harborage.cli.journal_view import Call, View, new_view, run_of
from harborage.cli.keyboard import LineEditor
from harborage.cli.pane import is_long
from harborage.cli.questions import Question, QuestionQueue, pane_of
from harborage.cli.region import render_region, visible_part
from harborage.cli.screen import LiveScreen, PlainScreen
from tests.kit.emulator import Emulator


def terminal(width: int = 40) -> tuple[Console, io.StringIO]:
    """A console that believes it is a terminal, and what it wrote."""
    file = io.StringIO()
    return Console(file=file, force_terminal=True, width=width, height=10, color_system=None), file


def test_lines_go_above_the_region() -> None:
    """Lines are written in order, and the region is drawn below them again."""
    console, file = terminal()
    screen = LiveScreen(console, lambda width: [Text(f"region of {width}")])
    screen.show([Text("one"), Text("two")])
    screen.close()
    text = file.getvalue()
    assert text.index("one") < text.index("two") < text.rindex("region of 40")


def test_a_line_is_cut_or_wrapped_as_it_wants() -> None:
    """A line that must not wrap is cut at the edge; another goes on below."""
    console, file = terminal(10)
    screen = LiveScreen(console, lambda width: [])
    screen.show([Text("a" * 30, no_wrap=True, overflow="ellipsis"), Text("b" * 30)])
    screen.close()
    assert file.getvalue().count("a") == 9
    assert file.getvalue().count("b") == 30


def test_a_closed_screen_gives_everything_back() -> None:
    """Closing shows the cursor again, gives the streams back, and may be done twice; lines can still be written."""
    console, file = terminal()
    streams = sys.stdout, sys.stderr
    screen = LiveScreen(console, lambda width: [Text("region")])
    assert sys.stdout is not streams[0]
    screen.close()
    screen.close()
    assert (sys.stdout, sys.stderr) == streams
    assert file.getvalue().rindex("\x1b[?25h") > file.getvalue().rindex("\x1b[?25l")
    screen.refresh()
    screen.show([Text("after")])
    assert file.getvalue().endswith("after\n")


def test_a_suspended_screen_is_out_of_the_way() -> None:
    """While another program has the terminal nothing is drawn; afterwards the region is there again."""
    console, file = terminal()
    screen = LiveScreen(console, lambda width: [Text("region")])
    with screen.suspended():
        size = len(file.getvalue())
        screen.refresh()
        assert len(file.getvalue()) == size
    assert "region" in file.getvalue()[size:]
    screen.close()


def test_only_rows_that_changed_are_written() -> None:
    """A frame that is like the last one writes nothing, and of another one its new rows alone, in one go."""
    console, file = terminal()
    rows = ["calls", "step 1"]
    screen = LiveScreen(console, lambda width: [Text(row) for row in rows], frame_s=0)
    size = len(file.getvalue())
    screen.refresh()
    assert len(file.getvalue()) == size
    rows[1] = "step 2"
    screen.refresh()
    written = file.getvalue()[size:]
    assert "step 2" in written
    assert "calls" not in written
    assert written.startswith("\x1b[?2026h")
    assert written.endswith("\x1b[?2026l")
    screen.close()


@given(st.lists(st.lists(st.text("abc", min_size=1, max_size=9), max_size=6), min_size=1, max_size=8))
def test_the_region_is_what_it_is_wherever_it_came_from(frames: list[list[str]]) -> None:
    """Whatever rows a region had, and whatever is printed above it, a person sees what was printed and its rows."""
    console, file = terminal()
    now: list[str] = []
    screen = LiveScreen(console, lambda width: [Text(row) for row in now], frame_s=0)
    for number, frame in enumerate(frames):
        now[:] = frame
        if number % 3 == 2:
            screen.show([Text(f"line {number}")])
        screen.refresh()
        seen = Emulator(40)
        seen.feed(file.getvalue().replace("\n", "\r\n"))
        printed = [f"line {at}" for at in range(2, number + 1, 3)]
        assert [row for row in seen.text.split("\n") if row] == [*printed, *frame]
    screen.close()
    seen = Emulator(40)
    seen.feed(file.getvalue().replace("\n", "\r\n"))
    assert [row for row in seen.text.split("\n") if row] == [f"line {at}" for at in range(2, len(frames), 3)]


def test_a_terminal_that_was_resized_is_drawn_anew() -> None:
    """Rows that a narrower terminal has wrapped are removed as they are then."""
    console, file = terminal(40)
    screen = LiveScreen(console, lambda width: [Text("x" * width), Text("end")], frame_s=0)
    console.width = 20
    size = len(file.getvalue())
    screen.refresh()
    assert file.getvalue()[size:].startswith("\x1b[?2026h\x1b[2A\r\x1b[J" + "x" * 20)
    screen.close()


def test_a_plain_screen_writes_lines_whole() -> None:
    """Without a terminal lines are neither cut nor wrapped, and there is no region."""
    file = io.StringIO()
    screen = PlainScreen(Console(file=file, width=20))
    with screen.suspended():
        screen.show([Text("x" * 50)])
    screen.refresh()
    screen.close()
    assert file.getvalue() == "x" * 50 + "\n"


@pytest.mark.parametrize(("is_urgent", "text"), [(True, "now\n"), (False, "")])
def test_a_quiet_screen_writes_what_is_urgent(is_urgent: bool, text: str) -> None:
    """Questions are shown even when all output is off."""
    file = io.StringIO()
    PlainScreen(Console(file=file), is_quiet=True).show([Text("now")], is_urgent=is_urgent)
    assert file.getvalue() == text


def long_question() -> Question:
    """A question about a text of 30 lines."""
    args = {"path": "notes.md", "text": "\n".join(f"row {number}" for number in range(30))}
    return Question(token="1", run_id="r", tool="write_file", reason="it writes", args=args)


def test_a_long_question_scrolls_below_its_title(view: View) -> None:
    """The title stays; `y` is offered once the end was in view, and then for good."""
    queue = queue_of(long_question())
    pane = queue.pane = pane_of(long_question(), NOW)
    seen = [line.plain for line in render_region(view, queue, LineEditor(), NOW, 60, height=20)]
    assert seen[1] == "? write_file needs your approval"
    assert "row 0" in "\n".join(seen)
    assert "row 29" not in "\n".join(seen)
    assert re.fullmatch(r"  lines 1 to 13 of \d+ · Space scrolls · \d+ more before y", seen[-3])
    assert seen[-1].startswith("write_file? n/e ›")
    assert len(seen) <= 20 - 2
    assert pane.unread.startswith("read it to its end first: Space scrolls; it has ")
    assert not pane.press("x")
    while not pane.is_read:
        assert pane.press(" ")
        seen = [line.plain for line in render_region(view, queue, LineEditor(), NOW, 60, height=20)]
    assert "row 29" in "\n".join(seen)
    assert seen[1] == "? write_file needs your approval"
    assert pane.press("\x1b[H")
    seen = [line.plain for line in render_region(view, queue, LineEditor(), NOW, 60, height=20)]
    assert seen[-3].endswith("Space scrolls")
    assert seen[-1].startswith("write_file? y/n/e/r ›")
    assert pane.unread == ""


@pytest.mark.parametrize(("lines", "height", "scrolls"), [(15, 20, True), (14, 20, False), (90, 11, False)])
def test_a_question_scrolls_where_it_does_not_fit(lines: int, height: int, scrolls: bool) -> None:
    """A short one is printed, and so is every one on a terminal with too few rows to scroll in."""
    assert is_long([Text("x")] * lines, height) is scrolls


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def shown(
    view: View, queue: QuestionQueue | None = None, text: str | None = None, *, seconds: float = 1, width: int = 80
) -> list[str]:
    """The region as plain text, without the empty line above it."""
    editor = None
    if text is not None:
        editor = LineEditor()
        editor.fill(text)
    lines = render_region(view, queue or QuestionQueue(), editor, NOW + timedelta(seconds=seconds), width)
    assert lines[0].plain == ""
    return [line.plain for line in lines[1:]]


@pytest.fixture
def view() -> View:
    """The view of a run that began at NOW."""
    return new_view("root", NOW)


def queue_of(*questions: Question, is_editing: bool = False) -> QuestionQueue:
    """A queue on which these questions lie."""
    queue = QuestionQueue()
    for question in questions:
        queue.add(question)
    queue.is_editing = is_editing
    return queue


def test_the_status_says_what_and_how_long(view: View) -> None:
    """What the run does, since when, its step, its tasks and the whole time are on one line."""
    run_of(view, "c")
    run_of(view, "d").ended = "completed"
    view.main.step = 3
    view.main.calls["2"] = Call("3", "add", NOW + timedelta(seconds=4))
    (status,) = shown(view, seconds=4.5)
    assert status[2:] == "step 3, calling add · 4 s"
    (status,) = shown(view, seconds=4.5, width=120)
    assert status[2:] == "step 3, calling add · 2 children · 4 s"


def test_without_an_editor_there_is_no_input(view: View) -> None:
    """Without a keyboard there is no input line."""
    assert len(shown(view)) == 1


def test_an_empty_line_says_what_it_is_for(view: View) -> None:
    """As long as nothing is typed the input line explains itself."""
    assert shown(view, text="")[1] == "›  type a message for the agent · /help"
    assert shown(view, text="hello")[1] == "› hello "


@pytest.mark.parametrize(
    ("question", "prompt"),
    [
        (Question(token="1", run_id="r", tool="publish"), "publish? y/n/e/r ›"),
        (Question(token="1", run_id="r", reason="await_input"), "answer ›"),
        (Question(token="1", run_id="r", reason="approval_required"), "y/n or an answer ›"),
    ],
)
def test_the_prompt_says_what_is_asked(view: View, question: Question, prompt: str) -> None:
    """While a question is open the input line says how it is answered."""
    status, line = shown(view, queue_of(question), "")
    assert status.startswith("◆ waiting for your answer")
    assert line.startswith(prompt)


def test_edited_arguments_have_a_prompt(view: View) -> None:
    """While arguments are edited the input line says so."""
    queue = queue_of(Question(token="1", run_id="r", tool="publish"), is_editing=True)
    assert shown(view, queue, '{"a":1}')[1] == 'arguments › {"a":1} '


def test_open_questions_are_counted(view: View) -> None:
    """Several open questions are shown by number."""
    queue = queue_of(*(Question(token=str(n), run_id="r", tool="x") for n in range(3)))
    assert "3 questions open" in shown(view, queue)[0]


def test_a_parked_run_says_how_it_goes_on(view: View) -> None:
    """A parked run does not look busy."""
    view.main.pause_reason = "await_input"
    assert shown(view)[0].startswith("‖ paused: /resume continues it")


def test_the_end_of_a_streamed_answer_is_shown(view: View) -> None:
    """What the model writes is shown by its last rows, broken where there is room to."""
    view.streaming = "first\n" + "some words " * 100 + "and the end"
    *rows, _ = shown(view, width=20)
    assert len(rows) == 6
    assert " ".join(rows).endswith("and the end")
    assert all(0 < cell_len(row) <= 20 for row in rows)


def test_thinking_is_folded_into_one_line(view: View) -> None:
    """Reasoning is shown by its end on one line, until the answer begins."""
    view.thinking = "first this\nthen that " * 20
    line, _ = shown(view, width=24)
    assert line.startswith("∴ ")
    assert line.endswith("then that")
    assert cell_len(line) <= 24
    view.streaming = "So"
    assert shown(view, width=24)[0] == "So"


@given(st.text(max_size=200), st.integers(0, 200), st.integers(1, 100))
def test_the_window_holds_the_cursor(text: str, cursor: int, room: int) -> None:
    """However long the text, the part that is shown fits and holds the cursor."""
    cursor = min(cursor, len(text))
    before, under, after = visible_part(text, cursor, room)
    assert text[:cursor].endswith(before)
    assert text[cursor:].startswith(under + after)
    assert under == text[cursor : cursor + 1]
    assert cell_len(before) + cell_len(under or " ") + cell_len(after) <= max(4, room) + 1


@pytest.mark.parametrize("width", [10, 20, 40, 200])
def test_a_long_input_fits_the_screen(view: View, width: int) -> None:
    """The input line is never wider than the screen, whatever is typed."""
    for text in ("x" * 300, "日本" * 150, "a\nb\n" * 90):
        assert cell_len(shown(view, text=text, width=width)[1]) <= width
