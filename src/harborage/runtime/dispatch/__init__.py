"""Dispatch: how a planner's decision is carried out, and what the planner gets to see of the result."""

from harborage.runtime.dispatch.children import AwaitSelfError, SpawnDepthExceededError
from harborage.runtime.dispatch.executor import CatalogToolExecutor, ParallelDispatchError, ToolInvokeError
from harborage.runtime.dispatch.heavy import (
    DEFAULT_HEAVY_THRESHOLD,
    PREVIEW_FIELD_MAX_BYTES,
    PREVIEW_TOTAL_MAX_BYTES,
    Projection,
    heavy_truncation_summary,
    project,
    project_observation,
)

__all__ = [
    "DEFAULT_HEAVY_THRESHOLD",
    "PREVIEW_FIELD_MAX_BYTES",
    "PREVIEW_TOTAL_MAX_BYTES",
    "AwaitSelfError",
    "CatalogToolExecutor",
    "ParallelDispatchError",
    "Projection",
    "SpawnDepthExceededError",
    "ToolInvokeError",
    "heavy_truncation_summary",
    "project",
    "project_observation",
]
