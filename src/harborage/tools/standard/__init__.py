"""A small standard set of tools: files under a root, HTTP GET, a calculator and a clock.

They are ordinary tools, made with the same `@tool` that users have, and written to be read as examples: each has its
side-effect class, its limits, and refuses the tricks it knows.
"""

from __future__ import annotations

from os import PathLike

from harborage.tools.errors import AddressRefusedError
from harborage.tools.model import ToolDescriptor
from harborage.tools.standard.basic import calculator, clock
from harborage.tools.standard.errors import (
    ExpressionRefusedError,
    FetchFailedError,
    FileRefusedError,
    PathRefusedError,
    StandardToolError,
)
from harborage.tools.standard.files import FileLimits, file_tools
from harborage.tools.standard.root import may_hold_secrets
from harborage.tools.standard.web import WebLimits, http_get

__all__ = [
    "AddressRefusedError",
    "ExpressionRefusedError",
    "FetchFailedError",
    "FileLimits",
    "FileRefusedError",
    "PathRefusedError",
    "StandardToolError",
    "WebLimits",
    "calculator",
    "clock",
    "file_tools",
    "http_get",
    "may_hold_secrets",
    "standard_tools",
]


def standard_tools(
    root: str | PathLike[str] | None = None, *, can_write: bool = True, allow_private: bool = False
) -> list[ToolDescriptor]:
    """The whole set. Without a `root` there are no file tools; `can_write` False leaves `write_file` out.

    `allow_private` lets `http_get` reach addresses of this machine and of private networks.

    Raises:
        PathRefusedError: `root` is no folder.
    """
    files = [] if root is None else file_tools(root, can_write=can_write)
    return [*files, http_get(allow_private=allow_private), calculator(), clock()]
