"""When a history has outgrown its budget, a summary takes its place in the prompt; the steps themselves stay.

The runner keeps nothing between calls and serves any number of runs. A summary that could not be made is an event and
an error, never silence. `mechanical_fold` is the summary that needs no model: the ends of a history, and the hash of
every output it leaves out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, runtime_checkable

import msgspec

from harborage import codec
from harborage.callables import require_async, require_sync
from harborage.errors import error_text
from harborage.events import EventType, TrajectoryCompressedPayload, TrajectoryCompressionFailedPayload
from harborage.planner.context import publish, raise_if_cancelled, require_identity
from harborage.planner.decisions import AwaitTask, CallParallel, CallTool, SpawnTask, decision_kind
from harborage.planner.errors import EmptySummaryError, InvalidConfigError, NilTrajectoryError
from harborage.planner.text import clip
from harborage.planner.trajectory import Step, Trajectory, TrajectorySummary

if TYPE_CHECKING:
    from harborage.planner.context import RunContext

TokenEstimator: TypeAlias = Callable[[Trajectory | None], int]
"""How many tokens a history takes in a prompt, roughly."""


@runtime_checkable
class Summariser(Protocol):
    """Turns a history into a summary. Safe for concurrent runs."""

    async def summarise(self, run: RunContext, trajectory: Trajectory) -> TrajectorySummary | None:
        """Summarise the whole history; a `trajectory.summary` covers its first `trajectory.steps_summarised` steps.

        Raises:
            Exception: no summary could be made. Never: returns None, which ends in EmptySummaryError.
        """
        ...


def default_token_estimator(trajectory: Trajectory | None) -> int:
    """Estimate a quarter of the serialised bytes, plus one. Each step is measured once, however often this is called.

    Raises:
        NilTrajectoryError: there is no history to measure.
        UnserializableError: a value in it cannot become JSON.
    """
    if trajectory is None:
        raise NilTrajectoryError
    return trajectory.serialized_size() // 4 + 1


class CompressionRunner:
    """Summarises a history that has outgrown the run's token budget, once unless called with `again`.

    Raises:
        InvalidConfigError: there is no summariser, or it has no method `summarise`.
        CallbackKindError: the summariser is not async, or the estimator is.
    """

    def __init__(self, summariser: Summariser, *, token_estimator: TokenEstimator | None = None) -> None:
        if summariser is None:
            raise InvalidConfigError("CompressionRunner needs a summariser; leave the runner out to never compress")
        if not hasattr(summariser, "summarise"):
            raise InvalidConfigError(
                f"the summariser is a {type(summariser).__name__}; "
                "give an object with the method async def summarise(run, trajectory)"
            )
        require_async(summariser.summarise, "summariser.summarise")
        require_sync(token_estimator, "token_estimator")
        self._summariser = summariser
        self._estimator = default_token_estimator if token_estimator is None else token_estimator

    async def maybe_compress(self, run: RunContext, trajectory: Trajectory | None, *, again: bool = False) -> None:
        """Set `trajectory.summary` if the history is larger than `run.budget.token_budget`.

        A history with a summary stays as it is, unless `again` is set and the steps after it outgrow the budget.

        Raises:
            asyncio.CancelledError: the caller was cancelled; reported first.
            IdentityMissingError: a part of the run's identity is empty.
            NilTrajectoryError: there is no trajectory.
            EmptySummaryError: the summariser returned None; published as `trajectory.compression_failed`.
            Exception: what the estimator or the summariser raised, with a note; published in the same way.
        """
        known = _require_trajectory(run, trajectory)
        if estimate := self._excess(run, known, again=again):
            await self._compress(run, known, estimate)

    def surely_fits(self, run: RunContext, trajectory: Trajectory, *, again: bool = False) -> bool:
        """Whether `maybe_compress` would change nothing, by the built-in estimate. False says nothing: an estimator of
        another kind is code of a user, and only asked where its failure is awaited.
        """
        return self._estimator is default_token_estimator and not self._excess(run, trajectory, again=again)

    def _excess(self, run: RunContext, known: Trajectory, *, again: bool) -> int:
        """Return the estimated tokens of a history that is larger than the budget; 0 for one that stays as it is."""
        if known.summary is not None and not (again and len(known.steps) > known.steps_summarised):
            return 0
        estimate = self._estimate(run, known)
        return estimate if 0 < run.budget.token_budget < estimate else 0

    async def compress(self, run: RunContext, trajectory: Trajectory | None) -> None:
        """Set a new `trajectory.summary` whatever the budget: for a history that is too long for the model.

        Raises:
            Exception: as for `maybe_compress`.
        """
        known = _require_trajectory(run, trajectory)
        await self._compress(run, known, self._estimate(run, known))

    async def _compress(self, run: RunContext, trajectory: Trajectory, estimate: int) -> None:
        apply_summary(run, trajectory, await self._summarise(run, trajectory, estimate), estimate)

    def _estimate(self, run: RunContext, trajectory: Trajectory) -> int:
        """Estimate the tokens of the history, or of the steps after its summary."""
        try:
            if trajectory.summary is None:
                return self._estimator(trajectory)
            if self._estimator is default_token_estimator:
                return trajectory.recent_size() // 4 + 1
            return self._estimator(trajectory.recent())
        except Exception as error:
            _publish_failure(run, trajectory, 0, "estimator_error", error_text(error))
            error.add_note("while estimating the size of the trajectory")
            raise

    async def _summarise(self, run: RunContext, trajectory: Trajectory, estimate: int) -> TrajectorySummary:
        try:
            summary = _checked(await self._summariser.summarise(run, trajectory))
        except Exception as error:
            _publish_failure(run, trajectory, estimate, "summariser_error", error_text(error))
            error.add_note("while summarising the trajectory")
            raise
        if summary is None:
            empty = EmptySummaryError()
            _publish_failure(run, trajectory, estimate, "empty_summary", str(empty))
            raise empty
        return summary


def _checked(summary: object) -> TrajectorySummary | None:
    """The summary that user code returned, if it is one and can be recorded."""
    if summary is None:
        return None
    if not isinstance(summary, TrajectorySummary):
        raise TypeError(f"the summariser returned a {type(summary).__name__}, not a TrajectorySummary")
    msgspec.convert(codec.to_plain(summary), TrajectorySummary)
    return summary


def apply_summary(run: RunContext, trajectory: Trajectory, summary: TrajectorySummary, estimate: int) -> None:
    """Replace all steps so far by `summary` in the prompt, and publish that; `estimate` is their size in tokens."""
    before = len(trajectory.steps)
    trajectory.summarise(summary)
    compressed = TrajectoryCompressedPayload(
        identity=run.quadruple,
        steps_before=before,
        steps_after=len(trajectory.steps),
        token_estimate=estimate,
        occurred_at=run.now(),
    )
    publish(run, EventType.TRAJECTORY_COMPRESSED, compressed)


def _require_trajectory(run: RunContext, trajectory: Trajectory | None) -> Trajectory:
    raise_if_cancelled()
    require_identity(run, "compression")
    if trajectory is None:
        raise NilTrajectoryError
    return trajectory


def _publish_failure(run: RunContext, trajectory: Trajectory, estimate: int, code: str, message: str) -> None:
    failed = TrajectoryCompressionFailedPayload(
        identity=run.quadruple,
        steps_observed=len(trajectory.steps),
        token_estimate=estimate,
        error_code=code,
        error_message=clip(message),
        occurred_at=run.now(),
    )
    publish(run, EventType.TRAJECTORY_COMPRESSION_FAILED, failed)


_HEAD: Final = 4
_TAIL: Final = 12
_ARGS_CHARS: Final = 80
_OUTPUT_CHARS: Final = 200
_GOAL_CHARS: Final = 2_000
_MESSAGE_CHARS: Final = 500
_GOAL_KINDS: Final = frozenset({"user_message", "redirect"})


def mechanical_fold(trajectory: Trajectory) -> TrajectorySummary:
    """Summarise without a model: goals and the user's messages, one line a step, tasks not yet awaited.

    The summary is bounded however long the history is, equal for equal histories, and extends the earlier one. Each
    output appears with its size and hash, so that what was cut can be recognised. Never: fails.
    """
    earlier = TrajectorySummary() if trajectory.summary is None else trajectory.summary
    first = trajectory.steps_summarised if trajectory.summary is not None else 0
    return TrajectorySummary(
        goals=_ends(_unique([*earlier.goals, *_goals(trajectory, first)])),
        facts=_ends([*earlier.facts, *_facts(trajectory, first)]),
        pending=_ends(_unique(_pending(earlier.pending, trajectory.steps[first:]))),
        last_output_digest=_digest(trajectory.steps[-1]) if trajectory.steps else earlier.last_output_digest,
        note=f"Made without a model: {len(trajectory.steps)} steps; outputs are cut, each with its size and hash.",
    )


def _goals(trajectory: Trajectory, first: int) -> Iterator[str]:
    """Yield the request, then the redirects and the user's messages since step `first`.

    A message after the last step is shown beside the summary, so it is not in it.
    """
    if trajectory.query:
        yield _cut_line(trajectory.query, _GOAL_CHARS)
    for injection in trajectory.steering_inputs:
        match injection.kind, injection.payload:
            case "redirect", {"goal": str(goal)} if goal and injection.at_step >= first:
                yield _cut_line(goal, _GOAL_CHARS)
            case "user_message", {"message": str(message)} if first <= injection.at_step < len(trajectory.steps):
                yield f"the user said: {_cut_line(message, _MESSAGE_CHARS)}"


def _facts(trajectory: Trajectory, first: int) -> Iterator[str]:
    """Yield one line for each step from `first` on, each after the other controls that arrived before it."""
    inputs = [one for one in trajectory.steering_inputs if one.kind not in _GOAL_KINDS and one.at_step >= first]
    for index in range(first, len(trajectory.steps)):
        while inputs and inputs[0].at_step <= index:
            injection = inputs.pop(0)
            yield f"{injection.kind}: {_cut_line(_text(injection.payload), _MESSAGE_CHARS)}"
        yield _step_line(index + 1, trajectory.steps[index])


def _pending(earlier: Sequence[str], steps: Sequence[Step]) -> Iterator[str]:
    """Yield the tasks that were started, earlier or by these steps, and that no step has awaited."""
    awaited = {step.action.task_id for step in steps if isinstance(step.action, AwaitTask)}
    ended = tuple(_task_line(task) for task in awaited)
    yield from (line for line in earlier if not line.startswith(ended))
    for step in steps:
        if not isinstance(step.action, SpawnTask) or not isinstance(step.observation, Mapping):
            continue
        task = step.observation.get("task_id")
        if isinstance(task, str) and task not in awaited:
            yield f"{_task_line(task)}{_cut_line(step.action.spec.query or step.action.spec.description)}"


def _task_line(task: str) -> str:
    return f"task {task} was started: "


def _step_line(number: int, step: Step) -> str:
    size, digest, text = _output(step)
    return f"step {number}: {_describe_action(step.action)} -> {size} bytes sha256:{digest[:12]} {_cut_line(text)}"


def _describe_action(action: Any) -> str:
    match action:
        case CallTool():
            return f"{action.tool}({_cut_line(action.args.decode('utf-8', 'replace'), _ARGS_CHARS)})"
        case CallParallel():
            # With their arguments: a planner that cannot see which calls were made makes them again.
            return f"CallParallel({', '.join(map(_describe_action, action.branches))})"
        case {"type": str(kind)}:
            return kind
        case _:
            return decision_kind(action)


def _digest(step: Step) -> str:
    size, digest, _ = _output(step)
    return f"sha256:{digest} ({size} bytes)"


def _output(step: Step) -> tuple[int, str, str]:
    """Return size in bytes, hash and text of what the planner saw of a step."""
    seen = step.observation if step.llm_observation is None else step.llm_observation
    text = step.error if seen is None and step.error else _text(seen)
    encoded = text.encode("utf-8", "replace")
    return len(encoded), hashlib.sha256(encoded).hexdigest(), text


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return codec.encode_text(value)
    except Exception:  # noqa: BLE001 - a fold must not fail; what has no JSON form is named by its type
        return f"<{type(value).__name__} without a JSON form>"


def _cut_line(text: str, limit: int = _OUTPUT_CHARS) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= limit else one_line[:limit] + "…"


def _unique(lines: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(lines))


def _ends(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the lines, or their two ends around a count of those left out."""
    if len(lines) <= _HEAD + _TAIL + 1:
        return tuple(lines)
    return (*lines[:_HEAD], f"… {len(lines) - _HEAD - _TAIL} lines left out …", *lines[-_TAIL:])
