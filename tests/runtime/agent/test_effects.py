"""The table of an agent's effects: which need an intent, which can be cut short, and what stands behind them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from harborage.errors import HarborageError
from harborage.identity import Quadruple
from harborage.planner import BackgroundMemberOutcome, BackgroundResult, CallParallel, CallTool, RunContext
from harborage.runtime.agent.effects import AgentEffects, background_result
from harborage.runtime.agent.live import LiveRun
from harborage.runtime.agent.services import AgentServices
from harborage.runtime.dispatch.outcome import OutcomeStatus
from harborage.runtime.effects import EffectTable, StepCall
from harborage.runtime.pauses import Coordinator
from harborage.runtime.steering import ControlHistory
from harborage.tasks import GroupCompletion, GroupStatus, MemberOutcome, TaskFailure, TaskStatus

pytestmark = pytest.mark.anyio

RUN = Quadruple("t", "u", "s", "r")
AT = datetime(2026, 1, 1, tzinfo=UTC)
SERVICES = AgentServices(pauses=Coordinator(), history=ControlHistory())

# What must hold of each: (an intent is recorded first, a hard cancel cuts it, a soft cancel does too).
RULES = {
    "plan": (False, True, False),
    "steer": (False, False, False),
    "pause.request": (True, False, False),
    "pause.abandon": (False, False, False),
    "dispatch": (False, True, False),
    "parallel.check": (False, False, False),
    "approve.x": (True, True, False),
    "tool.x": (True, True, False),
    "task.begin": (False, False, False),
    "task.end": (False, False, False),
    "task.fail": (False, False, False),
    "task.spawn": (True, False, False),
    "task.await": (False, True, True),
}


@pytest.mark.parametrize("name", RULES)
def test_every_effect_keeps_its_rules(name: str) -> None:
    """What may act twice announces itself first; what holds a run up can be cut short."""
    effect = AgentEffects(SERVICES).table().find(name)
    assert (effect.is_intended, effect.is_interruptible, effect.yields_to_cancel) == RULES[name]


def test_no_effect_is_without_a_rule() -> None:
    """A new one needs its line above."""
    table: EffectTable = AgentEffects(SERVICES).table()
    names = {*table._exact, *(f"{family}x" for family in table._families)}
    assert names == set(RULES)


async def test_a_tool_needs_a_catalog() -> None:
    """A loop without one says so, instead of failing somewhere inside."""
    effects = AgentEffects(SERVICES)
    effects.admit(LiveRun(base=RunContext(quadruple=RUN), planner=None, mailbox=None, crew=None))  # type: ignore[arg-type]
    for name, payload in (("tool.x", CallTool("x")), ("parallel.check", CallParallel((CallTool("x"),)))):
        with pytest.raises(HarborageError, match="no catalog executor"):
            await effects.table().find(name).run(StepCall("r", "1", name, payload))


async def test_a_run_that_was_dismissed_is_gone() -> None:
    """Twice is once."""
    effects = AgentEffects(SERVICES)
    effects.admit(LiveRun(base=RunContext(quadruple=RUN), planner=None, mailbox=None, crew=None))  # type: ignore[arg-type]
    for _ in range(2):
        effects.dismiss("r")
    with pytest.raises(KeyError):
        await effects.table().find("task.begin").run(StepCall("r", "1", "task.begin", None))


def test_what_nobody_knows_is_said_so() -> None:
    """The planner and the operator get the name of the tool, and that it was not called again."""
    effect = AgentEffects(SERVICES).table().find("tool.pay")
    assert effect.unknown is not None
    outcome = effect.unknown(StepCall("r", "1", "tool.pay", CallTool("pay")))
    assert outcome.status is OutcomeStatus.UNKNOWN
    assert 'tool "pay"' in outcome.error
    assert "not called again" in outcome.error


def test_a_group_that_ended_is_shown_member_by_member() -> None:
    """With the codes of those that failed."""
    completion = GroupCompletion(
        group_id="g",
        session=RUN.identity,
        final_status=GroupStatus.COMPLETED,
        members=(
            MemberOutcome("a", TaskStatus.COMPLETE, b"{}", None),
            MemberOutcome("b", TaskStatus.FAILED, None, TaskFailure("boom", "it broke")),
        ),
        resolved_at=AT,
        reason="all done",
    )
    assert background_result(completion) == BackgroundResult(
        group_id="g",
        status="completed",
        resolved_at=AT,
        reason="all done",
        members=(
            BackgroundMemberOutcome(task_id="a", status="complete"),
            BackgroundMemberOutcome(task_id="b", status="failed", error_code="boom", error_message="it broke"),
        ),
    )
