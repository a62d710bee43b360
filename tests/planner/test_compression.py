"""Compression of a history that has outgrown its budget, and the summary that needs no model."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.events import EventType, TrajectoryCompressedPayload, TrajectoryCompressionFailedPayload
from harborage.identity import Quadruple
from harborage.planner import (
    AwaitTask,
    Budget,
    CallParallel,
    CallTool,
    CompressionRunner,
    EmptySummaryError,
    IdentityMissingError,
    InvalidConfigError,
    NilTrajectoryError,
    RunContext,
    SpawnSpec,
    SpawnTask,
    SteeringInjection,
    Step,
    Summariser,
    Trajectory,
    TrajectorySummary,
    UnserializableError,
    default_token_estimator,
    mechanical_fold,
)
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

WHO = Quadruple("t", "u", "s", "r")
AT = datetime(2026, 1, 1, tzinfo=UTC)


class Scripted:
    """A summariser with a fixed result that records its callers."""

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
    """An estimator with a fixed result that counts its calls."""

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


@each_row("estimate, calls", [(9, 0), (10, 0), (11, 1)])
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


async def test_no_listener_is_needed():
    """Without an emitter the summary is made all the same, and failures are still raised."""
    trajectory = history()
    await CompressionRunner(Scripted(), token_estimator=Estimate(11)).maybe_compress(context(), trajectory)
    assert trajectory.summary is not None
    with pytest.raises(EmptySummaryError):
        await CompressionRunner(Scripted("nothing"), token_estimator=Estimate(11)).maybe_compress(context(), history())


# --- the order of the checks


async def test_cancellation_comes_first():
    """A cancelled caller gets its cancellation before anything else, and no event is published."""
    summariser, estimate, events = Scripted(), Estimate(11), []
    runner = CompressionRunner(summariser, token_estimator=estimate)

    async def call():
        asyncio.current_task().cancel()
        await runner.maybe_compress(context(who=Quadruple(), events=events), None)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(call())
    assert (summariser.calls, estimate.seen, events) == ([], [], [])


@each_row("part", ["tenant_id", "user_id", "session_id", "run_id"])
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


async def compression_failure(
    runner: CompressionRunner, trajectory: Trajectory, error: type[BaseException], budget: int = 10
):
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
    """The estimator's own error is raised with a note and published with an estimate of zero, also without a budget."""
    error = ValueError("cannot count")
    runner = CompressionRunner(Scripted(), token_estimator=Estimate(error))
    raised, payload = await compression_failure(runner, history(), ValueError, budget=0)
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
    """With the default estimator, what cannot be serialised is published as an estimator error with its path."""
    trajectory = Trajectory(steps=[Step(observation=object())])
    raised, payload = await compression_failure(CompressionRunner(Scripted()), trajectory, UnserializableError)
    assert raised.field == "Trajectory.steps[0].observation"
    assert payload.error_code == "estimator_error"


async def test_a_summariser_that_fails():
    """The summariser's own error is raised with a note and published with the estimate."""
    error = RuntimeError("model down")
    runner = CompressionRunner(Scripted(error), token_estimator=Estimate(11))
    raised, payload = await compression_failure(runner, history(), RuntimeError)
    assert raised is error
    assert raised.__notes__ == ["while summarising the trajectory"]
    assert (payload.error_code, payload.token_estimate, payload.error_message) == ("summariser_error", 11, "model down")


async def test_a_summariser_that_gives_nothing():
    """None without an error is a breach of the contract and ends as an error of its own."""
    runner = CompressionRunner(Scripted("nothing"), token_estimator=Estimate(11))
    _, payload = await compression_failure(runner, history(), EmptySummaryError)
    assert (payload.error_code, payload.token_estimate, payload.steps_observed) == ("empty_summary", 11, 3)


async def test_a_cancelled_summariser_is_no_failure():
    """Cancellation while summarising passes through untold."""
    events, trajectory = [], history()
    runner = CompressionRunner(Scripted(asyncio.CancelledError()), token_estimator=Estimate(11))
    with pytest.raises(asyncio.CancelledError):
        await runner.maybe_compress(context(events=events), trajectory)
    assert (events, trajectory.summary) == ([], None)


@each_row(
    "message, told_as",
    [("x" * 256, "x" * 256), ("x" * 257, "x" * 253 + "..."), ("ä" * 129, "ä" * 126 + "..."), ("", "")],
)
async def test_long_messages_are_cut(message, told_as):
    """A message of more than 256 bytes is cut to 253 and three dots, never inside a character."""
    runner = CompressionRunner(Scripted(RuntimeError(message)), token_estimator=Estimate(11))
    _, payload = await compression_failure(runner, history(), RuntimeError)
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
    """A history that is too long for the model is summarised at once, published, and again at the next call."""
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
    """Cancellation, identity, the history; then the estimator and the summariser, whose failures are published."""
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


