"""The list of kept runs at four widths and in a pipe, its order and its JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from harborage.cli.run_list import first_trees, list_runs, render_runs, run_json
from harborage.cli.terminal import Look, columns
from harborage.identity import Identity, Quadruple
from harborage.planner import PauseReason
from harborage.runtime.effects.interrupted import QUESTION
from harborage.runtime.loop.pauses import Pause, PauseState
from harborage.store import RunRow, Status
from harborage.store.times import micros

NOW = datetime(2026, 11, 22, 14, 31, tzinfo=UTC)
ADA = Identity("local", "ada", "s-7")


def row(number: int, end: str, agent: str, ago_s: float, took_s: float, goal: str, **more: Any) -> RunRow:
    """A run whose id ends so, that was started `ago_s` seconds before now."""
    started = NOW - timedelta(seconds=ago_s)
    facts: dict[str, Any] = {
        "number": number,
        "run_id": f"01M84NR7QV68ZHM4700P{end}",
        "who": ADA,
        "agent": agent,
        "about": goal,
        "position": 9,
        "created_at": micros(started),
        "updated_at": micros(started + timedelta(seconds=took_s)),
        **more,
    }
    return RunRow(**facts)


def waiting(run: RunRow, left_s: float, **payload: Any) -> Pause:
    """The open pause of a run, with so much time left."""
    return Pause(
        token=f"tok-{run.run_id}",
        reason=PauseReason.APPROVAL_REQUIRED,
        state=PauseState.PAUSED,
        identity=Quadruple(run.who.tenant_id, run.who.user_id, run.who.session_id, run.run_id),
        paused_at=NOW,
        payload=payload,
        deadline=NOW + timedelta(seconds=left_s),
    )


def fleet() -> tuple[list[RunRow], list[Pause]]:
    """Seven runs: four that wait for a person, one of them with a child, one that goes on and one that failed."""
    parked = {"status": Status.PAUSED}
    restock = row(1, "Q7TX2M", "restock.py", 8_300, 43.1, "Restock whatever runs out before Friday", cost=150_000)
    restock = RunRow(**{**_fields(restock), **parked, "tool_count": 10})
    child = row(
        2,
        "4MZK8R",
        "researcher",
        8_200,
        26.6,
        "q",
        parent=restock.run_id,
        description="Compare carriers for 40 kg to Lyon",
        status=Status.COMPLETE,
        cost=94_000,
    )
    release = row(3, "K2MV8C", "release.py", 3_060, 38.2, "Release 1.4", cost=410_000, **parked)
    support = row(4, "9D3WHK", "agents/support.py", 360, 8.2, "Order 7 arrived broken", cost=20_000, **parked)
    triage = row(5, "7C0PXE", "desk:triage", 10_900, 4.4, "Sort the mail", cost=8_000, **parked)
    scout = row(
        6, "3HN8QA", "scout", 3_700, 2.0, "Scout", status=Status.FAILED, reason="LLMError: the provider refused the key"
    )
    digest = row(7, "8ZP4VN", "digest", 14, 9, "Sum up this week's mail", status=Status.RUNNING, owner="w", cost=40_000)
    pauses = [
        waiting(restock, 12_540, tool="place_order", question=QUESTION, args_summary={}),
        waiting(release, 2_280, tool="edit_file", fingerprint="f"),
        waiting(support, 4_200, tool="refund", fingerprint="f"),
        waiting(triage, 75_600, question="Which of the two?"),
    ]
    return [restock, child, release, support, triage, scout, digest], pauses


def _fields(one: RunRow) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__struct_fields__}


def drawn(look: Look) -> list[str]:
    rows, pauses = fleet()
    return render_runs(list_runs(rows, pauses), NOW, look)


def test_the_table_fits_eighty_columns() -> None:
    """What waits for a person comes first, by the nearest deadline; a child is below its parent; texts are cut last."""
    assert drawn(Look(80)) == [
        "RUN     AGENT         STATUS       AGE    TIME   COST  WHAT",
        "K2MV8C  release       ◆ waiting   51 m  38.2 s  $0.41  approve edit_file",
        "9D3WHK  support       ◆ waiting    6 m   8.2 s  $0.02  approve refund",
        "Q7TX2M  restock       ▲ waiting    2 h  43.1 s  $0.15  outcome of place_order",
        "4MZK8R  └ researcher  ✓ complete   2 h  26.6 s  $0.09  Compare carriers for 40…",
        "7C0PXE  triage        ◆ waiting    3 h   4.4 s  $.008  an answer",
        "8ZP4VN  digest        ◐ running   14 s  14.0 s  $0.04  Sum up this week's mail",
        "3HN8QA  scout         ✗ failed     1 h   2.0 s         the provider refused the…",
    ]


def test_a_wide_terminal_has_more_facts() -> None:
    """Session, user, calls, and the goal beside what a run waits for."""
    lines = drawn(Look(120))
    assert lines[0].split() == ["RUN", "AGENT", "STATUS", "SESSION", "USER", "CALLS", "AGE", "TIME", "COST", "WHAT"]
    assert lines[3] == (
        "Q7TX2M  restock       ▲ waiting   s-7      ada      10   2 h  43.1 s  $0.15  "
        "outcome of place_order: Restock whatever…"
    )
    assert drawn(Look(200))[3].endswith("outcome of place_order: Restock whatever runs out before Friday")


def test_a_narrow_terminal_gets_two_lines_a_run() -> None:
    """Glyph, agent, handle, status and sums are never cut; what it waits for and its goal are below."""
    lines = drawn(Look(60))
    assert lines[4:8] == [
        "▲ restock Q7TX2M  waiting, 2 h                 43.1 s  $0.15",
        "    outcome of place_order: Restock whatever runs out…",
        "  ✓ researcher 4MZK8R  complete, 2 h           26.6 s  $0.09",
        "      Compare carriers for 40 kg to Lyon",
    ]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("is_ascii", [False, True])
def test_no_line_is_wider_than_the_terminal(width: int, is_ascii: bool) -> None:
    """At every width, also with the longer signs of ASCII; goals of wide characters count two columns each."""
    rows = [row(9, "AAAAAA", "agent", 60, 1, "港" * 90)]
    lines = [*drawn(Look(width, is_ascii=is_ascii)), *render_runs(list_runs(rows, ()), NOW, Look(width))]
    assert max(map(columns, lines)) <= width
    assert not is_ascii or all(line.isascii() for line in drawn(Look(width, is_ascii=True)))


def test_a_pipe_gets_whole_texts_without_colours() -> None:
    """Nothing is cut for a width that is not there; a terminal gets the same with colours on the glyphs."""
    lines = drawn(Look())
    assert lines[3].endswith("  outcome of place_order: Restock whatever runs out before Friday")
    coloured = drawn(Look(80, has_colour=True))
    assert "\x1b[35m▲\x1b[0m\x1b[1m waiting\x1b[0m" in coloured[3]
    assert not any("\x1b" in line for line in lines)


def test_the_limit_counts_runs_without_their_children() -> None:
    """A child stays with its parent."""
    listed = list_runs(*fleet())
    assert [one.handle for one in first_trees(listed, 3)] == ["K2MV8C", "9D3WHK", "Q7TX2M", "4MZK8R"]
    assert first_trees(listed, 9) == listed


def test_a_failure_says_its_step_and_no_class() -> None:
    """Steps count from 1, as in every other place."""
    failed = row(
        1, "AAAAAA", "a", 5, 1, "g", status=Status.FAILED, reason="PlannerStepError: steering: planner step 2: x"
    )
    assert list_runs([failed], ())[0].waits_for == "step 3: x"


def test_json_has_one_form_and_no_empty_keys() -> None:
    """Keys in snake case, times in UTC with nine digits, durations in whole milliseconds."""
    shown = json.loads(run_json(list_runs(*fleet())[2], NOW))
    assert shown == {
        "type": "run",
        "run_id": "01M84NR7QV68ZHM4700PQ7TX2M",
        "handle": "Q7TX2M",
        "agent": "restock.py",
        "tenant": "local",
        "user": "ada",
        "session": "s-7",
        "status": "waiting",
        "needs": "outcome of place_order",
        "goal": "Restock whatever runs out before Friday",
        "started_at": "2026-11-22T12:12:40.000000000Z",
        "updated_at": "2026-11-22T12:13:23.100000000Z",
        "elapsed_ms": 43100,
        "entries": 9,
        "calls": 10,
        "usd": 0.15,
    }
