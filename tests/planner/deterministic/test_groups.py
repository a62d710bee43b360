"""The steps that follow task groups."""

from __future__ import annotations

import asyncio

import pytest

from harborage.events import MemoryEventBus
from harborage.identity import Quadruple
from harborage.planner import (
    AwaitTask,
    CallTool,
    ControlSignals,
    DeterministicStepError,
    Finish,
    FinishReason,
    InvalidConfigError,
    InvalidDecisionError,
    SpawnSpec,
    SpawnTask,
)
from harborage.planner.deterministic import (
    DeterministicPlanner,
    FinishStep,
    GroupAwareStep,
    SpawnAndAwaitStep,
    WatchGroupStep,
)
from harborage.planner.deterministic.steps import RunStates
from harborage.planner.spawning import SpawnDepthExceededError, spawn_request
from harborage.tasks import (
    GroupNotFoundError,
    GroupRequest,
    GroupSealedError,
    GroupStatus,
    GroupWatch,
    IdempotencyConflictError,
    InProcessTaskRegistry,
    MemberOutcome,
    RegistryClosedError,
    SpawnRequest,
    TaskFailure,
    TaskFilter,
    TaskKind,
    TaskStatus,
)
from harborage.testing.clock import settle
from tests.kit.conformance.task_stores import RemoteStore

pytestmark = pytest.mark.anyio

ME = Quadruple("t", "u", "s", "r-1")
SESSION = ME.identity
SPEC = SpawnSpec(description="look it up", query="harbours", priority=7)


def outcomes(run, members):
    """Goes on with how the members ended."""
    return CallTool("use", b"{}", ",".join(member.task_id for member in members))


def spawning(**fields) -> SpawnAndAwaitStep:
    """A complete spawning step."""
    return SpawnAndAwaitStep(**{"spec_builder": lambda run: SPEC, "on_resolved": outcomes, **fields})


def tree(registry, *steps) -> DeterministicPlanner:
    """A planner of these steps, which finishes when none of them claims the call."""
    return DeterministicPlanner([*steps, FinishStep(FinishReason.GOAL)], registry=registry)


async def complete(registry, task_id, who=ME, result=b'{"n":1}'):
    """Run a task and complete it."""
    await registry.mark_running(task_id, who=who)
    await registry.mark_complete(task_id, result, who=who)


async def group_of(registry, group_id="g", members=1, who=ME):
    """A sealed group with this many pending members; returns their ids."""
    await registry.resolve_or_create_group(GroupRequest(session=who.identity, id=group_id), who=who)
    ids = []
    for _ in range(members):
        request = SpawnRequest(identity=who.identity.with_run(""), kind=TaskKind.BACKGROUND, group_id=group_id)
        ids.append((await registry.spawn(request)).id)
    await registry.seal_group(group_id, who=who)
    return ids


class FirstTime:
    """Stands before a function and fails its first call."""

    def __init__(self, then):
        self.then = then
        self.calls = 0

    def __call__(self, *args, **kwargs):
        """Fail once, then do what the function does."""
        self.calls += 1
        if self.calls == 1:
            raise RuntimeError("not yet")
        return self.then(*args, **kwargs)


@pytest.mark.parametrize("step", [spawning(), WatchGroupStep()])
def test_both_steps_are_group_aware(step):
    """Both fit the protocol that a group-aware step of one's own has to fit."""
    assert isinstance(step, GroupAwareStep)
    assert not isinstance(FinishStep(), GroupAwareStep)


# Spawning


async def test_the_first_visit_spawns(registry, runs):
    """The first call makes the group and its one member, seals the group, and returns the spawn as a decision."""
    decision = await tree(registry, spawning()).next(runs())
    assert isinstance(decision, SpawnTask)
    assert decision.kind == "background"
    assert decision.spec == SPEC
    (summary,) = await registry.list(SESSION, TaskFilter(parent="r-1"))
    task = await registry.get(summary.id, who=ME)
    assert (task.description, task.query, task.priority) == ("look it up", "harbours", 7)
    assert (task.group_id, task.idempotency_key) == (decision.group_id, decision.idempotency_key)
    group = await registry.resolve_or_create_group(GroupRequest(session=SESSION, id=decision.group_id), who=ME)
    assert (group.status, group.owner_task_id, group.members) == (GroupStatus.SEALED, "r-1", (task.id,))


