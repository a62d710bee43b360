"""Exit codes, answers and the last line for machines. The words for the status of runs and for pending work."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from harborage.app.doctor import Finding
from harborage.cli.status import (
    EXIT_CODES,
    Ending,
    agent_of,
    answer_of,
    describe_status,
    ending_of,
    failed,
    is_blocked,
    needs_person,
    pending_json,
    render_ended,
    render_findings,
    render_pending,
    result_line,
    status_of,
)
from harborage.identity import Identity, Quadruple
from harborage.llm import AuthenticationFailedError
from harborage.planner import Finish, FinishReason
from harborage.runtime.durable.engine import RunFailedError
from harborage.runtime.durable.orphans import EndedItem
from harborage.runtime.durable.pending import Party, PendingItem, PendingKind
from harborage.runtime.effects.planning import PlannerStepError
from harborage.runtime.loop.errors import MaxStepsExceededError
from harborage.runtime.loop.limits import LimitName
from harborage.store import RunRow, Status
from harborage.store.times import micros
from tests.kit.tables import each_row


@each_row(
    "reason, code",
    [
        (FinishReason.GOAL, 0),
        (FinishReason.NO_PATH, 3),
        (FinishReason.CONSTRAINTS_CONFLICT, 3),
        (FinishReason.DEADLINE_EXCEEDED, 4),
        (FinishReason.CANCELLED, 130),
    ],
)
def test_a_reason_is_a_code(reason: FinishReason, code: int) -> None:
    """Only the goal is success; each other way to end has its code."""
    ending = ending_of(Finish(reason))
    assert (ending.code, ending.reason) == (code, str(reason))
    assert ending.why
    assert code in EXIT_CODES


def test_a_limit_that_ended_a_run_is_named_and_has_the_code_of_what_ran_out() -> None:
    """Of steps, calls, tokens and cost as of time; a planner's own conflict is no limit."""
    for limit in LimitName:
        text = f"the run's limit of 1 {limit} is reached"
        metadata = {"steering_reason": "limit", "limit": str(limit), "detail": text}
        ending = ending_of(Finish(FinishReason.CONSTRAINTS_CONFLICT, metadata=metadata))
        assert (ending.code, ending.why) == (4, text), limit
    assert ending_of(Finish(FinishReason.CONSTRAINTS_CONFLICT, metadata={"limit": "steps"})).code == 3
    metadata = {"max_steps_exceeded": True, "max_steps": 12}  # by a planner with a limit of its own
    ending = ending_of(Finish(FinishReason.NO_PATH, "so far so good", metadata=metadata))
    assert (ending.code, ending.why, ending.answer) == (4, "the limit of 12 steps is reached", "so far so good")


def test_every_reason_has_a_code() -> None:
    """No finish reason is left without one."""
    assert {ending_of(Finish(reason)).code for reason in FinishReason} <= EXIT_CODES.keys()


@each_row(
    "cause, why",
    [
        ("control_reject", "its question was rejected"),
        ("pause_timeout", "its question was not answered in time"),
        ("hard_cancel", "cancelled, now"),
        ("cancel_while_paused", "cancelled while it was paused"),
        ("something new", "cancelled"),
        (["odd"], "cancelled"),
        (None, "cancelled"),
    ],
)
def test_the_reason_of_a_runs_end_is_shown(cause: Any, why: str) -> None:
    """Where steering ended a run, that is said instead of the bare reason."""
    assert ending_of(Finish(FinishReason.CANCELLED, metadata={"steering_reason": cause})).why == why


def failure(error: Exception) -> RunFailedError:
    """A run's failure, the way an engine raises it."""
    raised = RunFailedError("run-1", type(error).__name__, str(error))
    raised.__cause__ = error
    return raised


def test_a_failed_run_says_why() -> None:
    """A run that failed is code 1 with the text of its error."""
    ending = ending_of(failure(ValueError("no such thing")))
    assert (ending.code, ending.error, ending.why) == (1, "ValueError", "no such thing")
    assert ending.message == "the run failed: no such thing"
    assert ending.is_unexplained


def test_a_model_that_refuses_says_why_itself() -> None:
    """What a provider refused is shown in its own words, which name the fix, and needs no traceback."""
    error = PlannerStepError(0, "openai: status 401: no; check the key in OPENAI_API_KEY")
    error.__cause__ = AuthenticationFailedError("openai: status 401: no; check the key in OPENAI_API_KEY")
    ending = ending_of(failure(error))
    assert (ending.code, ending.error) == (1, "AuthenticationFailedError")
    assert ending.message == "the run failed: openai: status 401: no; check the key in OPENAI_API_KEY"
    assert not ending.is_unexplained


def test_a_failure_without_a_cause_still_says_something() -> None:
    """After a restart the error itself is gone; its recorded text is shown."""
    assert "boom" in ending_of(RunFailedError("run-1", "ValueError", "boom")).message


