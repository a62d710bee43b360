"""What a step of the ReAct planner costs with a model that answers at once, at several lengths of a run.

Prompt, declarations, answer, tool, events and journal are all there; the model alone is a stub. The second half adds
every layer that stands between a planner and a provider. The last row of each half holds a step of a long run beside
one of a short run, both ours: the history that is sent grows, and what a step costs must not grow with it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from benchmarks.agents import WHO, add_tool
from benchmarks.bare import bare_run
from benchmarks.measure import Row, in_turn
from harborage import Runtime
from harborage.artifacts import MemoryArtifactStore
from harborage.drivers import DriverTable
from harborage.events import MemoryEventBus
from harborage.llm import (
    CompleteRequest,
    CompleteResponse,
    ConfigSnapshot,
    Deps,
    LLMClient,
    ModelProfile,
    ToolCallStructured,
)
from harborage.llm.opening import open_llm
from harborage.planner.react import ReActPlanner
from harborage.runtime.options import RuntimeOptions

__all__ = ["react_step"]

_STEPS: Final = (10, 50, 100, 200)
_TOTAL: Final = 1000
_IDLE: Final = 100
_LIMIT: Final = 25.0
_MOST_GROWTH: Final = 1.3
_MOST: Final = 1000
_ADD: Final = ToolCallStructured("call-0", "add", b'{"a":1,"b":2}')
_CALL: Final = CompleteResponse("", (_ADD,), finish_reason="tool_calls")
_DONE: Final = CompleteResponse("3", finish_reason="stop")


class _Model:
    """Calls `add` as often as the goal says, then answers."""

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        # The system message and the goal come first, then two messages a step.
        wanted = int((request.messages[1].content.text or "").removeprefix("Goal:\n"))
        return _CALL if len(request.messages) - 2 < 2 * wanted else _DONE

    async def close(self) -> None:
        """Nothing to close."""


async def react_step() -> list[Row]:
    """CPU per ReAct step in runs of 10 to 200 steps, without and with the chain of a model client.

    A run's own start and end are left out of both sides, as in the benchmark of steps; its last request, which brings
    the answer, counts with them.
    """
    rows: list[Row] = []
    async with _runtime(_Model()) as rt:
        rows += await _rows(rt, "ReAct step")
    bus, artifacts = MemoryEventBus(), MemoryArtifactStore()
    config = ConfigSnapshot(driver="stub", model="m", profiles={"m": ModelProfile(context_window_tokens=1_000_000)})
    drivers = DriverTable("llm", {"stub": lambda cfg, deps: _Model()})
    client = await open_llm(config, Deps(artifacts=artifacts, bus=bus), drivers=drivers)
    async with _runtime(client) as rt:
        rows += await _rows(rt, "ReAct step through the chain")
    await client.close()
    await bus.aclose()
    return rows


@asynccontextmanager
async def _runtime(client: LLMClient) -> AsyncIterator[Runtime]:
    planner = ReActPlanner(client, max_steps=_MOST)
    async with Runtime(planner=planner, tools=[add_tool()], options=RuntimeOptions(max_steps=_MOST)) as rt:
        yield rt


async def _rows(rt: Runtime, name: str) -> list[Row]:
    idle_ours, idle_bare = (seconds / _IDLE for seconds in await in_turn(_ours(rt, 0, _IDLE), _bare(0, _IDLE)))
    rows = []
    for steps in _STEPS:
        runs = _TOTAL // steps
        mine, theirs = await in_turn(_ours(rt, steps, runs), _bare(steps, runs))
        ours = (mine - idle_ours * runs) / _TOTAL * 1e6
        bare = (theirs - idle_bare * runs) / _TOTAL * 1e6
        rows.append(Row(name=f"{name}, run of {steps}", unit="µs CPU", ours=ours, bare=bare, limit=_LIMIT))
    return [*rows, await _growth(rt, name, idle_ours)]


async def _growth(rt: Runtime, name: str, idle: float) -> Row:
    """A step of the longest run beside one of the shortest, measured in turn."""
    lengths = (_STEPS[-1], _STEPS[0])
    spent = await in_turn(*(_ours(rt, steps, _TOTAL // steps) for steps in lengths))
    long, short = ((mine - idle * (_TOTAL // steps)) / _TOTAL * 1e6 for mine, steps in zip(spent, lengths, strict=True))
    what = f"{name}, run of {lengths[0]} beside {lengths[1]}"
    return Row(name=what, unit="µs CPU", ours=long, bare=short, limit=_MOST_GROWTH)


def _ours(rt: Runtime, steps: int, runs: int) -> Callable[[], Awaitable[None]]:
    async def work() -> None:
        for _ in range(runs):
            await (await rt.start(str(steps), who=WHO)).result()

    return work


def _bare(steps: int, runs: int) -> Callable[[], Awaitable[None]]:
    async def work() -> None:
        for _ in range(runs):
            await bare_run(steps)

    return work
