"""What running the pack gives: for each scenario that it passed, why it was skipped, or which promise is broken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, assert_never

import msgspec

from harborage.planner.errors import PlannerError

__all__ = [
    "ConformanceFailedError",
    "ConformanceReport",
    "Failed",
    "Outcome",
    "Passed",
    "PromiseBrokenError",
    "ScenarioSkipped",
    "Skipped",
    "expect",
]


class PromiseBrokenError(PlannerError, AssertionError):
    """A planner does not do what a planner promises."""


class ScenarioSkipped(Exception):  # noqa: N818 - ends a scenario, and is no error
    """A scenario that this planner cannot be asked; `reason` says why."""

    def __init__(self, reason: str) -> None:
        if not reason.strip():
            raise ValueError("a skipped scenario states its reason")
        self.reason = reason
        super().__init__(reason)


class Passed(msgspec.Struct, frozen=True, tag=True):
    """The planner keeps the promise."""


class Skipped(msgspec.Struct, frozen=True, tag=True):
    """The planner was not asked, for this reason."""

    reason: str


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The planner breaks the promise, or something around it failed. `error` is what was raised."""

    reason: str
    error: Exception


Outcome: TypeAlias = Passed | Skipped | Failed


class ConformanceReport(msgspec.Struct, frozen=True):
    """The outcome of every scenario, in the order they ran. `str(report)` is a line for each."""

    outcomes: Mapping[str, Outcome]

    @property
    def passed(self) -> tuple[str, ...]:
        """The scenarios that passed."""
        return tuple(name for name, outcome in self.outcomes.items() if isinstance(outcome, Passed))

    @property
    def skipped(self) -> dict[str, str]:
        """The scenarios that were skipped, and why."""
        return {name: outcome.reason for name, outcome in self.outcomes.items() if isinstance(outcome, Skipped)}

    @property
    def failed(self) -> dict[str, str]:
        """The scenarios that failed, and how."""
        return {name: outcome.reason for name, outcome in self.outcomes.items() if isinstance(outcome, Failed)}

    def __str__(self) -> str:
        return "\n".join(f"{name}: {_told(outcome)}" for name, outcome in self.outcomes.items())


class ConformanceFailedError(PlannerError, AssertionError):
    """A planner breaks promises. `report` has every outcome; the cause groups what was raised."""

    def __init__(self, report: ConformanceReport) -> None:
        self.report = report
        named = "; ".join(f"{name}: {reason}" for name, reason in report.failed.items())
        super().__init__(f"{len(report.failed)} of {len(report.outcomes)} scenarios failed: {named}")


def expect(holds: bool, what: str) -> None:
    """Accept what holds.

    Raises:
        PromiseBrokenError: it does not; `what` says what is wrong.
    """
    if not holds:
        raise PromiseBrokenError(what)


def _told(outcome: Outcome) -> str:
    match outcome:
        case Passed():
            return "passed"
        case Skipped(reason):
            return f"skipped ({reason})"
        case Failed(reason):
            return f"FAILED ({reason})"
        case _ as unreachable:
            assert_never(unreachable)
