"""The summary that needs no model and cannot fail."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from harborage.planner import (
    AwaitTask,
    CallParallel,
    CallTool,
    SpawnSpec,
    SpawnTask,
    SteeringInjection,
    Step,
    Trajectory,
    TrajectorySummary,
    mechanical_fold,
)


def history(count: int) -> Trajectory:
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
    fold = mechanical_fold(history(2))
    digest = hashlib.sha256(b"output 1").hexdigest()
    assert fold.goals == ("find it",)
    assert len(fold.facts) == 2
    assert fold.facts[0] == f'step 1: search({{"n":1}}) -> 8 bytes sha256:{digest[:12]} output 1'
    assert fold.last_output_digest == f"sha256:{hashlib.sha256(b'output 2').hexdigest()} (8 bytes)"


def test_a_long_history_keeps_its_ends():
    """The first and the last steps are listed, with a count of those between."""
    fold = mechanical_fold(history(1_000))
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
    trajectory = history(3)
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


def told(kind: str, at_step: int, **payload: object) -> SteeringInjection:
    """What steering brought at a step."""
    return SteeringInjection(kind=kind, payload=payload, at_step=at_step)


def test_the_users_words_are_kept():
    """They stand among the goals; those after the last step are still shown beside the summary, so they are not."""
    trajectory = history(2)
    trajectory.steering_inputs += [
        told("user_message", 0, message="not\nin May"),
        told("user_message", 1, message="x" * 600),
        told("user_message", 2, message="later"),
        told("user_message", 0, other=1),
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
    trajectory = history(2)
    trajectory.steering_inputs += [
        told("inject_context", 1, colour="red"),
        told("resumed", 1, decision="resume"),
        told("inject_context", 2, colour="blue"),
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
