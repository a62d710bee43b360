"""How a planner is woken."""

from __future__ import annotations

import pytest

from harborage.planner import WakeAware, WakeMode, resolve_wake_mode
from harborage.planner.finish import FinishPlanner


class Declares:
    """A planner that declares its wake mode."""

    def __init__(self, mode):
        self.mode = mode

    def wake_mode(self):
        """The declared mode."""
        return self.mode


@pytest.mark.parametrize("mode", WakeMode)
def test_a_declared_mode_counts(mode):
    """A planner that declares a mode gets it."""
    assert isinstance(Declares(mode), WakeAware)
    assert resolve_wake_mode(Declares(mode)) is mode


@pytest.mark.parametrize("planner", [FinishPlanner(), object()])
def test_push_is_the_default(planner):
    """A planner that says nothing is woken by push."""
    assert not isinstance(planner, WakeAware)
    assert resolve_wake_mode(planner) is WakeMode.PUSH