def search_history(count: int) -> Trajectory:
    """A history of so many searches."""
    return Trajectory(
        query="find it",
        steps=[
            Step(action=CallTool("search", b'{"n":%d}' % n), observation=f"output {n}") for n in range(1, count + 1)
        ],
    )


def test_an_empty_history():
    """Nothing folds to almost nothing."""
    fold = mechanical_fold(Trajectory())
    assert (fold.goals, fold.facts, fold.pending, fold.last_output_digest) == ((), (), (), "")
    assert "0 steps" in fold.note


def test_a_short_history_is_listed_whole():
    """Each step is a line: what was done, how large the output was, its hash, and how it begins."""
    fold = mechanical_fold(search_history(2))
    digest = hashlib.sha256(b"output 1").hexdigest()
    assert fold.goals == ("find it",)
    assert len(fold.facts) == 2
    assert fold.facts[0] == f'step 1: search({{"n":1}}) -> 8 bytes sha256:{digest[:12]} output 1'
    assert fold.last_output_digest == f"sha256:{hashlib.sha256(b'output 2').hexdigest()} (8 bytes)"


def test_a_long_history_keeps_its_ends():
    """The first and the last steps are listed, with a count of those between."""
    fold = mechanical_fold(search_history(1_000))
    assert len(fold.facts) == 17
    assert fold.facts[0].startswith("step 1:")
    assert fold.facts[3].startswith("step 4:")
    assert fold.facts[4] == "… 984 lines left out …"
    assert fold.facts[5].startswith("step 989:")
    assert fold.facts[-1].startswith("step 1000:")


def test_what_the_model_saw_counts():
    """The projected observation is what is folded; an error stands in where nothing was observed."""
    steps = [Step(observation="raw" * 1000, llm_observation="short"), Step(error="boom"), Step(observation={"b": 1})]
    fold = mechanical_fold(Trajectory(steps=steps))
    assert fold.facts[0].endswith(" short")
    assert fold.facts[1].endswith(" boom")
    assert fold.facts[2].endswith(' {"b":1}')


def test_other_deeds():
    """Decisions of every kind are named, and so are actions that came back as plain JSON."""
    calls = CallParallel([CallTool("a", b'{"what": 1}'), CallTool("b")])
    actions = [calls, AwaitTask("t"), {"type": "Teleport"}, None]
    facts = mechanical_fold(Trajectory(steps=[Step(action=action, observation=1) for action in actions])).facts
    deeds = [fact.split(": ", 1)[1].split(" ->")[0] for fact in facts]
    assert deeds == ['CallParallel(a({"what": 1}), b({}))', "AwaitTask", "Teleport", "unknown"]


def test_tasks_not_yet_awaited_are_pending():
    """A task that was started and not awaited is still to be waited for."""
    steps = [
        Step(action=SpawnTask(spec=SpawnSpec(query="dig")), observation={"task_id": "t-1"}),
        Step(action=SpawnTask(spec=SpawnSpec(query="fill")), observation={"task_id": "t-2"}),
        Step(action=SpawnTask(), observation={"error": "too deep"}),
        Step(action=AwaitTask("t-1"), observation="dug"),
    ]
    assert mechanical_fold(Trajectory(steps=steps)).pending == ("task t-2 was started: fill",)


def test_redirects_are_goals():
    """What the run was redirected to joins what it was asked for, once each."""
    redirect = SteeringInjection(kind="redirect", payload={"goal": "rather that"}, at_step=1)
    message = SteeringInjection(kind="user_message", payload={"message": "hi"}, at_step=1)
    trajectory = Trajectory(query="this", steering_inputs=[redirect, message, redirect])
    assert mechanical_fold(trajectory).goals == ("this", "rather that")


def test_folding_again_builds_on_the_summary():
    """A second fold keeps what the first one said and adds the steps since."""
    trajectory = search_history(3)
    trajectory.summarise(TrajectorySummary(goals=("older goal",), facts=("known",), pending=("p",)))
    trajectory.steps.append(Step(action=CallTool("read"), observation="new"))
    fold = mechanical_fold(trajectory)
    assert fold.goals == ("older goal", "find it")
    assert fold.pending == ("p",)
    assert fold.facts[0] == "known"
    assert [fact.split(":")[0] for fact in fold.facts[1:]] == ["step 4"]