async def test_acting_on_the_decision_finds_the_task(registry, runs):
    """A runtime that executes the returned decision requests the same task and gets the existing one."""
    decision = await tree(registry, spawning()).next(runs())
    request = spawn_request(ME, decision, decision.idempotency_key, decision.group_id)
    handle = await registry.spawn(request)
    assert handle.reused
    assert len(await registry.list(SESSION)) == 1


async def test_the_group_takes_its_ways_from_the_spec(registry, runs):
    """Keeping the turn, failing fast and the description go from the spec to the group."""
    spec = SpawnSpec(description="d", retain_turn=True, fail_fast=True)
    decision = await tree(registry, spawning(spec_builder=lambda run: spec)).next(runs())
    group = await registry.resolve_or_create_group(GroupRequest(session=SESSION, id=decision.group_id), who=ME)
    assert (group.retain_turn, group.fail_fast, group.description) == (True, True, "d")


@pytest.mark.parametrize("kind", [TaskKind.FOREGROUND, "foreground"])
async def test_the_kind_is_the_tasks(kind, registry, runs):
    """The task is of the configured kind; the default is background."""
    decision = await tree(registry, spawning(kind=kind)).next(runs())
    assert decision.kind == "foreground"
    (summary,) = await registry.list(SESSION)
    assert summary.kind is TaskKind.FOREGROUND


async def test_it_waits_for_the_task_and_not_for_itself(registry, runs):
    """Until the group has ended every call awaits the spawned task; awaiting the run's own would never end."""
    planner = tree(registry, spawning())
    await planner.next(runs())
    (summary,) = await registry.list(SESSION)
    for _ in range(3):
        assert await planner.next(runs()) == AwaitTask(summary.id)


async def test_the_end_of_the_group_is_delivered_once(registry, runs):
    """When the group has ended `on_resolved` decides, with how the members ended; then the step leaves the calls."""
    seen = []

    def on_resolved(run, members):
        seen.append((run.quadruple, members))
        return CallTool("use")

    planner = tree(registry, spawning(on_resolved=on_resolved))
    await planner.next(runs())
    (summary,) = await registry.list(SESSION)
    await complete(registry, summary.id)
    assert await planner.next(runs()) == CallTool("use")
    assert seen == [(ME, (MemberOutcome(summary.id, TaskStatus.COMPLETE, b'{"n":1}'),))]
    assert isinstance(await planner.next(runs()), Finish)
    assert len(seen) == 1


@pytest.mark.parametrize("end", ["failed", "cancelled"])
async def test_a_member_that_failed_is_an_end_too(end, registry, runs):
    """How a member ended is for `on_resolved` to judge: a failed or cancelled one is delivered like any other."""
    planner = tree(registry, spawning(on_resolved=lambda run, members: Finish("no_path", str(members[0].status))))
    await planner.next(runs())
    (summary,) = await registry.list(SESSION)
    if end == "failed":
        await registry.mark_running(summary.id, who=ME)
        await registry.mark_failed(summary.id, TaskFailure("boom"), who=ME)
    else:
        await registry.cancel(summary.id, who=ME)
    assert (await planner.next(runs())).payload == end


async def test_a_guard_keeps_it_from_spawning(registry, runs):
    """A step whose guard says no makes nothing and claims nothing."""
    planner = tree(registry, spawning(when=lambda run: run.goal == "spawn"))
    assert isinstance(await planner.next(runs(goal="go")), Finish)
    assert await registry.list(SESSION) == []
    assert isinstance(await planner.next(runs(goal="spawn")), SpawnTask)


