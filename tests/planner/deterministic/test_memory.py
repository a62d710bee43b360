"""What a shared step remembers of the runs that visit it."""

from __future__ import annotations

import pytest

from harborage.identity import Quadruple
from harborage.planner.deterministic.memory import RunMemory
from harborage.tasks import RegistryClosedError, SpawnRequest, TaskFailure, TaskKind

pytestmark = pytest.mark.anyio

ME = Quadruple("t", "u", "s", "r")


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
    memory = RunMemory(Listening(), list)
    memory.of(ME).append(1)
    assert memory.of(ME) == [1]
    for other in (
        Quadruple("x", "u", "s", "r"),
        Quadruple("t", "x", "s", "r"),
        Quadruple("t", "u", "x", "r"),
        Quadruple("t", "u", "s", "x"),
    ):
        assert memory.of(other) == []
    assert len(memory) == 5


def test_a_forgotten_run_begins_anew():
    """After it was forgotten a run finds nothing; forgetting it again changes nothing."""
    memory = RunMemory(Listening(), list)
    memory.of(ME).append(1)
    memory.forget(ME)
    memory.forget(ME)
    assert len(memory) == 0
    assert memory.of(ME) == []


def test_it_listens_only_while_it_remembers():
    """There is one listener while any run is remembered, and none otherwise, so that nothing keeps the memory alive."""
    registry = Listening()
    memory = RunMemory(registry, list)
    assert not registry.listeners
    memory.of(ME)
    memory.of(Quadruple("t", "u", "s", "r-2"))
    assert len(registry.listeners) == 1
    memory.forget(ME)
    assert len(registry.listeners) == 1
    memory.forget(Quadruple("t", "u", "s", "r-2"))
    assert not registry.listeners
    memory.of(ME)
    assert len(registry.listeners) == 1


@pytest.mark.parametrize("end", ["complete", "failed", "cancelled"])
async def test_a_run_whose_task_ends_is_forgotten(end, registry):
    """However the run's own task ends, the run is forgotten, and others are not."""
    who = Quadruple("t", "u", "s")
    handle = await registry.spawn(SpawnRequest(identity=who, kind=TaskKind.FOREGROUND))
    memory = RunMemory(registry, list)
    memory.of(who.identity.with_run(handle.id))
    memory.of(ME)
    memory.of(Quadruple("other", "u", "s", handle.id))
    await registry.mark_running(handle.id, who=who)
    assert len(memory) == 3
    match end:
        case "complete":
            await registry.mark_complete(handle.id, who=who)
        case "failed":
            await registry.mark_failed(handle.id, TaskFailure("x"), who=who)
        case _:
            await registry.cancel(handle.id, who=who)
    assert len(memory) == 2


async def test_a_closed_registry_is_told(registry):
    """Remembering a first run on a closed registry is an error, not a leak."""
    memory = RunMemory(registry, list)
    await registry.aclose()
    with pytest.raises(RegistryClosedError):
        memory.of(ME)
    assert len(memory) == 0
