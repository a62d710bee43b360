"""How large a tree of tasks may grow."""

from __future__ import annotations

import pytest

from harborage.events import MemoryEventBus
from harborage.store.memory import MemoryStore
from harborage.tasks import (
    InProcessTaskRegistry,
    InvalidRequestError,
    SpawnRequest,
    TaskLimitError,
    TaskLimits,
)
from tests.kit.conformance.task_bench import ME
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio


async def spawn(registry: InProcessTaskRegistry, parent: str | None, key: str = "") -> str:
    """The id of a new task."""
    request = SpawnRequest(identity=ME, kind="background", parent_task_id=parent, idempotency_key=key)
    return (await registry.spawn(request)).id


@each_row("most", [2, 70])
async def test_a_parent_and_a_tree_have_so_many_tasks_and_no_more(most: int) -> None:
    """Those that ended count, too; a repeated request is none; other parents and trees have room of their own."""
    store, limits = MemoryStore(), TaskLimits(max_children=most, max_tree=most + 1)
    registry, second = [InProcessTaskRegistry(bus=MemoryEventBus(), store=store, limits=limits) for _ in range(2)]
    root, other = await spawn(registry, None), await spawn(registry, None)
    children = [await spawn(registry, root, key=f"k{number}") for number in range(most)]
    await registry.cancel(children[1], who=ME)
    for one in (registry, second):
        with pytest.raises(TaskLimitError, match=f"run {root} has as many as max_children allows") as refused:
            await spawn(one, root)
        assert (refused.value.limit, refused.value.most) == ("max_children", most)
        assert await spawn(one, root, key="k0") == children[0]
    await spawn(registry, children[0])
    with pytest.raises(TaskLimitError, match=f"the tree of run {root}") as refused:
        await spawn(registry, children[0])
    assert (refused.value.limit, refused.value.most) == ("max_tree", most + 1)
    await spawn(registry, other)


def test_a_limit_of_nothing_is_refused() -> None:
    """Where it is written."""
    with pytest.raises(InvalidRequestError, match="max_tree"):
        TaskLimits(max_tree=0)
