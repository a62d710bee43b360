"""Advice to a planner from the caller and the operator: nudges it may follow, hints that go into its prompt.

Values, and the projection of the operator's configuration onto them. Hard limits live elsewhere; nothing here enforces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import force_setattr

from harborage.errors import names_of

if TYPE_CHECKING:
    from harborage.planner.config import OperatorPlanningHints

__all__ = ["BudgetHints", "PlanningHints", "PlanningNudges", "hints_from_config"]


class PlanningNudges(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller would like: at most `max_parallel` branches (0: no wish), tools of one transport first."""

    max_parallel: int = 0
    prefer_transport: str = ""


class BudgetHints(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ceilings to tell the model about; a part that is None is not mentioned."""

    max_steps: int | None = None
    max_cost_usd: float | None = None
    max_latency_ms: int | None = None


class PlanningHints(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the operator wants the prompt to say about planning; an empty part is left out of the prompt.

    Raises:
        InvalidOptionError: one text stands where several names are meant.
    """

    constraints: str = ""
    preferred_order: tuple[str, ...] = ()
    parallel_groups: tuple[tuple[str, ...], ...] = ()
    disallow_tools: tuple[str, ...] = ()
    preferred_tools: tuple[str, ...] = ()
    budget: BudgetHints | None = None

    def __post_init__(self) -> None:
        for field in ("preferred_order", "disallow_tools", "preferred_tools"):
            force_setattr(self, field, names_of(getattr(self, field) or (), field))
        force_setattr(
            self, "parallel_groups", tuple(names_of(group, "parallel_groups") for group in self.parallel_groups or ())
        )


def hints_from_config(hints: OperatorPlanningHints | None) -> PlanningHints | None:
    """The operator's planning hints as a run carries them, or None when the section says nothing.

    The list is copied: changing the configuration later does not reach a run.
    """
    if hints is None or not (hints.constraints or hints.preferred_tools):
        return None
    return PlanningHints(constraints=hints.constraints, preferred_tools=tuple(hints.preferred_tools))
