"""Tools: their descriptions, their catalog, and reliable calls of them with events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.secrets import secret as secret
    from harborage.tools.auth import ApiKey as ApiKey
    from harborage.tools.auth import Bearer as Bearer
    from harborage.tools.auth import CookieAuth as CookieAuth
    from harborage.tools.catalog import CatalogFilter as CatalogFilter
    from harborage.tools.catalog import CatalogView as CatalogView
    from harborage.tools.catalog import MemoryToolSearch as MemoryToolSearch
    from harborage.tools.catalog import ToolCatalog as ToolCatalog
    from harborage.tools.catalog import ToolSearch as ToolSearch
    from harborage.tools.enums import ErrorClass as ErrorClass
    from harborage.tools.enums import Loading as Loading
    from harborage.tools.enums import OnUnknown as OnUnknown
    from harborage.tools.enums import SideEffect as SideEffect
    from harborage.tools.enums import Transport as Transport
    from harborage.tools.enums import ValidateMode as ValidateMode
    from harborage.tools.errors import HandleUnknownError as HandleUnknownError
    from harborage.tools.errors import ToolCrashedError as ToolCrashedError
    from harborage.tools.errors import ToolDuplicateNameError as ToolDuplicateNameError
    from harborage.tools.errors import ToolError as ToolError
    from harborage.tools.errors import ToolExampleInvalidError as ToolExampleInvalidError
    from harborage.tools.errors import ToolInvalidArgsError as ToolInvalidArgsError
    from harborage.tools.errors import ToolInvalidError as ToolInvalidError
    from harborage.tools.errors import ToolNotFoundError as ToolNotFoundError
    from harborage.tools.errors import ToolPolicyExhaustedError as ToolPolicyExhaustedError
    from harborage.tools.errors import ToolRejectedError as ToolRejectedError
    from harborage.tools.errors import ToolTimeoutError as ToolTimeoutError
    from harborage.tools.errors import UnsupportedTypeError as UnsupportedTypeError
    from harborage.tools.function import ToolOptions as ToolOptions
    from harborage.tools.function import register_function as register_function
    from harborage.tools.function import tool as tool
    from harborage.tools.http.endpoint import HTTP as HTTP
    from harborage.tools.http.manifest import HTTPManifest as HTTPManifest
    from harborage.tools.http.openapi.source import OpenAPI as OpenAPI
    from harborage.tools.http.operation import Paging as Paging
    from harborage.tools.invoke import BetweenAttempts as BetweenAttempts
    from harborage.tools.invoke import Invoker as Invoker
    from harborage.tools.invoke import OfRun as OfRun
    from harborage.tools.invoke import OnAttempt as OnAttempt
    from harborage.tools.invoke import run_with_policy as run_with_policy
    from harborage.tools.mcp.options import MCP as MCP
    from harborage.tools.model import CallContext as CallContext
    from harborage.tools.model import Probed as Probed
    from harborage.tools.model import Tool as Tool
    from harborage.tools.model import ToolBody as ToolBody
    from harborage.tools.model import ToolDescriptor as ToolDescriptor
    from harborage.tools.model import ToolExample as ToolExample
    from harborage.tools.model import ToolProbe as ToolProbe
    from harborage.tools.model import ToolResult as ToolResult
    from harborage.tools.model import mime_matches as mime_matches
    from harborage.tools.policy import EffectivePolicy as EffectivePolicy
    from harborage.tools.policy import ToolPolicy as ToolPolicy
    from harborage.tools.policy import classify as classify
    from harborage.tools.schema import describe_tool as describe_tool
    from harborage.tools.schema import schema_validator as schema_validator
    from harborage.tools.sources import ToolSource as ToolSource
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.secrets": "secret",
            "harborage.tools.auth": "ApiKey Bearer CookieAuth",
            "harborage.tools.catalog": "CatalogFilter CatalogView MemoryToolSearch ToolCatalog ToolSearch",
            "harborage.tools.enums": "ErrorClass Loading OnUnknown SideEffect Transport ValidateMode",
            "harborage.tools.errors": (
                "HandleUnknownError ToolCrashedError ToolDuplicateNameError ToolError ToolExampleInvalidError "
                "ToolInvalidArgsError ToolInvalidError ToolNotFoundError ToolPolicyExhaustedError ToolRejectedError "
                "ToolTimeoutError UnsupportedTypeError"
            ),
            "harborage.tools.function": "ToolOptions register_function tool",
            "harborage.tools.http.endpoint": "HTTP",
            "harborage.tools.http.manifest": "HTTPManifest",
            "harborage.tools.http.openapi.source": "OpenAPI",
            "harborage.tools.http.operation": "Paging",
            "harborage.tools.invoke": "BetweenAttempts Invoker OfRun OnAttempt run_with_policy",
            "harborage.tools.mcp.options": "MCP",
            "harborage.tools.model": (
                "CallContext Probed Tool ToolBody ToolDescriptor ToolExample ToolProbe ToolResult mime_matches"
            ),
            "harborage.tools.policy": "EffectivePolicy ToolPolicy classify",
            "harborage.tools.schema": "describe_tool schema_validator",
            "harborage.tools.sources": "ToolSource",
        },
    )
