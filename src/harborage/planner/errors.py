"""The errors of planners: of decisions, parallel calls, trajectories and compression.

Errors that other packages own are importable from here too, so that a planner's author needs one import.

    PlannerError
    ├── InvalidDecisionError             the runtime cannot act on this decision
    ├── InvalidConfigError               a planner was built wrongly
    ├── DeterministicStepError           a step of a decision tree failed
    ├── RepairExhaustedError             the model's output could not be repaired
    ├── PlannerClosedError               the planner was closed
    ├── ParallelError                    a parallel call
    │   ├── ParallelCapExceededError
    │   ├── ParallelInvalidJoinError
    │   ├── ParallelBranchInvalidArgsError
    │   ├── ParallelPauseUnsupportedError
    │   └── ParallelThresholdUnmetError
    ├── MemoryBlockUnserializableError   an injected block cannot become JSON
    ├── ToolContextLostError             a live handle is not in this process
    ├── TrajectoryCorruptError           stored bytes are no trajectory
    ├── NilTrajectoryError               compression got no trajectory
    └── EmptySummaryError                a summariser broke its contract
"""

from __future__ import annotations

from harborage.errors import HarborageError, NotFoundError


class PlannerError(HarborageError):
    """A planner, or what it works on, failed."""


class PlannerClosedError(PlannerError):
    """The planner is closed; build a new one."""


class InvalidDecisionError(PlannerError):
    """The planner returned a decision that the runtime cannot act on."""


class InvalidConfigError(PlannerError):
    """A planner was built from an invalid configuration."""


class DeterministicStepError(PlannerError):
    """A step of a deterministic planner failed. `index` is its place in the tree, `__cause__` the step's own error."""

    def __init__(self, index: int = 0, reason: str = "") -> None:
        self.index = index
        self.reason = reason
        super().__init__(f"planner/deterministic: step {index} failed" + (f": {reason}" if reason else ""))


class RepairExhaustedError(PlannerError):
    """planner: schema repair exhausted"""


class ParallelError(PlannerError):
    """A parallel call failed as a whole."""


class ParallelCapExceededError(ParallelError):
    """A parallel call has more branches than the system allows. `branches` were asked for, `cap` is the limit."""

    def __init__(self, branches: int = 0, cap: int = 0) -> None:
        self.branches = branches
        self.cap = cap
        super().__init__(f"parallel call has {branches} branches, the cap is {cap}; split it into several steps")


class ParallelInvalidJoinError(ParallelError):
    """A parallel call's join is malformed: an unknown kind, or a threshold outside 1 to the number of branches."""


class ParallelBranchInvalidArgsError(ParallelError):
    """One branch's arguments are invalid, so no branch ran. `index` and `tool` name the branch."""

    def __init__(self, index: int = 0, tool: str = "", reason: str = "") -> None:
        self.index = index
        self.tool = tool
        self.reason = reason
        super().__init__(f"parallel branch {index} ({tool}): {reason or 'invalid arguments'}")


class ParallelPauseUnsupportedError(ParallelError):
    """A branch of a parallel call asked for a pause, which this runtime cannot record."""


class ParallelThresholdUnmetError(ParallelError):
    """Fewer branches succeeded than the join asks for. `failures` maps a branch's index to its error."""

    def __init__(self, needed: int = 0, succeeded: int = 0, failures: dict[int, str] | None = None) -> None:
        self.needed = needed
        self.succeeded = succeeded
        self.failures = failures or {}
        listed = "; ".join(f"branch {index}: {text}" for index, text in sorted(self.failures.items()))
        super().__init__(
            f"parallel call needs {needed} successes, got {succeeded}" + (f" ({listed})" if listed else "")
        )


class MemoryBlockUnserializableError(PlannerError):
    """A block meant for the prompt cannot become JSON. `tier` names it; nothing is left out silently."""

    def __init__(self, tier: str = "", reason: str = "") -> None:
        self.tier = tier
        self.reason = reason
        super().__init__(f"memory block {tier} is not JSON-serialisable" + (f": {reason}" if reason else ""))


class ToolContextLostError(PlannerError, NotFoundError):
    """A live tool handle is not held by this process. `handle` names it; set it again before resuming."""

    def __init__(self, handle: str = "") -> None:
        self.handle = handle
        text = f"tool context lost: handle {handle!r} is not in this process; set it again before resuming"
        super().__init__(handle, what="handle", message=text)


class TrajectoryCorruptError(PlannerError):
    """Stored bytes are not a trajectory; the cause names the place."""


class NilTrajectoryError(PlannerError):
    """Compression and token estimation need a trajectory, and got none."""


class EmptySummaryError(PlannerError):
    """The summariser returned no summary and raised nothing; it must do one or the other."""
