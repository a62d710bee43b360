"""Limits and the rules that hold them: values in, verdicts out."""

from __future__ import annotations

import itertools
import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.errors import InvalidOptionError
from harborage.runtime.loop.limits import Caps, LimitName, Limits, Spent, Verdict, judge, micro_dollars

NOTHING = Spent()


def test_a_limit_that_makes_no_sense_is_refused_by_name() -> None:
    """Zero, negative, infinite and not-a-number, and what is no number: refused where it is written, with the name."""
    wrong = {
        "steps": (0, -1, True, 1.5, "3"),
        "calls": (0, -1, False),
        "tokens": (0, -5, 2.0),
        "cost": (0, 0.0, -1.0, math.nan, math.inf, True, "2"),
        "seconds": (0, -0.1, math.nan, math.inf),
    }
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(InvalidOptionError, match=name):
                Limits(**{name: value})
    assert Limits(steps=1, calls=1, tokens=1, cost=1e-9, seconds=1).caps == Caps(steps=1, calls=1, tokens=1, cost=1)


def test_limits_of_one_run_replace_those_that_it_names() -> None:
    """What a run does not limit itself stays as the runtime has it."""
    ours = Limits(steps=10, cost=1.0)
    assert ours.replaced(Limits(cost=5, tokens=7)) == Limits(steps=10, cost=5, tokens=7)
    assert ours.replaced(None) is ours


def test_a_run_ends_at_the_earlier_of_its_deadline_and_its_seconds() -> None:
    """A time longer than any clock goes is no limit."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    soon, late = now + timedelta(seconds=5), now + timedelta(days=1)
    for limits, deadline, end in (
        (Limits(), None, None),
        (Limits(), late, late),
        (Limits(seconds=5), None, soon),
        (Limits(seconds=5), late, soon),
        (Limits(seconds=5), now, now),
        (Limits(seconds=1e12), None, None),
        (Limits(seconds=1e300), late, late),
    ):
        assert limits.until(deadline, now) == end, (limits, deadline)


def test_money_is_counted_up_and_never_lost() -> None:
    """Fractions of a micro-dollar count as one, and what is no amount counts as nothing."""
    for dollars, micro in ((0.0, 0), (1e-9, 1), (0.1, 100_000), (0.1 + 0.2, 300_000), (-1.0, 0), (math.nan, 0)):
        assert micro_dollars(dollars) == micro, dollars
    assert micro_dollars(math.inf) == micro_dollars(1e300) > 10**15


def test_every_small_case_of_used_up() -> None:
    """Exactly as many steps and calls as allowed may be taken; of tokens and cost something must be left."""
    for cap, taken in itertools.product(range(4), range(6)):
        for name in LimitName:
            reached = Caps(**{name: cap}).used_up(Spent(**{name: taken}))
            is_over = taken > cap or (taken == cap and name in {LimitName.TOKENS, LimitName.COST})
            assert (reached is not None) is is_over, (name, cap, taken)
            if reached is not None:
                assert (reached.limit, reached.cap, reached.spent) == (name, cap, taken)
                assert str(name).removesuffix("s") in reached.text


def test_every_small_case_of_a_verdict() -> None:
    """A call that fits is admitted; one that does not waits for others, or is admitted alone while there is a rest."""
    for cap, spent, held, wanted in itertools.product(range(1, 4), range(5), range(4), range(4)):
        verdict, reached = judge(
            Caps(tokens=cap), spent=Spent(tokens=spent), held=Spent(tokens=held), wanted=Spent(tokens=wanted)
        )
        if spent >= cap:
            expected = Verdict.REFUSE
        elif spent + held + wanted <= cap or not held:
            expected = Verdict.ADMIT
        else:
            expected = Verdict.WAIT
        assert verdict is expected, (cap, spent, held, wanted)
        assert (reached is None) is (verdict is Verdict.ADMIT)


amounts = st.integers(0, 50)


@given(st.integers(1, 60), st.lists(st.tuples(amounts, st.integers(0, 100)), max_size=30))
def test_calls_that_keep_to_their_estimates_exceed_a_limit_by_less_than_one_estimate(
    cap: int, calls: list[tuple[int, int]]
) -> None:
    """However many calls are in flight together, what they take in all stays below the cap and one estimate more."""
    caps, spent, flight = Caps(tokens=cap), 0, list[int]()
    for wanted, share in calls:
        held = Spent(tokens=sum(flight))
        verdict, _ = judge(caps, spent=Spent(tokens=spent), held=held, wanted=Spent(tokens=wanted))
        if verdict is Verdict.ADMIT:
            flight.append(wanted)
        elif flight:
            spent += flight.pop(0) * share // 100
    assert spent + sum(flight) <= cap + max((wanted for wanted, _ in calls), default=0)


def test_sums_are_of_every_kind() -> None:
    """Adding up loses none of them."""
    one = Spent(steps=1, calls=2, tokens=3, cost=4)
    assert Spent.sum([one, one, NOTHING]) == Spent(steps=2, calls=4, tokens=6, cost=8)
