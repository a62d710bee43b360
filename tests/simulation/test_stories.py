"""Harborage as a whole, simulated: agents, processes that come and go, people and faults, every promise checked."""

from __future__ import annotations

from harborage.testing.simulation.many import many

STORIES = 300
"""As many as the suite has time for; `make simulate` plays thousands."""


def test_every_promise_is_kept() -> None:
    """Keyed effects once, others never silently twice, no control lost, no run stuck, one end each."""
    failed = {one.seed: one.error for one in many(range(STORIES), 2) if one.error}
    assert not failed, "\n".join(
        f"python -m harborage.testing.simulation --seed {seed}: {error[:500]}" for seed, error in failed.items()
    )
