"""What is written about tasks, groups and patches comes back as it was, from a slot of its own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from harborage.identity import Identity, Quadruple
from harborage.tasks import (
    GroupStatus,
    PatchStatus,
    Propagate,
    Task,
    TaskFailure,
    TaskGroup,
    TaskKind,
    TaskPatch,
    TaskStatus,
)
from harborage.tasks.errors import TaskCorruptError
from harborage.tasks.groups import completion_of
from harborage.tasks.records import (
    KeptTask,
    decode_group,
    decode_key,
    decode_owed,
    decode_owner,
    decode_patch,
    decode_task,
    group_write,
    patch_write,
    task_write,
)
from tests.kit.tables import each_row

AT = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
SESSION = Identity("t", "u", "s")
JSON = st.sampled_from([b"1", b'{"a": null}', b'"\xc3\xa9"', b"[]"])
TASKS = st.builds(
    Task,
    id=st.just("task"),
    identity=st.builds(Quadruple, st.just("t"), st.just("u"), st.just("s"), st.text(max_size=3)),
    kind=st.sampled_from(list(TaskKind)),
    status=st.sampled_from([status for status in TaskStatus if status is not TaskStatus.COMPLETE]),
    priority=st.integers(-1000, 1000),
    parent_task_id=st.none() | st.text(max_size=3),
    group_id=st.text(max_size=3),
    description=st.text(max_size=5),
    query=st.text(max_size=5),
    error=st.none() | st.builds(TaskFailure, st.text(max_size=3), st.text(max_size=3)),
    propagate_on_cancel=st.sampled_from(list(Propagate)),
    notify_on_complete=st.booleans(),
    idempotency_key=st.text(max_size=3),
    created_at=st.integers(0, 2**62),
    updated_at=st.integers(0, 2**62),
    tool_count=st.integers(0, 9),
    input_artifact_ids=st.lists(st.text(max_size=3)).map(tuple),
    background_acknowledged=st.booleans(),
)


@given(TASKS, st.text(max_size=3), JSON | st.just(b"") | st.none())
def test_a_task_comes_back_field_for_field(task: Task, mark: str, result: bytes | None) -> None:
    """A stored task is read back as it was, its result byte for byte, with its request's fingerprint."""
    if result is not None:
        task = msgspec.structs.replace(task, status=TaskStatus.COMPLETE, result=result)
    assert decode_task(task_write(task, None, mark).record.data) == KeptTask(task, mark)


def test_each_has_a_slot_of_its_own() -> None:
    """Two tasks, a group and a patch of one run never overwrite each other."""
    who = Quadruple("t", "u", "s", "run")
    tasks = [Task(id=name, identity=who, kind=TaskKind.BACKGROUND) for name in ("a", "b")]
    group = TaskGroup(id="a", session=SESSION, created_at=AT)
    patch = TaskPatch(id="a", session=SESSION, created_at=AT)
    writes = [task_write(task, None, "") for task in tasks] + [group_write(group, None), patch_write(patch, None)]
    slots = [(write.record.identity, write.record.kind) for write in writes]
    assert slots == [
        (Quadruple("t", "u", "s", "a"), "task.lifecycle"),
        (Quadruple("t", "u", "s", "b"), "task.lifecycle"),
        (Quadruple("t", "u", "s", "a"), "task.group"),
        (Quadruple("t", "u", "s", "a"), "task.patch"),
    ]
    assert len({write.record.event_id for write in writes}) == 4
    assert all(write.prior is None for write in writes)


def test_a_change_knows_what_was_there_before() -> None:
    """A write of a change carries the earlier record, under an event id of its own, so that it can be put back."""
    task = Task(id="a", identity=Quadruple("t", "u", "s"), kind=TaskKind.BACKGROUND)
    write = task_write(msgspec.structs.replace(task, priority=5), task, "mark", 3)
    assert write.prior is not None
    assert decode_task(write.prior.data) == KeptTask(task, "mark", 3)
    assert decode_task(write.record.data).revision == 4
    assert write.prior.event_id != write.record.event_id


def test_the_same_change_by_two_has_one_event_id() -> None:
    """So that the store refuses the second: a task's next revision, a group's or a patch's end, whichever it is."""
    task = Task(id="a", identity=Quadruple("t", "u", "s"), kind=TaskKind.BACKGROUND)
    group = TaskGroup(id="g", session=SESSION, created_at=AT)
    patch = TaskPatch(id="p", session=SESSION, created_at=AT)
    replace = msgspec.structs.replace
    ends = [
        [task_write(replace(task, priority=n), task, "", 7).record.event_id for n in range(2)],
        [
            group_write(replace(group, status=status), group).record.event_id
            for status in (GroupStatus.COMPLETED, GroupStatus.CANCELLED)
        ],
        [
            patch_write(replace(patch, status=status), patch).record.event_id
            for status in (PatchStatus.APPLIED, PatchStatus.REJECTED)
        ],
    ]
    assert all(len(set(ids)) == 1 for ids in ends)
    assert len({ids[0] for ids in ends}) == 3


@each_row("decode", [decode_task, decode_group, decode_patch, decode_key, decode_owner, decode_owed])
def test_what_cannot_be_read_is_named(decode: Callable[[bytes], object]) -> None:
    """The error says what kind of record it was."""
    with pytest.raises(TaskCorruptError, match="task"):
        decode(b"{")


def test_a_groups_record_does_not_grow_with_its_members() -> None:
    """Members are written with themselves; a sealed group lists them, an ended one says how each of them stood."""
    group = TaskGroup(id="g", session=SESSION, members=("a", "b"), created_at=AT, sealed_at=AT)
    live = decode_group(group_write(group, group).record.data)
    assert (live.group, live.outcomes) == (group, ())
    members = [Task(id=name, identity=Quadruple("t", "u", "s"), kind=TaskKind.BACKGROUND) for name in ("a", "b")]
    completion = completion_of(group, members, GroupStatus.CANCELLED, "why", AT)
    ended = decode_group(group_write(group, group, completion).record.data)
    assert ended.outcomes == (("a", TaskStatus.PENDING), ("b", TaskStatus.PENDING))
    assert ended.group.members == ()


def test_a_patch_comes_back() -> None:
    """A stored patch is read back as it was."""
    patch = TaskPatch(id="p", session=SESSION, status=PatchStatus.APPLIED, created_at=AT, decided_at=AT)
    assert decode_patch(patch_write(patch, patch).record.data) == patch
