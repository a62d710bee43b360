"""What a runtime's options refuse where they are written."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import msgspec
import pytest

from harborage.errors import InvalidOptionError
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.loop.limits import Limits
from harborage.sessions import SessionPolicy
from harborage.tools.sources import ToolLimits

BELOW: Final = timedelta(seconds=-1)
ZERO: Final = timedelta()
SECOND: Final = timedelta(seconds=1)
FIELDS: Final[dict[str, tuple[list[Any], list[Any]]]] = {
    "max_steps": ([1], [0, -1, 1.5, float("nan"), "9", True, None]),
    "limits": ([Limits(steps=1)], [None, {}, 5]),
    "heavy_threshold": ([1], [0, -1, 1.5, "9", True, None]),
    "max_skills": ([0], [-1, 1.5, "9", True, None]),
    "max_spawn_depth": ([1], [0, -1, float("nan"), None]),
    "max_children": ([1], [0, -1, 1.5, None]),
    "max_tree": ([1], [0, -1, 1.5, None]),
    "max_running": ([1], [0, -1, 1.5, None]),
    "granted_scopes": ([frozenset({"a"})], ["vault", None, frozenset({1})]),
    "pause_ttl": ([SECOND], [ZERO, BELOW, 60, float("nan"), None]),
    "approval_ttl": ([SECOND], [ZERO, BELOW, 60, None]),
    "token_budget": ([None, 0], [-1, 1.5, "9"]),
    "built_in": ([("a",)], ["calculator", None, (1,)]),
    "tool_limits": ([ToolLimits()], [None, {}, 5]),
    "allow_hosts": ([(), ("localhost",)], ["localhost", None, (1,)]),
    "is_parallel_atomic": ([True], ["no", 1, None]),
    "keep_finished": ([0], [-1, 1.5, None]),
    "max_unread_controls": ([1], [0, -1, 1.5, True, None]),
    "linger": ([ZERO], [BELOW, 1, None]),
    "artifact_driver": (["", "fs"], [None, 1]),
    "artifact_root": (["", "x"], [None, 1]),
    "event_driver": (["inmem"], [None, 1]),
    "redactor": (["patterns"], [None, 1]),
    "records_model": ([False], ["no", 1, None]),
    "session_policy": ([SessionPolicy()], [None, SECOND]),
    "planner_timeout": ([SECOND], [ZERO, BELOW, 60, None]),
    "provider_patience": ([None, ZERO], [BELOW, 60, float("nan")]),
    "upkeep": ([SECOND], [ZERO, BELOW, 300, None]),
}
"""For each option: values that it takes, and values that it refuses."""


def test_every_option_refuses_what_makes_no_sense() -> None:
    """Where it is written, naming the option and the value; the table names every option there is."""
    assert set(FIELDS) == set(RuntimeOptions.__struct_fields__)
    for name, (taken, refused) in FIELDS.items():
        for value in taken:
            assert getattr(RuntimeOptions(**{name: value}), name) == value
        for value in refused:
            for write in (
                lambda name=name, value=value: RuntimeOptions(**{name: value}),
                lambda name=name, value=value: msgspec.structs.replace(RuntimeOptions(), **{name: value}),
            ):
                with pytest.raises(InvalidOptionError) as caught:
                    write()
                assert f"{name}={value!r}" in str(caught.value)
