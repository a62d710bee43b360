"""The pack catches the faults it is there for: each broken planner by the scenario that is about its fault."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import msgspec
import pytest

from harborage.events import MemoryEventBus
from harborage.planner import (
    UNSET_TIME,
    AwaitTask,
    CallParallel,
    CallTool,
    Finish,
    FinishReason,
    JoinSpec,
    PauseReason,
    PlannerError,
    RequestPause,
    SpawnSpec,
    SpawnTask,
    WakeMode,
)
from harborage.planner.conformance import (
    Canned,
    Capabilities,
    ConformanceFailedError,
    Failed,
    Harness,
    Passed,
    PromiseBrokenError,
    Scenario,
    Skipped,
    default_context,
    run_conformance,
    run_scenario,
)
from harborage.planner.finish import FinishPlanner
from harborage.planner.spawning import spawn_request
from harborage.tasks import (
    GroupCompletion,
    GroupRequest,
    GroupStatus,
    GroupWatch,
    InProcessTaskRegistry,
    TaskNotFoundError,
)

pytestmark = pytest.mark.anyio


def answers(answer):
    """A planner class that always gives this answer; an exception is raised, a function is called with the run."""

    class Answers:
        async def next(self, run):
            """The answer."""
            if isinstance(answer, Exception):
                raise answer
            return answer(run) if callable(answer) else answer

    return Answers


async def failed_scenarios(harness):
    """The names of the scenarios that fail, with their reasons."""
    with pytest.raises(ConformanceFailedError) as caught:
        await run_conformance(harness)
    return caught.value.report.failed


# One instance, one fault, one scenario


class Silent:
    """Returns nothing."""

    async def next(self, run):
        """Nothing."""


class Raises:
    """Always fails."""

    async def next(self, run):
        """Fail."""
        raise RuntimeError("boom")


class SpeaksText(answers("a text")):
    """Returns something that is no decision."""


class Malformed(answers(CallTool(""))):
    """Returns a decision that no runtime can execute."""


class Changes:
    """Says another wake mode than its author."""

    def wake_mode(self):
        """Not what was claimed."""
        return WakeMode.HYBRID

    async def next(self, run):
        """Finish."""
        return Finish("goal")


class Invents(Changes):
    """Says an unknown wake mode."""

    def wake_mode(self):
        """No such mode."""
        return "eager"


class SilentWhenLate:
    """Returns nothing once the deadline is past."""

    async def next(self, run):
        """Nothing when late."""
        return None if run.budget.deadline and run.now() > run.budget.deadline else Finish("goal")


class RemembersTheFirst:
    """Keeps the first run it saw on itself."""

    def __init__(self):
        self.run_id = ""

    async def next(self, run):
        """Finish, with the id of the first run."""
        self.run_id = self.run_id or run.quadruple.run_id
        await asyncio.sleep(0)
        return Finish("goal", metadata={"run_id": self.run_id})


class OnlyOnce:
    """Fails when it is asked by two runs."""

    def __init__(self):
        self.calls = 0

    async def next(self, run):
        """Finish the first run, nothing for the others."""
        self.calls += 1
        return Finish("goal") if self.calls == 1 else None


@pytest.mark.parametrize(
    ("planner", "scenarios"),
    [
        (Silent, {Scenario.SANITY, Scenario.SEALED, Scenario.BUDGET, Scenario.CONCURRENT_REUSE}),
        (Raises, {Scenario.SANITY, Scenario.SEALED, Scenario.PARALLEL, Scenario.CONCURRENT_REUSE}),
        (SpeaksText, {Scenario.SEALED, Scenario.BUDGET}),
        (Malformed, {Scenario.SANITY}),
        (Changes, {Scenario.WAKE_MODE}),
        (Invents, {Scenario.WAKE_MODE}),
        (answers(CallParallel([])), {Scenario.SANITY, Scenario.PARALLEL}),
        (answers(CallParallel([CallTool("a"), CallTool("")])), {Scenario.SANITY, Scenario.PARALLEL}),
        (answers(CallParallel([CallTool("a")], JoinSpec("some"))), {Scenario.PARALLEL}),
        (SilentWhenLate, {Scenario.BUDGET}),
        (RemembersTheFirst, {Scenario.CONCURRENT_REUSE}),
        (OnlyOnce, {Scenario.CONCURRENT_REUSE}),
    ],
)
async def test_a_broken_planner_is_caught(planner, scenarios):
    """A planner with a fault fails the scenarios about it, and no others."""
    assert set(await failed_scenarios(Harness(planner=planner))) == scenarios


async def test_tasks_that_are_left_behind_are_caught():
    """A planner that leaves tasks running is caught, with their names."""
    left = []

    class LeavesTasks:
        async def next(self, run):
            """Finish, and leave a task behind."""
            left.append(asyncio.create_task(asyncio.Event().wait(), name=f"left by {run.quadruple.run_id}"))
            return Finish("goal")

    try:
        failed = await failed_scenarios(Harness(planner=LeavesTasks))
        assert "left by conf-run-63" in failed[Scenario.CONCURRENT_REUSE]
        assert len(failed) == 1
    finally:
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


async def test_tasks_that_are_about_to_end_are_waited_for():
    """A task that a planner started and that ends within a few turns of the loop is not held against it."""
    started = []

    class EndsSoon:
        async def next(self, run):
            """Finish, while a task comes to its end."""
            started.append(asyncio.create_task(asyncio.sleep(0)))
            return Finish("goal")

    assert await run_scenario(Scenario.CONCURRENT_REUSE, Harness(planner=EndsSoon)) == Passed()
    assert all(task.done() for task in started)


@pytest.mark.parametrize("join", [None, JoinSpec(), JoinSpec("first_success"), JoinSpec("n", n=1)])
async def test_a_whole_parallel_call_passes(join):
    """A parallel call with branches, tools and a known join is whole, with or without a join."""
    harness = Harness(planner=answers(CallParallel([CallTool("a"), CallTool("b")], join)))
    assert await run_scenario(Scenario.PARALLEL, harness) == Passed()


@pytest.mark.parametrize("late", [PlannerError("too late"), TimeoutError(), Finish("deadline_exceeded"), CallTool("x")])
async def test_an_overdue_run_may_get_anything_but_nothing(late):
    """Past the deadline an error and any decision are answers."""
    assert await run_scenario(Scenario.BUDGET, Harness(planner=answers(late))) == Passed()


async def test_an_overdue_run_is_an_hour_late():
    """The deadline that the planner is shown lies one hour in the past."""
    seen = []

    def look(run):
        seen.append((run.now() - run.budget.deadline).total_seconds())
        return Finish("goal")

    await run_scenario(Scenario.BUDGET, Harness(planner=answers(look)))
    assert seen == [pytest.approx(3600, abs=60)]


# Models


def with_canned(canned, **fields):
    """The harness of a planner that finishes, and has these canned answers."""
    return Harness(planner=FinishPlanner, scenario=canned.get, **fields)


GOOD = {
    Canned.CALL_TOOL: answers(CallTool("a"))(),
    Canned.FINISH: answers(Finish("goal"))(),
    Canned.CALL_PARALLEL: answers(CallParallel([CallTool("a"), CallTool("b")]))(),
}


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        (Canned.CALL_TOOL, Finish("goal")),
        (Canned.CALL_TOOL, CallTool("")),
        (Canned.CALL_TOOL, None),
        (Canned.FINISH, CallTool("a")),
        (Canned.FINISH, Finish("done")),
        (Canned.CALL_PARALLEL, Finish("goal")),
        (Canned.CALL_PARALLEL, CallParallel([])),
        (Canned.CALL_PARALLEL, PlannerError("cannot")),
    ],
)
async def test_a_model_that_is_misread_is_caught(name, answer):
    """A canned answer that becomes another decision, a malformed one or none at all is caught."""
    outcome = await run_scenario(Scenario.TOP_PROMPTS, with_canned({**GOOD, name: answers(answer)()}))
    assert isinstance(outcome, Failed)


async def test_calls_may_be_made_one_at_a_time():
    """A planner that serialises calls turns the canned parallel call into its first tool."""
    canned = {**GOOD, Canned.CALL_PARALLEL: answers(CallTool("a"))()}
    assert await run_scenario(Scenario.TOP_PROMPTS, with_canned(canned)) == Passed()


@pytest.mark.parametrize("missing", GOOD)
async def test_a_missing_canned_answer_skips(missing):
    """The outcome names the canned answer that a harness lacks."""
    canned = {name: planner for name, planner in GOOD.items() if name != missing}
    outcome = await run_scenario(Scenario.TOP_PROMPTS, with_canned(canned))
    assert outcome == Skipped(f"the harness has no planner for the scenario {missing}")


@pytest.mark.parametrize(
    "answer",
    [*(Finish(reason) for reason in FinishReason), CallTool("a"), PlannerError("gave up"), TaskNotFoundError("x")],
)
async def test_garbage_may_lead_to_a_finish_or_an_error(answer):
    """After garbage any decision, a finish of any reason and an error of the house are fine."""
    harness = with_canned({Canned.MALFORMED: answers(answer)()}, capabilities=Capabilities.LLM_DRIVEN)
    assert await run_scenario(Scenario.MALFORMED, harness) == Passed()


@pytest.mark.parametrize("answer", [None, "garbage", KeyError("tool"), json.JSONDecodeError("no json", "", 0)])
async def test_garbage_that_breaks_the_planner_is_caught(answer):
    """After garbage nothing, garbage and a crash are faults."""
    harness = with_canned({Canned.MALFORMED: answers(answer)()}, capabilities=Capabilities.LLM_DRIVEN)
    outcome = await run_scenario(Scenario.MALFORMED, harness)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, PromiseBrokenError)


async def test_a_model_without_garbage_skips():
    """A planner that asks a model, and whose harness has no garbage, is skipped for that reason."""
    harness = with_canned(GOOD, capabilities=Capabilities.LLM_DRIVEN)
    outcome = await run_scenario(Scenario.MALFORMED, harness)
    assert outcome == Skipped("the harness has no planner for the scenario malformed")


async def test_the_canned_parallel_call_is_looked_at():
    """Where the harness has a parallel call, it is that which must be whole."""
    harness = with_canned({Canned.CALL_PARALLEL: answers(CallParallel([CallTool("")]))()})
    assert isinstance(await run_scenario(Scenario.PARALLEL, harness), Failed)


# Pauses


def nested(levels):
    """A payload of this many levels."""
    value = {}
    for _ in range(levels - 1):
        value = {"k": value}
    return value


def pausing(payload, reason=PauseReason.AWAIT_INPUT):
    """The harness of a planner that pauses with this payload."""
    return Harness(planner=answers(RequestPause(reason, payload)), capabilities=Capabilities.CAN_PAUSE)


WHOLE = 16 * 1024 - len('{"k":""}')


@pytest.mark.parametrize(
    "payload",
    [{}, nested(6), {str(n): n for n in range(64)}, {"a": {str(n): n for n in range(63)}}, {"k": "x" * WHOLE}],
    ids=["empty", "depth 6", "64 keys", "64 nested keys", "16 KiB"],
)
async def test_a_pause_within_its_bounds_passes(payload):
    """The bounds themselves are allowed."""
    assert await run_scenario(Scenario.PAUSE_PAYLOAD, pausing(payload)) == Passed()


ENDLESS = {}
ENDLESS["self"] = ENDLESS


@pytest.mark.parametrize(
    "payload",
    [
        nested(7),
        {str(n): n for n in range(65)},
        {"a": {str(n): n for n in range(64)}},
        {"k": "x" * (WHOLE + 1)},
        {"k": "ä" * (WHOLE // 2 + 1)},
        {"k": object()},
        ENDLESS,
    ],
    ids=["depth 7", "65 keys", "65 nested keys", "16 KiB + 1", "umlauts", "no JSON", "endless"],
)
async def test_a_pause_beyond_its_bounds_is_caught(payload):
    """One level, one key or one byte too many, and what is no JSON, are faults."""
    assert isinstance(await run_scenario(Scenario.PAUSE_PAYLOAD, pausing(payload)), Failed)


async def test_a_pause_for_no_known_reason_is_caught():
    """The reason of a pause is one of the four."""
    outcome = await run_scenario(Scenario.PAUSE_PAYLOAD, pausing({}, "coffee"))
    assert "coffee" in outcome.reason


async def test_a_claim_to_pause_is_kept():
    """A planner that claims to pause and does something else is caught."""
    outcome = await run_scenario(
        Scenario.PAUSE_PAYLOAD, Harness(planner=FinishPlanner, capabilities=Capabilities.CAN_PAUSE)
    )
    assert "returned Finish" in outcome.reason


class Empty(answers(RequestPause(PauseReason.AWAIT_INPUT, nested(7)))):
    """A planner that counts as nothing, as an empty container does."""

    def __len__(self):
        """Nothing."""
        return 0


async def test_a_planner_that_counts_as_nothing_is_a_planner():
    """A canned planner is used even if it is empty in the sense of Python."""
    harness = with_canned({Canned.PAUSE: Empty()}, capabilities=Capabilities.CAN_PAUSE)
    assert "levels" in (await run_scenario(Scenario.PAUSE_PAYLOAD, harness)).reason


async def test_the_canned_pause_is_looked_at():
    """Where the harness has a planner that pauses, it is that which must keep the bounds."""
    canned = {Canned.PAUSE: answers(RequestPause(PauseReason.AWAIT_INPUT, nested(7)))()}
    outcome = await run_scenario(Scenario.PAUSE_PAYLOAD, with_canned(canned, capabilities=Capabilities.CAN_PAUSE))
    assert "levels" in outcome.reason


# Steering


@pytest.mark.parametrize("answer", [Finish("goal"), Finish("no_path"), CallTool("a"), None])
async def test_a_cancel_that_is_ignored_is_caught(answer):
    """A planner that claims to honour a cancel must finish as cancelled."""
    harness = Harness(planner=answers(answer), capabilities=Capabilities.HONOURS_CANCEL_CONTROL)
    assert isinstance(await run_scenario(Scenario.STEERING, harness), Failed)


# Waking


class Waking:
    """Plays a whole script on one registry: a list of functions of (registry, run)."""

    def __init__(self, registry, script):
        self.registry = registry
        self.script = iter(script)

    async def next(self, run):
        """The next line."""
        return await next(self.script)(self.registry, run)


def waking(mode, *script, patience_s=2.0):
    """The harness of a planner that follows this script when it is woken; its last line is repeated."""

    def repeated():
        yield from script
        while True:
            yield script[-1]

    return Harness(
        planner=FinishPlanner,
        planner_on=lambda registry: Waking(registry, repeated()),
        wake_mode=mode,
        capabilities=Capabilities.WAKE_ROUND_TRIP,
        patience_s=patience_s,
    )


def line(decision):
    """A line that always decides the same, or calls the function with the run."""

    async def say(registry, run):
        return decision(run) if callable(decision) else decision

    return say


def own_task(run):
    """Awaits the task that the runtime noted."""
    return AwaitTask(run.trajectory.steps[0].observation["task_id"])


async def spawns_by_itself(registry, run):
    """Spawns without a key, which makes the runtime's task the second one."""
    who = run.quadruple
    spawn = SpawnTask(spec=SpawnSpec(description="x"), group_id="g")
    await registry.resolve_or_create_group(GroupRequest(session=who.identity, id="g"), who=who)
    await registry.spawn(spawn_request(who, spawn, "", "g"))
    return spawn