async def test_a_skipped_step_never_complains(registry, runs):
    """The guard is asked before the parts are checked."""
    steps = (SpawnAndAwaitStep(when=lambda run: False), WatchGroupStep(when=lambda run: False))
    assert isinstance(await tree(registry, *steps).next(runs()), Finish)


@pytest.mark.parametrize("part", ["spec_builder", "on_resolved"])
async def test_a_spawn_needs_its_parts(part, registry, runs):
    """A missing part is a step error that names it, and nothing is spawned."""
    with pytest.raises(DeterministicStepError, match=part) as caught:
        await tree(registry, spawning(**{part: None})).next(runs())
    assert isinstance(caught.value.__cause__, InvalidConfigError)
    assert await registry.list(SESSION) == []


@pytest.mark.parametrize("wrong", [{"kind": "sideways"}, {"spec_builder": lambda run: SpawnSpec(priority=1001)}])
async def test_a_spawn_that_the_runtime_would_refuse_is_not_made(wrong, registry, runs):
    """The decision is checked before anything is spawned."""
    with pytest.raises(DeterministicStepError) as caught:
        await tree(registry, spawning(**wrong)).next(runs())
    assert isinstance(caught.value.__cause__, InvalidDecisionError)
    assert await registry.list(SESSION) == []


async def test_a_step_without_a_planner_says_so(runs):
    """A step that no planner holds has no registry, and says where to get one."""
    with pytest.raises(InvalidConfigError, match="registry="):
        await spawning().decide(runs())


async def test_a_step_keeps_its_registry(registry, runs):
    """Planners of one registry may share a step; one on another registry may not."""
    step = spawning()
    first, second = tree(registry, step), tree(registry, step)
    bus = MemoryEventBus()
    with pytest.raises(InvalidConfigError, match="another task registry"):
        tree(InProcessTaskRegistry(bus=bus), step)
    await bus.aclose()
    assert isinstance(await first.next(runs()), SpawnTask)
    assert isinstance(await second.next(runs()), AwaitTask)


async def test_forgetting_before_a_registry_changes_nothing():
    """A step without a registry accepts `forget`."""
    spawning().forget(ME)


async def test_a_given_group_is_used(registry, runs):
    """With a group id the task joins that group, which is made if it is not there."""
    decision = await tree(registry, spawning(group_id="mine")).next(runs())
    assert decision.group_id == "mine"
    group = await registry.resolve_or_create_group(GroupRequest(session=SESSION, id="mine"), who=ME)
    assert group.status is GroupStatus.SEALED


async def test_a_given_group_that_takes_no_members_fails_the_step(registry, runs):
    """A group that is sealed already is a step error."""
    await group_of(registry, "mine")
    with pytest.raises(DeterministicStepError) as caught:
        await tree(registry, spawning(group_id="mine")).next(runs())
    assert isinstance(caught.value.__cause__, GroupSealedError)


async def test_it_awaits_a_member_that_still_runs(registry, runs):
    """Once its own task has ended it awaits another member of the group, so that no step is spent on a finished one."""
    await registry.resolve_or_create_group(GroupRequest(session=SESSION, id="mine"), who=ME)
    others = [
        (await registry.spawn(SpawnRequest(identity=SESSION.with_run(""), kind="background", group_id="mine"))).id
        for _ in range(2)
    ]
    planner = tree(registry, spawning(group_id="mine"))
    await planner.next(runs())
    (own,) = [task.id for task in await registry.list(SESSION, TaskFilter(parent="r-1"))]
    assert await planner.next(runs()) == AwaitTask(own)
    await complete(registry, own)
    assert await planner.next(runs()) == AwaitTask(others[0])
    await complete(registry, others[0])
    assert await planner.next(runs()) == AwaitTask(others[1])
    await complete(registry, others[1])
    assert await planner.next(runs()) == CallTool("use", b"{}", ",".join([*others, own]))


