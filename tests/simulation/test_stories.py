"""Harborage as a whole, simulated: agents, processes that come and go, people and faults, every promise checked."""

from __future__ import annotations

import pytest

from harborage.runtime.steering import ControlType
from harborage.testing.simulation import Faults
from tests.programs.simulation.coverage import EVERYTHING
from tests.programs.simulation.stories import Played, many, play

SLICES, STORIES = 10, 20
"""As many as the suite has time for; `make simulate` plays thousands."""

CALM = range(60, 80)
"""Seeds of stories that are played without faults; in one of them a control comes as its run ends."""

FIRST = 5
"""So many slices are about nearly everything."""

SELDOM = frozenset(
    {
        *(f"{kind} sent while nothing was up" for kind in ControlType),
        "APPROVE arrived",
        "REJECT arrived",
        "a call was cut short",
        "a call's outcome is unknown",
        "a parked run was cancelled",
        "a pause ran out",
        "a pause ran out while nothing was up",
        "a run was cancelled hard",
        "a run's deadline passed while nothing was up",
        "a summary failed",
        "a write came too late",
    }
)
"""What so few stories may miss; `python -m tests.programs.simulation` says what its stories missed."""


def published(part: int) -> list[Played]:
    """One slice of the stories, in each of which every promise is kept."""
    stories = list(many(range(part * STORIES, (part + 1) * STORIES), 1))
    failed = {one.seed: one.error for one in stories if one.error}
    assert not failed, "\n".join(
        f"python -m tests.programs.simulation --seed {seed}: {error[:500]}" for seed, error in failed.items()
    )
    return stories


@pytest.mark.parametrize("part", range(FIRST, SLICES))
def test_every_promise_is_kept(part: int) -> None:
    """Keyed effects once, others never silently twice, no control lost, no run stuck, one end each."""
    assert len(published(part)) == STORIES


def test_where_nothing_strikes_every_control_has_one_outcome_and_every_run_one_end() -> None:
    """No event of these is lost or published twice; what strikes a process may do that to the one it is about to
    write."""
    failed = {seed: outcome.error for seed in CALM if (outcome := play(seed, faults=Faults())).error}
    assert not failed, "\n".join(f"seed {seed}: {error}" for seed, error in failed.items())


@pytest.mark.timeout(600)  # it plays half of them
def test_every_promise_is_kept_in_stories_about_everything() -> None:
    """The first slices leave out next to nothing, since what no story meets no story can prove."""
    met = {mark for part in range(FIRST) for one in published(part) for mark in one.marks}
    assert met <= EVERYTHING
    assert EVERYTHING - met <= SELDOM