async def spawns_elsewhere(registry, run):
    """Spawns a task that its decision knows nothing of."""
    await registry.spawn(spawn_request(run.quadruple, SpawnTask(), "", ""))
    return SpawnTask()


async def seals_too_early(registry, run):
    """Names a group that takes no members."""
    who = run.quadruple
    await registry.resolve_or_create_group(GroupRequest(session=who.identity, id="g"), who=who)
    await registry.seal_group("g", who=who)
    return SpawnTask(group_id="g")


async def hangs(registry, run):
    """Never answers."""
    await asyncio.Event().wait()


SPAWN = line(SpawnTask())
POLLED_SPAWN = line(SpawnTask(group_id="g"))
DONE = line(Finish("goal"))
OWN_TASK = line(own_task)


@pytest.mark.parametrize(
    ("mode", "script", "why"),
    [
        (WakeMode.PUSH, [DONE], "returned Finish"),
        (WakeMode.PUSH, [line(SpawnTask(spec=SpawnSpec(retain_turn=True))), DONE], "retain_turn"),
        (WakeMode.PUSH, [line(SpawnTask("sideways")), DONE], "sideways"),
        (WakeMode.PUSH, [SPAWN, line(CallTool("a"))], "woken with the result, the planner returned CallTool"),
        (WakeMode.HYBRID, [SPAWN, OWN_TASK], "woken with the result"),
        (WakeMode.PUSH, [spawns_elsewhere, DONE], "2 tasks"),
        (WakeMode.PUSH, [seals_too_early, DONE], "sealed"),
        (WakeMode.POLL, [DONE], "returned Finish"),
        (WakeMode.POLL, [SPAWN, OWN_TASK, DONE], "group_id"),
        (WakeMode.POLL, [POLLED_SPAWN, DONE], "not AwaitTask"),
        (WakeMode.POLL, [POLLED_SPAWN, line(lambda run: AwaitTask(run.quadruple.run_id)), DONE], "its own run"),
        (WakeMode.POLL, [POLLED_SPAWN, line(AwaitTask("other")), DONE], "awaits 'other'"),
        (WakeMode.POLL, [POLLED_SPAWN, OWN_TASK], "still waits at the 64th call"),
        (WakeMode.POLL, [POLLED_SPAWN, OWN_TASK, line(None)], "None is not a decision"),
        (WakeMode.POLL, [spawns_by_itself, OWN_TASK, DONE], "2 tasks"),
    ],
)
async def test_a_planner_that_does_not_wake_is_caught(mode, script, why):
    """Whatever breaks the way from the spawn to the result is caught, and the reason says where."""
    outcome = await run_scenario(Scenario.WAKE_ROUND_TRIP, waking(mode, *script))
    assert isinstance(outcome, Failed)
    assert why in outcome.reason


