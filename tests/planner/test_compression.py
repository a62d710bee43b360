"""When a history is summarised, in which order that is decided, and who hears of it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from harborage.events import EventType, TrajectoryCompressedPayload, TrajectoryCompressionFailedPayload
from harborage.identity import Quadruple
from harborage.planner import (
    Budget,
    CompressionRunner,
    EmptySummaryError,
    IdentityMissingError,
    InvalidConfigError,
    NilTrajectoryError,
    RunContext,
    Step,
    Summariser,
    Trajectory,
    TrajectorySummary,
    UnserializableError,
    default_token_estimator,
)

pytestmark = pytest.mark.anyio

WHO = Quadruple("t", "u", "s", "r")
AT = datetime(2026, 1, 1, tzinfo=UTC)


class Scripted:
    """A summariser that gives what it was told to, and remembers who asked."""

    def __init__(self, result=None):
        self.result = TrajectorySummary(note="short") if result is None else result
        self.calls = []

    async def summarise(self, run, trajectory):
        """The scripted result."""
        self.calls.append((run, trajectory))
        if isinstance(self.result, BaseException):
            raise self.result
        return None if self.result == "nothing" else self.result


class Estimate:
    """An estimator that gives what it was told to, and counts."""

    def __init__(self, result):
        self.result = result
        self.seen = []

    def __call__(self, trajectory):
        self.seen.append(trajectory)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def context(budget: int = 10, *, who: Quadruple = WHO, events: list | None = None) -> RunContext:
    """A run with that token budget, whose events land in `events`."""
    emit = None if events is None else events.append
    return RunContext(quadruple=who, budget=Budget(token_budget=budget), emit=emit, clock=lambda: AT)


def history(count: int = 3) -> Trajectory:
    """A history of so many steps."""
    return Trajectory(query="q", steps=[Step(observation=f"output {number}") for number in range(count)])


# --- the default estimate


def test_the_estimate_is_a_quarter_of_the_bytes():
    """The default estimate is the serialised size over four, plus one."""
    for trajectory in (Trajectory(), history(), Trajectory(query="äöü")):
        assert default_token_estimator(trajectory) == len(trajectory.serialize()) // 4 + 1


def test_nothing_cannot_be_estimated():
    """Without a history there is no estimate, rather than a zero."""
    with pytest.raises(NilTrajectoryError):
        default_token_estimator(None)


def test_an_unserialisable_history_has_no_estimate():
    """What cannot be serialised cannot be estimated; the path is kept."""
    with pytest.raises(UnserializableError) as caught:
        default_token_estimator(Trajectory(llm_context={"k": object()}))
    assert caught.value.field == "Trajectory.llm_context.k"


# --- construction


def test_a_runner_needs_a_summariser():
    """A missing summariser is found when the runner is built."""
    with pytest.raises(InvalidConfigError):
        CompressionRunner(None)


async def test_no_estimator_means_the_default():
    """Without an estimator, or with None, the default one decides."""
    for options in ({}, {"token_estimator": None}):
        summariser = Scripted()
        trajectory = history()
        budget = default_token_estimator(trajectory)
        await CompressionRunner(summariser, **options).maybe_compress(context(budget), trajectory)
        assert not summariser.calls
        await CompressionRunner(summariser, **options).maybe_compress(context(budget - 1), trajectory)
        assert len(summariser.calls) == 1


def test_a_summariser_is_structural():
    """Any object with `summarise` will do."""
    assert isinstance(Scripted(), Summariser)


# --- the happy path


async def test_a_history_over_budget_gets_a_summary():
    """The summary is stamped, the steps stay, and the event says what was found."""
    events, summariser, trajectory = [], Scripted(), history()
    run = context(10, events=events)
    await CompressionRunner(summariser, token_estimator=Estimate(11)).maybe_compress(run, trajectory)
    assert trajectory.summary is summariser.result
    assert trajectory.steps == history().steps
    assert trajectory.steps_summarised == 3
    assert summariser.calls == [(run, trajectory)]
    (event,) = events
    assert (event.type, event.identity, event.occurred_at) == (EventType.TRAJECTORY_COMPRESSED, WHO, AT)
    assert event.payload == TrajectoryCompressedPayload(
        identity=WHO, steps_before=3, steps_after=3, token_estimate=11, occurred_at=AT
    )


@pytest.mark.parametrize(("estimate", "calls"), [(9, 0), (10, 0), (11, 1)])
async def test_only_strictly_over_budget(estimate, calls):
    """An estimate equal to the budget is still within it."""
    summariser, events = Scripted(), []
    runner = CompressionRunner(summariser, token_estimator=Estimate(estimate))
    await runner.maybe_compress(context(10, events=events), history())
    assert (len(summariser.calls), len(events)) == (calls, calls)


@pytest.mark.parametrize("budget", [0, -1])
async def test_no_budget_no_summary(budget):
    """Without a budget nothing is summarised, however large the history; the estimator has run by then."""
    summariser, estimate = Scripted(), Estimate(10**9)
    await CompressionRunner(summariser, token_estimator=estimate).maybe_compress(context(budget), history())
    assert not summariser.calls
    assert len(estimate.seen) == 1


async def test_a_second_call_does_nothing():
    """A history is summarised once: the second call neither estimates nor summarises nor tells."""
    summariser, estimate, events, trajectory = Scripted(), Estimate(99), [], history()
    runner = CompressionRunner(summariser, token_estimator=estimate)
    for _ in range(3):
        await runner.maybe_compress(context(events=events), trajectory)
    assert (len(summariser.calls), len(estimate.seen), len(events)) == (1, 1, 1)


async def test_an_empty_summary_is_accepted():
    """A summary without any content is a summary; only None is none."""
    trajectory = history()
    await CompressionRunner(Scripted(TrajectorySummary()), token_estimator=Estimate(11)).maybe_compress(
        context(), trajectory
    )
    assert trajectory.summary == TrajectorySummary()


async def test_nobody_needs_to_listen():
    """Without an emitter the summary is made all the same, and failures are still raised."""
    trajectory = history()
    await CompressionRunner(Scripted(), token_estimator=Estimate(11)).maybe_compress(context(), trajectory)
    assert trajectory.summary is not None
    with pytest.raises(EmptySummaryError):
        await CompressionRunner(Scripted("nothing"), token_estimator=Estimate(11)).maybe_compress(context(), history())


# --- the order of the checks


async def test_cancellation_comes_first():
    """A cancelled caller is told before anything else is looked at, and no event tells of it."""
    summariser, estimate, events = Scripted(), Estimate(11), []
    runner = CompressionRunner(summariser, token_estimator=estimate)

    async def call():
        asyncio.current_task().cancel()
        await runner.maybe_compress(context(who=Quadruple(), events=events), None)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(call())
    assert (summariser.calls, estimate.seen, events) == ([], [], [])


@pytest.mark.parametrize("part", ["tenant_id", "user_id", "session_id", "run_id"])
async def test_then_identity(part):
    """Each of the four parts is needed, and is asked for before the history."""
    parts = {"tenant_id": "t", "user_id": "u", "session_id": "s", "run_id": "r", part: ""}
    events = []
    with pytest.raises(IdentityMissingError, match=part):
        await CompressionRunner(Scripted()).maybe_compress(context(who=Quadruple(**parts), events=events), None)
    assert not events


async def test_then_the_history():
    """No history is an error of its own, without an event."""
    events, estimate = [], Estimate(11)
    with pytest.raises(NilTrajectoryError):
        await CompressionRunner(Scripted(), token_estimator=estimate).maybe_compress(context(events=events), None)
    assert (events, estimate.seen) == ([], [])


async def test_then_the_summary_that_is_there():
    """A history with a summary is left alone even by an estimator that would fail."""
    trajectory = history()
    trajectory.summary = TrajectorySummary()
    await CompressionRunner(Scripted(), token_estimator=Estimate(ValueError("no"))).maybe_compress(
        context(), trajectory
    )
    assert trajectory.summary == TrajectorySummary()


# --- failures


async def told(runner: CompressionRunner, trajectory: Trajectory, error: type[BaseException], budget: int = 10):
    """The error that compressing raises, and the payload of the one event that tells of it."""
    events = []
    with pytest.raises(error) as caught:
        await runner.maybe_compress(context(budget, events=events), trajectory)
    (event,) = events
    assert event.type == EventType.TRAJECTORY_COMPRESSION_FAILED
    assert trajectory.summary is None
    assert trajectory.steps_summarised == 0
    return caught.value, event.payload


async def test_an_estimator_that_fails():
    """The estimator's own error is raised with a note and told with an estimate of zero, also without a budget."""
    error = ValueError("cannot count")
    runner = CompressionRunner(Scripted(), token_estimator=Estimate(error))
    raised, payload = await told(runner, history(), ValueError, budget=0)
    assert raised is error
    assert raised.__notes__ == ["while estimating the size of the trajectory"]
    assert payload == TrajectoryCompressionFailedPayload(
        identity=WHO,
        steps_observed=3,
        token_estimate=0,
        error_code="estimator_error",
        error_message="cannot count",
        occurred_at=AT,
    )


