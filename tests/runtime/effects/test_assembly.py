"""Putting the parts of a runtime together: what was given is used, what was not is opened, and what fails is closed."""

from __future__ import annotations

from typing import Any

import pytest

from harborage.artifacts import ArtifactScope, MemoryArtifactStore
from harborage.drivers import DriverUnknownError
from harborage.events import MemoryEventBus
from harborage.identity import Identity
from harborage.planner import CallTool, Finish, FinishReason
from harborage.planner.finish import FinishPlanner
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.effects.agent_parts import catalog_of
from harborage.runtime.effects.agent_setup import AgentSetup
from harborage.runtime.effects.assembly import Setup, assemble
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.host import Runtime
from harborage.testing.planners import ScriptedPlanner
from harborage.tools import SideEffect, ToolDuplicateNameError, UnsupportedTypeError, tool
from harborage.tools.errors import ToolNotFoundError

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")


async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def _setup(
    *, tools: tuple[Any, ...] = (), approvals: Any = None, options: RuntimeOptions | None = None, **fields: Any
) -> Setup:
    options = RuntimeOptions() if options is None else options
    only = AgentSetup(reasoner=FinishPlanner(), tools=tools, approvals=approvals, options=options)
    return Setup(agents=(only,), options=options, **fields)


class Watched(MemoryArtifactStore):
    """Says whether it was closed."""

    closed = 0

    async def aclose(self) -> None:
        Watched.closed += 1
        await super().aclose()


def test_plain_functions_are_described_by_their_signatures() -> None:
    """Beside descriptors, which are taken as they are."""
    described = tool(add, name="plus", effects=SideEffect.READ)
    catalog = catalog_of([add, described])
    plain = catalog.resolve("add")
    assert plain is not None
    assert (plain.tool.description, plain.tool.args_schema["required"]) == ("Add two numbers.", ["a"])
    assert catalog.resolve("plus") is described


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"tools": (add, add)}, ToolDuplicateNameError),
        ({"tools": (add,), "approvals": {"nope": AlwaysDeny()}}, ToolNotFoundError),
        ({"options": RuntimeOptions(event_driver="nope")}, DriverUnknownError),
        ({"options": RuntimeOptions(redactor="nope")}, DriverUnknownError),
    ],
    ids=["twice", "unguarded", "bus", "redactor"],
)
async def test_parts_that_do_not_fit_open_nothing(
    fields: dict[str, Any], error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was opened before the failure is closed again."""
    opened: list[Watched] = []

    async def open_watched(config: Any) -> Watched:
        opened.append(Watched())
        return opened[-1]

    monkeypatch.setattr("harborage.runtime.effects.assembly.open_artifacts", open_watched)
    monkeypatch.setattr(Watched, "closed", 0)
    with pytest.raises(error):
        await assemble(_setup(**fields))
    assert Watched.closed == len(opened)


async def test_what_was_given_is_used_and_not_closed() -> None:
    """The parts that the runtime opened itself are closed, in the reverse order of their opening."""
    bus = MemoryEventBus()
    artifacts = MemoryArtifactStore()
    parts = await assemble(_setup(bus=bus, artifacts=artifacts))
    assert (parts.bus, parts.artifacts) == (bus, artifacts)
    for close in parts.closers:
        await close()
    await artifacts.put_text(ArtifactScope("t", "u", "s"), "still open")
    await bus.aclose()


async def test_two_runtimes_of_one_description_share_nothing() -> None:
    """Each has a bus, a registry and a journal of its own."""
    first, second = [await assemble(_setup()) for _ in range(2)]
    assert first.bus is not second.bus
    assert first.tasks is not second.tasks
    assert first.engine is not second.engine
    for parts in (first, second):
        for close in parts.closers:
            await close()


async def test_a_synchronous_tool_runs_in_a_thread() -> None:
    """It delays no caller, and its result counts like any other."""

    def slow(a: int) -> int:
        """Take some time."""
        return a * 2

    script = [CallTool("slow", b'{"a":4}'), lambda run: Finish(FinishReason.GOAL, run.trajectory.steps[0].observation)]
    async with Runtime(planner=ScriptedPlanner(script), tools=[slow]) as rt:
        run = await rt.start("g", who=ME)
        assert (await run.finished()).payload == 8


def test_a_signature_without_a_schema_is_refused() -> None:
    """By name, before anything is opened."""

    async def takes(handle: Setup) -> None:
        """Take what has no JSON form."""

    with pytest.raises(UnsupportedTypeError, match="handle"):
        catalog_of([takes])