async def test_a_poller_that_hangs_is_caught():
    """A planner that does not answer in time after its task has ended is caught by the clock."""
    harness = waking(WakeMode.POLL, POLLED_SPAWN, OWN_TASK, hangs, patience_s=0.01)
    outcome = await run_scenario(Scenario.WAKE_ROUND_TRIP, harness)
    assert "still waits 0.01 s" in outcome.reason


class NeverEnds(InProcessTaskRegistry):
    """A registry on which no task completes."""

    async def mark_complete(self, task_id, result=b"", *, who=None):
        """Do nothing."""


class EndsBadly(InProcessTaskRegistry):
    """A registry that cancels the group of a task that completes."""

    async def mark_complete(self, task_id, result=b"", *, who=None):
        """Cancel the group."""
        await self.cancel_group((await self.get(task_id, who=who)).group_id, who=who)


class LosesMembers(InProcessTaskRegistry):
    """A registry that forgets the members of a group that ends."""

    async def watch_group(self, session, group_id):
        """A watch that has delivered an empty group."""
        watch = GroupWatch()
        status = GroupStatus.COMPLETED
        watch.deliver(GroupCompletion(group_id=group_id, session=session, final_status=status, resolved_at=UNSET_TIME))
        return watch


@pytest.mark.parametrize(
    ("kind", "why"),
    [(NeverEnds, "still runs 0.01 s"), (EndsBadly, "did not complete"), (LosesMembers, "0 members, not one")],
)
async def test_a_registry_that_does_not_complete_is_caught(kind, why):
    """The group of the spawned task must end in time, and well."""
    bus = MemoryEventBus()
    harness = waking(WakeMode.PUSH, SPAWN, DONE, patience_s=0.01)
    harness = msgspec.structs.replace(harness, open_registry=lambda: kind(bus=bus), cleanup=bus.aclose)
    assert why in (await run_scenario(Scenario.WAKE_ROUND_TRIP, harness)).reason