async def test_an_unserialisable_history_is_an_estimator_error():
    """With the default estimator, what cannot be serialised is told as an estimator error with its path."""
    trajectory = Trajectory(steps=[Step(observation=object())])
    raised, payload = await told(CompressionRunner(Scripted()), trajectory, UnserializableError)
    assert raised.field == "Trajectory.steps[0].observation"
    assert payload.error_code == "estimator_error"


async def test_a_summariser_that_fails():
    """The summariser's own error is raised with a note and told with the estimate."""
    error = RuntimeError("model down")
    runner = CompressionRunner(Scripted(error), token_estimator=Estimate(11))
    raised, payload = await told(runner, history(), RuntimeError)
    assert raised is error
    assert raised.__notes__ == ["while summarising the trajectory"]
    assert (payload.error_code, payload.token_estimate, payload.error_message) == ("summariser_error", 11, "model down")


async def test_a_summariser_that_gives_nothing():
    """None without an error is a breach of the contract and ends as an error of its own."""
    runner = CompressionRunner(Scripted("nothing"), token_estimator=Estimate(11))
    _, payload = await told(runner, history(), EmptySummaryError)
    assert (payload.error_code, payload.token_estimate, payload.steps_observed) == ("empty_summary", 11, 3)


async def test_a_cancelled_summariser_is_no_failure():
    """Cancellation while summarising passes through untold."""
    events, trajectory = [], history()
    runner = CompressionRunner(Scripted(asyncio.CancelledError()), token_estimator=Estimate(11))
    with pytest.raises(asyncio.CancelledError):
        await runner.maybe_compress(context(events=events), trajectory)
    assert (events, trajectory.summary) == ([], None)


