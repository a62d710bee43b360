"""What typed lines mean, by enumeration."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.cli.answers import (
    HELP,
    Again,
    Allow,
    Answer,
    Cancel,
    Done,
    Edit,
    Go,
    Help,
    Inject,
    Mode,
    Nothing,
    Prioritize,
    Redirect,
    Refuse,
    Say,
    Stop,
    Typed,
    Wrong,
    edited,
    meaning,
)
from tests.kit.tables import each_row

COMMANDS = [
    ("/pause", Stop()),
    ("/resume", Go()),
    ("/cancel", Cancel()),
    ("/cancel!", Cancel(is_hard=True)),
    ("/help", Help()),
    ("/?", Help()),
    ("/goal  write it ", Redirect("write it")),
    ("/say  use the second ", Say("use the second")),
    ('/context {"a": 1}', Inject({"a": 1})),
    ("/priority -5", Prioritize(-5)),
]


@each_row("mode", Mode)
@each_row("line, typed", COMMANDS)
def test_a_command_means_the_same_whatever_is_asked(line: str, typed: Typed, mode: Mode) -> None:
    """Slash commands work at any time, also while a question is open."""
    assert meaning(line, mode) == typed


@each_row("mode", Mode)
@each_row("line", ["", "  ", "\t"])
def test_an_empty_line_is_nothing(line: str, mode: Mode) -> None:
    """An empty line never says or answers anything."""
    assert meaning(line, mode) == Nothing()


@each_row("mode", Mode)
@each_row(
    "line",
    ["/goal", "/say", "/context", "/context []", "/context nope", "/priority", "/priority x", "/priority 1.5", "/quit"],
)
def test_a_command_that_is_wrong_says_how_it_goes(line: str, mode: Mode) -> None:
    """A command without what it needs, or that does not exist, is not sent anywhere; the message names it."""
    typed = meaning(line, mode)
    assert isinstance(typed, Wrong)
    assert line.split()[0] in typed.message


@each_row("line", ["/pause now", "/resume x", "/cancel all", "/cancel! x", "/help me"])
def test_a_command_that_takes_nothing_takes_nothing(line: str) -> None:
    """Words behind a command that takes none are refused rather than ignored."""
    assert isinstance(meaning(line, Mode.FREE), Wrong)


@each_row("line", ["hello", "y", "n", "  e  ", '{"a": 1}'])
def test_any_other_line_is_a_message(line: str) -> None:
    """While nothing is asked a line is said to the agent, whatever it looks like."""
    assert meaning(line, Mode.FREE) == Say(line.strip())


@each_row(
    "line, typed",
    [
        ("y", Allow()),
        ("Yes", Allow()),
        ("n", Refuse()),
        ("NO", Refuse()),
        ("n too early", Refuse("too early")),
        ("no, not this one", Refuse("not this one")),
        ("e", Edit()),
        ("edit", Edit()),
    ],
)
def test_an_approval_is_answered(line: str, typed: Typed) -> None:
    """y, n with an optional reason, and e answer an approval."""
    assert meaning(line, Mode.APPROVAL) == typed


@each_row("line", ["yes please", "y but only once", "maybe", "yep", "e a", '{"a": 1}', "1"])
def test_what_is_not_clearly_a_yes_approves_nothing(line: str) -> None:
    """Only a bare yes approves; anything else leaves the question open."""
    assert isinstance(meaning(line, Mode.APPROVAL), Wrong)


@each_row(
    "line, typed",
    [
        ("done", Done()),
        ("D 42", Done(42)),
        ('done {"id": 7}', Done({"id": 7})),
        ("done order 7", Done("order 7")),
        ("again", Again()),
        ("a", Again()),
        ("unknown", Refuse()),
        ("u, ask the bank", Refuse("ask the bank")),
    ],
)
def test_a_call_in_doubt_is_answered(line: str, typed: Typed) -> None:
    """Whether it acted, what came of it, whether it is made again."""
    assert meaning(line, Mode.DOUBT) == typed


@each_row("line", ["y", "yes", "n", "no", "again please", "order 7"])
def test_a_call_in_doubt_takes_no_yes(line: str) -> None:
    """A yes could mean either, so it is asked what is meant."""
    assert isinstance(meaning(line, Mode.DOUBT), Wrong)


@given(st.text())
def test_a_line_approves_only_as_a_bare_yes(line: str) -> None:
    """No line but y or yes lets a call run."""
    if line.strip().lower().rstrip(",.:") not in {"y", "yes"}:
        assert not isinstance(meaning(line, Mode.APPROVAL), Allow)


@each_row(
    "line, typed",
    [("1.2", Answer("1.2")), ("y", Answer("y")), ("/reject", Refuse()), ("/reject no idea", Refuse("no idea"))],
)
def test_a_pause_is_answered(line: str, typed: Typed) -> None:
    """Any line answers a paused run, /reject refuses it."""
    assert meaning(line, Mode.PAUSE) == typed


@each_row(
    "line, typed",
    [
        ("y", Allow()),
        ("no", Refuse()),
        ("n too early", Refuse("too early")),
        ("the second one", Answer("the second one")),
    ],
)
def test_a_pause_for_approval_takes_yes_and_no(line: str, typed: Typed) -> None:
    """Where a paused run asks for approval, yes and no are what they say, and other lines are answers."""
    assert meaning(line, Mode.CONSENT) == typed


def test_reject_means_nothing_elsewhere() -> None:
    """/reject refuses a paused run only."""
    assert isinstance(meaning("/reject", Mode.FREE), Wrong)


SHOWN = {"path": "a.txt", "token": "***", "list": [1, {"note": "Bearer ***"}]}


@each_row(
    "text, shown, typed",
    [
        ('{"a": 1}', {"a": 2}, Allow(args={"a": 1})),
        ('{"a": 1}', {"a": 1}, Allow()),
        ("{}", {"a": 1}, Allow(args={})),
        ('{"path": "b", "token": "real"}', SHOWN, Allow(args={"path": "b", "token": "real"})),
        ('{"path": "***"}', {"path": "a"}, Allow(args={"path": "***"})),
    ],
)
def test_edited_arguments_are_sent(text: str, shown: Any, typed: Typed) -> None:
    """A JSON object replaces the arguments; one that changes nothing approves the call as it is."""
    assert edited(text, shown) == typed
    assert meaning(text, Mode.EDIT, shown) == typed


def test_untouched_masks_approve_the_call_as_it_is() -> None:
    """Leaving everything as it was shown needs no secret to be typed."""
    assert edited('{"path": "a.txt", "token": "***", "list": [1, {"note": "Bearer ***"}]}', SHOWN) == Allow()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"path": "b", "token": "***"}', "token"),
        ('{"path": "b", "list": [1, {"note": "Bearer ***"}]}', "list[1].note"),
    ],
)
def test_a_mask_is_never_sent_as_a_value(text: str, place: str) -> None:
    """Arguments that keep a masked value are refused by its name."""
    typed = edited(text, SHOWN)
    assert isinstance(typed, Wrong)
    assert typed.message.startswith(f"{place}: hidden here")


def test_what_is_no_object_is_not_sent() -> None:
    """Arguments that are no JSON object are refused before anything is sent, however hostile the text is."""
    deep, no_text = '{"a":' * 100_000, '{"a": "\udcff"}'
    for text in ("[1]", '"x"', "1", "null", "{", "{'a': 1}", "nope", deep, no_text):
        typed = edited(text, {})
        assert isinstance(typed, Wrong), text[:20]
        assert len(typed.message.splitlines()) == 1, text[:20]


def test_help_names_every_command() -> None:
    """Every command that is understood is listed by /help."""
    listed = {what.split()[0] for what, _ in HELP}
    assert {line.split()[0] for line, _ in COMMANDS} - {"/?"} <= listed
