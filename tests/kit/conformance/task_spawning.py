"""What every task registry must do when tasks are spawned; a part of the suite in `tasks`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from harborage.events import (
    EventType,
    TaskSpawnedPayload,
)
from harborage.identity import IdentityRequiredError, Quadruple
from harborage.tasks import (
    GroupNotFoundError,
    GroupRequest,
    GroupSealedError,
    IdempotencyConflictError,
    InvalidRequestError,
    SpawnRequest,
    SpawnToolRequest,
    Task,
    TaskFailure,
    TaskKind,
    TaskStatus,
)
from harborage.testing.conformance.checks import expect, expect_equal, expect_raises
from tests.kit.conformance.task_bench import (
    ME,
    OTHERS,
    SESSION,
    Bench,
)

Scenario: TypeAlias = Callable[[Bench], Awaitable[None]]

CALLERS = 128
INCOMPLETE = (Quadruple("", "u", "s"), Quadruple("t", "", "s"), Quadruple("t", "u", ""))


async def a_spawned_task_can_be_read(bench: Bench) -> None:
    """A spawned task is pending, carries what was asked for, and has times from the registry's clock."""
    task_id = await bench.spawn(
        kind="foreground",
        priority=7,
        description="count",
        query="how many?",
        notify_on_complete=True,
        input_artifact_ids=("a-1",),
    )
    task = await bench.registry.get(task_id, who=ME)
    made = int(bench.clock.now().timestamp()) * 1_000_000_000
    wanted = Task(
        id=task_id,
        identity=ME,
        kind=TaskKind.FOREGROUND,
        priority=7,
        description="count",
        query="how many?",
        notify_on_complete=True,
        created_at=made,
        updated_at=made,
        input_artifact_ids=("a-1",),
    )
    expect_equal(task, wanted, "the task")


async def a_spawn_is_published_once(bench: Bench) -> None:
    """One task.spawned goes out, under the task's own quadruple."""
    who = SESSION.with_run("run")
    task_id = await bench.spawn(who, kind="foreground", priority=3, idempotency_key="k")
    events = bench.published(EventType.TASK_SPAWNED)
    expect_equal([event.identity for event in events], [who], "who task.spawned is about")
    expect_equal(events[0].payload, TaskSpawnedPayload(task_id, "foreground", None, 3, "k"), "task.spawned")


async def a_run_is_not_needed_but_the_triple_is(bench: Bench) -> None:
    """A spawn without tenant, user or session is refused before anything else is looked at; nothing is published."""
    for who in INCOMPLETE:
        request = SpawnRequest(identity=who, kind="nonsense")
        await expect_raises(IdentityRequiredError, bench.registry.spawn(request), f"spawn for {who}")
    expect_equal(bench.events.types, [], "events")


async def kind_and_policy_are_known_words(bench: Bench) -> None:
    """A missing or unknown kind and an unknown propagation policy are refused; any priority is taken."""
    for fields in ({"kind": ""}, {"kind": "urgent"}, {"kind": "background", "propagate_on_cancel": "maybe"}):
        request = bench.request(**fields)
        await expect_raises(InvalidRequestError, bench.registry.spawn(request), f"spawn with {fields}")
    task_id = await bench.spawn(priority=1_000_000)
    expect_equal((await bench.registry.get(task_id, who=ME)).priority, 1_000_000, "priority")


async def the_same_request_under_one_key_is_one_task(bench: Bench) -> None:
    """The same key and request give the same id, marked as reused, and no second task.spawned."""
    request = bench.request(description="d", query="q", idempotency_key="k")
    first = await bench.registry.spawn(request)
    await bench.complete(first.id)
    second = await bench.registry.spawn(request)
    expect_equal((first.reused, second.reused), (False, True), "reused")
    expect_equal(second.id, first.id, "the id")
    expect_equal(bench.count(EventType.TASK_SPAWNED), 1, "task.spawned events")


async def another_request_under_one_key_is_a_conflict(bench: Bench) -> None:
    """The same key with anything else changed is refused; the group alone is not compared."""
    base: dict[str, Any] = {"kind": "background", "description": "d", "query": "q", "idempotency_key": "k"}
    task_id = await bench.spawn(**base)
    changes: tuple[dict[str, object], ...] = (
        {"kind": "foreground"},
        {"priority": 1},
        {"parent_task_id": task_id},
        {"description": "e"},
        {"query": "r"},
        {"propagate_on_cancel": "isolate"},
        {"notify_on_complete": True},
        {"input_artifact_ids": ("a",)},
        {"identity": SESSION.with_run("other")},
    )
    for change in changes:
        request = bench.request(**{**base, **change})
        await expect_raises(IdempotencyConflictError, bench.registry.spawn(request), f"reuse with {change}")
    same = bench.request(**base, propagate_on_cancel="cascade", group_id="no-such-group")
    expect_equal((await bench.registry.spawn(same)).reused, True, "the default policy spelt out, and a group")


