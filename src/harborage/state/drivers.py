"""Which record stores a configuration can name, and the one way from a name to an open store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from harborage.drivers import DriverTable
from harborage.state.store import StateStore


class StateConfig(msgspec.Struct, frozen=True):
    """Which driver to open and where its data is; `dsn` may hold a password, so it is never logged."""

    driver: str = "inmem"
    dsn: str = ""


StateFactory: TypeAlias = Callable[[StateConfig], Awaitable[StateStore]]

STATE_DRIVERS: DriverTable[StateFactory] = DriverTable(
    "state",
    {
        "inmem": "harborage.state.memory:make",
        "postgres": "harborage.state.postgres:make",
        "sqlite": "harborage.state.sqlite:make",
    },
)


async def open_state(config: StateConfig, *, drivers: DriverTable[StateFactory] = STATE_DRIVERS) -> StateStore:
    """The store that `config` asks for, ready for use; a blank driver name means `inmem`.

    Raises:
        DriverUnknownError: no such driver; the text lists those there are.
    """
    return await drivers.factory(config.driver or "inmem")(config)
