"""A clock for people's questions: the date and time in any time zone, with the day of the week."""

from __future__ import annotations

from datetime import UTC, tzinfo
from typing import TypedDict

from harborage.tools.enums import SideEffect
from harborage.tools.function import tool
from harborage.tools.model import CallContext, ToolDescriptor
from harborage.tools.standard.errors import StandardToolError

__all__ = ["LocalTime", "clock"]

_MAX_NAME_CHARS = 64


class LocalTime(TypedDict):
    """A moment in a time zone."""

    time: str
    weekday: str
    timezone: str
    utc_offset: str


def clock() -> ToolDescriptor:
    """The tool that tells the time of the call's clock."""

    async def tell(call: CallContext, timezone: str = "UTC") -> LocalTime:
        """Tell the current date, time and day of the week.

        Args:
            timezone: an IANA name such as Europe/Vienna
        """
        now = call.clock.now().astimezone(_zone(timezone))
        offset = now.strftime("%z")
        return LocalTime(
            time=now.isoformat(timespec="seconds"),
            weekday=now.strftime("%A"),
            timezone=timezone,
            utc_offset=f"{offset[:3]}:{offset[3:5]}",
        )

    return tool(tell, name="clock", side_effects=SideEffect.PURE, tags=("standard",), source="standard")


def _zone(name: str) -> tzinfo:
    if name.upper() == "UTC":
        return UTC
    # Costs a few milliseconds, and most clocks are asked for UTC.
    from zoneinfo import ZoneInfo

    try:
        if len(name) > _MAX_NAME_CHARS:
            raise ValueError("too long")
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError) as error:
        shown = name[:_MAX_NAME_CHARS]
        raise StandardToolError(f"there is no time zone {shown!r}; use an IANA name such as Europe/Vienna") from error
