"""What every task registry must do with groups and patches; a part of the suite in `tasks`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeAlias

from harborage.codec import decode
from harborage.events import (
    Event,
    EventType,
    TaskCancelledPayload,
    TaskGroupCreatedPayload,
    TaskGroupSealedPayload,
    encode_wire,
    unix_ns,
)
from harborage.identity import Identity, IdentityRequiredError, bound
from harborage.tasks import (
    GroupCompletion,
    GroupInvalidTransitionError,
    GroupNotFoundError,
    GroupNotSealedError,
    GroupRequest,
    GroupSealedError,
    GroupStatus,
    InvalidRequestError,
    MemberOutcome,
    PatchAction,
    PatchNotFoundError,
    PatchStatus,
    Propagate,
    RegistryClosedError,
    TaskFailure,
    TaskStatus,
)
from harborage.testing.clock import settle
from harborage.testing.conformance.checks import expect, expect_equal, expect_raises
from tests.kit.conformance.task_bench import ME, OTHERS, SESSION, Bench, PublishRefusedError

Scenario: TypeAlias = Callable[[Bench], Awaitable[None]]

ENDED = (EventType.TASK_GROUP_RESOLVED, EventType.TASK_GROUP_CANCELLED)
RUNNING, COMPLETE, FAILED, CANCELLED = (
    TaskStatus.RUNNING,
    TaskStatus.COMPLETE,
    TaskStatus.FAILED,
    TaskStatus.CANCELLED,
)


async def a_new_group_is_open_and_published(bench: Bench) -> None:
    """A new group is open, empty, described without secrets, and published with the session as envelope."""
    group = await bench.group(owner_task_id="owner", retain_turn=True, fail_fast=True, description="Bearer abc")
    expect_equal((group.status, group.members), (GroupStatus.OPEN, ()), "status and members")
    expect_equal(group.created_at, bench.clock.now(), "created_at")
    [event] = bench.published(EventType.TASK_GROUP_CREATED)
    expect_equal(event.identity, ME, "who the event is about")
    wanted = TaskGroupCreatedPayload(group.id, "owner", True, True, "Bearer ***")
    expect_equal(event.payload, wanted, "task.group_created")


async def a_known_group_is_returned_as_it_is(bench: Bench) -> None:
    """Asking for a group that exists gives it as it is, whatever else the request has, and publishes nothing."""
    first = await bench.group(id="g")
    again = await bench.group(id="g", fail_fast=True, description="other")
    expect_equal(again, first, "the group")
    expect_equal(bench.count(EventType.TASK_GROUP_CREATED), 1, "task.group_created events")


async def only_the_session_itself_asks_for_its_groups(bench: Bench) -> None:
    """The caller must be the session that the request names; the ambient identity counts."""
    for other in OTHERS:
        call = bench.registry.resolve_or_create_group(GroupRequest(session=SESSION), who=other)
        await expect_raises(IdentityRequiredError, call, f"a request by {other}")
    nobody = bench.registry.resolve_or_create_group(GroupRequest(session=SESSION))
    await expect_raises(IdentityRequiredError, nobody, "a request by nobody")
    with bound(SESSION.with_run("run")):
        group = await bench.registry.resolve_or_create_group(GroupRequest(session=SESSION))
    expect_equal(group.session, SESSION, "the session")


async def an_id_of_another_session_is_not_found(bench: Bench) -> None:
    """A group id that another session uses is not found, and stays theirs."""
    await bench.group(id="g")
    for other in OTHERS:
        call = bench.registry.resolve_or_create_group(GroupRequest(session=other, id="g"), who=other)
        await expect_raises(GroupNotFoundError, call, f"the id for {other}")


async def foreign_groups_are_not_found(bench: Bench) -> None:
    """Every group verb finds only the caller's own session's groups."""
    group = await bench.group()
    bench.events.clear()
    for who, group_id in [(other, group.id) for other in OTHERS] + [(SESSION, "no-such-group")]:
        for name, call in _verbs(bench, group_id, who):
            await expect_raises(GroupNotFoundError, call, f"{name} by {who}")
        await expect_raises(GroupNotFoundError, _watching(bench, who, group_id), "watch_group")
    for name, call in _verbs(bench, group.id, None):
        await expect_raises(IdentityRequiredError, call, f"{name} by nobody")
    await expect_raises(IdentityRequiredError, _watching(bench, Identity("t", "", "s"), group.id), "half an identity")
    expect_equal(bench.events.types, [], "events")


async def sealing_is_published_and_final(bench: Bench) -> None:
    """The event of sealing has the members and the time; a sealed group takes no members and cannot be sealed again."""
    group, ids = await bench.group_of(2)
    sealed = await bench.registry.seal_group(group.id, who=ME)
    expect_equal((sealed.status, sealed.sealed_at), (GroupStatus.SEALED, bench.clock.now()), "the group")
    wanted = TaskGroupSealedPayload(group.id, tuple(ids), unix_ns(bench.clock.now()))
    expect_equal(bench.events.payloads(TaskGroupSealedPayload), [wanted], "task.group_sealed")
    again = bench.registry.seal_group(group.id, who=ME)
    await expect_raises(GroupInvalidTransitionError, again, "sealing again")
    await expect_raises(GroupSealedError, bench.spawn(group_id=group.id), "joining a sealed group")


async def the_last_member_ends_a_sealed_group(bench: Bench) -> None:
    """A sealed group completes when its last member ends, even if members failed; everybody gets one completion."""
    group, (good, bad) = await bench.group_of(2, owner_task_id="owner")
    watches = [await bench.registry.watch_group(SESSION, group.id) for _ in range(2)]
    await bench.registry.seal_group(group.id, who=ME)
    await bench.complete(good, b'{"n":1}')
    expect_equal([watch.peek() for watch in watches], [None, None], "completions before the end")
    bench.clock.advance(5)
    await bench.fail(bad, "boom", "it broke")
    wanted = GroupCompletion(
        group_id=group.id,
        session=SESSION,
        owner_task_id="owner",
        final_status=GroupStatus.COMPLETED,
        resolved_at=bench.clock.now(),
        members=(
            MemberOutcome(good, COMPLETE, b'{"n":1}'),
            MemberOutcome(bad, FAILED, None, TaskFailure("boom", "it broke")),
        ),
    )
    expect_equal([watch.peek() for watch in watches], [wanted, wanted], "completions")
    expect_equal(await watches[0].completion(), wanted, "an awaited completion")
    expect_equal(await (await bench.registry.watch_group(SESSION, group.id)).completion(), wanted, "a late watch")
    expect_equal([event.type for event in bench.published(*ENDED)], [EventType.TASK_GROUP_RESOLVED], "terminal events")


async def the_completion_travels_with_the_event(bench: Bench) -> None:
    """The event of a group's end carries the completion, with results as JSON and the session as a triple."""
    group, (good, bad) = await bench.group_of(2)
    await bench.complete(good, b'{"n":1}')
    await bench.fail(bad, "boom", "it broke")
    await bench.registry.seal_group(group.id, who=ME)
    [event] = bench.published(EventType.TASK_GROUP_RESOLVED)
    expect_equal(event.identity, ME, "who the event is about")
    published = _wire(event)["Completion"]
    expect_equal(published["SessionID"], {"TenantID": "tenant", "UserID": "user", "SessionID": "session"}, "SessionID")
    expect_equal(
        (published["GroupID"], published["FinalStatus"], published["Reason"]), (group.id, "completed", ""), "the group"
    )
    members = [
        {"TaskID": good, "Status": "complete", "Result": {"n": 1}, "Error": None},
        {"TaskID": bad, "Status": "failed", "Result": None, "Error": {"Code": "boom", "Message": "it broke"}},
    ]
    expect_equal(published["Members"], members, "Members")