def test_repeated_folding_stays_bounded():
    """However often a growing history is folded, the summary does not grow with it."""
    trajectory = Trajectory(query="q" * 10_000)
    sizes = []
    for round_number in range(30):
        trajectory.steps += [Step(action=CallTool("t", b"x" * 5_000), observation="y" * 5_000)] * 20
        trajectory.steering_inputs.append(
            SteeringInjection(kind="redirect", payload={"goal": f"{round_number}" * 5_000}, at_step=0)
        )
        trajectory.summarise(mechanical_fold(trajectory))
        sizes.append(len(repr(trajectory.summary)))
    assert max(sizes) < 50_000
    assert sizes[-1] == sizes[-2]


anything = st.recursive(
    st.none()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.builds(object)
    | st.just({1: 2})
    | st.just(len),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3) | st.tuples(inner),
    max_leaves=6,
)


@given(st.lists(st.builds(Step, action=anything, observation=anything, llm_observation=anything), max_size=20))
def test_it_never_fails(steps):
    """Whatever the history holds, live objects included, it folds, and alike each time."""
    trajectory = Trajectory(query="q", steps=steps)
    fold = mechanical_fold(trajectory)
    assert fold == mechanical_fold(trajectory)
    assert Trajectory(summary=fold).serialize()


def test_it_survives_cycles_and_hostile_objects():
    """A value that contains itself, or whose conversion fails, is named by its type."""

    class Hostile:
        def to_json(self):
            raise SystemError("never")

    knot: dict = {}
    knot["self"] = knot
    fold = mechanical_fold(Trajectory(steps=[Step(observation=knot), Step(observation=Hostile())]))
    assert fold.facts[0].endswith("<dict without a JSON form>")
    assert fold.facts[1].endswith("<Hostile without a JSON form>")


def test_lines_stay_lines():
    """Line breaks in arguments and outputs do not break the summary's lines."""
    trajectory = Trajectory(query="a\nb", steps=[Step(action=CallTool("t", b'{"x":\n1}'), observation="1\r\n2")])
    fold = mechanical_fold(trajectory)
    assert not any("\n" in line or "\r" in line for line in (*fold.goals, *fold.facts))


def steering(kind: str, at_step: int, **payload: object) -> SteeringInjection:
    """What steering brought at a step."""
    return SteeringInjection(kind=kind, payload=payload, at_step=at_step)


def test_the_users_words_are_kept():
    """They stand among the goals; those after the last step are still shown beside the summary, so they are not."""
    trajectory = search_history(2)
    trajectory.steering_inputs += [
        steering("user_message", 0, message="not\nin May"),
        steering("user_message", 1, message="x" * 600),
        steering("user_message", 2, message="later"),
        steering("user_message", 0, other=1),
    ]
    goals = mechanical_fold(trajectory).goals
    assert goals[:2] == ("find it", "the user said: not in May")
    assert goals[2] == f"the user said: {'x' * 500}…"
    assert len(goals) == 3
    trajectory.summarise(mechanical_fold(trajectory))
    trajectory.steps.append(Step(action=CallTool("read"), observation="new"))
    assert mechanical_fold(trajectory).goals == (*goals, "the user said: later")


def test_other_input_is_a_fact_at_its_place():
    """Context and answers to pauses stand before the step that followed them."""
    trajectory = search_history(2)
    trajectory.steering_inputs += [
        steering("inject_context", 1, colour="red"),
        steering("resumed", 1, decision="resume"),
        steering("inject_context", 2, colour="blue"),
    ]
    facts = mechanical_fold(trajectory).facts
    assert [fact.split(":")[0] for fact in facts] == ["step 1", "inject_context", "resumed", "step 2"]
    assert facts[1] == 'inject_context: {"colour":"red"}'


def test_a_task_that_was_awaited_later_is_no_longer_pending():
    """Also when an earlier fold had it among the pending ones; what a model called pending stays."""
    trajectory = Trajectory(steps=[Step(action=SpawnTask(spec=SpawnSpec(query="dig")), observation={"task_id": "t-1"})])
    trajectory.summarise(mechanical_fold(trajectory))
    assert trajectory.summary.pending == ("task t-1 was started: dig",)
    trajectory.summary = TrajectorySummary(pending=("ask Bob", *trajectory.summary.pending))
    trajectory.steps.append(Step(action=AwaitTask("t-1"), observation="dug"))
    assert mechanical_fold(trajectory).pending == ("ask Bob",)
