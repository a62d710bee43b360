"""`harborage pending`: the questions at four widths, their order, JSON and exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from harborage.cli.pending_list import list_questions, question_json, render_questions, render_rest
from harborage.cli.terminal import Look, columns
from tests.cli.test_run_list import NOW, fleet


def test_questions_are_listed_by_their_deadlines() -> None:
    """Glyph, call, run, user, and what happens when; below, how to answer the first."""
    waits = list_questions(*fleet())
    assert render_questions(waits, NOW, Look(80)) == [
        "◆ edit_file     release K2MV8C   ada   38 m left, then rejected",
        "◆ refund        support 9D3WHK   ada   1 h 10 m left, then rejected",
        "▲ place_order   restock Q7TX2M   ada   3 h 29 m left, then left unknown",
        "◆ approval      triage 7C0PXE    ada   21 h left, then rejected",
    ]
    assert render_rest(waits) == "4 items need a person · harborage approve K2MV8C\n"
    assert render_rest(waits[:1]).startswith("1 item needs")
    assert render_rest([]) == "nothing needs you\n"


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """Where a line has no room for the deadline, that is on the next one."""
    assert max(map(columns, render_questions(list_questions(*fleet()), NOW, Look(width)))) <= width


def test_json_has_the_whole_token() -> None:
    """With it an answer is sent from a script; keys without a value are absent."""
    shown = json.loads(question_json(list_questions(*fleet())[0]))
    assert shown["token"] == "tok-01M84NR7QV68ZHM4700PK2MV8C"
    assert (shown["type"], shown["kind"], shown["tool"]) == ("pending", "approval", "edit_file")
    assert shown["deadline"] == "2026-11-22T15:09:00.000000000Z"
    assert None not in shown.values()


def test_a_waiting_run_is_listed_and_answered_by_its_handle(
    at_terminal: Callable[..., Any], in_pipe: Callable[..., Any]
) -> None:
    """`--check` exits with 5 while it waits, and with 0 once it is answered."""
    screen = at_terminal("run", "agent.py", "publish x")
    screen.expect("y yes")
    screen.type("/leave\r")
    screen.end()
    listed = in_pipe("pending", "--check")
    assert listed.end() == 5
    handle = listed.out.split("   ")[1].split()[1]
    assert listed.err == f"1 item needs a person · harborage approve {handle}\n"
    answering = at_terminal("approve", handle.lower())
    answering.expect("send this answer (y/N)?")
    answering.type("y\r")
    assert answering.end() == 0
    after = in_pipe("pending", "--check")
    assert (after.end(), after.out, after.err) == (0, "", "nothing needs you\n")