@pytest.mark.parametrize(
    ("message", "told_as"),
    [("x" * 256, "x" * 256), ("x" * 257, "x" * 253 + "..."), ("ä" * 129, "ä" * 126 + "..."), ("", "")],
)
async def test_long_messages_are_cut(message, told_as):
    """A message of more than 256 bytes is cut to 253 and three dots, never inside a character."""
    runner = CompressionRunner(Scripted(RuntimeError(message)), token_estimator=Estimate(11))
    _, payload = await told(runner, history(), RuntimeError)
    assert payload.error_message == told_as
    assert len(payload.error_message.encode()) <= 256


async def test_a_deaf_listener_changes_nothing(caplog):
    """An emitter that fails is logged; the summary stands."""

    def emit(event):
        raise OSError("bus gone")

    trajectory = history()
    run = context()
    run.emit = emit
    await CompressionRunner(Scripted(), token_estimator=Estimate(11)).maybe_compress(run, trajectory)
    assert trajectory.summary is not None
    assert "planner event not published" in caplog.text


# --- again


async def test_again_without_a_summary_is_the_same():
    """Asking for it again makes no difference as long as there is no summary."""
    trajectory, summariser = history(), Scripted()
    runner = CompressionRunner(summariser, token_estimator=Estimate(10))
    await runner.maybe_compress(context(), trajectory, again=True)
    assert not summariser.calls


