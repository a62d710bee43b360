"""Bytes named after their content: heavy things are kept here and travel by reference."""

from __future__ import annotations

from harborage.artifacts.drivers import ARTIFACT_DRIVERS, ArtifactConfig, ArtifactFactory, open_artifacts
from harborage.artifacts.errors import (
    ArtifactCorruptError,
    ArtifactError,
    IdentityRequiredError,
    InvalidConfigError,
    NotFoundError,
    ScopeMismatchError,
    StorageError,
    StoreClosedError,
    UnsafePathError,
)
from harborage.artifacts.files import FileArtifactStore
from harborage.artifacts.memory import MemoryArtifactStore
from harborage.artifacts.scoped import ScopedArtifacts
from harborage.artifacts.store import ArtifactStore, ChangeCounts, TracksChanges
from harborage.artifacts.values import ArtifactRef, ArtifactScope

__all__ = [
    "ARTIFACT_DRIVERS",
    "ArtifactConfig",
    "ArtifactCorruptError",
    "ArtifactError",
    "ArtifactFactory",
    "ArtifactRef",
    "ArtifactScope",
    "ArtifactStore",
    "ChangeCounts",
    "FileArtifactStore",
    "IdentityRequiredError",
    "InvalidConfigError",
    "MemoryArtifactStore",
    "NotFoundError",
    "ScopeMismatchError",
    "ScopedArtifacts",
    "StorageError",
    "StoreClosedError",
    "TracksChanges",
    "UnsafePathError",
    "open_artifacts",
]