async def test_it_never_awaits_its_own_run(registry, runs):
    """A run that is a member of the group it waits for does not wait for itself."""
    await registry.resolve_or_create_group(GroupRequest(session=SESSION, id="mine"), who=ME)
    request = SpawnRequest(identity=SESSION.with_run(""), kind="background", group_id="mine")
    run = runs((await registry.spawn(request)).id)
    planner = tree(registry, spawning(group_id="mine"))
    decision = await planner.next(run)
    assert isinstance(decision, SpawnTask)
    (own,) = [task.id for task in await registry.list(SESSION, TaskFilter(parent=run.quadruple.run_id))]
    await complete(registry, own)
    assert await planner.next(run) == AwaitTask(own)


async def test_spawning_has_a_depth(registry, runs):
    """A run at the deepest level may not spawn, so a tree that plans its own children ends; nothing is made."""
    parent = None
    for _ in range(3):
        request = SpawnRequest(identity=SESSION.with_run(""), kind="background", parent_task_id=parent)
        parent = (await registry.spawn(request)).id
    for depth, is_allowed in ((2, False), (3, True)):
        planner = tree(registry, spawning(max_depth=depth))
        if is_allowed:
            assert isinstance(await planner.next(runs(parent)), SpawnTask)
            continue
        with pytest.raises(DeterministicStepError) as caught:
            await planner.next(runs(parent))
        assert isinstance(caught.value.__cause__, SpawnDepthExceededError)
        assert len(await registry.list(SESSION)) == 3


# Failures and retries


async def test_a_failed_spawn_is_taken_up_again(registry, runs, monkeypatch):
    """A spawn that failed half way is resumed by the next call, with the same request: one task, one group."""
    built = iter([SPEC, SpawnSpec(description="another")])
    planner = tree(registry, spawning(spec_builder=lambda run: next(built)))
    monkeypatch.setattr(registry, "seal_group", FirstTime(registry.seal_group))
    with pytest.raises(DeterministicStepError, match="not yet"):
        await planner.next(runs())
    decision = await planner.next(runs())
    assert isinstance(decision, SpawnTask)
    assert decision.spec == SPEC
    (summary,) = await registry.list(SESSION)
    await complete(registry, summary.id)
    assert await planner.next(runs()) == CallTool("use", b"{}", summary.id)


async def test_a_failing_builder_is_asked_again(registry, runs):
    """A builder that failed made nothing, and is asked again at the next call."""
    planner = tree(registry, spawning(spec_builder=FirstTime(lambda run: SPEC)))
    with pytest.raises(DeterministicStepError, match="not yet"):
        await planner.next(runs())
    assert await registry.list(SESSION) == []
    assert isinstance(await planner.next(runs()), SpawnTask)


@pytest.mark.parametrize("turns", range(1, 4))
async def test_a_cancelled_call_leaves_the_step_usable(turns, runs):
    """A caller that is cancelled while it spawns blocks no other; the next call takes the step up again."""
    registry = InProcessTaskRegistry(bus=MemoryEventBus(), store=RemoteStore(3))
    planner = tree(registry, spawning())
    call = asyncio.create_task(planner.next(runs()))
    await settle(turns)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert isinstance(await planner.next(runs()), SpawnTask)
    assert len(await registry.list(SESSION)) == 1


async def test_on_resolved_that_fails_is_asked_again(registry, runs):
    """An error of `on_resolved` is a step error; the step stays unresolved, and the next call asks again."""
    on_resolved = FirstTime(outcomes)
    planner = tree(registry, spawning(on_resolved=on_resolved))
    await planner.next(runs())
    (summary,) = await registry.list(SESSION)
    await complete(registry, summary.id)
    with pytest.raises(DeterministicStepError, match="not yet"):
        await planner.next(runs())
    assert await planner.next(runs()) == CallTool("use", b"{}", summary.id)
    assert on_resolved.calls == 2


