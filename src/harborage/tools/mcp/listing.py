"""What a server offers: its lists, read page by page within limits, as plain values."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import mcp_types as types
import msgspec

from harborage.errors import error_summary
from harborage.tools.mcp.errors import cleaned
from harborage.tools.mcp.values import Listing, Prompt, PromptArgument, RemoteTool, Resource

if TYPE_CHECKING:
    from harborage.tools.mcp.connection import Connection
    from harborage.tools.sources import ToolLimits

PAGE_S: Final = 20.0
"""Seconds that a server has for one page of a list."""

_MOST_NAME: Final = 200


async def read_listing(connection: Connection, limits: ToolLimits, at: datetime) -> Listing:
    """Return all that a server lists. That its resources or prompts cannot be listed is a warning.

    Raises:
        Exception: its tools cannot be listed.
    """
    warnings: list[str] = []
    can: Any = connection.client.server_capabilities
    tools: list[Any] = []
    if can.tools is not None:
        tools = await _pages(connection.session.list_tools, "tools", limits, warnings)
    resources = await _tolerated(can.resources, connection.session.list_resources, "resources", limits, warnings)
    prompts = await _tolerated(can.prompts, connection.session.list_prompts, "prompts", limits, warnings)
    return Listing(
        at=at,
        tools=tuple(tool_of(one, limits) for one in tools),
        resources=tuple(_resource(one, limits) for one in resources),
        prompts=tuple(_prompt(one, limits) for one in prompts),
        warnings=tuple(warnings),
    )


async def _tolerated(
    can: object, ask: Callable[..., Awaitable[Any]], what: str, limits: ToolLimits, warnings: list[str]
) -> list[Any]:
    if can is None:
        return []
    try:
        return await _pages(ask, what, limits, warnings)
    except Exception as error:  # noqa: BLE001 - the tools of a server count without them
        warnings.append(f"its {what} cannot be listed: {cleaned(error_summary(error), 200)}")
        return []


async def _pages(ask: Callable[..., Awaitable[Any]], what: str, limits: ToolLimits, warnings: list[str]) -> list[Any]:
    found: list[Any] = []
    cursor: str | None = None
    for _ in range(limits.listing_pages):
        page = await ask(params=types.PaginatedRequestParams(cursor=cursor))
        found += getattr(page, what)
        cursor = page.next_cursor
        if cursor is None or len(found) > limits.tools_per_server:
            break
    if len(found) > limits.tools_per_server:
        warnings.append(f"it lists more than {limits.tools_per_server:,} {what}; the others are left out")
    elif cursor is not None:
        warnings.append(f"its {what} have more than {limits.listing_pages} pages; the others are left out")
    return found[: limits.tools_per_server]


def tool_of(listed: Any, limits: ToolLimits) -> RemoteTool:
    """Return a tool as its server lists it, within the limits of one."""
    hints = listed.annotations
    schemas = (listed.input_schema, listed.output_schema or {})
    parts = (listed.name, listed.description, *schemas, None if hints is None else hints.model_dump())
    problem = _problem(schemas, limits)
    return RemoteTool(
        name=listed.name,
        description=shortened(listed.description or listed.title or "", limits.description_bytes),
        args_schema=listed.input_schema if not problem else {},
        out_schema=(listed.output_schema or {}) if not problem else {},
        is_read_only=hints is not None and hints.read_only_hint is True,
        is_destructive=hints is not None and hints.destructive_hint is True,
        is_idempotent=hints is not None and hints.idempotent_hint is True,
        digest=hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest(),
        problem=problem or _task_problem(listed),
    )


def _task_problem(listed: Any) -> str:
    if listed.execution is not None and listed.execution.task_support == "required":
        return "it can only be called as a task, and the official client has no tasks"
    return ""


def _problem(schemas: tuple[Any, ...], limits: ToolLimits) -> str:
    for schema in schemas:
        if is_deeper(schema, limits.schema_levels):
            return f"a schema of it nests deeper than {limits.schema_levels} levels"
        if len(msgspec.json.encode(schema)) > limits.schema_bytes:
            return f"a schema of it has more than {limits.schema_bytes:,} bytes"
    return ""


def is_deeper(value: Any, levels: int) -> bool:
    """Whether JSON nests deeper than so many levels."""
    rows: list[Any] = [value]
    for _ in range(levels):
        rows = [
            inner
            for one in rows
            for inner in (one.values() if isinstance(one, dict) else one if isinstance(one, list) else ())
            if isinstance(inner, dict | list)
        ]
        if not rows:
            return False
    return True


def shortened(text: str, most: int) -> str:
    """Return a text of a server, without control characters, that has at most so many bytes; a cut one ends in `…`."""
    clean = cleaned(text, most)
    data = clean.encode("utf-8", "replace")
    return clean if len(data) <= most else data[: most - 3].decode("utf-8", "ignore") + "…"


def _resource(listed: Any, limits: ToolLimits) -> Resource:
    return Resource(
        uri=str(listed.uri)[:2_000],
        name=cleaned(listed.name, _MOST_NAME),
        title=cleaned(listed.title or "", _MOST_NAME),
        description=shortened(listed.description or "", limits.description_bytes),
        mime_type=cleaned(listed.mime_type or "", _MOST_NAME),
        size=listed.size or 0,
    )


def _prompt(listed: Any, limits: ToolLimits) -> Prompt:
    return Prompt(
        name=listed.name,
        description=shortened(listed.description or listed.title or "", limits.description_bytes),
        arguments=tuple(
            PromptArgument(
                name=one.name,
                description=shortened(one.description or "", limits.description_bytes),
                required=bool(one.required),
            )
            for one in listed.arguments or ()
        ),
    )
