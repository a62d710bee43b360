"""The clock: the call's time in a time zone."""

from __future__ import annotations

from typing import Any

import pytest

from harborage.tools import SideEffect
from harborage.tools.standard import StandardToolError, clock, standard_tools
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio


async def test_the_time_is_told_in_utc_unless_asked_otherwise(invoke: Any) -> None:
    """With the day of the week and the offset, both of which models get wrong on their own."""
    assert await invoke(clock()) == {
        "time": "2026-03-04T23:06:07+00:00",
        "weekday": "Wednesday",
        "timezone": "UTC",
        "utc_offset": "+00:00",
    }


async def test_another_time_zone_may_be_another_day(invoke: Any) -> None:
    """The weekday is the one there."""
    told = await invoke(clock(), timezone="Asia/Kolkata")
    assert (told["time"], told["weekday"], told["utc_offset"]) == ("2026-03-05T04:36:07+05:30", "Thursday", "+05:30")


@each_row("name", ["", "Mars/Olympus", "../../etc/passwd", "/etc/localtime", "America", "x" * 500, "a\0b"])
async def test_a_zone_that_is_none_is_refused(invoke: Any, name: str) -> None:
    """Unknown names, folders of names and paths alike."""
    with pytest.raises(StandardToolError, match="no time zone"):
        await invoke(clock(), timezone=name)


def test_the_whole_set_has_unique_names_and_describes_itself(tmp_path: Any) -> None:
    """Every tool says what it does, what each argument is, and what it does to the world."""
    tools = [one.tool for one in standard_tools(tmp_path)]
    assert [one.name for one in tools] == [
        "list_files",
        "read_file",
        "search_files",
        "write_file",
        "http_get",
        "calculator",
        "clock",
    ]
    for one in tools:
        assert one.description
        assert one.side_effects is not SideEffect.STATEFUL
        assert all(each["description"] for each in one.args_schema["properties"].values())
    assert [one.tool.name for one in standard_tools()] == ["http_get", "calculator", "clock"]
    assert "write_file" not in [one.tool.name for one in standard_tools(tmp_path, can_write=False)]
