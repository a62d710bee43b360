"""The pack against planners that conform, on a real bus and task registry."""

from __future__ import annotations

import pytest

from harborage.events import MemoryEventBus
from harborage.identity import Quadruple
from harborage.planner import (
    AwaitTask,
    CallParallel,
    CallTool,
    Finish,
    FinishReason,
    PauseReason,
    RequestPause,
    SpawnSpec,
    SpawnTask,
    WakeMode,
)
from harborage.planner.conformance import (
    DETERMINISTIC_CAPABILITIES,
    REACT_CAPABILITIES,
    Canned,
    Capabilities,
    Harness,
    Passed,
    Scenario,
    default_context,
    run_conformance,
    run_scenario,
)
from harborage.planner.deterministic import (
    CallToolStep,
    DeterministicPlanner,
    FinishStep,
    PauseStep,
    SpawnAndAwaitStep,
)
from harborage.planner.finish import FinishPlanner
from harborage.tasks import InProcessTaskRegistry
from harborage.testing.planners import ScriptedPlanner

pytestmark = pytest.mark.anyio


class RealParts:
    """A registry on a bus, and what closes that."""

    def __init__(self):
        self.opened = 0
        self.closed = 0

    async def open_registry(self):
        """A registry, on parts of its own."""
        self.opened += 1
        self.bus = MemoryEventBus()
        return InProcessTaskRegistry(bus=self.bus)

    async def cleanup(self):
        """Close what the registry stands on, if there is any."""
        self.closed += 1
        if self.opened:
            await self.bus.aclose()


class Parallel:
    """A step that calls two tools at once."""

    async def decide(self, run):
        """The call."""
        return CallParallel([CallTool("a"), CallTool("b")]), True


def canned_tree(name):
    """A decision tree for each canned name that has one."""
    steps = {
        Canned.CALL_TOOL: CallToolStep("echo", lambda run: b"{}"),
        Canned.FINISH: FinishStep("goal"),
        Canned.CALL_PARALLEL: Parallel(),
        Canned.PAUSE: PauseStep("approval_required", lambda run: {"what": {"to": ["approve"]}}),
    }
    return DeterministicPlanner([steps[name]]) if name in steps else None


def spawning_tree(registry):
    """A decision tree that spawns a task and finishes with its result."""
    step = SpawnAndAwaitStep(
        spec_builder=lambda run: SpawnSpec(description="child"),
        on_resolved=lambda run, members: Finish(FinishReason.GOAL, [member.result for member in members]),
    )
    return DeterministicPlanner([step], registry=registry)


def deterministic(**fields) -> Harness:
    """The harness of the deterministic planner."""
    parts = {
        "planner": lambda: DeterministicPlanner([FinishStep("goal")]),
        "scenario": canned_tree,
        "planner_on": spawning_tree,
        "wake_mode": WakeMode.POLL,
        "capabilities": DETERMINISTIC_CAPABILITIES,
    }
    return Harness(**{**parts, **fields})


def scripted(**fields) -> Harness:
    """The harness of a scripted planner, which plays a planner that is woken by push and asks a model."""

    def cancelled_or_done(run):
        reason = FinishReason.CANCELLED if run.control.cancelled else FinishReason.GOAL
        return Finish(reason, metadata={"run_id": run.quadruple.run_id})

    canned = {
        Canned.CALL_TOOL: CallTool("echo"),
        Canned.FINISH: Finish("goal"),
        Canned.CALL_PARALLEL: CallParallel([CallTool("a"), CallTool("b")]),
        Canned.MALFORMED: Finish("no_path"),
        Canned.PAUSE: RequestPause(PauseReason.AWAIT_INPUT, {"question": "?"}),
    }

    def woken(run):
        (background,) = run.trajectory.background.values()
        assert background.status == "completed"
        return Finish("goal", run.trajectory.steps[0].observation["task_id"])

    parts = {
        "planner": lambda: ScriptedPlanner([cancelled_or_done]),
        "scenario": lambda name: ScriptedPlanner([canned[name]]),
        "planner_on": lambda registry: ScriptedPlanner([SpawnTask(spec=SpawnSpec(query="child")), woken]),
        "capabilities": REACT_CAPABILITIES | Capabilities.CAN_PAUSE,
    }
    return Harness(**{**parts, **fields})


async def test_the_deterministic_planner_conforms():
    """The deterministic planner passes every scenario but the one about a model, on real parts that are all closed."""
    real = RealParts()
    report = await run_conformance(deterministic(open_registry=real.open_registry, cleanup=real.cleanup))
    assert report.skipped == {Scenario.MALFORMED: "the planner does not claim LLM_DRIVEN"}
    assert len(report.passed) == len(Scenario) - 1
    assert real.opened == 1
    assert real.closed == len(Scenario)


async def test_a_planner_with_every_capability_conforms():
    """A planner that can do everything is asked everything, and nothing is skipped."""
    real = RealParts()
    report = await run_conformance(scripted(open_registry=real.open_registry, cleanup=real.cleanup))
    assert report.passed == tuple(Scenario)
    assert report.skipped == {}


