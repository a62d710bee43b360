"""Effects by name, and what one step looks like to its effect."""

from __future__ import annotations

import pytest

from harborage.errors import NotFoundError
from harborage.runtime.durable.steps import Change, EffectTable, Note, StepCall
from tests.kit.tables import each_row


async def nothing(call: StepCall) -> None:
    """An effect that does nothing."""


def test_an_exact_name_outranks_its_family() -> None:
    """`tool.` is the effect of every name that begins with it, unless that name has an effect of its own."""
    family, own = Note(run=nothing), Change(run=nothing)
    table = EffectTable({"tool.": family, "tool.special": own, "plan": own})
    assert table.find("tool.special") is own
    for name in ("tool.other", "tool.", "tool.a.b"):
        assert table.find(name) is family


@each_row("name", ["", "tool", "toolbox.x", "Tool.x", "plan.x", "."])
def test_a_name_that_only_looks_alike_is_unknown(name: str) -> None:
    """The error names it and what there is."""
    table = EffectTable({"tool.": Note(run=nothing), "plan": Note(run=nothing)})
    with pytest.raises(NotFoundError, match=r"known: plan, tool\.") as caught:
        table.find(name)
    assert caught.value.id == name


def test_an_empty_table_says_so() -> None:
    """There is nothing to list."""
    with pytest.raises(NotFoundError, match="known: <none>"):
        EffectTable({}).find("x")


def test_the_key_of_a_step_is_its_run_and_its_place() -> None:
    """Whatever it is called and given, so that a repeat has the same one."""
    first, again = StepCall("r", "7.0.1", "tool.x", 1), StepCall("r", "7.0.1", "tool.y", 2)
    assert first.key == again.key == "r/7.0.1"
    assert StepCall("r", "7.0.2", "tool.x", 1).key != first.key