async def sealing_ends_a_group_whose_members_have_ended(bench: Bench) -> None:
    """A group whose members have all ended completes as soon as it is sealed."""
    group, ids = await bench.group_of(2)
    for task_id in ids:
        await bench.complete(task_id)
    expect_equal(bench.count(*ENDED), 0, "terminal events of an open group")
    sealed = await bench.registry.seal_group(group.id, who=ME)
    expect_equal(sealed.status, GroupStatus.COMPLETED, "the sealed group")
    expect_equal(bench.events.types[-2:], [EventType.TASK_GROUP_SEALED, EventType.TASK_GROUP_RESOLVED], "events")


async def an_empty_group_does_not_end_by_itself(bench: Bench) -> None:
    """A sealed group without members waits until a caller resolves or cancels it."""
    group = await bench.group()
    sealed = await bench.registry.seal_group(group.id, who=ME)
    expect_equal(sealed.status, GroupStatus.SEALED, "the sealed group")
    resolved = await bench.registry.apply_group(group.id, "resolve", who=ME)
    expect_equal(resolved.status, GroupStatus.COMPLETED, "the resolved group")


async def one_failure_ends_a_fail_fast_group(bench: Bench) -> None:
    """In an open or sealed fail_fast group a failed member cancels the living ones and the group, once."""
    for is_sealed in (False, True):
        group, (bad, *rest) = await bench.group_of(3, fail_fast=True)
        watch = await bench.registry.watch_group(SESSION, group.id)
        if is_sealed:
            await bench.registry.seal_group(group.id, who=ME)
        bench.events.clear()
        await bench.fail(bad, "boom")
        completion = await watch.completion()
        expect(completion is not None, "the completion arrives")
        assert completion is not None
        expect_equal((completion.final_status, completion.reason), (GroupStatus.CANCELLED, "fail-fast:boom"), "the end")
        expect_equal([one.status for one in completion.members], [FAILED, CANCELLED, CANCELLED], "the members")
        cancelled = [(one.task_id, one.reason, one.cascaded) for one in bench.events.payloads(TaskCancelledPayload)]
        expect_equal(cancelled, [(task_id, "fail-fast:boom", True) for task_id in rest], "task.cancelled")
        expect_equal(
            [event.type for event in bench.published(*ENDED)], [EventType.TASK_GROUP_CANCELLED], "terminal events"
        )


