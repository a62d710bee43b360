"""Tasks that a run works on: their run alone moves them, and a cancel reaches it as a control."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from harborage.events import DurableEventBus
from harborage.identity import Identity
from harborage.store import Change, Commit, Guard, Lease, NewRun, SendControl, Status
from harborage.store.memory import MemoryStore
from harborage.tasks import (
    GroupRequest,
    GroupStatus,
    InProcessTaskRegistry,
    InvalidTransitionError,
    SpawnRequest,
    SpawnToolRequest,
    TaskFailure,
    TaskStatus,
)
from harborage.tasks.changes import EndedRun

if TYPE_CHECKING:
    from harborage.store import RunRow

pytestmark = pytest.mark.anyio

SESSION = Identity("t", "u", "s")
ME = SESSION.with_run("")


class Host:
    """Knows how to cancel a run; starts none."""

    async def launch(self, task: Any, commit: Commit, accepted: Any) -> Any:
        raise NotImplementedError

    def cancellation(self, row: RunRow, reason: str, *, is_cascaded: bool) -> SendControl:
        data = b'{"cascaded": %s}' % (b"true" if is_cascaded else b"false")
        return SendControl(run_id=row.run_id, event_id=f"cancel/{row.run_id}", type="CANCEL", data=data)


async def opened(**run: Any) -> tuple[MemoryStore, InProcessTaskRegistry]:
    """A registry, and a run `r` that a worker carries."""
    store = MemoryStore()
    registry = InProcessTaskRegistry(bus=DurableEventBus(store), store=store, runs=Host())
    if run.get("group"):
        await registry.resolve_or_create_group(GroupRequest(session=SESSION, id=run["group"]), who=ME)
    start = NewRun(run_id="r", who=SESSION, entries=(b"begun",), worker="w", status=Status.RUNNING, **run)
    await store.commit(Commit(starts=(start,)))
    return store, registry


async def test_only_its_run_moves_it() -> None:
    """Marking it is refused from wherever it is; its priority is anybody's."""
    _, registry = await opened()
    for step in (
        registry.mark_paused("r", who=ME),
        registry.mark_complete("r", b"1", who=ME),
        registry.mark_failed("r", TaskFailure("boom"), who=ME),
    ):
        with pytest.raises(InvalidTransitionError, match="cancel it, or send the run a control"):
            await step
    assert await registry.prioritize("r", 5, who=ME)
    task = await registry.get("r", who=ME)
    assert (task.status, task.priority) == (TaskStatus.RUNNING, 5)
    await registry.aclose()


async def test_a_cancel_reaches_the_run_once_and_the_tasks_below_at_once() -> None:
    """The run ends itself; a task below it that no run works on is cancelled in the same commit."""
    store, registry = await opened()
    below = (await registry.spawn_tool(_tool("r"))).id
    assert await registry.cancel("r", "stop", who=ME) is True
    assert await registry.cancel("r", "again", who=ME) is False
    assert [control.data for control in await store.controls("r")] == [b'{"cascaded": false}']
    statuses = [(await registry.get(task_id, who=ME)).status for task_id in ("r", below)]
    assert statuses == [TaskStatus.RUNNING, TaskStatus.CANCELLED]
    await registry.aclose()


async def test_without_a_host_of_runs_it_cannot_be_cancelled() -> None:
    """A registry that knows none says so, and cancels nothing of the tree."""
    store, _ = await opened()
    registry = InProcessTaskRegistry(bus=DurableEventBus(store), store=store)
    above = (await registry.spawn(SpawnRequest(identity=ME, kind="background"))).id
    await store.commit(Commit(starts=(NewRun(run_id="r2", who=SESSION, entries=(b"e",), parent=above, root=above),)))
    with pytest.raises(InvalidTransitionError, match="r2"):
        await registry.cancel(above, who=ME)
    assert (await registry.get(above, who=ME)).status is TaskStatus.PENDING
    await registry.aclose()


async def test_a_group_is_cancelled_once_the_runs_in_it_have_ended() -> None:
    """Until then it is shown as sealed, and a watching caller waits."""
    store, registry = await opened(group="g")
    watch = await registry.watch_group(SESSION, "g")
    assert await registry.cancel_group("g", "stop", who=ME) is True
    assert ((await registry.group("g", who=ME)).status, watch.is_closed) == (GroupStatus.SEALED, False)
    [control] = await store.controls("r")
    assert control.data == b'{"cascaded": true}'
    guard = Guard(lease=Lease("r", "w", 1), position=1)
    await store.commit(Commit(guard=guard, consumed=(control.number,), change=Change(status=Status.CANCELLED)))
    received: list[str] = []
    registry.on_ended(lambda who: received.append(who.run_id))
    follows = registry.run_ends.ended(EndedRun(SESSION.with_run("r"), "g", "", Status.CANCELLED, b""))
    assert follows is not None
    await follows
    completion = watch.peek()
    assert completion is not None
    assert (completion.final_status, completion.reason) == (GroupStatus.CANCELLED, "stop")
    assert received == ["r"]
    assert registry.run_ends.ended(EndedRun(SESSION.with_run("other"), "", "", Status.COMPLETE, b"")) is None
    await registry.aclose()


def _tool(parent: str) -> SpawnToolRequest:
    return SpawnToolRequest(identity=ME, tool_name="clock", parent_task_id=parent)