async def test_on_resolved_without_a_decision_is_not_asked_again(registry, runs):
    """No decision is a step error, and the step is done with: the next call goes to the steps behind it."""
    planner = tree(registry, spawning(on_resolved=lambda run, members: None))
    await planner.next(runs())
    (summary,) = await registry.list(SESSION)
    await complete(registry, summary.id)
    with pytest.raises(DeterministicStepError, match="returned no decision"):
        await planner.next(runs())
    assert isinstance(await planner.next(runs()), Finish)


async def test_a_watch_that_closed_without_a_value_is_no_end(registry, runs, monkeypatch):
    """A watch that will never deliver leaves the step waiting; it does not invent an end."""
    planner = tree(registry, spawning())
    await planner.next(runs())
    (summary,) = await registry.list(SESSION)

    async def closed(session, group_id):
        watch = GroupWatch()
        watch.close()
        return watch

    monkeypatch.setattr(registry, "watch_group", closed)
    assert await planner.next(runs()) == AwaitTask(summary.id)


async def test_looking_leaves_no_watch_behind(registry, runs, monkeypatch):
    """Each look at the group gives its watch back, so that a long wait costs the registry nothing."""
    watches = []
    watch_group = registry.watch_group

    async def noted(*asked):
        watches.append(await watch_group(*asked))
        return watches[-1]

    monkeypatch.setattr(registry, "watch_group", noted)
    planner = tree(registry, spawning())
    for _ in range(5):
        await planner.next(runs())
    assert len(watches) == 4
    assert all(watch.is_closed for watch in watches)


# Keys


async def test_runs_of_one_session_each_spawn(registry, runs):
    """A second run of the same session gets a task of its own, also after the first has resolved."""
    planner = tree(registry, spawning())
    first = await planner.next(runs("r-1"))
    (summary,) = await registry.list(SESSION)
    await complete(registry, summary.id)
    assert isinstance(await planner.next(runs("r-1")), CallTool)
    second = await planner.next(runs("r-2"))
    assert isinstance(second, SpawnTask)
    assert second.group_id != first.group_id
    assert second.idempotency_key != first.idempotency_key
    assert len(await registry.list(SESSION)) == 2


async def test_equal_run_ids_of_other_identities_do_not_meet(registry, runs):
    """Tenant, user and session are part of every key: equal run ids get tasks and groups of their own."""
    planner = tree(registry, spawning())
    decisions = [
        await planner.next(runs("r-1", **other))
        for other in ({}, {"tenant": "t2"}, {"user": "u2"}, {"session": "s2"}, {"tenant": "t2", "user": "u2"})
    ]
    assert all(isinstance(decision, SpawnTask) for decision in decisions)
    assert len({decision.group_id for decision in decisions}) == 5


async def test_two_steps_of_one_planner_do_not_meet(registry, runs):
    """Spawning steps with ids of their own spawn one after the other."""
    planner = tree(registry, spawning(step_id="a"), spawning(step_id="b"))
    first = await planner.next(runs())
    (summary,) = await registry.list(SESSION)
    await complete(registry, summary.id)
    assert isinstance(await planner.next(runs()), CallTool)
    second = await planner.next(runs())
    assert isinstance(second, SpawnTask)
    assert second.group_id != first.group_id


async def test_a_run_carried_on_elsewhere_starts_no_second_task(registry, runs):
    """A planner that does not know the run yet spawns by the same key, and so finds the task that is there."""
    first = await tree(registry, spawning()).next(runs())
    again = tree(registry, spawning())
    assert await again.next(runs()) == first
    (summary,) = await registry.list(SESSION)
    assert await again.next(runs()) == AwaitTask(summary.id)
    await complete(registry, summary.id)
    assert isinstance(await again.next(runs()), CallTool)


