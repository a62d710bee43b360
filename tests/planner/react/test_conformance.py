"""The planner keeps every promise of the pack, with a scripted model for each scenario."""

from __future__ import annotations

import pytest

from harborage.llm import CompleteRequest, CompleteResponse, ToolCallStructured
from harborage.planner import WakeMode
from harborage.planner.conformance import (
    REACT_CAPABILITIES,
    Canned,
    Harness,
    Passed,
    Scenario,
    Skipped,
    run_conformance,
    run_scenario,
)
from harborage.planner.react import ReActPlanner
from harborage.testing.llm import ScriptedLLM, calls_tools, user_text

pytestmark = pytest.mark.anyio

GARBAGE = CompleteResponse(
    "\x00{{{", (ToolCallStructured("", "_spawn_task", b"\xff{"), ToolCallStructured("", "", b"nonsense"))
)


def spawns_and_finishes(request: CompleteRequest) -> CompleteResponse:
    """A model that starts a sub-task, and answers once it gets the result."""
    if "background_resolved" in user_text(request):
        return CompleteResponse("done")
    return calls_tools(("_spawn_task", {"spec": {"query": "help"}}))


def canned(name: Canned) -> ReActPlanner | None:
    """A planner whose model answers as the scenario wants."""
    match name:
        case Canned.CALL_TOOL:
            script = [calls_tools(("add", {"a": 1}))]
        case Canned.FINISH:
            script = ["done"]
        case Canned.CALL_PARALLEL:
            script = [calls_tools(("add", {"a": 1}), ("add", {"a": 2}))]
        case Canned.MALFORMED:
            script = [GARBAGE] * 9
        case _:
            return None
    return ReActPlanner(ScriptedLLM(script))


HARNESS = Harness(
    planner=lambda: ReActPlanner(ScriptedLLM(["done"])),
    capabilities=REACT_CAPABILITIES,
    wake_mode=WakeMode.PUSH,
    scenario=canned,
    planner_on=lambda registry: ReActPlanner(ScriptedLLM([spawns_and_finishes] * 2)),
)


@pytest.mark.parametrize("scenario", Scenario)
async def test_scenario(scenario):
    """Each scenario passes; only pausing, which this planner never does by itself, is skipped."""
    outcome = await run_scenario(scenario, HARNESS)
    expected = Skipped if scenario is Scenario.PAUSE_PAYLOAD else Passed
    assert isinstance(outcome, expected), outcome


async def test_the_whole_pack():
    """The pack as one run finds no broken promise."""
    report = await run_conformance(HARNESS)
    assert sum(isinstance(outcome, Passed) for outcome in report.outcomes.values()) == len(Scenario) - 1
