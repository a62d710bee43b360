"""The execution of a workflow's function as a planner: it goes on to its next await, which is the next decision.

While the run is executed here the function stays where it is. In another process, or after one that died, it is
executed again from the top over what was recorded; it must await the same operations, or the run is left to the code
that began it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from harborage import codec
from harborage.app.workflow.errors import WorkflowChangedError, WorkflowInvalidError
from harborage.app.workflow.moments import Moment
from harborage.app.workflow.operations import Operation, Outcome, Wanted, WorkflowContext
from harborage.artifacts import ArtifactScope
from harborage.planner import AwaitTask, CallParallel, CallTool, Finish, FinishReason, SpawnTask
from harborage.planner.decisions import parallel_observation
from harborage.planner.trajectory import memoize_on
from harborage.tools.typed import IN_WORKFLOW

if TYPE_CHECKING:
    from datetime import datetime

    from harborage.planner import Decision, RunContext, Step

_HEAVY: Final = frozenset({"size_bytes", "truncated", "artifact_ref"})

Function = Callable[[WorkflowContext[Any], Any], Coroutine[Any, Any, Any]]


class _Marks(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the record of an operation says of the code before it: the seed of its numbers, the changes it took."""

    seed: str = ""
    changes: tuple[str, ...] = ()


_NO_MARKS: Final = _Marks()


class WorkflowPlanner:
    """Decides the steps of runs by the function of a workflow. One instance serves any number of runs at once.

    `read_goal` makes what the function gets of the run's goal, `write` the payload of what it returns; `known` are the
    tools and agents that it may use.
    """

    def __init__(
        self,
        name: str,
        function: Function,
        known: frozenset[str],
        *,
        read_goal: Callable[[str], Any],
        write: Callable[[Any], Any],
    ) -> None:
        self._name = name
        self._function = function
        self._known = known
        self._read_goal = read_goal
        self._write = write

    async def next(self, run: RunContext) -> Decision:
        """Return the next operation that the function awaits, or the finish with what it returned.

        Raises:
            WorkflowChangedError: the function awaits something else than was recorded; the run is kept.
            WorkflowInvalidError: it awaits something that is no operation of a workflow.
            Exception: what the function raised.
        """
        if run.control.cancelled:
            return Finish(FinishReason.CANCELLED)
        execution = memoize_on(run.trajectory, f"workflow.{self._name}", self._begin)
        return await execution.next(run)

    def _begin(self) -> _Execution:
        return _Execution(self._name, self._function, self._known, self._read_goal, self._write)


class _Execution:
    """One run of the function, as far as it has come."""

    def __init__(
        self,
        name: str,
        function: Function,
        known: frozenset[str],
        read_goal: Callable[[str], Any],
        write: Callable[[Any], Any],
    ) -> None:
        self._name = name
        self._function = function
        self._known = known
        self._read_goal = read_goal
        self._write = write
        self._context: WorkflowContext[Any] | None = None
        self._code: Coroutine[Any, Any, Any] | None = None
        self._wanted: Operation | None = None
        self._finish: Finish | None = None
        self._done = 0
        self._taken: dict[str, bool] = {}
        self._messages: deque[str] = deque()
        self._heard = 0

    async def next(self, run: RunContext) -> Decision:
        """Give the function the results of the steps that it has not seen, and return what it awaits then."""
        steps = [] if run.trajectory is None else run.trajectory.steps
        if self._context is None:
            self._context = WorkflowContext(run.quadruple.run_id, self._known)
            self._code = self._function(self._context, self._read_goal(run.query or run.goal))
            self._advance(None, run, steps)
        while self._finish is None and self._done < len(steps):
            step = steps[self._done]
            self._check(step, run)
            outcomes = await _outcomes(step, run)
            self._done += 1
            self._advance(outcomes, run, steps)
        if self._finish is not None:
            self._check_end(steps, run)
            return self._finish
        return self._decision()

    def _advance(self, outcomes: list[Outcome] | None, run: RunContext, steps: list[Step]) -> None:
        """Execute the function up to its next operation."""
        assert self._context is not None
        assert self._code is not None
        self._hear(run)
        is_new = self._done >= len(steps)
        marks = _NO_MARKS if is_new else _marks_of(steps[self._done].action)
        changes = None if is_new else frozenset(marks.changes)
        at = _now(run) if is_new else steps[self._done].started_at
        seed = f"{run.quadruple.run_id}/{self._done}/{at.isoformat()}"  # what a replay has, too
        self._context._moment = Moment(at, marks.seed or seed, changes, self._taken, self._messages)
        token = IN_WORKFLOW.set(self._name)
        try:
            yielded = self._code.send(outcomes)
        except StopIteration as stop:
            self._finish = Finish(FinishReason.GOAL, self._write(stop.value))
            return
        finally:
            IN_WORKFLOW.reset(token)
        if not isinstance(yielded, Wanted):
            self._refuse(yielded)
        self._wanted = yielded.operation

    def _hear(self, run: RunContext) -> None:
        """Take the messages that had come when the code that is executed next was first executed."""
        notes = [] if run.trajectory is None else run.trajectory.steering_inputs
        while self._heard < len(notes) and notes[self._heard].at_step <= self._done:
            note = notes[self._heard]
            self._heard += 1
            if note.kind == "user_message":
                self._messages.append(str(note.payload.get("message", "")))

    def _refuse(self, yielded: object) -> None:
        """Refuse to wait for what no record holds.

        Raises:
            WorkflowInvalidError: always; it names what was awaited.
        """
        assert self._code is not None
        name = _awaited(self._code)
        if isinstance(yielded, asyncio.Future):
            yielded.cancel()
        self.close()
        fix = _INSTEAD.get(name, "put it into a tool, and await ctx.call(…)")
        raise WorkflowInvalidError(f"the workflow {self._name!r} awaits {name}, which is not recorded: {fix}")

    def _decision(self) -> Decision:
        """The operation that the function awaits, marked with what its record must hold of the code before it."""
        assert self._wanted is not None
        assert self._context is not None
        moment = self._context._moment
        assert moment is not None
        marks = _Marks(seed=moment.used_seed, changes=tuple(moment.marks))
        if marks == _NO_MARKS:
            return self._wanted
        text = codec.encode_text(codec.to_plain(marks))
        match self._wanted:
            case CallTool():
                return replace(self._wanted, call_id=text)
            case CallParallel(branches=branches):
                return replace(self._wanted, branches=(replace(branches[0], call_id=text), *branches[1:]))
            case _:
                return self._wanted

    def _check(self, step: Step, run: RunContext) -> None:
        """Accept a recorded step that is what the function awaits.

        Raises:
            WorkflowChangedError: it is another one.
        """
        recorded, asked = _shown(step.action), _shown(self._wanted)
        if recorded != asked:
            at = str(self._done + 1)
            raise WorkflowChangedError(run.quadruple.run_id, at, recorded, asked, self._name)

    def _check_end(self, steps: list[Step], run: RunContext) -> None:
        """Accept that the function has returned: behind its end stand only waits for the children that it left.

        Raises:
            WorkflowChangedError: more was recorded.
        """
        left = next((step for step in steps[self._done :] if not isinstance(step.action, AwaitTask)), None)
        if left is not None:
            at, asked = str(self._done + 1), "nothing more"
            raise WorkflowChangedError(run.quadruple.run_id, at, _shown(left.action), asked, self._name)

    def close(self) -> None:
        """Leave the function where it is; what it would await in its cleanup is not done."""
        if self._code is not None:
            with suppress(RuntimeError):
                self._code.close()

    def __del__(self) -> None:
        self.close()