async def test_the_finish_planner_conforms():
    """The stub passes what needs no capability, and each skip says what is missing."""
    report = await run_conformance(Harness(planner=FinishPlanner))
    assert report.failed == {}
    assert report.skipped == {
        Scenario.TOP_PROMPTS: "the harness has no planner for the scenario call_tool",
        Scenario.MALFORMED: "the planner does not claim LLM_DRIVEN",
        Scenario.WAKE_ROUND_TRIP: "the planner does not claim WAKE_ROUND_TRIP",
        Scenario.PAUSE_PAYLOAD: "the planner does not claim CAN_PAUSE",
        Scenario.STEERING: "the planner does not claim HONOURS_CANCEL_CONTROL",
    }


@pytest.mark.parametrize("mode", [WakeMode.PUSH, WakeMode.HYBRID])
async def test_push_and_hybrid_are_woken_alike(mode):
    """A planner that is woken both ways is woken like one that waits to be woken."""
    assert await run_scenario(Scenario.WAKE_ROUND_TRIP, scripted(wake_mode=mode)) == Passed()


async def test_the_registry_in_memory_serves_without_another():
    """A harness that opens no registry gets one, for both kinds of planner."""
    for harness in (deterministic(), scripted()):
        assert await run_scenario("WakeMode_RoundTrip", harness) == Passed()


async def test_a_poller_may_leave_the_spawning_to_the_runtime():
    """A planner that only names its group, and finds its task in the history, polls as well as one that spawns."""

    class Polling:
        def __init__(self, registry):
            self.registry = registry

        def wake_mode(self):
            """It polls."""
            return WakeMode.POLL

        async def next(self, run):
            """Spawn, look, finish."""
            if not run.trajectory.steps:
                return SpawnTask(group_id="conf-group")
            task_id = run.trajectory.steps[0].observation["task_id"]
            if (await self.registry.get(task_id, who=run.quadruple)).status.is_terminal:
                return Finish("goal")
            return AwaitTask(task_id)

    assert await run_scenario("WakeMode_RoundTrip", deterministic(planner_on=Polling)) == Passed()


async def test_factories_may_be_coroutine_functions():
    """Planners, contexts and what cleans up may need a wait to be made."""
    log = []

    async def planner():
        return ScriptedPlanner([Finish("goal")])

    async def canned(name):
        return await planner() if name == Canned.FINISH else None

    async def context():
        log.append("context")
        return default_context()

    async def cleanup():
        log.append("cleanup")

    harness = Harness(planner=planner, scenario=canned, context=context, cleanup=cleanup)
    report = await run_conformance(harness)
    assert Scenario.SANITY in report.passed
    assert log[:2] == ["context", "cleanup"]
    assert log.count("cleanup") == len(Scenario)


async def test_the_context_is_the_harnesss():
    """A planner is shown the context that the harness makes, fresh each time."""
    seen = []

    class Looks:
        async def next(self, run):
            """Keep the context."""
            seen.append(run)
            return Finish("goal")

    def context():
        made = default_context()
        made.goal = "mine"
        return made

    await run_conformance(Harness(planner=Looks, context=context))
    assert {run.goal for run in seen} == {"mine"}
    assert len({id(run.trajectory) for run in seen}) == len(seen)


async def test_planners_are_made_for_each_scenario():
    """Every scenario gets a planner that no other has used; only the concurrent one asks a planner more than once."""
    made = []

    def planner():
        made.append(ScriptedPlanner([lambda run: Finish("goal")]))
        return made[-1]

    await run_conformance(Harness(planner=planner))
    # Asked: sanity, wake mode, the six, parallel, budget, concurrency.
    assert len(made) == 6


def test_the_default_context():
    """The default run has a full identity, a goal and an empty history, and is new each time."""
    context = default_context()
    assert context.quadruple == Quadruple("conf-tenant", "conf-user", "conf-session", "conf-run")
    assert context.goal
    assert context.trajectory.steps == []
    assert default_context() is not context


def test_the_presets():
    """The presets claim what the built-in planners can do."""
    assert Capabilities.CAN_PAUSE not in REACT_CAPABILITIES
    assert Capabilities.LLM_DRIVEN not in DETERMINISTIC_CAPABILITIES
    everything = Capabilities.LLM_DRIVEN | Capabilities.CAN_PAUSE
    everything |= Capabilities.WAKE_ROUND_TRIP | Capabilities.HONOURS_CANCEL_CONTROL
    assert everything == REACT_CAPABILITIES | DETERMINISTIC_CAPABILITIES


def test_the_scenarios_have_their_names():
    """The names under which scenarios are reported do not change."""
    assert [str(scenario) for scenario in Scenario] == [
        "Sanity_NextReturnsDecision",
        "WakeMode_Declared",
        "Sealed_DecisionSum",
        "TopPrompts_LLMRoundTrip",
        "MalformedLLM_Salvage",
        "ParallelCall_Atomicity",
        "WakeMode_RoundTrip",
        "BudgetAware_FinishDeadlineExceeded",
        "PausePayload_BoundsRespected",
        "Steering_DrainBetweenSteps",
        "ConcurrentReuse",
    ]
