"""The names that configuration may use for buses and redactors. Code passes the objects themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from harborage.drivers import DriverTable

if TYPE_CHECKING:
    from harborage.events.bus import EventBus
    from harborage.events.redaction import Redactor

__all__ = ["BUS_DRIVERS", "REDACTOR_DRIVERS"]

BUS_DRIVERS: DriverTable[Callable[..., EventBus]] = DriverTable(
    "events", {"durable": "harborage.events.durable:make", "inmem": "harborage.events.bus:MemoryEventBus"}
)
REDACTOR_DRIVERS: DriverTable[Callable[..., Redactor]] = DriverTable(
    "audit", {"patterns": "harborage.events.redaction:default_redactor"}
)
