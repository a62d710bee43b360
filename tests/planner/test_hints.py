"""Advice to a planner, and its projection from configuration."""

from __future__ import annotations

import pytest

from harborage.planner import (
    BudgetHints,
    OperatorPlanningHints,
    PlanningHints,
    PlanningNudges,
    hints_from_config,
)


@pytest.mark.parametrize("section", [None, OperatorPlanningHints()])
def test_an_empty_section_gives_no_hints(section):
    """Without anything to say there are no hints at all."""
    assert hints_from_config(section) is None


@pytest.mark.parametrize(
    ("section", "hints"),
    [
        (OperatorPlanningHints(constraints="be brief"), PlanningHints(constraints="be brief")),
        (OperatorPlanningHints(preferred_tools=["b", "a"]), PlanningHints(preferred_tools=("b", "a"))),
        (
            OperatorPlanningHints(constraints="c", preferred_tools=["a"]),
            PlanningHints(constraints="c", preferred_tools=("a",)),
        ),
    ],
)
def test_projection(section, hints):
    """Exactly the constraints and the preferred tools are projected, in order."""
    assert hints_from_config(section) == hints


def test_later_changes_to_the_configuration_do_not_reach_a_run():
    """The list is copied."""
    section = OperatorPlanningHints(preferred_tools=["a"])
    hints = hints_from_config(section)
    section.preferred_tools.append("b")
    assert hints.preferred_tools == ("a",)


def test_lists_become_tuples():
    """Hints are frozen all the way down."""
    groups = [["a", "b"], ["c"]]
    hints = PlanningHints(preferred_order=["x"], parallel_groups=groups, disallow_tools=["y"], preferred_tools=None)
    groups[0].append("z")
    assert hints.parallel_groups == (("a", "b"), ("c",))
    assert (hints.preferred_order, hints.disallow_tools, hints.preferred_tools) == (("x",), ("y",), ())


def test_defaults():
    """Untouched nudges and hints say nothing."""
    assert PlanningNudges() == PlanningNudges(max_parallel=0, prefer_transport="")
    assert BudgetHints() == BudgetHints(max_steps=None, max_cost_usd=None, max_latency_ms=None)
    assert PlanningHints().budget is None