@pytest.mark.parametrize(("mode", "spawn"), [(WakeMode.PUSH, SPAWN), (WakeMode.POLL, POLLED_SPAWN)])
async def test_a_context_without_history_gets_one(mode, spawn):
    """The wake round trip needs a history to note the spawn in, and adds one where the harness's context has none."""

    def context():
        made = default_context()
        made.trajectory = None
        return made

    script = [spawn, DONE] if mode is WakeMode.PUSH else [spawn, OWN_TASK, DONE]
    harness = msgspec.structs.replace(waking(mode, *script), context=context)
    assert await run_scenario(Scenario.WAKE_ROUND_TRIP, harness) == Passed()


async def test_a_planner_that_cannot_be_built_on_a_registry_is_skipped():
    """The wake round trip needs a planner over the registry, and says so."""
    harness = Harness(planner=FinishPlanner, capabilities=Capabilities.WAKE_ROUND_TRIP)
    outcome = await run_scenario(Scenario.WAKE_ROUND_TRIP, harness)
    assert outcome == Skipped("the harness has no planner over a task registry: pass planner_on")


# The pack itself


async def test_a_scenario_that_hangs_is_over_in_time():
    """A planner that never answers fails its scenario instead of holding up the pack."""

    class Hangs:
        async def next(self, run):
            """Never answer."""
            await asyncio.Event().wait()

    outcome = await run_scenario(Scenario.SANITY, Harness(planner=Hangs, limit_s=0.01))
    assert outcome.reason == "not over after 0.01 s"


