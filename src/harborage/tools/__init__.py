"""Tools: what they are, where they are kept, and how a call of one is made reliable and visible."""

from __future__ import annotations

from harborage.tools.catalog import CatalogFilter, CatalogView, ToolCatalog, ToolSearch
from harborage.tools.enums import ErrorClass, Loading, OnUnknown, SideEffect, Transport, ValidateMode
from harborage.tools.errors import (
    HandleUnknownError,
    ToolCrashedError,
    ToolDuplicateNameError,
    ToolError,
    ToolExampleInvalidError,
    ToolFilterInvalidError,
    ToolInvalidArgsError,
    ToolMimeInvalidError,
    ToolNameMismatchError,
    ToolNotFoundError,
    ToolPolicyExhaustedError,
    ToolProbeMissingError,
    ToolRejectedError,
    ToolTimeoutError,
    UnsupportedTypeError,
)
from harborage.tools.function import ToolOptions, register_function, tool
from harborage.tools.index import MemoryToolSearch
from harborage.tools.invoke import Invoker, OnAttempt, run_with_policy
from harborage.tools.model import (
    CallContext,
    Probed,
    Tool,
    ToolBody,
    ToolDescriptor,
    ToolExample,
    ToolProbe,
    ToolResult,
    mime_matches,
)
from harborage.tools.policy import EffectivePolicy, ToolPolicy, classify
from harborage.tools.validators import describe_tool, schema_validator

__all__ = [
    "CallContext",
    "CatalogFilter",
    "CatalogView",
    "EffectivePolicy",
    "ErrorClass",
    "HandleUnknownError",
    "Invoker",
    "Loading",
    "MemoryToolSearch",
    "OnAttempt",
    "OnUnknown",
    "Probed",
    "SideEffect",
    "Tool",
    "ToolBody",
    "ToolCatalog",
    "ToolCrashedError",
    "ToolDescriptor",
    "ToolDuplicateNameError",
    "ToolError",
    "ToolExample",
    "ToolExampleInvalidError",
    "ToolFilterInvalidError",
    "ToolInvalidArgsError",
    "ToolMimeInvalidError",
    "ToolNameMismatchError",
    "ToolNotFoundError",
    "ToolOptions",
    "ToolPolicy",
    "ToolPolicyExhaustedError",
    "ToolProbe",
    "ToolProbeMissingError",
    "ToolRejectedError",
    "ToolResult",
    "ToolSearch",
    "ToolTimeoutError",
    "Transport",
    "UnsupportedTypeError",
    "ValidateMode",
    "classify",
    "describe_tool",
    "mime_matches",
    "register_function",
    "run_with_policy",
    "schema_validator",
    "tool",
]
