"""The names that configuration uses for planners, and how one of them becomes a planner.

A planner is an object that is passed in; only configuration needs a name. Nothing here imports a driver before it is
asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from harborage.drivers import DriverTable
from harborage.llm import LLMClient
from harborage.planner.cancellation import raise_if_cancelled
from harborage.planner.config import PlannerConfig
from harborage.planner.context import Planner

__all__ = ["PLANNERS", "Factory", "FactoryDeps", "register", "registered_drivers", "resolve"]


class FactoryDeps(msgspec.Struct, frozen=True, kw_only=True):
    """What the drivers of planners share. A driver that needs a part refuses to be built without it."""

    llm: LLMClient | None = None


Factory: TypeAlias = Callable[[PlannerConfig, FactoryDeps], Planner]
"""Builds a planner. Never: falls back silently when a dependency it needs is missing."""

PLANNERS: DriverTable[Factory] = DriverTable(
    "planner",
    {"finish": "harborage.planner.finish:make", "react": "harborage.planner.react:make"},
)
"""The planners of this program; an application freezes it once it is built."""


def register(name: str, factory: Factory | str) -> None:
    """Let `name` stand for `factory`, or for the `module:attribute` path of one.

    Raises:
        DriverEmptyNameError, DriverNilFactoryError, DriverDuplicateError: in this order.
        DriverFrozenError: the application is built already.
    """
    PLANNERS.register(name, factory)


def registered_drivers() -> list[str]:
    """The names that configuration may use, sorted."""
    return PLANNERS.names()


async def resolve(config: PlannerConfig, deps: FactoryDeps, *, table: DriverTable[Factory] = PLANNERS) -> Planner:
    """The planner that `config` names, built by its driver.

    Raises:
        asyncio.CancelledError: the caller was cancelled; reported first.
        DriverUnknownError: nobody registered the name; the text lists those that are.
        Exception: what the driver's factory raised.
    """
    raise_if_cancelled()
    return table.factory(config.driver)(config, deps)
