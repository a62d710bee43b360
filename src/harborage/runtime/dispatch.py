"""Dispatch: how a planner's decision is carried out, and what the planner gets to see of the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.planner.spawning import SpawnDepthExceededError as SpawnDepthExceededError
    from harborage.runtime.effects.executor import CatalogToolExecutor as CatalogToolExecutor
    from harborage.runtime.effects.executor import ParallelDispatchError as ParallelDispatchError
    from harborage.runtime.effects.executor import ToolInvokeError as ToolInvokeError
    from harborage.runtime.effects.heavy import DEFAULT_HEAVY_THRESHOLD as DEFAULT_HEAVY_THRESHOLD
    from harborage.runtime.effects.heavy import PREVIEW_FIELD_MAX_BYTES as PREVIEW_FIELD_MAX_BYTES
    from harborage.runtime.effects.heavy import PREVIEW_TOTAL_MAX_BYTES as PREVIEW_TOTAL_MAX_BYTES
    from harborage.runtime.effects.heavy import Projection as Projection
    from harborage.runtime.effects.heavy import heavy_truncation_summary as heavy_truncation_summary
    from harborage.runtime.effects.heavy import project as project
    from harborage.runtime.effects.heavy import project_observation as project_observation
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.planner.spawning": "SpawnDepthExceededError",
            "harborage.runtime.effects.executor": "CatalogToolExecutor ParallelDispatchError ToolInvokeError",
            "harborage.runtime.effects.heavy": (
                "DEFAULT_HEAVY_THRESHOLD PREVIEW_FIELD_MAX_BYTES PREVIEW_TOTAL_MAX_BYTES Projection "
                "heavy_truncation_summary project project_observation"
            ),
        },
    )