async def a_failure_without_a_code_is_still_a_failure(bench: Bench) -> None:
    """Without a code the reason is the bare word; the last living member may be the one that fails."""
    group, [only] = await bench.group_of(1, fail_fast=True)
    await bench.registry.seal_group(group.id, who=ME)
    await bench.fail(only, "")
    ended = await bench.group(id=group.id)
    expect_equal((ended.status, ended.reason), (GroupStatus.CANCELLED, "fail-fast"), "the group")


async def a_cancelled_member_does_not_fail_the_group(bench: Bench) -> None:
    """Cancelling a member of a fail_fast group leaves the others alone."""
    group, (gone, stays) = await bench.group_of(2, fail_fast=True)
    await bench.registry.seal_group(group.id, who=ME)
    await bench.registry.cancel(gone, who=ME)
    expect_equal(await bench.status(stays), RUNNING, "the other member")
    await bench.complete(stays)
    expect_equal(await bench.group_status(group.id), GroupStatus.COMPLETED, "the group")


async def without_fail_fast_a_failure_is_an_outcome(bench: Bench) -> None:
    """In an ordinary group a failed member leaves the others running."""
    _, (bad, stays) = await bench.group_of(2)
    await bench.fail(bad)
    expect_equal(await bench.status(stays), RUNNING, "the other member")


