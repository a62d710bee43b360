"""A history told within a number of bytes: whole where it is new, short where it is old, never raw where heavy."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harborage.planner import (
    AwaitTask,
    CallParallel,
    CallTool,
    FailureRecord,
    Finish,
    ParallelBranchObservation,
    ParallelObservation,
    SpawnSpec,
    SpawnTask,
    SteeringInjection,
    Step,
    ToolContext,
    Trajectory,
    TrajectorySummary,
)
from harborage.planner.digest import digest
from tables import each_row

ROOMY = 1_000_000


def told(trajectory: Trajectory, *, goal: str = "", limit: int = ROOMY) -> str:
    """The digest as one text."""
    return "\n".join(digest(trajectory, goal=goal, limit_bytes=limit))


def calls(count: int, size: int = 10) -> Trajectory:
    """A history of so many calls, whose results have a size."""
    steps = [
        Step(action=CallTool("look", b'{"n":%d}' % number), observation=f"result-{number} " + "x" * size)
        for number in range(count)
    ]
    return Trajectory(query="the question", steps=steps)


def test_the_shape():
    """The goal, then each step with its decision and what came of it."""
    trajectory = Trajectory(
        query="find it", steps=[Step(action=CallTool("look", b'{"at":"home"}'), observation={"found": True})]
    )
    assert told(trajectory) == ('[Goal]\nfind it\n[Steps]\nstep 1: look({"at":"home"})\n  -> {"found":true}')


def test_an_empty_history():
    """Nothing happened, and that is what is said."""
    assert told(Trajectory()) == "[Goal]\n(none)\n[Steps]\n(none)"


def test_the_goal_may_have_moved():
    """What the run aims at now comes first, what it was asked for is kept beside it."""
    assert told(Trajectory(query="old"), goal="new").startswith("[Goal]\nnew\n[First request]\nold\n")
    assert "[First request]" not in told(Trajectory(query="same"), goal="same")


@each_row(
    "step, expected",
    [
        (Step(action=CallTool("a"), error="it broke"), "-> error: it broke"),
        (Step(action=CallTool("a"), failure=FailureRecord(code="c", message="m")), "-> error: c: m"),
        (Step(action=CallTool("a")), "-> (nothing)"),
        (Step(action=CallTool("a"), observation=b"12345"), "-> (5 bytes)"),
        (Step(action=CallTool("a"), observation=object()), "-> (object without a JSON form)"),
        (Step(action=CallTool("a"), observation="raw", llm_observation="shown"), "-> shown"),
        (Step(action=SpawnTask("background", SpawnSpec(query="dig"))), "started a task: dig"),
        (Step(action=AwaitTask("task-1")), "waited for the task task-1"),
        (Step(action={"type": "Later"}), "step 1: Later"),
        (Step(action=Finish("goal", "x")), "step 1: Finish"),
        (Step(action=None, observation="seen"), "(no decision)\n  -> seen"),
    ],
)
def test_each_kind_of_step(step, expected):
    """Decisions, results and failures of every kind are told in a few words."""
    assert expected in told(Trajectory(steps=[step]))


def test_parallel_branches():
    """Each branch is told with its own outcome, in their order."""
    action = CallParallel((CallTool("a"), CallTool("b")))
    branches = (
        ParallelBranchObservation(index=0, tool="a", value={"v": 1}),
        ParallelBranchObservation(index=1, tool="b", error="no"),
    )
    text = told(Trajectory(steps=[Step(action=action, observation=ParallelObservation(branches=branches))]))
    assert 'a({}) + b({})\n  -> {"v":1}\n  -> error: no' in text


def test_heavy_results_are_never_raw():
    """Of a heavy result only its form for the model is told; without one, its size."""
    stub = {"preview": "short", "artifact_ref": "ref-1"}
    steps = [
        Step(action=CallTool("a"), observation="SECRET" * 20_000, llm_observation=stub),
        Step(action=CallTool("b"), observation="SECRET" * 20_000),
        Step(action=CallTool("c"), observation={"all": "SECRET" * 20_000}),
    ]
    text = told(Trajectory(steps=steps))
    assert "SECRET" not in text
    assert "ref-1" in text
    assert "(a heavy result of 120000 bytes, not shown)" in text


def test_the_tool_context_stays_out():
    """Neither the data that tools get nor the names of live handles are told."""
    context = ToolContext(serializable={"token": "SECRET"}, handles=("HANDLE",))
    text = told(Trajectory(query="q", tool_context=context, steps=[Step(action=CallTool("a"), observation="x")]))
    assert "SECRET" not in text
    assert "HANDLE" not in text


def test_what_steering_brought():
    """Messages, new goals and added context stand where they came in, also after the last step."""
    trajectory = calls(2)
    trajectory.steering_inputs = [
        SteeringInjection(kind="user_message", payload={"message": "be quick"}, at_step=0),
        SteeringInjection(kind="redirect", payload={"goal": "something else"}, at_step=1),
        SteeringInjection(kind="inject_context", payload={"fact": 7}, at_step=2),
    ]
    text = told(trajectory)
    places = [
        text.index(one)
        for one in (
            "the user said: be quick",
            "step 1:",
            "the goal became: something else",
            "step 2:",
            'context was added: {"fact":7}',
        )
    ]
    assert places == sorted(places)


def test_an_earlier_summary_stands_for_its_steps():
    """The steps it was made of are left out, and what steering brought before them; numbers go on."""
    trajectory = calls(3)
    trajectory.summary = TrajectorySummary(
        goals=["g"], facts=["f1", "f2"], pending=["p"], last_output_digest="d", note="n"
    )
    trajectory.steps_summarised = 2
    trajectory.steering_inputs = [
        SteeringInjection(kind="user_message", payload={"message": "early"}, at_step=1),
        SteeringInjection(kind="user_message", payload={"message": "late"}, at_step=2),
    ]
    text = told(trajectory)
    assert (
        "[Summary of the first 2 steps]\ngoals: g\nfacts: f1\nfacts: f2\npending: p\nlast_output_digest: d\nnote: n"
        in text
    )
    assert "result-1" not in text
    assert "early" not in text
    assert "the user said: late" in text
    assert "step 3: look" in text


def test_the_oldest_steps_are_shortened_first():
    """When space runs out the newest steps are still told whole, the oldest are not."""
    text = told(calls(30, size=1000), limit=20_000)
    assert "result-0 " in text
    assert "result-0 " + "x" * 200 not in text
    assert "result-29 " + "x" * 1000 in text


def test_then_they_are_left_out():
    """When even short lines do not fit, the first ones go, and how many went is said."""
    text = told(calls(500, size=1000), limit=10_000)
    assert "result-0 " not in text
    assert "entries are left out)" in text
    assert "result-499" in text


@given(st.integers(0, 60), st.integers(0, 3000), st.integers(0, 60_000))
def test_the_limit_holds(count, size, limit):
    """However long the history, the digest keeps to its limit, give or take its last step and the framing."""
    trajectory = calls(count, size)
    before = trajectory.serialize()
    assert len(told(trajectory, limit=limit).encode()) <= max(limit, 1000) + 700
    assert trajectory.serialize() == before