_INSTEAD: Final = {
    "asyncio.tasks.sleep": "write await ctx.sleep(timedelta(…))",
    "asyncio.tasks.gather": "write await ctx.gather(ctx.call(…), …)",
    "asyncio.tasks.wait_for": "a tool has a timeout of its own: @tool(timeout=…)",
}


def _now(run: RunContext) -> datetime:
    return run.now() if run.started_at is None else run.started_at


async def _outcomes(step: Step, run: RunContext) -> list[Outcome]:
    """The outcome of each call of a step."""
    match step.action:
        case CallParallel(branches=branches):
            joined = parallel_observation(step.observation)
            if joined is None:
                return [Outcome(error=step.error or "it was not made", status="failed")] * len(branches)
            found = {one.index: one for one in joined.branches}
            statuses = step.statuses or ("done",) * len(branches)
            return [
                Outcome(await _whole(found[at].value, run), found[at].error, statuses[at])
                if at in found
                else Outcome(error="it was not made", status="failed")
                for at in range(len(branches))
            ]
        case SpawnTask() if isinstance(step.observation, dict) and "task_id" not in step.observation:
            return [Outcome(error=str(step.observation.get("error", "it was not started")), status="failed")]
        case _:
            status = step.statuses[0] if step.statuses else ""
            return [Outcome(await _whole(step.observation, run), step.error, status)]


async def _whole(value: Any, run: RunContext) -> Any:
    """A result that was too large for the record, read from the artifact that keeps it."""
    if not isinstance(value, dict) or not value.keys() >= _HEAVY or run.artifacts is None:
        return value
    ref = str(value["artifact_ref"])
    for scope in (ArtifactScope.of(run.quadruple), ArtifactScope.of(run.quadruple, run.quadruple.run_id)):
        data = await run.artifacts.get(scope, ref)
        if data is not None:
            try:
                return codec.decode(data)
            except msgspec.DecodeError:
                return data.decode("utf-8", "replace")
    raise WorkflowInvalidError(f"the result of a call is not there any more: artifact {ref}")


def _marks_of(action: object) -> _Marks:
    match action:
        case CallTool(call_id=text) | CallParallel(branches=(CallTool(call_id=text), *_)):
            try:
                marks: _Marks = codec.decode(text, _Marks) if text else _NO_MARKS
            except (msgspec.MsgspecError, UnicodeError):
                return _NO_MARKS
            return marks
        case _:
            return _NO_MARKS


def _shown(operation: object) -> str:
    """An operation as a text, by which two are compared."""
    match operation:
        case CallTool(tool=tool, args=args):
            return f"{tool}({_plain(args)})"
        case CallParallel(branches=branches):
            return f"gather({', '.join(_shown(one) for one in branches)})"
        case SpawnTask(spec=spec):
            return f"spawn({spec.agent}, {spec.query!r})"
        case AwaitTask(task_id=task_id):
            return f"the end of {task_id}"
        case _:
            return type(operation).__name__


def _plain(args: bytes) -> str:
    try:
        return codec.encode_text(codec.decode(args))
    except (msgspec.DecodeError, UnicodeError):
        return args.decode("utf-8", "replace")


def _awaited(code: Any) -> str:
    """The name of the innermost thing that a coroutine awaits."""
    inner = code
    while (following := getattr(inner, "cr_await", None)) is not None and inspect.iscoroutine(following):
        inner = following
    if inner is not code:
        return f"{inner.cr_frame.f_globals.get('__name__', '')}.{inner.__qualname__}" if inner.cr_frame else str(inner)
    awaited = getattr(code, "cr_await", None)
    return type(awaited).__name__ if awaited is not None else "something"