async def cancelling_a_group_takes_members_along(bench: Bench) -> None:
    """Cancelling an open or sealed group cancels its living members and ends it once, as cancelled."""
    for is_sealed in (False, True):
        group, (done, live) = await bench.group_of(2)
        await bench.complete(done)
        if is_sealed:
            await bench.registry.seal_group(group.id, who=ME)
        watch = await bench.registry.watch_group(SESSION, group.id)
        bench.events.clear()
        expect_equal(await bench.registry.cancel_group(group.id, "enough", who=ME), True, "cancel_group")
        wanted = [EventType.TASK_CANCELLED, EventType.TASK_GROUP_CANCELLED]
        expect_equal(bench.events.types, wanted, "events")
        completion = watch.peek()
        expect(completion is not None and completion.reason == "enough", "the completion carries the reason")
        outcomes = [one.status for one in completion.members] if completion is not None else []
        expect_equal(outcomes, [COMPLETE, CANCELLED], "the members")
        expect_equal(await bench.status(live), CANCELLED, "the living member")
        expect_equal(await bench.registry.cancel_group(group.id, "again", who=ME), False, "a second cancel_group")
        expect_equal(bench.count(*ENDED), 1, "terminal events")


async def a_cancelled_groups_members_cascade_by_their_policy(bench: Bench) -> None:
    """A member that goes with its group takes its own children along unless it isolates them."""
    group = await bench.group()
    loud = await bench.running(group_id=group.id)
    quiet = await bench.running(group_id=group.id, propagate_on_cancel=Propagate.ISOLATE)
    below = [await bench.running(parent_task_id=parent) for parent in (loud, quiet)]
    await bench.registry.cancel_group(group.id, who=ME)
    expect_equal([await bench.status(task_id) for task_id in below], [CANCELLED, RUNNING], "the children")
    [event] = bench.published(EventType.TASK_GROUP_CANCELLED)
    expect(event is bench.events.events[-1], "the group's event comes after its members'")


async def without_propagation_members_go_on(bench: Bench) -> None:
    """Cancelling a group without propagation leaves members running; the outcomes show them so, and stay so."""
    group, [live] = await bench.group_of(1)
    await bench.registry.cancel_group(group.id, "enough", propagate=False, who=ME)
    expect_equal(await bench.status(live), RUNNING, "the member")
    await bench.complete(live, b"1")
    completion = (await bench.registry.watch_group(SESSION, group.id)).peek()
    outcomes = completion.members if completion is not None else ()
    expect_equal(outcomes, (MemberOutcome(live, RUNNING),), "the outcomes")
    expect_equal(bench.count(*ENDED), 1, "terminal events")


async def actions_on_groups(bench: Bench) -> None:
    """The action verb seals, cancels with its own reason, and resolves a sealed group whatever its members do."""
    group, [live] = await bench.group_of(1)
    apply = bench.registry.apply_group
    await expect_raises(GroupNotSealedError, apply(group.id, "resolve", who=ME), "resolving an open group")
    expect_equal((await apply(group.id, "seal", who=ME)).status, GroupStatus.SEALED, "seal")
    expect_equal((await apply(group.id, "resolve", who=ME)).status, GroupStatus.COMPLETED, "resolve")
    expect_equal(await bench.status(live), RUNNING, "the member of a group resolved by hand")
    for action in ("resolve", "seal", "explode"):
        await expect_raises(GroupInvalidTransitionError, apply(group.id, action, who=ME), f"{action} after the end")
    other, [member] = await bench.group_of(1)
    await expect_raises(GroupInvalidTransitionError, apply(other.id, "explode", who=ME), "an unknown action")
    cancelled = await apply(other.id, "cancel", who=ME)
    expect_equal((cancelled.status, cancelled.reason), (GroupStatus.CANCELLED, "action:cancel"), "cancel")
    expect_equal(await bench.status(member), CANCELLED, "the member of a cancelled group")


async def watches_can_be_given_up(bench: Bench) -> None:
    """A cancelled watch ends without a value and stays so; giving up twice, and after the end, is fine."""
    group, [only] = await bench.group_of(1)
    await bench.registry.seal_group(group.id, who=ME)
    gone, kept = [await bench.registry.watch_group(SESSION, group.id) for _ in range(2)]
    async with asyncio.TaskGroup() as crew:
        waiting = crew.create_task(gone.completion())
        await settle()
        gone.cancel()
        gone.cancel()
    expect_equal(waiting.result(), None, "what a waiter gets when the watch is given up")
    await bench.complete(only)
    kept.cancel()
    expect_equal((gone.peek(), gone.is_closed), (None, True), "the watch that was given up")
    expect(kept.peek() is not None, "a watch keeps its value")


