"""The names that configuration uses for planners, and how one of them becomes a planner.

A planner is an object that is passed in; only configuration needs a name. Nothing here imports a driver before it is
asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, cast

import msgspec

from harborage.callables import CallbackKindError, require_async, require_sync
from harborage.drivers import DriverTable
from harborage.llm import LLMClient
from harborage.planner.cancellation import raise_if_cancelled
from harborage.planner.config import PlannerConfig, check_config
from harborage.planner.context import Planner
from harborage.planner.errors import InvalidConfigError
from harborage.planner.wake import resolve_wake_mode

__all__ = ["PLANNERS", "Factory", "FactoryDeps", "check_planner", "register", "registered_drivers", "resolve"]


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
        InvalidConfigError: an option is out of its range, or what the factory made is no planner.
        Exception: what the driver's factory raised.
    """
    raise_if_cancelled()
    make = table.factory(config.driver)
    require_sync(make, f"the factory of the planner {config.driver!r}")
    check_config(config)
    return check_planner(make(config, deps))


def check_planner(planner: object) -> Planner:
    """The planner, if it can be asked: its `next` is async, and the wake mode that it may declare is one.

    Raises:
        InvalidConfigError: it is no planner; the text says what is wrong with it.
    """
    name = type(planner).__name__
    ask = getattr(planner, "next", None)
    if ask is None:
        raise InvalidConfigError(f"{name} is no planner: it has no `next`")
    try:
        require_async(ask, f"{name}.next")
        resolve_wake_mode(planner)
    except CallbackKindError as error:
        raise InvalidConfigError(f"{name} is no planner: {error}") from error
    return cast("Planner", planner)
