"""Live objects under a name."""

from __future__ import annotations

import asyncio

import pytest

from harborage.planner import HandleRegistry, ProcessLocalHandleRegistry, ToolContextLostError

pytestmark = pytest.mark.anyio


def test_it_is_a_handle_registry():
    """The registry of this process fulfils the port."""
    assert isinstance(ProcessLocalHandleRegistry(), HandleRegistry)


def test_the_very_object_comes_back():
    """A handle gives the object itself, not a copy; None is an object too."""
    registry = ProcessLocalHandleRegistry()
    live = object()
    registry.set("h", live)
    registry.set("nothing", None)
    assert registry.get("h") is live
    assert registry.get("nothing") is None


def test_setting_again_replaces_silently():
    """The last object set under a name wins."""
    registry = ProcessLocalHandleRegistry()
    registry.set("h", 1)
    registry.set("h", 2)
    assert registry.get("h") == 2
    assert len(registry) == 1


def test_a_miss_is_loud():
    """A name that is not kept is an error that carries the name."""
    with pytest.raises(ToolContextLostError) as caught:
        ProcessLocalHandleRegistry().get("h-9")
    assert caught.value.handle == "h-9"
    assert "h-9" in str(caught.value)


def test_deleting_twice_is_fine():
    """Deleting forgets the object, and a second time does nothing."""
    registry = ProcessLocalHandleRegistry()
    registry.set("h", 1)
    registry.delete("h")
    registry.delete("h")
    assert "h" not in registry
    with pytest.raises(ToolContextLostError):
        registry.get("h")


async def test_many_threads_at_once():
    """128 threads set, read and delete their own handles without disturbing one another."""
    registry = ProcessLocalHandleRegistry()

    def work(number: int) -> bool:
        for turn in range(50):
            registry.set(f"h-{number}", (number, turn))
            if registry.get(f"h-{number}") != (number, turn):
                return False
        registry.delete(f"h-{number}")
        return True

    assert all(await asyncio.gather(*(asyncio.to_thread(work, number) for number in range(128))))
    assert len(registry) == 0