async def a_group_wakes_all_who_wait_for_it(bench: Bench) -> None:
    """All who wait on one watch are woken by the end; one that is cancelled meanwhile takes nothing from the others."""
    group, [only] = await bench.group_of(1)
    watch = await bench.registry.watch_group(SESSION, group.id)
    async with asyncio.TaskGroup() as crew:
        waiting = [crew.create_task(watch.completion()) for _ in range(3)]
        await settle()
        waiting.pop().cancel()
        await bench.registry.seal_group(group.id, who=ME)
        await settle()
        expect(not any(task.done() for task in waiting), "nobody is woken early")
        await bench.complete(only)
    expect_equal([task.result() for task in waiting], [watch.peek()] * 2, "what the waiters got")


async def retained_turns_wake_all_waiters(bench: Bench) -> None:
    """Any group that holds its owner's turn wakes, by its end, all turn waiters of its session and no others."""
    plain, holding = await bench.group(), await bench.group(retain_turn=True)
    mine = [bench.registry.register_retain_turn_waiter(SESSION) for _ in range(2)]
    given_up = bench.registry.register_retain_turn_waiter(SESSION)
    given_up.cancel()
    theirs = [bench.registry.register_retain_turn_waiter(other) for other in OTHERS]
    await bench.registry.cancel_group(plain.id, who=ME)
    expect_equal([waiter.peek() for waiter in mine], [None, None], "waiters after an ordinary group")
    await bench.registry.cancel_group(holding.id, who=ME)
    expect_equal([await waiter.group_id() for waiter in mine], [holding.id] * 2, "my waiters")
    expect_equal([waiter.peek() for waiter in (given_up, *theirs)], [None] * 4, "other waiters")


async def a_group_whose_event_is_refused_does_not_change(bench: Bench) -> None:
    """When the first event of a group's change cannot be published, nothing has changed and all can be repeated."""
    group, [live] = await bench.group_of(1)
    watch = await bench.registry.watch_group(SESSION, group.id)
    bench.bus.refuse()
    refused: dict[str, Awaitable[object]] = {
        "create": bench.group(id="new"),
        "seal": bench.registry.seal_group(group.id, who=ME),
        "cancel": bench.registry.cancel_group(group.id, who=ME),
        "cancel without members": bench.registry.cancel_group(group.id, propagate=False, who=ME),
    }
    for name, call in refused.items():
        await expect_raises(PublishRefusedError, call, name)
    bench.bus.accept()
    expect_equal(await bench.group_status(group.id), GroupStatus.OPEN, "the group")
    expect_equal(await bench.status(live), RUNNING, "its member")
    await bench.spawn(group_id=group.id)
    expect_equal((await bench.group(id="new")).status, GroupStatus.OPEN, "the group created after all")
    expect_equal(watch.peek(), None, "the watch")


async def a_groups_end_whose_event_is_refused_is_published_later(bench: Bench) -> None:
    """The last member has ended; the next caller that watches or settles the group ends it, once."""
    for is_fail_fast in (False, True):
        bench.events.clear()
        group, (one, last) = await bench.group_of(2, fail_fast=is_fail_fast)
        await bench.registry.seal_group(group.id, who=ME)
        await bench.complete(one)
        bench.bus.refuse(*ENDED)
        await bench.complete(last, b"1")
        expect_equal(await bench.status(last), COMPLETE, "the last member")
        expect_equal(await bench.group_status(group.id), GroupStatus.SEALED, "the group that could not be ended")
        bench.bus.accept()
        completion = (await bench.registry.watch_group(SESSION, group.id)).peek()
        expect(completion is not None and completion.final_status is GroupStatus.COMPLETED, "a watch ends the group")
        await bench.registry.settle_group(group.id, who=SESSION)
        expect_equal(bench.count(*ENDED), 1, "terminal events")


