"""The artifact store: heavy bytes are stored here under names of their content, and travel by reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.artifacts.files import FileArtifactStore as FileArtifactStore
    from harborage.artifacts.media import Audio as Audio
    from harborage.artifacts.media import File as File
    from harborage.artifacts.media import Goal as Goal
    from harborage.artifacts.media import Image as Image
    from harborage.artifacts.media import Media as Media
    from harborage.artifacts.media import MediaError as MediaError
    from harborage.artifacts.memory import MemoryArtifactStore as MemoryArtifactStore
    from harborage.artifacts.store import ARTIFACT_DRIVERS as ARTIFACT_DRIVERS
    from harborage.artifacts.store import ArtifactConfig as ArtifactConfig
    from harborage.artifacts.store import ArtifactFactory as ArtifactFactory
    from harborage.artifacts.store import ArtifactStore as ArtifactStore
    from harborage.artifacts.store import ChangeCounts as ChangeCounts
    from harborage.artifacts.store import ScopedArtifacts as ScopedArtifacts
    from harborage.artifacts.store import TracksChanges as TracksChanges
    from harborage.artifacts.store import open_artifacts as open_artifacts
    from harborage.artifacts.values import ArtifactCorruptError as ArtifactCorruptError
    from harborage.artifacts.values import ArtifactError as ArtifactError
    from harborage.artifacts.values import ArtifactNotFoundError as ArtifactNotFoundError
    from harborage.artifacts.values import ArtifactRef as ArtifactRef
    from harborage.artifacts.values import ArtifactScope as ArtifactScope
    from harborage.artifacts.values import ArtifactScopeError as ArtifactScopeError
    from harborage.artifacts.values import ArtifactStorageError as ArtifactStorageError
    from harborage.artifacts.values import ArtifactStoreClosedError as ArtifactStoreClosedError
    from harborage.artifacts.values import UnsafePathError as UnsafePathError
    from harborage.identity import IdentityRequiredError as IdentityRequiredError
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.artifacts.files": "FileArtifactStore",
            "harborage.artifacts.media": "Audio File Goal Image Media MediaError",
            "harborage.artifacts.memory": "MemoryArtifactStore",
            "harborage.artifacts.store": (
                "ARTIFACT_DRIVERS ArtifactConfig ArtifactFactory ArtifactStore ChangeCounts ScopedArtifacts "
                "TracksChanges open_artifacts"
            ),
            "harborage.artifacts.values": (
                "ArtifactCorruptError ArtifactError ArtifactNotFoundError ArtifactRef ArtifactScope "
                "ArtifactScopeError ArtifactStorageError ArtifactStoreClosedError UnsafePathError"
            ),
            "harborage.identity": "IdentityRequiredError",
        },
    )
