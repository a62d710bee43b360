"""What is kept of tasks, groups and patches comes back as it was, and what cannot be read is named."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from msgspec.structs import replace

from harborage.events import MemoryEventBus
from harborage.identity import Identity
from harborage.store import Commit, GroupRow, Move, RunQuery, Status
from harborage.store import GroupStatus as RowStatus
from harborage.store.memory import MemoryStore
from harborage.store.rows import PatchRow
from harborage.tasks import (
    GroupStatus,
    InProcessTaskRegistry,
    MemberOutcome,
    PatchStatus,
    Propagate,
    SpawnRequest,
    Task,
    TaskCorruptError,
    TaskFailure,
    TaskKind,
    TaskLimits,
    TaskStatus,
)
from harborage.tasks.rows import (
    group_of,
    kept_members,
    members_document,
    new_run,
    outcome_of_failure,
    outcome_of_result,
    patch_of,
    task_of,
)
from harborage.testing.clock import FakeClock, settle
from tests.kit.tables import each_row

SESSION = Identity("t", "u", "s")
ME = SESSION.with_run("")
TEXTS = st.text(max_size=5) | st.sampled_from(["x" * 199, "x" * 200, "x" * 201, "…" * 300])
JSON = st.sampled_from([b"1", b'{"a": null}', b'"\xc3\xa9"', b"[]"])
TASKS = st.builds(
    Task,
    id=st.just("task"),
    identity=st.builds(SESSION.with_run, st.text(max_size=3)),
    kind=st.sampled_from(list(TaskKind)),
    priority=st.integers(-1000, 1000),
    parent_task_id=st.none() | st.text(min_size=1, max_size=3),
    root_task_id=st.text(max_size=3),
    description=TEXTS,
    query=TEXTS,
    propagate_on_cancel=st.sampled_from(list(Propagate)),
    notify_on_complete=st.booleans(),
    idempotency_key=st.text(max_size=3),
    created_at=st.just(1_767_225_600_000_000_000),
    updated_at=st.just(1_767_225_600_000_000_000),
    input_artifact_ids=st.lists(st.text(max_size=3)).map(tuple),
    deadline=st.none() | st.datetimes(timezones=st.just(UTC), min_value=datetime(2000, 1, 1)),
    retains_turn=st.booleans(),
)


async def kept(task: Task, move: Move | None = None) -> Task:
    """A task as a store gives it back, perhaps after a change."""
    store = MemoryStore(clock=FakeClock())
    await store.commit(Commit(starts=(new_run(task, "", TaskLimits()),)))
    if move is not None:
        await store.commit(Commit(moves=(move,)))
    [row] = (await store.runs(RunQuery(run_ids=(task.id,), is_whole=True))).rows
    return task_of(row)


@given(TASKS)
def test_a_task_comes_back_field_for_field(task: Task) -> None:
    """However long its texts are, and whichever of them is its goal."""
    assert asyncio.run(kept(task)) == task


@given(TASKS, JSON | st.just(b"") | st.builds(TaskFailure, TEXTS, TEXTS))
def test_what_it_ended_with_comes_back(task: Task, end: bytes | TaskFailure) -> None:
    """A result byte for byte, none as none, a failure whole."""
    is_failure = isinstance(end, TaskFailure)
    status = TaskStatus.FAILED if is_failure else TaskStatus.COMPLETE
    outcome = outcome_of_failure(end) if isinstance(end, TaskFailure) else outcome_of_result(end)
    move = Move(run_id=task.id, expected=(Status.PENDING,), status=Status(status), outcome=outcome)
    wanted = replace(task, status=status, error=end) if is_failure else replace(task, status=status, result=end or None)
    assert asyncio.run(kept(task, move)) == wanted


def a_group(**fields: Any) -> GroupRow:
    """A group's row."""
    base: dict[str, Any] = {"number": 1, "group_id": "g", "who": SESSION, "created_at": 1_000_000}
    return GroupRow(**{**base, **fields})