async def test_another_request_under_the_same_key_is_refused(registry, runs):
    """A builder that asks for something else under the same run gets a conflict instead of starting twice."""
    await tree(registry, spawning()).next(runs())
    changed = tree(registry, spawning(spec_builder=lambda run: SpawnSpec(description="else")))
    with pytest.raises(DeterministicStepError) as caught:
        await changed.next(runs())
    assert isinstance(caught.value.__cause__, IdempotencyConflictError)


# Eviction


def remembered(*steps) -> int:
    """How many runs these steps remember."""
    return sum(len(step._states) for step in steps)


@pytest.mark.parametrize("reason", ["own", "steering", "nobody"])
async def test_a_finish_leaves_nothing_behind(reason, registry, runs):
    """Whatever finish the planner returns, nothing of the run is remembered afterwards."""
    step = spawning()
    steps = [step] if reason == "nobody" else [step, FinishStep(FinishReason.GOAL)]
    planner = DeterministicPlanner(steps, registry=registry)
    await planner.next(runs())
    (summary,) = await registry.list(SESSION)
    await complete(registry, summary.id)
    if reason == "steering":
        finish = await planner.next(runs(control=ControlSignals(cancelled=True)))
    else:
        assert isinstance(await planner.next(runs()), CallTool)
        assert remembered(step) == 1
        finish = await planner.next(runs())
    assert isinstance(finish, Finish)
    assert remembered(step) == 0


async def test_an_end_without_a_finish_leaves_nothing_behind(registry, runs):
    """A run whose own task is cancelled from outside is forgotten, though the planner never finished it."""
    own = (await registry.spawn(SpawnRequest(identity=SESSION.with_run(""), kind="foreground"))).id
    step = spawning()
    planner = tree(registry, step)
    await planner.next(runs(own))
    assert remembered(step) == 1
    await registry.cancel(own, who=ME)
    assert remembered(step) == 0


async def test_a_host_can_say_that_a_run_is_over(registry, runs):
    """A host whose runs have no tasks tells the planner, and only that run is forgotten."""
    step = spawning()
    planner = tree(registry, step)
    for run_id in ("r-1", "r-2"):
        await planner.next(runs(run_id))
    planner.forget(ME)
    assert remembered(step) == 1


async def test_a_cancelled_run_does_not_disturb_its_sibling(registry, runs):
    """Cancelling one run of a session leaves the other run's task and its place in the step alone."""
    planner = tree(registry, spawning())
    await planner.next(runs("r-1"))
    await planner.next(runs("r-2"))
    finish = await planner.next(runs("r-1", control=ControlSignals(cancelled=True)))
    assert finish.reason is FinishReason.CANCELLED
    (theirs,) = await registry.list(SESSION, TaskFilter(parent="r-2"))
    assert await planner.next(runs("r-2")) == AwaitTask(theirs.id)
    await complete(registry, theirs.id)
    assert isinstance(await planner.next(runs("r-2")), CallTool)


# Concurrency


async def test_128_first_calls_spawn_once(registry, runs):
    """Of 128 concurrent first calls for one run exactly one spawns; all the others await that task."""
    planner = tree(registry, spawning())
    decisions = await asyncio.gather(*(planner.next(runs()) for _ in range(128)))
    (summary,) = await registry.list(SESSION)
    spawns = [decision for decision in decisions if isinstance(decision, SpawnTask)]
    assert len(spawns) == 1
    assert [decision for decision in decisions if decision not in spawns] == [AwaitTask(summary.id)] * 127


async def test_128_calls_at_the_end_deliver_once(registry, runs):
    """Of 128 concurrent calls after the group has ended exactly one gets `on_resolved`; the others go on behind it."""
    step = spawning()
    await tree(registry, step).next(runs())
    (summary,) = await registry.list(SESSION)
    await complete(registry, summary.id)
    # The planner would finish the run with the second call, which forgets it: ask the step itself.
    answers = await asyncio.gather(*(step.decide(runs()) for _ in range(128)))
    assert answers.count((None, False)) == 127


