"""A planner without a model: an ordered list of steps, of which the first that claims a call decides it.

It is the second planner on the seam and the proof that the seam is one: the runtime drives it exactly as it drives a
planner that asks a model. Write steps of your own by implementing `DecisionTreeStep`.
"""

from __future__ import annotations

from harborage.planner.deterministic.groups import GroupAwareStep, SpawnAndAwaitStep, WatchGroupStep
from harborage.planner.deterministic.planner import DEFAULT_NAME, FROM_RUNTIME, DeterministicPlanner, FromRuntime
from harborage.planner.deterministic.steps import CallToolStep, DecisionTreeStep, FinishStep, Guard, PauseStep

__all__ = [
    "DEFAULT_NAME",
    "FROM_RUNTIME",
    "CallToolStep",
    "DecisionTreeStep",
    "DeterministicPlanner",
    "FinishStep",
    "FromRuntime",
    "GroupAwareStep",
    "Guard",
    "PauseStep",
    "SpawnAndAwaitStep",
    "WatchGroupStep",
]
