"""An agent to be killed: it orders what a shop runs out of, from a supplier that takes each order once.

It needs no model and no key. Every second or so it looks at one shelf, and orders where there is too little. Kill it
wherever you like and carry it on with `harborage resume`: the supplier's book has each order once.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from harborage import CallContext, CallTool, Decision, Finish, FinishReason, RunContext, SideEffect, tool
from harborage.app import Agent

STOCK = {"tea": 2, "rice": 40, "salt": 0, "oil": 3, "flour": 25, "sugar": 1}
ENOUGH = 5
BOOK = Path("orders.jsonl")
"""The supplier's book: one line an order, with its key. A real supplier is a service that is handed the same key."""


@tool(effects=SideEffect.READ)
async def look(item: str) -> int:
    """How many of an item are on the shelf."""
    await asyncio.sleep(0.5)
    return STOCK[item]


@tool(effects=SideEffect.EXTERNAL, idempotent=True)
async def order(call: CallContext, item: str, count: int) -> str:
    """Order items from the supplier."""
    await asyncio.sleep(0.5)
    placed = await asyncio.to_thread(place, call.idempotency_key, item, count)
    await asyncio.sleep(0.5)
    return f"order {placed}: {count} {item}"


def place(key: str, item: str, count: int) -> int:
    """The number of the order under this key: a key that was seen before orders nothing more."""
    lines = BOOK.read_text().splitlines() if BOOK.exists() else []
    keys = [json.loads(line)["key"] for line in lines]
    if key in keys:
        return keys.index(key) + 1
    with BOOK.open("a") as book:
        book.write(json.dumps({"key": key, "item": item, "count": count}) + "\n")
    return len(lines) + 1


class Shopkeeper:
    """Looks at each shelf in turn. It keeps nothing: what was seen and ordered is in the run's own history."""

    async def next(self, run: RunContext) -> Decision:
        steps = run.trajectory.steps if run.trajectory else []
        if run.control.cancelled:
            return Finish(FinishReason.CANCELLED, "Stopped.")
        calls = [(step.action, step.observation) for step in steps if isinstance(step.action, CallTool)]
        last, found = calls[-1] if calls else (None, None)
        if last is not None and last.tool == "look" and isinstance(found, int) and found < ENOUGH:
            item = json.loads(last.args)["item"]
            return CallTool("order", json.dumps({"item": item, "count": 20}).encode())
        seen = {json.loads(call.args)["item"] for call, _ in calls if call.tool == "look"}
        for item in STOCK:
            if item not in seen:
                return CallTool("look", json.dumps({"item": item}).encode())
        orders = [observation for call, observation in calls if call.tool == "order"]
        return Finish(FinishReason.GOAL, "\n".join(placed_or_why_not(order) for order in orders))


def placed_or_why_not(order: Any) -> str:
    """What came of an order: the supplier's answer, or why there is none."""
    return order if isinstance(order, str) else f"not ordered: {order['error']}"


agent = Agent(name="orders", planner=Shopkeeper(), tools=[look, order])