async def test_128_runs_go_their_own_ways(registry, runs):
    """128 runs of many identities on one planner each spawn, wait for and take up their own task, and leave nothing."""
    step = spawning(spec_builder=lambda run: SpawnSpec(description=run.quadruple.run_id))
    planner = tree(registry, step)

    async def one(number):
        who = {"tenant": f"t{number % 3}", "user": f"u{number % 5}", "session": f"s{number % 7}"}
        run = runs(f"r-{number}", **who)
        await planner.next(run)
        awaited = await planner.next(run)
        assert (await registry.get(awaited.task_id, who=run.quadruple)).description == f"r-{number}"
        await asyncio.sleep(0)
        await complete(registry, awaited.task_id, run.quadruple)
        assert await planner.next(run) == CallTool("use", b"{}", awaited.task_id)
        return await planner.next(run)

    before = asyncio.all_tasks()
    finishes = await asyncio.gather(*(one(number) for number in range(128)))
    assert [finish.metadata["run_id"] for finish in finishes] == [f"r-{number}" for number in range(128)]
    assert remembered(step) == 0
    assert asyncio.all_tasks() == before


# Watching a group of somebody else's


def watching(**fields) -> WatchGroupStep:
    """A complete watching step."""
    return WatchGroupStep(**{"group_id": "g", "owner_task_id": "owner", "on_resolved": outcomes, **fields})


async def test_watching_waits_and_delivers_once(registry, runs):
    """Until the group has ended the owner is awaited; then `on_resolved` decides, once, and the step is done."""
    members = await group_of(registry, members=2)
    planner = tree(registry, watching())
    assert await planner.next(runs()) == AwaitTask("owner")
    await complete(registry, members[0])
    assert await planner.next(runs()) == AwaitTask("owner")
    await complete(registry, members[1])
    assert await planner.next(runs()) == CallTool("use", b"{}", ",".join(members))
    assert isinstance(await planner.next(runs()), Finish)


async def test_watching_spawns_nothing(registry, runs):
    """A watching step makes neither task nor group."""
    await group_of(registry)
    await tree(registry, watching()).next(runs())
    assert len(await registry.list(SESSION)) == 1


async def test_watching_moves_on_from_an_owner_that_has_ended(registry, runs):
    """An owner that has ended is not awaited while another member of the group still runs."""
    first, second = await group_of(registry, members=2)
    planner = tree(registry, watching(owner_task_id=first))
    assert await planner.next(runs()) == AwaitTask(first)
    await complete(registry, first)
    assert await planner.next(runs()) == AwaitTask(second)


async def test_a_missing_group_fails_the_step(registry, runs):
    """A group that is not there, or is another session's, is a step error."""
    await group_of(registry, "theirs", who=Quadruple("t2", "u", "s", "r-1"))
    for group_id in ("nowhere", "theirs"):
        with pytest.raises(DeterministicStepError) as caught:
            await tree(registry, watching(group_id=group_id)).next(runs())
        assert isinstance(caught.value.__cause__, GroupNotFoundError)


@pytest.mark.parametrize("part", ["group_id", "owner_task_id", "on_resolved"])
async def test_a_watch_needs_its_parts(part, registry, runs):
    """A missing part is a step error that names it."""
    with pytest.raises(DeterministicStepError, match=part):
        await tree(registry, watching(**{part: None})).next(runs())


async def test_each_run_sees_a_group_once(registry, runs):
    """Two runs that watch one group each get its outcome once; a finish leaves nothing behind."""
    (member,) = await group_of(registry)
    await complete(registry, member)
    step = watching()
    planner = tree(registry, step)
    for run_id in ("r-1", "r-2"):
        assert isinstance(await planner.next(runs(run_id)), CallTool)
    assert remembered(step) == 2
    for run_id in ("r-1", "r-2"):
        assert isinstance(await planner.next(runs(run_id)), Finish)
    assert remembered(step) == 0


