"""The example that is made to be killed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from harborage import Identity, SideEffect, tool
from harborage.app import load_agent, open_runtime
from harborage.tools import ToolDescriptor, ToolPolicy

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    agent = load_agent(str(ROOT / "examples" / "orders.py"))
    return sys.modules["harborage_target_orders"], agent


async def test_what_runs_out_is_ordered(example: Any) -> None:
    """Each item that there is too little of, once."""
    module, agent = example

    @tool(name="look", effects=SideEffect.READ)
    async def quick_look(item: str) -> int:
        """Look."""
        return int(module.STOCK[item])

    @tool(name="order", effects=SideEffect.EXTERNAL, idempotent=True)
    async def quick_order(item: str, count: int) -> str:
        """Order."""
        return f"order {module.place(item, item, count)}: {count} {item}"

    tools: list[ToolDescriptor] = [quick_look, quick_order]
    async with open_runtime(agent.replace(tools=tools)) as runtime:
        run = await runtime.start("Order what runs out", who=Identity("acme", "ada", "s1"))
        assert (await run.finished()).payload == "order 1: 20 tea\norder 2: 20 salt\norder 3: 20 oil\norder 4: 20 sugar"


async def test_an_order_that_is_not_placed_is_reported(example: Any) -> None:
    """A supplier that refuses, or a rehearsal in which nothing is ordered, is no reason to fail."""
    module, agent = example

    @tool(name="look", effects=SideEffect.READ)
    async def quick_look(item: str) -> int:
        """Look."""
        return int(module.STOCK[item])

    @tool(name="order", effects=SideEffect.EXTERNAL, idempotent=True, policy=ToolPolicy(max_retries=0))
    async def refused(item: str, count: int) -> str:
        """Order."""
        raise ValueError(f"{item} is sold out")

    tools: list[ToolDescriptor] = [quick_look, refused]
    async with open_runtime(agent.replace(tools=tools)) as runtime:
        run = await runtime.start("Order what runs out", who=Identity("acme", "ada", "s1"))
        lines = str((await run.finished()).payload).splitlines()
    assert len(lines) == 4
    assert all(line.startswith("not ordered: ") and "is sold out" in line for line in lines)


def test_the_supplier_takes_a_key_once(example: Any) -> None:
    """The same key gives the same order, and the book one line."""
    module, _ = example
    assert [module.place(key, "tea", 1) for key in ("a", "b", "a")] == [1, 2, 1]
    assert len(module.BOOK.read_text().splitlines()) == 2


def test_orders_are_declared_as_what_they_are(example: Any) -> None:
    """So that a call in doubt is made again under its key."""
    _, agent = example
    assert {one.tool.name: one.tool.is_repeatable for one in agent.tools} == {"look": True, "order": True}