def test_a_group_that_is_ending_is_shown_as_sealed() -> None:
    """It takes no members, and has not ended; every other status is shown as it is."""
    shown = {status: group_of(a_group(status=status)).status for status in RowStatus}
    wanted = {status: GroupStatus(status) for status in RowStatus if status is not RowStatus.ENDING}
    wanted[RowStatus.ENDING] = GroupStatus.SEALED
    assert shown == wanted


@given(st.lists(st.builds(MemberOutcome, st.text(max_size=3), st.sampled_from(list(TaskStatus)), st.none() | JSON)))
def test_how_members_stood_comes_back(members: list[MemberOutcome]) -> None:
    """In their order, with their results."""
    assert list(kept_members(a_group(outcome=members_document(members)))) == members


@each_row(
    "decision, status",
    [("", PatchStatus.PENDING), ("accept", PatchStatus.APPLIED), ("reject", PatchStatus.REJECTED)],
)
def test_a_patch_is_where_its_decision_put_it(decision: str, status: PatchStatus) -> None:
    """With the time of the decision."""
    patch = patch_of(PatchRow(patch_id="p", who=SESSION, decision=decision, created_at=0, decided_at=1_000_000))
    assert (patch.status, patch.decided_at) == (status, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))


class Damaged(MemoryStore):
    """A store whose documents of one task are changed from outside."""

    def __init__(self) -> None:
        super().__init__(clock=FakeClock())
        self.damages: dict[str, dict[str, bytes]] = {}

    async def runs(self, query: Any) -> Any:
        page = await super().runs(query)
        return page._replace(rows=[replace(row, **self.damages.get(row.run_id, {})) for row in page.rows])


@pytest.mark.anyio
@each_row("part", ["asked", "outcome"])
async def test_a_damaged_task_is_named(part: str) -> None:
    """Nothing is guessed, nothing is overwritten, and the others are unaffected."""
    store = Damaged()
    registry = InProcessTaskRegistry(bus=MemoryEventBus(), store=store)
    spawn = SpawnRequest(identity=ME, kind="background")
    bad, good = (await registry.spawn(spawn)).id, (await registry.spawn(spawn)).id
    store.damages = {bad: {part: b'{"query": 5, "error": 5}'}}
    verbs: list[Callable[[], Awaitable[object]]] = [
        lambda: registry.get(bad, who=ME),
        lambda: registry.mark_running(bad, who=ME),
        lambda: registry.cancel(bad, who=ME),
        lambda: registry.wait_ended(bad, who=ME),
        lambda: registry.read(SESSION),
    ]
    for verb in verbs:
        with pytest.raises(TaskCorruptError, match=f"the task record of '{bad}' cannot be read") as caught:
            await verb()
        assert (caught.value.kind, caught.value.subject) == ("task", bad)
    await registry.mark_running(good, who=ME)
    store.damages = {}
    assert (await registry.get(bad, who=ME)).status is TaskStatus.PENDING


@pytest.mark.anyio
async def test_a_wait_for_a_task_that_gets_damaged_ends_in_that_error() -> None:
    """Those who wait for others are woken all the same."""
    store = Damaged()
    here, there = [InProcessTaskRegistry(bus=MemoryEventBus(), store=store) for _ in range(2)]
    spawn = SpawnRequest(identity=ME, kind="background")
    ids = [(await there.spawn(spawn)).id for _ in range(2)]
    async with asyncio.TaskGroup() as crew:
        bad, good = [crew.create_task(_outcome(here.wait_ended(task_id, who=ME))) for task_id in ids]
        await settle()
        for task_id in ids:
            await there.cancel(task_id, who=ME)
        store.damages = {ids[0]: {"asked": b"{"}}
    assert isinstance(bad.result(), TaskCorruptError)
    assert good.result() is TaskStatus.CANCELLED
    await here.aclose()


async def _outcome(work: Awaitable[Task]) -> object:
    try:
        return (await work).status
    except TaskCorruptError as error:
        return error


def test_a_damaged_completion_is_named() -> None:
    """How the members of a group stood that ended early."""
    with pytest.raises(TaskCorruptError, match="the group record of 'g' cannot be read"):
        kept_members(a_group(outcome=b"["))
