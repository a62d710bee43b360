"""The attempts of one step."""

from __future__ import annotations

import pytest

from harborage.planner.repair import Attempts, Mistake, RepairLimits, RepairSignals


def test_kinds_are_counted_apart():
    """Failures over arguments and over a finish count for the guard, several actions do not; all are reported."""
    slips = Attempts(RepairLimits(repair_attempts=9, max_consecutive_arg_failures=2))
    slips.note("mixed", Mistake.MULTI_ACTION)
    assert slips.may_ask
    assert slips.signals == RepairSignals(multi_action=True)
    slips.note("finish", Mistake.FINISH)
    assert slips.may_ask
    slips.note("args")
    assert not slips.may_ask
    assert slips.signals == RepairSignals(args_repaired=True, multi_action=True, finish_repaired=True)


def test_attempts_are_a_limit_of_their_own():
    """When the attempts are used up the step asks no more, whatever failed."""
    slips = Attempts(RepairLimits(repair_attempts=2, max_consecutive_arg_failures=9))
    for _ in range(2):
        assert slips.may_ask
        slips.attempts += 1
    assert not slips.may_ask


@pytest.mark.parametrize("number", [0, -1])
def test_numbers_that_are_not_positive(number):
    """They mean the defaults, three calls of the model and two failures over arguments."""
    limits = RepairLimits(repair_attempts=number, max_consecutive_arg_failures=number)
    assert limits == RepairLimits() == RepairLimits(repair_attempts=3, max_consecutive_arg_failures=2)
