"""A run in few lines: facts in, rows out."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest

from harborage import events
from harborage.cli.block import Folds, render_block
from harborage.cli.folding import fold, layout
from harborage.cli.journal_view import RecordedEntry, View, new_view
from harborage.cli.rows import Mark, Row, brief, brief_args
from harborage.events import EventType
from harborage.events.event import Triple
from harborage.planner import AwaitTask, CallParallel, CallTool, Decision, Finish, FinishReason
from harborage.runtime.durable.journal import Begun, Done, Ended, Entry, Joined, Started, raw
from harborage.runtime.loop.outcome import OutcomeStatus, ToolOutcome, failed
from harborage.runtime.loop.seam import RunRequest
from harborage.runtime.loop.state import Planned
from tests.cli.test_view import NOW, WHO, at, event, record

CHILD = "01M8GE0MB6B2AM4YMWNJAM0E9D"


@pytest.fixture
def view() -> View:
    """The view of a run that began at NOW."""
    return new_view("root", NOW, is_folded=True)


@pytest.fixture
def folds() -> Folds:
    """What ada sees of it."""
    return Folds(user="ada")


def shown(folds: Folds, view: View, *facts: Any, width: int = 80) -> list[str]:
    """What stays on the screen of these facts."""
    return [line.plain.rstrip() for fact in facts for line in layout(fold(folds, view, fact), width)]


def block(folds: Folds, seconds: float = 0, width: int = 80, most: int = 20) -> list[str]:
    """The block of what goes on."""
    return [line.plain.rstrip() for line in render_block(folds, at(seconds), width, most)]


def planned(decision: Decision, preamble: str = "", run: str = "root") -> RecordedEntry:
    """A decision."""
    return record(
        Done(at=NOW, position="1", name="plan", result=raw(Planned(decision=decision, preamble=preamble))), run
    )


def begun(tool: str, args: str = "{}", position: str = "2", seconds: float = 0, run: str = "root") -> RecordedEntry:
    """The intent to call."""
    payload = raw(CallTool(tool, args.encode()))
    return record(Begun(at=at(seconds), position=position, name=f"tool.{tool}", key="k", payload=payload), run)


def done(tool: str, outcome: Any, position: str = "2", seconds: float = 1, run: str = "root") -> RecordedEntry:
    """The outcome of a call."""
    result = outcome if isinstance(outcome, ToolOutcome) else ToolOutcome(OutcomeStatus.DONE, outcome)
    return record(Done(at=at(seconds), position=position, name=f"tool.{tool}", result=raw(result)), run)


def child(goal: str = "compare", agent: str = "shop.py#m/researcher") -> list[RecordedEntry]:
    """A child run that has begun, and calls a tool."""
    request = RunRequest(who=WHO, goal=goal, agent=agent)
    return [
        RecordedEntry(CHILD, _read(Started(at=at(0), position="", request=raw(request)))),
        begun("search", '{"q":"tea"}', run=CHILD),
    ]


def _read(entry: Entry) -> Entry:
    return record(entry).entry


def test_a_call_is_a_row_when_it_has_ended(folds: Folds, view: View) -> None:
    """While it goes on it stands in the block; then it is written once, with its result and how long it took."""
    assert shown(folds, view, planned(CallTool("look", b"{}")), begun("look", '{"item":"tea"}')) == []
    assert block(folds, 3) == ['◒ 1  look(item="tea")' + "3 s".rjust(80 - 21)]
    assert shown(folds, view, done("look", "3 boxes", seconds=4.4)) == [
        '✓ 1  look(item="tea")  3 boxes' + "4.4 s".rjust(80 - 30)
    ]
    assert block(folds) == []


def test_parallel_calls_are_one_row(folds: Folds, view: View) -> None:
    """They are counted by tool; one that failed has a row of its own below, and all have one when it is unfolded."""
    facts = [
        planned(CallParallel((CallTool("look"), CallTool("look"), CallTool("ask")))),
        *(begun("look", f'{{"n":{n}}}', f"2.{n}.1") for n in range(2)),
        begun("ask", "{}", "2.2.1"),
        done("look", "a", "2.0.1"),
        done("ask", failed("gave up after 4 attempts (transient): RuntimeError: HTTP 503"), "2.2.1"),
    ]
    assert shown(folds, view, *facts) == []
    assert [row.strip().split("  ")[0] for row in block(folds)] == ["◐ 1", "✓ look(n=0)", "◐ look(n=1)", "✗ ask()"]
    ended = shown(folds, view, done("look", "b", "2.1.1"), record(Joined(at=at(2), position="2", outcomes=[])))
    assert [re.sub(r" {2,}[\d.]+ s$", "", row) for row in ended] == [
        "✓ 1  3 calls, 1 failed: look ×2, ask",
        "     ✗ ask()  HTTP 503, 4 attempts",
    ]


def test_unfolded_every_call_has_a_row(folds: Folds, view: View) -> None:
    """Ctrl-O shows what is folded otherwise."""
    folds.is_unfolded = True
    calls = [begun("look", "{}", f"2.{n}.1") for n in range(2)]
    ends = [done("look", "a", f"2.{n}.1") for n in range(2)]
    joined = record(Joined(at=at(2), position="2", outcomes=[]))
    rows = shown(folds, view, planned(CallParallel((CallTool("look"), CallTool("look")))), *calls, *ends, joined)
    assert [row.split("  ")[0].strip() or row.split()[0] for row in rows] == ["✓ 1", "✓", "✓"]
    assert len(rows) == 3


def test_a_child_is_one_row(folds: Folds, view: View) -> None:
    """Its calls stand below it while it works; at its end its answer is beside its name and handle."""
    assert shown(folds, view, *child()) == []
    assert [row.strip().split("  ")[0] for row in block(folds)] == ["◐", '◐ search(q="tea")']
    assert "researcher AM0E9D: compare" in block(folds)[0]
    finish = raw(Finish(FinishReason.GOAL, "Lumen"))
    end = RecordedEntry(CHILD, _read(Ended(at=at(26.6), position="", finish=finish)))
    (row,) = shown(folds, view, done("search", "6 pages", run=CHILD), end)
    assert row.startswith("✓    researcher AM0E9D: Lumen")
    assert row.endswith("26.6 s")
    assert block(folds) == []


def test_a_child_that_makes_many_calls_stays_small(folds: Folds, view: View) -> None:
    """The last calls are shown; those before are counted, and forgotten in time."""
    shown(folds, view, *child())
    for number in range(200):
        position = f"{number + 10}"
        shown(folds, view, begun("search", "{}", position, run=CHILD), done("search", "x", position, run=CHILD))
    rows = block(folds)
    assert len(rows) == 7
    assert "196 earlier calls: search" in rows[1]
    assert len(folds.children[CHILD].calls) == 50
    assert block(folds, most=3)[-1].strip() == "and 5 more"


def test_a_run_that_waits_for_a_child_says_so(folds: Folds, view: View) -> None:
    """The step stands in the block until the run goes on."""
    shown(folds, view, *child(), planned(AwaitTask(CHILD)))
    assert "┄ 1  waits for researcher" in block(folds)[0]
    assert shown(folds, view, planned(Finish(FinishReason.GOAL, "x"))) == ["✓ 1  waited for researcher"]


def test_the_remark_of_a_step_is_written_as_it_is(folds: Folds, view: View) -> None:
    """What the model says before a call is prose."""
    assert shown(folds, view, planned(CallTool("look"), "I will look,\nthen order.")) == ["I will look,\nthen order."]


@pytest.mark.parametrize("is_late", [False, True], ids=["in order", "told after the call began"])
def test_an_approved_call_says_by_whom_and_what_was_changed(folds: Folds, view: View, is_late: bool) -> None:
    """The line below the call names the approver, how long it waited, and what was changed; no secret is shown. The
    record and the events come by two ways, so that the approval may be told after the call."""
    asked = events.ToolApprovalRequestedPayload(
        tool="order", pause_token="p", args_summary={"args": {"count": 20, "token": "***"}, "tool": "order"}
    )
    by = Triple("t", "ben", "s")
    approved = event(
        EventType.TOOL_APPROVED, events.ToolApprovedPayload(tool="order", pause_token="p", by=by), seconds=8040
    )
    began = begun("order", '{"count":12,"token":"s3cret"}', seconds=8040)
    rows = shown(
        folds,
        view,
        planned(CallTool("order")),
        event(EventType.TOOL_APPROVAL_REQUESTED, asked),
        *((began, approved) if is_late else (approved, began)),
        done("order", "4411", seconds=8041),
    )
    assert rows[0].startswith('✓ 1  order(count=12, token="***")  4411')
    assert rows[1] == "     approved by ben · waited 2 h 14 m · 1 change: count 20 → 12"


def test_a_rejected_call_says_by_whom(folds: Folds, view: View) -> None:
    """Who looks is `you`."""
    view.main.step = 4
    payload = events.ToolRejectedPayload(
        tool="refund", pause_token="p", reason="the photo is missing", by=Triple("t", "ada", "s")
    )
    assert shown(folds, view, event(EventType.TOOL_REJECTED, payload)) == [
        "⊘ 4  refund rejected by you: the photo is missing"
    ]


def test_a_message_stays_in_view_until_it_is_read(folds: Folds, view: View) -> None:
    """Then it is written with the step before which it was applied."""
    folds.sent.append("only if it is free")
    assert block(folds) == ["  › only if it is free  steers: before the next step"]
    payload = events.ControlLifecyclePayload(type="USER_MESSAGE", outcome="applied", step=2)
    assert shown(folds, view, event(EventType.CONTROL_APPLIED, payload)) == [
        "› only if it is free  applied before step 2"
    ]
    assert folds.sent == []


def test_progress_is_shown_in_its_call(folds: Folds, view: View) -> None:
    """How far a tool is, in its own words or numbers, stands where its result will be."""
    shown(folds, view, begun("fetch"))
    for payload, said in (
        (events.ToolProgressPayload(identity=WHO, tool_name="fetch", message="page 2 of 3"), "page 2 of 3"),
        (events.ToolProgressPayload(identity=WHO, tool_name="fetch", done=2, total=8), "2 of 8"),
    ):
        shown(folds, view, event(EventType.TOOL_PROGRESS, payload))
        assert said in block(folds)[0]


@pytest.mark.parametrize("width", [30, 60, 80, 120, 200])
def test_a_row_is_never_wider_than_its_terminal(width: int) -> None:
    """The result is cut first, then the arguments; name, glyph and time never."""
    many = product(("", 'path="a"', 'path="' + "long/" * 60 + '"'), ("", "6 pages", "word " * 60), Mark, (False, True))
    for args, result, mark, is_below in many:
        row = Row(mark=mark, tag="12", name="read", args=args, result=result, took="4.4 s", is_below=is_below)
        text = row.text(width).plain
        assert len(text) <= width
        assert "read" in text
        assert text.endswith("4.4 s")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, ""),
        ("one", "one"),
        ("first\nsecond", "first +1 line"),
        ("first\n" * 12, "first +11 lines"),
        ({"a": [1, 2]}, '{"a":[1,2]}'),
        ("x" * 60, "x" * 39 + "…"),
        ({"size_bytes": 2000, "truncated": True, "artifact_ref": "a_1"}, "2.0 KB, stored as artifact a_1"),
    ],
)
def test_results_are_brief(value: Any, said: str) -> None:
    """At most 40 columns; a text of several lines by its first."""
    assert brief(value) == said


def test_arguments_are_on_one_line_and_masked() -> None:
    """Each by its name; control characters are spelled out."""
    assert brief_args({"path": "a\nb", "api_key": "s3cret"}) == 'path="a\\nb", api_key="***"'
