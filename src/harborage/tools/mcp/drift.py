"""What has changed of a tool since a person was asked about a call of it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from harborage.tools.mcp.errors import cleaned

if TYPE_CHECKING:
    from harborage.tools.mcp.values import RemoteTool

_MOST: Final = 300


def difference(server: str, before: RemoteTool, now: RemoteTool) -> str:
    """Return what an approver is shown of a tool that its server describes otherwise than before."""
    changed: list[str] = []
    if before.description != now.description:
        changed.append(f"its description was {before.description[:_MOST]!r} and is {now.description[:_MOST]!r}")
    for what, old, new in (
        ("arguments", before.args_schema, now.args_schema),
        ("result", before.out_schema, now.out_schema),
    ):
        if old != new:
            changed.append(f"the schema of its {what} was {_shown(old)} and is {_shown(new)}")
    found = "; ".join(changed) or "the hints that it gives, or what it said to the process that asked, have changed"
    return cleaned(f"the MCP server {server} has changed the tool {now.name} since it was approved: {found}")


def _shown(schema: object) -> str:
    return msgspec.json.encode(schema, order="deterministic").decode()[:_MOST]
