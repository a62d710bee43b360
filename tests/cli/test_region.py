"""The changing lines: what the run does, and what is typed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from harborage.cli.lineedit import LineEditor
from harborage.cli.questions import Desk, Question
from harborage.cli.region import region, window
from harborage.cli.seen import Call, View, new_view, run_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def shown(
    view: View, desk: Desk | None = None, text: str | None = None, *, seconds: float = 1, width: int = 80
) -> list[str]:
    """The region as plain text, without the empty line above it."""
    editor = None
    if text is not None:
        editor = LineEditor()
        editor.fill(text)
    lines = region(view, desk or Desk(), editor, NOW + timedelta(seconds=seconds), width)
    assert lines[0].plain == ""
    return [line.plain for line in lines[1:]]


@pytest.fixture
def view() -> View:
    """The view of a run that began at NOW."""
    return new_view("root", NOW)


def desk_of(*questions: Question, is_editing: bool = False) -> Desk:
    """A desk on which these questions lie."""
    desk = Desk()
    for question in questions:
        desk.add(question)
    desk.is_editing = is_editing
    return desk


def test_the_status_says_what_and_how_long(view: View) -> None:
    """What the run does, since when, its step, its tasks and the whole time are on one line."""
    run_of(view, "c")
    run_of(view, "d").ended = "completed"
    view.main.step = 3
    view.main.calls["2"] = Call("3", "add", NOW + timedelta(seconds=4))
    (status,) = shown(view, seconds=4.5)
    assert status[2:] == "calling add 0.5 s · step 3 · t1 running · 4.5 s in all"


def test_without_an_editor_there_is_no_input(view: View) -> None:
    """Where nobody can type there is no line to type on."""
    assert len(shown(view)) == 1


def test_an_empty_line_says_what_it_is_for(view: View) -> None:
    """As long as nothing is typed the input line explains itself."""
    assert shown(view, text="")[1] == "›  type to tell the agent something · /help"
    assert shown(view, text="hello")[1] == "› hello "


@pytest.mark.parametrize(
    ("question", "prompt"),
    [
        (Question(token="1", run_id="r", tool="publish"), "publish? y/n/e ›"),
        (Question(token="1", run_id="r", reason="await_input"), "answer ›"),
        (Question(token="1", run_id="r", reason="approval_required"), "y/n or an answer ›"),
    ],
)
def test_the_prompt_says_what_is_asked(view: View, question: Question, prompt: str) -> None:
    """While a question is open the input line says how it is answered."""
    status, line = shown(view, desk_of(question), "")
    assert status.startswith("? waiting for your answer")
    assert line.startswith(prompt)


def test_edited_arguments_have_a_prompt(view: View) -> None:
    """While arguments are edited the input line says so."""
    desk = desk_of(Question(token="1", run_id="r", tool="publish"), is_editing=True)
    assert shown(view, desk, '{"a":1}')[1] == 'arguments › {"a":1} '


def test_open_questions_are_counted(view: View) -> None:
    """Several open questions are told by number."""
    desk = desk_of(*(Question(token=str(n), run_id="r", tool="x") for n in range(3)))
    assert "3 questions open" in shown(view, desk)[0]


def test_a_parked_run_says_how_it_goes_on(view: View) -> None:
    """A parked run does not look busy."""
    view.main.held = "await_input"
    assert shown(view)[0].startswith("‖ parked: /resume lets it go on")


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
    before, under, after = window(text, cursor, room)
    assert text[:cursor].endswith(before)
    assert text[cursor:].startswith(under + after)
    assert under == text[cursor : cursor + 1]
    assert cell_len(before) + cell_len(under or " ") + cell_len(after) <= max(4, room) + 1


@pytest.mark.parametrize("width", [10, 20, 40, 200])
def test_a_long_input_fits_the_screen(view: View, width: int) -> None:
    """The input line is never wider than the screen, whatever is typed."""
    for text in ("x" * 300, "日本" * 150, "a\nb\n" * 90):
        assert cell_len(shown(view, text=text, width=width)[1]) <= width
