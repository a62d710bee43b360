"""`clock.now`: the time of the call's clock."""

from __future__ import annotations

from datetime import UTC
from typing import TypedDict

from harborage.identity import require_triple
from harborage.tools.builtin.names import CLOCK_NOW
from harborage.tools.enums import SideEffect
from harborage.tools.function import tool
from harborage.tools.model import CallContext, ToolDescriptor

__all__ = ["Now", "clock_now"]


class Now(TypedDict):
    """One moment, written twice."""

    rfc3339: str
    epoch_ms: int
    timezone: str


def clock_now() -> ToolDescriptor:
    """The tool that tells the time in UTC."""

    async def now(call: CallContext) -> Now:
        """Tell the current date and time in UTC."""
        require_triple(call.who, CLOCK_NOW)
        moment = call.clock.now().astimezone(UTC)
        return Now(
            rfc3339=moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            epoch_ms=int(moment.timestamp() * 1000),
            timezone="UTC",
        )

    return tool(now, name=CLOCK_NOW, side_effects=SideEffect.PURE, tags=("builtin",), source="builtin")
