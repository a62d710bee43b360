"""A step costs the same however long the history is: what was shown once is not made again."""

from __future__ import annotations

import base64
import gc
import weakref

import pytest

from harborage.planner import (
    BackgroundResult,
    CallTool,
    InputArtifactView,
    SteeringInjection,
    Step,
    Trajectory,
    TrajectorySummary,
)
from harborage.planner.react import ReActPlanner
from harborage.planner.react.transcript import Transcript
from harborage.planner.trajectory import UNSET_TIME
from harborage.testing.llm import calls_tools

pytestmark = pytest.mark.anyio


class Counted:
    """An observation that counts how often it is turned into JSON."""

    def __init__(self) -> None:
        self.times = 0

    def to_json(self) -> dict:
        """Its JSON form."""
        self.times += 1
        return {"n": 1}


class Asked:
    """A model that always calls a tool, and keeps only the last request."""

    def __init__(self) -> None:
        self.request = None

    async def complete(self, request):
        """A call."""
        self.request = request
        return calls_tools(("a", {}))

    async def close(self):
        """Nothing to close."""


async def test_each_observation_is_written_once(make_run):
    """Two hundred steps write two hundred observations, the prompt of the last step included."""
    model = Asked()
    planner = ReActPlanner(model, max_steps=1_000)
    trajectory = Trajectory()
    run = make_run(trajectory=trajectory, emit=None)
    observations = [Counted() for _ in range(200)]
    for observation in observations:
        trajectory.steps.append(Step(action=await planner.next(run), observation=observation))
    await planner.next(run)
    assert [observation.times for observation in observations] == [1] * 200
    assert len(model.request.messages) == 2 + 2 * 200


async def test_messages_of_old_steps_are_the_same_objects(make_run):
    """A later request holds the very messages of an earlier one, and one step more."""
    model = Asked()
    planner = ReActPlanner(model, max_steps=1_000)
    trajectory = Trajectory()
    run = make_run(trajectory=trajectory)
    before = ()
    for number in range(20):
        trajectory.steering_inputs.append(
            SteeringInjection(kind="user_message", payload={"message": "m"}, at_step=number)
        )
        trajectory.steps.append(Step(action=await planner.next(run), observation=number))
        await planner.next(run)
        now = model.request.messages[2:]
        assert all(one is other for one, other in zip(before, now, strict=False))
        assert len(now) == len(before) + 3
        before = now


async def test_other_planners_and_modes_do_not_disturb_each_other(make_run):
    """Two modes that take turns on one history each write a step once."""
    trajectory = Trajectory()
    planners = [ReActPlanner(Asked(), reasoning_replay=mode, max_steps=99) for mode in ("never", "text")]
    run = make_run(trajectory=trajectory)
    observations = [Counted() for _ in range(10)]
    for observation in observations:
        trajectory.steps.append(Step(action=CallTool("a"), observation=observation, reasoning_trace="why"))
        for planner in planners:
            await planner.next(run)
    assert [observation.times for observation in observations] == [2] * 10


async def test_a_background_result_is_written_once(make_run):
    """Groups that ended stay in every prompt; what they say is made anew only when another one has ended."""
    model = Asked()
    planner = ReActPlanner(model)
    trajectory = Trajectory(
        background={"g": BackgroundResult(group_id="g", status="completed", resolved_at=UNSET_TIME)}
    )
    run = make_run(trajectory=trajectory)
    last = []
    for _ in range(2):
        await planner.next(run)
        last.append(model.request.messages[-1])
    assert last[0] is last[1]


async def test_a_picture_is_encoded_once(make_run, monkeypatch):
    """What the user attached is in every request, and spelled for the first one only."""
    spelled = []
    spell = base64.b64encode
    monkeypatch.setattr(base64, "b64encode", lambda data: spelled.append(data) or spell(data))
    planner = ReActPlanner(Asked(), max_steps=99)
    trajectory = Trajectory()
    run = make_run(trajectory=trajectory, input_artifacts=(InputArtifactView(id="a", mime="image/png", bytes=b"png"),))
    for number in range(20):
        trajectory.steps.append(Step(action=await planner.next(run), observation=number))
    assert spelled == [b"png"]


async def test_what_is_kept_dies_with_the_history(make_run):
    """Neither the planner nor anything else keeps a run's messages once its trajectory is gone."""
    planner = ReActPlanner(Asked())
    observation = Counted()
    run = make_run(trajectory=Trajectory(steps=[Step(action=CallTool("a"), observation=observation)]))
    await planner.next(run)
    kept = next(value for value in vars(run.trajectory).values() if isinstance(value, Transcript))
    assert len(kept.messages(run.trajectory)) == 2
    # A trajectory takes no weak reference, so its step's observation stands for it.
    gone = weakref.ref(observation)
    del run, observation, kept
    gc.collect()
    assert gone() is None


async def test_a_summary_lets_go_of_what_it_stands_for(make_run):
    """The messages of summarised steps are not kept."""
    planner = ReActPlanner(Asked(), max_steps=99)
    trajectory = Trajectory(steps=[Step(action=CallTool("a"), observation=number) for number in range(5)])
    run = make_run(trajectory=trajectory)
    await planner.next(run)
    trajectory.summarise(TrajectorySummary(note="n"))
    await planner.next(run)
    kept = next(value for value in vars(trajectory).values() if isinstance(value, Transcript))
    assert kept.messages(trajectory) == []