async def test_again_once_the_new_steps_outgrow_the_budget():
    """Only the steps after the summary count, and the summariser sees the old summary with them."""
    trajectory, summariser, events = history(50), Scripted(), []
    runner, run = CompressionRunner(summariser), context(100, events=events)
    await runner.maybe_compress(run, trajectory, again=True)
    first = trajectory.summary
    trajectory.steps.append(Step(observation="small"))
    await runner.maybe_compress(run, trajectory, again=True)
    assert len(summariser.calls) == 1
    trajectory.steps.append(Step(observation="x" * 400))
    estimate = len(trajectory.recent().serialize()) // 4 + 1
    summariser.result = TrajectorySummary(note="longer")
    await runner.maybe_compress(run, trajectory)
    assert trajectory.summary is first
    await runner.maybe_compress(run, trajectory, again=True)
    assert (trajectory.summary.note, trajectory.steps_summarised) == ("longer", 52)
    assert [event.payload.token_estimate for event in events][1] == estimate
    await runner.maybe_compress(run, trajectory, again=True)
    assert len(summariser.calls) == 2


async def test_again_with_an_estimator_of_ones_own():
    """A custom estimator measures the new steps alone."""
    trajectory, estimate = history(2), Estimate(11)
    runner = CompressionRunner(Scripted(), token_estimator=estimate)
    await runner.maybe_compress(context(), trajectory)
    trajectory.steps.append(Step(observation="new"))
    await runner.maybe_compress(context(), trajectory, again=True)
    assert estimate.seen[1] == Trajectory(steps=[Step(observation="new")])
    assert trajectory.steps_summarised == 3


async def test_again_with_nothing_new_never_asks():
    """However small the budget, a history without new steps is not summarised twice."""
    trajectory, summariser = history(), Scripted()
    runner = CompressionRunner(summariser, token_estimator=Estimate(99))
    for _ in range(3):
        await runner.maybe_compress(context(1), trajectory, again=True)
    assert len(summariser.calls) == 1


# --- many at once


async def test_one_runner_serves_128_runs():
    """Concurrent runs each get their own summary and their own event."""

    class Echo:
        async def summarise(self, run, trajectory):
            await asyncio.sleep(0)
            return TrajectorySummary(note=f"{run.quadruple.run_id}/{trajectory.query}")

    runner = CompressionRunner(Echo())

    async def one(number: int) -> None:
        who, events = Quadruple("t", "u", "s", f"r-{number}"), []
        trajectory = Trajectory(query=f"q-{number}", steps=[Step(observation=number)])
        await runner.maybe_compress(context(1, who=who, events=events), trajectory)
        assert trajectory.summary.note == f"r-{number}/q-{number}"
        assert [event.payload.identity for event in events] == [who]

    await asyncio.gather(*(one(number) for number in range(128)))


# --- at once


@pytest.mark.parametrize("budget", [0, 10_000])
async def test_at_once_whatever_the_budget(budget):
    """A history that a model found too long is summarised now, told of like any other, and again when asked again."""
    trajectory, summariser, events = history(), Scripted(), []
    runner, run = CompressionRunner(summariser, token_estimator=Estimate(7)), context(budget, events=events)
    await runner.compress(run, trajectory)
    trajectory.steps.append(Step(observation="new"))
    await runner.compress(run, trajectory)
    assert (trajectory.summary, trajectory.steps_summarised) == (summariser.result, 4)
    assert [event.type for event in events] == [EventType.TRAJECTORY_COMPRESSED] * 2
    assert [(one.payload.steps_before, one.payload.token_estimate) for one in events] == [(3, 7), (4, 7)]
    assert len(summariser.calls) == 2


async def test_at_once_the_same_checks_come_first():
    """Cancellation, identity, the history; then the estimator and the summariser, whose failures are told."""
    events: list = []
    with pytest.raises(IdentityMissingError):
        await CompressionRunner(Scripted()).compress(context(who=Quadruple("t", "u", "s"), events=events), history())
    with pytest.raises(NilTrajectoryError):
        await CompressionRunner(Scripted()).compress(context(events=events), None)
    assert events == []
    for runner, code in (
        (CompressionRunner(Scripted(), token_estimator=Estimate(ValueError("no"))), "estimator_error"),
        (CompressionRunner(Scripted(ValueError("no"))), "summariser_error"),
        (CompressionRunner(Scripted("nothing")), "empty_summary"),
    ):
        trajectory = history()
        with pytest.raises((ValueError, EmptySummaryError)):
            await runner.compress(context(events=events), trajectory)
        assert events.pop().payload.error_code == code
        assert trajectory.summary is None