async def test_steps_that_watch_for_one_owner_do_not_meet(registry, runs):
    """Two watching steps with the same owner each deliver their own group."""
    for name in ("g", "h"):
        (member,) = await group_of(registry, name)
        await complete(registry, member)
    steps = [watching(group_id=name, on_resolved=lambda run, members, n=name: CallTool(n)) for name in ("g", "h")]
    planner = tree(registry, *steps)
    assert [await planner.next(runs()) for _ in range(2)] == [CallTool("g"), CallTool("h")]


async def test_an_ended_group_finishes_the_run_at_once(registry, runs):
    """What `on_resolved` finishes is finished, and nothing of the run stays behind."""
    (member,) = await group_of(registry)
    await complete(registry, member)
    step = watching(on_resolved=lambda run, members: Finish(FinishReason.GOAL, len(members)))
    assert (await tree(registry, step).next(runs())).payload == 1
    assert remembered(step) == 0


async def test_a_closed_registry_fails_the_step(registry, runs):
    """When the registry has closed, a step that waits says so instead of waiting for ever."""
    await group_of(registry)
    planner = tree(registry, watching())
    await planner.next(runs())
    await registry.aclose()
    with pytest.raises(DeterministicStepError, match="closed"):
        await planner.next(runs())


RUN = Quadruple("t", "u", "s", "r")


class Listening:
    """A registry that counts its listeners."""

    def __init__(self):
        self.listeners = []

    def on_ended(self, listener):
        """Add the listener."""
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)


def test_a_run_finds_what_was_remembered():
    """A run gets the same value every time, and another run another one."""
    states = RunStates(Listening(), list)
    states.get(RUN).append(1)
    assert states.get(RUN) == [1]
    for other in (
        Quadruple("x", "u", "s", "r"),
        Quadruple("t", "x", "s", "r"),
        Quadruple("t", "u", "x", "r"),
        Quadruple("t", "u", "s", "x"),
    ):
        assert states.get(other) == []
    assert len(states) == 5


def test_a_forgotten_run_begins_anew():
    """After it was forgotten a run finds nothing; forgetting it again changes nothing."""
    states = RunStates(Listening(), list)
    states.get(RUN).append(1)
    states.forget(RUN)
    states.forget(RUN)
    assert len(states) == 0
    assert states.get(RUN) == []


def test_it_listens_only_while_it_remembers():
    """There is one listener while any run is remembered, and none otherwise, so that nothing keeps the states alive."""
    registry = Listening()
    states = RunStates(registry, list)
    assert not registry.listeners
    states.get(RUN)
    states.get(Quadruple("t", "u", "s", "r-2"))
    assert len(registry.listeners) == 1
    states.forget(RUN)
    assert len(registry.listeners) == 1
    states.forget(Quadruple("t", "u", "s", "r-2"))
    assert not registry.listeners
    states.get(RUN)
    assert len(registry.listeners) == 1


@pytest.mark.parametrize("end", ["complete", "failed", "cancelled"])
async def test_a_run_whose_task_ends_is_forgotten(end, registry):
    """However the run's own task ends, the run is forgotten, and others are not."""
    who = Quadruple("t", "u", "s")
    handle = await registry.spawn(SpawnRequest(identity=who, kind=TaskKind.FOREGROUND))
    states = RunStates(registry, list)
    states.get(who.identity.with_run(handle.id))
    states.get(RUN)
    states.get(Quadruple("other", "u", "s", handle.id))
    await registry.mark_running(handle.id, who=who)
    assert len(states) == 3
    match end:
        case "complete":
            await registry.mark_complete(handle.id, who=who)
        case "failed":
            await registry.mark_failed(handle.id, TaskFailure("x"), who=who)
        case _:
            await registry.cancel(handle.id, who=who)
    assert len(states) == 2


async def test_a_closed_registry_is_reported(registry):
    """Remembering a first run on a closed registry is an error, not a leak."""
    states = RunStates(registry, list)
    await registry.aclose()
    with pytest.raises(RegistryClosedError):
        states.get(RUN)
    assert len(states) == 0
