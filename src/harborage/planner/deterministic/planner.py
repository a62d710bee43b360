"""The planner over a decision tree: identity and controls first, then the steps in order until one claims the call."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Final

from harborage.errors import error_reason
from harborage.identity import Quadruple, require_quadruple
from harborage.planner.context import raise_if_cancelled
from harborage.planner.decisions import Decision, Finish, FinishReason, WakeMode
from harborage.planner.deterministic.steps import DecisionTreeStep, GroupAwareStep, SpawnAndAwaitStep
from harborage.planner.errors import DeterministicStepError, InvalidConfigError

if TYPE_CHECKING:
    from harborage.planner.context import RunContext
    from harborage.tasks import TaskRegistry

DEFAULT_NAME: Final = "deterministic"
"""The name of a planner that was given none."""


class FromRuntime(Enum):
    """The type of `FROM_RUNTIME`."""

    FROM_RUNTIME = "from_runtime"


FROM_RUNTIME: Final = FromRuntime.FROM_RUNTIME
"""As `registry`: the task registry of the runtime that opens over the planner."""


class DeterministicPlanner:
    """Decides by `steps`, of which the first that claims a call decides it; no model is asked.

    Steps that follow task groups need their `registry`, or `FROM_RUNTIME`: then they use that of the runtime that the
    planner is passed to, one runtime at a time. An instance may serve any number of runs at once.

    Raises:
        InvalidConfigError: no steps; one that is no step; a step that follows groups without a registry; two spawning
            steps with the same id.
    """

    def __init__(
        self,
        steps: Iterable[DecisionTreeStep] = (),
        *,
        registry: TaskRegistry | FromRuntime | None = None,
        name: str = DEFAULT_NAME,
    ) -> None:
        self._steps = tuple(steps)
        self._name = name or DEFAULT_NAME
        _check_steps(self._steps)
        self._group_aware = tuple(step for step in self._steps if isinstance(step, GroupAwareStep))
        for step in self._group_aware:
            if registry is None:
                raise InvalidConfigError(
                    f"planner/deterministic: {type(step).__name__} follows task groups; pass registry=FROM_RUNTIME, "
                    "or the registry of the groups"
                )
            if not isinstance(registry, FromRuntime):
                step.attach(registry)
        self._is_attachable = isinstance(registry, FromRuntime)

    def attach_registry(self, registry: TaskRegistry | None) -> None:
        """Use this registry in place of `FROM_RUNTIME`; None when it is closed. The runtime calls this.

        Raises:
            InvalidConfigError: the steps use the registry of another runtime, which is open still.
        """
        if self._is_attachable:
            for step in self._group_aware:
                step.attach(registry)

    @property
    def name(self) -> str:
        """The planner's name."""
        return self._name

    def wake_mode(self) -> WakeMode:
        """`poll`: a step that waits for a group looks at it at every call."""
        return WakeMode.POLL

    async def next(self, run: RunContext) -> Decision:
        """Return the decision of the first step that claims the call.

        A cancelled run finishes as `cancelled` before any step is asked; when no step claims the call, the run finishes
        as `no_path`.

        Raises:
            asyncio.CancelledError: the caller was cancelled.
            IdentityRequiredError: the run's identity is incomplete.
            DeterministicStepError: a step failed, or claimed the call without a decision.
        """
        raise_if_cancelled()
        who = run.quadruple
        require_quadruple(who, "planner/deterministic")
        if run.control.cancelled:
            decision: Decision = Finish(
                FinishReason.CANCELLED, metadata={"steering": "cancelled", "run_id": who.run_id}
            )
        else:
            decision = await self._ask_steps(run)
        if isinstance(decision, Finish):
            self.forget(who)
        return decision

    def forget(self, who: Quadruple) -> None:
        """Drop the state of this run in all steps.

        A finish does this, and so does the end of the run's task in the registry. A host whose runs have no tasks calls
        it for a run that ends in any other way.
        """
        for step in self._group_aware:
            step.forget(who)

    async def _ask_steps(self, run: RunContext) -> Decision:
        for index, step in enumerate(self._steps):
            try:
                decision, is_claimed = await step.decide(run)
            except Exception as error:
                reason = f"{type(step).__name__}: {error_reason(error)}"
                raise DeterministicStepError(index, reason) from error
            if not is_claimed:
                continue
            if decision is None:
                raise DeterministicStepError(index, f"{type(step).__name__} claimed the call without a decision")
            return decision
        metadata = {"deterministic": "no_step_matched", "run_id": run.quadruple.run_id}
        return Finish(FinishReason.NO_PATH, metadata=metadata)


def _check_steps(steps: tuple[DecisionTreeStep, ...]) -> None:
    if not steps:
        raise InvalidConfigError("planner/deterministic: no steps; a tree needs at least one")
    for index, step in enumerate(steps):
        if not isinstance(step, DecisionTreeStep):
            raise InvalidConfigError(
                f"planner/deterministic: step {index} is a {type(step).__name__}, which is no step"
            )
    ids = [step.step_id for step in steps if isinstance(step, SpawnAndAwaitStep)]
    if len(set(ids)) < len(ids):
        raise InvalidConfigError("planner/deterministic: two spawning steps share a step_id; use one id for each")
