"""The table of an agent's effects: which need an intent, which can be interrupted, and what each does."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from harborage.errors import HarborageError
from harborage.identity import Quadruple
from harborage.planner import AwaitTask, CallParallel, CallTool, RunContext
from harborage.runtime.durable.steps import EffectTable, StepCall
from harborage.runtime.effects.executor import CatalogToolExecutor
from harborage.runtime.effects.gates import Gates
from harborage.runtime.effects.run_resources import LiveRun
from harborage.runtime.effects.services import AgentServices
from harborage.runtime.effects.table import AgentEffects
from harborage.runtime.loop.outcome import OutcomeStatus
from harborage.runtime.pauses import Coordinator
from harborage.runtime.steering import ControlHistory
from harborage.tools import CatalogView, OnUnknown, ToolCatalog, ToolPolicy, register_function
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

RUN = Quadruple("t", "u", "s", "r")
AT = datetime(2026, 1, 1, tzinfo=UTC)
SERVICES = AgentServices(pauses=Coordinator(), history=ControlHistory())

# What must hold of each: (an intent is recorded first, a hard cancel cuts it, a soft cancel does too, it is not begun
# once the run is cancelled).
RULES = {
    "plan": (False, True, False, False),
    "steer": (False, False, False, False),
    "pause.request": (True, False, False, False),
    "pause.abandon": (False, False, False, False),
    "dispatch": (False, True, "awaits", True),
    "parallel.check": (False, False, False, False),
    "approve.x": (True, True, True, False),
    "confirm.x": (True, True, True, False),
    "hook.x": (False, True, False, False),
    "instructions": (False, True, False, False),
    "offered": (False, True, False, False),
    "hook.after_run": (False, False, False, False),
    "tool.x": (True, True, False, True),
    "task.begin": (False, False, False, False),
    "context.provide": (False, True, True, False),
    "memory.write": (False, True, False, False),
    "task.end": (False, False, False, False),
    "task.fail": (False, False, False, False),
    "task.spawn": (True, False, False, True),
    "task.await": (False, True, True, False),
    "task.join": (False, True, True, False),
    "timer": (False, True, True, False),
    "receive": (False, True, True, False),
    "ask": (True, True, True, False),
    "task.take_over": (False, True, True, False),
}


@each_row("name", RULES)
def test_every_effect_keeps_its_rules(name: str) -> None:
    """What may act twice announces itself first; what holds a run up can be cut short."""
    effect = AgentEffects(SERVICES).table().find(name)
    awaits, does = (effect.yields(StepCall("r", "1", name, one)) for one in (AwaitTask("t"), CallTool("x")))
    yields = does if awaits == does else "awaits"
    assert (effect.is_intended or effect.commits, effect.is_interruptible, yields, effect.acts) == RULES[name]


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


def test_an_unknown_outcome_is_reported_with_the_tools_name() -> None:
    """The planner and the operator get the name of the tool, and that it was not called again."""
    executor = CatalogToolExecutor(ToolCatalog())
    effects = AgentEffects(msgspec.structs.replace(SERVICES, executor=executor))
    effects.admit(LiveRun(base=RunContext(quadruple=RUN), planner=None, mailbox=None, crew=None))  # type: ignore[arg-type]
    effect = effects.table().find("tool.pay")
    assert effect.unknown is not None
    outcome = effect.unknown(StepCall("r", "1", "tool.pay", CallTool("pay")))
    assert outcome.status is OutcomeStatus.UNKNOWN
    assert 'tool "pay"' in outcome.error
    assert "not called again" in outcome.error


def test_a_call_known_from_the_record_alone_is_cut_like_any_other() -> None:
    """A branch that had begun in a process that is gone, and loses now, has its name, as its call was not read."""
    catalog = ToolCatalog()
    register_function(catalog, "pay", lambda: None, description="Pays.", policy=ToolPolicy(on_unknown=OnUnknown.PAUSE))
    effects = AgentEffects(msgspec.structs.replace(SERVICES, executor=CatalogToolExecutor(catalog)))
    live = LiveRun(base=RunContext(quadruple=RUN), planner=None, mailbox=None, crew=None)  # type: ignore[arg-type]
    effects.admit(live)
    effect = effects.table().find("tool.pay")
    assert effect.cut is not None
    effect.cut(StepCall("r", "1", "tool.pay", msgspec.Raw(b"{}")))
    assert live.was_cut_at_gate


async def test_a_question_that_is_cut_short_in_the_asking_is_looked_for_at_the_end() -> None:
    """The store may have it although the request was cancelled, so the end of the run reads the store."""

    async def cut_short(*_: object, **__: object) -> bytes:
        raise asyncio.CancelledError

    catalog = ToolCatalog()
    register_function(catalog, "pay", lambda: None, description="Pays.")
    base = RunContext(quadruple=RUN, catalog=CatalogView(catalog))
    live = LiveRun(base=base, planner=None, mailbox=SimpleNamespace(route_queued_answers=None, outbox=None), crew=None)  # type: ignore[arg-type]
    gate: Any = SimpleNamespace(run_guarded=cut_short)
    services = msgspec.structs.replace(SERVICES, executor=CatalogToolExecutor(catalog), gates=Gates({"pay": gate}))
    effects = AgentEffects(services)
    effects.admit(live)
    with pytest.raises(asyncio.CancelledError):
        await effects.table().find("approve.pay").run(StepCall("r", "1", "approve.pay", CallTool("pay")))
    assert live.was_cut_at_gate
    assert live.unanswered == ()


async def test_an_interrupted_question_about_an_interrupted_call_is_looked_for_too() -> None:
    """The same holds where a person is asked what became of a call."""

    async def cut_short(*_: object, **__: object) -> bytes:
        raise asyncio.CancelledError

    catalog = ToolCatalog()
    register_function(catalog, "pay", lambda: None, description="Pays.", policy=ToolPolicy(on_unknown=OnUnknown.PAUSE))
    mailbox: Any = SimpleNamespace(outbox=None)
    live = LiveRun(base=RunContext(quadruple=RUN), planner=None, mailbox=mailbox, crew=None)  # type: ignore[arg-type]
    pauses: Any = SimpleNamespace(request=cut_short)
    services = msgspec.structs.replace(SERVICES, executor=CatalogToolExecutor(catalog), pauses=pauses)
    effects = AgentEffects(services)
    effects.admit(live)
    effect = effects.table().find("tool.pay")
    assert effect.resolve is not None
    with pytest.raises(asyncio.CancelledError):
        await effect.resolve(StepCall("r", "1", "tool.pay", CallTool("pay"), 1))
    assert live.was_cut_at_gate