async def test_a_planners_own_timeout_is_its_own():
    """A timeout that the planner raises is not taken for the pack's."""
    outcome = await run_scenario(Scenario.SANITY, Harness(planner=answers(TimeoutError("mine"))))
    assert outcome.reason == "TimeoutError: mine"


async def test_every_failure_is_named():
    """The error names all scenarios that failed, and its cause holds what was raised."""
    with pytest.raises(ConformanceFailedError, match="Sanity_NextReturnsDecision") as caught:
        await run_conformance(Harness(planner=Silent))
    error = caught.value
    assert all(name in str(error) for name in error.report.failed)
    assert len(error.__cause__.exceptions) == len(error.report.failed) == 4
    assert Scenario.WAKE_MODE in error.report.passed


async def test_everything_is_cleaned_up_whatever_happened():
    """What the harness opened is cleaned up after scenarios that pass, fail and are skipped."""
    cleaned = []
    harness = Harness(planner=Raises, cleanup=lambda: cleaned.append(1))
    await failed_scenarios(harness)
    assert len(cleaned) == len(Scenario)


async def test_a_cleanup_that_fails_fails_its_scenario():
    """A failing cleanup is an outcome."""

    def cleanup():
        raise RuntimeError("still open")

    outcome = await run_scenario(Scenario.SANITY, Harness(planner=FinishPlanner, cleanup=cleanup))
    assert outcome.reason == "RuntimeError: still open"


async def test_a_factory_that_fails_fails_its_scenario():
    """A planner that cannot be built is a failure, not a skip."""

    def planner():
        raise RuntimeError("no planner")

    outcome = await run_scenario(Scenario.SANITY, Harness(planner=planner))
    assert outcome.reason == "RuntimeError: no planner"


async def test_cancelling_the_pack_cancels_it():
    """The pack stops when its caller is cancelled, and cleans up."""
    cleaned = []
    started = asyncio.Event()

    class Hangs:
        async def next(self, run):
            """Never answer."""
            started.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(run_conformance(Harness(planner=Hangs, cleanup=lambda: cleaned.append(1))))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == [1]


async def test_an_unknown_scenario_is_refused():
    """A scenario that the pack does not have is the caller's mistake."""
    with pytest.raises(ValueError, match="Nonsense"):
        await run_scenario("Nonsense", Harness(planner=FinishPlanner))


def test_it_needs_no_test_framework():
    """The pack and the scripted planner import without pytest."""
    code = "import sys, harborage.planner.conformance, harborage.testing.planners; sys.exit('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