async def secrets_are_compared_before_redaction(bench: Bench) -> None:
    """Two requests that look alike only after redaction are two requests."""
    await bench.spawn(query="use Bearer abc", idempotency_key="k")
    request = bench.request(query="use Bearer xyz", idempotency_key="k")
    await expect_raises(IdempotencyConflictError, bench.registry.spawn(request), "another secret")


async def keys_of_sessions_do_not_meet(bench: Bench) -> None:
    """The same key in another tenant, user or session names another task, even when the session id is the same."""
    ids = {await bench.spawn(who.with_run(""), idempotency_key="k") for who in (SESSION, *OTHERS)}
    expect_equal(len(ids), 4, "tasks")


async def without_a_key_every_spawn_is_new(bench: Bench) -> None:
    """An empty key asks for no idempotency."""
    expect(await bench.spawn() != await bench.spawn(), "two ids")


async def spawns_at_once_under_one_key_make_one_task(bench: Bench) -> None:
    """Any number of callers that spawn the same request at once get one task between them."""
    request = bench.request(idempotency_key="k")
    handles = await asyncio.gather(*(bench.registry.spawn(request) for _ in range(CALLERS)))
    expect_equal(len({handle.id for handle in handles}), 1, "tasks")
    expect_equal(sum(not handle.reused for handle in handles), 1, "handles that are not reused")
    expect_equal(bench.count(EventType.TASK_SPAWNED), 1, "task.spawned events")


async def joining_needs_an_open_group(bench: Bench) -> None:
    """A spawn into an unknown, foreign, sealed or ended group is refused, and the task does not exist afterwards."""
    sealed, ended = await bench.group(), await bench.group()
    await bench.registry.seal_group(sealed.id, who=ME)
    await bench.registry.cancel_group(ended.id, who=ME)
    theirs = await bench.registry.resolve_or_create_group(GroupRequest(session=OTHERS[2]), who=OTHERS[2])
    bench.events.clear()
    for group_id, error in (
        ("nowhere", GroupNotFoundError),
        (theirs.id, GroupNotFoundError),
        (sealed.id, GroupSealedError),
        (ended.id, GroupSealedError),
    ):
        request = bench.request(group_id=group_id, idempotency_key="k")
        await expect_raises(error, bench.registry.spawn(request), f"a spawn into {group_id}")
    expect_equal(await bench.registry.list(SESSION), [], "tasks")
    expect_equal(bench.events.types, [], "events")
    expect_equal((await bench.registry.spawn(bench.request(idempotency_key="k"))).reused,
                 False, "the key of a refused spawn")  # fmt: skip


async def what_people_write_is_redacted(bench: Bench) -> None:
    """Description, query, error message and result are kept without their secrets; the error code stays."""
    task_id = await bench.running(description="with Bearer abc", query="Bearer abc")
    await bench.fail(task_id, "Bearer abc", "said Bearer abc")
    task = await bench.registry.get(task_id, who=ME)
    expect_equal((task.description, task.query), ("with Bearer ***", "Bearer ***"), "description and query")
    expect_equal(task.error, TaskFailure("Bearer abc", "said Bearer ***"), "the error")


async def results_are_redacted_as_json(bench: Bench) -> None:
    """A JSON result is redacted by structure, other text as one JSON string, and an empty one is none."""
    for result, wanted in (
        (b'{"password": "x", "n": 1}', b'{"password":"***","n":1}'),
        (b"plain Bearer abc", b'"plain Bearer ***"'),
        (b"", None),
        (b"\xff", '"\ufffd"'.encode()),
    ):
        task_id = await bench.running()
        task = await bench.registry.mark_complete(task_id, result, who=ME)
        expect_equal(task.result, wanted, f"the result {result!r}")


async def a_tool_task_is_a_pending_foreground_task(bench: Bench) -> None:
    """A tool task has the arguments as its query and, by default, its name as description."""
    request = SpawnToolRequest(identity=ME, tool_name="clock", args=b'{"zone":"UTC"}')
    handle = await bench.registry.spawn_tool(request)
    task = await bench.registry.get(handle.id, who=ME)
    expect_equal((task.kind, task.status), (TaskKind.FOREGROUND, TaskStatus.PENDING), "kind and status")
    expect_equal((task.description, task.query), ("tool: clock", '{"zone":"UTC"}'), "description and query")
    nameless = SpawnToolRequest(identity=ME)
    await expect_raises(InvalidRequestError, bench.registry.spawn_tool(nameless), "a tool task without a tool")


SCENARIOS: tuple[Scenario, ...] = (
    a_spawned_task_can_be_read,
    a_spawn_is_published_once,
    a_run_is_not_needed_but_the_triple_is,
    kind_and_policy_are_known_words,
    the_same_request_under_one_key_is_one_task,
    another_request_under_one_key_is_a_conflict,
    secrets_are_compared_before_redaction,
    keys_of_sessions_do_not_meet,
    without_a_key_every_spawn_is_new,
    spawns_at_once_under_one_key_make_one_task,
    joining_needs_an_open_group,
    what_people_write_is_redacted,
    results_are_redacted_as_json,
    a_tool_task_is_a_pending_foreground_task,
)
