"""What became of one call, and of several side by side."""

from __future__ import annotations

from harborage import codec
from harborage.planner import CallTool, JoinKind, JoinSpec, ParallelBranchObservation, ParallelObservation
from harborage.runtime.loop.joins import Done, Failed
from harborage.runtime.loop.outcome import OutcomeStatus, ToolCallFailedError, ToolOutcome, failed, joined
from tests.kit.tables import each_row

CALLS = (CallTool("a", call_id="1"), CallTool("b", call_id="2"), CallTool("a"))
OUTCOMES = (
    ToolOutcome(OutcomeStatus.DONE, {"big": 1}, {"short": 1}),
    failed("no", OutcomeStatus.REJECTED),
    ToolOutcome(OutcomeStatus.DONE, None),
)


@each_row("status", OutcomeStatus)
def test_only_a_call_that_is_done_has_no_error(status: OutcomeStatus) -> None:
    """Any other says why, as text and as an observation."""
    outcome = ToolOutcome(status, 1) if status is OutcomeStatus.DONE else failed("why", status)
    assert outcome.error == ("" if status is OutcomeStatus.DONE else "why")
    assert outcome.observation == (1 if status is OutcomeStatus.DONE else {"error": "why"})
    assert ToolCallFailedError(outcome).outcome is outcome


def test_an_error_can_be_recorded_and_shown() -> None:
    """A file name in it that is no text does not hinder that, and a page that a server sent with it is cut."""
    assert failed("no file a\udc80b").observation == {"error": "no file a?b"}
    assert len(codec.encode(failed("x" * 100_000))) < 5_000


@each_row("value", [None, 0, "", False, {}])
def test_a_reduced_form_is_what_the_planner_sees(value: object) -> None:
    """Even when it is empty; without one it sees the observation."""
    assert ToolOutcome(OutcomeStatus.DONE, {"big": 1}, value).seen == value
    assert ToolOutcome(OutcomeStatus.DONE, value).seen == value


@each_row("outcome", OUTCOMES)
def test_an_outcome_is_recorded_as_it_is(outcome: ToolOutcome) -> None:
    """Stored and read back it is the same."""
    assert codec.decode(codec.encode(outcome), ToolOutcome) == outcome


BRANCHES = (Done(OUTCOMES[0]), Failed(ToolCallFailedError(OUTCOMES[1])), Done(OUTCOMES[2]))


def test_branches_are_matched_by_their_place() -> None:
    """Whole for the history, reduced for the planner; a value or an error, never both."""
    outcome = joined(CALLS, JoinSpec(JoinKind.ALL), BRANCHES)
    entry = ParallelBranchObservation
    rest = (entry(call_id="2", tool="b", index=1, error="no"), entry(tool="a", index=2))
    whole = ParallelObservation((entry(call_id="1", tool="a", index=0, value={"big": 1}), *rest))
    assert (outcome.status, outcome.observation) == (OutcomeStatus.DONE, whole)
    assert outcome.seen == ParallelObservation((entry(call_id="1", tool="a", index=0, value={"short": 1}), *rest))


def test_branches_may_stand_in_another_order() -> None:
    """Each keeps its index."""
    outcome = joined(CALLS, JoinSpec(JoinKind.KEYED, merge_keys=("2", "1")), BRANCHES)
    assert [one.index for one in outcome.observation.branches] == [1, 0, 2]


def test_a_join_that_is_not_met_is_no_success() -> None:
    """Its text is bounded, however much its branches have to say."""
    long = Failed(ToolCallFailedError(failed("x" * 4_000)))
    outcome = joined(CALLS, JoinSpec(JoinKind.N, n=3), (BRANCHES[0], long, long))
    assert outcome.status is OutcomeStatus.FAILED
    assert outcome.error == outcome.observation.error
    assert outcome.error.startswith("parallel dispatch: parallel call needs 3 successes, got 1: branch[1] tool=b: x")
    assert len(outcome.error) < 4_100
