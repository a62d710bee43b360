"""Planners for tests: one that follows a script, and one that remembers what another was asked and answered."""

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

__all__ = ["Line", "PlannerCall", "RecordingPlanner", "ScriptExhaustedError", "ScriptedPlanner"]

Line: TypeAlias = Decision | Exception | Callable[[RunContext], Decision]
"""One line of a script: a decision, an error to raise, or a function that decides from what the planner is shown."""


class ScriptExhaustedError(HarborageError):
    """A scripted planner was asked more often than its script has lines. `run_id` names the run."""

    def __init__(self, run_id: str = "", lines: int = 0) -> None:
        self.run_id = run_id
        self.lines = lines
        super().__init__(f"run {run_id}: the script has {lines} line(s), and the planner was asked once more")


class ScriptedPlanner:
    """Answers a run's first call with the first line of its script, the second with the second, and so on.

    Every run follows the script from its beginning, however many share the planner. A run whose query is in `by_query`
    follows that script instead, which gives spawned tasks their own. Controls are not heeded unless a line does; a
    finish ends the run, and all that is remembered of it.
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
        """The run's next line.

        Raises:
            asyncio.CancelledError: the caller was cancelled.
            ScriptExhaustedError: there is no line left.
            Exception: the line itself.
        """
        raise_if_cancelled()
        who = run.quadruple
        lines = self._by_query.get(run.query or run.goal, self._script)
        call = self._calls.get(who, 0)
        if call >= len(lines):
            raise ScriptExhaustedError(who.run_id, len(lines))
        self._calls[who] = call + 1
        decision = _spoken(lines[call], run)
        if isinstance(decision, Finish):
            self._calls.pop(who, None)
        return decision


class PlannerCall(msgspec.Struct, frozen=True):
    """One call of a planner: what it was shown, as it was then, and what it answered or raised."""

    context: RunContext
    decision: Decision | None = None
    error: BaseException | None = None


class RecordingPlanner:
    """Passes every call on to `planner` and keeps it in `calls`, in the order the calls were answered.

    The kept context has a history of its own, so later steps of the run do not show in it. Everything is kept for as
    long as the recorder lives.
    """

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.calls: list[PlannerCall] = []

    @property
    def contexts(self) -> list[RunContext]:
        """What the planner was shown."""
        return [call.context for call in self.calls]

    @property
    def decisions(self) -> list[Decision]:
        """What it decided, without the calls that raised."""
        return [call.decision for call in self.calls if call.decision is not None]

    def of(self, run_id: str) -> list[PlannerCall]:
        """The calls of one run."""
        return [call for call in self.calls if call.context.quadruple.run_id == run_id]

    def wake_mode(self) -> WakeMode:
        """The wake mode of the planner inside."""
        return resolve_wake_mode(self.planner)

    async def next(self, run: RunContext) -> Decision:
        """What the planner inside decides.

        Raises:
            BaseException: what it raises, cancellation included.
        """
        shown = _as_it_is(run)
        try:
            decision = await self.planner.next(run)
        except BaseException as error:
            self.calls.append(PlannerCall(shown, error=error))
            raise
        self.calls.append(PlannerCall(shown, decision))
        return decision


def _spoken(line: Line, run: RunContext) -> Decision:
    if isinstance(line, Exception):
        raise line
    return line(run) if callable(line) else line


def _as_it_is(run: RunContext) -> RunContext:
    """The context with a history that the run will not append to."""
    shown = copy.copy(run)
    if run.trajectory is not None:
        shown.trajectory = _copied(run.trajectory)
    return shown


def _copied(history: Trajectory) -> Trajectory:
    fields = {name: getattr(history, name) for name in history.__struct_fields__}
    return Trajectory(**{name: copy.copy(value) for name, value in fields.items()})
