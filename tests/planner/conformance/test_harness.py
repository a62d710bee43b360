"""The report of a conformance run."""

from __future__ import annotations

import pytest

from harborage.planner import PlannerError
from harborage.planner.conformance import ConformanceFailedError, ConformanceReport, Failed, Passed, Skipped
from harborage.planner.conformance.harness import PromiseBrokenError, ScenarioSkipped, expect

REPORT = ConformanceReport({"A": Passed(), "B": Skipped("no model"), "C": Failed("it broke", ValueError("x"))})


def test_the_outcomes_are_sorted_out():
    """The report lists what passed, what was skipped and why, and what failed and how."""
    assert REPORT.passed == ("A",)
    assert REPORT.skipped == {"B": "no model"}
    assert REPORT.failed == {"C": "it broke"}


def test_the_report_can_be_read():
    """As text it is a line a scenario."""
    assert str(REPORT).splitlines() == ["A: passed", "B: skipped (no model)", "C: FAILED (it broke)"]


def test_the_error_names_every_failure():
    """The error counts and names the failed scenarios, and is a failed assertion for any test framework."""
    error = ConformanceFailedError(REPORT)
    assert str(error) == "1 of 3 scenarios failed: C: it broke"
    assert error.report is REPORT
    assert isinstance(error, AssertionError)
    assert isinstance(error, PlannerError)


@pytest.mark.parametrize("reason", ["", "  "])
def test_a_skip_states_its_reason(reason):
    """Nothing is skipped without a reason."""
    with pytest.raises(ValueError, match="reason"):
        ScenarioSkipped(reason)


def test_what_holds_is_accepted():
    """An expectation passes what holds and says what does not."""
    expect(True, "never said")
    with pytest.raises(PromiseBrokenError, match="two is one"):
        expect(False, "two is one")
