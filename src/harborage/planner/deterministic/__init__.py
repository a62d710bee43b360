"""A planner without a model: an ordered list of steps, of which the first that claims a call decides it.

The runtime drives it exactly as it drives a planner that asks a model. Write steps of your own by implementing
`DecisionTreeStep`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.planner.deterministic.planner import DEFAULT_NAME as DEFAULT_NAME
    from harborage.planner.deterministic.planner import FROM_RUNTIME as FROM_RUNTIME
    from harborage.planner.deterministic.planner import DeterministicPlanner as DeterministicPlanner
    from harborage.planner.deterministic.planner import FromRuntime as FromRuntime
    from harborage.planner.deterministic.steps import CallToolStep as CallToolStep
    from harborage.planner.deterministic.steps import DecisionTreeStep as DecisionTreeStep
    from harborage.planner.deterministic.steps import FinishStep as FinishStep
    from harborage.planner.deterministic.steps import GroupAwareStep as GroupAwareStep
    from harborage.planner.deterministic.steps import Guard as Guard
    from harborage.planner.deterministic.steps import PauseStep as PauseStep
    from harborage.planner.deterministic.steps import SpawnAndAwaitStep as SpawnAndAwaitStep
    from harborage.planner.deterministic.steps import WatchGroupStep as WatchGroupStep
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.planner.deterministic.planner": "DEFAULT_NAME DeterministicPlanner FROM_RUNTIME FromRuntime",
            "harborage.planner.deterministic.steps": (
                "CallToolStep DecisionTreeStep FinishStep GroupAwareStep Guard PauseStep SpawnAndAwaitStep "
                "WatchGroupStep"
            ),
        },
    )
