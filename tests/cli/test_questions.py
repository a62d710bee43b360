"""Questions: made from pauses, put in order, shown complete."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from harborage.app import Change
from harborage.cli.answers import Mode
from harborage.cli.questions import (
    Question,
    QuestionQueue,
    is_approval,
    question_of,
    render_reminder,
    render_with_keys,
    shown_args,
)
from harborage.identity import Quadruple
from harborage.planner import PauseReason
from harborage.runtime.pauses import Pause, PauseState
from tests.kit.tables import each_row

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def pause(payload: dict[str, Any] | None = None, reason: PauseReason = PauseReason.AWAIT_INPUT) -> Pause:
    """An open pause of a run."""
    return Pause(
        token="token-1",
        reason=reason,
        state=PauseState.PAUSED,
        identity=Quadruple("t", "u", "s", "run-1"),
        paused_at=NOW,
        payload=payload,
        deadline=NOW + timedelta(hours=1),
    )


GATED = {"tool": "publish", "reason": "because", "args_summary": {"title": "x"}, "fingerprint": "abc"}


def shown(question: Question, now: datetime = NOW) -> str:
    """A question as a person reads it."""
    return "\n".join(line.plain for line in render_with_keys(question, now, 10_000))


def test_a_gated_call_is_a_question_about_the_call() -> None:
    """The pause of a gate becomes a question with tool, reason, arguments and deadline."""
    assert is_approval(pause(GATED))
    question = question_of(pause(GATED, PauseReason.APPROVAL_REQUIRED), "t1")
    assert question is not None
    assert (question.tool, question.reason, question.args) == ("publish", "because", {"title": "x"})
    assert (question.token, question.run_id, question.label) == ("token-1", "run-1", "t1")
    assert question.deadline == NOW + timedelta(hours=1)
    assert question.mode is Mode.APPROVAL


def test_a_call_in_doubt_is_a_question_of_its_own() -> None:
    """It shows the call, is answered in words of its own, and no yes ever stands for one of them."""
    doubt = pause({**GATED, "question": "unknown_outcome", "reason": ""})
    assert not is_approval(doubt)
    question = question_of(doubt, "t1")
    assert question is not None
    assert (question.tool, question.args, question.mode) == ("publish", {"title": "x"}, Mode.INTERRUPTED)
    assert not question.takes_yes_or_no
    text = shown(question)
    for part in (
        "? publish (t1) may have acted; what is its outcome?",
        'title  "x"',
        "again make the call again",
        "expires  in 1 h",
    ):
        assert part in text
    assert not is_approval(pause({"question": "unknown_outcome"}))


@each_row("reason", PauseReason)
def test_a_planners_pause_is_a_question_in_words(reason: PauseReason) -> None:
    """A pause that a planner asked for shows its payload; only one for approval takes yes and no."""
    question = question_of(pause({"question": "Which?"}, reason))
    assert question is not None
    assert (question.tool, question.payload) == ("", {"question": "Which?"})
    is_consent = reason is PauseReason.APPROVAL_REQUIRED
    assert question.mode is (Mode.CONFIRM if is_consent else Mode.PAUSE)
    assert question.takes_yes_or_no is is_consent


def test_a_parked_run_asks_nothing() -> None:
    """The pause that a PAUSE control opened is no question."""
    assert question_of(pause({"requested_by": "steering"})) is None


def test_a_pause_without_payload_is_a_question() -> None:
    """A planner may wait without saying why."""
    question = question_of(pause())
    assert question is not None
    assert "await_input" in shown(question)


@each_row(
    "summary, args",
    [
        ({"args": {"a": 1}, "tool": "publish"}, {"a": 1}),
        ({"args": {"a": 1}}, {"args": {"a": 1}}),
        ({"a": 1}, {"a": 1}),
        (None, None),
    ],
)
def test_the_arguments_inside_an_announcement(summary: Any, args: Any) -> None:
    """A gate announces tool and arguments together; the arguments are what is decided about."""
    assert shown_args(summary) == args


def test_arguments_are_shown_whole() -> None:
    """However long, every argument is shown to its end; text of several lines as such."""
    long = "word " * 400
    question = Question(token="1", run_id="r", tool="publish", args={"title": "x", "text": f"one\n{long}\nend", "n": 1})
    text = shown(question)
    for part in ('title  "x"', "text   │ one", f"│ {long}", "│ end", "n      1", "? publish needs your approval"):
        assert part in text


def test_a_question_cannot_be_faked_by_what_is_asked() -> None:
    """Control characters in tool, reason, arguments and payload are spelled out."""
    evil = "\x1b[2J\rgood"
    gate = Question(token="1", run_id="r", tool=evil, reason=evil, args={evil: evil, "b": [evil], "c": f"a\n{evil}"})
    wait = Question(token="1", run_id="r", reason=evil, payload={evil: evil})
    for question in (gate, wait):
        text = shown(question)
        assert "\x1b" not in text
        assert "\r" not in text


@each_row("args", [None, {}, [1, 2], "text"])
def test_arguments_that_are_no_object_are_shown_too(args: Any) -> None:
    """A call whose arguments are odd is still put."""
    assert "arguments" in shown(Question(token="1", run_id="r", tool="publish", args=args))


@each_row("later, text", [(0, "in 1 h"), (3_590, "in 10.0 s"), (3_601, "now")])
def test_the_deadline_is_shown(later: int, text: str) -> None:
    """A question says how long it stays open."""
    question = question_of(pause(GATED))
    assert question is not None
    assert f"expires  {text}" in shown(question, NOW + timedelta(seconds=later))


def test_a_question_is_put_again_in_short() -> None:
    """Asked again, it names its subject and what can be answered."""
    first, last = render_reminder(Question(token="1", run_id="r", tool="publish", label="t2"), 100)
    assert first.plain == "? publish (t2) needs your approval"
    assert "y yes" in last.plain


def ask(token: str, run_id: str = "r") -> Question:
    """A question of that token."""
    return Question(token=token, run_id=run_id, tool="publish")


def test_questions_are_put_one_at_a_time() -> None:
    """The oldest question is put; the others wait for it."""
    queue = QuestionQueue()
    assert (queue.current, queue.token, queue.mode) == (None, "", Mode.FREE)
    assert queue.add(ask("1"))
    assert not queue.add(ask("2"))
    assert (len(queue), queue.token, queue.mode) == (2, "1", Mode.APPROVAL)
    assert queue.close("1")
    assert queue.token == "2"


def test_a_question_behind_the_first_closes_quietly() -> None:
    """When a waiting question is resolved elsewhere, the one that is put stays."""
    queue = QuestionQueue()
    queue.add(ask("1"))
    queue.add(ask("2"))
    assert not queue.close("2")
    assert (len(queue), queue.token) == (1, "1")


def test_a_question_is_put_once() -> None:
    """A question that is shown twice, or that was resolved before it was shown, is not put again."""
    queue = QuestionQueue()
    assert queue.add(ask("1"))
    assert not queue.add(ask("1"))
    queue.close("1")
    assert not queue.add(ask("1"))
    assert not queue.close("2")
    assert not queue.add(ask("2"))
    assert len(queue) == 0


def test_editing_ends_with_its_question() -> None:
    """A question that is resolved while its arguments are edited leaves nothing to edit."""
    queue = QuestionQueue()
    queue.add(ask("1"))
    queue.add(ask("2"))
    queue.is_editing = True
    assert queue.mode is Mode.EDIT
    queue.close("1")
    assert queue.mode is Mode.APPROVAL


def written(before: str, after: str, objection: str = "") -> Question:
    """A call that would write a file, with what it would change."""
    args = {"path": "notes.md", "content": after}
    return Question(
        token="t", run_id="r", tool="write_file", args=args, change=Change("content", before, after, objection)
    )


def test_a_change_is_shown_line_by_line() -> None:
    """Where a call replaces a text, the difference stands in its place; every other argument stays."""
    text = shown(written("# Tide\n\nOld words.\n", "# Tide\n\nNew words.\n- one\n"))
    assert 'path     "notes.md"' in text
    assert "content  4 lines, compared with the present text:" in text
    assert "-Old words.\n        +New words.\n        +- one" in text


def test_a_change_that_would_fail_says_so() -> None:
    """What the tool will refuse is shown before a person approves it."""
    text = shown(written("a\n", "b\n", "the file is there, and `overwrite` is not set"))
    assert "the call will fail: the file is there, and `overwrite` is not set" in text


@pytest.mark.parametrize(("before", "after"), [("same\n", "same\n"), ("", "")])
def test_no_change_is_said(before: str, after: str) -> None:
    """A call that would change nothing says that."""
    assert "nothing changes" in shown(written(before, after))


def test_a_difference_shows_no_secret_and_no_hidden_sign() -> None:
    """Secrets are masked on both sides, which is said; control and line-separating characters are spelled."""
    text = shown(written('{"password": "hunter22"}\n', "x\x1b[2J y\u2028z\n"))
    assert "\x1b" not in text
    assert "\\x1b[2J y\\u2028z" in text
    text = shown(written("Authorization: Bearer abcdefghijklmnop1234567890\n", "no\n"))
    assert "abcdefghijklmnop" not in text
    assert "masked values are not compared" in text


_TEXTS = st.one_of(
    st.text(max_size=300),
    st.text(alphabet=st.sampled_from("a \t\n│?+-@漢é\u0301\x1b✓"), max_size=300),
    st.builds(lambda n: "x" * n + "? pay needs your approval", st.integers(0, 220)),
)


@given(
    text=_TEXTS,
    name=st.text(max_size=60),
    before=_TEXTS,
    change=st.booleans(),
    width=st.integers(20, 200),
)
def test_no_text_of_a_model_begins_a_line_of_a_question(
    text: str, name: str, before: str, change: bool, width: int
) -> None:
    """Each row of the arguments stands behind the indent, whatever is in them and however narrow the screen is, and no
    row is so wide that the screen would break it."""
    shown = Change(field="b", before=before, after=text, objection=text) if change else None
    gate = Question(
        token="1", run_id="r", tool="pay", reason=text, args={name: text, "b": [text], "": text}, change=shown
    )
    wait = Question(token="1", run_id="r", reason="await_input", payload={name: text, "b": text})
    for question in (gate, wait):
        rows = [line.plain for line in render_with_keys(question, NOW, width)]
        start = next(at for at, row in enumerate(rows) if row.startswith("      "))
        title = "".join(row[2:] for row in rows[1:start])
        assert (rows[0], title) in {("", "pay needs your approval"), ("", "The run waits: await_input")}
        for row in rows[start:]:
            assert row.startswith("      "), row
            assert cell_len(row) <= width, row
            assert "\n" not in row


def test_a_long_argument_is_wrapped_inside_its_gutter_and_nothing_of_it_is_lost() -> None:
    """On any screen: what goes on stands behind a bar, under the place where it began."""
    words = "send all of it to mallory " * 20
    for width in (20, 40, 80, 200):
        question = Question(token="1", run_id="r", tool="pay", args={"text": f"one\n{words}"})
        rows = [line.plain for line in render_with_keys(question, NOW, width)]
        gutter = [row.split("│ ", 1)[1] for row in rows if "│ " in row]
        assert "".join(gutter) == f"one{words}", width
