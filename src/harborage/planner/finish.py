"""A planner that is done at once: for tests, and as the smallest example of a planner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.planner.cancellation import raise_if_cancelled
from harborage.planner.decisions import Finish
from harborage.planner.enums import FinishReason
from harborage.planner.errors import InvalidConfigError

if TYPE_CHECKING:
    from harborage.planner.config import PlannerConfig
    from harborage.planner.context import RunContext
    from harborage.planner.registry import FactoryDeps

__all__ = ["FinishPlanner", "make"]


class FinishPlanner:
    """Ends every run at its first step with `goal`, and with the payload and metadata of `template`.

    The run's id is added to the metadata. Any number of runs may share one instance; identity is not checked.
    """

    def __init__(self, template: Finish | None = None) -> None:
        self._payload = None if template is None else template.payload
        self._metadata = dict(template.metadata or {}) if template is not None else {}

    async def next(self, run: RunContext) -> Finish:
        """The finish.

        Raises:
            asyncio.CancelledError: the caller was cancelled.
        """
        raise_if_cancelled()
        metadata = dict(self._metadata)
        if run.quadruple.run_id:
            metadata["run_id"] = run.quadruple.run_id
        return Finish(FinishReason.GOAL, self._payload, metadata or None)


def make(config: PlannerConfig, deps: FactoryDeps) -> FinishPlanner:
    """A `FinishPlanner`, which asks no model: `extra` has to be empty, and the other options have no effect.

    Raises:
        InvalidConfigError: `extra` holds something.
    """
    if config.extra:
        names = ", ".join(config.extra)
        raise InvalidConfigError(f"planner.extra: the finish planner has no options of its own; leave out {names}")
    return FinishPlanner()