async def a_failure_that_was_not_followed_up_still_ends_its_group(bench: Bench) -> None:
    """The others go on where they could not be cancelled, and once they have ended the group is cancelled."""
    group, (bad, other) = await bench.group_of(2, fail_fast=True)
    bench.bus.refuse(EventType.TASK_CANCELLED)
    await bench.fail(bad, "boom")
    expect_equal((await bench.status(bad), await bench.status(other)), (FAILED, RUNNING), "the members")
    bench.bus.accept()
    await bench.complete(other)
    ended = await bench.group(id=group.id)
    expect_equal((ended.status, ended.reason), (GroupStatus.CANCELLED, "fail-fast:boom"), "the group")
    expect_equal(bench.count(*ENDED), 1, "terminal events")


async def a_cancel_that_breaks_off_is_finished_later(bench: Bench) -> None:
    """Members are cancelled in one change; where the group's own end cannot be published, it is ended later, and nobody
    joins it before."""
    group, members = await bench.group_of(2)
    bench.bus.refuse(*ENDED)
    expect_equal(await bench.registry.cancel_group(group.id, "stop", who=ME), True, "the cancel")
    expect_equal({await bench.status(task_id) for task_id in members}, {CANCELLED}, "the members")
    expect_equal(await bench.group_status(group.id), GroupStatus.SEALED, "the group that is ending")
    await expect_raises(GroupSealedError, bench.spawn(group_id=group.id), "joining a group that is ending")
    sealing = bench.registry.seal_group(group.id, who=ME)
    await expect_raises(GroupInvalidTransitionError, sealing, "sealing a group that is ending")
    resolving = bench.registry.apply_group(group.id, "resolve", who=ME)
    await expect_raises(GroupInvalidTransitionError, resolving, "resolving a group that is ending")
    bench.bus.accept()
    expect_equal(await bench.registry.cancel_group(group.id, "again", who=ME), False, "the cancel repeated")
    ended = await bench.group(id=group.id)
    expect_equal((ended.status, ended.reason), (GroupStatus.CANCELLED, "stop"), "the group")
    expect_equal((bench.count(EventType.TASK_CANCELLED), bench.count(*ENDED)), (2, 1), "events")


async def patches_are_decided_once(bench: Bench) -> None:
    """A pending patch is decided once; the same decision again says False, the opposite is refused."""
    for action, status, event in (
        (PatchAction.ACCEPT, PatchStatus.APPLIED, EventType.TASK_PATCH_APPLIED),
        (PatchAction.REJECT, PatchStatus.REJECTED, EventType.TASK_PATCH_REJECTED),
    ):
        patch = await bench.registry.create_pending_patch(SESSION, action)
        expect_equal(patch.status, PatchStatus.PENDING, "a new patch")
        expect_equal(await bench.registry.create_pending_patch(SESSION, action), patch, "the patch created again")
        bench.events.clear()
        applied = [await bench.registry.apply_patch(SESSION, action, action) for _ in range(2)]
        expect_equal(applied, [True, False], f"{action} twice")
        expect_equal([(one.type, one.identity) for one in bench.events.events], [(event, ME)], "events")
        opposite = PatchAction.REJECT if action is PatchAction.ACCEPT else PatchAction.ACCEPT
        call = bench.registry.apply_patch(SESSION, action, opposite)
        await expect_raises(GroupInvalidTransitionError, call, "the opposite decision")
        decided = await bench.registry.create_pending_patch(SESSION, action)
        expect_equal((decided.status, decided.decided_at), (status, bench.clock.now()), "the decided patch")