def test_running_out_of_steps_is_no_failure() -> None:
    """A run that used up its steps is code 4."""
    ending = ending_of(failure(MaxStepsExceededError("9 steps without a finish", max_steps=9)))
    assert (ending.code, ending.message) == (4, "9 steps without a finish")


@each_row(
    "payload, answer",
    [
        (None, ""),
        ("text", "text"),
        ({"answer": "text", "more": 1}, "text"),
        ({"answer": 1}, '{\n  "answer": 1\n}'),
        ([1, "naïve"], '[\n  1,\n  "naïve"\n]'),
        (7, "7"),
    ],
)
def test_the_answer_is_the_text_of_the_payload(payload: Any, answer: str) -> None:
    """Text is the answer, so is the text under `answer`; other payloads are shown as JSON."""
    assert answer_of(payload) == answer


def test_an_answer_without_a_json_form_is_spelled() -> None:
    """A payload that is no JSON is shown all the same."""
    assert "object at" in answer_of(object())


def test_the_result_line_of_a_finish() -> None:
    """The last line names the run, the reason, the code and what the planner finished with."""
    ending = ending_of(Finish(FinishReason.GOAL, {"answer": "x"}, {"cost": 1}))
    assert json.loads(result_line(ending, "run-1")) == {
        "type": "result",
        "run": "run-1",
        "reason": "goal",
        "exit_code": 0,
        "answer": "x",
        "payload": {"answer": "x"},
        "metadata": {"cost": 1},
    }


def test_the_result_line_of_a_failure() -> None:
    """A failure has an error in the place of an answer."""
    assert json.loads(result_line(failed("TargetError", "no file", 2), "")) == {
        "type": "result",
        "run": "",
        "reason": "failed",
        "exit_code": 2,
        "error": {"type": "TargetError", "message": "no file"},
    }


def test_a_result_that_is_no_json_keeps_its_answer() -> None:
    """A payload without a JSON form does not cost the reader the line."""
    ending = Ending(code=0, reason="goal", answer="x", payload=object())
    assert json.loads(result_line(ending, "run-1"))["answer"] == "x"


NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROW = RunRow(
    number=1,
    run_id="r1",
    who=Identity("acme", "ada", "s1"),
    about="go",
    agent="a.py#1?folder=%2Fx",
    status=Status.RUNNING,
    created_at=micros(NOW),
    updated_at=micros(NOW),
    fence=1,
    position=3,
)
PENDING = msgspec.structs.replace(ROW, status=Status.PENDING, is_woken=True)
INTERRUPTED = msgspec.structs.replace(ROW, is_woken=True)
RUNNING = msgspec.structs.replace(ROW, owner="w")
BLOCKED = msgspec.structs.replace(ROW, blocked="why")
COMPLETE = msgspec.structs.replace(ROW, status=Status.COMPLETE, reason="why")
CANCELLED = msgspec.structs.replace(ROW, status=Status.CANCELLED)
CANCELLED_SOFTLY = msgspec.structs.replace(ROW, status=Status.COMPLETE, reason="cancelled")
FAILED = msgspec.structs.replace(ROW, status=Status.FAILED, reason="why")
NO_PROVIDER = msgspec.structs.replace(ROW, reason="interrupted: provider unavailable (503)")


@each_row(
    "row, status",
    [
        (PENDING, "pending"),
        (RUNNING, "running"),
        (ROW, "waiting"),
        (INTERRUPTED, "interrupted"),
        (NO_PROVIDER, "interrupted"),
        (BLOCKED, "blocked"),
        (COMPLETE, "complete"),
        (FAILED, "failed"),
        (CANCELLED, "cancelled"),
        (CANCELLED_SOFTLY, "cancelled"),
    ],
)
def test_a_run_has_one_of_eight_statuses(row: RunRow, status: str) -> None:
    """A run with a worker is running; one that a worker left, or that waits for its provider, is interrupted."""
    assert status_of(row) == status
    assert agent_of(row) == "a.py"


@each_row(
    "row, words",
    [
        (RUNNING, "another worker executes it, last step 5.0 s ago; followed and steered from here"),
        (INTERRUPTED, "interrupted 5.0 s ago; resuming here"),
        (ROW, "waiting for 5.0 s; resuming here"),
        (BLOCKED, "blocked 5.0 s ago: why; trying again with the agent's code of today"),
        (NO_PROVIDER, "interrupted: provider unavailable (503), 5.0 s ago; trying again now"),
        (COMPLETE, "ended 5.0 s ago: why"),
        (FAILED, "failed 5.0 s ago: why"),
    ],
)
def test_every_stand_has_its_words(row: RunRow, words: str) -> None:
    """Who carries it, since when, and what happens now."""
    assert describe_status(row, NOW + timedelta(seconds=5)) == words


