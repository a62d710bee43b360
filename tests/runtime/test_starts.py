"""Starts under way: which of them their callers see through, and which are left to whoever takes the next."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime

import pytest

from harborage.identity import Quadruple
from harborage.runtime.starts import Starts, StartWishes
from harborage.tasks import Task, TaskKind, TaskStatus
from harborage.testing.clock import settle

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ASKED = StartWishes(max_steps=3)


def task(id: str, key: str = "") -> Task:
    return Task(
        id=id,
        identity=Quadruple("t", "u", "s", ""),
        kind=TaskKind.FOREGROUND,
        status=TaskStatus.PENDING,
        idempotency_key=key,
        created_at=NOW,
        updated_at=NOW,
    )


def begin(starts: Starts, error: BaseException, spawned: str = "") -> str:
    """The key of a start that ends with `error`, once the task `spawned` was there."""
    with suppress(type(error)), starts.begin(ASKED) as key:
        if spawned:
            starts.note(task(spawned, key))
        raise error
    return key


async def test_a_spawned_task_is_the_next() -> None:
    """Whoever waits for one gets it, and those that came meanwhile in their order."""
    starts = Starts()
    waiting = asyncio.create_task(starts.next())
    await settle()
    for name in "abc":
        starts.note(task(name))
    assert [(await waiting).id, (await starts.next()).id, (await starts.next()).id] == ["a", "b", "c"]


async def test_a_start_that_its_caller_sees_through_is_nobody_elses() -> None:
    """Whether it succeeds or fails; then nothing is known of it any more."""
    starts = Starts()
    with starts.begin(ASKED) as key:
        starts.note(task("a", key))
        assert starts.asked(key) == ASKED
    assert not starts.is_asked(key)
    failed = begin(starts, ValueError("refused"), "b")
    assert not starts.is_asked(failed)
    starts.note(task("c"))
    assert (await starts.next()).id == "c"


async def test_a_start_that_is_cut_short_is_left_to_the_next_as_it_was_asked_for() -> None:
    """It keeps what was asked of it until it has begun; one whose task is not there yet is forgotten."""
    starts = Starts()
    early = begin(starts, asyncio.CancelledError())
    key = begin(starts, asyncio.CancelledError(), "a")
    assert not starts.is_asked(early)
    left = await starts.next()
    assert left.id == "a"
    assert starts.asked(key) == ASKED
    starts.done(left)
    assert not starts.is_asked(key)
