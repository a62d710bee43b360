"""What a rehearsal may do is decided by what its tools say of themselves."""

from __future__ import annotations

from typing import Any, cast

from harborage.concurrency import Crew
from harborage.identity import Identity
from harborage.planner import RunContext
from harborage.runtime.effects.run_resources import LiveRun, withheld
from harborage.testing.planners import ScriptedPlanner
from harborage.tools import CatalogView, SideEffect, ToolCatalog, tool
from tests.kit.tables import each_row


def live(side_effects: SideEffect, *, is_rehearsal: bool = True) -> LiveRun:
    """A run that sees one tool."""

    @tool(name="act", effects=side_effects)
    async def act() -> None:
        """Act."""

    catalog = ToolCatalog()
    catalog.register(act)
    base = RunContext(quadruple=Identity("t", "u", "s").with_run("r"), catalog=CatalogView(catalog))
    return LiveRun(
        base=base,
        planner=ScriptedPlanner([]),
        mailbox=cast("Any", None),
        crew=Crew(lambda name, error: None),
        is_rehearsal=is_rehearsal,
    )


@each_row("side_effects", SideEffect)
def test_what_has_effects_is_withheld(side_effects: SideEffect) -> None:
    """Looking and computing is free; everything that may change something outside the run is not."""
    is_free = side_effects in (SideEffect.PURE, SideEffect.READ)
    refusal = withheld(live(side_effects), "act")
    assert refusal == (
        ""
        if is_free
        else f'tool "act" was not called: this run is a rehearsal, and the tool has effects ({side_effects})'
    )


def test_other_runs_are_free() -> None:
    """A tool that does not exist is refused by the lookup."""
    assert withheld(live(SideEffect.WRITE, is_rehearsal=False), "act") == ""
    assert withheld(live(SideEffect.WRITE), "nope") == ""
