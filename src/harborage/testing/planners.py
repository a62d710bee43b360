"""Planners for tests: one that follows a script, and one that records the calls of another planner."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from harborage.errors import HarborageError
from harborage.planner import (
    Decision,
    Finish,
    Planner,
    RunContext,
    Trajectory,
    WakeMode,
    raise_if_cancelled,
    resolve_wake_mode,
)

if TYPE_CHECKING:
    from harborage.identity import Quadruple

Line: TypeAlias = Decision | Exception | Callable[[RunContext], Decision]
"""One line of a script: a decision, an error to raise, or a function that decides from the run's context."""


class PlannerScriptExhaustedError(HarborageError):
    """A scripted planner was called more often than its script has lines. `run_id` names the run."""

    def __init__(self, run_id: str = "", lines: int = 0) -> None:
        self.run_id = run_id
        self.lines = lines
        super().__init__(f"run {run_id}: the script has {lines} line(s), and the planner was called once more")


class ScriptedPlanner:
    """Answers a run's first call with the first line of its script, the second with the second, and so on.

    Every run follows the script from its beginning, also when many runs share the planner. A run whose query is in
    `by_query` follows that script instead, which gives spawned tasks their own. Controls change nothing unless a line
    reads them. After a finish the planner forgets the run.
    """

    def __init__(self, script: Iterable[Line], *, by_query: Mapping[str, Iterable[Line]] | None = None) -> None:
        self._script = tuple(script)
        self._by_query = {query: tuple(lines) for query, lines in ({} if by_query is None else by_query).items()}
        self._calls: dict[Quadruple, int] = {}

    @property
    def under_way(self) -> frozenset[Quadruple]:
        """The runs that have begun and not finished."""
        return frozenset(self._calls)

    async def next(self, run: RunContext) -> Decision:
        """Return the run's next line.

        Raises:
            asyncio.CancelledError: the caller was cancelled.
            PlannerScriptExhaustedError: there is no line left.
            Exception: the line itself.
        """
        raise_if_cancelled()
        who = run.quadruple
        lines = self._by_query.get(run.query or run.goal, self._script)
        call = self._calls.get(who, 0)
        if call >= len(lines):
            raise PlannerScriptExhaustedError(who.run_id, len(lines))
        self._calls[who] = call + 1
        decision = _decide(lines[call], run)
        if isinstance(decision, Finish):
            self._calls.pop(who, None)
        return decision


class PlannerCall(msgspec.Struct, frozen=True):
    """One call of a planner: the context as it was then, and the decision or error."""

    context: RunContext
    decision: Decision | None = None
    error: BaseException | None = None


class RecordingPlanner:
    """Passes every call on to `planner` and keeps it in `calls`, in the order of their answers.

    The context is kept with a copy of its history, so it does not show later steps of the run.
    """

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.calls: list[PlannerCall] = []

    @property
    def contexts(self) -> list[RunContext]:
        """The contexts that the planner got."""
        return [call.context for call in self.calls]

    @property
    def decisions(self) -> list[Decision]:
        """Its decisions, without the calls that raised."""
        return [call.decision for call in self.calls if call.decision is not None]

    def of(self, run_id: str) -> list[PlannerCall]:
        """Return the calls of one run."""
        return [call for call in self.calls if call.context.quadruple.run_id == run_id]

    def wake_mode(self) -> WakeMode:
        """Return the wake mode of the recorded planner."""
        return resolve_wake_mode(self.planner)

    async def next(self, run: RunContext) -> Decision:
        """Return the decision of the recorded planner.

        Raises:
            BaseException: its errors, cancellation included.
        """
        shown = _copy_context(run)
        try:
            decision = await self.planner.next(run)
        except BaseException as error:
            self.calls.append(PlannerCall(shown, error=error))
            raise
        self.calls.append(PlannerCall(shown, decision))
        return decision


def _decide(line: Line, run: RunContext) -> Decision:
    if isinstance(line, Exception):
        raise line
    return line(run) if callable(line) else line


def _copy_context(run: RunContext) -> RunContext:
    """Return the context with a copy of its history, which the run will not append to."""
    shown = copy.copy(run)
    if run.trajectory is not None:
        shown.trajectory = _copy_history(run.trajectory)
    return shown


def _copy_history(history: Trajectory) -> Trajectory:
    fields = {name: getattr(history, name) for name in history.__struct_fields__}
    return Trajectory(**{name: copy.copy(value) for name, value in fields.items()})
