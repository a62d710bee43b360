"""What lists call the drivers of a runtime's parts."""

from __future__ import annotations

from typing import Final

_NAMES: Final = {
    "harborage.artifacts.files": "fs",
    "harborage.artifacts.memory": "inmem",
    "harborage.events.durable_bus": "durable",
    "harborage.events.memory_bus": "inmem",
    "harborage.state.memory": "inmem",
    "harborage.state.postgres": "postgres",
    "harborage.state.sqlite": "sqlite",
    "harborage.store.memory": "inmem",
    "harborage.store.postgres": "postgres",
    "harborage.store.sqlite": "sqlite",
}


def driver_name(part: object) -> str:
    """Return the configured name of a part's driver; of a foreign one, the name of its class."""
    module = type(part).__module__
    while module:
        if module in _NAMES:
            return _NAMES[module]
        module = module.rpartition(".")[0]
    return type(part).__name__