def test_blocked_is_what_was_tried_and_failed() -> None:
    """Not what was blocked before, and not what is being tried."""
    assert is_blocked(BLOCKED, 0)
    assert not is_blocked(BLOCKED, 1)
    assert not is_blocked(msgspec.structs.replace(BLOCKED, owner="w"), 0)
    assert not is_blocked(INTERRUPTED, 0)


WHO = Quadruple("acme", "ada", "s1", "r1")


def wait(kind: PendingKind, on: Party, **more: object) -> PendingItem:
    """Something that waits since a minute."""
    return PendingItem(kind=kind, id="x1", who=WHO, on=on, since=NOW - timedelta(minutes=1), **more)  # type: ignore[arg-type]


EXECUTED = wait(PendingKind.RUN, Party.WORKER, name="w1", is_running=True)
LEFT = wait(PendingKind.RUN, Party.WORKER, name="agent.py#1", then="the next worker of its agent resumes it")
ASKED = wait(
    PendingKind.APPROVAL, Party.PERSON, until=NOW + timedelta(days=2), then="reject", detail="approval: publish"
)
PAUSED = wait(PendingKind.PAUSE, Party.PERSON)
UNFIT = wait(PendingKind.RUN, Party.CODE, name="agent.py#1", detail="recorded step 'plan'")
TASK = wait(PendingKind.TASK, Party.RUN, name="r2")
OVERDUE = wait(PendingKind.PAUSE, Party.PERSON, until=NOW - timedelta(hours=1), then="timeout", is_overdue=True)
ORPHAN = wait(PendingKind.PAUSE, Party.NONE, orphan="its run has ended")
SESSION = wait(PendingKind.SESSION, Party.CLOCK, until=NOW + timedelta(days=1))
TIMER = wait(PendingKind.RUN, Party.CLOCK, until=NOW + timedelta(seconds=5), then="looked at again")


@each_row(
    "one, is_needed, words",
    [
        (EXECUTED, False, "executed by worker w1"),
        (LEFT, True, "waits for a worker (agent.py): harborage resume x1"),
        (ASKED, True, "waits for a person, 2 d left, then reject: harborage approve x1, or reject"),
        (PAUSED, True, "waits for a person: harborage answer x1 TEXT, or approve, or reject"),
        (UNFIT, True, "waits for the code that it was started with (agent.py): harborage resume x1 tries again"),
        (TASK, False, "waits for run r2"),
        (
            OVERDUE,
            True,
            "waits for a person, overdue for 1 h, then timeout: harborage answer x1 TEXT, or approve, or reject",
        ),
        (ORPHAN, True, "its run has ended"),
        (TIMER, False, "waits for a timer, 5.0 s left, then looked at again"),
        (wait(PendingKind.RUN, Party.PERSON, name="t"), True, "waits for a person: harborage resume x1"),
        (wait(PendingKind.GROUP, Party.NONE), True, "orphaned"),
    ],
)
def test_each_wait_says_on_whom_and_what_to_do(one: PendingItem, is_needed: bool, words: str) -> None:
    """Until when, what happens then, and the command that ends it."""
    assert needs_person(one) is is_needed
    assert render_pending([one], NOW, settles=True)[-1].strip() == words


def test_what_needs_a_person_comes_last() -> None:
    """Sessions are only counted, and the way to settle is shown where there is something to settle."""
    lines = render_pending([ORPHAN, ASKED, EXECUTED, SESSION, SESSION], NOW, settles=False)
    assert [line for line in lines if line and not line.startswith(" ")] == [
        "✓ 2 sessions open, each closed when idle for long",
        "✓ 1 item will end without you:",
        "? 1 item needs a person:",
        "✗ 1 orphan: no worker, timer or person will end it:",
        "end orphans and overdue items: harborage doctor --settle",
    ]
    assert "--settle" not in "".join(render_pending([ASKED], NOW, settles=False))
    assert render_pending([], NOW, settles=False) == ["✓ nothing needs you"]


def test_findings_and_settled_items_are_listed() -> None:
    """A line each."""
    found = [Finding(what="database", detail="whole"), Finding(what="disk", detail="full\x1b", is_ok=False)]
    assert render_findings(found) == ["✓ database  whole", "✗ disk  full\\x1b"]
    assert render_ended([EndedItem(item=ORPHAN, done="rejected")]) == ["✓ ended pause x1: rejected"]
    assert render_ended([]) == ["nothing was left to end"]


def test_machines_get_all_of_it() -> None:
    """One object: findings, pending items and what was ended."""
    output = json.loads(
        pending_json([Finding(what="a", detail="b")], [ASKED], [EndedItem(item=ORPHAN, done="rejected")])
    )
    assert output["findings"] == [{"what": "a", "detail": "b", "is_ok": True}]
    assert output["settled"] == [{"kind": "pause", "id": "x1", "done": "rejected"}]
    (row,) = output["waits"]
    assert (row["kind"], row["needs_person"], row["is_orphan"], row["on"]) == ("approval", True, False, "person")
