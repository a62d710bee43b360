"""What a rehearsal may not do: a run such as a fork that is not live changes nothing outside itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from harborage.runtime.agent.run_resources import LiveRun

NO_TASKS: Final = "no task was spawned: this run is a rehearsal; a task of it would not be one"
"""Why a rehearsal's task was not spawned."""


def withheld(live: LiveRun, name: str) -> str:
    """Why a rehearsal may not call the tool of that name; empty when it may, and for every other run."""
    if not live.is_rehearsal or live.base.catalog is None:
        return ""
    tool = live.base.catalog.resolve(name)
    if tool is None or not tool.has_effects:
        return ""
    return f'tool "{name}" was not called: this run is a rehearsal, and the tool has effects ({tool.side_effects})'
