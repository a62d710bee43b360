"""The values of the seam: phases, requests and errors."""

from __future__ import annotations

from datetime import UTC, datetime

from harborage import codec
from harborage.identity import Quadruple
from harborage.runtime.durable.engine import (
    EngineClosedError,
    EngineError,
    HistoryMismatchError,
    RolloverError,
    RunFailedError,
    RunNotFoundError,
    RunPhase,
)
from harborage.runtime.loop.seam import RunRequest
from tests.kit.tables import each_row

REQUEST = RunRequest(who=Quadruple("t", "u", "s", "r"), goal="g")


def test_only_an_ended_run_is_final() -> None:
    """A blocked or parked one moves again."""
    assert {phase for phase in RunPhase if phase.is_final} == {RunPhase.FINISHED, RunPhase.FAILED}


def test_a_request_is_stored_without_what_it_does_not_say() -> None:
    """And comes back as it was."""
    full = RunRequest(
        who=REQUEST.who,
        goal="g",
        query="q",
        task_id="task",
        max_steps=3,
        deadline=datetime(2026, 1, 1, tzinfo=UTC),
        token_budget=5,
        input_artifact_ids=("a",),
    )
    assert set(codec.decode(codec.encode(REQUEST))) == {"who", "goal"}
    for request in (REQUEST, full):
        assert codec.decode(codec.encode(request), RunRequest) == request


@each_row(
    "error, words",
    [
        (RunFailedError("r", "ValueError", "no"), ["run r failed", "ValueError", "no"]),
        (HistoryMismatchError("r", "3.1", "plan", "tool.x"), ["run r at 3.1", "'plan'", "'tool.x'"]),
        (RolloverError(REQUEST), ["new history"]),
        (EngineClosedError(), ["closed", "resumes"]),
        (RunNotFoundError(), ["no run"]),
    ],
)
def test_an_error_of_an_engine_says_what_it_is_about(error: EngineError, words: list[str]) -> None:
    """Run, place and cause, as far as they are known."""
    assert isinstance(error, EngineError)
    assert all(word in str(error) for word in words)