async def patches_belong_to_their_session(bench: Bench) -> None:
    """An unknown or foreign patch is not found; the same id in another session is another patch."""
    await bench.registry.create_pending_patch(SESSION, "p")
    for session, patch_id in [(other, "p") for other in OTHERS] + [(SESSION, "q")]:
        call = bench.registry.apply_patch(session, patch_id, "accept")
        await expect_raises(PatchNotFoundError, call, f"{patch_id} of {session}")
    await bench.registry.create_pending_patch(OTHERS[0], "p")
    await bench.registry.apply_patch(OTHERS[0], "p", "reject")
    expect_equal(await bench.registry.apply_patch(SESSION, "p", "accept"), True, "my patch")
    nobody = Identity("t", "u", "")
    await expect_raises(IdentityRequiredError, bench.registry.create_pending_patch(nobody, "p"), "half an identity")
    await expect_raises(InvalidRequestError, bench.registry.create_pending_patch(SESSION, ""), "an empty id")
    await expect_raises(InvalidRequestError, bench.registry.apply_patch(SESSION, "p", "shrug"), "an unknown action")


async def closing_ends_the_watches(bench: Bench) -> None:
    """When the registry closes, watches and turn waiters end without a value, and group verbs are refused."""
    group = await bench.group(retain_turn=True)
    watch = await bench.registry.watch_group(SESSION, group.id)
    turn = bench.registry.register_retain_turn_waiter(SESSION)
    async with asyncio.TaskGroup() as crew:
        waiting = [crew.create_task(watch.completion()), crew.create_task(turn.group_id())]
        await settle()
        await bench.registry.aclose()
    expect_equal([task.result() for task in waiting], [None, None], "what waiters get")
    expect((watch.is_closed, turn.is_closed) == (True, True), "both are closed")
    for name, call in _verbs(bench, group.id, None):
        await expect_raises(RegistryClosedError, call, f"{name} after close")
    nobody = Identity("", "", "")
    for name, call in {
        "resolve_or_create_group": bench.registry.resolve_or_create_group(GroupRequest(session=nobody)),
        "create_pending_patch": bench.registry.create_pending_patch(nobody, "p"),
        "apply_patch": bench.registry.apply_patch(nobody, "p", "accept"),
        "watch_group": _watching(bench, nobody, group.id),
    }.items():
        await expect_raises(RegistryClosedError, call, f"{name} after close")


def _verbs(bench: Bench, group_id: str, who: Identity | None) -> Iterator[tuple[str, Awaitable[object]]]:
    yield "seal_group", bench.registry.seal_group(group_id, who=who)
    yield "cancel_group", bench.registry.cancel_group(group_id, who=who)
    yield "apply_group", bench.registry.apply_group(group_id, "seal", who=who)


async def _watching(bench: Bench, session: Identity, group_id: str) -> object:
    return await bench.registry.watch_group(session, group_id)


def _wire(event: Event) -> dict[str, dict[str, object]]:
    payload: dict[str, dict[str, object]] = decode(encode_wire(event))["payload"]
    return payload


SCENARIOS: tuple[Scenario, ...] = (
    a_new_group_is_open_and_published,
    a_known_group_is_returned_as_it_is,
    only_the_session_itself_asks_for_its_groups,
    an_id_of_another_session_is_not_found,
    foreign_groups_are_not_found,
    sealing_is_published_and_final,
    the_last_member_ends_a_sealed_group,
    the_completion_travels_with_the_event,
    sealing_ends_a_group_whose_members_have_ended,
    an_empty_group_does_not_end_by_itself,
    one_failure_ends_a_fail_fast_group,
    a_failure_without_a_code_is_still_a_failure,
    a_cancelled_member_does_not_fail_the_group,
    without_fail_fast_a_failure_is_an_outcome,
    cancelling_a_group_takes_members_along,
    a_cancelled_groups_members_cascade_by_their_policy,
    without_propagation_members_go_on,
    actions_on_groups,
    watches_can_be_given_up,
    a_group_wakes_all_who_wait_for_it,
    retained_turns_wake_all_waiters,
    a_group_whose_event_is_refused_does_not_change,
    a_groups_end_whose_event_is_refused_is_published_later,
    a_failure_that_was_not_followed_up_still_ends_its_group,
    a_cancel_that_breaks_off_is_finished_later,
    patches_are_decided_once,
    patches_belong_to_their_session,
    closing_ends_the_watches,
)
