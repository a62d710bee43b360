"""What typed lines mean, by enumeration."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.cli.answers import (
    HELP,
    Acted,
    Answer,
    Approve,
    Cancel,
    Edit,
    Empty,
    Help,
    Inject,
    Invalid,
    Message,
    Mode,
    ParsedLine,
    Pause,
    Prioritize,
    Redirect,
    Reject,
    Resume,
    Retry,
    parse_arguments,
    parse_line,
)
from tests.kit.tables import each_row

COMMANDS = [
    ("/pause", Pause()),
    ("/resume", Resume()),
    ("/cancel", Cancel()),
    ("/cancel!", Cancel(is_hard=True)),
    ("/help", Help()),
    ("/?", Help()),
    ("/goal  write it ", Redirect("write it")),
    ("/say  use the second ", Message("use the second")),
    ('/context {"a": 1}', Inject({"a": 1})),
    ("/priority -5", Prioritize(-5)),
]


@each_row("mode", Mode)
@each_row("line, typed", COMMANDS)
def test_a_command_means_the_same_whatever_is_asked(line: str, typed: ParsedLine, mode: Mode) -> None:
    """Slash commands work at any time, also while a question is open."""
    assert parse_line(line, mode) == typed


@each_row("mode", Mode)
@each_row("line", ["", "  ", "\t"])
def test_an_empty_line_is_nothing(line: str, mode: Mode) -> None:
    """An empty line never says or answers anything."""
    assert parse_line(line, mode) == Empty()


@each_row("mode", Mode)
@each_row(
    "line",
    ["/goal", "/say", "/context", "/context []", "/context nope", "/priority", "/priority x", "/priority 1.5", "/quit"],
)
def test_a_command_that_is_wrong_says_how_it_goes(line: str, mode: Mode) -> None:
    """A command without what it needs, or that does not exist, is not sent anywhere; the message names it."""
    typed = parse_line(line, mode)
    assert isinstance(typed, Invalid)
    assert line.split()[0] in typed.message


@each_row("line", ["/pause now", "/resume x", "/cancel all", "/cancel! x", "/help me"])
def test_a_command_that_takes_nothing_takes_nothing(line: str) -> None:
    """Words behind a command that takes none are refused rather than ignored."""
    assert isinstance(parse_line(line, Mode.FREE), Invalid)


@each_row("line", ["hello", "y", "n", "  e  ", '{"a": 1}'])
def test_any_other_line_is_a_message(line: str) -> None:
    """While nothing is asked a line is said to the agent, whatever it looks like."""
    assert parse_line(line, Mode.FREE) == Message(line.strip())


@each_row(
    "line, typed",
    [
        ("y", Approve()),
        ("Yes", Approve()),
        ("n", Reject()),
        ("NO", Reject()),
        ("n too early", Reject("too early")),
        ("no, not this one", Reject("not this one")),
        ("e", Edit()),
        ("edit", Edit()),
        ("r", Approve(remember="run")),
        ("always", Approve(remember="always")),
    ],
)
def test_an_approval_is_answered(line: str, typed: ParsedLine) -> None:
    """y, n with an optional reason, e, r and always answer an approval."""
    assert parse_line(line, Mode.APPROVAL) == typed


@each_row("line", ["yes please", "y but only once", "maybe", "yep", "e a", "r no", "always this", '{"a": 1}', "1"])
def test_what_is_not_clearly_a_yes_approves_nothing(line: str) -> None:
    """Only a bare yes approves; anything else leaves the question open."""
    assert isinstance(parse_line(line, Mode.APPROVAL), Invalid)


@each_row(
    "line, typed",
    [
        ("done", Acted()),
        ("D 42", Acted(42)),
        ('done {"id": 7}', Acted({"id": 7})),
        ("done order 7", Acted("order 7")),
        ("again", Retry()),
        ("a", Retry()),
        ("unknown", Reject()),
        ("u, ask the bank", Reject("ask the bank")),
    ],
)
def test_a_call_in_doubt_is_answered(line: str, typed: ParsedLine) -> None:
    """Whether it acted, what came of it, whether it is made again."""
    assert parse_line(line, Mode.INTERRUPTED) == typed


@each_row("line", ["y", "yes", "n", "no", "again please", "order 7"])
def test_a_call_in_doubt_takes_no_yes(line: str) -> None:
    """A yes could mean either, so it is asked what is meant."""
    assert isinstance(parse_line(line, Mode.INTERRUPTED), Invalid)


@given(st.text())
def test_a_line_approves_only_as_a_bare_yes(line: str) -> None:
    """No line but y or yes, and r or always, which also allow later calls, lets a call run."""
    if line.strip().lower().rstrip(",.:") not in {"y", "yes", "r", "always"}:
        assert not isinstance(parse_line(line, Mode.APPROVAL), Approve)


@each_row(
    "line, typed",
    [("1.2", Answer("1.2")), ("y", Answer("y")), ("/reject", Reject()), ("/reject no idea", Reject("no idea"))],
)
def test_a_pause_is_answered(line: str, typed: ParsedLine) -> None:
    """Any line answers a paused run, /reject refuses it."""
    assert parse_line(line, Mode.PAUSE) == typed


@each_row(
    "line, typed",
    [
        ("y", Approve()),
        ("no", Reject()),
        ("n too early", Reject("too early")),
        ("the second one", Answer("the second one")),
    ],
)
def test_a_pause_for_approval_takes_yes_and_no(line: str, typed: ParsedLine) -> None:
    """Where a paused run asks for approval, yes and no are what they say, and other lines are answers."""
    assert parse_line(line, Mode.CONFIRM) == typed


def test_reject_means_nothing_elsewhere() -> None:
    """/reject refuses a paused run only."""
    assert isinstance(parse_line("/reject", Mode.FREE), Invalid)


SHOWN = {"path": "a.txt", "token": "***", "list": [1, {"note": "Bearer ***"}]}


@each_row(
    "text, shown, typed",
    [
        ('{"a": 1}', {"a": 2}, Approve(args={"a": 1})),
        ('{"a": 1}', {"a": 1}, Approve()),
        ("{}", {"a": 1}, Approve(args={})),
        ('{"path": "b", "token": "real"}', SHOWN, Approve(args={"path": "b", "token": "real"})),
        ('{"path": "***"}', {"path": "a"}, Approve(args={"path": "***"})),
    ],
)
def test_edited_arguments_are_sent(text: str, shown: Any, typed: ParsedLine) -> None:
    """A JSON object replaces the arguments; one that changes nothing approves the call as it is."""
    assert parse_arguments(text, shown) == typed
    assert parse_line(text, Mode.EDIT, shown) == typed


def test_untouched_masks_approve_the_call_as_it_is() -> None:
    """Leaving everything as it was shown needs no secret to be typed."""
    assert parse_arguments('{"path": "a.txt", "token": "***", "list": [1, {"note": "Bearer ***"}]}', SHOWN) == Approve()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"path": "b", "token": "***"}', "token"),
        ('{"path": "b", "list": [1, {"note": "Bearer ***"}]}', "list[1].note"),
    ],
)
def test_a_mask_is_never_sent_as_a_value(text: str, place: str) -> None:
    """Arguments that keep a masked value are refused by its name."""
    typed = parse_arguments(text, SHOWN)
    assert isinstance(typed, Invalid)
    assert typed.message.startswith(f"masked: {place}; ")


def test_what_is_no_object_is_not_sent() -> None:
    """Arguments that are no JSON object are refused before anything is sent, however hostile the text is."""
    deep, no_text = '{"a":' * 100_000, '{"a": "\udcff"}'
    for text in ("[1]", '"x"', "1", "null", "{", "{'a': 1}", "nope", deep, no_text):
        typed = parse_arguments(text, {})
        assert isinstance(typed, Invalid), text[:20]
        assert len(typed.message.splitlines()) == 1, text[:20]


def test_help_names_every_command() -> None:
    """Every command that is understood is listed by /help."""
    listed = {what.split()[0] for what, _ in HELP}
    assert {line.split()[0] for line, _ in COMMANDS} - {"/?"} <= listed
