"""Which artifact stores a configuration can name, and the one way from a name to an open store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from harborage.artifacts.errors import InvalidConfigError
from harborage.artifacts.store import ArtifactStore
from harborage.drivers import DriverTable

__all__ = ["ARTIFACT_DRIVERS", "ArtifactConfig", "ArtifactFactory", "open_artifacts"]

DEFAULT_HEAVY_OUTPUT_THRESHOLD_BYTES = 32768


class ArtifactConfig(msgspec.Struct, frozen=True):
    """Which driver to open, where its data is, and from what size on a tool's result becomes an artifact."""

    driver: str = "inmem"
    fs_root: str = ""
    heavy_output_threshold_bytes: int = DEFAULT_HEAVY_OUTPUT_THRESHOLD_BYTES


ArtifactFactory: TypeAlias = Callable[[ArtifactConfig], Awaitable[ArtifactStore]]

ARTIFACT_DRIVERS: DriverTable[ArtifactFactory] = DriverTable(
    "artifacts", {"inmem": "harborage.artifacts.memory:make", "fs": "harborage.artifacts.files:make"}
)


async def open_artifacts(
    config: ArtifactConfig, *, drivers: DriverTable[ArtifactFactory] = ARTIFACT_DRIVERS
) -> ArtifactStore:
    """The store that `config` asks for, ready for use; a blank driver name means `inmem`.

    Raises:
        InvalidConfigError: the threshold is negative, or the driver misses a setting it needs.
        DriverUnknownError: no such driver; the text lists those there are.
    """
    if config.heavy_output_threshold_bytes < 0:
        raise InvalidConfigError(
            f"artifacts.heavy_output_threshold_bytes is {config.heavy_output_threshold_bytes}; it must not be negative"
        )
    return await drivers.factory(config.driver or "inmem")(config)
