"""Agents of users under crashes: what `crash_test` plays, finds and says."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from harborage.planner import CallTool, Decision, Finish, FinishReason, PauseReason, RequestPause, RunContext
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.host import Runtime
from harborage.runtime.pauses import Pause, PauseDecision
from harborage.testing.simulation import Answer, Faults, Place, Trial, TrialFailedError, crash_test
from harborage.tools import CallContext, SideEffect, tool

CRASHES = Faults(crash=0.03, most_crashes=20)


class Shop:
    """Takes orders, each once under its key; without a key each time."""

    def __init__(self) -> None:
        self.orders: list[str] = []
        self.keys: set[str] = set()

    async def order(self, item: str, key: str = "") -> str:
        if key not in self.keys:
            self.orders.append(item)
        if key:
            self.keys.add(key)
        return f"{item} ordered"


class Follower:
    """Follows a script by what has happened, not by what it remembers: the next process may be asked."""

    def __init__(self, script: list[Any]) -> None:
        self.script = script

    async def next(self, run: RunContext) -> Decision:
        trajectory = run.trajectory
        assert trajectory is not None
        answers = sum(one.kind == "resumed" for one in trajectory.steering_inputs)
        line = self.script[len(trajectory.steps) + answers]
        if isinstance(line, Exception):
            raise line
        decision: Decision = line(run) if callable(line) else line
        return decision


def buyer(place: Place[Shop], *, has_key: bool = True, script: Any = None, **options: Any) -> Runtime:
    """An agent that orders a pen."""

    async def order(call: CallContext, item: str) -> str:
        """Order an item."""
        key = call.idempotency_key if has_key else ""
        return str(await place.ask("order", partial(place.outside.order, item, key)))

    last = lambda run: Finish(FinishReason.GOAL, run.trajectory.steps[-1].observation)  # noqa: E731
    return Runtime(
        planner=Follower(script or [CallTool("order", b'{"item": "pen"}'), last]),
        tools=[tool(order, effects=SideEffect.EXTERNAL, idempotent=True)],
        storage=place.storage,
        clock=place.clock,
        **options,
    )


def once(trial: Trial) -> None:
    """One pen was ordered."""
    assert trial.outside.orders == ["pen"]
    assert trial.finish.payload == "pen ordered"


def test_an_agent_that_crashes_does_its_work_once() -> None:
    """Processes die in most of the stories, and each run comes to its end."""
    trials = crash_test(buyer, "Buy a pen", outside=Shop, judge=once, seeds=range(20), faults=CRASHES)
    assert [trial.seed for trial in trials] == list(range(20))
    assert sum(trial.outcome.struck.get("crash", 0) for trial in trials) > 20


def test_a_tool_that_does_not_use_its_key_is_found() -> None:
    """The error has the story, and says how to play it alone."""
    careless = partial(buyer, has_key=False)
    with pytest.raises(TrialFailedError, match=r"plays it alone[^$]*DIES[^$]*AssertionError") as failed:
        crash_test(careless, "Buy a pen", outside=Shop, judge=once, seeds=range(50), faults=CRASHES)
    with pytest.raises(TrialFailedError) as again:
        crash_test(careless, "Buy a pen", outside=Shop, judge=once, seeds=[failed.value.seed], faults=CRASHES)
    assert str(again.value) == str(failed.value)
    assert again.value.outcome is not None


def test_people_say_yes_by_default() -> None:
    """Calls that wait for approval are allowed, questions answered."""
    gated = partial(buyer, approvals={"order": AlwaysDeny()})
    crash_test(gated, "Buy a pen", outside=Shop, judge=once, seeds=range(5), faults=CRASHES)


def test_people_may_be_spoken_for() -> None:
    """A no is heard, and what goes with an answer."""

    def no(pause: Pause) -> Answer:
        return PauseDecision.REJECT, {}

    gated = partial(buyer, approvals={"order": AlwaysDeny()})
    for trial in crash_test(gated, "Buy a pen", outside=Shop, answer=no, seeds=range(5), faults=CRASHES):
        assert trial.outside.orders == []
        assert "error" in trial.finish.payload

    def blue(pause: Pause) -> Answer:
        return PauseDecision.RESUME, {"colour": "blue"}

    received = lambda run: Finish(FinishReason.GOAL, run.trajectory.steering_inputs[-1].payload)  # noqa: E731
    asking = partial(buyer, script=[RequestPause(PauseReason.AWAIT_INPUT), received])
    for trial in crash_test(asking, "Ask", outside=Shop, answer=blue, seeds=range(5)):
        assert trial.finish.payload["colour"] == "blue"


def test_silence_is_an_answer_too() -> None:
    """Then the pause runs out; one that takes longer than a story lasts is a run that hangs."""
    script = [RequestPause(PauseReason.AWAIT_INPUT)]
    soon = partial(buyer, script=script, options=RuntimeOptions(pause_ttl=timedelta(minutes=5)))
    (trial,) = crash_test(soon, "Ask", outside=Shop, answer=lambda _: None, seeds=[1], faults=Faults())
    assert trial.finish.metadata["steering_reason"] == "pause_timeout"
    with pytest.raises(TrialFailedError, match="runs or processes do not end"):
        crash_test(
            partial(buyer, script=script), "Ask", outside=Shop, answer=lambda _: None, seeds=[1], faults=Faults()
        )


def test_an_agent_that_fails_is_a_failed_trial() -> None:
    """With the reason."""
    broken = partial(buyer, script=[LookupError("no such thing")])
    with pytest.raises(TrialFailedError, match="no such thing"):
        crash_test(broken, "Buy", outside=Shop, seeds=[1])
