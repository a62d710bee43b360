"""What one scenario works with: fresh parts from the harness, closed in reverse order when it is over."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Self, TypeVar

from harborage.events import BUS_DRIVERS
from harborage.planner.conformance.report import ScenarioSkipped
from harborage.tasks import RegistryParts, TaskRegistry, TasksConfig, open_tasks

if TYPE_CHECKING:
    from harborage.planner.conformance.harness import Canned, Capabilities, Harness
    from harborage.planner.context import Planner, RunContext

__all__ = ["Bench"]

T = TypeVar("T")


class Bench:
    """The parts of one scenario. Use it as `async with Bench(harness) as bench`."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self._closing = AsyncExitStack()

    async def __aenter__(self) -> Self:
        if self.harness.cleanup is not None:
            self._closing.push_async_callback(self._clean_up)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._closing.aclose()

    def require(self, capability: Capabilities) -> None:
        """Go on with a planner that can do this.

        Raises:
            ScenarioSkipped: it does not claim to.
        """
        if capability not in self.harness.capabilities:
            raise ScenarioSkipped(f"the planner does not claim {capability.name}")

    async def planner(self) -> Planner:
        """A fresh planner."""
        return await _built(self.harness.planner())

    async def canned(self, name: Canned) -> Planner:
        """A fresh planner that is sure to do what `name` says.

        Raises:
            ScenarioSkipped: the harness has none.
        """
        found = await self._canned(name)
        if found is None:
            raise ScenarioSkipped(f"the harness has no planner for the scenario {name}")
        return found

    async def canned_or_own(self, name: Canned) -> Planner:
        """A fresh planner that is sure to do what `name` says, or just a fresh one where the harness has none such."""
        found = await self._canned(name)
        return await self.planner() if found is None else found

    async def planner_on(self, registry: TaskRegistry) -> Planner:
        """A fresh planner over this registry.

        Raises:
            ScenarioSkipped: the harness has none.
        """
        if self.harness.planner_on is None:
            raise ScenarioSkipped("the harness has no planner over a task registry: give it planner_on")
        return await _built(self.harness.planner_on(registry))

    async def context(self) -> RunContext:
        """A fresh context."""
        return await _built(self.harness.context())

    async def registry(self) -> TaskRegistry:
        """A fresh task registry, the harness's own or one in memory; it is closed with the scenario."""
        opened = await (self._own_registry() if self.harness.open_registry is None else self._given_registry())
        self._closing.push_async_callback(opened.aclose)
        return opened

    async def _canned(self, name: Canned) -> Planner | None:
        return None if self.harness.scenario is None else await _built(self.harness.scenario(name))

    async def _given_registry(self) -> TaskRegistry:
        assert self.harness.open_registry is not None
        return await _built(self.harness.open_registry())

    async def _own_registry(self) -> TaskRegistry:
        bus = BUS_DRIVERS.factory("inmem")()
        self._closing.push_async_callback(bus.aclose)
        return await open_tasks(TasksConfig(), RegistryParts(bus=bus))

    async def _clean_up(self) -> None:
        assert self.harness.cleanup is not None
        await _built(self.harness.cleanup())


async def _built(value: T | Awaitable[T]) -> T:
    """What a factory made, whether it is a plain or a coroutine function."""
    return await value if inspect.isawaitable(value) else value
