"""Agents whose runs have everything that a run's page shows: children, approvals, failures, length, hostile values.

`harborage dev tests_console/run_world.py` serves them. The model answers from the conversation alone, so that a
fork and a run that another process carries on get the right turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from harborage import Agent, RuntimeOptions, tool
from harborage.llm import CompleteRequest, CompleteResponse, Cost, Usage
from harborage.llm.scripted import Script, ScriptedCall, ScriptedModel, ScriptedTurn

PACE_S: Final = 0.05
LONG_STEPS: Final = 1000
HOSTILE: Final = "<img src=x onerror=\"window.hacked='img'\"><script>window.hacked='script'</script>"


class PricedModel(ScriptedModel):
    """A script with a price: half a cent a thousand tokens of what was said before."""

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        answer = await super().complete(request)
        prompt = len(request.messages) * 40
        return replace(
            answer,
            usage=Usage(prompt_tokens=prompt, completion_tokens=30, total_tokens=prompt + 30),
            cost=Cost(total_cost=prompt * 5e-6 + 6e-4),
        )


@tool(effects="read")
async def look(item: str) -> int:
    """How many of an item are left."""
    await asyncio.sleep(PACE_S)
    return {"tea": 2, "rice": 40}.get(item, 0)


@tool(effects="read")
async def fetch_quote(carrier: str) -> str:
    """Ask a carrier for a price."""
    await asyncio.sleep(PACE_S)
    if carrier == "Noord":
        raise ConnectionError("HTTP 503 from the carrier")
    return f"{carrier}: 61.20 euros"


@tool(effects="external", approval="always")
async def place_order(item: str, count: int, carrier: str = "Lumen", note: str = "") -> Mapping[str, Any]:
    """Order from the supplier.

    Args:
        count: how many boxes
    """
    await asyncio.sleep(PACE_S)
    return {"order": 4411, "item": item, "count": count}


@tool(effects="read")
async def tick(n: int) -> str:
    """A small call; some fail."""
    if n % 250 == 0:
        raise ValueError("no tick today")
    return f"tick {n}"


@tool(effects="read")
async def wait_a_bit(n: int) -> str:
    """A call that takes a while."""
    await asyncio.sleep(0.4)
    return f"waited {n}"


@tool(effects="read")
async def fetch_page(address: str) -> str:
    """What a page says, whatever that is."""
    return f"# Page\n\n{HOSTILE}\n\n[click](javascript:window.hacked='link') ![x](http://127.0.0.1:9/x.png)"


def _turn(when: str, *calls: tuple[str, dict[str, Any]], text: str = "", reasoning: str = "") -> ScriptedTurn:
    return ScriptedTurn(
        text=text, reasoning=reasoning, when=when, tool_calls=tuple(ScriptedCall(name, args) for name, args in calls)
    )


_ORDER: Final = {"item": "tea", "count": 20, "carrier": "Lumen", "note": "Deliver before Friday 12:00 at the back door"}
_CHILD: Final = {
    "kind": "background",
    "spec": {"description": "Carriers", "query": "Compare carriers for Lyon"},
}

_SHOP: Final = (
    _turn("restock", ("look", {"item": "tea"}), ("look", {"item": "rice"}), reasoning="Two shelves, side by side."),
    _turn("restock", ("_spawn_task", _CHILD), text="A helper compares carriers."),
    _turn("restock", ("_await_task", {"task_id": {"$result": "task_id"}})),
    _turn("restock", ("place_order", _ORDER), reasoning="Tea is short: twenty boxes are the usual lot."),
    _turn("restock", text="Ordered **the tea**."),
    _turn("compare carriers", ("fetch_quote", {"carrier": "Noord"})),
    _turn("compare carriers", ("fetch_quote", {"carrier": "Lumen"})),
    _turn("compare carriers", text="Lumen is cheaper."),
    _turn("only the rice", ("look", {"item": "rice"}), reasoning="The goal is another one now."),
    _turn("only the rice", text="There is rice enough."),
)

_SLOW: Final = tuple(_turn("", ("wait_a_bit", {"n": at})) for at in range(200))
_LONG: Final = (
    *(_turn("", ("tick", {"n": at})) for at in range(1, LONG_STEPS)),
    _turn("", text="Ticked."),
)
_HOSTILE: Final = (
    _turn("", ("fetch_page", {"address": HOSTILE}), text=HOSTILE, reasoning=HOSTILE),
    _turn(
        "",
        text=f"# Done\n\n{HOSTILE}\n\n[here](javascript:window.hacked='answer') <svg onload=\"window.hacked='svg'\">",
    ),
)


def _agent(name: str, turns: tuple[ScriptedTurn, ...], tools: list[Any], **options: Any) -> Agent:
    model = PricedModel(Script(turns=turns), name=name)
    return Agent(name, instructions="Do as asked.", model=model, tools=tools, options=RuntimeOptions(**options))


shop = _agent("shop", _SHOP, [look, fetch_quote, place_order], max_spawn_depth=2)
slow = _agent("slow", _SLOW, [wait_a_bit], max_steps=400)
long = _agent("long", _LONG, [tick], max_steps=LONG_STEPS + 10)
hostile = _agent("hostile", _HOSTILE, [fetch_page])

agents = [shop, slow, long, hostile]
